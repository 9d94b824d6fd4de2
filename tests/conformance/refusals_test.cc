// An allocator that fails at its k-th request, for every k, in each kind of task: the right value or a typed error, and a
// cluster that works as before.
#include "refusals.h"
#include "clusters.h"
#include "sanitizers.h"
#include "temp_folder.h"

#include <tilewise/client/endpoint_decorator.h>
#include <tilewise/io/begun.h>
#include <tilewise/io/npy.h>
#include <tilewise/kernels/plugin.h>

#include <doctest/doctest.h>
#include <hdf5.h>
#include <array>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

using namespace tilewise;
using testing::TempFolder;

namespace {

struct Kind {
  std::string name;
  std::function<std::vector<double>(const Session&, const TempFolder&)> run;
};

std::vector<double> counted(std::int64_t n) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = static_cast<double>(i % 97);
  return x;
}

// float64, in rows of chunks that are compressed.
void write_hdf5(const std::string& path, const std::vector<double>& values, hsize_t rows, hsize_t columns) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t extents[] = {rows, columns}, chunk[] = {rows / 4, columns};
  const hid_t space = H5Screate_simple(2, extents, nullptr), chunked = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(chunked, 2, chunk);
  H5Pset_deflate(chunked, 1);
  const hid_t set = H5Dcreate2(file, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, chunked, H5P_DEFAULT);
  const bool written = H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0 &&
                       H5Dclose(set) >= 0;
  H5Pclose(chunked);
  H5Sclose(space);
  REQUIRE((H5Fclose(file) >= 0 && written));
}

const Kind kKinds[] = {
    {"kernels, fetch",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({64, 64}, {.seed = 3, .block = {16, 32}});
       return (sqrt(x) + x.T()).get<double>();
     }},
    {"upload, transfer",
     [](const Session& s, const TempFolder&) {
       const std::vector<double> x = counted(64 * 64);
       const Array a = s.from_memory(x, {64, 64}, {.block = {16, 64}});
       return (a + a.T()).get<double>();
     }},
    {"reduction",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.normal({96, 64}, {.seed = 5, .block = {16, 16}});
       return (sum(x, 0) * max(x, 0)).get<double>();
     }},
    {"matmul",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({96, 96}, {.seed = 7, .block = {32, 32}});
       return matmul(x, x.T()).get<double>();
     }},
    {"call: sort, scan",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({512}, {.seed = 9, .block = {64}});
       return cumulative_sum(sort(x)).get<double>();
     }},
    {"transform",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({32, 32}, {.seed = 15, .block = {8, 32}});
       return real(fft::ifft(fft::fft(x, {}, 0), {}, 0)).get<double>();
     }},
    {"selection",
     [](const Session& s, const TempFolder&) {
       const Array x = floor(s.random.uniform({256}, {.seed = 17, .block = {64}}) * 10.0);
       return (unique_values(x) + 1.0).get<double>();
     }},
    {"file written and read",
     [](const Session& s, const TempFolder& folder) {
       const Array x = s.random.uniform({64, 64}, {.seed = 11, .block = {16, 64}});
       x.save_npy(folder / "x.npy").wait();
       return s.load_npy(folder / "x.npy", {.block = {32, 64}}).get<double>();
     }},
    {"folder of files written and read",
     [](const Session& s, const TempFolder& folder) {
       const Array x = s.random.uniform({48, 32}, {.seed = 19, .block = {16, 32}});
       x.write_zarr(folder / "x.zarr", {.codec = "gzip"}).wait();
       return s.read_zarr(folder / "x.zarr", {.block = {16, 32}}).get<double>();
     }},
    {"folder of files, by zstd",
     [](const Session& s, const TempFolder& folder) {
       const Array x = s.random.uniform({48, 32}, {.seed = 29, .block = {16, 32}});
       x.write_zarr(folder / "x.zarr", {.codec = "zstd"}).wait();
       return s.read_zarr(folder / "x.zarr", {.block = {16, 32}}).get<double>();
     }},
    {"HDF5 file read",
     [](const Session& s, const TempFolder& folder) {
       const std::string path = folder / "x.h5";
       if (!std::filesystem::exists(path)) write_hdf5(path, counted(64 * 32), 64, 32);
       return (s.read_hdf5(path, "x", {.block = {16, 32}}) * 2.0).get<double>();
     }},
    {"plug-in",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({512}, {.seed = 27, .block = {64}});
       return (map_blocks({.name = "sample.triple"}, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0] +
               x)
           .get<double>();
     }},
    {"update at indices",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({256}, {.seed = 21, .block = {64}});
       const Array at = s.arange(0, 256, 5, {.block = {16}});
       return put(x, at, take(x, at) * 2.0).get<double>();
     }},
    {"mask, indices",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({256}, {.seed = 23, .block = {64}});
       const Array at = s.arange(0, 16, 1, {.block = {8}});
       return set_index(set_index(x, {x > 0.5}, 7.0).reshape({16, 16}), {at, at}, 8.0).get<double>();
     }},
    {"equations",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({64, 64}, {.seed = 25, .block = {32, 32}}) + s.eye(64) * 64.0;
       return solve(x, s.ones({64}, {.block = {32}})).get<double>();
     }},
    {"factors",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({64, 16}, {.seed = 31, .block = {16, 16}});
       const Array square = matmul(x.T(), x) + s.eye(16);
       return concat({qr(x).q.reshape({1024}), qr(x, QrMode::kComplete).r.reshape({1024}), svd(x, false).s,
                      lstsq(x, s.ones({64}, {.block = {16}})).x, eigh(square).eigenvalues,
                      cholesky(square).reshape({256}), inv(square).reshape({256}), det(square).reshape({1})})
           .get<double>();
     }},
    {"positions",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({256}, {.seed = 33, .block = {64}});
       const Array order = argsort(x), sorted = take_along_axis(x, order);
       const Array counts = sum(nonzero(x > 0.5)[0]) + sum(topk(x, 5).indices);
       return (astype(searchsorted(sorted, x), DType::kFloat64) + counts).get<double>();
     }},
    {"random numbers, moments",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.gamma(2.0, {256}, {.seed = 35, .block = {64}});
       return (x - mean(x) + var(x) + astype(argmax(x), DType::kFloat64)).get<double>();
     }},
    {"blocks moved",
     [](const Session& s, const TempFolder&) {
       const Array x = s.random.uniform({64, 32}, {.seed = 37, .block = {16, 32}});
       return concat({roll(x, 5, 0), x}, 0).reshape({32, 128}).get<double>();
     }},
    {"local blocks, narrow products",
     [](const Session& s, const TempFolder&) {
       const auto values = std::make_shared<std::vector<double>>(counted(64 * 32));
       const std::vector<LocalBlock<double>> pieces{{{0, 0}, {64, 32}, *values, values}};
       const Array x =
           (s.from_local_blocks("x", {64, 32}, pieces, {.processes = 1}) / 97.0).astype(DType::kFloat16);
       return astype(matmul(x.T(), x), DType::kFloat64).get<double>();
     }},
    {"spill",
     [](const Session& s, const TempFolder&) {
       Array x = s.random.uniform({512, 128}, {.seed = 13, .block = {32, 128}});  // 512 KiB
       x.persist().wait();
       return (x.T() * 2.0).get<double>();
     }},
    {"spill, fetch from disk",
     [](const Session& s, const TempFolder&) {
       Array x = s.random.uniform({512, 128}, {.seed = 13, .block = {32, 128}});
       x.persist().wait();
       return x.get<double>();
     }},
};

