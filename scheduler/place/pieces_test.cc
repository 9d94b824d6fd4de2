// Which parts of blocks are made apart, what then moves, and that what is read is the same. Bytes are counted here block by block.
#include <tilewise/base/prng.h>
#include <tilewise/ir/verify.h>
#include <tilewise/place/pieces.h>

#include <map>
#include <set>

#include "place_case.h"

namespace tilewise::place {
namespace {

// Devices with processes of their own, on hosts of their own.
std::vector<Device> own_workers(int n) {
  std::vector<Device> out = hosts(n);
  for (Device& d : out) d.worker = WorkerId{d.id.value};
  return out;
}

ir::Placement rows(const ir::Grid& g, const std::vector<Device>& devices, int dim = 0, bool cyclic = false) {
  ir::Rule rule;
  for (int d = 0; d < g.rank(); ++d) {
    rule.parts.push_back(d == dim ? static_cast<std::int32_t>(devices.size()) : 1);
    rule.cyclic.push_back(d == dim && cyclic ? 1 : 0);
  }
  rule.devices = ids(devices);
  return ir::Placement::whole(g.counts(), rule);
}

// A copy of what a view of an array shows into other blocks.
Case gather(const ir::Grid& from, const ir::View& view, const ir::Grid& to, std::vector<Device> devices) {
  Case c;
  c.devices = std::move(devices);
  c.op.kind = ir::OpKind::kCopy;
  c.op.space = to;
  c.op.operands = {{1, view}};
  c.op.outputs = {{100, ir::DType::kFloat64, to}};
  ir::OperandMap map;
  for (int d = 0; d < to.rank(); ++d) map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  c.op.attrs = ir::CopyAttrs{{map}};
  c.arrays = {{ir::DType::kFloat64, from}};
  c.placements = {rows(from, c.devices)};
  return c;
}
// The same with windows along the first dimension, as calls read them.
Case windows(const ir::Grid& from, std::int64_t before, std::int64_t after, std::vector<Device> devices) {
  Case c = gather(from, ir::View::identity(from.shape()), from, std::move(devices));
  ir::CopyAttrs attrs = c.op.get<ir::CopyAttrs>();
  attrs.maps[0][0].before = before, attrs.maps[0][0].after = after;
  c.op.attrs = attrs;
  std::vector<ir::DimGrid> dims = from.dims();
  std::vector<std::int64_t> starts;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < dims[0].count(); ++i) {
    starts.push_back(at);
    at += std::min(dims[0].extent(), dims[0].end(i) + after) -
          std::max<std::int64_t>(0, dims[0].begin(i) - before);
  }
  dims[0] = *ir::DimGrid::cuts(at, starts);
  c.op.outputs[0].grid = ir::Grid(dims);
  return c;
}

struct Moved {
  double bytes = 0;
  std::int64_t blocks = 0;
};

// What an op reads, element by element: offsets in the array, by operand index of the original; and what has to move for it.
class Account {
 public:
  Account(const std::vector<ir::Op>& ops, const std::vector<ir::SourceArray>& arrays,
          const std::vector<ir::Placement>& placements, std::uint64_t first_made)
      : ops_(ops), arrays_(arrays), placements_(placements), first_made_(first_made) {}

  // Whole blocks, each once to each device that reads it elsewhere.
  Moved moved() const {
    Moved out;
    std::set<std::tuple<std::uint64_t, std::int64_t, std::uint32_t>> seen;
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      const ir::Op& op = ops_[o];
      const auto geometry = ir::Geometry::make(op, sources(op));
      REQUIRE_MESSAGE(geometry.has_value(), geometry.error().message);
      std::vector<ir::Read> reads;
      for (std::int64_t p = 0; p < geometry->point_count(); ++p) {
        const ir::Index point = geometry->point(p);
        const DeviceId here = placement(o).owner(point);
        for (std::int64_t s = 0; s < geometry->steps(point); ++s) {
          geometry->reads(point, s, reads);
          for (const ir::Read& read : reads) {
            const std::uint64_t array = op.operands[read.operand].array;
            const ir::Grid& grid = source(array).grid;
            const ir::Index block = ir::unravel(read.block, grid.counts());
            if (owner(array, block) == here || !seen.insert({array, read.block, here.value}).second) continue;
            out.bytes += static_cast<double>(grid.box(block).volume()) * 8;
            ++out.blocks;
          }
        }
      }
    }
    return out;
  }

