// Fill values of Zarr arrays, between JSON and one element in memory.
#pragma once
#include <tilewise/ir/dtype.h>
#include <tilewise/json/json.h>

#include <array>
#include <cstddef>

namespace tilewise::io {

using FillBytes = std::array<std::byte, 16>;

// False where the value does not suit the dtype. Numbers, "NaN", "Infinity", "-Infinity", "0x..." (bits), and for complex
// dtypes a pair of those.
bool read_fill(const json::value& v, ir::DType dtype, FillBytes& out);
json::value fill_value(ir::DType dtype, const FillBytes& fill);

}  // namespace tilewise::io
