// interop_files write FOLDER: arrays in every form of file that Tilewise writes, and FOLDER/ours.txt, which lists them.
// interop_files read FOLDER: reads what FOLDER/theirs.txt lists, and compares. Exit code 1, with a line for each, if any is wrong.
//
// A line of a list: npy|zarr|hdf5 PATH DATASET DTYPE SHAPE ROWS, "-" for what there is none of. Element k in C order is value(k);
// of the rows from ROWS on nothing was written, they hold the fill value 9.
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>
#include <tilewise/tilewise.h>

#include <algorithm>
#include <complex>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace tilewise;

namespace {

using Values = std::vector<std::complex<double>>;

// As in others.py. Every dtype holds its own exactly.
std::complex<double> value(std::int64_t k, DType dtype) {
  const auto v = static_cast<double>((k * 37 + 11) % 101);
  if (dtype == DType::kBool) return static_cast<double>((k * 37 + 11) % 101 % 2);
  if (ir::is_complex(dtype)) return {(v - 50) / 4, v / 2};
  if (ir::is_floating(dtype)) return (v - 50) / 4;
  return ir::is_signed_integer(dtype) ? v - 50 : v;
}

Values values_of(const Shape& shape, DType dtype, std::int64_t rows) {
  Values out(static_cast<std::size_t>(ir::volume(shape)));
  const std::int64_t row = shape.empty() ? 1 : ir::volume(shape) / std::max<std::int64_t>(shape[0], 1);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const auto at = static_cast<std::int64_t>(k);
    out[k] = rows >= 0 && at >= rows * row ? 9 : value(at, dtype);
  }
  return out;
}

struct Listed {
  std::string format, path, dataset = "-";
  DType dtype = DType::kFloat64;
  Shape shape;
  std::int64_t rows = -1;
};

void write(Session& s, const std::string& folder) {
  std::ofstream list(folder + "/ours.txt");
  const auto made = [&](const Shape& shape, DType dtype, const Shape& block) {
    const Values all = values_of(shape, dtype, -1);
    if (ir::is_complex(dtype)) return s.from_memory(all, shape, {.block = block}).astype(dtype);
    std::vector<double> real(all.size());
    std::ranges::transform(all, real.begin(), [](const std::complex<double>& v) { return v.real(); });
    return s.from_memory(real, shape, {.block = block}).astype(dtype);
  };
  const auto tell = [&](const char* format, const std::string& path, DType dtype, const Shape& shape) {
    list << format << ' ' << path << " - " << name_of(dtype) << ' ';
    for (std::size_t d = 0; d < shape.size(); ++d) list << (d > 0 ? "," : "") << shape[d];
    list << (shape.empty() ? "-" : "") << " -\n";
  };
  for (int t = 0; t < ir::kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (dtype == DType::kBFloat16) continue;  // neither NumPy nor zarr-python has it
    const std::string name(name_of(dtype));
    const Array x = made({10, 12}, dtype, {4, 5});
    x.save_npy(folder + "/" + name + ".npy").wait();
    tell("npy", name + ".npy", dtype, x.shape());
    for (const int version : {2, 3}) {
      const std::string path = name + ".v" + std::to_string(version) + ".zarr";
      x.write_zarr(folder + "/" + path, {.version = version}).wait();
      tell("zarr", path, dtype, x.shape());
    }
  }
  const std::vector<std::pair<std::string, ZarrOptions>> ways = {
      {"none", {.codec = "none"}},
      {"gzip", {.codec = "gzip", .level = 6}},
      {"blosc", {.codec = "blosc", .level = 5}},
      {"chunks", {.chunk = {4, 2}}},
      {"shards", {.chunk = {5, 7}, .shard = {10, 14}}},
      {"shards-none", {.chunk = {10, 7}, .shard = {20, 14}, .codec = "none"}},
      {"shards-blosc", {.chunk = {2, 14}, .shard = {20, 14}, .codec = "blosc"}},
      {"v2-none", {.version = 2, .codec = "none"}},
      {"v2-gzip", {.version = 2, .codec = "gzip", .level = 1}},
      {"v2-blosc", {.version = 2, .codec = "blosc", .level = 9}},
  };
  for (const auto& [name, options] : ways) {
    const Array x = made({50, 70}, DType::kFloat64, {20, 14});
    x.write_zarr(folder + "/" + name + ".zarr", options).wait();
    tell("zarr", name + ".zarr", x.dtype(), x.shape());
  }
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1}, Shape{3, 1, 4, 2}}) {
    const std::string name = "rank" + std::to_string(shape.size());
    const Array x = made(shape, DType::kInt32, {});
    x.write_zarr(folder + "/" + name + ".zarr").wait();
    tell("zarr", name + ".zarr", x.dtype(), shape);
    x.save_npy(folder + "/" + name + ".npy").wait();
    tell("npy", name + ".npy", x.dtype(), shape);
  }
  if (!list.flush()) throw std::runtime_error("cannot write " + folder + "/ours.txt");
}

std::vector<Listed> read_list(const std::string& path) {
  std::vector<Listed> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Listed one;
    std::string dtype, shape, rows;
    std::istringstream words(line);
    if (!(words >> one.format >> one.path >> one.dataset >> dtype >> shape >> rows))
      throw std::runtime_error(path + ": cannot read the line: " + line);
    const auto known = ir::dtype_named(dtype);
    if (!known) throw std::runtime_error(path + ": what dtype is " + dtype);
    one.dtype = *known;
    if (rows != "-") one.rows = std::stoll(rows);
    std::istringstream extents(shape == "-" ? "" : shape);
    for (std::string extent; std::getline(extents, extent, ',');) one.shape.push_back(std::stoll(extent));
    out.push_back(std::move(one));
  }
  if (out.empty()) throw std::runtime_error(path + " lists nothing");
  return out;
}

int read(Session& s, const std::string& folder) {
  int wrong = 0;
  const auto is_wrong = [&](const Listed& one, const std::string& why) {
    ++wrong;
    std::cout << one.path << (one.dataset == "-" ? "" : one.dataset) << ": " << why << '\n';
  };
  const std::vector<Listed> all = read_list(folder + "/theirs.txt");
  for (const Listed& one : all) {
    try {
      const std::string path = folder + "/" + one.path;
      const Array x = one.format == "npy"    ? s.load_npy(path)
                      : one.format == "zarr" ? s.read_zarr(path)
                                             : s.read_hdf5(path, one.dataset);
      if (x.shape() != one.shape) is_wrong(one, "of shape " + ir::to_string(x.shape()));
      if (x.dtype() != one.dtype) is_wrong(one, "of dtype " + std::string(name_of(x.dtype())));
      if (x.astype(DType::kComplex128).get<std::complex<double>>() !=
          values_of(one.shape, one.dtype, one.rows))
        is_wrong(one, "other values");
    } catch (const ArrayError& e) {
      is_wrong(one, e.what());
    }
  }
  std::cout << all.size() << " arrays of others read, " << wrong << " of them wrong\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "write" && what != "read") {
    std::cerr << "usage: interop_files write|read FOLDER\n";
    return 2;
  }
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 2, .use_cuda = false, .memory_bytes = 64 << 20, .spin_ns = 0});
  if (!cluster) throw std::runtime_error(cluster.error().message);
  Session s = make_session((*cluster)->connect("interop"),
                           {.timeout = std::chrono::seconds(60), .inspect = io::inspect});
  if (what == "read") return read(s, argv[2]);
  write(s, argv[2]);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "interop_files: " << e.what() << '\n';
  return 1;
}
