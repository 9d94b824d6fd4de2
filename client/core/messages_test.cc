// Every message and every word of peers that can reach a session: twice, late, from somebody who was declared lost or from another life, and
// not at all.
// One entry a tag of msg::Message; a new message does not compile until it has one (-Werror=switch).
#include <thread>

#include "access.h"
#include "fake_endpoint.h"
#include "message_tags.h"
#include "session_state.h"

namespace tilewise::client {
namespace {

using namespace std::chrono_literals;
using testing::Tag;

enum class Word { kSubscribe, kOffer, kGrant, kRelay, kDone, kGone, kProbe };
constexpr int kWords = static_cast<int>(Word::kProbe) + 1;
// Another list of words does not compile until it is named here and, above, has its word.
[[maybe_unused]] void lists_of(const msg::PeerBatch& batch) {
  [[maybe_unused]] const auto& [recovery, subscribes, offers, grants, relays, dones, gones, probes] = batch;
}

// One array held, one uploaded and being held, one request that fetches two blocks of which one is here, and a question to
// the scheduler of each kind that has not been answered.
struct Busy : World {
  Busy() {
    held.emplace(session.ones({8}) + 1);
    Future persisted = held->persist();
    const msg::Submit first = fake.last();
    fake.reply(first);
    fake.done(first);
    REQUIRE(persisted.ready());

    uploaded.emplace(session.from_memory(values, {4}));
    upload.emplace(uploaded->persist());
    upload_submit = fake.last();
    fake.reply(upload_submit);

    fetch.emplace(session.compute({session.zeros({8}, {.block = {4}}) + *held}));
    fetch_submit = fake.last();
    wanted = FakeEndpoint::fetched(fetch_submit);
    fake.reply(fetch_submit);
    fake.deliver({fake.offer(wanted, 0, values.data(), 32)});
    explaining = std::thread(
        [this] { explained = thrown([&] { refused = session.explain({*held * 3}).refused(); }).code(); });
    asked<msg::Explain>();
    tracing = std::thread([this] { traced = thrown([&] { session.state()->trace(); }).code(); });
    asked<msg::TraceRequest>();
  }
  ~Busy() {
    fake.up.on_lost({Errc::kUnavailable, "the end of the test"});
    end_questions();
  }
  void end_questions() {
    if (explaining.joinable()) explaining.join();
    if (tracing.joinable()) tracing.join();
  }
  // Whoever had asked has its answer, and has let go of what it asked about.
  void settle(const msg::Message& answer) {
    const bool all = std::holds_alternative<msg::Refusal>(answer);
    if (all || std::holds_alternative<msg::Explanation>(answer)) explaining.join();
    if (all || std::holds_alternative<msg::TraceReply>(answer)) tracing.join();
  }
  template <class Question> void asked() {
    while (fake.all<Question>().empty()) std::this_thread::yield();
  }

