// Matrix products: which of A, B and C stays where it is, and over which grid of devices the others travel.
//
// A product of M x K by K x N on a grid of rows x columns devices, each with its part of C, receives (columns - 1) |A| +
// (rows - 1) |B| bytes: SUMMA (van de Geijn and Watts, 1997). With k cut into parts that are summed afterwards the grid has
// layers too, and layers times fewer devices read each block: (columns - 1) |A| + (rows - 1) |B| + (layers - 1) |C|, the
// "2.5D" products of Solomonik and Demmel (2011). Layers change the last bits, so their greatest number is the user's
// choice (MatmulAttrs::k_parts); how many of them lie apart, and where, is chosen here and changes none.
#include <tilewise/place/place.h>

#include "shares.h"

#include <algorithm>
#include <utility>

namespace tilewise::place {
namespace {

constexpr std::size_t kGrids = 3;           // told further, the cheapest
constexpr std::size_t kAlike = 8;           // grids that move as much: looked at
constexpr std::int64_t kLinks = 1024;       // of one grid, looked at
constexpr std::int64_t kMaxReads = 16'384;  // looked at for one arrangement
constexpr std::int64_t kReadsATile = 64, kPointsATile = 8;

bool is_product(const ir::Op& op) {
  return op.kind == ir::OpKind::kMatmul || op.kind == ir::OpKind::kMatmulPanels;
}

std::vector<DeviceId> ids_of(std::span<const Device> devices) {
  std::vector<DeviceId> out;
  for (const Device& d : devices) out.push_back(d.id);
  return out;
}

bool in_layers(const Request& request, const ir::PerDim<std::int32_t>& parts) {
  return request.op->kind == ir::OpKind::kMatmulPanels && parts[0] > 1;
}

ir::Rule rule_of(const ir::PerDim<std::int32_t>& parts, std::span<const Device> devices) {
  ir::Rule rule;
  rule.parts = parts;
  rule.cyclic.assign(parts.size(), 0);
  std::size_t used = 1;
  for (const std::int32_t p : parts) used *= static_cast<std::size_t>(p);
  for (std::size_t i = 0; i < used; ++i) rule.devices.push_back(devices[i].id);
  return rule;
}

// Device grids of a product: those that give nobody more than need be, the cheapest first.
class Grids {
 public:
  Grids(const Request& request) : counts_(request.op->space.counts()), cost_(cut_costs(request)) {
    devices_ = static_cast<std::int64_t>(request.eligible.size());
    parts_.assign(counts_.size(), 1);
    spread(0, devices_);
    std::sort(all_.begin(), all_.end());
    const std::int64_t least = all_.front().load;
    std::erase_if(all_, [&](const Grid& g) { return g.load > least; });
    nearest_first(request);
    if (all_.size() > kGrids) all_.resize(kGrids);
  }
  const ir::PerDim<std::int32_t>& best() const { return all_.front().parts; }
  template <class F> void each(F&& f) const {
    for (const Grid& g : all_) f(g.parts);
  }

