// Arrays on disk in place of a second copy: one worker, killed with -9 in the middle of a long loop, and disks that cannot take them.
#include <doctest/doctest.h>
#include <sys/mount.h>
#include <csignal>
#include <fstream>

#include "harness.h"
#include "programs.h"
#include "watched.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::int64_t count(const Watched& w, const char* what) {
  return w.ask("top").at(what).to_number<std::int64_t>();
}

bool warned(const Watched& w, const std::string& part) {
  const json::object page = w.ask("top");
  for (const json::value& warning : page.at("warnings").as_array()) {
    const std::string text(warning.at("what").as_string());
    if (warning.at("code").as_string() == "checkpoint-failed" && text.find(part) != std::string::npos)
      return true;
  }
  return false;
}

// Names of checkpoints below the folder, in whatever cluster's.
std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() != ".cluster") out.push_back(entry.path());
  }
  return out;
}

ClusterOptions one_worker(const std::string& folder) {
  return {.workers = 1,
          .devices = 1,
          .scheduler_args = {"--checkpoint-dir", folder, "--silence-timeout", "2"},
          .worker_args = {"--respawn", "--silence-timeout", "2"},
          .keep_state = true};
}

}  // namespace

TEST_CASE("thousands of steps on one worker: its past stays short, and kill -9 costs a few of them") {
  const TempFolder folder;
  Watched w(one_worker(folder / ""));
  INFO(w.cluster.words());
  std::optional<Loop> loop(w.cluster.session());
  loop->run(9000);
  CHECK(eventually([&] { return count(w, "lineage") < 5000 && count(w, "checkpoints") > 0; }));
  CHECK(!checkpoints_in(folder / "").empty());
  const int worker = child_of(w.cluster.worker(0).pid());
  REQUIRE(worker > 0);
  ::kill(worker, SIGKILL);
  CHECK(loop->right());
  CHECK(eventually([&] { return count(w, "recovered") > 0; }));
  CHECK(count(w, "recovered") < 4 * 5000);
  loop->run(500);
  CHECK(loop->right());
  CHECK(eventually([&] { return count(w, "lineage") < 5000; }));
  loop.reset();
  CHECK(eventually([&] { return checkpoints_in(folder / "").empty(); }));
  CHECK(eventually([&] { return count(w, "lineage") == 0; }));
}

TEST_CASE(
    "scheduler and worker are killed at once: the next ones read what is on disk, and clear up the rest") {
  const TempFolder folder;
  Watched w(one_worker(folder / ""));
  INFO(w.cluster.words());
  std::optional<Loop> loop(w.cluster.session());
  loop->run(4500);
  REQUIRE(eventually([&] { return count(w, "checkpoints") > 0; }));
  w.cluster.scheduler().signal(SIGKILL);
  const int worker = child_of(w.cluster.worker(0).pid());
  w.cluster.worker(0).signal(SIGKILL);
  if (worker > 0) ::kill(worker, SIGKILL);
  w.cluster.scheduler().wait();
  const std::string left =
      std::filesystem::path(checkpoints_in(folder / "").at(0)).parent_path() / "0000000000000001";
  std::ofstream(left) << "of a life that nobody remembers";
  w.cluster.restart_scheduler();
  w.cluster.add_worker({"--respawn"});
  CHECK(loop->right());
  CHECK(eventually([&] { return !std::filesystem::exists(left); }));
  loop.reset();
  CHECK(eventually([&] { return checkpoints_in(folder / "").empty(); }));
}

TEST_CASE(
    "a checkpoint that is gone or was changed when it is needed is a typed error that names array and file") {
  const TempFolder folder;
  const auto spoil =
      [](const std::string& file) {  // a bit in the middle of each block, and of what is around
        std::string bytes = read_file(file);
        for (std::size_t at = 4096 + 100; at < bytes.size(); at += 1000)
          bytes[at] = static_cast<char>(bytes[at] ^ 1);
        std::ofstream(file, std::ios::binary) << bytes;
      };
  bool changed = false;
  SUBCASE("gone") {}
  SUBCASE("changed") { changed = true; }
  Watched w(one_worker(folder / ""));
  INFO(w.cluster.words());
  Loop loop(w.cluster.session());
  loop.run(4500);
  REQUIRE(eventually([&] { return count(w, "checkpoints") > 0; }));
  const std::vector<std::string> files = checkpoints_in(folder / "");
  for (const std::string& file : files) changed ? spoil(file) : (void)std::filesystem::remove(file);
  ::kill(child_of(w.cluster.worker(0).pid()), SIGKILL);
  std::string text;
  Errc code = Errc::kOk;
  try {
    (void)(loop.x() + 1.0).get<double>({.timeout = kPatience});
  } catch (const ArrayError& e) {
    code = e.code();
    text = e.what();
  }
  CAPTURE(text);
  CHECK(code == Errc::kWorkerLost);
  CHECK(text.find("array ") != std::string::npos);
  if (changed) CHECK(text.find(": block ") != std::string::npos);
}

TEST_CASE("a folder that is not there: a warning, and all goes on; once it is there it is used") {
  const TempFolder folder;
  const std::string missing = folder / "later";
  Watched w(one_worker(missing));
  INFO(w.cluster.words());
  Loop loop(w.cluster.session());
  loop.run(4500);
  CHECK(eventually([&] { return warned(w, missing); }));
  CHECK(count(w, "checkpoints") == 0);
  CHECK(loop.right());
  std::filesystem::create_directory(missing);
  CHECK(eventually([&] {
    loop.run(500);
    return count(w, "checkpoints") > 0;
  }));
  CHECK(!warned(w, ""));
  CHECK(loop.right());
}

TEST_CASE("a full disk: a warning, and all goes on; once there is room it is used") {
  const TempFolder folder;
  const std::string disk = folder / "small";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    MESSAGE("no right to mount a small disk: not tested");
    return;
  }
  {
    Watched w(one_worker(disk));
    INFO(w.cluster.words());
    Loop loop(w.cluster.session());
    loop.run(4500);
    CHECK(eventually([&] { return warned(w, "cannot reserve"); }));
    CHECK(count(w, "checkpoints") == 0);
    CHECK(loop.right());
    CHECK(eventually([&] { return checkpoints_in(disk).empty(); }));
    REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0);
    CHECK(eventually([&] {
      loop.run(500);
      return count(w, "checkpoints") > 0;
    }));
    CHECK(!warned(w, ""));
    CHECK(loop.right());
  }
  ::umount2(disk.c_str(), MNT_DETACH);
}
