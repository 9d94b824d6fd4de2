// For tests: the worker core as lists, events in, actions compared; every step is followed by a full check.
#pragma once
#include <tilewise/worker/core.h>

#include <doctest/doctest.h>

#include <deque>
#include <memory>

namespace tilewise::worker::test {

constexpr DeviceId kHere{1}, kPeer{2}, kClient{3};
constexpr WorkerId kSelf{1}, kOther{2}, kClientProcess{3};

// What the scheduler was told of blocks that are here; none: nullptr.
inline const msg::Held* told(const Actions& actions) {
  for (const msg::Message& m : actions.to_scheduler)
    if (const auto* held = std::get_if<msg::Held>(&m)) return held;
  return nullptr;
}

inline ir::Op source(std::uint64_t array, std::int64_t blocks, std::int64_t extent = 8) {
  ir::Op op;
  op.kind = ir::OpKind::kMap;
  op.space = *ir::Grid::uniform({blocks * extent}, {extent});
  op.outputs.push_back({array, ir::DType::kFloat64, op.space});
  op.attrs = ir::MapAttrs{{{ir::TapeInstr{}}}};
  return op;
}

inline ir::Op map_of(std::uint64_t from, std::uint64_t array, const ir::Grid& grid) {
  ir::Op op = source(array, 1);
  op.space = op.outputs[0].grid = grid;
  op.operands.push_back({from, ir::View::identity(grid.shape())});
  ir::TapeInstr load;
  load.op = ir::TapeOp::kLoad;
  op.attrs = ir::MapAttrs{{{load}}};
  return op;
}

// Both outputs of one tape are the sum of the operands.
inline ir::Op maps_of(std::vector<std::uint64_t> from, std::uint64_t array, const ir::Grid& grid) {
  ir::Op op = source(array, 1);
  op.space = op.outputs[0].grid = grid;
  op.outputs.push_back({array + 1, ir::DType::kFloat64, grid});
  ir::Tape tape;
  for (std::size_t i = 0; i < from.size(); ++i) {
    op.operands.push_back({from[i], ir::View::identity(grid.shape())});
    tape.code.push_back({.op = ir::TapeOp::kLoad, .imm_i = static_cast<std::int64_t>(i)});
  }
  if (from.size() > 1) tape.code.push_back({.op = ir::TapeOp::kAdd, .a = 0, .b = 1});
  const auto last = static_cast<std::uint16_t>(tape.code.size() - 1);
  tape.outputs = {last, last};
  op.attrs = ir::MapAttrs{std::move(tape)};
  return op;
}

// A kernel that writes two results, of blocks of so many elements each.
inline ir::Op pair_of(std::uint64_t array, std::int64_t extent, std::int64_t blocks = 1) {
  ir::Op op = source(array, blocks, extent);
  op.kind = ir::OpKind::kCall;
  op.outputs.push_back({array + 1, ir::DType::kFloat64, op.space});
  op.attrs = ir::CallAttrs{.kernel = "pair"};
  return op;
}

// A second copy of every block.
inline ir::Op keep_of(std::uint64_t from, const ir::Grid& grid) {
  ir::Op op;
  op.kind = ir::OpKind::kKeep;
  op.space = grid;
  op.operands.push_back({from, ir::View::identity(grid.shape())});
  op.attrs = ir::FetchAttrs{};
  return op;
}

inline ir::Op fetch_of(std::uint64_t from, const ir::Grid& grid) {
  ir::Op op;
  op.kind = ir::OpKind::kFetch;
  op.space = grid;
  op.operands.push_back({from, ir::View::identity(grid.shape())});
  op.attrs = ir::FetchAttrs{kClient};
  return op;
}

inline msg::PlannedOp on(DeviceId device, std::uint64_t id, ir::Op op) {
  const ir::Shape counts = op.space.counts();
  return {OpId{id}, std::move(op),
          ir::Placement::whole(counts, ir::Rule::constant(static_cast<int>(counts.size()), device)), false};
}

struct Lists {
  explicit Lists(std::int64_t memory = 1 << 20, std::int32_t queue_steps = 256, std::int64_t disk = 0)
      : Lists(options_of({kHere, 0, memory, memory, 1, disk > 0}, queue_steps, disk)) {}
  static Options options_of(const DeviceSpec& device, std::int32_t queue_steps = 256, std::int64_t disk = 0) {
    Options options;
    options.self = kSelf;
    options.devices.push_back(device);
    options.spill_bytes = disk;
    options.window = 8;
    options.queue_steps = queue_steps;
    return options;
  }
  explicit Lists(Options options, const msg::DeviceDesc& peers_device = {.name = "host:0"}) {
    core = std::make_unique<Core>(options);
    msg::PeerInfo peer{kOther, msg::Role::kWorker, "other", "host", {}, {kPeer}, {peers_device}};
    msg::PeerInfo client{kClientProcess, msg::Role::kClient, "client", "host", {}, {kClient}, {}};
    log({msg::PeerJoined{peer}, msg::PeerJoined{client}});
    step({PeerReady{kOther, true}});
  }
  const Actions& step(std::vector<Event> events) {
    now += kMicrosecond;
    core->step(events, now, actions);
    core->check_invariants();
    for (const AddSlab& slab : std::vector<AddSlab>(actions.slabs)) {  // the shell always obliges
      std::vector<Launch> launches = actions.launches;
      std::vector<msg::TracedStep> notes = actions.notes;
      std::vector<Vacated> vacated = actions.vacated;
      std::vector<TierIo> ios = actions.ios;
      std::vector<Relocate> relocations = actions.relocations;
      std::vector<Event> added{SlabAdded{slab.device, slab.bytes, true, lends}};
      core->step(added, now, actions);
      actions.launches.insert(actions.launches.begin(), launches.begin(), launches.end());
      actions.notes.insert(actions.notes.begin(), notes.begin(), notes.end());
      actions.vacated.insert(actions.vacated.begin(), vacated.begin(), vacated.end());
      actions.ios.insert(actions.ios.begin(), ios.begin(), ios.end());
      actions.relocations.insert(actions.relocations.begin(), relocations.begin(), relocations.end());
    }
    return actions;
  }
  const Actions& log(std::vector<msg::LogEntry> entries) {
    msg::Log log{1, next, std::move(entries)};
    next += log.entries.size();
    return step({log});
  }
  const Actions& completed(std::uint64_t sequence) { return step({StreamCompleted{0, 0, sequence}}); }
  const Actions& from_peer(msg::PeerBatch batch, WorkerId peer = kOther) {
    return step({PeerBatchReceived{peer, std::move(batch)}});
  }

  std::unique_ptr<Core> core;
  bool lends = false;  // slabs can be opened by peers
  Actions actions;
  TimeNs now = 0;
  std::uint64_t next = 1;
};

inline msg::Plan plan_of(std::vector<msg::PlannedOp> ops, std::vector<ArrayId> holds = {},
                         std::uint64_t graph = 1) {
  return {GraphId{graph}, 0, std::move(ops), std::move(holds)};
}

// What op `of` made is made again by `id`, all of it, on a device.
inline msg::Recover made_again(std::uint64_t version, std::uint64_t id, std::uint64_t of, ir::Op op,
                               DeviceId device) {
  const std::int64_t blocks = op.space.block_count();
  msg::PlannedOp layer{OpId{id}, std::move(op), {}, false, OpId{of}};
  layer.placement = ir::Placement::of_runs(layer.op.space.counts(), {{0, blocks, device}});
  return {version, {plan_of({std::move(layer)})}};
}

}  // namespace tilewise::worker::test
