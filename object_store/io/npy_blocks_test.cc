#include <tilewise/base/prng.h>
#include <tilewise/io/npy.h>

#include "box_reader.h"
#include "io_test_util.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <complex>
#include <cstring>
#include <filesystem>
#include <thread>

using namespace tilewise;
using namespace tilewise::io;
using namespace tilewise::io::test;

namespace {

// Element i (C order) of a test array holds i.
template <class T> std::vector<T> counting(std::int64_t count) {
  std::vector<T> v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(static_cast<T>(i));
  return v;
}

template <class T> std::string bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

ir::Shape random_shape(Prng& rng) {
  ir::Shape shape;
  for (std::int64_t r = rng.between(0, 4); r > 0; --r) shape.push_back(rng.between(1, 9));
  return shape;
}

// What a C-order block of `box` of the counting array holds, element by element.
template <class T> std::vector<T> expected_block(const ir::Shape& shape, const ir::Box& box) {
  std::vector<T> out;
  const std::int64_t n = box.volume();
  for (std::int64_t i = 0; i < n; ++i) {
    ir::Index index = ir::unravel(i, box.shape());
    for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.lo[d];
    out.push_back(static_cast<T>(ir::ravel(index, shape)));
  }
  return out;
}

// The counting array as a Fortran-order file.
template <class T> std::string fortran_file(ir::DType dtype, const ir::Shape& shape) {
  std::string header = *npy_header(dtype, shape);
  header.replace(header.find("False,"), 6, "True, ");
  ir::Shape reversed(shape.rbegin(), shape.rend());
  std::vector<T> data;
  for (std::int64_t i = 0; i < ir::volume(shape); ++i) {
    const ir::Index r = ir::unravel(i, reversed);
    data.push_back(static_cast<T>(ir::ravel(ir::Index(r.rbegin(), r.rend()), shape)));
  }
  return header + bytes_of(data);
}

template <class T> void blocks_match(ir::DType dtype, std::uint64_t seed) {
  TempFolder folder;
  Prng rng(seed);
  for (int i = 0; i < 60; ++i) {
    const ir::Shape shape = random_shape(rng);
    const std::string c = folder / "c.npy", f = folder / "f.npy";
    put(c, *npy_header(dtype, shape) + bytes_of(counting<T>(ir::volume(shape))));
    put(f, fortran_file<T>(dtype, shape));
    for (const std::string& path : {c, f}) {
      const auto info = read_npy_header(path);
      REQUIRE(info);
      for (int k = 0; k < 6; ++k) {
        const ir::Box box = random_box(rng, shape);
        INFO(path << " seed " << seed << " shape " << ir::to_string(shape) << " box " << ir::to_string(box));
        const auto expected = expected_block<T>(shape, box);
        std::vector<T> out(expected.size());
        REQUIRE(read_block(path, *info, box, out.data()));
        REQUIRE((out == expected));
        // The same with reads so small that every path is taken.
        const ReadTuning tuning{.max_gap_bytes = rng.between(0, 40),
                                .staging_bytes = rng.between(0, 100),
                                .direct_bytes = rng.between(1, 100)};
        const auto where = file_box(path, *info, box);
        REQUIRE(where);
        const auto file = File::open(path, O_RDONLY);
        REQUIRE(file);
        std::fill(out.begin(), out.end(), T{});
        REQUIRE(read_box(*file, *where, reinterpret_cast<std::byte*>(out.data()), tuning));
        REQUIRE((out == expected));
      }
    }
  }
}

}  // namespace

TEST_CASE("any box of C and Fortran files is read as a C-order block") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    blocks_match<double>(ir::DType::kFloat64, seed);
    blocks_match<std::int32_t>(ir::DType::kInt32, seed);
    blocks_match<std::int8_t>(ir::DType::kInt8, seed);
    blocks_match<std::int16_t>(ir::DType::kInt16, seed);
    blocks_match<std::complex<double>>(ir::DType::kComplex128, seed);
  }
}

