// Tapes as CUDA C++: the generated half of elementwise and reduction kernels.
#pragma once
#include <tilewise/ir/tape.h>

#include <string>

#include "params.h"

namespace tilewise::cuda {

// "double" in registers; bool arrays hold bytes of 0 or 1 in memory, narrow dtypes are computed in wider ones.
std::string_view register_type(ir::DType dtype);
std::string_view memory_type(ir::DType dtype);

// What a kernel of this tape walks besides its outputs, which come first: loads, then positions.
struct TapeSources {
  struct Load {
    std::uint8_t operand;
    ir::DType dtype;
  };
  struct Position {
    bool whole;        // C-order position in the op's space (random numbers), or
    std::uint8_t dim;  // the index along one dimension
    friend bool operator==(const Position&, const Position&) = default;
  };
  boost::container::static_vector<Load, limits::kMaxTapeLoads> loads;  // each operand once
  boost::container::static_vector<Position, limits::kMaxRank + 1> positions;
  std::size_t count() const { return loads.size() + positions.size(); }
};
TapeSources sources_of(const ir::Tape& tape);

// Elements a thread handles at once where memory is contiguous: 16 bytes of the widest type.
int group_width(const ir::Tape& tape);

// kOutputs, kPlaces, kWidth, Value, Values, Element, tw_load, tw_load_group, tw_evaluate, tw_store and tw_store_group, as
// device/map.cuh describes.
std::string tape_source(const ir::Tape& tape);
bool uses_complex(const ir::Tape& tape);  // and so wants device/complex.cuh before it

// What is passed with each launch of the tape's kernel.
Constants constants_of(const ir::Tape& tape);
// Two tapes with equal keys have equal source: it does not contain constants that are passed.
void append_key(const ir::Tape& tape, std::string& key);

}  // namespace tilewise::cuda
