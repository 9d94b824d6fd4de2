// What functions made of others record: shapes, dtypes, and how mistakes are told.
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

}  // namespace
}  // namespace tilewise::client