 private:
  struct Grid {
    std::int64_t load = 0;
    double bytes = 0;
    ir::PerDim<std::int32_t> parts;
    bool operator<(const Grid& other) const {
      return std::tie(load, bytes, parts) < std::tie(other.load, other.bytes, other.parts);
    }
  };
  // Of those that move about as few bytes, first the one that moves them over the fastest links.
  void nearest_first(const Request& request) {
    std::size_t best = 0;
    double best_s = 0;
    for (std::size_t i = 0; i < all_.size() && i < kAlike && all_[i].bytes <= 1.01 * all_.front().bytes;
         ++i) {
      const double seconds = seconds_of(request, all_[i].parts);
      if (i == 0 || seconds < best_s) best = i, best_s = seconds;
    }
    std::swap(all_.front(), all_[best]);
  }
  // Along each dimension, from the first device of each line of devices to the others; of many, some.
  double seconds_of(const Request& request, const ir::PerDim<std::int32_t>& grid) const {
    const ir::Shape parts(grid.begin(), grid.end());
    double seconds = 0;
    const std::int64_t devices = ir::volume(parts), stride = ir::ceil_div(devices, kLinks);
    for (std::int64_t i = 0; i < devices; i += stride) {
      const ir::Index at = ir::unravel(i, parts);
      for (std::size_t d = 0; d < parts.size(); ++d) {
        if (at[d] == 0) continue;
        ir::Index first = at;
        first[d] = 0;
        const LinkSpeed speed =
            link_of(request, request.eligible[static_cast<std::size_t>(ir::ravel(first, parts))],
                    request.eligible[static_cast<std::size_t>(i)]);
        if (!speed.mapped)
          seconds += cost_[d] * parts[d] * static_cast<double>(stride) / static_cast<double>(devices) /
                     speed.bytes_per_s;
      }
    }
    return seconds;
  }
  // At most three dimensions: larger stacks are spread as any other op is.
  void spread(std::size_t d, std::int64_t left) {
    if (d == counts_.size()) {
      Grid g{1, 0, parts_};
      for (std::size_t i = 0; i < counts_.size(); ++i) {
        g.load *= ir::ceil_div(counts_[i], parts_[i]);
        g.bytes += cost_[i] * (parts_[i] - 1);
      }
      all_.push_back(std::move(g));
      return;
    }
    const std::int64_t most = std::min(left, counts_[d]);
    for (std::int64_t parts = d + 1 == counts_.size() ? most : 1; parts <= most; ++parts) {
      // Of those that leave as many devices to the other dimensions, the largest.
      if (parts < most && left / (parts + 1) == left / parts) continue;
      // Tiles may be larger than need be by rounding: five blocks on four devices are two each, which three do as well.
      parts_[d] = static_cast<std::int32_t>(ir::ceil_div(counts_[d], ir::ceil_div(counts_[d], parts)));
      spread(d + 1, left / parts);
    }
    parts_[d] = 1;
  }

  ir::Shape counts_;
  ir::PerDim<double> cost_;
  std::int64_t devices_ = 1;
  ir::PerDim<std::int32_t> parts_;
  std::vector<Grid> all_;
};

ir::Placement best_grid(const Request& request) {
  const ir::Shape counts = request.op->space.counts();
  if (counts.size() > 3 || ir::volume(counts) == 0)
    return tiled(counts, ids_of(request.eligible), cut_costs(request), false);
  return ir::Placement::whole(counts, rule_of(Grids(request).best(), request.eligible));
}

class Product final : public Policy {
 public:
  std::string_view name() const override { return "product"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    if (!is_product(*request.op)) return;
    const bool b_first = bytes_of(*request.inputs[1].array) > bytes_of(*request.inputs[0].array);
    for (const int operand : {b_first ? 1 : 0, b_first ? 0 : 1}) {
      ir::Placement placement;
      if (align_with(request, operand, placement))
        out.push_back({std::move(placement), operand == 0 ? "stationary A" : "stationary B"});
    }
    ir::Placement grid = best_grid(request);
    const bool layers = in_layers(request, grid.pieces()[0].rule.parts);
    out.push_back({std::move(grid), layers ? "layers of k" : "stationary C"});
  }
};

// Names the devices of a grid so that, as far as they go round, those that share a part of one operand are its owners.
class Arrangement {
 public:
  Arrangement(const Request& request, ir::Rule& rule, int operand)
      : request_(request), rule_(rule), operand_(operand), counts_(request.op->space.counts()) {}