  // Offset in the first array of each element that the last op writes.
  std::vector<std::int64_t> result() const {
    std::map<std::uint64_t, std::vector<std::int64_t>> values;
    std::vector<std::int64_t>& first = values[1];
    for (std::int64_t i = 0; i < ir::volume(arrays_[0].grid.shape()); ++i) first.push_back(i);
    for (const ir::Op& op : ops_) {
      const auto geometry = ir::Geometry::make(op, sources(op));
      const ir::Grid& out = op.outputs[0].grid;
      std::vector<std::int64_t> written(static_cast<std::size_t>(ir::volume(out.shape())), -1);
      std::vector<ir::Read> reads;
      for (std::int64_t p = 0; p < geometry->point_count(); ++p) {
        const ir::Index point = geometry->point(p);
        const ir::Box box = out.box(point);
        for (std::int64_t s = 0; s < geometry->steps(point); ++s) {
          geometry->reads(point, s, reads);
          for (const ir::Read& read : reads) {
            const ir::Box to = ir::copy_destination(op, op.space.box(point), read.operand, read.region);
            const ir::Operand& operand = op.operands[read.operand];
            const ir::Shape whole = source(operand.array).grid.shape();
            const ir::Shape part = read.region.shape();
            for (std::int64_t i = 0; i < ir::volume(part); ++i) {
              ir::Index at = ir::unravel(i, part), from(whole.size(), 0);
              ir::Index target = at;
              for (std::size_t d = 0; d < at.size(); ++d) {
                target[d] += to.lo[d] + box.lo[d];
                at[d] += read.region.lo[d];
              }
              for (std::size_t d = 0; d < from.size(); ++d) {
                const ir::SourceDim& walk = operand.view.source[d];
                from[d] = walk.dim < 0 ? walk.start : walk.start + walk.step * at[walk.dim];
              }
              std::int64_t& value = written[static_cast<std::size_t>(ir::ravel(target, out.shape()))];
              if (value != -1) FAIL("written twice");
              value = values.at(operand.array)[static_cast<std::size_t>(ir::ravel(from, whole))];
            }
          }
        }
      }
      values[op.outputs[0].array] = std::move(written);
    }
    return values.at(ops_.back().outputs[0].array);
  }

 private:
  // Array 1 was there; what ops make is named from first_made_ on; the last op makes its own.
  ir::SourceArray source(std::uint64_t array) const {
    if (array == 1) return arrays_[0];
    return {ir::DType::kFloat64, ops_[static_cast<std::size_t>(array - first_made_)].outputs[0].grid};
  }
  std::vector<ir::SourceArray> sources(const ir::Op& op) const {
    std::vector<ir::SourceArray> out;
    for (const ir::Operand& operand : op.operands) out.push_back(source(operand.array));
    return out;
  }
  const ir::Placement& placement(std::size_t op) const { return placements_[op]; }
  DeviceId owner(std::uint64_t array, const ir::Index& block) const {
    return array == 1 ? source_placement->owner(block)
                      : placements_[static_cast<std::size_t>(array - first_made_)].owner(block);
  }

 public:
  const ir::Placement* source_placement = nullptr;

 private:
  const std::vector<ir::Op>& ops_;
  const std::vector<ir::SourceArray>& arrays_;
  const std::vector<ir::Placement>& placements_;
  std::uint64_t first_made_;
};

struct Outcome {
  bool cut = false;
  double predicted = 0, predicted_whole = 0;
  Moved whole, moved;
  std::vector<ir::Op> makers;
  ir::Op reader;
};

