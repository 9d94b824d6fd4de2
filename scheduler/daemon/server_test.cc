// Whose link is whose: strangers who never join, and peers of an earlier life of the scheduler.
#include <tilewise/daemon/log.h>

#include <doctest/doctest.h>

#include "temp_folder.h"
#include "test_site.h"

namespace tilewise::scheduler {
namespace {

using namespace testing;

// What is logged while this is there: each event with its fields.
struct HeardLog {
  std::vector<std::string> lines;
  HeardLog() {
    daemon::set_log_tap(
        [this](daemon::LogLevel, std::string_view event, std::initializer_list<daemon::Field> fields) {
          std::string& line = lines.emplace_back(event);
          for (const daemon::Field& field : fields) line += " " + std::string(field.key) + "=" + field.value;
        });
  }
  ~HeardLog() { daemon::set_log_tap({}); }
  HeardLog(const HeardLog&) = delete;
  HeardLog& operator=(const HeardLog&) = delete;
  bool has(const std::string& text) const {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
};

TEST_CASE("who has the token and joins never is told so and left; who has joined may be silent") {
  Site site({}, 20 * kMillisecond);
  Party silent, mumbling;
  site.connect(silent);
  site.connect(mumbling);
  mumbling.say(msg::Ack{});  // says nothing
  for (Party* party : {&silent, &mumbling}) {
    site.until([&] { return party->closed; });
    REQUIRE(party->heard.size() == 1);
    REQUIRE(party->count<msg::Refusal>() == 1);
    CHECK(std::get<msg::Refusal>(party->heard[0]).why.code == Errc::kTimeout);
  }
  CHECK(!site.bystander.closed);
  CHECK(site.peers() == 1);
}

// A worker that has joined a scheduler with a state, and may come back.
msg::Resume joins_for_good(Site& site, Party& party) {
  msg::Join join = join_as(msg::Role::kWorker);
  join.lease_ns = 60 * kSecond;
  site.connect(party);
  party.say(join);
  site.until([&] { return party.count<msg::Welcome>() == 1; });
  const auto& welcome = std::get<msg::Welcome>(party.heard[0]);
  return {welcome.state, welcome.you, 1, welcome.term};
}

void comes_back(Site& site, Party& party, const msg::Resume& resume) {
  site.connect(party);
  party.say(resume);
  site.until([&] { return party.count<msg::Resumed>() == 1; });
  const auto resumed = std::find_if(party.heard.begin(), party.heard.end(), [](const msg::Message& m) {
    return std::holds_alternative<msg::Resumed>(m);
  });
  REQUIRE(std::get<msg::Resumed>(*resumed).refused.ok());
}

TEST_CASE("after a restart a worker is who it was: what it says of tasks that failed is logged") {
  const tilewise::testing::TempFolder folder;
  msg::Resume resume;
  {
    Site site(folder / "state");
    Party worker;
    resume = joins_for_good(site, worker);
  }
  { const Site between(folder / "state"); }  // whose snapshot has it: no Join is taken again
  Site site(folder / "state");
  Party worker;
  comes_back(site, worker, resume);
  const HeardLog heard;
  worker.say(msg::TaskFailed{OpId{1}, DeviceId{1}, 3, {Errc::kTaskFailed, "a kernel said no"}});
  site.settle(worker);
  CHECK(heard.has("task failed worker=worker somebody"));
  CHECK(heard.has("a kernel said no"));
}

TEST_CASE("who joins again, in this life of the scheduler or the one before, stays who it was") {
  const tilewise::testing::TempFolder folder;
  msg::Resume resume;
  bool before = false;
  SUBCASE("before the restart") { before = true; }
  SUBCASE("after it") {}
  const auto joins_again = [&](Site& site, Party& worker) {
    worker.say(join_as(msg::Role::kTool));
    site.settle(worker);
    CHECK(std::any_of(worker.heard.begin(), worker.heard.end(), [](const msg::Message& m) {
      const auto* refusal = std::get_if<msg::Refusal>(&m);
      return refusal != nullptr && refusal->why.code == Errc::kAlreadyExists;
    }));
  };
  {
    Site site(folder / "state");
    Party worker;
    resume = joins_for_good(site, worker);
    if (before) joins_again(site, worker);
  }
  Site site(folder / "state");
  Party worker, again;
  comes_back(site, worker, resume);
  if (!before) joins_again(site, worker);
  worker.link.reset();
  comes_back(site, again, resume);
}

// Two schedulers have gone on from one state: what they say to a peer has the same numbers and is not the same.
TEST_CASE("who has heard more than this life of the scheduler said, or a later one, is not taken back") {
  const tilewise::testing::TempFolder folder;
  msg::Resume resume;
  std::uint64_t before = 0;
  {
    Site site(folder / "state");
    Party worker;
    resume = joins_for_good(site, worker);
    before = worker.heard.size();
  }
  Site site(folder / "state");
  Party lost, newcomer;
  resume.received = before;
  comes_back(site, lost, resume);
  lost.link.reset();  // before it has read the answer, as far as it says
  site.connect(newcomer);
  site.joins(newcomer, msg::Role::kWorker);
  const auto answer_to = [&](std::uint64_t received, std::uint32_t term) {
    Party again;
    site.connect(again);
    again.say(msg::Resume{resume.state, resume.me, received, term});
    site.until([&] { return again.count<msg::Resumed>() == 1; });
    return std::get<msg::Resumed>(again.heard[0]).refused;
  };
  const std::size_t peers = site.peers();
  SUBCASE("an answer that was lost is said again") { CHECK(answer_to(before, 1).ok()); }
  SUBCASE("what was said to it in this life it has") { CHECK(answer_to(before + 1, 2).ok()); }
  SUBCASE("of a later life: it may come back when it has lost that one") {
    const msg::Outcome refused = answer_to(before, 3);
    CHECK(refused.code == Errc::kUnavailable);
    CHECK(refused.message.find("the scheduler of term 3") != std::string::npos);
    CHECK(site.peers() == peers);
    CHECK(answer_to(before, 2).ok());
  }
  SUBCASE("one more than it can have: it was with another scheduler meanwhile") {
    CHECK(answer_to(before + 1, 1).code == Errc::kCorruptData);
    CHECK(site.peers() == peers - 1);
    CHECK(answer_to(before, 1).code == Errc::kWorkerLost);
  }
}

// Arrays of as many blocks of their own cuts as may be: a megabyte of a message each.
msg::Submit large_request(std::uint64_t number, std::uint64_t ops) {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < limits::kMaxExplicitCuts; ++i) starts.push_back(2 * i + (i == 1 ? 1 : 0));
  const ir::Grid grid({*ir::DimGrid::cuts(2 * limits::kMaxExplicitCuts, starts)});
  msg::Submit submit;
  submit.request = number;
  for (std::uint64_t i = 0; i < ops; ++i) {
    ir::TapeInstr random;
    random.op = ir::TapeOp::kUniform;
    random.imm_i = static_cast<std::int64_t>(submit.request * ops + i);
    ir::Op op;
    op.kind = ir::OpKind::kMap;
    op.space = grid;
    op.attrs = ir::MapAttrs{{{random}}};
    op.outputs = {{submit.request * ops + i, ir::DType::kFloat64, grid}};
    submit.holds.push_back(op.outputs[0].array);
    submit.ops.push_back(std::move(op));
  }
  return submit;
}

TEST_CASE("a worker that joins hears of all that lives, also where that is more than one message may be") {
  Site site;
  Party worker, client, newcomer;
  site.connect(worker);
  site.joins(worker, msg::Role::kWorker);
  site.connect(client);
  site.joins(client, msg::Role::kClient);
  for (const std::uint64_t request : {1, 2, 3}) {
    client.say(large_request(request, 25));
    site.until([&] { return client.count<msg::SubmitReply>() == static_cast<std::ptrdiff_t>(request); });
  }
  site.connect(newcomer);
  site.joins(newcomer, msg::Role::kWorker);
  site.settle(newcomer);
  REQUIRE(!newcomer.closed);
  std::uint64_t next = 1;
  std::ptrdiff_t plans = 0;
  for (const msg::Message& message : newcomer.heard) {
    const auto* log = std::get_if<msg::Log>(&message);
    if (log == nullptr) continue;
    CHECK(log->first == next);
    next += log->entries.size();
    plans += std::count_if(log->entries.begin(), log->entries.end(),
                           [](const msg::LogEntry& e) { return std::holds_alternative<msg::Plan>(e); });
  }
  CHECK(newcomer.count<msg::Log>() > 1);
  CHECK(plans == 3);
}

// So many ops of one block each: a small message.
msg::Submit small_request(std::uint64_t number, std::uint64_t ops) {
  msg::Submit submit = large_request(number, 0);
  const ir::Grid grid({*ir::DimGrid::cuts(2, {0})});
  for (std::uint64_t i = 0; i < ops; ++i) {
    ir::TapeInstr random;
    random.op = ir::TapeOp::kUniform;
    random.imm_i = static_cast<std::int64_t>(number * ops + i);
    ir::Op op;
    op.kind = ir::OpKind::kMap;
    op.space = grid;
    op.attrs = ir::MapAttrs{{{random}}};
    op.outputs = {{number * ops + i, ir::DType::kFloat64, grid}};
    submit.holds.push_back(op.outputs[0].array);
    submit.ops.push_back(std::move(op));
  }
  return submit;
}

// What a step plans goes to a worker in one log.
TEST_CASE("requests that come together are not one step: each takes so many ops, and is on record") {
  const tilewise::testing::TempFolder folder;
  constexpr std::uint64_t kRequests = 16;
  Site site(folder / "state");
  Party worker, client;
  site.connect(worker);
  site.joins(worker, msg::Role::kWorker);
  site.connect(client);
  site.joins(client, msg::Role::kClient);
  for (std::uint64_t request = 1; request <= kRequests; ++request)
    client.say(small_request(request, Server::kStepOps / 2));
  site.until([&] { return client.count<msg::SubmitReply>() == static_cast<std::ptrdiff_t>(kRequests); });
  site.settle(worker);
  std::ptrdiff_t plans = 0, most = 0;
  for (const msg::Message& message : worker.heard) {
    const auto* log = std::get_if<msg::Log>(&message);
    if (log == nullptr) continue;
    const auto here = std::count_if(log->entries.begin(), log->entries.end(), [](const msg::LogEntry& e) {
      return std::holds_alternative<msg::Plan>(e);
    });
    plans += here;
    most = std::max(most, here);
  }
  CHECK(plans == static_cast<std::ptrdiff_t>(kRequests));
  CHECK(most <= 2);
  site.server.reset();
  const Site next(folder / "state");  // takes the same steps
  CHECK(next.server->term() == 2);
}

}  // namespace
}  // namespace tilewise::scheduler
