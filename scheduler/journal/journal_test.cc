#include <tilewise/journal/journal.h>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "print_result.h"
#include "temp_folder.h"

namespace tilewise::journal {
namespace {

struct Folder {
  testing::TempFolder above;
  const std::string path = above / "state";
  std::string file() const {  // the only generation there is
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const std::string name = entry.path().string();
      if (name.find("journal.") == std::string::npos) continue;
      CHECK(found.empty());
      found = name;
    }
    return found;
  }
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

using Records = std::vector<std::pair<std::uint32_t, std::string>>;

struct Found {
  Result<Journal::Past> past = Journal::Past{};
  Header header;
  Records records;
};

// With a journal that has the folder open, or one of its own.
Found read(const Folder& folder, Journal* with = nullptr) {
  Found found;
  std::unique_ptr<Journal> own;
  if (with == nullptr) {
    auto opened = Journal::open(folder.path, {});
    REQUIRE(opened);
    own = std::move(*opened);
    with = own.get();
  }
  found.past = with->read(
      [&](const Header& header) -> Status {
        found.header = header;
        return {};
      },
      [&](std::uint32_t kind, std::string_view bytes) -> Status {
        found.records.emplace_back(kind, std::string(bytes));
        return {};
      });
  return found;
}

const Records kWritten{{0, "snapshot"}, {1, "a"}, {2, ""}, {1, std::string(1000, 'x')}};

void write_some(const Folder& folder) {
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  REQUIRE((*journal)->begin({7, 3, "1.2.3"}, kWritten[0].second));
  for (std::size_t i = 1; i < kWritten.size(); ++i) (*journal)->append(kWritten[i].first, kWritten[i].second);
  REQUIRE((*journal)->flush());
  (*journal)->append(1, "never flushed");
}

TEST_CASE("what was flushed is read again, in order; nothing was there before") {
  const Folder folder;
  CHECK_FALSE(read(folder).past->any);
  write_some(folder);
  const Found found = read(folder);
  REQUIRE(found.past);
  CHECK(found.past->any);
  CHECK(found.header.state == 7);
  CHECK(found.header.term == 3);
  CHECK(found.header.software == "1.2.3");
  CHECK(found.records == kWritten);
  CHECK(found.past->torn == 0);
}

TEST_CASE("a generation replaces the one before, and what a death left behind") {
  const Folder folder;
  write_some(folder);
  spill(folder.path + "/next", "half a generation");
  {
    auto journal = Journal::open(folder.path, {.sync = true});
    REQUIRE(journal);
    REQUIRE((*journal)->begin({7, 4, "1.2.3"}, "later"));
    (*journal)->append(5, "b");
    REQUIRE((*journal)->flush());
    CHECK(Journal::open(folder.path, {}).error().code == Errc::kAlreadyExists);
  }
  const Found found = read(folder);
  REQUIRE(found.past);
  CHECK(found.header.term == 4);
  CHECK(found.records == Records{{0, "later"}, {5, "b"}});
  (void)folder.file();
}

TEST_CASE("cut anywhere: whole records before the cut are there, a snapshot that is not whole is refused") {
  const Folder folder;
  write_some(folder);
  const std::string file = folder.file(), bytes = slurp(file);
  std::size_t most = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    spill(file, bytes.substr(0, size));
    const Found found = read(folder);
    CAPTURE(size);
    if (!found.past) {
      CHECK(found.past.error().code == Errc::kCorruptData);
      CHECK(found.past.error().message.find(file) != std::string::npos);
      CHECK(most == 0);
      continue;
    }
    CHECK(found.records.size() >= most);
    CHECK(found.records.size() < kWritten.size());
    most = found.records.size();
    CHECK(found.records == Records(kWritten.begin(), kWritten.begin() + static_cast<std::ptrdiff_t>(most)));
  }
  CHECK(most == kWritten.size() - 1);
}

TEST_CASE("any byte altered: never another value; with good records behind it, refused by place") {
  const Folder folder;
  write_some(folder);
  const std::string file = folder.file(), bytes = slurp(file);
  const std::size_t last = bytes.size() - 1000 - 24;  // where the last record begins
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    spill(file, damaged);
    const Found found = read(folder);
    CAPTURE(at);
    if (at < last) {
      // Padding is nobody's.
      if (found.past) {
        CHECK(found.records == kWritten);
      } else {
        CHECK(found.past.error().code == Errc::kCorruptData);
      }
    } else {
      REQUIRE(found.past);
      CHECK(found.records == Records(kWritten.begin(), kWritten.end() - 1));
      CHECK(found.past->torn == bytes.size() - last);
    }
  }
}