// Cuts for the case's op, placed so, and checks that it reads the same elements.
Outcome cut(Case& c, const ir::Placement& reader, CutOptions options = {},
            std::size_t room = ir::kMaxStepOperands - 1) {
  Outcome out;
  const Request request = c.request();
  const CutChoice choice = cut_for(request, 0, reader, c.devices, room, options);
  const auto account = [&](const std::vector<ir::Op>& ops, const std::vector<ir::Placement>& placements) {
    Account a(ops, c.arrays, placements, 1000);
    a.source_placement = &c.placements[0];
    return a;
  };
  const std::vector<ir::Op> plain{c.op};
  const std::vector<ir::Placement> where{reader};
  out.whole = account(plain, where).moved();
  out.cut = choice.cut.has_value();
  if (!out.cut) return out;
  std::uint64_t next = 1000;
  out.reader = c.op;
  REQUIRE(cut_operand(
              out.reader, *choice.cut, [&] { return next++; }, out.makers)
              .has_value());
  std::vector<ir::Placement> placements;
  for (const CutPart& part : choice.cut->parts) {
    if (!part.apart) continue;
    REQUIRE(part.placement.verify(part.pieces.counts()).has_value());
    placements.push_back(part.placement);
  }
  placements.push_back(reader);
  std::vector<ir::Op> all = out.makers;
  all.push_back(out.reader);
  out.moved = account(all, placements).moved();
  out.predicted = choice.cut->moved_bytes, out.predicted_whole = choice.cut->whole_bytes;
  if (c.op.kind == ir::OpKind::kCopy && ir::volume(c.op.outputs[0].grid.shape()) < 1 << 16)
    CHECK(account(all, placements).result() == account(plain, where).result());
  // Pieces are made where their blocks are.
  for (std::size_t m = 0; m < out.makers.size(); ++m) {
    const std::vector<ir::Op> one{out.makers[m]};
    const std::vector<ir::Placement> there{placements[m]};
    CHECK(account(one, there).moved().blocks == 0);
  }
  CHECK(out.predicted == out.moved.bytes);
  return out;
}

const ir::Grid kRows = grid({2048, 2048}, {256, 2048}), kColumns = grid({2048, 2048}, {2048, 256});
const ir::View kAll = ir::View::identity({2048, 2048});

TEST_CASE("rows to columns: half of the array moves between two, each piece from who has it") {
  Case c = gather(kRows, kAll, kColumns, own_workers(2));
  const Outcome out = cut(c, rows(kColumns, c.devices, 1));
  REQUIRE(out.cut);
  CHECK(out.whole.bytes == 2048.0 * 2048 * 8);
  CHECK(out.predicted_whole == out.whole.bytes);
  CHECK(out.moved.bytes == 2048.0 * 2048 * 8 / 2);
  CHECK(out.moved.blocks == 8);   // one of each block, not one of each block and reader's block
  CHECK(out.makers.size() == 2);  // what is near is read where it is
  CHECK(out.reader.operands.size() == 4);
}

TEST_CASE(
    "what several devices exchange moves once, in one array where there are too many parts for operands") {
  for (const int n : {3, 4, 8}) {
    Case c = gather(kRows, kAll, kColumns, own_workers(n));
    const Outcome out = cut(c, rows(kColumns, c.devices, 1));
    REQUIRE(out.cut);
    std::int64_t stay = 0;  // elements
    const ir::Placement from = c.placements[0], to = rows(kColumns, c.devices, 1);
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = 0; j < 8; ++j)
        if (from.owner({i, 0}) == to.owner({0, j})) stay += 256 * 256;
    CHECK(out.moved.bytes == static_cast<double>(2048 * 2048 - stay) * 8);
    CHECK((out.makers.size() == 1) == (n == 8));
  }
}

TEST_CASE("windows: of a neighbour's block only the rows that reach into it") {
  const ir::Grid rod = grid({4096, 1024}, {512, 1024});
  Case c = windows(rod, 2, 1, own_workers(2));
  const Outcome out = cut(c, rows(rod, c.devices));
  REQUIRE(out.cut);
  CHECK(out.whole.bytes == 2 * 512.0 * 1024 * 8);
  CHECK(out.moved.bytes == 3 * 1024.0 * 8);
  CHECK(out.moved.blocks == 2);
  CHECK(out.makers.size() == 1);
  CHECK(out.makers[0].outputs[0].grid.shape() == ir::Shape{3, 1024});
  // Fifteen parts are the most that operands name for eight devices in a row.
  Case eight = windows(rod, 1, 1, own_workers(8));
  const Outcome many = cut(eight, rows(rod, eight.devices));
  REQUIRE(many.cut);
  CHECK(many.moved.bytes == 7 * 2 * 1024.0 * 8);
  CHECK(many.reader.operands.size() == 15);
}

