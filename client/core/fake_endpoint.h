// A scheduler and workers made of paper: it runs nothing, checks every message a client sends, and lets a test answer.
#pragma once
#include <doctest/doctest.h>
#include <tilewise/client/endpoint.h>
#include <tilewise/ir/verify.h>
#include <tilewise/msg/program.h>
#include <tilewise/tilewise.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace tilewise::client {

constexpr DeviceId kSelf{7};
constexpr WorkerId kWorker{3};
constexpr DeviceId kDevice{31};

class FakeEndpoint final : public Endpoint {
 public:
  struct Receive {
    DeviceId from;
    std::byte* to = nullptr;
    std::int64_t bytes = 0;
    std::function<void(Status)> done;
  };
  struct Transmit {
    DeviceId to;
    std::uint64_t transfer = 0;
    std::vector<std::byte> bytes;
    std::function<void(Status)> done;
  };

  FakeEndpoint() { welcome_ = {1, WorkerId(9), SessionId(2), {kSelf}, {}}; }
  ~FakeEndpoint() override {
    if (on_destroy) on_destroy();
  }

  const msg::Welcome& welcome() const override { return welcome_; }
  void start(EndpointCallbacks callbacks) override { up = std::move(callbacks); }
  void stop() override {
    if (on_stop) on_stop();
  }
  void send(msg::Message message) override {
    const std::scoped_lock lock(mutex_);
    if (auto* submit = std::get_if<msg::Submit>(&message)) {
      expand(*submit);
      check(*submit);
    }
    if (const auto* announce = std::get_if<msg::Announce>(&message)) {
      CHECK(announce->request == ++requests_);
      announced.notify_all();
    }
    if (const auto* release = std::get_if<msg::ReleaseArrays>(&message)) {
      for (const std::uint64_t number : release->arrays) CHECK(held.erase(number) == 1);
    }
    sent.push_back(std::move(message));
  }
  void send(WorkerId peer, msg::PeerBatch batch) override {
    CHECK(!batch.empty());
    const std::scoped_lock lock(mutex_);
    batches.emplace_back(peer, std::move(batch));
  }
  const std::byte* map(DeviceId device, std::uint32_t, std::int64_t offset, std::int64_t bytes) override {
    CHECK(device == kDevice);
    if (!can_map) return nullptr;
    REQUIRE(offset + bytes <= static_cast<std::int64_t>(slab.size()));
    return slab.data() + offset;
  }
  std::shared_ptr<const void> pin(DeviceId, std::uint32_t) override { return pinned; }
  std::optional<WorkerId> fenced_by() const override { return fence; }
  std::optional<Place> lend(const std::shared_ptr<const void>& owner, std::span<const std::byte>,
                            bool adoptable) override {
    if (!can_lend) return std::nullopt;
    lent[++next_lent] = {owner, adoptable};
    return Place{next_lent, 0};
  }
  bool reads_in_place(WorkerId) const override { return can_lend; }
  void withdraw(std::uint32_t slab) override { CHECK(lent.erase(slab) == 1); }
  void receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
               std::function<void(Status)> done) override {
    receives[transfer] = {from, to, bytes, std::move(done)};
  }
  void disarm(WorkerId from, std::uint64_t transfer) override { disarmed.emplace_back(from, transfer); }
  void transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                std::function<void(Status)> done) override {
    transmits.push_back({to, transfer, {from, from + bytes}, std::move(done)});
  }

  // ---- answers ----

  template <class M> std::vector<M> all() {
    const std::scoped_lock lock(mutex_);
    std::vector<M> out;
    for (const msg::Message& m : sent) {
      if (const M* x = std::get_if<M>(&m)) out.push_back(*x);
    }
    return out;
  }
  msg::Submit last() {
    const auto submits = all<msg::Submit>();
    REQUIRE(!submits.empty());
    return submits.back();
  }
  OpId op{55};  // that offers name, and replies
  // The id that the replies below give an array of the session.
  static ArrayId id_of(std::uint64_t number) { return ArrayId(1000 + number); }
  void reply(const msg::Submit& submit) {
    msg::SubmitReply reply{submit.request, {}, GraphId(submit.request), {}, {}};
    for (const ir::Op& op : submit.ops) {
      if (op.kind == ir::OpKind::kFetch)
        reply.arrays.emplace_back(op.operands[0].array, id_of(op.operands[0].array));
      if (op.kind == ir::OpKind::kProvide)
        reply.arrays.emplace_back(op.outputs[0].array, id_of(op.outputs[0].array));
    }
    reply.last_op = op;
    up.on_message(reply);
  }
  void refuse(const msg::Submit& submit, msg::Outcome why) {
    up.on_message(msg::SubmitReply{submit.request, std::move(why), {}, {}, {}});
  }
  // Waits for the announcement, which a thread of its own may be about to send.
  msg::Announce announcement(std::size_t count = 1) {
    std::unique_lock lock(mutex_);
    const auto announcements = [&] {
      std::vector<msg::Announce> out;
      for (const msg::Message& m : sent) {
        if (const auto* x = std::get_if<msg::Announce>(&m)) out.push_back(*x);
      }
      return out;
    };
    announced.wait(lock, [&] { return announcements().size() >= count; });
    return announcements()[count - 1];
  }
  void reply(const msg::Announce& m, const ir::Grid& grid) {
    {
      const std::scoped_lock lock(mutex_);
      held.insert(m.array);
      arrays_[m.array] = {m.dtype, grid};
    }
    up.on_message(msg::SubmitReply{m.request, {}, GraphId(m.request), {{m.array, id_of(m.array)}}, grid});
  }
  void done(const msg::Submit& submit, msg::Outcome outcome = {}) {
    up.on_message(msg::GraphDone{submit.request, std::move(outcome), 1});
  }
  // The array that the last submission fetches.
  static std::uint64_t fetched(const msg::Submit& submit) {
    for (const ir::Op& op : submit.ops) {
      if (op.kind == ir::OpKind::kFetch) return op.operands[0].array;
    }
    FAIL("nothing is fetched");
    return 0;
  }
  msg::Offer offer(std::uint64_t number, std::int64_t block, const void* data, std::size_t bytes,
                   bool inlined = true) {
    msg::Offer o{{id_of(number), block}, op, kDevice, kSelf};
    o.bytes = static_cast<std::int64_t>(bytes);
    o.inlined = inlined;
    if (inlined) {
      o.data.assign(static_cast<const char*>(data), bytes);
    } else {
      o.offset = static_cast<std::int64_t>(slab.size());
      slab.insert(slab.end(), static_cast<const std::byte*>(data),
                  static_cast<const std::byte*>(data) + bytes);
    }
    return o;
  }
  void deliver(std::vector<msg::Offer> offers, WorkerId from = kWorker) {
    msg::PeerBatch batch;
    batch.offers = std::move(offers);
    up.on_peer(from, std::move(batch));
  }
  // All that was sent to workers since the last call, in one.
  msg::PeerBatch take_batches() {
    const std::scoped_lock lock(mutex_);
    msg::PeerBatch all;
    for (auto& [peer, b] : std::exchange(batches, {})) {
      all.subscribes.insert(all.subscribes.end(), b.subscribes.begin(), b.subscribes.end());
      all.offers.insert(all.offers.end(), b.offers.begin(), b.offers.end());
      all.grants.insert(all.grants.end(), b.grants.begin(), b.grants.end());
      all.dones.insert(all.dones.end(), b.dones.begin(), b.dones.end());
      all.gones.insert(all.gones.end(), b.gones.begin(), b.gones.end());
    }
    return all;
  }

  EndpointCallbacks up;
  std::vector<msg::Message> sent;
  std::vector<std::pair<WorkerId, msg::PeerBatch>> batches;
  std::map<std::uint64_t, Receive> receives;
  std::vector<std::pair<WorkerId, std::uint64_t>> disarmed;
  std::vector<Transmit> transmits;
  std::vector<std::byte> slab;
  bool can_map = true, can_lend = false;
  std::map<std::uint32_t, std::pair<std::shared_ptr<const void>, bool>> lent;  // and whether adoptable
  std::uint32_t next_lent = 0;
  std::optional<WorkerId> fence;
  std::shared_ptr<const void> pinned = std::make_shared<char>();
  std::set<std::uint64_t> held;  // what the session has not released
  std::function<void()> on_stop, on_destroy;
  std::condition_variable announced;
  msg::Welcome welcome_;
  int named = 0;  // submissions that named a kept program

 private:
  // Programs by name become their ops.
  void expand(msg::Submit& submit) {
    if (submit.keep_as != 0) {
      REQUIRE(submit.keep_as <= msg::kKeptPrograms);
      kept_[submit.keep_as] = {submit.request, msg::program_of(submit.ops).value()};
    }
    if (submit.program == 0) return;
    ++named;
    CHECK(submit.ops.empty());
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& kept) { return kept.second.first == submit.program; });
    REQUIRE(found != kept_.end());
    const msg::Program& program = found->second.second;
    REQUIRE(submit.inputs.size() == program.inputs);
    submit.ops = msg::ops_of(program, submit.first_output, submit.inputs, submit.constants);
  }
  // What the scheduler will insist on: verified ops, each number written once, operands written here or held.
  void check(const msg::Submit& submit) {
    CHECK(submit.request == ++requests_);
    std::set<std::uint64_t> here;
    for (const ir::Op& op : submit.ops) {
      std::vector<ir::SourceArray> sources;
      for (const ir::Operand& o : op.operands) {
        CHECK_MESSAGE((here.contains(o.array) || held.contains(o.array)), "array ", o.array, " is not there");
        sources.push_back(arrays_[o.array]);
      }
      const Status good = ir::verify(op, sources);
      CHECK_MESSAGE(good.has_value(), good.error().message);
      for (const ir::OutputSpec& o : op.outputs) {
        CHECK_MESSAGE(!arrays_.contains(o.array), "array ", o.array, " is written twice");
        arrays_[o.array] = {o.dtype, o.grid};
        here.insert(o.array);
      }
    }
    for (const std::uint64_t number : submit.holds) {
      CHECK(here.contains(number));
      held.insert(number);
    }
  }

  std::mutex mutex_;
  std::map<std::uint32_t, std::pair<std::uint64_t, msg::Program>> kept_;
  std::uint64_t requests_ = 0;
  std::map<std::uint64_t, ir::SourceArray> arrays_;
};

// A session and the paper world behind it.
struct World {
  explicit World(SessionOptions options = {}) : World(std::make_unique<FakeEndpoint>(), std::move(options)) {}
  World(std::unique_ptr<FakeEndpoint> endpoint, SessionOptions options)
      : fake(*endpoint), session(make_session(std::move(endpoint), std::move(options))) {}

  FakeEndpoint& fake;
  Session session;
};

template <class Fn> ArrayError thrown(Fn fn) {
  try {
    fn();
  } catch (const ArrayError& e) {
    return e;
  }
  return ArrayError(Errc::kOk, "nothing was thrown");
}

inline bool says(const ArrayError& e, std::string_view text) {
  return std::string_view(e.what()).find(text) != std::string_view::npos;
}

}  // namespace tilewise::client
