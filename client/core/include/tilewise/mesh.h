// Explicit placement of whole arrays: devices as a grid with named axes, and which axis cuts which dimension.
#pragma once
#include <tilewise/types.h>

#include <string>
#include <utility>
#include <vector>

namespace tilewise {

struct MeshAxis {
  std::string name;
  int size = 1;
};

// Devices in C order over the axes. Throws ArrayError: kInvalidArgument unless the sizes multiply to the number of
// devices, each is there once, and names are distinct and not empty. A mesh is of these devices for good: when one of them is lost, or has left,
// what is placed on it anew fails (kWorkerLost). Make another one from Session::devices() and go on; arrays that are held are made again.
class Mesh {
 public:
  Mesh(std::vector<Device> devices, std::vector<MeshAxis> axes);

  const std::vector<Device>& devices() const { return devices_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(const std::string& axis) const;  // kNotFound, naming those there are
  // "Mesh(x: 4, y: 2)"
  std::string to_string() const;

 private:
  std::vector<Device> devices_;
  std::vector<MeshAxis> axes_;
};

// For each dimension of an array, in order, the mesh axes that cut it: none, one, or several (the first varies slowest).
// Dimensions beyond the list are not cut. The array is replicated over axes that no dimension names.
//   PartitionSpec{"x", "y"}   PartitionSpec{{}, "x"}   PartitionSpec{{"x", "y"}}   PartitionSpec{}
class PartitionSpec {
 public:
  struct Entry {
    std::vector<std::string> axes;
    Entry() = default;
    Entry(const char* axis) : axes{axis} {}
    Entry(std::string axis) : axes{std::move(axis)} {}
    Entry(std::initializer_list<const char*> several) : axes(several.begin(), several.end()) {}
  };
  PartitionSpec() = default;
  PartitionSpec(std::initializer_list<Entry> dims) : dims_(dims) {}

  const std::vector<Entry>& dims() const { return dims_; }
  std::string to_string() const;  // "PartitionSpec(x, -, (y, z))"

 private:
  std::vector<Entry> dims_;
};

// The rule that a mesh and a spec mean for an array of this rank. kInvalidArgument for an axis used twice or a spec
// longer than the rank, kNotFound for one that the mesh does not have.
ir::DeviceHint sharding(const Mesh& mesh, const PartitionSpec& spec, int rank);

}  // namespace tilewise
