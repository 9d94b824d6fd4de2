#include <tilewise/io/checkpoint.h>

#include "io_test_util.h"

#include <sys/stat.h>
#include <tilewise/ir/grid.h>

#include <algorithm>
#include <numeric>

using namespace tilewise;
using namespace tilewise::io::test;
namespace checkpoint = tilewise::io::checkpoint;
using ir::checkpoint::Folder;
using CheckpointFile = ir::checkpoint::File;

TEST_CASE("blocks lie one behind the other, in their order, whatever the grid") {
  const std::vector<ir::Grid> grids = {
      *ir::Grid::uniform({7, 10}, {3, 4}), *ir::Grid::uniform({5}, {5}),
      ir::Grid({*ir::DimGrid::cuts(9, {0, 1, 6}), *ir::DimGrid::uniform(6, 4, 2), ir::DimGrid::whole(2)}),
      ir::Grid()};
  for (const ir::Grid& grid : grids) {
    std::int64_t expected = 0;
    for (std::int64_t block = 0; block < grid.block_count(); ++block) {
      const ir::Box box = grid.box(ir::unravel(block, grid.counts()));
      CHECK(checkpoint::offset_of(grid.shape(), box) == expected);
      expected += box.volume();
    }
    CHECK(expected == ir::volume(grid.shape()));
  }
}

TEST_CASE("what was put into a file is read from it, by the one who knows which it is") {
  const TempFolder folder;
  const CheckpointFile file{77, 64, "array 3 (8)", folder / ""};
  std::vector<std::int64_t> numbers(8), back(8);
  std::iota(numbers.begin(), numbers.end(), 5);
  CHECK(checkpoint::write(file, 0, numbers.data(), 32).error().code == Errc::kNotFound);
  REQUIRE(checkpoint::create(file).has_value());
  REQUIRE(checkpoint::write(file, 32, numbers.data() + 4, 32).has_value());
  REQUIRE(checkpoint::create(file).has_value());  // again: nothing is lost
  REQUIRE(checkpoint::write(file, 0, numbers.data(), 32).has_value());
  REQUIRE(checkpoint::commit(file).has_value());
  REQUIRE(checkpoint::read(file, 0, back.data(), 64).has_value());
  CHECK(back == numbers);
  struct stat info {};
  REQUIRE(::stat(ir::checkpoint::path_of(file).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(checkpoint::read(file, 40, back.data(), 32).error().code == Errc::kOutOfRange);
  CheckpointFile other = file;
  other.bytes = 56;  // another array
  CHECK(checkpoint::read(other, 0, back.data(), 8).error().code == Errc::kCorruptData);
  std::filesystem::resize_file(ir::checkpoint::path_of(file), 4096 + 60);
  const Status cut = checkpoint::read(file, 0, back.data(), 8);
  CHECK(cut.error().code == Errc::kCorruptData);
  CHECK(mentions(cut.error(), ir::checkpoint::path_of(file)));
}

TEST_CASE("who tends a folder makes it, knows it again, and removes what nobody knows") {
  const TempFolder folder;
  Folder own{5, true, 100, {8, 30}, folder / "own"};
  CHECK(checkpoint::tend({5, false, 100, {}, folder / "own"}).error().code == Errc::kNotFound);
  REQUIRE(checkpoint::tend(own).has_value());
  struct stat info {};
  REQUIRE(::stat(own.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  for (const std::uint64_t id : {7, 8, 30, 99, 100, 2000})
    REQUIRE(checkpoint::create({id, 8, "x", own.path}).has_value());
  put(own.path + "/notes.txt", "mine");
  own.first = false;
  REQUIRE(checkpoint::tend(own).has_value());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(own.path))
    left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{ir::checkpoint::name_of(8), ir::checkpoint::name_of(30),
                                         ir::checkpoint::name_of(100), ir::checkpoint::name_of(2000),
                                         "cluster", "notes.txt"});
  own.cluster = 6;  // a folder of this name on another host, say
  const Status elsewhere = checkpoint::tend(own);
  CHECK(elsewhere.error().code == Errc::kNotFound);
  CHECK(mentions(elsewhere.error(), "not the folder that other workers see"));
}

TEST_CASE("no folder, one that others can look into, and a file in its place are refused by name") {
  const TempFolder folder;
  const auto tend = [&](const std::string& path) { return checkpoint::tend({1, true, 1, {}, path}); };
  const Status nowhere = tend(folder / "no/such/place");
  CHECK(nowhere.error().code == Errc::kNotFound);
  CHECK(mentions(nowhere.error(), "no/such/place"));
  put(folder / "file", "x");
  CHECK(!tend(folder / "file"));
  std::filesystem::create_directory(folder / "open");
  std::filesystem::permissions(folder / "open", std::filesystem::perms(0755));
  CHECK(tend(folder / "open").error().code == Errc::kPermissionDenied);
}
