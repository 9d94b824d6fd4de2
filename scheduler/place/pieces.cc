// Which parts of blocks are cut out before they travel.
#include <tilewise/place/pieces.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>
#include <map>
#include <set>

#include "cells.h"
#include "shares.h"

namespace tilewise::place {
namespace {

constexpr double kMuchOfBlock = 0.75;  // from this part on, a block may as well travel whole
constexpr double kOpS = 50e-6;         // what an op more costs; and a task
constexpr double kTaskS = 1e-6;
// Of bytes copied where they are; deliberately no measured figure: it decides what a plan looks like.
constexpr double kCutBytesPerS = 10e9, kCudaCutBytesPerS = 200e9;

// Seconds and bytes of what arrives at a device, or at another host than the owner's.
class Arrivals {
 public:
  void add(std::uint64_t at, const LinkSpeed& link, double bytes, double blocks) {
    seconds_[at] += link.shown_s(bytes, blocks);
    bytes_ += bytes;
  }
  double bytes() const { return bytes_; }
  double longest_s() const {
    double most = 0;
    for (const auto& [at, seconds] : seconds_) most = std::max(most, seconds);
    return most;
  }

 private:
  std::map<std::uint64_t, double> seconds_;
  double bytes_ = 0;
};

std::uint64_t place_of(const Device& owner, const Device& reader) {
  return owner.host == reader.host ? reader.id.value : (std::uint64_t{1} << 63) | reader.host;
}

class Cutter {
 public:
  Cutter(const Request& request, int operand, const ir::Placement& reader, std::span<const Device> makers,
         const CutOptions& options)
      : request_(request),
        operand_(operand),
        input_(request.inputs[static_cast<std::size_t>(operand)]),
        makers_(makers),
        options_(options),
        element_bytes_(static_cast<double>(ir::size_of(input_.array->dtype))),
        cells_(*request.op, operand, input_, reader, kMaxCells) {}

  CutChoice choose(std::size_t room) {
    CutChoice out;
    if (!cells_.good() || input_.placement->replicated() || !look()) return out;
    const bool copies = request_.op->kind == ir::OpKind::kCopy;
    std::vector<ir::Box> boxes = boxes_of_like(cells_.counts(), apart_);
    if (!copies || boxes.size() > room + 1) {
      // One array of all of it.
      std::fill(apart_.begin(), apart_.end(), 1);
      boxes = {ir::box_of(cells_.counts())};
    }
    Cut cut;
    cut.operand = static_cast<std::uint8_t>(operand_);
    cut.source = *input_.array;
    std::int64_t pieces = 0;
    for (const ir::Box& box : boxes) {
      CutPart part;
      part.box = cells_.box(box);
      part.apart = apart_[static_cast<std::size_t>(ir::ravel(box.lo, cells_.counts()))] != 0;
      if (part.apart && !set_pieces(box, part)) return out;
      if (part.apart) pieces += part.pieces.block_count();
      cut.parts.push_back(std::move(part));
    }
    if (pieces == 0 || pieces > kMaxPieces || !weigh(cut)) return out;
    out.by_memory = !fits();
    if (!out.by_memory) out.cut = std::move(cut);
    return out;
  }

 private:
  using Arrived =
      boost::unordered_flat_set<std::pair<std::uint64_t, std::int64_t>>;  // where, and which block
  struct Far {                                                            // a cell, as it is read from afar
    const Device* owner = nullptr;
    std::vector<std::pair<const Device*, LinkSpeed>> readers;
    double bytes = 0;
    ir::Box parts;
  };
  struct Made {  // on a device
    double bytes = 0;
    std::int64_t largest = 0;
  };