  void run() {
    const ir::Shape tiles = tiles_of(operand_);
    const std::int64_t groups = ir::volume(tiles);
    each_ = static_cast<std::size_t>(rule_.parts[shared(operand_)]);
    reads_a_tile_ = std::clamp<std::int64_t>(kMaxReads / (groups * (1 + static_cast<std::int64_t>(each_))), 1,
                                             kReadsATile);
    for (const Device& d : request_.eligible) left_.push_back(d.id);
    chosen_.assign(static_cast<std::size_t>(groups) * each_, DeviceId{});
    for (std::int64_t tile = 0; tile < groups; ++tile) {
      std::size_t next = 0;
      look_for_owners(operand_, ir::unravel(tile, tiles));
      for (const Owner& owner : owners_)
        if (next < each_ && take_left(owner.id))
          chosen_[static_cast<std::size_t>(tile) * each_ + next++] = owner.id;
    }
    auto rest = left_.begin();
    for (DeviceId& id : chosen_) {
      if (id) continue;
      while (!*rest) ++rest;
      id = *rest++;
    }
    for (std::int64_t tile = 0; tile < groups; ++tile)
      give(ir::unravel(tile, tiles), static_cast<std::size_t>(tile));
  }

 private:
  struct Owner {
    std::int64_t blocks = 0;
    DeviceId id;
  };
  // Of A along the columns, of B along the rows.
  std::size_t shared(int operand) const { return counts_.size() - (operand == 0 ? 1 : 2); }
  ir::Shape tiles_of(int operand) const {
    ir::Shape tiles(rule_.parts.begin(), rule_.parts.end());
    tiles[shared(operand)] = 1;
    return tiles;
  }
  bool take_left(DeviceId id) {
    const auto at = std::lower_bound(request_.eligible.begin(), request_.eligible.end(), id,
                                     [](const Device& d, DeviceId wanted) { return d.id < wanted; });
    if (at == request_.eligible.end() || at->id != id) return false;
    return static_cast<bool>(
        std::exchange(left_[static_cast<std::size_t>(at - request_.eligible.begin())], DeviceId{}));
  }
  static bool take(std::span<DeviceId> from, DeviceId id) {
    const auto at = std::find(from.begin(), from.end(), id);
    if (at == from.end()) return false;
    *at = DeviceId{};
    return true;
  }

  // Among those of one tile, each goes where it has something of the other operand, too.
  void give(ir::Index at, std::size_t tile) {
    const ir::Shape parts(rule_.parts.begin(), rule_.parts.end());
    const std::span<DeviceId> group(chosen_.data() + tile * each_, each_);
    std::sort(group.begin(), group.end());
    given_.assign(each_, DeviceId{});
    for (std::size_t i = 0; i < each_; ++i) {
      at[shared(operand_)] = static_cast<std::int64_t>(i);
      ir::Index other = at;
      other[shared(1 - operand_)] = 0;
      look_for_owners(1 - operand_, other);
      const auto owner =
          std::find_if(owners_.begin(), owners_.end(), [&](const Owner& o) { return take(group, o.id); });
      if (owner != owners_.end()) given_[i] = owner->id;
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < each_; ++i) {
      at[shared(operand_)] = static_cast<std::int64_t>(i);
      while (!given_[i] && !group[next]) ++next;
      rule_.devices[static_cast<std::size_t>(ir::ravel(at, parts))] = given_[i] ? given_[i] : group[next++];
    }
  }

