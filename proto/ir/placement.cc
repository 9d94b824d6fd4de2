#include <tilewise/base/check.h>
#include <tilewise/ir/placement.h>

#include <algorithm>
#include <tuple>

namespace tilewise::ir {
namespace {

// One dimension of a rule: coordinate of an offset from the box's low corner, and the inverse. n: extent of the box.
struct Deal {
  std::int64_t n, parts;
  bool cyclic;

  // Contiguous: x lies in [ceil(c*n/parts), ceil((c+1)*n/parts)) exactly when c = floor(x*parts/n).
  std::int64_t coordinate(std::int64_t x) const {
    return parts == 1 ? 0 : cyclic ? x % parts : x * parts / n;
  }
  std::int64_t first(std::int64_t c) const { return cyclic ? c : (c * n + parts - 1) / parts; }
  std::int64_t stride() const { return cyclic ? parts : 1; }
  // Owned offsets below `bound`.
  std::int64_t below(std::int64_t c, std::int64_t bound) const {
    if (cyclic) return bound > c ? (bound - c - 1) / parts + 1 : 0;
    return std::clamp(bound, first(c), first(c + 1)) - first(c);
  }
  std::int64_t count(std::int64_t c) const { return below(c, n); }
};

Deal deal(const Piece& piece, int d) {
  return {piece.box.hi[d] - piece.box.lo[d], piece.rule.parts[d], piece.rule.cyclic[d] != 0};
}

// What Deal and the slots rely on; verify() reports the same with words.
bool well_formed(const Piece& p) {
  const std::size_t rank = p.box.lo.size();
  if (p.box.hi.size() != rank || p.rule.parts.size() != rank || p.rule.cyclic.size() != rank) return false;
  if (p.rule.devices.empty() || p.rule.devices.size() > kMaxRuleDevices || p.rule.copies < 1) return false;
  std::int64_t places = 1, points = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    if (p.rule.parts[d] < 1 || p.box.lo[d] < 0 || p.box.hi[d] < p.box.lo[d] ||
        p.box.hi[d] > limits::kMaxBlocks)
      return false;
    if ((places *= p.rule.parts[d]) > kMaxRuleDevices) return false;
    if (__builtin_mul_overflow(points, p.box.hi[d] - p.box.lo[d], &points) || points > limits::kMaxBlocks)
      return false;
  }
  return places * p.rule.copies == static_cast<std::int64_t>(p.rule.devices.size());
}

// Coordinates of a place in the rule's device grid.
PerDim<std::int64_t> coordinates(const Rule& rule, std::int64_t place) {
  PerDim<std::int64_t> c(rule.parts.size(), 0);
  for (int d = static_cast<int>(c.size()) - 1; d >= 0; --d) {
    c[d] = place % rule.parts[d];
    place /= rule.parts[d];
  }
  return c;
}

std::int64_t place_of(const Piece& piece, const Index& point) {
  std::int64_t place = 0;
  for (int d = 0; d < piece.box.rank(); ++d)
    place = place * piece.rule.parts[d] + deal(piece, d).coordinate(point[d] - piece.box.lo[d]);
  return place;
}

}  // namespace

Rule Rule::constant(int rank, DeviceId device) {
  const auto n = static_cast<std::size_t>(rank);
  return {PerDim<std::int32_t>(n, 1), PerDim<std::uint8_t>(n, 0), {device}, 1};
}

Placement Placement::whole(const Shape& counts, Rule rule) {
  return Placement({{box_of(counts), std::move(rule)}});
}

Placement Placement::of_runs(Shape counts, std::vector<Run> runs) {
  auto body = std::make_shared<Body>();
  body->listed.emplace(std::move(counts), std::move(runs));
  Placement placement;
  placement.body_ = std::move(body);
  return placement;
}

