// Pieces: what an op gets that reads parts of blocks which it cannot read in place.
//
// Blocks travel whole. Where an op would move whole blocks from afar to read parts of them, the parts are cut out first, where
// the blocks are, and travel as blocks of an array of their own; the op reads those whole. So a byte that nobody needs there stays,
// and what is needed moves once.
//
// What the operand shows is tiled with boxes. Along each dimension there is a cut where the owner changes or where what
// some device reads begins or ends; so a cell between cuts has one owner, and each device reads all of it or nothing. Cells
// that nobody reads from afar, or of which whole blocks are needed, are read as they are; the others are made apart. Cells
// that are alike are joined into boxes, each an operand. Only ops that read their operands element by element are cut for (copies,
// which gather for all others, and elementwise ops): whatever they read it from, they make the same bits.
//
// Nothing here depends on the number of blocks but under a counted limit.
#pragma once
#include <tilewise/ir/lower.h>
#include <tilewise/place/place.h>

#include <optional>
#include <vector>

namespace tilewise::place {

struct CutPart {
  ir::Box box;              // of what the operand shows
  bool apart = false;       // an array of its own; else read as it is
  ir::Grid pieces;          // of that array, without the dimensions that repeat
  ir::Placement placement;  // of its pieces: each with its block
};

struct Cut {  // of one operand
  std::uint8_t operand = 0;
  ir::SourceArray source;
  std::vector<CutPart> parts;  // disjoint, all of what it shows
  // Estimated, until the op has the operand: with the cut, and without.
  double seconds = 0, whole_s = 0;
  double moved_bytes = 0, whole_bytes = 0;
};

struct CutOptions {
  bool always = false;  // tests: wherever fewer bytes move, however little is won
};

struct CutChoice {
  std::optional<Cut> cut;  // none: not worth it, or not possible
  bool by_memory = false;  // had there been more, it might have been another
};

constexpr std::int64_t kMaxCells = 1024;  // of one operand
constexpr std::int64_t kMaxLooks =
    16'384;  // blocks of cells, each once for each device that reads it from afar
constexpr std::int64_t kMaxPieces = 16'384;  // of one operand

// Whether parts of the operand should be made apart for an op that is placed so. `makers`: the devices that may make them, sorted
// by id. `room`: how many operands more the op may get.
CutChoice cut_for(const Request& request, int operand, const ir::Placement& reader,
                  std::span<const Device> makers, std::size_t room, const CutOptions& options = {});

// Kinds of ops that are cut for.
bool takes_pieces(const ir::Op& op);

// The op reads the parts instead of the operand. Appends what makes them, in order.
Status cut_operand(ir::Op& op, const Cut& cut, const ir::NewArray& new_array, std::vector<ir::Op>& makers);

// So that an op moves this much of a block from afar at most, if it is cut for: what the region shows.
double piece_bytes(const ir::Op& op, const ir::Read& read, ir::DType dtype);

}  // namespace tilewise::place