TEST_CASE("boxes outside the array and contradictory headers are refused") {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  put(path, *npy_header(ir::DType::kInt32, {4, 4}) + std::string(64, '\0'));
  const NpyInfo info = *read_npy_header(path);
  std::int32_t out[16];
  for (const ir::Box& box : {ir::Box{{0, 0}, {5, 4}}, ir::Box{{-1, 0}, {1, 1}}, ir::Box{{3, 0}, {2, 4}},
                             ir::Box{{0}, {4}}, ir::Box{{0, 0, 0}, {1, 1, 1}}}) {
    CHECK(read_block(path, info, box, out).error().code == Errc::kOutOfRange);
  }
  NpyInfo lie = info;
  lie.data_bytes = 4;
  CHECK(read_block(path, lie, {{0, 0}, {4, 4}}, out).error().code == Errc::kInvalidArgument);
  // Cut short after its header was read.
  REQUIRE(truncate(path.c_str(), 150) == 0);
  const auto cut = read_block(path, info, {{0, 0}, {1, 1}}, out);
  REQUIRE_FALSE(cut);
  CHECK(cut.error().code == Errc::kCorruptData);
  CHECK(mentions(cut.error(), "truncated"));
}

TEST_CASE("bytes of a bool array become 0 or 1") {
  TempFolder folder;
  put(folder / "b.npy", *npy_header(ir::DType::kBool, {4}) + std::string("\x00\x01\x02\xff", 4));
  unsigned char out[4];
  REQUIRE(read_block(folder / "b.npy", *read_npy_header(folder / "b.npy"), {{0}, {4}}, out));
  CHECK(std::string(out, out + 4) == std::string("\x00\x01\x01\x01", 4));
}

TEST_CASE("reads are few and large") {
  TempFolder folder;
  const ir::Shape shape{1000, 1000};
  put(folder / "c.npy", *npy_header(ir::DType::kFloat64, shape) + bytes_of(counting<double>(1'000'000)));
  put(folder / "f.npy", fortran_file<double>(ir::DType::kFloat64, shape));
  const auto reads = [&](const std::string& path, const ir::Box& box) {
    const NpyInfo info = *read_npy_header(path);
    std::vector<double> out(static_cast<std::size_t>(box.volume()));
    const auto file = File::open(path, O_RDONLY);
    const auto where = file_box(path, info, box);
    const auto n = read_box(*file, *where, reinterpret_cast<std::byte*>(out.data()), ReadTuning());
    REQUIRE(n);
    CHECK((out == expected_block<double>(shape, box)));
    return *n;
  };
  CHECK(reads(folder / "c.npy", {{0, 0}, {1000, 1000}}) == 1);
  CHECK(reads(folder / "c.npy", {{100, 0}, {300, 1000}}) == 1);   // whole rows
  CHECK(reads(folder / "c.npy", {{0, 250}, {1000, 500}}) == 2);   // 8 MB, 4 MiB at a time
  CHECK(reads(folder / "c.npy", {{0, 999}, {1000, 1000}}) == 2);  // one column
  CHECK(reads(folder / "f.npy", {{250, 250}, {500, 500}}) == 1);
  CHECK(reads(folder / "f.npy", {{0, 0}, {1000, 1000}}) == 2);
}