  msg::Message sample(Tag tag) {
    switch (tag) {
      case Tag::kLog: {
        msg::PeerInfo peer{kWorker, msg::Role::kWorker, "one", "host", {}, {kDevice}, {}};
        return msg::Log{1, 1, {msg::PeerJoined{std::move(peer)}}};
      }
      case Tag::kSubmitReply:
        return msg::SubmitReply{
            fetch_submit.request, {}, GraphId(9), {{wanted, FakeEndpoint::id_of(wanted)}}, {}};
      case Tag::kGraphProgress: return msg::GraphProgress{fetch_submit.request, 3, 4};
      case Tag::kGraphDone: return msg::GraphDone{fetch_submit.request, {}, 4};
      case Tag::kExplanation: return msg::Explanation{fake.all<msg::Explain>().back().submit.request};
      case Tag::kTraceReply: return msg::TraceReply{fake.all<msg::TraceRequest>().back().nonce};
      case Tag::kRefusal: return msg::Refusal{{Errc::kInternal, "x"}};
      // The endpoint's own, and what only others get: nothing comes of it.
      case Tag::kJoin: return msg::Join{};
      case Tag::kWelcome: return msg::Welcome{};
      case Tag::kProgress: return msg::Progress{};
      case Tag::kTaskFailed: return msg::TaskFailed{};
      case Tag::kStuck: return msg::Stuck{};
      case Tag::kSubmit: return msg::Submit{};
      case Tag::kReleaseArrays: return msg::ReleaseArrays{};
      case Tag::kCancelRequest: return msg::CancelRequest{};
      case Tag::kStatusRequest: return msg::StatusRequest{};
      case Tag::kStatusReply: return msg::StatusReply{};
      case Tag::kShutdown: return msg::Shutdown{};
      case Tag::kPing: return msg::Ping{};
      case Tag::kPong: return msg::Pong{};
      case Tag::kPeerHello: return msg::PeerHello{};
      case Tag::kArenaMap: return msg::ArenaMap{};
      case Tag::kPeerBatch: return msg::PeerBatch{};
      case Tag::kExplain: return msg::Explain{};
      case Tag::kTraceRequest: return msg::TraceRequest{};
      case Tag::kHeld: return msg::Held{};
      case Tag::kResume: return msg::Resume{};
      case Tag::kResumed: return msg::Resumed{};
      case Tag::kAck: return msg::Ack{};
      case Tag::kBlocksRequest: return msg::BlocksRequest{};
      case Tag::kBlocksReply: return msg::BlocksReply{};
      case Tag::kDrained: return msg::Drained{};
      case Tag::kDrainRequest: return msg::DrainRequest{};
      case Tag::kDrainReply: return msg::DrainReply{};
      case Tag::kLastWords: return msg::LastWords{};
      case Tag::kLeave: return msg::Leave{};
      case Tag::kAnnounce: return msg::Announce{};
      case Tag::kLinkProbe: return msg::LinkProbe{};
      case Tag::kLinkProbed: return msg::LinkProbed{};
    }
    return msg::Pong{};
  }
  msg::PeerBatch sample(Word word) {
    const std::uint64_t provided = upload_submit.ops[0].outputs[0].array;
    const msg::BlockRef mine{FakeEndpoint::id_of(provided), 0}, theirs{FakeEndpoint::id_of(wanted), 1};
    msg::PeerBatch batch;
    switch (word) {
      case Word::kSubscribe: batch.subscribes = {{mine, OpId{4}, kSelf, kDevice}}; break;
      case Word::kOffer: batch.offers = {fake.offer(wanted, 1, values.data(), 32)}; break;
      case Word::kGrant: batch.grants = {{mine, kSelf, kDevice, 5}}; break;
      case Word::kRelay: batch.relays = {{theirs, kDevice, kSelf, msg::RelayWord::kOver}}; break;
      case Word::kDone: batch.dones = {{mine, OpId{4}, kSelf, kDevice}}; break;
      case Word::kGone: batch.gones = {{theirs, kDevice, kSelf}}; break;
      case Word::kProbe: batch.probes = {{kSelf, kDevice, 6, 4096}}; break;
    }
    return batch;
  }
  // The requests' end, and all that they made released.
  void to_the_end() {
    fake.deliver({fake.offer(wanted, 1, values.data(), 32)});
    fake.done(fetch_submit);
    fake.done(upload_submit);
    fake.up.on_message(sample(Tag::kExplanation));
    fake.up.on_message(sample(Tag::kTraceReply));
    end_questions();
    REQUIRE(fetch->ready());
    REQUIRE(upload->ready());
    fetch.reset(), upload.reset(), held.reset(), uploaded.reset();
    fake.up.on_message(msg::Pong{});  // releases that wait for company go with whatever comes
    fake.take_batches();
  }
  // What anybody can see of the session: what its futures are, what it knows, and all that it has said to the scheduler.
  std::string state() {
    std::string s;
    for (const auto* f : {&fetch, &upload}) {
      if (!f->has_value()) continue;
      const Progress p = (*f)->progress();
      s += std::to_string((*f)->ready()) + " " + std::to_string(p.done) + "/" + std::to_string(p.total) + " ";
    }
    return s + std::to_string(session.devices().size()) + " " + std::to_string(fake.sent.size()) + " " +
           std::to_string(session.state()->graph_size()) + " " + std::to_string(fake.receives.size());
  }