TEST_CASE(
    "a few rows of a block that another device wants, through views with steps, turned over and repeated") {
  const ir::Grid one = grid({4096, 1024}, {4096, 1024});
  const auto wanted = [&](const ir::View& view) {
    const ir::Grid to = *ir::Grid::uniform(view.shape, view.shape);
    Case c = gather(one, view, to, own_workers(2));
    c.placements = {ir::Placement::whole({1, 1}, ir::Rule::constant(2, DeviceId{1}))};
    const Outcome out = cut(c, ir::Placement::whole(to.counts(), ir::Rule::constant(to.rank(), DeviceId{2})));
    REQUIRE(out.cut);
    CHECK(out.whole.bytes == 4096.0 * 1024 * 8);
    CHECK(out.moved.blocks == 1);
    return out.moved.bytes;
  };
  const ir::View all = ir::View::identity({4096, 1024});
  CHECK(wanted(*all.slice(0, 10, 20, 1)) == 10 * 1024 * 8);
  CHECK(wanted(*all.slice(0, 3000, 10, -100)) == 30 * 1024 * 8);
  CHECK(wanted(*all.slice(0, 10, 20, 1)->transpose()) == 10 * 1024 * 8);
  CHECK(wanted(*all.at(0, 5)) == 1024 * 8);
  CHECK(wanted(*all.at(1, 7)->expand_dims(0)->broadcast_to({3, 4096})) == 4096 * 8);
}

TEST_CASE("elementwise ops elsewhere get what their view shows") {
  const ir::Grid one = grid({4096, 1024}, {4096, 1024}), to = grid({10, 1024}, {10, 1024});
  Case c = map_of(to, {{one, *ir::View::identity({4096, 1024}).slice(0, 10, 20, 1)}}, 2);
  c.devices = own_workers(2);
  c.placements = {ir::Placement::whole({1, 1}, ir::Rule::constant(2, DeviceId{1}))};
  const Outcome out = cut(c, ir::Placement::whole({1, 1}, ir::Rule::constant(2, DeviceId{2})));
  REQUIRE(out.cut);
  CHECK(out.moved.bytes == 10 * 1024 * 8);
  CHECK(out.reader.operands.size() == 1);
}

TEST_CASE("nothing is cut") {
  const auto none = [](Case c, const ir::Placement& reader) { return !cut(c, reader).cut; };
  const ir::Placement columns = rows(kColumns, own_workers(2), 1);
  SUBCASE("where blocks are read in place") {
    Case c = gather(kRows, kAll, kColumns, own_workers(2));
    for (Device& d : c.devices) d.host = 0;
    CHECK(none(c, columns));
  }
  SUBCASE("inside a process") {
    Case c = gather(kRows, kAll, kColumns, own_workers(2));
    for (Device& d : c.devices) d.worker = WorkerId{1}, d.kind = kCudaKind;
    CHECK(none(c, columns));
  }
  SUBCASE("where blocks are needed whole") {
    Case c = gather(kRows, kAll, kRows, own_workers(2));
    const std::vector<Device> turned{c.devices[1], c.devices[0]};
    CHECK(none(c, rows(kRows, turned)));
    const ir::View most = *kAll.slice(1, 0, 1900, 1);
    const ir::Grid to = grid({2048, 1900}, {256, 1900});
    Case nearly = gather(kRows, most, to, own_workers(2));
    CHECK(none(nearly, rows(to, turned)));
  }
  SUBCASE("where a host needs whole blocks, if each of its devices only parts: they come there once") {
    std::vector<Device> four = hosts(4, 2);
    for (Device& d : four) d.worker = WorkerId{d.host + 1};
    Case c = gather(kRows, kAll, kColumns, four);
    c.placements = {rows(kRows, {four[0], four[1]})};
    CHECK(none(c, rows(kColumns, {four[2], four[3]}, 1)));
  }
  SUBCASE("where who has the blocks is a client, or is being drained") {
    Case c = gather(kRows, kAll, kColumns, own_workers(2));
    c.placements = {ir::Placement::whole(kRows.counts(), ir::Rule::constant(2, DeviceId{77}))};
    CHECK(none(c, columns));
    Case drained = gather(kRows, kAll, kColumns, own_workers(2));
    const Request request = drained.request();
    CHECK(!cut_for(request, 0, columns, std::span(drained.devices).first(1), 15).cut);
  }
  SUBCASE("where it would win next to nothing") {
    const ir::Grid small = grid({64, 64}, {8, 64}), across = grid({64, 64}, {64, 8});
    Case c = gather(small, ir::View::identity({64, 64}), across, own_workers(2));
    CHECK(none(c, rows(across, c.devices, 1)));
    CHECK(cut(c, rows(across, c.devices, 1), {.always = true}).cut);
  }
  SUBCASE("where there is no room for pieces") {
    Case c = gather(kRows, kAll, kColumns, own_workers(2));
    for (Device& d : c.devices) d.memory_bytes = 40 << 20, d.stays_bytes = 32 << 20;
    const Request request = c.request();
    const CutChoice choice = cut_for(request, 0, columns, c.devices, 15);
    CHECK(!choice.cut);
    CHECK(choice.by_memory);
  }
  SUBCASE("past the limits") {
    const ir::Grid fine = grid({1 << 20, 64}, {16, 64}), wide = grid({1 << 20, 64}, {1 << 20, 1});
    Case c = gather(fine, ir::View::identity(fine.shape()), wide, own_workers(2));
    const Request request = c.request();
    CHECK(!cut_for(request, 0, rows(wide, c.devices, 1), c.devices, 15).cut);
    Case dealt = gather(grid({2048, 2048}, {1, 2048}), kAll, kColumns, own_workers(2));
    dealt.placements = {rows(dealt.arrays[0].grid, dealt.devices, 0, true)};
    const Request other = dealt.request();
    CHECK(!cut_for(other, 0, columns, dealt.devices, 15).cut);
  }
}

