#include <tilewise/dlpack.h>

#include "fake_endpoint.h"

#include <cstddef>
#include <numeric>

namespace tilewise::client {
namespace {

// The specification's layout on 64-bit machines.
static_assert(sizeof(dlpack::Tensor) == 48 && offsetof(dlpack::Tensor, device) == 8);
static_assert(offsetof(dlpack::Tensor, ndim) == 16 && offsetof(dlpack::Tensor, dtype) == 20);
static_assert(offsetof(dlpack::Tensor, shape) == 24 && offsetof(dlpack::Tensor, strides) == 32);
static_assert(offsetof(dlpack::Tensor, byte_offset) == 40);
static_assert(sizeof(dlpack::ManagedTensor) == 64 && offsetof(dlpack::ManagedTensor, deleter) == 56);
static_assert(sizeof(dlpack::ManagedTensorVersioned) == 80);
static_assert(offsetof(dlpack::ManagedTensorVersioned, manager_ctx) == 8);
static_assert(offsetof(dlpack::ManagedTensorVersioned, flags) == 24);
static_assert(offsetof(dlpack::ManagedTensorVersioned, dl_tensor) == 32);

// Somebody else's tensor.
struct Foreign {
  alignas(64) double values[24];
  std::vector<std::int64_t> shape{4, 6}, strides{6, 1};
  int deleted = 0;
  dlpack::ManagedTensorVersioned tensor;
  dlpack::ManagedTensor old;

