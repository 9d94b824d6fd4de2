// Private to the tests of this folder.
#pragma once
#include <tilewise/base/prng.h>
#include <tilewise/base/result.h>
#include <tilewise/ir/shape.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "print_result.h"
#include "temp_folder.h"

namespace tilewise::io::test {

using testing::TempFolder;

inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

inline std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Any box of an array, also one without elements.
inline ir::Box random_box(Prng& rng, const ir::Shape& shape) {
  ir::Box box;
  for (const std::int64_t extent : shape) {
    const std::int64_t lo = rng.chance(0.3) ? 0 : rng.between(0, extent);
    box.lo.push_back(lo);
    box.hi.push_back(rng.chance(0.3) ? extent : rng.between(lo, extent));
  }
  return box;
}

// A header with any text inside.
inline std::string npy_with(const std::string& text, int major = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(major);
  out += '\0';
  const std::size_t n = text.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out += static_cast<char>((n >> (8 * i)) & 0xff);
  return out + text;
}

inline bool mentions(const Error& error, const std::string& what) {
  return error.message.find(what) != std::string::npos;
}

}  // namespace tilewise::io::test
