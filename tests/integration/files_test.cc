// Files that workers read and write, and what goes wrong with them: a typed error that names the file, a cluster that goes
// on, and either a whole file or none.
#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "harness.h"
#include "skipped.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// The error of what must fail.
ArrayError error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const ArrayError& e) {
    return e;
  }
  return ArrayError(Errc::kOk, "nothing was thrown");
}

bool names(const ArrayError& e, const std::string& part) {
  return std::string(e.what()).find(part) != std::string::npos;
}

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// A file system of so many bytes, for as long as this lives. Needs the right to mount.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, std::int64_t bytes) : path_(path) {
    std::filesystem::create_directories(path);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("two worker processes write one file and read it again, under another grid") {
  Cluster cluster;
  INFO(cluster.words());
  const Session session = cluster.session();
  const TempFolder folder;
  const std::string path = folder / "x.npy";
  const Array x = session.random.uniform({500, 300}, {.seed = 3, .block = {64, 100}});
  x.save_npy(path).wait({.timeout = kPatience});
  CHECK(files_in(folder / "") == 1);
  CHECK(std::filesystem::file_size(path) == 128 + 500 * 300 * 8);
  const Array again = session.load_npy(path, {.block = {90, 300}});
  CHECK(again.get<double>() == x.get<double>());
  // Writing over it: readers of the old file see it whole until the new one is.
  (x * 2.0).save_npy(path).wait({.timeout = kPatience});
  CHECK(session.load_npy(path).get<double>() == (x + x).get<double>());
}

TEST_CASE("a save that is cancelled leaves a whole file or none") {
  Cluster cluster;
  INFO(cluster.words());
  const Session session = cluster.session();
  const TempFolder folder;
  const std::string path = folder / "x.npy";
  Array x = session.random.uniform({4000, 1000}, {.seed = 3, .block = {100, 250}});
  x.persist().wait({.timeout = kPatience});
  for (int round = 0; round < 5; ++round) {
    Future save = x.save_npy(path);
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
    save.cancel();
    CHECK(error_of([&] { save.wait(); }).code() == Errc::kCancelled);
    CHECK(eventually([&] {
      return files_in(folder / "") == 0 || (files_in(folder / "") == 1 && std::filesystem::exists(path));
    }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // nothing comes back
  CHECK(files_in(folder / "") <= 1);
  CHECK(sum(x).item<double>() > 0);
}

TEST_CASE("files that are missing, no .npy, or too short are named") {
  Cluster cluster;
  INFO(cluster.words());
  const Session session = cluster.session();
  const TempFolder folder;
  const std::string missing = folder / "missing.npy", text = folder / "text.npy", cut = folder / "cut.npy";
  ArrayError e = error_of([&] { session.load_npy(missing); });
  CHECK(e.code() == Errc::kNotFound);
  CHECK(names(e, missing));
  std::ofstream(text) << "not a NumPy file, but long enough to hold the header of one";
  e = error_of([&] { session.load_npy(text); });
  CHECK(e.code() == Errc::kCorruptData);
  CHECK(names(e, text));

  const Array x = session.ones({1000, 100}, {.block = {100, 100}});
  x.save_npy(cut).wait({.timeout = kPatience});
  const Array whole = session.load_npy(cut, {.block = {100, 100}});
  std::filesystem::resize_file(cut, 128 + 500 * 100 * 8);  // behind the back of the array
  e = error_of([&] { whole.get<double>(); });
  CHECK_MESSAGE(e.code() == Errc::kNotFound, std::string(e.what()));
  CHECK_MESSAGE(names(e, cut), std::string(e.what()));
  CHECK_MESSAGE(names(e, "has been changed since"), std::string(e.what()));
  CHECK(error_of([&] { session.load_npy(cut); }).code() == Errc::kCorruptData);  // and to its face
  const Array gone = session.load_npy((x.save_npy(cut).wait(), cut));
  std::filesystem::remove(cut);
  e = error_of([&] { gone.get<double>(); });
  CHECK_MESSAGE(e.code() == Errc::kNotFound, std::string(e.what()));
  CHECK_MESSAGE(names(e, cut), std::string(e.what()));
  CHECK(sum(x).item<double>() == 100'000);
}

TEST_CASE("a full disk fails the save, leaves no part of a file, and nothing else suffers") {
  Cluster cluster;
  INFO(cluster.words());
  const TempFolder folder;
  const SmallDisk disk(folder / "disk", 1 << 20);
  if (!disk.mounted()) {
    skipped(std::string("no right to mount a small file system: ") + std::strerror(errno));
    return;
  }
  const Session session = cluster.session();
  const std::string path = folder / "disk/x.npy";
  const Array small = session.ones({100, 100}, {.block = {50, 100}});
  small.save_npy(path).wait({.timeout = kPatience});
  const Array big = session.ones({1000, 1000}, {.block = {100, 1000}});  // 8 MB
  const ArrayError e = error_of([&] { big.save_npy(path).wait({.timeout = kPatience}); });
  CHECK_MESSAGE(e.code() == Errc::kDiskFull, std::string(e.what()));
  CHECK_MESSAGE(names(e, "No space left"), std::string(e.what()));
  CHECK_MESSAGE(names(e, folder / "disk"), std::string(e.what()));
  CHECK(eventually([&] { return files_in(folder / "disk") == 1; }));  // the old one, whole
  CHECK(session.load_npy(path).get<double>() == small.get<double>());
  CHECK(sum(big).item<double>() == 1e6);
}

TEST_CASE("a plug-in's kernel runs in worker processes; another version of it is refused at the door") {
  Cluster cluster({.workers = 1, .devices = 2, .worker_args = {"--plugin", TILEWISE_SAMPLE_PLUGIN}});
  INFO(cluster.words());
  const Session session = cluster.session();
  const Array x = session.arange(0.0, 100.0, 1.0, {.block = {30}});
  std::vector<double> want = x.get<double>();
  for (double& v : want) v *= 3;
  const auto call = [&](const std::string& kernel) {
    return map_blocks({.name = kernel}, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0].get<double>();
  };
  CHECK(call("sample.triple") == want);

  const auto join = [&](const std::string& plugin) {
    return run({worker_program(), "--scheduler", cluster.address(), "--token-file", cluster.token_file(),
                "--devices", "host:0", "--memory", "64MiB", "--plugin", plugin},
               {}, std::chrono::seconds(20));
  };
  Ran other = join(TILEWISE_OTHER_PLUGIN);  // says it is version 2.0
  CHECK(other.code == 1);
  CHECK_MESSAGE(other.errors.find("'sample.triple' has version '2.0', in the cluster it has version '1.0'") !=
                    std::string::npos,
                other.errors);
  other = join(TILEWISE_OLD_PLUGIN);  // made for another interface
  CHECK(other.code == 2);
  CHECK_MESSAGE(other.errors.find("ABI") != std::string::npos, other.errors);
  const ArrayError e = error_of([&] { call("sample.quadruple"); });
  CHECK_MESSAGE(names(e, "sample.quadruple"), std::string(e.what()));
  CHECK(call("sample.triple") == want);
}
