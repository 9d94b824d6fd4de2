// What functions made of others record: shapes, dtypes, and how mistakes are told.
#include <algorithm>
#include <cmath>
#include <functional>

#include "fake_endpoint.h"

namespace tilewise::client {
namespace {

void check_refused(const std::function<void()>& call, Errc code, std::initializer_list<const char*> texts) {
  const ArrayError e = thrown(call);
  CHECK_MESSAGE(e.code() == code, std::string(e.what()));
  for (const char* text : texts) CHECK_MESSAGE(says(e, text), std::string(e.what()));
}

TEST_CASE("sums of exponentials and classes: shapes and dtypes") {
  World world;
  const auto of = [&](DType t) { return world.session.zeros({3, 4, 5}, {.dtype = t}); };
  const Array x = of(DType::kFloat64);
  CHECK(logsumexp(x).shape() == Shape{});
  CHECK(logsumexp(x, {0, -1}).shape() == Shape{4});
  CHECK(logsumexp(x, {0, -1}, true).shape() == Shape{1, 4, 1});
  CHECK(logsumexp(x, Axes(std::vector<int>{})).shape() == x.shape());
  CHECK(logsumexp(x.slice(1, 0, 0), 1).shape() == Shape{3, 5});
  CHECK(softmax(x).shape() == x.shape());
  CHECK(softmax(x.slice(2, 0, 0)).shape() == Shape{3, 4, 0});
  CHECK(log_softmax(x, {0, 1}).shape() == x.shape());
  for (const DType t : {DType::kBool, DType::kInt8, DType::kUInt64, DType::kFloat64})
    CHECK(softmax(of(t)).dtype() == DType::kFloat64);
  for (const DType t : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    CHECK(logsumexp(of(t), 0).dtype() == t);
    CHECK(log_softmax(of(t)).dtype() == t);
  }
  const Array classes = of(DType::kInt32);
  CHECK(one_hot(classes, 7).shape() == Shape{3, 4, 5, 7});
  CHECK(one_hot(classes, 7).dtype() == DType::kFloat64);
  CHECK(one_hot(classes, 7, DType::kBool, 0).shape() == Shape{7, 3, 4, 5});
  CHECK(one_hot(classes, 0, DType::kInt8, -4).shape() == Shape{0, 3, 4, 5});
  CHECK(one_hot(classes, 7, DType::kComplex64, 1).dtype() == DType::kComplex64);
}

TEST_CASE("sums of exponentials and classes: mistakes") {
  World world;
  const Array x = world.session.zeros({3, 4}), z = x.astype(DType::kComplex64), i = x.astype(DType::kInt64);
  check_refused([&] { logsumexp(z); }, Errc::kInvalidArgument, {"logsumexp of complex", "(3, 4)"});
  check_refused([&] { softmax(z); }, Errc::kInvalidArgument, {"softmax of complex"});
  check_refused([&] { log_softmax(z); }, Errc::kInvalidArgument, {"log_softmax of complex"});
  check_refused([&] { logsumexp(x, 2); }, Errc::kOutOfRange, {"logsumexp: axis 2", "(3, 4)"});
  check_refused([&] { softmax(x, {1, -1}); }, Errc::kInvalidArgument, {"softmax: axis -1 twice"});
  check_refused([&] { one_hot(x, 3); }, Errc::kInvalidArgument, {"one_hot: indices of dtype float64"});
  check_refused([&] { one_hot(i, -1); }, Errc::kInvalidArgument, {"-1 classes"});
  check_refused([&] { one_hot(i, 3, DType::kFloat32, 3); }, Errc::kOutOfRange, {"one_hot: axis 3", "(3, 4)"});
}

TEST_CASE("sums of what belongs together: shapes, dtypes, and what is recorded") {
  World world;
  const Session& s = world.session;
  const Array x = s.zeros({30, 4}, {.dtype = DType::kFloat32, .block = {10, 3}}),
              i = s.arange(0, 30, 1, {.block = {7}});
  CHECK(put_add(x, i, s.zeros({30, 1}), 0).shape() == Shape{30, 4});
  CHECK(put_add(x, i, s.zeros({30, 1}), 0).dtype() == DType::kFloat32);
  CHECK(put_add(x, i, s.zeros({}), 0).grid() == x.grid());
  CHECK(segment_sum(x, i, 6).shape() == Shape{6, 4});
  CHECK(segment_sum(x, i, 6).dtype() == DType::kFloat32);
  CHECK(segment_sum(x, i, 6).grid().dim(1) == x.grid().dim(1));
  CHECK(segment_sum(x.astype(DType::kInt16), i, 6).dtype() == DType::kInt16);
  CHECK(segment_sum(x.astype(DType::kBFloat16), i, 6).dtype() == DType::kBFloat16);
  // Integers of many blocks are summed a block at a time, without a sweep of all of them.
  const auto sweeps = [&](const Array& a) {
    world.session.compute({a});
    const std::vector<ir::Op>& ops = world.fake.last().ops;
    return std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) {
      if (op.kind != ir::OpKind::kCall) return false;
      const auto& maps = op.get<ir::CallAttrs>().maps;
      return maps.at(1).at(0).kind == ir::DimMap::Kind::kStep;
    });
  };
  CHECK(sweeps(segment_sum(x, i, 6)) == 1);
  CHECK(sweeps(segment_sum(x.astype(DType::kInt64), i, 6)) == 0);
  CHECK(sweeps(segment_sum(x.astype(DType::kInt64), i, 20)) == 1);
}

