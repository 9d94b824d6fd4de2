// Pieces (tilewise/place/pieces.h) in a plan: ops that cut parts out of blocks which would otherwise travel whole, each before the op
// that reads them. What is cut follows from where things are placed; how ops are rewritten, from that alone.
#pragma once
#include <tilewise/place/pieces.h>
#include <tilewise/plan/plan.h>

#include <string_view>
#include <vector>

namespace tilewise::scheduler {

struct Draft;
struct Options;
struct State;

constexpr std::string_view kPiecesPass = plan::kPlacedPass;
bool cuts_pieces(const Options& options);  // not switched off

struct OpCuts {
  std::size_t op = 0;                    // its place before any was cut for
  std::vector<place::Cut> cuts;          // by operand, rising
  std::vector<ir::SourceArray> sources;  // of all operands
};
using Cuts = std::vector<OpCuts>;  // by op, rising

// For an op that has been placed so. `by_memory`: set where there might have been others with more memory.
OpCuts cuts_of(const State& s, std::size_t op, const place::Request& request, const ir::Placement& placement,
               std::span<const place::Device> makers, bool& by_memory);

// All ops of a plan, with those that make pieces.
Result<std::vector<ir::Op>> with_pieces(std::vector<ir::Op> ops, const Cuts& cuts,
                                        const ir::NewArray& new_array);

// The same of a placed draft, with placements and reasons; verified.
Status add_pieces(const State& s, Draft& draft, Cuts cuts, const ir::NewArray& new_array);

}  // namespace tilewise::scheduler