  std::vector<double> values{1, 2, 3, 4};
  std::optional<Array> held, uploaded;
  std::optional<Future> upload, fetch;
  msg::Submit upload_submit, fetch_submit;
  std::uint64_t wanted = 0;
  std::thread explaining, tracing;
  std::atomic<bool> refused = false;
  std::atomic<Errc> explained{Errc::kTimeout}, traced{Errc::kTimeout};
};

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    Busy w;
    const msg::Message message = w.sample(tag);
    REQUIRE(testing::tag_of(message) == tag);
    fn(w, message);
  });
}
template <class Fn> void for_each_word(Fn&& fn) {
  for (int word = 0; word < kWords; ++word) {
    Busy w;
    CAPTURE(word);
    fn(w, w.sample(static_cast<Word>(word)));
  }
}

TEST_CASE("every message twice: the second time nothing changes") {
  for_each_tag([](Busy& w, const msg::Message& message) {
    w.fake.up.on_message(message);
    w.settle(message);
    const std::string once = w.state();
    w.fake.up.on_message(message);
    CHECK(w.state() == once);
    w.to_the_end();
  });
}

TEST_CASE("every message late: what it is about is over") {
  for_each_tag([](Busy& w, const msg::Message& message) {
    w.to_the_end();
    if (std::holds_alternative<msg::Log>(message)) w.fake.up.on_message(message);
    const std::string before = w.state();
    w.fake.up.on_message(message);
    CHECK(w.state() == before);
    CHECK(w.fake.take_batches().empty());
  });
}

// Of a session that had the same place before, or before a scheduler without memory: of requests and questions that this one has not put.
TEST_CASE("every message of another life: it is about nothing that this session has asked") {
  constexpr std::uint64_t kOther = 1'000'000;
  for_each_tag([](Busy& w, msg::Message message) {
    if (std::holds_alternative<msg::Refusal>(message)) {
      // It does not say of what it is, so it ends all that has no answer yet, and nothing else.
      w.fake.up.on_message(message);
      w.settle(message);
      CHECK(w.explained == Errc::kInternal);
      CHECK(w.traced == Errc::kInternal);
      CHECK(!w.fetch->ready());
      CHECK(!w.upload->ready());
      return w.to_the_end();
    }
    std::visit(
        [](auto& m) {
          if constexpr (requires { m.request; }) m.request += kOther;
          if constexpr (requires { m.nonce; }) m.nonce += kOther;
          const msg::Outcome another{Errc::kInternal, "another life's"};
          if constexpr (requires { m.outcome = another; }) m.outcome = another;
          if constexpr (requires { m.refused = another; }) m.refused = another;
        },
        message);
    if (auto* log = std::get_if<msg::Log>(&message))  // the worker that was is lost, and stays so
      w.fake.up.on_message(*log), log->entries = {msg::PeerLost{WorkerId{99}, 0, {}}};
    w.fake.take_batches();
    const std::string before = w.state();
    w.fake.up.on_message(message);
    CHECK(w.state() == before);
    CHECK(w.fake.take_batches().empty());
    if (std::holds_alternative<msg::Explanation>(message))
      std::this_thread::sleep_for(5ms);  // for who would believe it
    w.to_the_end();
    CHECK(w.explained == Errc::kOk);
    CHECK(!w.refused);
    CHECK(w.traced == Errc::kOk);
  });
}

TEST_CASE("every message before a question is put: it is no answer to that, nor why that has none") {
  testing::each_tag([](Tag tag) {
    World w({.timeout = 2ms});
    const msg::Message refusal = msg::Refusal{{Errc::kInternal, "of an earlier question"}};
    w.fake.up.on_message(tag == Tag::kRefusal ? refusal : testing::empty_message(tag));
    CHECK(thrown([&] { w.session.explain({w.session.ones({8})}); }).code() == Errc::kTimeout);
    CHECK(thrown([&] { w.session.state()->trace(); }).code() == Errc::kTimeout);
  });
}

