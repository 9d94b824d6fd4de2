// How pieces that several clients have make one array. The cuts of its grid are those of all pieces, so a block lies in one piece
// or in none; every block must lie in exactly one. Pieces much larger than a default block are cut further, along dimension 0 only:
// then blocks are still one run of bytes where their piece lies.
#pragma once
#include "state.h"

#include <functional>

namespace tilewise::scheduler {

struct Cover {
  ir::Grid grid;
  std::vector<std::uint32_t> owners;  // by block: whose it is, as a position in the parts
};

// kInvalidArgument for the first piece that is no box inside `shape`.
Status check_pieces(const ir::Shape& shape, const std::vector<ir::Box>& pieces);

// Pieces have been checked. `who(part)`: for people. kAlreadyExists names both who have an element, kNotFound a box that nobody
// has, kLimitExceeded a grid of too many cuts or blocks (msg::kMaxGatheredBlocks).
Result<Cover> cover(const ir::Shape& shape, std::size_t element_bytes,
                    const std::vector<Gathering::Part>& parts,
                    const std::function<std::string(std::size_t)>& who);

// A rule per piece, or where there are too many of them a list. `devices`: of the parts.
ir::Placement placement_of(const Cover& cover, const std::vector<Gathering::Part>& parts,
                           const std::vector<DeviceId>& devices);

}  // namespace tilewise::scheduler