  // What of each cell is read from afar, and what of it whole blocks would cost. False: nothing to be won, or too much to look at.
  bool look() {
    std::int64_t looks = 0;
    for (std::int64_t c = 0; c < cells_.count(); ++c) {
      const Cell cell = cells_.at(c);
      const Device* owner = find_device(request_.devices, cell.owner);
      Far& far = far_.emplace_back();
      apart_.push_back(0);
      if (owner == nullptr) continue;  // a client's, or lost: nobody can cut there
      far.owner = owner;
      for (const DeviceId id : cell.readers) {
        const Device* reader = find_device(request_.devices, id);
        if (reader == nullptr || id == owner->id) continue;
        const LinkSpeed link = link_of(request_, *owner, *reader);
        if (link.mapped || link.bytes_per_s == 0 || (owner->worker && owner->worker == reader->worker))
          continue;
        far.readers.push_back({reader, link});
      }
      if (far.readers.empty()) continue;
      far.bytes = element_bytes_ * cell.elements;
      far.parts = cell.parts;
      looks += cell.parts.volume() * static_cast<std::int64_t>(far.readers.size());
      if (looks > kMaxLooks) return false;
      if (cell.elements > kMuchOfBlock * cell.block_elements || find_device(makers_, owner->id) == nullptr)
        continue;
      apart_.back() = 1;
    }
    return std::find(apart_.begin(), apart_.end(), 1) != apart_.end();
  }

  bool set_pieces(const ir::Box& box, CutPart& part) const {
    std::optional<ir::Grid> pieces = cells_.pieces(box, kMaxPieces);
    if (!pieces) return false;
    part.pieces = std::move(*pieces);
    std::vector<std::uint64_t> owners;
    ir::Shape counts = box.shape();
    for (std::int64_t i = 0; i < ir::volume(counts); ++i) {
      ir::Index at = ir::unravel(i, counts);
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += box.lo[d];
      const Device* owner = far_[static_cast<std::size_t>(ir::ravel(at, cells_.counts()))].owner;
      if (owner == nullptr || find_device(makers_, owner->id) == nullptr) return false;
      owners.push_back(owner->id.value);
    }
    std::vector<ir::Piece> rules;
    for (const ir::Box& same : boxes_of_like(counts, owners)) {
      const DeviceId owner{
          static_cast<std::uint32_t>(owners[static_cast<std::size_t>(ir::ravel(same.lo, counts))])};
      rules.push_back(
          {cells_.pieces_inside(box, same, part.pieces), ir::Rule::constant(part.pieces.rank(), owner)});
    }
    if (rules.size() > static_cast<std::size_t>(ir::kMaxPieces)) return false;
    part.placement = ir::Placement(std::move(rules));
    return true;
  }

  // Against whole blocks. Cutting and sending overlap.
  bool weigh(Cut& cut) {
    Arrivals whole, cuts;
    Arrived whole_there, there;
    for (std::size_t c = 0; c < far_.size(); ++c) {
      const Far& far = far_[c];
      add_blocks(far, whole_there, whole);
      if (apart_[c] == 0) {
        add_blocks(far, there, cuts);
        continue;
      }
      const auto pieces = static_cast<double>(far.parts.volume());
      const bool once = far.bytes > pieces * static_cast<double>(kTreeBytes);
      std::set<std::uint64_t> places;
      for (const auto& [reader, link] : far.readers) {
        const std::uint64_t at = place_of(*far.owner, *reader);
        if (places.insert(at).second || !once) cuts.add(at, link, far.bytes, pieces);
      }
    }
    const double making_s = longest_making_s(cut);
    const auto apart =
        std::count_if(cut.parts.begin(), cut.parts.end(), [](const CutPart& p) { return p.apart; });
    cut.whole_bytes = whole.bytes(), cut.moved_bytes = cuts.bytes();
    cut.whole_s = whole.longest_s();
    cut.seconds = std::max(cuts.longest_s(), making_s) + static_cast<double>(apart) * kOpS;
    if (options_.always) return cut.moved_bytes < cut.whole_bytes;
    return cut.moved_bytes < kMuchOfBlock * cut.whole_bytes && cut.seconds + kOpS < cut.whole_s;
  }