TEST_CASE("writers in any order make one whole file") {
  TempFolder folder;
  const std::string final_path = folder / "out.npy";
  const ir::Shape shape{37, 23};
  const auto all = counting<double>(ir::volume(shape));
  std::vector<std::thread> writers;
  std::vector<Status> results(6);
  for (int w = 0; w < 6; ++w) {
    writers.emplace_back([&, w] {
      results[w] = [&]() -> Status {
        TW_ASSIGN(const std::string temp, create_temp(final_path, "g7-v1", ir::DType::kFloat64, shape));
        TW_ASSIGN(const NpyInfo info, npy_info(ir::DType::kFloat64, shape));
        for (std::int64_t i = w; i < 5 * 3; i += 6) {  // blocks of 8 x 8
          const ir::Index at = ir::unravel(i, {5, 3});
          const ir::Box box{
              {at[0] * 8, at[1] * 8},
              {std::min<std::int64_t>(37, at[0] * 8 + 8), std::min<std::int64_t>(23, at[1] * 8 + 8)}};
          TW_TRY(write_block(temp, info, box, expected_block<double>(shape, box).data()));
          TW_TRY(create_temp(final_path, "g7-v1", ir::DType::kFloat64, shape));  // again: changes nothing
        }
        return {};
      }();
    });
  }
  for (auto& writer : writers) writer.join();
  for (const Status& result : results) CHECK(result);
  CHECK_FALSE(std::filesystem::exists(final_path));  // all or nothing
  CHECK(read_npy_header(final_path).error().code == Errc::kNotFound);
  const FileId id = *id_of(folder / ".out.npy.g7-v1.partial");
  const FileId parts[] = {id};
  REQUIRE(commit(final_path, "g7-v1", ir::DType::kFloat64, shape, parts));
  CHECK(folder.files() == 1);
  CHECK(*id_of(final_path) == id);
  CHECK((get(final_path) == *npy_header(ir::DType::kFloat64, shape) + bytes_of(all)));
  CHECK(commit(final_path, "g7-v1", ir::DType::kFloat64, shape, parts));  // an answer was lost: asked again
  CHECK(discard(final_path, "g7-v1"));
}

TEST_CASE("a save that may have been put in place is found out by which file is there") {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  const ir::Shape shape{4};
  const NpyInfo info = *npy_info(ir::DType::kInt64, shape);
  const std::vector<std::int64_t> right{1, 2, 3, 4};
  const auto begin = [&](const char* token) {
    const std::string temp = *create_temp(path, token, ir::DType::kInt64, shape);
    return std::pair(temp, *id_of(temp));
  };
  const auto put_all = [&](const std::string& temp, const std::vector<std::int64_t>& values) {
    REQUIRE(write_block(temp, info, {{0}, {4}}, values.data()));
  };
  const auto there = [&] {
    std::vector<std::int64_t> got(4);
    REQUIRE(read_block(path, info, {{0}, {4}}, got.data()));
    return got;
  };
  const auto [first, id] = begin("t");
  CHECK(**find_begun(path, "t", id) == first);
  put_all(first, right);
  REQUIRE(commit(path, "t", ir::DType::kInt64, shape, std::array{id}));
  CHECK(*find_begun(path, "t", id) == std::nullopt);  // in place: nothing is left to write

  SUBCASE("what is begun again is not whole, and does not take the place of what is") {
    const auto [second, other] = begin("t");
    CHECK(other != id);
    REQUIRE(commit(path, "t", ir::DType::kInt64, shape, std::array{other, id}));
    CHECK(there() == right);
    CHECK(folder.files() == 1);
  }
  SUBCASE("all of it is written again: that is the file") {
    const auto [second, other] = begin("t");
    put_all(second, right);
    REQUIRE(commit(path, "t", ir::DType::kInt64, shape, std::array{other}));
    CHECK(*id_of(path) == other);
    CHECK(folder.files() == 1);
  }
  SUBCASE("another save has taken its place: it is not known") {
    const auto [temp, other] = begin("u");
    put_all(temp, {5, 6, 7, 8});
    REQUIRE(commit(path, "u", ir::DType::kInt64, shape, std::array{other}));
    const Status again = commit(path, "t", ir::DType::kInt64, shape, std::array{id});
    CHECK(again.error().code == Errc::kNotFound);
    CHECK(mentions(again.error(), ".a.npy.t.partial"));
    CHECK(find_begun(path, "t", id).error().code == Errc::kNotFound);
    CHECK(there() == std::vector<std::int64_t>{5, 6, 7, 8});
  }
  SUBCASE("one part is in a file that is gone, another is not: nothing is put in place") {
    std::filesystem::remove(path);
    const auto [temp, other] = begin("t");
    CHECK(commit(path, "t", ir::DType::kInt64, shape, std::array{other, id}).error().code == Errc::kNotFound);
    CHECK_FALSE(std::filesystem::exists(path));
  }
  SUBCASE("nobody has said which file it is") {
    CHECK(commit(path, "t", ir::DType::kInt64, shape, {}).error().code == Errc::kInvalidArgument);
  }
}

