// Small arrays of 5 x 7 as zarr-python 3.1.6 writes them: element (i, j) is 3 * (7 i + j) - 20, where it was written.
#pragma once
#include <string>

#include "io_test_util.h"

namespace tilewise::io::test {

struct SampleFile {
  const char* path;
  bool hex;
  const char* text;
};

inline constexpr SampleFile kZstd[] = {
    // float32 in zstd with checksums
    {"zarr.json", false,
     R"({"shape":[5,7],"data_type":"float32","chunk_grid":{"name":"regular","configurati)"
     R"(on":{"chunk_shape":[3,4]}},"chunk_key_encoding":{"name":"default","configuration)"
     R"(":{"separator":"/"}},"fill_value":1.5,"codecs":[{"name":"bytes","configuration":)"
     R"({"endian":"little"}},{"name":"zstd","configuration":{"level":3,"checksum":true}})"
     R"(],"attributes":{},"zarr_format":3,"node_type":"array","storage_transformers":[]})"},
    {"c/0/0", true,
     "28b52ffd24308101000000a0c1000088c1000060c1000030c10000803f000080400000e040000020410000b041"
     "0000c8410000e0410000f841415bd676"},
    {"c/0/1", true,
     "28b52ffd2430810100000000c10000a0c0000000c00000c03f0000504100008041000098410000c03f00000842"
     "00001442000020420000c03f0bbaf0d1"},
    {"c/1/0", true,
     "28b52ffd24305d0100440200002c42000038420000444200005042000080420000864200008c42000092420000"
     "c03f01009c734f3773cd19"},
    {"c/1/1", true,
     "28b52ffd2430350100d800005c4200006842000074420000c03f0000984200009e420000a40300bb859b163cd9"
     "1c039b213c2d"},
};
inline constexpr SampleFile kSharded[] = {
    // int16 in shards of gzip chunks
    {"zarr.json", false,
     R"({"shape":[5,7],"data_type":"int16","chunk_grid":{"name":"regular","configuration)"
     R"(":{"chunk_shape":[4,8]}},"chunk_key_encoding":{"name":"default","configuration":)"
     R"({"separator":"/"}},"fill_value":-7,"codecs":[{"name":"sharding_indexed","configu)"
     R"(ration":{"chunk_shape":[2,4],"codecs":[{"name":"bytes","configuration":{"endian")"
     R"(:"little"}},{"name":"gzip","configuration":{"level":5}}],"index_codecs":[{"name")"
     R"(:"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}],"index_location)"
     R"(":"end"}}],"attributes":{},"zarr_format":3,"node_type":"array","storage_transfor)"
     R"(mers":[]})"},
    {"c/0/0", true,
     "1f8b08001ea0026b00ff7bf3fffdff4fffbffe676460616067e0620000f373066b100000001f8b08001ea0026b"
     "00ff1363906490619067d066d0633064306100006ed35924100000001f8b08001ea0026b00fffbf1fff7ff7fff"
     "7ffee76510601066f8f91f006bd7383b100000001f8b08001ea0026b00ff53625065d060f8f9df9cc18ac11648"
     "03004aee1c4e100000000000000000000000250000000000000049000000000000002500000000000000250000"
     "000000000024000000000000006e0000000000000023000000000000002c83a67d"},
    {"c/1/0", true,
     "1f8b08001ea0026b00ff736070667063f064f8f91f02014a438d65100000001f8b08001ea0026b00fff361f067"
     "0862f8f91f06015e50fd201000000000000000000000001f000000000000001f000000000000001d0000000000"
     "0000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe2c6bcd0"},
};
inline constexpr SampleFile kVersion2[] = {
    // version 2: big-endian int32, Fortran order, blosc; the last rows were never written
    {".zarray", false,
     R"({"shape":[5,7],"chunks":[3,4],"dtype":">i4","fill_value":9,"order":"F","filters")"
     R"(:null,"dimension_separator":".","compressor":{"id":"blosc","cname":"lz4","clevel)"
     R"(":5,"shuffle":1,"blocksize":0},"zarr_format":2})"},
    {"0.0", true,
     "02013304300000003000000040000000ffffffec0000000100000016ffffffef0000000400000019fffffff200"
     "0000070000001cfffffff50000000a0000001f"},
    {"0.1", true,
     "02013304300000003000000040000000fffffff80000000d00000022fffffffb0000001000000025fffffffe00"
     "00001300000028000000090000000900000009"},
};
inline constexpr SampleFile kTransposed[] = {
    // transposed complex64 in blosc with checksums behind it; the last rows were never written
    {"zarr.json", false,
     R"({"shape":[5,7],"data_type":"complex64","chunk_grid":{"name":"regular","configura)"
     R"(tion":{"chunk_shape":[3,4]}},"chunk_key_encoding":{"name":"default","configurati)"
     R"(on":{"separator":"/"}},"fill_value":[1.0,"NaN"],"codecs":[{"name":"transpose","c)"
     R"(onfiguration":{"order":[1,0]}},{"name":"bytes","configuration":{"endian":"little)"
     R"("}},{"name":"blosc","configuration":{"typesize":8,"cname":"zstd","clevel":3,"shu)"
     R"(ffle":"bitshuffle","blocksize":0}},{"name":"crc32c"}],"attributes":{},"zarr_form)"
     R"(at":3,"node_type":"array","storage_transformers":[]})"},
    {"c/0/0", true,
     "020196086000000060000000700000000000a0c1000000000000803f000000000000b04100000000000088c100"
     "00000000008040000000000000c84100000000000060c1000000000000e040000000000000e041000000000000"
     "30c10000000000002041000000000000f84100000000092b0eda"},
    {"c/0/1", true,
     "02019608600000006000000070000000000000c100000000000050410000000000000842000000000000a0c000"
     "00000000008041000000000000144200000000000000c000000000000098410000000000002042000000000000"
     "803f0000c07f0000803f0000c07f0000803f0000c07fe5be09cf"},
};

// Writes the files of one sample into `folder`.
template <std::size_t kCount> void put_sample(const std::string& folder, const SampleFile (&files)[kCount]) {
  for (const SampleFile& file : files) {
    std::string bytes = file.text;
    if (file.hex) {
      bytes.clear();
      for (const char* c = file.text; *c != '\0'; c += 2)
        bytes += static_cast<char>(std::stoi(std::string(c, 2), nullptr, 16));
    }
    const std::filesystem::path path = std::filesystem::path(folder) / file.path;
    std::filesystem::create_directories(path.parent_path());
    put(path.string(), bytes);
  }
}

}  // namespace tilewise::io::test
