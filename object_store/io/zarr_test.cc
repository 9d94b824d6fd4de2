#include <tilewise/base/prng.h>
#include <tilewise/io/stored.h>
#include <tilewise/io/zarr.h>
#include <tilewise/ir/grid.h>

#include <fcntl.h>
#include <stdio.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <thread>

#include "zarr_samples.h"

using namespace tilewise;
using namespace tilewise::io;
using namespace tilewise::io::test;

namespace {

template <class T> std::vector<T> all_of(const std::string& folder, const ir::Shape& shape) {
  const auto info = read_zarr_info(folder);
  REQUIRE(info);
  CHECK(info->shape == shape);
  std::vector<T> out(static_cast<std::size_t>(ir::volume(shape)));
  const Status ok = read_zarr_block(folder, *info, ir::box_of(shape), out.data());
  INFO((ok ? std::string() : ok.error().message));
  REQUIRE(ok);
  return out;
}

template <class T> void check_samples(const std::vector<T>& got, std::int64_t rows, T missing) {
  for (std::int64_t i = 0; i < 35; ++i)
    CHECK(got[static_cast<std::size_t>(i)] == (i < 7 * rows ? static_cast<T>(3 * i - 20) : missing));
}

ZarrInfo random_info(Prng& rng) {
  ZarrInfo info;
  info.version = rng.chance(0.4) ? 2 : 3;
  static const ir::DType kTypes[] = {ir::DType::kUInt8, ir::DType::kFloat16, ir::DType::kInt32,
                                     ir::DType::kFloat64, ir::DType::kComplex128};
  info.dtype = kTypes[rng.below(5)];
  info.big_endian = ir::size_of(info.dtype) > 1 && rng.chance(0.3);
  info.separator = rng.chance(0.5) ? '/' : '.';
  info.c_keys = info.version == 3 && rng.chance(0.7);
  const bool sharded = info.version == 3 && rng.chance(0.5);
  for (std::int64_t rank = rng.between(0, 3); rank > 0; --rank) {
    info.shape.push_back(rng.between(1, 12));
    const std::int64_t chunk = rng.between(1, 5);
    if (sharded) info.inner.push_back(chunk);
    info.chunk.push_back(sharded ? chunk * rng.between(1, 3) : chunk);
  }
  info.index_at_start = !info.inner.empty() && rng.chance(0.5);
  info.index_crc32c = info.inner.empty() || rng.chance(0.5);
  if (info.shape.size() > 1 && rng.chance(0.4)) {
    for (std::size_t d = info.shape.size(); d-- > 0;) info.order.push_back(static_cast<int>(d));
    if (info.version == 3 && info.shape.size() == 3 && rng.chance(0.5))
      std::swap(info.order[0], info.order[1]);
  }
  info.compressor.kind = static_cast<Compression>(rng.below(5));
  if (info.version == 3 && info.compressor.kind == Compression::kZlib)
    info.compressor.kind = Compression::kZstd;
  if (info.compressor.kind != Compression::kNone) info.compressor.level = static_cast<int>(rng.between(1, 5));
  if (info.compressor.kind == Compression::kZstd) info.compressor.checksum = rng.chance(0.5);
  if (info.compressor.kind == Compression::kBlosc) info.compressor.shuffle = static_cast<int>(rng.below(3));
  info.crc32c = info.version == 3 && rng.chance(0.3);
  info.fill[0] = std::byte{3};
  return info;
}

// Element i of the array, C order: bytes that depend on i alone.
void element(std::int64_t i, std::size_t size, std::byte* to) {
  for (std::size_t b = 0; b < size; ++b)
    to[b] = static_cast<std::byte>((i * 7 + 13 * static_cast<std::int64_t>(b)) % 251);
}
std::vector<std::byte> block_of(const ir::Shape& shape, const ir::Box& box, std::size_t size) {
  const std::int64_t n = box.volume();
  std::vector<std::byte> out(static_cast<std::size_t>(n) * size);
  for (std::int64_t i = 0; i < n; ++i) {
    ir::Index at = ir::unravel(i, box.shape());
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += box.lo[d];
    element(ir::ravel(at, shape), size, out.data() + static_cast<std::size_t>(i) * size);
  }
  return out;
}

const std::string kPlain =
    R"({"zarr_format":3,"node_type":"array","shape":[8,8],"data_type":"float64","chunk_grid":{"name":"regular",)"
    R"("configuration":{"chunk_shape":[4,4]}},"chunk_key_encoding":{"name":"default"},"fill_value":0,)"
    R"("codecs":[{"name":"bytes","configuration":{"endian":"little"}}]})";

std::string with(std::string text, const std::string& what, const std::string& instead) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}

}  // namespace