  // Of the blocks of the operand that a tile reads, who has most of them first.
  void look_for_owners(int operand, const ir::Index& tile) {
    const ir::Shape tiles = tiles_of(operand);
    ir::Shape size;
    ir::Index lo;
    for (std::size_t d = 0; d < counts_.size(); ++d) {
      const bool any = d == shared(operand);
      const auto begin = [&](std::int64_t c) { return ir::ceil_div(c * counts_[d], tiles[d]); };
      lo.push_back(any ? 0 : begin(tile[d]));
      size.push_back(any ? 1 : begin(tile[d] + 1) - lo[d]);
    }
    const Input& input = request_.inputs[static_cast<std::size_t>(operand)];
    owners_.clear();
    const std::int64_t points = ir::volume(size);
    const std::int64_t looked = std::min(points, kPointsATile);
    for (std::int64_t i = 0; i < looked; ++i) {
      ir::Index point = ir::unravel((2 * i + 1) * points / (2 * looked), size);
      for (std::size_t d = 0; d < point.size(); ++d) point[d] += lo[d];
      const std::int64_t steps = request_.geometry->steps(point);
      const std::int64_t tried = std::min(steps, std::max<std::int64_t>(1, reads_a_tile_ / looked));
      for (std::int64_t t = 0; t < tried; ++t) {
        request_.geometry->reads(point, (2 * t + 1) * steps / (2 * tried), reads_);
        for (const ir::Read& read : reads_)
          if (read.operand == operand)
            count(input.placement->owner(ir::unravel(read.block, input.array->grid.counts())));
      }
    }
    std::sort(owners_.begin(), owners_.end(), [](const Owner& a, const Owner& b) {
      return a.blocks != b.blocks ? a.blocks > b.blocks : a.id < b.id;
    });
  }
  void count(DeviceId id) {
    const auto known =
        std::find_if(owners_.begin(), owners_.end(), [&](const Owner& o) { return o.id == id; });
    known == owners_.end() ? owners_.push_back({1, id}) : void(++known->blocks);
  }

  const Request& request_;
  ir::Rule& rule_;
  int operand_;
  ir::Shape counts_;
  std::size_t each_ = 1;  // devices that share a tile
  std::int64_t reads_a_tile_ = 1;
  std::vector<DeviceId> left_, chosen_, given_;
  std::vector<Owner> owners_;
  std::vector<ir::Read> reads_;
};

// Several grids, each with its devices in their order, near A and near B: bytes within a host cost less than others.
class ProductGrids final : public Policy {
 public:
  std::string_view name() const override { return "product on a grid"; }
  bool searches() const override { return true; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    if (!is_product(*request.op) || request.op->space.rank() > 3 || request.eligible.size() < 2) return;
    if (request.geometry->point_count() < 2) return;
    const ir::Shape counts = request.op->space.counts();
    Grids(request).each([&](const ir::PerDim<std::int32_t>& parts) {
      const bool layers = in_layers(request, parts);
      ir::Rule rule = rule_of(parts, request.eligible);
      for (const int operand : {0, 1}) {
        ir::Rule near = rule;
        Arrangement(request, near, operand).run();
        const std::string_view why = operand == 0 ? (layers ? "layers of k, near A" : "stationary C, near A")
                                                  : (layers ? "layers of k, near B" : "stationary C, near B");
        out.push_back({ir::Placement::whole(counts, std::move(near)), why});
      }
      out.push_back({ir::Placement::whole(counts, std::move(rule)), layers ? "layers of k" : "stationary C"});
    });
  }
};

// Partial results that lie apart are summed by those who have them, a share each: what has to move arrives evenly
// (a reduce-scatter).
class Scattered final : public Policy {
 public:
  std::string_view name() const override { return "summed in shares"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    const ir::Op& op = *request.op;
    if (op.kind != ir::OpKind::kCombine) return;
    const auto axis = static_cast<std::size_t>(op.get<ir::CombineAttrs>().axis);
    const ir::Shape counts = op.space.counts();
    const ir::Placement* from = request.inputs[0].placement;
    if (from == nullptr || from->pieces().size() != 1 || ir::volume(counts) < 2) return;
    const ir::Rule& rule = from->pieces()[0].rule;
    // So many devices along the axis have something of one sum.
    const std::int64_t apart = rule.parts[axis] / counts[axis];
    if (apart < 2 || rule.parts[axis] % counts[axis] != 0 || rule.copies != 1) return;
    if (std::any_of(rule.cyclic.begin(), rule.cyclic.end(), [](std::uint8_t c) { return c != 0; })) return;
    std::size_t cut = axis;  // the dimension whose tiles have most blocks
    std::int64_t most = 1;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      const std::int64_t blocks = counts[d] / rule.parts[d];
      if (d != axis && blocks > most) cut = d, most = blocks;
    }
    if (cut == axis) return;
    const std::int64_t shares = std::min(apart, most);
    ir::Rule shared = rule;
    shared.parts[axis] = static_cast<std::int32_t>(counts[axis]);
    shared.parts[cut] = static_cast<std::int32_t>(rule.parts[cut] * shares);
    shared.devices.clear();
    const ir::Shape parts(shared.parts.begin(), shared.parts.end()),
        old(rule.parts.begin(), rule.parts.end());
    for (std::int64_t i = 0; i < ir::volume(parts); ++i) {
      ir::Index at = ir::unravel(i, parts);
      at[axis] = at[axis] * apart + at[cut] % shares * apart / shares;
      at[cut] /= shares;
      shared.devices.push_back(rule.devices[static_cast<std::size_t>(ir::ravel(at, old))]);
    }
    out.push_back({ir::Placement::whole(counts, std::move(shared)), name()});
  }
};

}  // namespace

