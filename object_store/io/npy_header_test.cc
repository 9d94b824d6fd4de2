#include <tilewise/io/npy.h>

#include "io_test_util.h"

#include <tilewise/base/prng.h>

#include <sys/stat.h>

using namespace tilewise;
using namespace tilewise::io;
using namespace tilewise::io::test;

namespace {

struct Bad {
  std::string bytes;
  Errc code;
  std::string named;  // what the message must say
};

std::string dict(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("headers that we write are NumPy's, byte for byte") {
  const auto header = npy_header(ir::DType::kFloat64, {3, 4});
  REQUIRE(header);
  // numpy.save of numpy.zeros((3, 4)), up to the data.
  std::string expected("\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }",
                       69);
  expected.append(127 - expected.size(), ' ');
  expected += '\n';
  CHECK(*header == expected);
  for (const ir::Shape& shape :
       {ir::Shape{}, ir::Shape{5}, ir::Shape{0, 7}, ir::Shape{1, 2, 3, 4, 5, 6, 7, 8}}) {
    for (int t = 0; t < ir::kDTypeCount; ++t) {
      const auto dtype = static_cast<ir::DType>(t);
      const auto text = npy_header(dtype, shape);
      if (dtype == ir::DType::kBFloat16) {  // NumPy has none
        REQUIRE(text.error().code == Errc::kUnsupported);
        continue;
      }
      REQUIRE(text);
      CHECK(text->size() % 64 == 0);
      const auto info = parse_npy_header(*text, "f");
      REQUIRE(info);
      CHECK(info->dtype == dtype);
      CHECK(info->shape == shape);
      CHECK_FALSE(info->fortran_order);
      CHECK(info->data_offset == static_cast<std::int64_t>(text->size()));
      CHECK(info->data_bytes == ir::volume(shape) * static_cast<std::int64_t>(ir::size_of(dtype)));
    }
  }
}

TEST_CASE("the data of large files begins on a page, behind a longer header of the same words") {
  constexpr std::int64_t kElements = kLargeNpyBytes / 8;
  const auto below = npy_header(ir::DType::kFloat64, {kElements - 1}),
             at = npy_header(ir::DType::kFloat64, {kElements});
  REQUIRE(below);
  REQUIRE(at);
  CHECK(below->size() == 128);
  CHECK(at->size() == 4096);
  CHECK(at->back() == '\n');
  CHECK(at->find_last_not_of(" \n") < 128);
  const auto info = npy_info(ir::DType::kFloat64, {kElements});
  REQUIRE(info);
  CHECK(info->data_offset == 4096);
  CHECK(info->shape == ir::Shape{kElements});
}

TEST_CASE("variants of the header that NumPy writes or wrote are read") {
  for (const int major : {1, 2, 3}) {
    const auto info = parse_npy_header(npy_with(dict("'<i4'", "True", "(3, 5)"), major), "f");
    REQUIRE(info);
    CHECK(info->fortran_order);
    CHECK(info->shape == ir::Shape{3, 5});
    CHECK(info->data_offset == (major == 1 ? 10 : 12) + 59);
  }
  for (const char* text : {"{\"shape\": (2,), \"fortran_order\": False, \"descr\": \"<f4\"}",
                           "{'shape':(2L,),'fortran_order':False,'descr':'<f4'}   \n",
                           "  { 'descr' : '=f4' , 'fortran_order' : False , 'shape' : ( 2 , ) , }"}) {
    const auto info = parse_npy_header(npy_with(text), "f");
    REQUIRE(info);
    CHECK(info->shape == ir::Shape{2});
    CHECK(info->dtype == ir::DType::kFloat32);
  }
}

TEST_CASE("every dtype but bfloat16 has a header of its own") {
  for (int i = 0; i < ir::kDTypeCount; ++i) {
    const auto t = static_cast<ir::DType>(i);
    const auto header = npy_header(t, {2, 3});
    if (t == ir::DType::kBFloat16) {
      CHECK(header.error().code == Errc::kUnsupported);
      CHECK(header.error().message.find("bfloat16") != std::string::npos);
      continue;
    }
    const auto info = parse_npy_header(*header, "x.npy");
    REQUIRE(info.has_value());
    CHECK(info->dtype == t);
    CHECK(info->data_bytes == 6 * static_cast<std::int64_t>(ir::size_of(t)));
    CHECK(info->data_offset % 64 == 0);
  }
}

TEST_CASE("malformed, hostile and unsupported headers are refused with a reason") {
  const std::string big(100, '9');
  const std::vector<Bad> all = {
      {"", Errc::kCorruptData, "too short"},
      {"\x93NUM", Errc::kCorruptData, "too short"},
      {"PK\x03\x04 a zip file", Errc::kCorruptData, "not an .npy file"},
      {std::string("\x93NUMPY\x01", 7), Errc::kCorruptData, "too short"},
      {std::string("\x93NUMPY\x01\x00\x10", 9), Errc::kCorruptData, "truncated"},
      {std::string("\x93NUMPY\x01\x00\x10\x00{'descr'", 18), Errc::kCorruptData,
       "16 bytes announced, 8 there"},
      {std::string("\x93NUMPY\x09\x00\x10\x00", 10), Errc::kUnsupported, "format 9.0"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), Errc::kCorruptData, "4294967295"},
      {npy_with("[]"), Errc::kCorruptData, "dictionary"},
      {npy_with("{}"), Errc::kCorruptData, "no 'descr'"},
      {npy_with("{'descr': '<f8', 'shape': (1,)}"), Errc::kCorruptData, "no 'fortran_order'"},
      {npy_with("{'descr': '<f8', 'fortran_order': False}"), Errc::kCorruptData, "no 'shape'"},
      {npy_with("{'descr': '<f8', 'descr': '<f8'}"), Errc::kCorruptData, "repeated key"},
      {npy_with("{'descr"), Errc::kCorruptData, "does not end"},
      {npy_with("{'descr': '<f8', 'evil': __import__('os')}"), Errc::kCorruptData, "\"evil\""},
      {npy_with(dict("'<f8'", "Maybe", "(1,)")), Errc::kCorruptData, "True or False"},
      {npy_with(dict("'<f8'", "False", "(-1,)")), Errc::kCorruptData, "negative extent"},
      {npy_with(dict("'<f8'", "False", "(3 4)")), Errc::kCorruptData, "')' expected"},
      {npy_with(dict("'<f8'", "False", "[3]")), Errc::kCorruptData, "tuple"},
      {npy_with(dict("'<f8'", "False", "(3.5,)")), Errc::kCorruptData, "expected"},
      {npy_with(dict("'<f8'", "False", "(" + big + ",)")), Errc::kOutOfRange, "2^63"},
      {npy_with(dict("'<f8'", "False", "(4611686018427387904, 4)")), Errc::kOutOfRange, "2^63"},
      {npy_with(dict("'<f8'", "False", "(1152921504606846976,)")), Errc::kOutOfRange, "2^63"},
      {npy_with(dict("'<f8'", "False", "(1,1,1,1,1,1,1,1,1)")), Errc::kLimitExceeded, "8 dimensions"},
      {npy_with(dict("'<f8'", "False", "(1,)") + "junk"), Errc::kCorruptData, "after the dictionary"},
      {npy_with(dict("'|O'", "False", "(1,)")), Errc::kUnsupported, "pickles"},
      {npy_with(dict("'<f16'", "False", "(1,)")), Errc::kUnsupported, "longdouble"},
      {npy_with(dict("'|V2'", "False", "(1,)")), Errc::kUnsupported, "void"},
      {npy_with(dict("'float64'", "False", "(1,)")), Errc::kCorruptData, "unknown dtype"},
      {npy_with(dict("'>f8'", "False", "(1,)")), Errc::kUnsupported, "big-endian float64"},
      {npy_with(dict("'<U5'", "False", "(1,)")), Errc::kUnsupported, "string"},
      {npy_with(dict("'<M8[ns]'", "False", "(1,)")), Errc::kUnsupported, "date"},
      {npy_with(dict("[('a', '<f8')]", "False", "(1,)")), Errc::kUnsupported, "structured"},
      {npy_with(dict("'float64'", "False", "(1,)")), Errc::kCorruptData, "unknown dtype"},
      {npy_with(dict("''", "False", "(1,)")), Errc::kCorruptData, "unknown dtype"},
  };
  for (const Bad& bad : all) {
    const auto info = parse_npy_header(bad.bytes, "some/file.npy");
    CAPTURE(bad.named);
    REQUIRE_FALSE(info);
    CHECK_MESSAGE(info.error().code == bad.code, info.error().message);
    CHECK_MESSAGE(mentions(info.error(), bad.named), info.error().message);
    CHECK(mentions(info.error(), "some/file.npy"));
    CHECK(info.error().message.size() < 400);
  }
}

TEST_CASE("random damage never does more than fail") {
  Prng rng(5);
  const std::string good = npy_with(dict("'<f8'", "False", "(3, 4)"), 2);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (std::uint64_t n = rng.between(1, 4); n > 0; --n) {
      const std::size_t at = rng.below(bytes.size());
      switch (rng.below(3)) {
        case 0: bytes[at] = static_cast<char>(rng.below(256)); break;
        case 1: bytes.erase(at, rng.below(4)); break;
        default: bytes.insert(at, 1, "(){}[],:'\"0-9\0 "[rng.below(15)]); break;
      }
      if (bytes.empty()) break;
    }
    const auto info = parse_npy_header(bytes, "f");
    if (!info) continue;
    ++read;
    CHECK(info->data_bytes >= 0);
    CHECK(info->data_offset <= static_cast<std::int64_t>(bytes.size()));
  }
  CHECK(read > 0);
}