TEST_CASE("in random worlds the same elements are read, and no more bytes move than said") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    const int rank = static_cast<int>(prng.between(1, 3));
    ir::Shape shape, block, to;
    for (int d = 0; d < rank; ++d) {
      shape.push_back(prng.between(1, 14));
      block.push_back(prng.between(1, shape.back()));
    }
    ir::View view = ir::View::identity(shape);
    for (int d = 0; d < view.rank(); ++d) {
      if (prng.chance(0.3))
        view = *view.slice(d, prng.between(0, view.shape[d] - 1), std::nullopt, prng.between(1, 3));
      if (prng.chance(0.2)) view = *view.slice(d, std::nullopt, std::nullopt, -1);
    }
    if (view.rank() > 1 && prng.chance(0.3)) view = *view.transpose();
    if (prng.chance(0.2)) view = *view.at(0, prng.between(0, view.shape[0] - 1));
    if (view.rank() == 0) continue;
    for (const std::int64_t n : view.shape) to.push_back(prng.between(1, n));
    const int n = static_cast<int>(prng.between(2, 5));
    const ir::Grid from = grid(shape, block), space = grid(view.shape, to);
    const bool windowed = prng.chance(0.4);
    Case c = windowed ? windows(from, prng.between(0, 3), prng.between(0, 3), own_workers(n))
                      : gather(from, view, space, own_workers(n));
    const auto some = [&](const ir::Grid& g) {
      std::vector<Device> devices = own_workers(n);
      if (prng.chance(0.5)) std::swap(devices.front(), devices.back());
      return prng.chance(0.5)
                 ? even(g, devices, prng.chance(0.3))
                 : rows(g, devices, static_cast<int>(prng.below(static_cast<std::uint64_t>(g.rank()))),
                        prng.chance(0.3));
    };
    c.placements = {some(from)};
    const ir::Placement reader = some(c.op.space);
    const std::size_t room = prng.chance(0.5) ? 15 : static_cast<std::size_t>(prng.below(4));
    const Outcome out = cut(c, reader, {.always = true}, room);
    if (!out.cut) continue;
    CHECK(out.moved.bytes < out.whole.bytes);
    CHECK(out.predicted_whole == out.whole.bytes);
    CHECK(out.reader.operands.size() <= room + 1);
  }
}

}  // namespace
}  // namespace tilewise::place