Form form(const TempFolder& spill, bool disk) {
  Form f{"refusals",
         {.workers = 2,
          .host_devices = 1,
          .use_cuda = false,
          .memory_bytes = disk ? 192 << 10 : 16 << 20,
          .map_peers = false,
          .spin_ns = 0,
          .stuck_ns = kSecond}};
  f.options.plugins = {TILEWISE_SAMPLE_PLUGIN};
  if (disk) f.options.spill_directory = spill.path(), f.options.spill_bytes = 64 << 20;
  return f;
}

// What the device of the cluster hold when nothing is alive: nothing, or an array of all their memory would not fit.
void check_whole(TestCluster& cluster, bool disk) {
  const std::int64_t each = (disk ? 192 << 10 : 16 << 20) / 2 / 8;
  Array most = cluster.session.ones({2 * each}, {.block = {each / 4}});
  CHECK(sum(most).item<double>() == static_cast<double>(2 * each));
}

// With sanitizers every third, or it would take them an hour.
constexpr int kStep = testing::kTimesSlower > 1 ? 3 : 1;

void for_every_k(Allocator which, const std::set<Errc>& typed, int at_most) {
  const TempFolder spill;
  const bool full = which == Allocator::kDisk || which == Allocator::kDiskAsItIs;
  for (const Kind& kind : kKinds) {
    const bool disk = kind.name.starts_with("spill");
    const bool file = kind.name.find("file") != std::string::npos, hdf5 = kind.name == "HDF5 file read";
    if (full && !disk && (!file || hdf5)) continue;
    if (which == Allocator::kRead && !disk && !file) continue;
    if (which == Allocator::kLibrary && !hdf5 && kind.name.find("folder of files") == std::string::npos)
      continue;
    CAPTURE(kind.name);
    const TempFolder files;
    std::vector<double> expected;
    {
      TestCluster cluster(form(spill, disk));
      expected = kind.run(cluster.session, files);
    }
    // Device memory is asked for once in the life of a cluster; the others' requests go on with its work.
    auto cluster = std::make_unique<TestCluster>(form(spill, disk));
    std::int64_t requests = 0, k = 1, errors = 0;
    do {
      CAPTURE(k);
      if (which == Allocator::kDevice) cluster = std::make_unique<TestCluster>(form(spill, disk));
      refuse(which, k);
      try {
        const std::vector<double> values = kind.run(cluster->session, files);
        requests = allow();
        CHECK(values == expected);
      } catch (const ArrayError& e) {
        requests = allow();
        ++errors;
        INFO(std::string(e.what()));
        CHECK(typed.contains(e.code()));
      }
      CHECK(kind.run(cluster->session, files) == expected);
      check_whole(*cluster, disk);
      k += kStep;
    } while (requests >= k - kStep && k <= at_most);
    CHECK(k > 1 + kStep);         // something was asked for, and refused
    CHECK(requests < k - kStep);  // and after the last k there was nothing left to refuse
    MESSAGE(kind.name << ": " << k - 1 << " requests refused in turn, " << errors << " errors");
    CHECK(files.files() <= 1);  // what was saved, and no part of what was not
  }
  CHECK(spill.files() == 0);
}

}  // namespace

