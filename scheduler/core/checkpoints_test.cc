// Arrays that go to disk because no other worker can take them: written, read again, and removed.
#include <doctest/doctest.h>

#include "looping.h"

namespace tilewise::scheduler::test {
namespace {

namespace names = ir::checkpoint;

struct OnDisk : Looping {
  explicit OnDisk(int workers = 1) : Looping(workers, 50, "/folder/own") {}
  explicit OnDisk(Options options) : Looping(1, std::move(options)) {}
  void turns(int n) {
    for (int i = 0; i < n; ++i) turn(), finish();
  }
  // Ops of this kernel that a worker has been told of, in order.
  std::vector<msg::PlannedOp> told(std::string_view kernel, std::uint32_t conn) const {
    std::vector<msg::PlannedOp> out;
    const auto take = [&](const msg::Plan& plan) {
      for (const msg::PlannedOp& op : plan.ops) {
        if (op.op.kind == ir::OpKind::kCall && op.op.get<ir::CallAttrs>().kernel == kernel) out.push_back(op);
      }
    };
    for (const msg::Plan& plan : log<msg::Plan>(conn)) take(plan);
    for (const msg::Recover& recover : log<msg::Recover>(conn)) {
      for (const msg::Plan& plan : recover.plans) take(plan);
    }
    return out;
  }
  names::Folder last_folder(std::uint32_t conn) const {
    return *names::parse_folder(told(names::kTend, conn).back().op.get<ir::CallAttrs>().params);
  }
  // The only worker goes, and one that has nothing comes.
  void replace_worker(std::uint32_t gone, std::uint32_t comes) {
    lose(gone);
    add(comes);
    answer({});
  }
  // Tells of the op's failure, as a worker does, and then of its end.
  void fail(std::uint32_t conn, const msg::PlannedOp& op, const std::string& why) {
    const DeviceId device = op.placement.devices()[0];
    receive(conn, msg::TaskFailed{op.id, device, 0, {Errc::kIo, why}});
    complete(msg::Plan{{}, 0, {op}}, op.op.space.block_count());
  }
};

TEST_CASE("what takes long to make again goes to a file also where there is one device alone") {
  Options options = Looping::limited(1'000'000, "/folder/own");
  SUBCASE("long") {
    options.max_recompute_ns = 10 * kMicrosecond;
    OnDisk w(options);
    w.turns(200);
    CHECK(!w.told(names::kWrite, 1).empty());
    CHECK(w.seen().lineage < 200);
  }
  SUBCASE("not long") {
    OnDisk w(options);
    w.turns(200);
    CHECK(w.told(names::kWrite, 1).empty());
  }
}

TEST_CASE("a long past is cut when the array is in a file, not before") {
  OnDisk w;
  CHECK(w.told(names::kTend, 1).size() == 1);
  CHECK(w.last_folder(1).first);
  CHECK(w.last_folder(1).path == "/folder/own");
  w.turns(49);
  CHECK(w.told(names::kWrite, 1).empty());
  CHECK(w.seen().lineage == 49);
  w.turn();
  const std::vector<msg::PlannedOp> writes = w.told(names::kWrite, 1);
  REQUIRE(writes.size() == 1);
  REQUIRE(w.told(names::kCreate, 1).size() == 1);
  const auto file = names::parse_file(writes[0].op.get<ir::CallAttrs>().params);
  REQUIRE(file.has_value());
  CHECK(file->bytes == 40 * 8);
  CHECK(file->array.find("array 51 ") == 0);
  CHECK(w.seen().anchors == 1);
  CHECK(w.seen().checkpoints == 0);
  // Its blocks are there: now it is to be durable.
  const std::vector<msg::Plan> plans = w.log<msg::Plan>(1);
  w.complete(plans[plans.size() - 2]);
  w.complete(plans.back());
  CHECK(w.told(names::kCommit, 1).size() == 1);
  CHECK(w.seen().checkpoints == 0);
  CHECK(w.seen().lineage >= 49);
  w.finish();
  CHECK(w.seen().checkpoints == 1);
  CHECK(w.seen().lineage <= 2);
  // Whoever uses it has it from memory; when it is released nothing of it but the file stays.
  w.turns(2);
  CHECK(w.seen().checkpoints == 1);
  CHECK(w.seen().status.arrays_live == 1);
}

TEST_CASE("the only worker dies: what was lost is read from the file, and made from there") {
  OnDisk w;
  w.turns(60);
  REQUIRE(w.seen().checkpoints == 1);
  w.replace_worker(1, 2);
  const std::vector<msg::Recover> recovers = w.log<msg::Recover>(2);
  REQUIRE(recovers.size() >= 1);
  const std::vector<msg::PlannedOp> restored = w.told(names::kRestore, 2);
  REQUIRE(restored.size() == 1);
  CHECK(restored[0].op.operands.empty());
  CHECK(restored[0].placement.owned_count(w.joined.back().devices[0]) == 4);
  std::size_t again = 0;
  for (const msg::Plan& plan : recovers.back().plans)
    for (const msg::PlannedOp& op : plan.ops) again += !op.done;
  CHECK(again <= 12);
  w.finish();
  w.turns(100);
  CHECK(w.seen().lineage <= 110);
  const msg::Outcome next = w.submit(10, ++w.request, {map(1000, kFourBlocks, {w.number})}, {1000}).outcome;
  CHECK_MESSAGE(next.ok(), next.message);
}

struct BothOnDisk : OnDisk {
  void turns(int n, bool more = false) {
    for (int i = 0; i < n; ++i) turn_both(more), finish();
  }
};

TEST_CASE("results of one kernel go to a file each, and its past is cut when all are there") {
  BothOnDisk w;
  bool more = false;
  SUBCASE("all of them held") {}
  SUBCASE("beside one that nobody keeps, and that is read meanwhile") { more = true; }
  w.turns(48, more);
  REQUIRE(w.told(names::kWrite, 1).empty());
  w.turns(12, more);
  CHECK(w.seen().checkpoints == 2);
  CHECK(w.seen().lineage <= 50);
  w.replace_worker(1, 2);
  const std::vector<msg::PlannedOp> restored = w.told(names::kRestore, 2);
  REQUIRE(restored.size() == 1);
  CHECK(restored[0].op.operands.empty());
  REQUIRE(restored[0].op.outputs.size() == (more ? 3 : 2));
  const auto files = names::parse_files(restored[0].op.get<ir::CallAttrs>().params);
  REQUIRE(files.has_value());
  REQUIRE(files->size() == restored[0].op.outputs.size());
  const std::vector<msg::PlannedOp> writes = w.told(names::kWrite, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(files->at(i).has_value());
    CHECK(std::any_of(writes.begin(), writes.end(), [&](const msg::PlannedOp& write) {
      return *files->at(i) == *names::parse_file(write.op.get<ir::CallAttrs>().params) &&
             write.op.operands[0].array == restored[0].op.outputs[i].array;
    }));
  }
  if (more) CHECK(!files->at(2).has_value());
  w.finish();
  w.turns(100, more);
  CHECK(w.seen().lineage <= 130);
  const msg::Outcome next =
      w.submit(10, ++w.request, {map(1000, kFourBlocks, {w.number + 1})}, {1000}).outcome;
  CHECK_MESSAGE(next.ok(), next.message);
  w.finish();
  w.receive(10, msg::ReleaseArrays{{w.number, w.number + 1, 1000}});
  if (more) w.receive(10, msg::ReleaseArrays{{1'000'000'000 + w.number + 1}});
  w.finish();
  w.finish();
  CHECK(w.seen().checkpoints == 0);
  CHECK(w.seen().status.arrays_live == 0);
}

TEST_CASE("of results of one kernel none is in a file where one could not be written") {
  BothOnDisk w;
  w.turns(49);
  w.turn_both();
  const std::vector<msg::PlannedOp> writes = w.told(names::kWrite, 1), creates = w.told(names::kCreate, 1);
  REQUIRE(writes.size() == 2);
  SUBCASE("the other's write is not over") {}
  SUBCASE("the other is there") {
    w.complete(msg::Plan{{}, 0, {creates[1], writes[1]}});
    const std::vector<msg::PlannedOp> commits = w.told(names::kCommit, 1);
    REQUIRE(commits.size() == 1);
    w.complete(msg::Plan{{}, 0, {commits[0]}});
    CHECK(w.seen().checkpoints == 1);
    CHECK(w.seen().lineage >= 49);
  }
  w.fail(1, creates[0], "/folder/own/0000: no space left");
  w.fail(1, writes[0], "what it reads has failed");
  CHECK(w.seen().checkpoint_trouble.find("no space left") != std::string::npos);
  CHECK(w.seen().checkpoints == 0);
  CHECK(w.seen().anchors == 0);
  CHECK(w.last_folder(1).keep.empty());
  w.finish();
  CHECK(w.seen().lineage >= 49);
  w.turns(60);
  CHECK(w.seen().checkpoints == 2);
  CHECK(w.seen().lineage <= 30);
}

TEST_CASE("a checkpoint that its session still has and that cannot be read is lost by name") {
  OnDisk w;
  w.turns(50);
  REQUIRE(w.seen().checkpoints == 1);
  w.replace_worker(1, 2);
  const std::vector<msg::PlannedOp> restored = w.told(names::kRestore, 2);
  REQUIRE(restored.size() == 1);
  w.fail(2, restored[0], "blocks of array 51: /folder/own/0000: no such file");
  const msg::Outcome lost = w.submit(10, ++w.request, {map(1000, kFourBlocks, {w.number})}, {1000}).outcome;
  CHECK(lost.code == Errc::kWorkerLost);
  CHECK(lost.message.find("array 51") != std::string::npos);
  CHECK(lost.message.find("/folder/own/0000: no such file") != std::string::npos);
}

TEST_CASE("a write that fails leaves all as it was, and is tried again after as much more") {
  OnDisk w;
  w.turns(49);
  w.turn();
  const std::vector<msg::PlannedOp> writes = w.told(names::kWrite, 1);
  REQUIRE(writes.size() == 1);
  const GraphId user = w.log<msg::Plan>(1)[w.log<msg::Plan>(1).size() - 2].graph;
  w.fail(1, w.told(names::kCreate, 1)[0], "/folder/own/0000: no space left");
  w.fail(1, writes[0], "what it reads has failed");
  CHECK(w.seen().checkpoint_trouble.find("no space left") != std::string::npos);
  CHECK(w.seen().checkpoints_failed == 1);
  CHECK(w.seen().anchors == 0);
  CHECK(w.last_folder(1).keep.empty());  // what is left of it goes
  CHECK(w.last_folder(1).below > names::parse_file(writes[0].op.get<ir::CallAttrs>().params)->id);
  w.finish();
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  CHECK(user.value != 0);
  w.turns(48);
  CHECK(w.told(names::kWrite, 1).size() == 1);
  CHECK(w.seen().lineage == 98);
  w.turns(2);
  CHECK(w.told(names::kWrite, 1).size() == 2);
  CHECK(w.seen().checkpoints == 1);
  CHECK(w.seen().checkpoint_trouble.empty());
  CHECK(w.seen().lineage <= 2);
}

TEST_CASE("a loss while it is written is one like any other, and the write is given up") {
  OnDisk w;
  w.turns(49);
  w.turn();
  SUBCASE("before any block was") {}
  SUBCASE("when only the last step was missing") {
    const std::vector<msg::Plan> plans = w.log<msg::Plan>(1);
    w.complete(plans[plans.size() - 2]);
    w.complete(plans.back());
    REQUIRE(w.told(names::kCommit, 1).size() == 1);
  }
  w.replace_worker(1, 2);
  CHECK(w.seen().checkpoints == 0);
  CHECK(w.seen().checkpoints_failed == 1);
  CHECK(w.told(names::kRestore, 2).empty());
  w.finish();
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  w.turns(60);
  CHECK(w.seen().checkpoints == 1);
  CHECK(w.seen().lineage <= 20);
}

TEST_CASE(
    "nothing is written while a worker does not see the folder; it is asked again when there is cause") {
  OnDisk w(0);
  w.add(1);
  w.fail(1, w.told(names::kTend, 1).at(0), "/folder/own: read-only file system");
  w.done = w.logs.size();
  w.begin();
  CHECK(w.seen().checkpoint_trouble.find("w2: /folder/own: read-only") == 0);
  w.turns(50);
  CHECK(w.told(names::kWrite, 1).empty());
  CHECK(w.told(names::kTend, 1).size() == 2);  // and now it does
  CHECK(w.last_folder(1).first);
  CHECK(w.seen().checkpoint_trouble.empty());
  w.turns(50);
  CHECK(w.seen().checkpoints == 1);
}

TEST_CASE("each worker looks at the folder when it joins, one after the other") {
  OnDisk w(0);
  w.add(1);
  w.add(2);
  CHECK(w.told(names::kTend, 2).size() == 1);  // the first's
  w.finish();
  CHECK(w.told(names::kTend, 1).size() == 2);
  const auto second = w.told(names::kTend, 1).back();
  CHECK(second.placement.owned_count(w.joined[1].devices[0]) == 1);
  CHECK(!w.last_folder(1).first);
  CHECK(w.last_folder(1).marker ==
        names::parse_folder(w.told(names::kTend, 1)[0].op.get<ir::CallAttrs>().params)->marker);
}

TEST_CASE("when nothing is made from it any more the file goes, also if it was let go while it was written") {
  OnDisk w;
  w.turns(49);
  w.turn();
  w.receive(10, msg::ReleaseArrays{{w.number}});
  w.finish();
  w.finish();
  CHECK(w.seen().checkpoints == 0);
  CHECK(w.seen().lineage == 0);
  CHECK(w.seen().status.arrays_live == 0);
  CHECK(w.last_folder(1).keep.empty());
}

TEST_CASE("clients have no business with these kernels") {
  OnDisk w;
  ir::Op op = fill(1000, kFourBlocks);
  op.kind = ir::OpKind::kCall;
  op.attrs = ir::CallAttrs{.kernel = std::string(names::kRestore), .version = "1"};
  CHECK(w.submit(10, ++w.request, {op}, {1000}).outcome.code == Errc::kPermissionDenied);
}

TEST_CASE("the next life knows the files, has the folder looked at again, and goes on") {
  OnDisk w;
  w.turns(60);
  std::vector<msg::Message> kept;
  const SnapshotCodec codec{
      [&](const msg::Message& m) -> Result<std::string> {
        kept.push_back(m);
        return std::to_string(kept.size() - 1);
      },
      [&](std::string_view bytes) -> Result<msg::Message> { return kept[std::stoul(std::string(bytes))]; }};
  std::vector<Action> actions;
  w.core.settle(w.now, actions);
  const auto bytes = w.core.snapshot(codec);
  REQUIRE(bytes.has_value());
  Core next(Looping::limited(50, "/folder/own"));
  REQUIRE(next.restore(*bytes, codec).has_value());
  next.check_invariants();
  CHECK(next.digest() == w.core.digest());
  Options options = Looping::limited(50, "/folder/other");
  options.term = 2;
  actions.clear();
  next.begin_life(options, w.now, actions);
  std::vector<Event> none;
  next.step(none, w.now, actions);
  next.check_invariants();
  std::optional<names::Folder> folder;
  for (const Action& action : actions) {
    const auto* sent = std::get_if<Send>(&action);
    const auto* log = sent == nullptr ? nullptr : std::get_if<msg::Log>(&sent->message);
    for (std::size_t i = 0; log != nullptr && i < log->entries.size(); ++i) {
      const auto* plan = std::get_if<msg::Plan>(&log->entries[i]);
      if (plan != nullptr) folder = *names::parse_folder(plan->ops.at(0).op.get<ir::CallAttrs>().params);
    }
  }
  REQUIRE(folder.has_value());
  CHECK(folder->first);
  CHECK(folder->path == "/folder/other");
  CHECK(folder->keep.size() == 1);
  CHECK(folder->marker > w.last_folder(1).marker);  // what that life has marked is not taken for this one's
}

TEST_CASE("who looked at the folder of the life before says nothing about the one of this life") {
  OnDisk w;
  w.turns(2);
  w.add(2);
  const std::vector<msg::PlannedOp> before = w.told(names::kTend, 2);
  REQUIRE(before.size() == 1);
  Options options = Looping::limited(50, "/folder/other");
  options.term = 2;
  w.actions.clear();
  w.core.begin_life(options, w.now, w.actions);
  w.step({});
  CHECK(w.told(names::kTend, 2).size() == 1);
  w.complete(msg::Plan{{}, 0, {before[0]}});
  std::vector<msg::PlannedOp> after = w.told(names::kTend, 1);
  if (const auto second = w.told(names::kTend, 2); second.size() > 1) after.push_back(second.back());
  const auto folder = names::parse_folder(after.back().op.get<ir::CallAttrs>().params);
  REQUIRE(folder.has_value());
  CHECK(folder->path == "/folder/other");
  CHECK(folder->first);  // nobody has seen this one
}

}  // namespace
}  // namespace tilewise::scheduler::test
