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
  const CheckpointFile file{77, 64, *ir::Grid::uniform({8}, {4}), "array 3 (8)", folder / ""};
  const ir::Box first{{0}, {4}}, second{{4}, {8}};
  std::vector<std::int64_t> numbers(8), back(8);
  std::iota(numbers.begin(), numbers.end(), 5);
  CHECK(checkpoint::write(file, first, numbers.data()).error().code == Errc::kNotFound);
  REQUIRE(checkpoint::create(file).has_value());
  REQUIRE(checkpoint::write(file, second, numbers.data() + 4).has_value());
  REQUIRE(checkpoint::create(file).has_value());  // again: nothing is lost
  CHECK(checkpoint::read(file, first, back.data()).error().code == Errc::kCorruptData);  // not written yet
  REQUIRE(checkpoint::write(file, first, numbers.data()).has_value());
  REQUIRE(checkpoint::commit(file).has_value());
  REQUIRE(checkpoint::read(file, first, back.data()).has_value());
  REQUIRE(checkpoint::read(file, second, back.data() + 4).has_value());
  CHECK(back == numbers);
  struct stat info {};
  REQUIRE(::stat(ir::checkpoint::path_of(file).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  for (const ir::Box& no_block : {ir::Box{{4}, {12}}, ir::Box{{2}, {6}}, ir::Box{{-4}, {0}},
                                  ir::Box{{8}, {12}}, ir::Box{{0, 0}, {4, 1}}})
    CHECK(checkpoint::read(file, no_block, back.data()).error().code == Errc::kOutOfRange);
  CheckpointFile other = file;
  other.bytes = 56;  // another array
  other.grid = *ir::Grid::uniform({7}, {4});
  CHECK(checkpoint::read(other, first, back.data()).error().code == Errc::kCorruptData);
  other = file;
  other.grid = *ir::Grid::uniform({8}, {2});  // cut otherwise
  CHECK(checkpoint::read(other, {{0}, {2}}, back.data()).error().code == Errc::kCorruptData);
  std::filesystem::resize_file(ir::checkpoint::path_of(file), 4096 + 60);
  const Status cut = checkpoint::read(file, first, back.data());
  CHECK(cut.error().code == Errc::kCorruptData);
  CHECK(mentions(cut.error(), ir::checkpoint::path_of(file)));
}

TEST_CASE("a bit of a block that a disk gives back changed is found, and only that block is wrong") {
  const TempFolder folder;
  const CheckpointFile file{3, 30, ir::Grid({*ir::DimGrid::cuts(6, {0, 1, 4}), ir::DimGrid::whole(5)}),
                            "x (6, 5)", folder / ""};
  REQUIRE(checkpoint::create(file).has_value());
  std::vector<std::uint8_t> data(30), back(30);
  std::iota(data.begin(), data.end(), 1);
  const ir::Box blocks[] = {{{0, 0}, {1, 5}}, {{1, 0}, {4, 5}}, {{4, 0}, {6, 5}}};
  for (const ir::Box& block : blocks)
    REQUIRE(checkpoint::write(file, block, data.data() + 5 * block.lo[0]).has_value());
  const std::string path = ir::checkpoint::path_of(file);
  const std::string whole = get(path);
  // Any byte of the second block, and any of its checksum; behind the blocks those of the three.
  for (const std::size_t at : {4096 + 5, 4096 + 12, 4096 + 19, 4128 + 8, 4128 + 11, 4128 + 15}) {
    CAPTURE(at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    put(path, changed);
    CHECK(checkpoint::read(file, blocks[0], back.data()).has_value());
    CHECK(checkpoint::read(file, blocks[2], back.data()).has_value());
    const Status wrong = checkpoint::read(file, blocks[1], back.data());
    REQUIRE(!wrong.has_value());
    CHECK(wrong.error().code == Errc::kCorruptData);
    CHECK(mentions(wrong.error(), path + ": block 1"));
    CHECK(mentions(wrong.error(), ir::to_string(blocks[1])));
  }
  put(path, whole);
  CHECK(checkpoint::read(file, blocks[1], back.data()).has_value());
  CHECK(std::equal(back.begin(), back.begin() + 15, data.begin() + 5));
}

TEST_CASE("who tends a folder makes it, knows it again, and removes what nobody knows") {
  const TempFolder folder;
  Folder own{5, 98, true, 100, {8, 30}, folder / "own"};
  CHECK(checkpoint::tend({5, 98, false, 100, {}, folder / "own"}).error().code == Errc::kNotFound);
  REQUIRE(checkpoint::tend(own).has_value());
  struct stat info {};
  REQUIRE(::stat(own.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  for (const std::uint64_t id : {7, 8, 30, 99, 100, 2000})
    REQUIRE(checkpoint::create({id, 8, *ir::Grid::uniform({1}, {1}), "x", own.path}).has_value());
  put(own.path + "/notes.txt", "mine");
  own.first = false;
  REQUIRE(checkpoint::tend(own).has_value());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(own.path))
    left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{ir::checkpoint::name_of(8), ir::checkpoint::name_of(30),
                                         ir::checkpoint::name_of(98) + ".cluster",
                                         ir::checkpoint::name_of(100), ir::checkpoint::name_of(2000),
                                         "notes.txt"});
  own.cluster = 6;  // a folder of this name on another host, say
  const Status elsewhere = checkpoint::tend(own);
  CHECK(elsewhere.error().code == Errc::kNotFound);
  CHECK(mentions(elsewhere.error(), "not the folder that other workers see"));
}

TEST_CASE(
    "a folder of this name on another host is told from it, also if it was the cluster's in an earlier "
    "life") {
  const TempFolder hosts;
  const std::string here = hosts / "here", there = hosts / "there";
  REQUIRE(checkpoint::tend({5, 1, true, 2, {}, there}).has_value());  // who was asked first then
  REQUIRE(checkpoint::tend({5, 101, true, 102, {}, here}).has_value());
  CHECK(checkpoint::tend({5, 101, false, 102, {}, there}).error().code == Errc::kNotFound);
  // The marker of that life has gone where the folder is made again, and an order that comes late changes nothing.
  REQUIRE(checkpoint::tend({5, 201, true, 202, {}, here}).has_value());
  CHECK(checkpoint::tend({5, 101, false, 102, {}, here}).error().code == Errc::kNotFound);
  REQUIRE(checkpoint::tend({5, 101, true, 102, {}, here}).has_value());
  CHECK(checkpoint::tend({5, 201, false, 202, {}, here}).has_value());
}

TEST_CASE("no folder, one that others can look into, and a file in its place are refused by name") {
  const TempFolder folder;
  const auto tend = [&](const std::string& path) { return checkpoint::tend({1, 0, true, 1, {}, path}); };
  const Status nowhere = tend(folder / "no/such/place");
  CHECK(nowhere.error().code == Errc::kNotFound);
  CHECK(mentions(nowhere.error(), "no/such/place"));
  put(folder / "file", "x");
  CHECK(!tend(folder / "file"));
  std::filesystem::create_directory(folder / "open");
  std::filesystem::permissions(folder / "open", std::filesystem::perms(0755));
  CHECK(tend(folder / "open").error().code == Errc::kPermissionDenied);
}