namespace {

// What a session has asked for.
class Recording final : public client::EndpointDecorator {
 public:
  Recording(std::unique_ptr<client::Endpoint> real, std::set<ir::OpKind>& kinds,
            std::set<std::string>& kernels)
      : EndpointDecorator(std::move(real)), kinds_(kinds), kernels_(kernels) {}
  using EndpointDecorator::send;
  void send(msg::Message message) override {
    if (const auto* submit = std::get_if<msg::Submit>(&message)) {
      for (const ir::Op& op : submit->ops) {
        kinds_.insert(op.kind);
        if (const auto* call = std::get_if<ir::CallAttrs>(&op.attrs)) kernels_.insert(call->kernel);
      }
    }
    EndpointDecorator::send(std::move(message));
  }

 private:
  std::set<ir::OpKind>& kinds_;
  std::set<std::string>& kernels_;
};

// Not what others are lowered to, or what the scheduler adds: that comes with those.
bool is_submitted(ir::OpKind kind) {
  switch (kind) {
    case ir::OpKind::kMap:
    case ir::OpKind::kReduce:
    case ir::OpKind::kMatmul:
    case ir::OpKind::kCopy:
    case ir::OpKind::kReshape:
    case ir::OpKind::kReadNpy:
    case ir::OpKind::kWriteNpy:
    case ir::OpKind::kCall:
    case ir::OpKind::kFetch:
    case ir::OpKind::kProvide:
    case ir::OpKind::kScan: return true;
    case ir::OpKind::kReduceBlocks:
    case ir::OpKind::kCombine:
    case ir::OpKind::kMatmulPanels:
    case ir::OpKind::kKeep: return false;
  }
  return false;
}

}  // namespace

TEST_CASE("each kind of op, and each kernel of our own, is among what is tried with refusals") {
  std::set<ir::OpKind> kinds;
  std::set<std::string> kernels;
  const TempFolder spill;
  for (const Kind& kind : kKinds) {
    const TempFolder files;
    const auto cluster = TestCluster::start(form(spill, false).options);
    const Session session =
        make_session(std::make_unique<Recording>(cluster->connect("test"), kinds, kernels),
                     {.seed = 5, .inspect = io::inspect});
    (void)kind.run(session, files);
  }
  for (int k = 0; k <= static_cast<int>(ir::OpKind::kKeep); ++k) {
    const auto kind = static_cast<ir::OpKind>(k);
    CHECK_MESSAGE((!is_submitted(kind) || kinds.contains(kind)), ir::name_of(kind));
  }
  const tilewise_plugin_v1& ours = tilewise::kernels::builtin_kernels();
  // That do nothing; that no function of the client calls; that the scheduler asks for, where a save has failed (each of the tests
  // below does that) and where workers have a folder for checkpoints (clusters inside a process have none:
  // checkpoint_refusals_test.cc, integration/refusals_test.cc).
  const std::set<std::string> others{"tilewise.noop",
                                     "tilewise.zero",
                                     "tilewise.compute",
                                     "tilewise.discard_npy",
                                     "tilewise.discard_zarr",
                                     "tilewise.tend_checkpoints",
                                     "tilewise.create_checkpoint",
                                     "tilewise.write_checkpoint",
                                     "tilewise.commit_checkpoint",
                                     "tilewise.restore_checkpoint"};
  for (const auto& kernel : std::span(ours.kernels, static_cast<std::size_t>(ours.kernel_count)))
    CHECK_MESSAGE(kernels.contains(kernel.name) != others.contains(kernel.name), std::string(kernel.name));
}

