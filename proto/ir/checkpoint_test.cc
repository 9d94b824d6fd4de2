#include <doctest/doctest.h>
#include <tilewise/ir/checkpoint.h>

namespace tilewise::ir::checkpoint {

TEST_CASE("parameters of checkpoints travel as they are, and nothing else is taken for them") {
  File file{(std::uint64_t{3} << 40) + 9, 1 << 20, {}, "array 4 (10, 10)", "/a b/c\nd"};
  for (const Grid& grid :
       {Grid(), *Grid::uniform({10, 10}, {3, 10}),
        Grid({*DimGrid::cuts(9, {0, 1, 6}), *DimGrid::uniform(6, 4, 2), DimGrid::whole(2)}),
        *Grid::uniform({0}, {1})}) {
    file.grid = grid;
    CHECK(*parse_file(text(file)) == file);
  }
  CHECK(path_of(file) == "/a b/c\nd/0000030000000009");
  File other = file;
  other.id = 5, other.folder = "/elsewhere";
  const Files files{other, std::nullopt, file};
  CHECK(*parse_files(text(files)) == files);
  CHECK(*parse_files(text(Files(2))) == Files(2));
  for (const std::string& malformed :
       {std::string(), std::string("x"), std::string("5 0 0 0 0 0\n"), std::string("2 0\n"),
        std::string("1 3\n1 "), text(files) + "x", text(files).substr(0, text(files).size() - 1), text(file),
        std::string("1 0\nx")})
    CHECK(!parse_files(malformed));
  Folder folder{~std::uint64_t{0}, 3, true, 12, {}, "/x"};
  CHECK(*parse_folder(text(folder)) == folder);
  folder.keep = {1, 7, 11}, folder.first = false;
  CHECK(*parse_folder(text(folder)) == folder);
  for (const char* wrong :
       {"", "1", "1 2", "1 2 0\nx", "1 2 0\nx\n", "1 -2 0\nx\n/y", "a 2 0\nx\n/y", "1 2\nx\n/y",
        "1 2 99\nx\n/y", "1 2 1 4\nx\n/y", "1 2 1 4 0 0 0\nx\n/y", "1 2 1 4 0 2 2\nx\n/y",
        "1 2 1 4 2 0\nx\n/y", "1 2 1 4 2 0 9\nx\n/y", "1 2 1 4 9999999999 0\nx\n/y", "1 2 1 -4 0 2 0\nx\n/y"})
    CHECK(!parse_file(wrong));
  for (const char* wrong :
       {"", "1 3 1 5 2 7\n/x", "1 3 1 5 2 7 8", "1 3 2 5 0\n/x", "1 3 1 5 999999999999\n/x", "1 3 1 5 0\n"})
    CHECK(!parse_folder(wrong));
}

TEST_CASE("kernels of checkpoints are known by their names") {
  for (const std::string_view kernel : {kTend, kCreate, kWrite, kCommit, kRestore}) CHECK(is_kernel(kernel));
  CHECK(!is_kernel("tilewise.commit_npy"));
  CHECK(!is_kernel("mine.write_checkpoint"));
}

}  // namespace tilewise::ir::checkpoint