TEST_CASE("sums of what belongs together: mistakes") {
  World world;
  const Session& s = world.session;
  const Array x = s.zeros({3, 4}), i = s.arange(3), f = s.zeros({3});
  check_refused([&] { put_add(x > 0.0, i, f, 0); }, Errc::kInvalidArgument, {"put_add of bool", "(3, 4)"});
  check_refused([&] { put_add(x, i, f); }, Errc::kInvalidArgument, {"put_add wants an axis", "(3, 4)"});
  check_refused([&] { put_add(x, f, f, 0); }, Errc::kInvalidArgument, {"put_add: indices of dtype float64"});
  check_refused([&] { put_add(x, i.expand_dims(0), f, 0); }, Errc::kShapeMismatch,
                {"put_add wants a vector"});
  check_refused([&] { put_add(x, i, f, 2); }, Errc::kOutOfRange, {"put_add: axis 2"});
  check_refused([&] { put_add(x, i, f, 0); }, Errc::kShapeMismatch, {"(3,)", "(3, 4)"});
  check_refused([&] { add_at(x > 0.0, {i}, x); }, Errc::kInvalidArgument, {"add_at of bool"});
  check_refused([&] { add_at(x, {i, i, i}, 1.0); }, Errc::kOutOfRange, {"3 axes"});
  check_refused([&] { add_at(x, {f}, 1.0); }, Errc::kInvalidArgument, {"float64"});
  check_refused([&] { segment_sum(x, f, 2); }, Errc::kInvalidArgument, {"segment_sum: ids of dtype float64"});
  check_refused([&] { segment_sum(x, s.arange(4), 2); }, Errc::kShapeMismatch, {"(4,)", "(3, 4)"});
  check_refused([&] { segment_sum(s.zeros({}), i, 2); }, Errc::kShapeMismatch, {"segment_sum", "()"});
  check_refused([&] { segment_sum(x, i.expand_dims(1), 2); }, Errc::kShapeMismatch,
                {"vector of ids", "(3, 1)"});
  check_refused([&] { segment_sum(x, i, -2); }, Errc::kInvalidArgument, {"segments -2"});
  check_refused([&] { segment_sum(x, i, INT64_MAX); }, Errc::kLimitExceeded, {"9223372036854775807"});
  check_refused([&] { segment_sum(x > 0.0, i, 2); }, Errc::kInvalidArgument, {"segment_sum of bool"});
  check_refused([&] { bincount(f); }, Errc::kInvalidArgument, {"bincount: integers of dtype float64"});
  check_refused([&] { bincount(i.expand_dims(0)); }, Errc::kShapeMismatch,
                {"bincount wants a vector", "(1, 3)"});
  check_refused([&] { bincount(i, x); }, Errc::kShapeMismatch, {"weights of shape (3, 4)", "(3,)"});
  check_refused([&] { bincount(i, f.astype(DType::kComplex64)); }, Errc::kInvalidArgument,
                {"weights", "complex64"});
  check_refused([&] { bincount(i, {}, -1); }, Errc::kInvalidArgument, {"minlength -1"});
}

