#include <tilewise/error.h>
#include <tilewise/mesh.h>

#include <algorithm>
#include <set>

namespace tilewise {

Mesh::Mesh(std::vector<Device> devices, std::vector<MeshAxis> axes)
    : devices_(std::move(devices)), axes_(std::move(axes)) {
  std::set<std::uint32_t> seen;
  for (const Device& device : devices_)
    if (!seen.insert(device.id.value).second)
      throw ArrayError(Errc::kInvalidArgument, "device '" + device.name + "' is in the mesh twice");
  std::int64_t product = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    if (axis.name.empty() || axis.size < 1)
      throw ArrayError(Errc::kInvalidArgument,
                       "mesh axis " + std::to_string(i) + " needs a name and a size of at least 1");
    for (std::size_t j = 0; j < i; ++j) {
      if (axes_[j].name == axis.name)
        throw ArrayError(Errc::kInvalidArgument, "two mesh axes are called '" + axis.name + "'");
    }
    product *= axis.size;
    if (product > static_cast<std::int64_t>(devices_.size())) break;
  }
  if (product != static_cast<std::int64_t>(devices_.size()) || devices_.empty()) {
    throw ArrayError(Errc::kInvalidArgument,
                     to_string() + " does not fit " + std::to_string(devices_.size()) + " devices");
  }
}

int Mesh::size(const std::string& axis) const {
  std::string names;
  for (const MeshAxis& a : axes_) {
    if (a.name == axis) return a.size;
    names += (names.empty() ? "" : ", ") + a.name;
  }
  throw ArrayError(Errc::kNotFound, "the mesh has no axis '" + axis + "'; it has " + names);
}

std::string Mesh::to_string() const {
  std::string out = "Mesh(";
  for (const MeshAxis& axis : axes_)
    out += (out.back() == '(' ? "" : ", ") + axis.name + ": " + std::to_string(axis.size);
  return out + ")";
}

std::string PartitionSpec::to_string() const {
  std::string out = "PartitionSpec(";
  for (const Entry& entry : dims_) {
    if (out.back() != '(') out += ", ";
    std::string names;
    for (const std::string& axis : entry.axes) names += (names.empty() ? "" : ", ") + axis;
    out += entry.axes.empty() ? "-" : entry.axes.size() == 1 ? names : "(" + names + ")";
  }
  return out + ")";
}

ir::DeviceHint sharding(const Mesh& mesh, const PartitionSpec& spec, int rank) {
  const std::vector<MeshAxis>& axes = mesh.axes();
  if (spec.dims().size() > static_cast<std::size_t>(rank)) {
    throw ArrayError(Errc::kInvalidArgument,
                     spec.to_string() + " is for more dimensions than the array's " + std::to_string(rank));
  }
  ir::DeviceHint hint;
  hint.parts.assign(static_cast<std::size_t>(rank), 1);
  // The rule's devices are counted along the dimensions' axes, then along those that replicate.
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < spec.dims().size(); ++d) {
    for (const std::string& name : spec.dims()[d].axes) {
      hint.parts[d] *= mesh.size(name);
      const auto at = static_cast<std::size_t>(
          std::find_if(axes.begin(), axes.end(), [&](const MeshAxis& a) { return a.name == name; }) -
          axes.begin());
      if (std::find(order.begin(), order.end(), at) != order.end())
        throw ArrayError(Errc::kInvalidArgument, spec.to_string() + " uses axis '" + name + "' twice");
      order.push_back(at);
    }
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (std::find(order.begin(), order.end(), a) != order.end()) continue;
    order.push_back(a);
    hint.copies *= axes[a].size;
  }
  std::vector<std::size_t> stride(axes.size(), 1);  // of an axis in the mesh's devices
  for (std::size_t a = axes.size(); a-- > 1;)
    stride[a - 1] = stride[a] * static_cast<std::size_t>(axes[a].size);
  std::vector<int> at(axes.size(), 0);  // coordinates, in `order`
  for (std::size_t n = 0; n < mesh.devices().size(); ++n) {
    std::size_t device = 0;
    for (std::size_t i = 0; i < order.size(); ++i)
      device += stride[order[i]] * static_cast<std::size_t>(at[i]);
    hint.devices.push_back(mesh.devices()[device].id);
    for (std::size_t i = order.size(); i-- > 0 && ++at[i] == axes[order[i]].size;) at[i] = 0;
  }
  return hint;
}

}  // namespace tilewise