// Links lose nothing while they are up, so what is lost is lost with the scheduler, or with its answer's journal: whoever waits is told.
TEST_CASE("every message lost with the scheduler: whoever waits is told, and nothing is sent any more") {
  for_each_tag([](Busy& w, const msg::Message& message) {
    w.fake.up.on_lost({Errc::kUnavailable, "killed"});
    REQUIRE(w.fetch->ready());
    CHECK(thrown([&] { w.fetch->get<double>(); }).code() == Errc::kUnavailable);
    CHECK(thrown([&] { w.upload->wait(); }).code() == Errc::kUnavailable);
    const std::size_t said = w.fake.sent.size();
    w.fake.up.on_message(message);  // and comes after all
    CHECK(w.fake.sent.size() == said);
    CHECK(thrown([&] { w.fetch->get<double>(); }).code() == Errc::kUnavailable);
  });
}

TEST_CASE("every word of a peer twice: the second time nothing changes, and each is owed the same answer") {
  for_each_word([](Busy& w, const msg::PeerBatch& batch) {
    w.fake.take_batches();
    w.fake.up.on_peer(kWorker, batch);
    const std::string once = w.state();
    const msg::PeerBatch answer = w.fake.take_batches();
    w.fake.up.on_peer(kWorker, batch);
    CHECK(w.state() == once);
    CHECK(w.fake.take_batches() == answer);
    w.to_the_end();
  });
}

TEST_CASE("every word of a peer late: nothing is held for it, and whoever waits for an answer has one") {
  for_each_word([](Busy& w, const msg::PeerBatch& batch) {
    w.to_the_end();
    const std::string before = w.state();
    w.fake.up.on_peer(kWorker, batch);
    CHECK(w.state() == before);
    CHECK(w.fake.transmits.empty());
    const msg::PeerBatch answer = w.fake.take_batches();
    CHECK(answer.dones.size() == batch.offers.size());
    CHECK(answer.gones.size() == batch.subscribes.size() + batch.grants.size());
    CHECK(answer.offers.empty());
  });
}

TEST_CASE("every word of a worker that was declared lost: nobody listens") {
  for_each_word([](Busy& w, const msg::PeerBatch& batch) {
    w.fake.up.on_message(msg::Log{1, 1, {msg::PeerLost{kWorker, 0, {}}}});
    w.fake.take_batches();
    const std::string before = w.state();
    w.fake.up.on_peer(kWorker, batch);
    CHECK(w.state() == before);
    CHECK(w.fake.transmits.empty());
    CHECK(w.fake.take_batches().empty());
    w.fake.deliver({w.fake.offer(w.wanted, 1, w.values.data(), 32)}, WorkerId{kWorker.value + 1});
    CHECK(w.fetch->ready());  // from where it was made again
  });
}

// ---- workers that leave ---------------------------------------------------------------------------------------------

enum class Entry : std::size_t {
  kPlan,
  kRelease,
  kCancelGraph,
  kRetire,
  kPeerJoined,
  kPeerLost,
  kRecover,
  kReplay,
  kForgetPlans,
  kDrain
};
constexpr std::size_t kEntries = std::variant_size_v<msg::LogEntry::variant>;
static_assert(static_cast<std::size_t>(Entry::kDrain) + 1 == kEntries,
              "name the new entry here, and give it a case");

constexpr WorkerId kOther{kWorker.value + 1};
constexpr DeviceId kOtherDevice{kDevice.value + 1};