// The lock of one that is still there is lost, as where a lease of NFS ends: another one can be had.
std::unique_ptr<Journal> open_beside(const Folder& folder) {
  std::filesystem::remove(folder.path + "/lock");
  auto opened = Journal::open(folder.path, {});
  REQUIRE(opened);
  REQUIRE((*opened)->read([](const Header&) { return Status(); },
                          [](std::uint32_t, std::string_view) { return Status(); }));
  return std::move(*opened);
}

std::vector<std::string> files_of(const Folder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("two over one folder: the older one, when it wakes, writes nothing more and removes nothing") {
  const Folder folder;
  auto older = Journal::open(folder.path, {});
  REQUIRE(older);
  REQUIRE((*older)->begin({7, 1, "1.2.3"}, "older"));
  (*older)->append(1, "a");
  REQUIRE((*older)->flush());
  const std::unique_ptr<Journal> newer = open_beside(folder);
  int generations = 0;
  SUBCASE("one generation later") { generations = 1; }
  SUBCASE("two generations later") { generations = 2; }
  SUBCASE("three generations later") { generations = 3; }
  for (int i = 0; i < generations; ++i) REQUIRE(newer->begin({7, 2, "1.2.3"}, "newer"));
  newer->append(1, "of the newer");
  REQUIRE(newer->flush());
  const std::vector<std::string> files = files_of(folder);
  const std::string file = folder.file(), bytes = slurp(file);

  const Status compacted = (*older)->begin({7, 1, "1.2.3"}, "older, later");
  REQUIRE_FALSE(compacted);
  CHECK(compacted.error().code == Errc::kAlreadyExists);
  CHECK(compacted.error().message.find(file) != std::string::npos);
  (*older)->append(1, "of the older");
  const Status kept = (*older)->flush();
  REQUIRE_FALSE(kept);
  CHECK(kept.error().code == Errc::kAlreadyExists);
  CHECK(files_of(folder) == files);
  CHECK(slurp(file) == bytes);

  newer->append(2, "goes on");
  REQUIRE(newer->flush());
  REQUIRE(newer->begin({7, 2, "1.2.3"}, "and on"));
  const Found found = read(folder, newer.get());
  CHECK(found.records == Records{{0, "and on"}});
}

TEST_CASE("two over one folder, and the older one is awake: the newer one begins nothing in its place") {
  const Folder folder;
  auto older = Journal::open(folder.path, {});
  REQUIRE(older);
  REQUIRE((*older)->begin({7, 1, "1.2.3"}, "older"));
  const std::unique_ptr<Journal> newer = open_beside(folder);  // has read what is there
  REQUIRE((*older)->begin({7, 1, "1.2.3"}, "older, later"));
  CHECK(newer->begin({7, 2, "1.2.3"}, "newer").error().code == Errc::kAlreadyExists);
  (*older)->append(1, "b");
  REQUIRE((*older)->flush());
  CHECK(read(folder, older->get()).records == Records{{0, "older, later"}, {1, "b"}});
}

TEST_CASE("a file of its name that is not its own is not replaced") {
  const Folder folder;
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  REQUIRE((*journal)->begin({7, 1, "1.2.3"}, "x"));
  const std::string file = folder.file(), bytes = slurp(file);
  std::filesystem::copy(file, folder.path + "/copy");
  std::filesystem::rename(folder.path + "/copy", file);
  CHECK((*journal)->begin({7, 1, "1.2.3"}, "y").error().code == Errc::kAlreadyExists);
  CHECK(slurp(file) == bytes);
}

TEST_CASE("a directory that cannot be written is an error that names it") {
  CHECK(Journal::open("/proc/nowhere", {}).error().message.find("/proc/nowhere") != std::string::npos);
  const Folder folder;
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  std::filesystem::remove_all(folder.path);
  const Status begun = (*journal)->begin({1, 1, ""}, "x");
  REQUIRE_FALSE(begun);
  CHECK(begun.error().code == Errc::kNotFound);
  CHECK(begun.error().message.find(folder.path) != std::string::npos);
}

}  // namespace
}  // namespace tilewise::journal