TEST_CASE("quantiles, histograms and what is not NaN: shapes and dtypes") {
  World world;
  const auto of = [&](DType t) { return world.session.zeros({3, 4, 5}, {.dtype = t}); };
  const Array x = of(DType::kFloat64), f = of(DType::kFloat32), i = of(DType::kInt16);
  CHECK(quantile(x, 0.5).shape() == Shape{});
  CHECK(quantile(x, 0.5, {0, 2}).shape() == Shape{4});
  CHECK(quantile(x, 0.5, {2, 0}, "linear", true).shape() == Shape{1, 4, 1});
  CHECK(quantile(x, {0.5, 0.1}, 1, "lower", true).shape() == Shape{2, 3, 1, 5});
  CHECK(percentile(x, {5.0, 50.0, 95.0}).shape() == Shape{3});
  CHECK(median(x, -1).shape() == Shape{3, 4});
  CHECK(median(x, {}, true).shape() == Shape{1, 1, 1});
  for (const DType t : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    CHECK(quantile(of(t), 0.4, 0).dtype() == t);
    CHECK(median(of(t)).dtype() == t);
    CHECK(nanmean(of(t)).dtype() == t);
    CHECK(nanmax(of(t)).dtype() == t);
  }
  CHECK(quantile(i, 0.4, 0).dtype() == DType::kFloat64);
  CHECK(quantile(i, 0.0, 0, "midpoint").dtype() == DType::kFloat64);
  for (const char* method : {"lower", "higher", "nearest"})
    CHECK(quantile(i, 0.4, 0, method).dtype() == DType::kInt16);
  CHECK(median(i).dtype() == DType::kFloat64);
  CHECK(nanmin(i).dtype() == DType::kInt16);
  CHECK(nansum(i).dtype() == DType::kInt64);
  CHECK(nanmean(i).dtype() == DType::kFloat64);
  CHECK(nanmean(of(DType::kComplex64)).dtype() == DType::kComplex64);
  const Histogram h = histogram(f, 7, {.range = {{0, 1}}});
  CHECK(h.counts.shape() == Shape{7});
  CHECK(h.edges.shape() == Shape{8});
  CHECK(h.edges.dtype() == DType::kFloat32);
  CHECK(histogram(i, 7, {.range = {{0, 1}}, .weights = f, .density = true}).counts.dtype() ==
        DType::kFloat64);
  CHECK(histogram(i, std::vector<double>{1, 2}, {.weights = f}).counts.dtype() == DType::kFloat32);
  CHECK(digitize(i, f.at(0, 0).at(0, 0)).dtype() == DType::kInt64);
}

TEST_CASE("quantiles and histograms: mistakes") {
  World world;
  const Session& s = world.session;
  const Array x = s.zeros({3, 4}), z = x.astype(DType::kComplex64), v = s.zeros({3});
  check_refused([&] { quantile(x, 1.5); }, Errc::kOutOfRange, {"quantile 1.5", "[0, 1]", "(3, 4)"});
  check_refused([&] { quantile(x, std::nan("")); }, Errc::kOutOfRange, {"quantile nan"});
  check_refused([&] { percentile(x, {50.0, -1.0}); }, Errc::kOutOfRange, {"percentile -1", "[0, 100]"});
  check_refused([&] { quantile(x, std::vector<double>{}); }, Errc::kInvalidArgument, {"at no place"});
  check_refused([&] { quantile(x, 0.5, 0, "hazen"); }, Errc::kInvalidArgument, {"'hazen'", "midpoint"});
  check_refused([&] { quantile(x, 0.5, 2); }, Errc::kOutOfRange, {"quantile: axis 2"});
  check_refused([&] { median(z); }, Errc::kInvalidArgument, {"median of dtype complex64"});
  check_refused([&] { quantile(x > 0.0, 0.5); }, Errc::kInvalidArgument, {"quantile of dtype bool"});
  check_refused([&] { median(x.slice(0, 0, 0)); }, Errc::kInvalidArgument, {"median of nothing", "(0, 4)"});
  check_refused([&] { histogram(x, 0); }, Errc::kInvalidArgument, {"0 bins"});
  check_refused([&] { histogram(z, 3); }, Errc::kInvalidArgument, {"complex"});
  check_refused([&] { histogram(x, 3, {.range = {{2, 1}}}); }, Errc::kInvalidArgument, {"from 2", "to 1"});
  check_refused(
      [&] {
        histogram(x, 3, {.range = {{0, 1}}, .weights = v});
      },
      Errc::kShapeMismatch, {"weights of shape (3,)", "(3, 4)"});
  check_refused([&] { histogram(x, {0, 2, 1}); }, Errc::kInvalidArgument, {"edge 2"});
  check_refused([&] { histogram(x, std::vector<double>{}); }, Errc::kInvalidArgument, {"no edges"});
  check_refused([&] { histogram(x, x); }, Errc::kShapeMismatch, {"vector of edges"});
  check_refused(
      [&] {
        histogram(x, {0, 1}, {.range = {{0, 1}}});
      },
      Errc::kInvalidArgument, {"edges and a range"});
  check_refused([&] { digitize(x, x); }, Errc::kShapeMismatch, {"digitize wants a vector"});
  check_refused([&] { digitize(z, v); }, Errc::kInvalidArgument, {"digitize: complex"});
}