TEST_CASE("arrays that zarr-python wrote are read") {
  const TempFolder folder;
  put_sample(folder / "zstd", kZstd);
  check_samples<float>(all_of<float>(folder / "zstd", {5, 7}), 5, 0);
  put_sample(folder / "sharded", kSharded);
  check_samples<std::int16_t>(all_of<std::int16_t>(folder / "sharded", {5, 7}), 5, 0);
  put_sample(folder / "v2", kVersion2);
  check_samples<std::int32_t>(all_of<std::int32_t>(folder / "v2", {5, 7}), 3, 9);
  put_sample(folder / "transposed", kTransposed);
  const auto complex = all_of<std::complex<float>>(folder / "transposed", {5, 7});
  for (std::size_t i = 0; i < 21; ++i)
    CHECK(complex[i] == std::complex<float>(static_cast<float>(3 * i) - 20));
  for (std::size_t i = 21; i < 35; ++i) CHECK((complex[i].real() == 1 && std::isnan(complex[i].imag())));
}

TEST_CASE("what is written in blocks by many is read back in any boxes, whatever the codecs") {
  const std::uint64_t seed = 20'260'101;
  Prng rng(seed);
  for (int round = 0; round < 150; ++round) {
    const TempFolder folder;
    const ZarrInfo info = random_info(rng);
    const std::string path = folder / "a.zarr";
    INFO("seed " << seed << " round " << round << " " << zarr_metadata(info));
    REQUIRE(check_zarr(info, path));
    CHECK(parse_zarr(zarr_metadata(info), "again") == Result<ZarrInfo>(info));
    const std::size_t size = ir::size_of(info.dtype);
    ir::Shape block = info.chunk;
    for (std::int64_t& extent : block) extent *= rng.between(1, 2);
    const ir::Grid grid = *ir::Grid::uniform(info.shape, block);
    const ir::Shape counts = grid.counts();
    for (std::int64_t i = 0; i < grid.block_count(); ++i) {
      const ir::Box box = grid.box(ir::unravel(i, counts));
      const auto temp = create_zarr_temp(path, "t1", info);
      REQUIRE(temp);
      REQUIRE(write_zarr_block(*temp, info, box, block_of(info.shape, box, size).data()));
    }
    CHECK_FALSE(std::filesystem::exists(path));
    const FileId parts[] = {*id_of(*create_zarr_temp(path, "t1", info))};
    REQUIRE(commit_zarr(path, "t1", info, parts));
    REQUIRE(commit_zarr(path, "t1", info, parts));  // again: the answer was lost
    CHECK(folder.files() == 1);
    const auto there = read_zarr_info(path);
    REQUIRE(there);
    CHECK(*there == info);
    for (int k = 0; k < 8; ++k) {
      const ir::Box box = k == 0 ? ir::box_of(info.shape) : random_box(rng, info.shape);
      const auto wanted = block_of(info.shape, box, size);
      std::vector<std::byte> got(wanted.size() + 1, std::byte{0x5A});
      REQUIRE(read_zarr_block(path, *there, box, got.data()));
      CHECK(got.back() == std::byte{0x5A});
      got.pop_back();
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("a chunk without a file holds the fill value, a block that cuts a chunk is not written") {
  const TempFolder folder;
  ZarrInfo info = *parse_zarr(with(kPlain, R"("fill_value":0)", R"("fill_value":"-Infinity")"), "x");
  const auto temp = create_zarr_temp(folder / "a", "t", info);
  REQUIRE(temp);
  const std::vector<double> data(64, 2.5);
  const Status cut = write_zarr_block(*temp, info, {{0, 0}, {3, 8}}, data.data());
  REQUIRE_FALSE(cut);
  CHECK(cut.error().code == Errc::kInvalidArgument);
  CHECK(mentions(cut.error(), "whole chunks of (4, 4)"));
  REQUIRE(write_zarr_block(*temp, info, {{4, 0}, {8, 8}}, data.data()));
  REQUIRE(commit_zarr(folder / "a", "t", info, std::array{*id_of(*temp)}));
  const auto got = all_of<double>(folder / "a", {8, 8});
  CHECK(got[31] == -INFINITY);
  CHECK(got[32] == 2.5);
  std::vector<double> few(4);
  CHECK(read_zarr_block(folder / "a", info, {{7, 7}, {9, 8}}, few.data()).error().code == Errc::kOutOfRange);
}

TEST_CASE("a Zarr array that may have been put in place is found out by which folder is there") {
  const TempFolder folder;
  const ZarrInfo info = *parse_zarr(kPlain, "x");
  const std::string path = folder / "a";
  const auto begin = [&](const char* token, double value) {
    const std::string temp = *create_zarr_temp(path, token, info);
    REQUIRE(write_zarr_block(temp, info, {{0, 0}, {8, 8}}, std::vector<double>(64, value).data()));
    return *id_of(temp);
  };
  const FileId older = begin("o", 1);
  REQUIRE(commit_zarr(path, "o", info, std::array{older}));
  const FileId id = begin("t", 2);
  REQUIRE(commit_zarr(path, "t", info, std::array{id}));
  CHECK(*id_of(path) == id);
  const auto value = [&] { return all_of<double>(path, {8, 8})[63]; };
  SUBCASE("begun again, in part: what is in place stays") {
    const FileId other = *id_of(*create_zarr_temp(path, "t", info));
    REQUIRE(commit_zarr(path, "t", info, std::array{id, other}));
    CHECK(value() == 2);
    CHECK(folder.files() == 1);
  }
  SUBCASE("who put it in place died before what was there was removed") {
    REQUIRE(commit_zarr(path, "o", info, std::array{begin("o", 1)}));
    const FileId again = begin("t", 2);
    REQUIRE(renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, (folder / ".a.t.partial").c_str(), RENAME_EXCHANGE) ==
            0);
    CHECK(value() == 2);
    REQUIRE(commit_zarr(path, "t", info, std::array{again}));
    CHECK(value() == 2);
    CHECK(folder.files() == 1);
  }
  SUBCASE("another one has taken its place") {
    REQUIRE(commit_zarr(path, "u", info, std::array{begin("u", 3)}));
    const Status again = commit_zarr(path, "t", info, std::array{id});
    CHECK(again.error().code == Errc::kNotFound);
    CHECK(value() == 3);
  }
  SUBCASE("who writes too late leaves nothing, nor does who was removing it and died") {
    const std::string temp = *create_zarr_temp(path, "t", info);
    std::filesystem::create_directories(folder / ".a.t.partial.removed/c/0");
    REQUIRE(discard_zarr(path, "t"));
    CHECK(folder.files() == 1);
    const std::vector<double> data(64, 9);
    CHECK(write_zarr_block(temp, info, {{0, 0}, {8, 8}}, data.data()).error().code == Errc::kNotFound);
    CHECK(folder.files() == 1);
    CHECK(value() == 2);
  }
}

TEST_CASE("an older array is replaced, anything else stays, and what failed is removed") {
  const TempFolder folder;
  ZarrInfo info = *parse_zarr(kPlain, "x");
  const std::string path = folder / "a";
  const auto save = [&](double value, const char* token) -> Status {
    TW_ASSIGN(const std::string temp, create_zarr_temp(path, token, info));
    TW_TRY(write_zarr_block(temp, info, {{0, 0}, {8, 8}}, std::vector<double>(64, value).data()));
    TW_ASSIGN(const FileId id, id_of(temp));
    return commit_zarr(path, token, info, std::array{id});
  };
  REQUIRE(save(1, "one"));
  REQUIRE(save(2, "two"));
  CHECK(all_of<double>(path, {8, 8})[63] == 2);
  CHECK(folder.files() == 1);
  REQUIRE(create_zarr_temp(path, "three", info));
  REQUIRE(discard_zarr(path, "three"));
  REQUIRE(discard_zarr(path, "three"));
  CHECK(folder.files() == 1);
  std::filesystem::create_directories(folder / "mine/deep");
  put(folder / "mine/deep/notes", "kept");
  CHECK(create_zarr_temp(folder / "mine", "t", info).error().code == Errc::kAlreadyExists);
  put(folder / "file", "kept");
  CHECK(create_zarr_temp(folder / "file", "t", info).error().code == Errc::kAlreadyExists);
  // A group holds arrays of others.
  std::filesystem::create_directories(folder / "group");
  put(folder / "group/zarr.json", R"({"zarr_format":3,"node_type":"group"})");
  CHECK(create_zarr_temp(folder / "group", "t", info).error().code == Errc::kAlreadyExists);
  CHECK(create_zarr_temp(folder / "b", "../x", info).error().code == Errc::kInvalidArgument);
  ZarrInfo other = info;
  other.shape = {4, 4};
  REQUIRE(create_zarr_temp(folder / "b", "t", info));
  CHECK(create_zarr_temp(folder / "b", "t", other).error().code == Errc::kAlreadyExists);
  CHECK(commit_zarr(folder / "never", "t", info, std::array{FileId{7}}).error().code == Errc::kNotFound);
  CHECK(get(folder / "mine/deep/notes") == "kept");
}

TEST_CASE("metadata from anywhere is refused with a word on what is wrong") {
  REQUIRE(parse_zarr(kPlain, "x"));
  struct Bad {
    std::string text;
    Errc code;
    const char* says;
  };
  const auto codec = [](const std::string& list) {
    return with(kPlain, R"([{"name":"bytes","configuration":{"endian":"little"}}])", list);
  };
  const std::string bytes = R"({"name":"bytes","configuration":{"endian":"little"}})";
  const Bad bads[] = {
      {"", Errc::kCorruptData, "JSON"},
      {"[]", Errc::kCorruptData, "object"},
      {std::string(40, '['), Errc::kCorruptData, "JSON"},
      {std::string(kMaxZarrMetadataBytes + 1, ' '), Errc::kLimitExceeded, "bytes"},
      {R"({"zarr_format":4})", Errc::kUnsupported, "zarr_format 4"},
      {with(kPlain, R"("node_type":"array")", R"("node_type":"group")"), Errc::kInvalidArgument, "group"},
      {with(kPlain, "[8,8]", "[8,-8]"), Errc::kOutOfRange, "shape"},
      {with(kPlain, "[8,8]", "[9223372036854775807,8]"), Errc::kOutOfRange, "shape"},
      {with(kPlain, "[8,8]", "[8,8.5]"), Errc::kCorruptData, "'shape'"},
      {with(kPlain, "[8,8]", "[1,1,1,1,1,1,1,1,1]"), Errc::kLimitExceeded, "9 dimensions"},
      {with(kPlain, "[4,4]", "[4,0]"), Errc::kCorruptData, "chunks"},
      {with(kPlain, "[4,4]", "[4]"), Errc::kCorruptData, "chunks"},
      {with(kPlain, "float64", "string"), Errc::kUnsupported, "string"},
      {with(kPlain, "float64", "bfloat16"), Errc::kUnsupported, "bfloat16"},
      {with(kPlain, "float64", "<f8"), Errc::kUnsupported, "data_type"},
      {with(kPlain, "regular", "rectilinear"), Errc::kUnsupported, "rectilinear"},
      {with(kPlain, R"("fill_value":0)", R"("fill_value":"none")"), Errc::kCorruptData, "fill_value"},
      {with(kPlain, R"("fill_value":0)", R"("fill_value":0,"tiles":{})"), Errc::kUnsupported, "'tiles'"},
      {codec("[]"), Errc::kCorruptData, "codec"},
      {codec(R"(["bytes"])"), Errc::kCorruptData, "endian"},
      {codec("[" + bytes + R"(,{"name":"lzma"}])"), Errc::kUnsupported, "lzma"},
      {codec("[" + bytes + R"(,{"name":"gzip"},{"name":"zstd"}])"), Errc::kUnsupported, "zstd"},
      {codec("[" + bytes + R"(,{"name":"gzip","configuration":{"level":99}}])"), Errc::kInvalidArgument,
       "level"},
      {codec("[" + bytes + R"(,{"name":"blosc","configuration":{"cname":"best"}}])"), Errc::kCorruptData,
       "best"},
      {codec(R"([{"name":"transpose","configuration":{"order":[0,0]}},)" + bytes + "]"), Errc::kCorruptData,
       "transpose"},
      {codec(R"([{"name":"transpose","configuration":{"order":[0,99999999999]}},)" + bytes + "]"),
       Errc::kCorruptData, "transpose"},
      {codec(R"([{"name":"sharding_indexed","configuration":{"chunk_shape":[3,4],"codecs":[)" + bytes +
             R"(],"index_codecs":[)" + bytes + "]}}]"),
       Errc::kCorruptData, "whole chunks"},
      {with(codec("[" + bytes + R"(,{"name":"zstd"}])"), "[4,4]", "[100000,100000]"), Errc::kLimitExceeded,
       "larger than"},
      {R"({"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<f8","order":"C","compressor":null,"fill_value":0,"filters":[{"id":"delta"}]})",
       Errc::kUnsupported, "filter"},
      {R"({"zarr_format":2,"shape":[4],"chunks":[2],"dtype":[["a","<f8"]],"order":"C","compressor":null,"fill_value":0})",
       Errc::kUnsupported, "dtype"},
      {R"({"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"|u1","order":"C","compressor":null,"fill_value":256})",
       Errc::kCorruptData, "fill_value"},
  };
  for (const Bad& bad : bads) {
    const auto got = parse_zarr(bad.text, "the/file");
    INFO(bad.text.substr(0, 300));
    REQUIRE_FALSE(got);
    INFO(got.error().message);
    CHECK(got.error().code == bad.code);
    CHECK(mentions(got.error(), "the/file: "));
    CHECK(mentions(got.error(), bad.says));
  }
  const TempFolder folder;
  CHECK(read_zarr_info(folder.path()).error().code == Errc::kNotFound);
}