TEST_CASE("memory of a device cannot be had") { for_every_k(Allocator::kDevice, {Errc::kOutOfMemory}, 100); }

TEST_CASE("memory of the host cannot be had while a step runs") {
  for_every_k(Allocator::kHost, {Errc::kOutOfMemory}, 2'000);
}

TEST_CASE("the disk is full") { for_every_k(Allocator::kDisk, {Errc::kDiskFull}, 400); }

TEST_CASE("the disk is full, and its file system reserves nothing beforehand") {
  for_every_k(Allocator::kDiskAsItIs, {Errc::kDiskFull}, 400);
}

#ifdef TILEWISE_REFUSES_LIBRARIES
TEST_CASE("memory that C libraries ask for cannot be had while a step runs") {
  for_every_k(Allocator::kLibrary, {Errc::kOutOfMemory}, 2'000);
}
#endif

TEST_CASE("the disk cannot be read") { for_every_k(Allocator::kRead, {Errc::kIo, Errc::kTaskFailed}, 400); }

TEST_CASE("memory to send a block from disk cannot be had: it is asked for again") {
  const TempFolder spill;
  TestCluster cluster(form(spill, true));
  const auto run = [&] {
    Array x = cluster.session.random.uniform({528, 125}, {.seed = 13, .block = {33, 125}});
    x.persist().wait();
    return x.get<double>();
  };
  const std::vector<double> expected = run();
  std::int64_t requests = 0, most = 0, k = 0;
  for (int tries = 0; tries < 20 && most == 0;
       ++tries) {  // which blocks are on disk when they are sent is a matter of time
    k = 0;
    do {
      ++k;
      CAPTURE(k);
      refuse(Allocator::kBlock, k);
      CHECK(run() == expected);
      requests = allow();
      most = std::max(most, requests);
      check_whole(cluster, true);
    } while (requests >= k && k < 100);
  }
  CHECK(most > 0);
  CHECK(requests < k);
}

TEST_CASE("a saved file that cannot be opened just now is not called another one") {
  const TempFolder folder;
  const std::string path = folder / "a.npy";
  const ir::Shape shape{4};
  const std::string temporary = *io::create_temp(path, "t", ir::DType::kInt64, shape);
  const std::array parts{*io::id_of(temporary)};
  REQUIRE(io::commit(path, "t", ir::DType::kInt64, shape, parts).has_value());
  std::int64_t requests = 0, k = 0;
  do {
    ++k;
    CAPTURE(k);
    refuse(Allocator::kRead, k);
    const Status again = io::commit(path, "t", ir::DType::kInt64, shape, parts);
    requests = allow();
    CHECK(again.has_value() == (requests < k));
    if (!again) CHECK_MESSAGE(again.error().code == Errc::kIo, again.error().message);
    refuse(Allocator::kRead, k);
    const auto found = io::find_begun(path, "t", parts[0]);
    CHECK(found.has_value() == (allow() < k));
    CHECK((found ? !*found : found.error().code == Errc::kIo));
  } while (requests >= k && k < 30);
  CHECK(k > 3);
  CHECK(requests < k);
}

TEST_CASE("the file to spill to cannot be prepared: there is one all the same, or a typed error") {
  for (const Allocator which : {Allocator::kDisk, Allocator::kRead}) {
    std::int64_t requests = 0, k = 0;
    do {
      ++k;
      CAPTURE(k);
      const TempFolder spill;
      refuse(which, k);
      auto started = embedded::Cluster::start(form(spill, true).options);
      requests = allow();
      if (!started) {
        CHECK_MESSAGE(started.error().code == Errc::kDiskFull, started.error().message);
        continue;
      }
      const Session session = make_session((*started)->connect("test"), {.seed = 5});
      Array x = session.random.uniform({512, 128}, {.seed = 13, .block = {32, 128}});
      x.persist().wait();
      CHECK(sum(x).item<double>() > 0);
    } while (requests >= k && k < 30);
    CHECK(k > 1);
    CHECK(requests < k);
  }
}