// About the worker that the session's blocks come from.
msg::LogEntry sample(Entry entry) {
  switch (entry) {
    case Entry::kPeerJoined:
      return msg::PeerJoined{{kWorker, msg::Role::kWorker, "one", "host", {}, {kDevice}, {}}};
    case Entry::kPeerLost: return msg::PeerLost{kWorker, 0, {}};
    case Entry::kDrain: return msg::Drain{kWorker, msg::DrainOrder::kStop, 1, {}};
    // What only workers get: nothing comes of it.
    case Entry::kPlan: return msg::Plan{};
    case Entry::kRelease: return msg::Release{{ArrayId{10}}};
    case Entry::kCancelGraph: return msg::CancelGraph{GraphId{3}, {Errc::kCancelled, "x"}};
    case Entry::kRetire: return msg::Retire{{OpId{1}}};
    case Entry::kRecover: return msg::Recover{1, {}};
    case Entry::kReplay: return msg::Replay{7, GraphId{5}, 0, OpId{15}, ArrayId{50}, {}, {}, 100};
    case Entry::kForgetPlans: return msg::ForgetPlans{{7}};
  }
  return msg::Retire{};
}

// Two workers are there, and the fetched block that is missing is on its way from the first.
struct FetchingBeside : Busy {
  std::uint64_t transfer = 0;

  FetchingBeside() {
    for (const auto& [worker, device] : {std::pair(kWorker, kDevice), std::pair(kOther, kOtherDevice)})
      log(msg::PeerJoined{{worker, msg::Role::kWorker, "w", "host", {}, {device}, {}}});
    fake.deliver({remote_offer()});
    const msg::PeerBatch said = fake.take_batches();
    REQUIRE(said.grants.size() == 1);
    transfer = said.grants[0].transfer;
  }
  void log(msg::LogEntry entry) { fake.up.on_message(msg::Log{1, 1, {std::move(entry)}}); }
  msg::Offer remote_offer(DeviceId from = kDevice) {
    msg::Offer offer = fake.offer(wanted, 1, values.data(), 32, false);
    offer.from = from, offer.slab = kNoSlab;
    return offer;
  }
  // The transport lets go of what it was receiving, one way or the other.
  void transport_ends(std::uint64_t of, Status how) {
    FakeEndpoint::Receive receive = std::move(fake.receives.at(of));
    fake.receives.erase(of);
    if (how) std::memcpy(receive.to, values.data(), 32);
    receive.done(std::move(how));
  }
  std::ptrdiff_t cancelled(const msg::Submit& submit) {
    return std::ranges::count(fake.all<msg::CancelRequest>(), msg::CancelRequest{submit.request});
  }
  // The missing block, from the other one.
  void comes_from_the_other() {
    fake.deliver({remote_offer(kOtherDevice)}, kOther);
    const msg::PeerBatch said = fake.take_batches();
    REQUIRE(said.grants.size() == 1);
    CHECK(said.grants[0].from == kOtherDevice);
    transport_ends(said.grants[0].transfer, {});
    CHECK(fetch->ready());
  }
};

bool leaves(const msg::LogEntry& entry) {
  return std::holds_alternative<msg::PeerLost>(entry) || std::holds_alternative<msg::Drain>(entry);
}

template <class Fn> void for_each_entry(Fn&& fn) {
  for (std::size_t kind = 0; kind < kEntries; ++kind) {
    FetchingBeside w;
    const msg::LogEntry entry = sample(static_cast<Entry>(kind));
    REQUIRE(entry.index() == kind);
    CAPTURE(kind);
    fn(w, entry);
  }
}

TEST_CASE(
    "every log entry twice, while a block comes from there: a worker that is gone is not asked again, any "
    "other is") {
  for_each_entry([](FetchingBeside& w, const msg::LogEntry& entry) {
    w.log(entry);
    const std::string once = w.state();
    w.log(entry);
    CHECK(w.state() == once);
    CHECK(w.session.devices().size() == (leaves(entry) ? 1 : 2));
    CHECK(w.fake.take_batches().empty());  // the transport has the memory still
    w.transport_ends(w.transfer, error(Errc::kUnavailable, "the link broke"));
    const msg::PeerBatch said = w.fake.take_batches();
    CHECK(said.grants.size() == (leaves(entry) ? 0 : 1));
    CHECK(!w.fetch->ready());
    if (leaves(entry)) return w.comes_from_the_other();
    w.transport_ends(said.grants[0].transfer, {});
    CHECK(w.fetch->ready());
  });
}

