// Memory of a program's own, in a cluster inside its process: kept where it lies where that can be, copied elsewhere, and let go once.
#include "clusters.h"

#include <tilewise/dlpack.h>

#include <doctest/doctest.h>

#include <chrono>
#include <numeric>
#include <thread>

namespace tilewise {
namespace {

// Values that say when nobody needs them any more.
struct Owned {
  std::shared_ptr<std::vector<double>> values;
  explicit Owned(std::size_t count) : values(std::make_shared<std::vector<double>>(count)) {
    std::iota(values->begin(), values->end(), 0.0);
  }
  bool let_go() const {
    for (int n = 0; n < 2000 && values.use_count() > 1; ++n)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return values.use_count() == 1;
  }
  Array in(const Session& session, const Shape& shape, MemoryOptions options = {}) const {
    options.owner = values;
    return session.from_memory(std::span<const double>(*values), shape, options);
  }
};

constexpr std::int64_t kRows = 400, kColumns = 50, kBytes = kRows * kColumns * 8;

bool reads(const Session& session, const Array& x, const std::vector<double>& expected) {
  (void)session;
  return (x * 2.0 + 1.0).get<double>() == expected;
}

std::vector<double> doubled(const std::vector<double>& from) {
  std::vector<double> out;
  for (const double v : from) out.push_back(v * 2 + 1);
  return out;
}

TEST_CASE("a program's memory becomes an array without a copy, where it can") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const bool mapped = form.options.map_peers;
    Owned owned(kRows * kColumns);
    Array x = owned.in(cluster.session, {kRows, kColumns}, {.block = {64, kColumns}});
    x.persist().wait();
    const Uploads up = cluster.session.uploads();
    CHECK(up.adopted == (mapped ? kBytes : 0));
    CHECK(up.in_place == (mapped ? kBytes : 0));
    CHECK(up.sent == (mapped ? 0 : kBytes));
    CHECK((owned.values.use_count() > 1) == mapped);
    if (mapped) {
      const AddressableBlocks blocks = cluster.session.addressable_blocks(x);
      REQUIRE(blocks.size() == 7);
      for (const AddressableBlock& block : blocks)
        CHECK(block.view<double>().data_handle() == owned.values->data() + block.box.lo[0] * kColumns);
    }
    for (int round = 0; round < 3; ++round) CHECK(reads(cluster.session, x, doubled(*owned.values)));
    CHECK(sum(matmul(x.T(), x)).item<double>() > 0);
    for (std::size_t i = 0; i < owned.values->size(); i += 997)
      CHECK((*owned.values)[i] == static_cast<double>(i));
    x = Array();
    CHECK(owned.let_go());
    CHECK(cluster.session.uploads().adopted == 0);
  }
}

TEST_CASE(
    "what cannot stay is copied, and let go at once: blocks that are no run, odd addresses, and what the "
    "program wants back") {
  TestCluster cluster(kForms[1]);
  Owned owned(kRows * kColumns);
  Array columns = owned.in(cluster.session, {kRows, kColumns}, {.block = {kRows, 10}});
  columns.persist().wait();
  CHECK(owned.let_go());
  CHECK(cluster.session.uploads().sent == kBytes);
  Array copied = owned.in(cluster.session, {kRows, kColumns}, {.block = {64, kColumns}, .adopt = false});
  copied.persist().wait();
  CHECK(owned.let_go());
  CHECK(cluster.session.uploads().in_place == kBytes);  // read there, once
  const auto odd = std::make_shared<std::vector<double>>(1001, 3.0);
  Array shifted = cluster.session.from_memory(std::span<const double>(odd->data() + 1, 1000), {1000},
                                              {.block = {100}, .owner = odd});
  shifted.persist().wait();
  CHECK(cluster.session.uploads().adopted == 0);
  CHECK(sum(shifted).item<double>() == 3000);
  CHECK(reads(cluster.session, columns, doubled(*owned.values)));
  CHECK(reads(cluster.session, copied, doubled(*owned.values)));
}