  // Of the device that has most to do.
  double longest_making_s(const Cut& cut) {
    std::map<DeviceId, double> making;
    for (const CutPart& part : cut.parts) {
      if (!part.apart) continue;
      const auto blocks = static_cast<double>(part.pieces.block_count());
      double bytes = element_bytes_;
      for (const std::int64_t extent : part.pieces.shape()) bytes *= static_cast<double>(extent);
      for (const DeviceId id : part.placement.devices()) {
        const double pieces = static_cast<double>(part.placement.owned_count(id));
        const double rate = find_device(makers_, id)->kind == kCudaKind ? kCudaCutBytesPerS : kCutBytesPerS;
        making[id] += bytes * pieces / blocks / rate + kTaskS * pieces;
        made_[id].bytes += bytes * pieces / blocks;
        made_[id].largest =
            std::max(made_[id].largest, ir::volume(part.pieces.max_block_shape()) *
                                            static_cast<std::int64_t>(ir::size_of(input_.array->dtype)));
      }
    }
    double most = 0;
    for (const auto& [id, seconds] : making) most = std::max(most, seconds);
    return most;
  }

  // Large blocks come to each other host once.
  void add_blocks(const Far& far, Arrived& there, Arrivals& arrivals) const {
    const ir::Shape counts = far.parts.shape(), all = input_.array->grid.counts();
    for (std::int64_t i = 0; !far.readers.empty() && i < far.parts.volume(); ++i) {
      ir::Index part = ir::unravel(i, counts);
      for (std::size_t d = 0; d < part.size(); ++d) part[d] += far.parts.lo[d];
      const ir::Index block = cells_.block(part);
      const double bytes = element_bytes_ * static_cast<double>(input_.array->grid.box(block).volume());
      for (const auto& [reader, link] : far.readers) {
        const bool once = bytes > static_cast<double>(kTreeBytes);
        const std::uint64_t at = once ? place_of(*far.owner, *reader) : reader->id.value;
        if (there.emplace(at, ir::ravel(block, all)).second)
          arrivals.add(place_of(*far.owner, *reader), link, bytes, 1);
      }
    }
  }

  bool fits() const {
    return std::all_of(made_.begin(), made_.end(), [&](const auto& made) {
      return find_device(makers_, made.first)->room_for(made.second.bytes, made.second.largest) ==
             Room::kAmple;
    });
  }

  const Request& request_;
  int operand_;
  const Input& input_;
  std::span<const Device> makers_;
  CutOptions options_;
  double element_bytes_;
  Cells cells_;
  std::vector<Far> far_;              // by cell
  std::vector<std::uint64_t> apart_;  // likewise: 1
  std::map<DeviceId, Made> made_;
};

bool shifts_alone(const ir::Op& op) {
  if (op.kind != ir::OpKind::kCopy || op.operands.size() != 1) return false;
  bool shifts = true, moved = false;
  for (const ir::DimMap& map : op.get<ir::CopyAttrs>().maps[0]) {
    shifts = shifts && map.before + map.after == 0;
    moved = moved || map.before != 0;
  }
  return shifts && moved;
}

}  // namespace

bool takes_pieces(const ir::Op& op) { return op.kind == ir::OpKind::kCopy || op.kind == ir::OpKind::kMap; }

double piece_bytes(const ir::Op& op, const ir::Read& read, ir::DType dtype) {
  double bytes = static_cast<double>(ir::size_of(dtype));
  for (const ir::SourceDim& source : op.operands[read.operand].view.source)
    if (source.dim >= 0) bytes *= static_cast<double>(read.region.extent(source.dim));
  return bytes;
}

CutChoice cut_for(const Request& request, int operand, const ir::Placement& reader,
                  std::span<const Device> makers, std::size_t room, const CutOptions& options) {
  if (!takes_pieces(*request.op) || shifts_alone(*request.op)) return {};
  return Cutter(request, operand, reader, makers, options).choose(room);
}

}  // namespace tilewise::place