TEST_CASE("every log entry when the bytes are here all the same: they count") {
  for_each_entry([](FetchingBeside& w, const msg::LogEntry& entry) {
    w.log(entry);
    w.transport_ends(w.transfer, {});
    REQUIRE(w.fetch->ready());
    CHECK(w.fetch->get<double>() == std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4});
  });
}

TEST_CASE(
    "every log entry about a worker that was never heard of, or is lost already: nothing changes for anybody "
    "else") {
  for_each_entry([](FetchingBeside& w, const msg::LogEntry& entry) {
    w.log(msg::PeerLost{kWorker, 0, {}});
    w.transport_ends(w.transfer, error(Errc::kWorkerLost, "gone"));
    w.fake.take_batches();
    w.log(entry);
    CHECK(w.session.devices().size() == 1);
    w.log(msg::PeerLost{WorkerId{999}, 0, {}});
    w.log(msg::Drain{WorkerId{999}, msg::DrainOrder::kStop, 1, {}});
    CHECK(w.session.devices().size() == 1);
    CHECK(!w.fetch->ready());
    w.comes_from_the_other();
  });
}

// The answer that it is to be had elsewhere may be here before the word that it is gone.
TEST_CASE(
    "every log entry late, after an offer from elsewhere: the block is had from there as soon as its place "
    "is free") {
  for_each_entry([](FetchingBeside& w, const msg::LogEntry& entry) {
    w.fake.deliver({w.remote_offer(kOtherDevice)}, kOther);
    CHECK(w.fake.take_batches().empty());
    w.log(entry);
    w.transport_ends(w.transfer, error(Errc::kUnavailable, "the link broke"));
    const msg::PeerBatch said = w.fake.take_batches();
    REQUIRE(said.grants.size() == 1);
    CHECK(said.grants[0].from == (leaves(entry) ? kOtherDevice : kDevice));
    w.transport_ends(said.grants[0].transfer, {});
    CHECK(w.fetch->ready());
  });
}

TEST_CASE(
    "every word of a worker that has left: each is owed what it always is, and the request ends with what "
    "comes from elsewhere") {
  for_each_word([](Busy& w, const msg::PeerBatch& batch) {
    w.fake.up.on_message(msg::Log{1, 1, {msg::Drain{kWorker, msg::DrainOrder::kStop, 1, {}}}});
    w.fake.take_batches();
    w.fake.up.on_peer(kWorker, batch);
    const msg::PeerBatch answer = w.fake.take_batches();
    CHECK(answer.dones.size() == batch.offers.size());
    CHECK(answer.offers.size() == batch.subscribes.size());
    if (batch.offers.empty()) w.fake.deliver({w.fake.offer(w.wanted, 1, w.values.data(), 32)}, kOther);
    CHECK(w.fetch->ready());
  });
}

// ---- workers out of reach -------------------------------------------------------------------------------------------