TEST_CASE("files that are missing, short or no files") {
  TempFolder folder;
  CHECK(read_npy_header(folder / "none.npy").error().code == Errc::kNotFound);
  CHECK(read_npy_header("").error().code == Errc::kInvalidArgument);
  CHECK(read_npy_header(folder / ".").error().code == Errc::kInvalidArgument);
  CHECK(read_npy_header(std::string("a\0b", 3)).error().code == Errc::kInvalidArgument);
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(read_npy_header(folder / "pipe").error().code == Errc::kInvalidArgument);

  const std::string header = *npy_header(ir::DType::kFloat64, {3, 4});
  put(folder / "short.npy", header + std::string(95, 'x'));
  const auto shorter = read_npy_header(folder / "short.npy");
  REQUIRE_FALSE(shorter);
  CHECK(shorter.error().code == Errc::kCorruptData);
  CHECK(mentions(shorter.error(), "truncated"));
  CHECK(mentions(shorter.error(), "224"));
  CHECK(mentions(shorter.error(), "223"));
  CHECK(mentions(shorter.error(), "short.npy"));
  put(folder / "long.npy", header + std::string(100, 'x'));  // NumPy ignores what follows, too
  CHECK(read_npy_header(folder / "long.npy"));
  put(folder / "empty.npy", "");
  CHECK(read_npy_header(folder / "empty.npy").error().code == Errc::kCorruptData);
}

TEST_CASE("a header longer than the first read is read") {
  TempFolder folder;
  const std::string text = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }";
  put(folder / "wide.npy", npy_with(text + std::string(50'000, ' '), 2) + std::string(16, '\0'));
  const auto info = read_npy_header(folder / "wide.npy");
  REQUIRE(info);
  CHECK(info->data_offset == 12 + 50'000 + static_cast<std::int64_t>(text.size()));
}