Placement::Placement(std::vector<Piece> pieces) {
  auto body = std::make_shared<Body>();
  body->pieces = std::move(pieces);
  std::vector<Slot>& slots = body->slots;
  const bool usable =
      body->pieces.size() <= kMaxPieces && std::all_of(body->pieces.begin(), body->pieces.end(), well_formed);
  for (std::size_t i = 0; usable && i < body->pieces.size(); ++i) {
    const Piece& piece = body->pieces[i];
    const auto copies = static_cast<std::size_t>(piece.rule.copies);
    for (std::size_t place = 0; place < piece.rule.devices.size() / copies; ++place) {
      const auto c = coordinates(piece.rule, static_cast<std::int64_t>(place));
      std::int64_t points = 1;
      for (int d = 0; d < piece.box.rank(); ++d) points *= deal(piece, d).count(c[d]);
      slots.push_back({piece.rule.devices[place * copies], static_cast<std::int32_t>(i),
                       static_cast<std::int32_t>(place), 0, points});
    }
  }
  std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
    return std::tie(a.device, a.piece, a.place) < std::tie(b.device, b.piece, b.place);
  });
  for (std::size_t i = 1; i < slots.size(); ++i) {
    if (slots[i].device != slots[i - 1].device) continue;
    slots[i].before = slots[i - 1].before + slots[i - 1].points;
    body->repeats = true;
  }
  body_ = std::move(body);
}

const Placement::Body Placement::kNoBody{};