TEST_CASE("damaged chunks are errors that name the file, and never more memory than a chunk") {
  Prng rng(7);
  for (const char* sample : {"zstd", "sharded", "v2", "transposed"}) {
    const TempFolder folder;
    const std::string at = folder / sample;
    const auto sample_to = [&] {
      if (at.ends_with("zstd")) put_sample(at, kZstd);
      if (at.ends_with("sharded")) put_sample(at, kSharded);
      if (at.ends_with("v2")) put_sample(at, kVersion2);
      if (at.ends_with("transposed")) put_sample(at, kTransposed);
    };
    sample_to();
    const auto info = read_zarr_info(at);
    REQUIRE(info);
    const std::string chunk = at + (info->version == 2 ? "/0.0" : "/c/0/0");
    const std::string good = get(chunk);
    REQUIRE(good.size() > 20);
    std::vector<std::byte> out(35 * ir::size_of(info->dtype));
    int failed = 0;
    for (int i = 0; i < 300; ++i) {
      std::string bad = good;
      if (rng.chance(0.3))
        bad.resize(rng.below(good.size()));
      else if (rng.chance(0.2))
        bad += std::string(rng.below(200'000), 'x');
      else
        for (std::uint64_t n = rng.between(1, 4); n > 0; --n)
          bad[rng.below(bad.size())] = static_cast<char>(rng.below(256));
      put(chunk, bad);
      const Status status = read_zarr_block(at, *info, ir::box_of(info->shape), out.data());
      if (status) continue;  // not everything is under a checksum
      ++failed;
      CHECK(status.error().code == Errc::kCorruptData);
      CHECK(mentions(status.error(), chunk));
    }
    CHECK(failed > 60);
  }
  // The size that blosc's header promises is not believed.
  const TempFolder folder;
  put_sample(folder / "v2", kVersion2);
  std::string huge = get(folder / "v2/0.0");
  huge.replace(4, 4, "\xff\xff\xff\x7f");
  put(folder / "v2/0.0", huge);
  std::vector<std::int32_t> out(35);
  const auto info = read_zarr_info(folder / "v2");
  REQUIRE(info);
  CHECK(read_zarr_block(folder / "v2", *info, ir::box_of(info->shape), out.data()).error().code ==
        Errc::kCorruptData);
}

TEST_CASE("a shard whose metadata promise more chunks than it can hold") {
  const TempFolder folder;
  put_sample(folder / "a", kSharded);
  auto info = read_zarr_info(folder / "a");
  REQUIRE(info);
  info->chunk = {std::int64_t{1} << 40, 8};
  info->shape = {std::int64_t{1} << 40, 8};
  std::vector<std::int16_t> out(8);
  const Status status = read_zarr_block(folder / "a", *info, {{0, 0}, {1, 8}}, out.data());
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Errc::kCorruptData);
  CHECK(mentions(status.error(), "too short for the index"));
  // And a block of ever so many chunks.
  info = *parse_zarr(with(with(kPlain, "[8,8]", "[1099511627776,8]"), "[4,4]", "[1,1]"), "x");
  CHECK(read_zarr_block(folder / "a", *info, {{0, 0}, {std::int64_t{1} << 40, 8}}, out.data()).error().code ==
        Errc::kLimitExceeded);
}

TEST_CASE("workers read by what inspect() tells") {
  const TempFolder folder;
  put_sample(folder / "a\nb", kVersion2);
  const auto info = inspect(ir::FileFormat::kZarr, folder / "a\nb", "");
  REQUIRE(info);
  CHECK(info->chunk == ir::Shape{3, 4});
  std::vector<std::int32_t> out(4);
  REQUIRE(read_stored(info->params, info->dtype, info->shape, {{1, 2}, {3, 4}}, out.data()));
  CHECK(out == std::vector<std::int32_t>{7, 10, 28, 31});
  CHECK(read_stored(info->params, ir::DType::kFloat32, info->shape, {{1, 2}, {3, 4}}, out.data())
            .error()
            .code == Errc::kInvalidArgument);
  CHECK(read_stored(info->params, info->dtype, {5, 8}, {{1, 2}, {3, 4}}, out.data()).error().code ==
        Errc::kInvalidArgument);
  for (const char* bad :
       {"", "zarr", "zarr 5\nab", "zarr 99999999999999999999\nab", "tar 1\nab", "\n zarr 1"})
    CHECK(read_stored(bad, info->dtype, info->shape, {{1, 2}, {3, 4}}, out.data()).error().code ==
          Errc::kInvalidArgument);
}