// Whether each page of the file is in the page cache; empty where that cannot be asked.
std::vector<unsigned char> cached_pages(const std::string& path, std::int64_t bytes) {
  const auto file = File::open(path, O_RDONLY);
  REQUIRE(file);
  const auto length = static_cast<std::size_t>(bytes);
  void* data = mmap(nullptr, length, PROT_READ, MAP_SHARED, file->fd(), 0);
  if (data == MAP_FAILED) return {};
  std::vector<unsigned char> pages((length + 4095) / 4096);
  if (mincore(data, length, pages.data()) != 0) pages.clear();
  munmap(data, length);
  return pages;
}

TEST_CASE("long runs of a large file go past the page cache, wherever in memory and in the file they begin") {
  TempFolder folder;
  const std::string path = folder / "large.npy";
  constexpr std::int64_t kLength = (300 << 20) + 77, kRun = (2 << 20) + 4097;  // hardly any of it is written
  const std::string temp = *create_temp(path, "t", ir::DType::kUInt8, {kLength});
  const NpyInfo info = *npy_info(ir::DType::kUInt8, {kLength});
  // Neighbours share a page; the last ends with the file.
  const std::int64_t first = kLength - 4 * kRun;
  std::vector<std::uint8_t> all(4 * kRun + 4096);
  Prng rng(8);
  for (std::uint8_t& byte : all) byte = static_cast<std::uint8_t>(rng.next());
  std::vector<std::thread> writers;
  std::vector<Status> results(4);
  for (std::int64_t w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      // By turns at an address whose pages are the file's, and at one that nothing can be sent from.
      const std::uintptr_t in_page = static_cast<std::uintptr_t>(info.data_offset + first + w * kRun) % 4096;
      std::vector<std::uint8_t> memory(kRun + 2 * 4096);
      std::uint8_t* at = memory.data() + 4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
      at += w % 2 == 0 ? in_page : 1 - in_page % 2;
      std::memcpy(at, all.data() + w * kRun, kRun);
      results[static_cast<std::size_t>(w)] =
          write_block(temp, info, {{first + w * kRun}, {first + (w + 1) * kRun}}, at);
    });
  }
  for (auto& writer : writers) writer.join();
  for (const Status& result : results) REQUIRE(result);
  if (File::open(temp, O_WRONLY | O_DIRECT)) {
    const auto pages = cached_pages(temp, info.data_offset + kLength);
    const auto middle = static_cast<std::size_t>((info.data_offset + first + kRun / 2) / 4096);
    if (!pages.empty()) CHECK((pages[middle] & 1) == 0);
  }
  std::vector<std::uint8_t> got(4 * kRun + 10);  // and what is before it is still empty
  REQUIRE(read_block(temp, info, {{first - 10}, {kLength}}, got.data()));
  CHECK(std::all_of(got.begin(), got.begin() + 10, [](std::uint8_t byte) { return byte == 0; }));
  CHECK(std::equal(got.begin() + 10, got.end(), all.begin()));
  REQUIRE(commit(path, "t", ir::DType::kUInt8, {kLength}, std::array{*id_of(temp)}));
}