Status Placement::verify(const Shape& counts) const {
  if (const RunMap* map = listed()) return map->verify(counts);
  const auto bad = [](std::string text) {
    return error(Errc::kInvalidArgument, "placement: " + std::move(text));
  };
  if (pieces().size() > kMaxPieces)
    return error(Errc::kLimitExceeded, "placement: " + std::to_string(pieces().size()) +
                                           " pieces; the limit is " + std::to_string(kMaxPieces));
  TW_ASSIGN(const std::int64_t total, checked_volume(counts));
  std::int64_t covered = 0;
  for (const Piece& p : pieces()) {
    if (p.box.lo.size() != counts.size() || !well_formed(p))
      return bad("a rule that does not fit its box or device list");
    for (std::size_t d = 0; d < counts.size(); ++d)
      if (p.box.hi[d] > counts[d]) return bad("box " + to_string(p.box) + " is outside " + to_string(counts));
    for (const DeviceId device : p.rule.devices)
      if (!device) return bad("device 0");
    covered += p.box.volume();  // at most kMaxPieces * kMaxBlocks
  }
  for (std::size_t i = 0; i < pieces().size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (intersect(pieces()[i].box, pieces()[j].box).volume() > 0)
        return bad("boxes " + to_string(pieces()[j].box) + " and " + to_string(pieces()[i].box) + " overlap");
  if (covered != total)
    return bad("covers " + std::to_string(covered) + " of " + std::to_string(total) + " points");
  return {};
}

DeviceId Placement::owner(const Index& point) const {
  if (const RunMap* map = listed()) return map->owner(point);
  for (const Piece& piece : pieces())
    if (piece.box.contains(point)) {
      if (piece.rule.devices.size() == 1) return piece.rule.devices[0];
      return piece.rule.devices[static_cast<std::size_t>(place_of(piece, point) * piece.rule.copies)];
    }
  return {};
}

bool Placement::holds(const Index& point, DeviceId device) const {
  if (const RunMap* map = listed()) return map->owner(point) == device;
  for (const Piece& piece : pieces()) {
    if (!piece.box.contains(point)) continue;
    const auto from = piece.rule.devices.begin() + place_of(piece, point) * piece.rule.copies;
    return std::find(from, from + piece.rule.copies, device) != from + piece.rule.copies;
  }
  return false;
}

bool Placement::replicated() const {
  return std::any_of(pieces().begin(), pieces().end(), [](const Piece& p) { return p.rule.copies > 1; });
}

std::span<const Placement::Slot> Placement::slots_of(DeviceId device) const {
  const std::vector<Slot>& slots = body().slots;
  const auto from = std::lower_bound(slots.begin(), slots.end(), device,
                                     [](const Slot& slot, DeviceId id) { return slot.device < id; });
  if (!body().repeats) return {from, from + (from != slots.end() && from->device == device)};
  const auto to = std::upper_bound(from, slots.end(), device,
                                   [](DeviceId id, const Slot& slot) { return id < slot.device; });
  return {from, to};
}

std::int64_t Placement::owned_count(DeviceId device) const {
  if (const RunMap* map = listed()) return map->owned_count(device);
  const std::span<const Slot> slots = slots_of(device);
  return slots.empty() ? 0 : slots.back().before + slots.back().points;
}

std::int64_t Placement::owned_count(DeviceId device, const Box& box) const {
  std::int64_t count = 0;
  if (const RunMap* map = listed()) {
    map->each_inside(box,
                     [&](DeviceId owner, std::int64_t points) { count += owner == device ? points : 0; });
    return count;
  }
  for (const Slot& slot : slots_of(device)) {
    const Piece& piece = pieces()[static_cast<std::size_t>(slot.piece)];
    std::int64_t points = 1, place = slot.place;
    for (int d = piece.box.rank() - 1; d >= 0 && points > 0; --d) {
      const Deal dim = deal(piece, d);
      const std::int64_t c = place % dim.parts, lo = piece.box.lo[d];
      place /= dim.parts;
      const std::int64_t from = std::clamp<std::int64_t>(box.lo[d] - lo, 0, dim.n);
      const std::int64_t to = std::clamp<std::int64_t>(box.hi[d] - lo, from, dim.n);
      points *= dim.below(c, to) - dim.below(c, from);
    }
    count += points;
  }
  return count;
}

Index Placement::nth(DeviceId device, std::int64_t ordinal) const {
  if (const RunMap* map = listed()) return map->nth(device, ordinal);
  const std::span<const Slot> slots = slots_of(device);
  TW_CHECK(!slots.empty() && ordinal >= 0 && ordinal < slots.back().before + slots.back().points,
           "a device was asked for a point beyond those it owns");
  // The last slot that starts at or before the ordinal; empty ones start where the next does.
  const auto at = std::upper_bound(slots.begin(), slots.end(), ordinal,
                                   [](std::int64_t o, const Slot& s) { return o < s.before; }) -
                  1;
  const Piece& piece = pieces()[static_cast<std::size_t>(at->piece)];
  ordinal -= at->before;
  std::int64_t place = at->place;
  Index point(piece.box.lo.size(), 0);
  for (int d = piece.box.rank() - 1; d >= 0; --d) {
    const Deal dim = deal(piece, d);
    const std::int64_t c = place % dim.parts, n = dim.count(c);
    place /= dim.parts;
    point[d] = piece.box.lo[d] + dim.first(c) + ordinal % n * dim.stride();
    ordinal /= n;
  }
  return point;
}

std::int64_t Placement::ordinal(DeviceId device, const Index& point) const {
  if (const RunMap* map = listed()) return map->ordinal(device, point);
  const std::span<const Slot> slots = slots_of(device);
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    const Piece& piece = pieces()[i];
    if (!piece.box.contains(point)) continue;
    std::int64_t place = 0, within = 0;
    for (int d = 0; d < piece.box.rank(); ++d) {
      const Deal dim = deal(piece, d);
      const std::int64_t x = point[d] - piece.box.lo[d], c = dim.coordinate(x);
      place = place * dim.parts + c;
      within = within * dim.count(c) + (x - dim.first(c)) / dim.stride();
    }
    const auto key = std::pair(static_cast<std::int32_t>(i), static_cast<std::int32_t>(place));
    const auto at = std::lower_bound(slots.begin(), slots.end(), key, [](const Slot& s, const auto& k) {
      return std::pair(s.piece, s.place) < k;
    });
    TW_CHECK(at != slots.end() && at->piece == key.first && at->place == key.second,
             "the ordinal of a point was asked of a device that does not own it");
    return at->before + within;
  }
  TW_CHECK(false, "the ordinal of a point was asked that lies in no piece");
  return -1;
}