  Foreign() {
    std::iota(std::begin(values), std::end(values), 0.0);
    tensor.manager_ctx = old.manager_ctx = this;
    tensor.deleter = [](dlpack::ManagedTensorVersioned* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
    old.deleter = [](dlpack::ManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    set();
  }
  void set() {
    dlpack::Tensor& t = tensor.dl_tensor;
    t.data = values;
    t.ndim = static_cast<std::int32_t>(shape.size());
    t.shape = shape.data();
    t.strides = strides.data();
    old.dl_tensor = t;
  }
};

// What a client offers of one block, after the array was submitted.
std::vector<double> uploaded(World& world, Array x) {
  x.persist();
  const msg::Submit submit = world.fake.last();
  REQUIRE(submit.ops.size() == 2);
  world.fake.reply(submit);
  msg::PeerBatch batch;
  batch.subscribes.push_back(
      {{FakeEndpoint::id_of(submit.ops[0].outputs[0].array), 0}, OpId(5), kSelf, kDevice});
  world.fake.up.on_peer(kWorker, batch);
  const msg::PeerBatch out = world.fake.take_batches();
  REQUIRE(out.offers.size() == 1);
  REQUIRE(out.offers[0].inlined);
  std::vector<double> got(out.offers[0].data.size() / sizeof(double));
  std::memcpy(got.data(), out.offers[0].data.data(), out.offers[0].data.size());
  world.fake.done(submit);
  return got;
}

TEST_CASE("a tensor's values become an array; its deleter is called when they are there") {
  World world;
  Foreign from;
  SUBCASE("versioned") {
    CHECK(uploaded(world, from_dlpack(world.session, &from.tensor)) ==
          std::vector<double>(from.values, from.values + 24));
  }
  SUBCASE("not versioned") {
    CHECK(uploaded(world, from_dlpack(world.session, &from.old)) ==
          std::vector<double>(from.values, from.values + 24));
  }
  SUBCASE("without strides, from an offset on") {
    from.shape = {2, 6};
    from.set();
    from.tensor.dl_tensor.strides = nullptr;
    from.tensor.dl_tensor.byte_offset = 12 * sizeof(double);
    CHECK(uploaded(world, from_dlpack(world.session, &from.tensor)) ==
          std::vector<double>(from.values + 12, from.values + 24));
  }
  CHECK(from.deleted == 1);
}

TEST_CASE("nothing that is there yet is let go") {
  World world;
  Foreign from;
  Array x = from_dlpack(world.session, &from.tensor);
  CHECK(from.deleted == 0);
  x = Array();
  CHECK(from.deleted == 1);  // nobody asked for it
}

TEST_CASE("any strides are packed at the call") {
  World world;
  Foreign from;
  from.shape = {6, 4}, from.strides = {1, 6};
  from.set();
  Array x = from_dlpack(world.session, &from.tensor);
  CHECK(from.deleted == 1);
  const std::vector<double> got = uploaded(world, x);
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 4; ++j) CHECK(got[static_cast<std::size_t>(i * 4 + j)] == i + 6 * j);

  Foreign backwards;
  backwards.shape = {24}, backwards.strides = {-1};
  backwards.set();
  backwards.tensor.dl_tensor.byte_offset = 23 * sizeof(double);
  const std::vector<double> turned = uploaded(world, from_dlpack(world.session, &backwards.tensor));
  CHECK(turned.front() == 23);
  CHECK(turned.back() == 0);
}

TEST_CASE("what cannot be taken is named, and let go") {
  World world;
  const auto refused = [&](auto change, Errc code, std::string_view text) {
    Foreign from;
    change(from.tensor);
    const ArrayError e = thrown([&] { from_dlpack(world.session, &from.tensor); });
    CHECK(e.code() == code);
    CHECK_MESSAGE(says(e, text), e.what());
    CHECK(from.deleted == 1);
  };
  refused([](auto& t) { t.dl_tensor.device.device_type = dlpack::kCuda; }, Errc::kUnsupported,
          "device type 2");
  refused([](auto& t) { t.dl_tensor.dtype = {dlpack::kFloat, 128, 1}; }, Errc::kUnsupported, "128 bits");
  refused([](auto& t) { t.dl_tensor.dtype.lanes = 4; }, Errc::kUnsupported, "4 lanes");
  refused([](auto& t) { t.version.major = 2; }, Errc::kUnsupported, "DLPack 2.1");
  refused([](auto& t) { t.dl_tensor.ndim = 9; }, Errc::kLimitExceeded, "9 dimensions");
  refused([](auto& t) { t.dl_tensor.ndim = -1; }, Errc::kInvalidArgument, "-1 dimensions");
  refused([](auto& t) { t.dl_tensor.shape[0] = -4; }, Errc::kInvalidArgument, "extent of -4");
  refused([](auto& t) { t.dl_tensor.data = nullptr; }, Errc::kInvalidArgument, "without data");
  const ArrayError none =
      thrown([&] { from_dlpack(world.session, static_cast<dlpack::ManagedTensor*>(nullptr)); });
  CHECK(none.code() == Errc::kInvalidArgument);
}

TEST_CASE("every dtype has a type there, and comes back") {
  for (int d = 0; d < ir::kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    CHECK(dlpack::dtype_of(dlpack::type_of(dtype)) == dtype);
  }
  CHECK(dlpack::type_of(DType::kBFloat16).code == dlpack::kBfloat);
  CHECK(dlpack::type_of(DType::kComplex128).bits == 128);
}

TEST_CASE("a result is handed over without a copy, and goes with its deleter") {
  std::vector<float> values(6, 2.5f);
  const float* const at = values.data();
  dlpack::ManagedTensorVersioned* t = to_dlpack(std::move(values), {2, 3});
  CHECK(t->version.major == 1);
  CHECK(t->flags == 0);
  CHECK(t->dl_tensor.data == at);
  CHECK(t->dl_tensor.ndim == 2);
  CHECK(t->dl_tensor.shape[1] == 3);
  CHECK(t->dl_tensor.strides[0] == 3);
  CHECK(t->dl_tensor.dtype.code == dlpack::kFloat);
  CHECK(t->dl_tensor.dtype.bits == 32);
  t->deleter(t);  // an address sanitizer sees what is not let go, or twice

  dlpack::ManagedTensor* bools = to_dlpack_unversioned(std::vector<bool>{true, false, true}, {3});
  CHECK(static_cast<const std::uint8_t*>(bools->dl_tensor.data)[2] == 1);
  CHECK(bools->dl_tensor.dtype.code == dlpack::kBool);
  bools->deleter(bools);
  CHECK(thrown([] { to_dlpack(std::vector<float>(5), {2, 3}); }).code() == Errc::kShapeMismatch);
}

}  // namespace
}  // namespace tilewise::client