TEST_CASE("every shape of block is written where it belongs") {
  TempFolder folder;
  Prng rng(3);
  for (int i = 0; i < 200; ++i) {
    const ir::Shape shape = random_shape(rng);
    const ir::Box box = random_box(rng, shape);
    INFO("shape " << ir::to_string(shape) << " box " << ir::to_string(box));
    const std::string temp = *create_temp(folder / "a.npy", "t", ir::DType::kInt64, shape);
    const NpyInfo info = *npy_info(ir::DType::kInt64, shape);
    const auto block = expected_block<std::int64_t>(shape, box);
    REQUIRE(write_block(temp, info, box, block.data()));
    std::vector<std::int64_t> whole(static_cast<std::size_t>(ir::volume(shape)));
    REQUIRE(read_block(temp, info, ir::box_of(shape), whole.data()));
    for (std::int64_t k = 0; k < ir::volume(shape); ++k) {
      const bool inside = box.contains(ir::unravel(k, shape));
      REQUIRE(whole[static_cast<std::size_t>(k)] == (inside ? k : 0));
    }
    REQUIRE(discard(folder / "a.npy", "t"));
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("tokens, other arrays' files and unfinished ones") {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  for (const std::string& token :
       {std::string(), std::string("../x"), std::string("a b"), std::string(65, 'a')}) {
    CHECK(create_temp(path, token, ir::DType::kBool, {1}).error().code == Errc::kInvalidArgument);
    CHECK(discard(path, token).error().code == Errc::kInvalidArgument);
  }
  CHECK(create_temp(folder / "", "t", ir::DType::kBool, {1}).error().code == Errc::kInvalidArgument);
  CHECK(create_temp(folder / "no/such/a.npy", "t", ir::DType::kBool, {1}).error().code == Errc::kNotFound);
  CHECK(create_temp(path, "t", ir::DType::kInt32, {-1}).error().code == Errc::kInvalidArgument);

  const std::string temp = *create_temp(path, "t", ir::DType::kInt32, {4});
  CHECK(temp == (folder / ".a.npy.t.partial"));
  CHECK(create_temp(path, "t", ir::DType::kInt32, {5}).error().code == Errc::kAlreadyExists);
  CHECK(create_temp(path, "t", ir::DType::kFloat32, {4}).error().code == Errc::kAlreadyExists);
  const FileId id = *id_of(temp);
  CHECK(commit(path, "t", ir::DType::kInt32, {5}, std::array{id}).error().code == Errc::kCorruptData);
  // A writer died between open and header: the next one finishes the file.
  REQUIRE(truncate(temp.c_str(), 40) == 0);
  CHECK(commit(path, "t", ir::DType::kInt32, {4}, std::array{id}).error().code == Errc::kCorruptData);
  REQUIRE(create_temp(path, "t", ir::DType::kInt32, {4}));
  CHECK(*id_of(temp) == id);
  REQUIRE(commit(path, "t", ir::DType::kInt32, {4}, std::array{id}));
  CHECK(read_npy_header(path)->shape == ir::Shape{4});
  // A link is not followed: the file is ours to make, or not at all.
  REQUIRE(symlink(path.c_str(), temp.c_str()) == 0);
  CHECK_FALSE(create_temp(path, "t", ir::DType::kInt32, {4}));
  REQUIRE(discard(path, "t"));
  // Empty arrays are files too.
  const std::string empty = *create_temp(path, "e", ir::DType::kInt32, {0, 3});
  REQUIRE(commit(path, "e", ir::DType::kInt32, {0, 3}, std::array{*id_of(empty)}));
  CHECK(read_npy_header(path)->shape == ir::Shape{0, 3});
}

// In a child, since limits and signals are the process's own.
TEST_CASE("no room is a typed error when the file is made, not when it is filled") {
  TempFolder folder;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto temp = create_temp(folder / "big.npy", "t", ir::DType::kFloat64, {1 << 20});
    if (temp) _exit(1);
    if (temp.error().code != Errc::kDiskFull) _exit(2);
    if (!mentions(temp.error(), "big.npy") || !mentions(temp.error(), "8388736")) _exit(3);
    if (!discard(folder / "big.npy", "t")) _exit(4);
    const auto small = create_temp(folder / "small.npy", "t", ir::DType::kFloat64, {1000});
    if (!small || !discard(folder / "small.npy", "t")) _exit(5);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(folder.files() == 0);
}

TEST_CASE("a write to a full device is kDiskFull") {
  const auto full = File::open("/dev/full", O_WRONLY);
  if (!full) return;  // not everywhere
  const Status written = full->write("x", 1, 0);
  REQUIRE_FALSE(written);
  CHECK(written.error().code == Errc::kDiskFull);
}