TEST_CASE("a failure, a cancellation and the end of the session let go of what was adopted") {
  TestCluster cluster(kForms[1]);
  const auto half_way = [&](const char* what, auto end) {
    INFO(what);
    Owned owned(kRows * kColumns);
    {
      Session session =
          make_session(cluster.cluster->connect("other"), {.timeout = std::chrono::seconds(60)});
      Array x = owned.in(session, {kRows, kColumns}, {.block = {16, kColumns}});
      end(session, x);
    }
    CHECK(owned.let_go());
  };
  half_way("never asked for", [](Session&, Array&) {});
  half_way("persisted, and the session ends", [](Session&, Array& x) { x.persist().wait(); });
  half_way("persisting, and the session ends", [](Session&, Array& x) { x.persist(); });
  half_way("cancelled", [](Session&, Array& x) {
    Future future = x.persist();
    future.cancel();
  });
  half_way("a task that fails", [](Session& session, Array& x) {
    Array y = take(x, session.full({1}, 1'000'000, {.dtype = DType::kInt64}), 0);
    CHECK_THROWS_AS(y.get<double>(), ArrayError);
  });
  CHECK(cluster.session.uploads().adopted == 0);
}

TEST_CASE("the end of the cluster lets go, after the kernels that read") {
  Owned owned(kRows * kColumns);
  {
    TestCluster cluster(kForms[1]);
    Array x = owned.in(cluster.session, {kRows, kColumns}, {.block = {16, kColumns}});
    x.persist();
    for (int i = 0; i < 20; ++i) cluster.session.compute({matmul(x.T(), x) + static_cast<double>(i)});
  }
  CHECK(owned.values.use_count() == 1);
}

TEST_CASE("pieces of several sessions stay where they lie, until none has the array") {
  TestCluster cluster(kForms[1]);
  Owned first(1000), second(1000);
  Array there;
  std::optional<Session> other = make_session(cluster.cluster->connect("other"));
  const auto piece = [](const Owned& owned, std::int64_t from) {
    return std::vector<LocalBlock<double>>{{{from}, {1000}, *owned.values, owned.values}};
  };
  std::thread thread(
      [&] { there = other->from_local_blocks("both", {2000}, piece(second, 1000), {.processes = 2}); });
  Array here = cluster.session.from_local_blocks("both", {2000}, piece(first, 0), {.processes = 2});
  thread.join();
  here.persist().wait();
  // The other session hears for itself that its piece has stayed where it is, sooner or later than this one that all is there.
  for (int i = 0; i < 10'000 && cluster.session.uploads().adopted < 16'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(cluster.session.uploads().adopted == 16'000);
  there = Array();
  other.reset();  // whose memory it is half of
  CHECK(sum(here).item<double>() == 999'000);
  here = Array();
  CHECK(first.let_go());
  CHECK(second.let_go());
}

TEST_CASE("tensors of other libraries in, and blocks out, without a copy") {
  TestCluster cluster(kForms[0]);
  dlpack::ManagedTensorVersioned* tensor = to_dlpack(std::vector<double>(6000, 1.5), {100, 60});
  const void* const data = tensor->dl_tensor.data;
  Array x = from_dlpack(cluster.session, tensor, {.block = {50, 60}});
  x.persist().wait();
  CHECK(cluster.session.uploads().adopted == 48'000);
  AddressableBlocks blocks = cluster.session.addressable_blocks(x);
  dlpack::ManagedTensorVersioned* out = to_dlpack(blocks, 1);
  blocks = {};
  x = Array();
  CHECK(out->dl_tensor.data == static_cast<const double*>(data) + 3000);
  CHECK(out->flags == dlpack::kReadOnly);
  CHECK(out->dl_tensor.shape[0] == 50);
  CHECK(static_cast<const double*>(out->dl_tensor.data)[2999] == 1.5);  // on loan, whatever became of x
  CHECK_THROWS_AS(to_dlpack(blocks, 0), ArrayError);
  out->deleter(out);
}

}  // namespace
}  // namespace tilewise