bool wanted_by_product(const Request& product, int operand, ir::Placement& out) {
  const ir::Op& op = *product.op;
  if (!is_product(op) || !op.hint.devices.empty() || product.eligible.empty()) return false;
  const ir::Shape counts = op.space.counts();
  const std::size_t rank = counts.size(), m = rank - 2, n = rank - 1;
  const bool panels = op.kind == ir::OpKind::kMatmulPanels;
  if ((panels ? rank != 3 : rank != 2) || ir::volume(counts) == 0) return false;
  const ir::Placement grid = best_grid(product);
  const ir::Rule& rule = grid.pieces()[0].rule;
  const std::int64_t layers = panels ? rule.parts[0] : 1;
  // The operand's own dimension is cut as the grid is; k among those that share the operand, layer by layer.
  const ir::View& view = op.operands[static_cast<std::size_t>(operand)].view;
  const ir::Grid& source = product.inputs[static_cast<std::size_t>(operand)].array->grid;
  if (source.rank() != 2 || view.rank() != 2) return false;
  const std::size_t own = operand == 0 ? m : n, shared = operand == 0 ? n : m;
  const int own_dim = operand == 0 ? 0 : 1;
  ir::Rule wish;
  std::int64_t along_k = 0, along_own = 0;
  for (int s = 0; s < 2; ++s) {
    const ir::SourceDim& dim = view.source[s];
    if (dim.dim < 0 || dim.start != 0 || dim.step != 1 || view.shape[dim.dim] != source.dim(s).extent())
      return false;
    (dim.dim == own_dim ? along_own : along_k) = source.dim(s).count();
  }
  const std::int64_t readers = std::min<std::int64_t>(rule.parts[shared], along_k / layers);
  if (readers < 1 || along_own < rule.parts[own]) return false;
  for (int s = 0; s < 2; ++s) {
    wish.parts.push_back(view.source[s].dim == own_dim ? rule.parts[own]
                                                       : static_cast<std::int32_t>(layers * readers));
    wish.cyclic.push_back(0);
  }
  const ir::Shape parts(wish.parts.begin(), wish.parts.end()), old(rule.parts.begin(), rule.parts.end());
  for (std::int64_t i = 0; i < ir::volume(parts); ++i) {
    const ir::Index to = ir::unravel(i, parts);
    const std::int64_t mine = to[view.source[0].dim == own_dim ? 0 : 1];
    const std::int64_t k = to[view.source[0].dim == own_dim ? 1 : 0];
    ir::Index at(rank, 0);
    at[own] = mine;
    at[shared] = k % readers * rule.parts[shared] / readers;
    if (panels) at[0] = k / readers;
    wish.devices.push_back(rule.devices[static_cast<std::size_t>(ir::ravel(at, old))]);
  }
  out = ir::Placement::whole(source.counts(), std::move(wish));
  return true;
}

std::unique_ptr<Policy> product_policy() { return std::make_unique<Product>(); }
std::unique_ptr<Policy> product_grids_policy() { return std::make_unique<ProductGrids>(); }
std::unique_ptr<Policy> scattered_policy() { return std::make_unique<Scattered>(); }

}  // namespace tilewise::place