TEST_CASE("einsum: shapes, dtypes, views and the order of products") {
  World world;
  const Session& s = world.session;
  const Array a = s.zeros({3, 4}), b = s.zeros({4, 5}, {.dtype = DType::kFloat32}), v = s.zeros({4});
  CHECK(einsum("ij,jk->ik", {a, b}).shape() == Shape{3, 5});
  CHECK(einsum("ij,jk", {a, b}).dtype() == DType::kFloat64);
  CHECK(einsum(" b a , c b ", {b, a}).shape() == Shape{5, 3});  // in the order of the alphabet
  CHECK(einsum("ij->ji", {a}).shape() == Shape{4, 3});
  CHECK(einsum("ij->", {a}).shape() == Shape{});
  CHECK(einsum("ij", {a.astype(DType::kInt8)}).dtype() == DType::kInt8);
  CHECK(einsum("ij->i", {a.astype(DType::kInt8)}).dtype() == DType::kInt8);
  CHECK(einsum("ij,j->i", {a.astype(DType::kInt8), v.astype(DType::kUInt8)}).dtype() == DType::kInt16);
  CHECK(einsum("...j,j...", {a, a.T()}).shape() == Shape{3});
  CHECK(einsum(",", {a.at(0, 0).at(0, 0), v.at(0, 0)}).shape() == Shape{});
  CHECK(einsum("ii->i", {s.zeros({5, 5})}).shape() == Shape{5});
  CHECK(einsum("a...->...a", {s.zeros({2, 3, 4})}).shape() == Shape{3, 4, 2});
  CHECK(einsum("ijk,k->...ij", {s.zeros({2, 3, 4}), v}).shape() == Shape{2, 3});
  const std::size_t before = world.session.state()->graph_size();
  CHECK(einsum("ij->ji", {a}).shape() == Shape{4, 3});
  CHECK(world.session.state()->graph_size() == before);
  // A vector meets the last of three matrices first: no product of two matrices is made.
  const Array m = s.zeros({40, 40}), w = s.zeros({40});
  world.session.compute({einsum("ij,jk,kl,l->i", {m, m, m, w})});
  for (const ir::Op& op : world.fake.last().ops)
    if (op.kind == ir::OpKind::kMatmul) CHECK(op.outputs[0].grid.shape().back() == 1);
}

TEST_CASE("einsum: mistakes name the term") {
  World world;
  const Session& s = world.session;
  const Array a = s.zeros({3, 4}), b = s.zeros({5, 2});
  const auto refused = [&](std::string_view subscripts, const std::vector<Array>& operands, Errc code,
                           std::initializer_list<const char*> texts) {
    check_refused([&] { einsum(subscripts, operands); }, code, texts);
  };
  refused("ij", {}, Errc::kInvalidArgument, {"no operands"});
  refused("ij,jk", {a}, Errc::kInvalidArgument, {"einsum 'ij,jk'", "2 terms for 1 operands"});
  refused("ij,j2->i", {a, b}, Errc::kInvalidArgument, {"term 1, 'j2',", "'2'", "no letter"});
  refused("ij..,jk", {a, b}, Errc::kInvalidArgument, {"term 0, 'ij..',", "'.'"});
  refused("......,jk", {a, b}, Errc::kInvalidArgument, {"term 0, '......',"});
  refused("i-j,jk", {a, b}, Errc::kInvalidArgument, {"'-'"});
  refused("ij,jk->i->k", {a, b}, Errc::kInvalidArgument, {"the result, 'i->k',", "'-'"});
  refused("ij,jk->im", {a, b}, Errc::kInvalidArgument, {"the result, 'im',", "'m', which no term has"});
  refused("ij->ii", {a}, Errc::kInvalidArgument, {"the result, 'ii',", "'i' twice"});
  refused("i...->i", {a}, Errc::kInvalidArgument, {"the result, 'i',", "leaves out"});
  refused("ij,jkl", {a, b}, Errc::kShapeMismatch, {"term 1, 'jkl',", "3 axes", "(5, 2)"});
  refused("ij...k", {a}, Errc::kShapeMismatch, {"term 0, 'ij...k',", "3 axes"});
  refused("ij,jk", {a, b}, Errc::kShapeMismatch,
          {"term 1, 'jk',", "5 elements along 'j', beside 4", "(5, 2)"});
  refused("...j,...j", {a, b.T()}, Errc::kShapeMismatch,
          {"term 1, '...j',", "2 elements along '...', beside 3"});
  refused("ii", {a}, Errc::kShapeMismatch, {"term 0, 'ii',", "4 elements along 'i', beside 3"});
  refused("ii", {s.zeros({1, 4})}, Errc::kShapeMismatch, {"4 elements along 'i', beside 1"});
  refused("ij,kl", {a, b > 0.0}, Errc::kInvalidArgument, {"operand 1 is of bool"});
  const Array cube = s.zeros({2, 2, 2, 2, 2});
  refused("abcde,fghij", {cube, cube}, Errc::kLimitExceeded, {"8 axes"});
}

}  // namespace
}  // namespace tilewise::client
