#include <tilewise/ir/geometry_cache.h>

#include <doctest/doctest.h>

using namespace tilewise;
using namespace tilewise::ir;

namespace {

const Grid kRow = *Grid::uniform({8}, {2});

// Point p of a row reads blocks p - 1 and p of the row before.
Op stencil(std::uint64_t array, const std::string& params) {
  ExplicitMap map{{0}, {}};
  for (std::int64_t p = 0; p < kRow.block_count(); ++p) {
    if (p > 0) map.blocks.push_back(p - 1);
    map.blocks.push_back(p);
    map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
  }
  Op op;
  op.kind = OpKind::kCall;
  op.operands = {{array, View::identity({8})}};
  op.outputs = {{array + 1, DType::kInt64, kRow}};
  op.space = kRow;
  CallAttrs attrs;
  attrs.kernel = "row";
  attrs.params = params;
  attrs.explicit_maps = {map};
  op.attrs = attrs;
  op.label = "row " + params;
  return op;
}
const std::vector<SourceArray> kSources{{DType::kInt64, kRow}};

}  // namespace

TEST_CASE("ops that differ in names, params and labels share their geometry") {
  GeometryCache cache;
  const auto first = *cache.of(stencil(1, "1"), kSources);
  CHECK(*cache.of(stencil(2, "2"), kSources) == first);
  std::vector<Read> reads;
  first->reads({3}, 0, reads);
  REQUIRE(reads.size() == 2);
  CHECK(reads[1].block == 3);
}

TEST_CASE("whatever a geometry follows from tells ops apart") {
  GeometryCache cache;
  const auto first = *cache.of(stencil(1, ""), kSources);
  Op other = stencil(1, "");
  std::get<CallAttrs>(other.attrs).explicit_maps[0].blocks.back() = 0;
  CHECK(*cache.of(other, kSources) != first);
  other = stencil(1, "");
  other.outputs[0].dtype = DType::kFloat32;
  CHECK(*cache.of(other, kSources) != first);
  other = stencil(1, "");
  std::get<CallAttrs>(other.attrs).flops_per_point = 5;
  CHECK(*cache.of(other, kSources) != first);
  CHECK(*cache.of(stencil(1, ""), {{DType::kFloat64, kRow}}) != first);
  CHECK(*cache.of(stencil(1, ""), kSources) == first);
}

TEST_CASE("what is wrong with an op is said of it although an equal one was right") {
  GeometryCache cache;
  CHECK(cache.of(stencil(1, ""), kSources).has_value());
  CHECK(cache.of(stencil(1, std::string(limits::kMaxParamBytes + 1, 'p')), kSources).error().code ==
        Errc::kLimitExceeded);
  Op op = stencil(1, "");
  op.label = std::string(limits::kMaxNameBytes + 1, 'x');
  CHECK(cache.of(op, kSources).error().code == Errc::kLimitExceeded);
  op = stencil(1, "");
  std::get<CallAttrs>(op.attrs).explicit_maps[0].blocks.back() = 4;
  CHECK(cache.of(op, kSources).error().code == Errc::kOutOfRange);
}

TEST_CASE("the oldest go, and who has one keeps it") {
  GeometryCache cache;
  const auto first = *cache.of(stencil(1, ""), kSources);
  for (int i = 1; i <= 100; ++i) {
    Op other = stencil(1, "");
    std::get<CallAttrs>(other.attrs).flops_per_point = i;
    REQUIRE(cache.of(other, kSources).has_value());
  }
  CHECK(first->point_count() == 4);
  CHECK(*cache.of(stencil(1, ""), kSources) != first);
}