void Placement::shares(const Box& box, std::vector<Share>& out) const {
  out.clear();
  if (const RunMap* map = listed()) {
    map->each_inside(box, [&](DeviceId device, std::int64_t points) {
      const auto known =
          std::find_if(out.begin(), out.end(), [&](const Share& s) { return s.device == device; });
      if (known != out.end())
        known->points += points;
      else
        out.push_back({device, points});
    });
    return;
  }
  if (box.volume() == 1) {
    if (const DeviceId device = owner(box.lo)) out.push_back({device, 1});
    return;
  }
  for (const Piece& piece : pieces()) {
    const int rank = piece.box.rank();
    // Per dimension: the coordinates met, in order of first appearance; a cyclic dimension may start anywhere.
    Index lo(rank, 0), hi(rank, 0), first(rank, 0), met(rank, 0), at(rank, 0);
    bool empty = false;
    for (int d = 0; d < rank && !empty; ++d) {
      lo[d] = std::max(box.lo[d], piece.box.lo[d]) - piece.box.lo[d];
      hi[d] = std::min(box.hi[d], piece.box.hi[d]) - piece.box.lo[d];
      empty = lo[d] >= hi[d];
      if (empty) break;
      const Deal dim = deal(piece, d);
      first[d] = dim.coordinate(lo[d]);
      met[d] = dim.cyclic ? std::min(dim.parts, hi[d] - lo[d]) : dim.coordinate(hi[d] - 1) - first[d] + 1;
    }
    if (empty) continue;
    while (true) {
      std::int64_t place = 0, points = 1;
      for (int d = 0; d < rank; ++d) {
        const Deal dim = deal(piece, d);
        const std::int64_t c = (first[d] + at[d]) % dim.parts;
        place = place * dim.parts + c;
        points *= dim.below(c, hi[d]) - dim.below(c, lo[d]);
      }
      const DeviceId device = piece.rule.devices[static_cast<std::size_t>(place * piece.rule.copies)];
      if (points > 0) {  // a coordinate between two others may own nothing when parts exceed the extent
        auto known = out.end();
        if (body().repeats)
          known = std::find_if(out.begin(), out.end(), [&](const Share& s) { return s.device == device; });
        if (known != out.end()) {
          known->points += points;
        } else {
          out.push_back({device, points});
        }
      }
      int d = rank - 1;
      for (; d >= 0 && ++at[d] == met[d]; --d) at[d] = 0;
      if (d < 0) break;
    }
  }
}

std::optional<Index> Placement::first_owned(DeviceId device, const Box& box) const {
  if (const RunMap* map = listed()) return map->first_owned(device, box);
  if (box.volume() == 1) return owner(box.lo) == device ? std::optional(box.lo) : std::nullopt;
  for (const Slot& slot :
       slots_of(device)) {  // by ordinal; within a slot, the least of each dimension comes first
    const Piece& piece = pieces()[static_cast<std::size_t>(slot.piece)];
    const auto c = coordinates(piece.rule, slot.place);
    Index point(piece.box.lo.size(), 0);
    bool found = slot.points > 0;
    for (int d = 0; d < piece.box.rank() && found; ++d) {
      const Deal dim = deal(piece, d);
      const std::int64_t lo = std::max<std::int64_t>(box.lo[d] - piece.box.lo[d], 0),
                         skipped = dim.below(c[d], lo);
      const std::int64_t x = dim.first(c[d]) + skipped * dim.stride();
      found = skipped < dim.count(c[d]) && piece.box.lo[d] + x < box.hi[d];
      point[d] = piece.box.lo[d] + x;
    }
    if (found) return point;
  }
  return std::nullopt;
}

std::vector<DeviceId> Placement::devices() const {
  if (const RunMap* map = listed()) return map->devices();
  std::vector<DeviceId> all;
  for (const Piece& piece : pieces())
    all.insert(all.end(), piece.rule.devices.begin(), piece.rule.devices.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace tilewise::ir