TEST_CASE("a worker that cannot be reached: who waits for its bytes is told so, all else goes on") {
  FetchingBeside w;
  const TimeNs long_ago = 1;
  const Error why{Errc::kTimeout, "the link to worker 3 (w) could not be made again"};
  SUBCASE("bytes that were granted: at once, though other blocks have come since") {
    w.fake.up.on_unreachable(kWorker, why, long_ago);
    REQUIRE(w.fetch->ready());
    const ArrayError failed = thrown([&] { w.fetch->get<double>(); });
    CHECK(failed.code() == Errc::kUnavailable);
    CHECK(says(failed, "worker 3 cannot be reached"));
    CHECK(says(failed, why.message));
    CHECK(!w.upload->ready());
    CHECK(w.cancelled(w.fetch_submit) == 1);
    // What it is to send has no use any more; the others may have the room.
    w.transport_ends(w.transfer, error(Errc::kUnavailable, "given up"));
    CHECK(w.fake.take_batches().grants.empty());
  }
  SUBCASE("another one: nobody") {
    w.fake.up.on_unreachable(kOther, why, long_ago);
    CHECK(!w.fetch->ready());
    CHECK(!w.upload->ready());
  }
  SUBCASE("an upload that nobody has asked for since") {
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    REQUIRE(w.upload->ready());
    CHECK(thrown([&] { w.upload->wait(); }).code() == Errc::kUnavailable);
    CHECK(w.cancelled(w.upload_submit) == 1);
  }
  SUBCASE("an upload that somebody asks for") {
    const TimeNs before = monotonic_now();
    w.fake.up.on_peer(kOther, w.sample(Word::kSubscribe));
    w.fake.up.on_unreachable(kWorker, why, before);
    CHECK(!w.upload->ready());
  }
  SUBCASE("an upload that is on its way, for however long: where that is not to the one out of reach") {
    w.fake.up.on_peer(kOther, w.sample(Word::kGrant));
    REQUIRE(w.fake.transmits.size() == 1);
    w.fake.up.on_unreachable(kWorker, why, monotonic_now() + kSecond);
    CHECK(!w.upload->ready());
    SUBCASE("to that one") {
      w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
      CHECK(w.upload->ready());
    }
    SUBCASE("that has arrived") {
      const TimeNs before = monotonic_now();
      w.fake.transmits[0].done({});
      w.fake.up.on_unreachable(kWorker, why, before);
      CHECK(!w.upload->ready());
      w.fake.up.on_unreachable(kWorker, why, monotonic_now() + kSecond);
      CHECK(w.upload->ready());
    }
  }
  SUBCASE("bytes from another one, for however long they are on their way") {
    w.fake.up.on_message(msg::GraphProgress{w.fetch_submit.request, 2, 2});
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!w.fetch->ready());
  }
  SUBCASE("blocks that another request computes: when that is over, and not before") {
    Array made = w.session.zeros({4}) + 1.0;
    const Future maker = made.persist();
    const msg::Submit making = w.fake.last();
    const Future next = w.session.compute({made});
    const msg::Submit submit = w.fake.last();
    w.fake.reply(making);
    w.fake.reply(submit);
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!next.ready());
    w.fake.up.on_message(msg::GraphProgress{making.request, 1, 2});
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!next.ready());
    const TimeNs before = monotonic_now();
    w.fake.done(making);
    REQUIRE(maker.ready());
    w.fake.up.on_unreachable(kOther, why, before);
    CHECK(!next.ready());  // it is there just now
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(next.ready());
    CHECK(w.cancelled(submit) == 1);
  }
  SUBCASE("blocks that were never offered: when nothing is left to compute, and not before") {
    w.transport_ends(w.transfer, {});
    REQUIRE(w.fetch->ready());
    const Future next = w.session.compute({w.session.zeros({8}, {.block = {4}}) + *w.held});
    const msg::Submit submit = w.fake.last();
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!next.ready());  // the scheduler has not even answered
    w.fake.reply(submit);
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!next.ready());  // it may be computing
    w.fake.up.on_message(msg::GraphProgress{submit.request, 1, 2});
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(!next.ready());
    const TimeNs before = monotonic_now();
    w.fake.up.on_message(msg::GraphProgress{submit.request, 2, 2});
    w.fake.up.on_unreachable(kOther, why, before);
    CHECK(!next.ready());  // that was just now
    w.fake.up.on_unreachable(kOther, why, monotonic_now() + kSecond);
    CHECK(next.ready());
    CHECK(thrown([&] { next.wait(); }).code() == Errc::kUnavailable);
  }
  SUBCASE("and the session is as good as ever") {
    w.fake.up.on_unreachable(kWorker, why, monotonic_now() + kSecond);
    const Future next = w.session.compute({w.session.zeros({4}) + 1.0});
    const msg::Submit submit = w.fake.last();
    w.fake.reply(submit);
    w.fake.deliver({w.fake.offer(FakeEndpoint::fetched(submit), 0, w.values.data(), 32)}, kOther);
    CHECK(next.get<double>() == w.values);
  }
}

}  // namespace
}  // namespace tilewise::client
