// For tests of what a loss costs: a small true world behind a core. It knows of each task whether it was begun or is over, what it
// has read, and where every copy of a block is; workers say to the core what is true there, some of it late.
//
// Which blocks a task reads is found element by element, not with ir::Geometry: the core's recovery shares nothing with it.
#pragma once
#include <tilewise/base/prng.h>
#include <tilewise/ir/infer.h>
#include <tilewise/msg/ranges.h>

#include "core_world.h"

#include <set>

namespace tilewise::scheduler::test {

using BlockNo = std::size_t;  // of all blocks of all arrays, in the order in which they were planned

// ---- which blocks a task reads, from what its op means ----

// The logical elements of the operand that block `at` of the result is computed from.
inline ir::Box elements(const ir::Op& op, std::size_t operand, const ir::Index& at) {
  ir::Box box = op.space.box(at);
  const ir::Shape& shape = op.operands[operand].view.shape;
  switch (op.kind) {
    case ir::OpKind::kMap:
    case ir::OpKind::kReduceBlocks: break;
    case ir::OpKind::
        kCopy:  // gathers what another op wants cut otherwise, from one array or from parts of one side by side
      for (int d = 0; d < box.rank(); ++d) {
        const std::int64_t by = op.get<ir::CopyAttrs>().maps[operand][d].before;
        REQUIRE(op.get<ir::CopyAttrs>().maps[operand][d] ==
                ir::DimMap{ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, by, -by});
        box.lo[d] = std::max<std::int64_t>(0, box.lo[d] - by);
        box.hi[d] = std::min(shape[d], box.hi[d] - by);
      }
      break;
    case ir::OpKind::kMatmul: {  // whole rows of the first, whole columns of the second
      const int d = operand == 0 ? 1 : 0;
      box.lo[d] = 0;
      box.hi[d] = shape[d];
      break;
    }
    case ir::OpKind::kCombine: {
      const auto& a = op.get<ir::CombineAttrs>();
      box.lo[a.axis] *= a.fan_in;
      box.hi[a.axis] = std::min(box.hi[a.axis] * a.fan_in, shape[a.axis]);
      break;
    }
    default: FAIL("an op of a kind that this test does not make");
  }
  return box;
}

inline std::set<std::int64_t> blocks_read(const ir::Op& op, std::size_t operand, const ir::Index& at,
                                          const ir::Grid& source) {
  std::set<std::int64_t> blocks;
  const ir::Box box = elements(op, operand, at);
  const ir::View& view = op.operands[operand].view;
  for (std::int64_t i = 0; i < box.volume(); ++i) {
    const ir::Index inside = ir::unravel(i, box.shape());
    std::int64_t block = 0;
    for (int d = 0; d < source.rank(); ++d) {
      const ir::SourceDim& walk = view.source[d];
      const std::int64_t element =
          walk.start + (walk.dim < 0 ? 0 : walk.step * (box.lo[walk.dim] + inside[walk.dim]));
      block = block * source.dim(d).count() + source.dim(d).find(element);
    }
    blocks.insert(block);
  }
  return blocks;
}

// What a task has of a block that it reads. Of several reads, one after the other, those that are over need the block no more.
enum class Has { kNothing, kCopy, kRead };

struct Block {  // and the task that makes it, which reads `inputs`
  std::size_t array = 0;
  std::int64_t number = 0;
  enum { kIdle, kBegun, kMade } task = kIdle;
  OpId maker;  // the op or layer that stands for it
  DeviceId owner;
  std::vector<std::pair<BlockNo, Has>> inputs;
  std::vector<BlockNo> readers;
  std::set<DeviceId> copies;
};

struct Array {
  ArrayId id;
  ir::Grid grid;
  BlockNo first = 0;
  bool several_steps = false;  // its tasks read one input after the other
  bool held = false;
};

struct Fetch {  // by the client
  std::uint64_t request = 0;
  std::size_t array = 0;
  std::set<std::int64_t> got;
  // Of those: lost since, with this owner, and the scheduler knows that nobody waits for them.
  std::map<std::int64_t, DeviceId> settled;
};

struct Share {  // of an op or a layer, in the order in which its device begins the tasks
  std::vector<BlockNo> blocks;
  std::int64_t next = 0;
  std::int64_t told = 0;  // how many the scheduler knows to be over
};

class TrueWorld : public World {
 public:
  explicit TrueWorld(std::uint64_t seed) : World(options(seed)), prng(seed) {
    const auto size = static_cast<std::uint32_t>(prng.between(3, 4));
    for (std::uint32_t conn = 1; conn <= size; ++conn)
      add_worker(conn, static_cast<int>(prng.between(1, 2)), "w" + std::to_string(conn));
    join(kClient, client());
    delivers = false;
  }

  // A request of some ops on arrays of its own and on those that the client holds; of some it holds the results.
  void submit_some(std::uint64_t request) {
    std::vector<ir::Op> ops;
    std::vector<std::uint64_t> holds;
    std::vector<Named> known = held_;
    std::vector<DeviceId> devices;
    for (const auto& [conn, welcome] : workers)
      devices.insert(devices.end(), welcome.devices.begin(), welcome.devices.end());
    for (std::int64_t left = prng.between(2, 7); left > 0; --left) {
      ir::Op op = any_op(++named_, known);
      for (const DeviceId device : devices)
        if (prng.chance(0.4)) op.hint.devices.push_back(device);  // nobody: the scheduler chooses
      op.label = std::to_string(named_);
      known.push_back({named_, op.outputs[0].grid});
      if (prng.chance(0.3) || left == 1) {
        holds.push_back(named_);
        held_.push_back(known.back());
      }
      ops.push_back(std::move(op));
    }
    for (const Named& array : std::vector<Named>(known))
      if (prng.chance(0.1)) ops.push_back(fetch(array.number, array.grid));
    REQUIRE(submit(kClient, request, std::move(ops), holds).outcome.ok());
    learn(log<msg::Plan>(workers[0].first).back(), request);
  }

  // Tasks are begun, read and end; the client lets arrays go; workers report, and free what nobody needs any more.
  void progress() {
    for (std::size_t left = prng.below(8 * blocks.size() + 1); left > 0; --left)
      advance(blocks[prng.below(blocks.size())]);
    for (Block& block : blocks) {  // a copy serves all tasks of its device
      if (block.task != Block::kBegun) continue;
      for (auto& [input, has] : block.inputs)
        if (has == Has::kNothing && blocks[input].copies.contains(block.owner)) has = Has::kCopy;
    }
    for (Fetch& fetch : fetches) {
      const Array& array = arrays[fetch.array];
      for (std::int64_t i = 0; i < array.grid.block_count(); ++i) {
        const Block& block = blocks[array.first + static_cast<BlockNo>(i)];
        if (block.copies.contains(block.owner) && prng.chance(0.3)) fetch.got.insert(i);
      }
    }
    for (std::size_t i = 0; i < fetches.size(); ++i)
      if (const std::uint64_t request = fetches[i].request; has_all(request) && prng.chance(0.7))
        deliver(request);
    for (const Named& array : std::vector<Named>(held_)) {
      if (!prng.chance(0.25)) continue;
      std::erase(held_, array);
      arrays[by_number_.at(array.number)].held = false;
      receive(kClient, msg::ReleaseArrays{{array.number}});
    }
    for (const auto& [conn, welcome] : std::vector(workers)) {
      msg::Progress report;
      for (auto& [key, share] : shares) {
        const auto& [op, device] = key;
        if (std::find(welcome.devices.begin(), welcome.devices.end(), device) == welcome.devices.end())
          continue;
        const auto made = std::count_if(
            share.blocks.begin(), share.blocks.begin() + share.next, [&, maker = op](BlockNo no) {
              return blocks[no].maker != maker || blocks[no].task == Block::kMade;  // or was made, then lost
            });
        share.told = prng.chance(0.7) ? made : prng.between(share.told, made);
        report.ops.push_back({op, device, share.told, 0});
      }
      receive(conn, report);
    }
    for (BlockNo no = 0; no < blocks.size(); ++no) {
      std::erase_if(blocks[no].copies,
                    [&](DeviceId device) { return !kept_on(blocks[no], no, device) && prng.chance(0.5); });
    }
  }

  void deliver(std::uint64_t request) {
    std::erase_if(fetches, [&](const Fetch& fetch) { return fetch.request == request; });
    World::deliver(kClient, request);
  }

  // What workers were told to forget is nowhere.
  void forget() {
    for (const msg::Retire& retire : log<msg::Retire>(workers[0].first)) {
      for (const OpId id : retire.ops) {
        const auto op = by_op.find(id);
        if (op == by_op.end() || !forgotten_.insert(id).second) continue;
        const Array& array = arrays[op->second];
        for (std::int64_t i = 0; i < array.grid.block_count(); ++i)
          blocks[array.first + static_cast<BlockNo>(i)].copies.clear();
      }
    }
  }

  bool alive(DeviceId id) const {
    return std::any_of(workers.begin(), workers.end(), [&](const auto& worker) {
      const std::vector<DeviceId>& devices = worker.second.devices;
      return std::find(devices.begin(), devices.end(), id) != devices.end();
    });
  }

  // The truth about what one worker has of the ops that the scheduler asks for.
  msg::Held answer(const msg::PeerLost& lost, const msg::Welcome& worker) {
    msg::Held held;
    held.version = lost.version;
    std::set<std::size_t> asked;
    for (const OpId op : lost.ops)
      if (by_op.contains(op)) asked.insert(by_op.at(op));  // others are fetches
    for (const DeviceId device : worker.devices) {
      for (const OpId op : lost.ops) {
        const auto share = shares.find({op, device});
        if (share == shares.end()) continue;
        std::set<std::int64_t> begun;
        for (const BlockNo no : share->second.blocks)
          if (blocks[no].maker == op && blocks[no].task == Block::kBegun) begun.insert(blocks[no].number);
        held.shares.push_back({op, device, share->second.next, {}});
        for (const std::int64_t block : begun) msg::append(held.shares.back().begun, block);
      }
      for (const std::size_t array : asked) {
        msg::Held::Blocks told{arrays[array].id, device, {}, {}};
        for (std::int64_t i = 0; i < arrays[array].grid.block_count(); ++i) {
          const BlockNo no = arrays[array].first + static_cast<BlockNo>(i);
          if (blocks[no].copies.contains(device))
            msg::append(told.sealed, i);
          else if (!alive(blocks[no].owner) && has_reader(no, Has::kNothing, device))
            msg::append(told.wanted, i);
        }
        if (!told.sealed.empty() || !told.wanted.empty()) held.blocks.push_back(std::move(told));
      }
    }
    return held;
  }

  // And about what the client has got.
  msg::Held answer(const msg::PeerLost& lost) {
    msg::Held held;
    held.version = lost.version;
    for (const Fetch& fetch : fetches) {
      msg::Held::Fetch told{fetch.request, arrays[fetch.array].id, {}};
      for (std::int64_t i = 0; i < arrays[fetch.array].grid.block_count(); ++i)
        if (!fetch.got.contains(i)) msg::append(told.missing, i);
      held.fetches.push_back(std::move(told));
    }
    return held;
  }
  // The client has all that the request fetches.
  bool has_all(std::uint64_t request) const {
    return std::all_of(fetches.begin(), fetches.end(), [&](const Fetch& fetch) {
      return fetch.request != request || std::ssize(fetch.got) == arrays[fetch.array].grid.block_count();
    });
  }

  // Some task that was begun, there or on any living device, has this of the block.
  bool has_reader(BlockNo no, Has what, DeviceId device = {}) const {
    const std::vector<BlockNo>& readers = blocks[no].readers;
    return std::any_of(readers.begin(), readers.end(), [&](BlockNo r) {
      const Block& reader = blocks[r];
      if (reader.task != Block::kBegun || !alive(reader.owner)) return false;
      return (!device || reader.owner == device) && of(reader, no) == what;
    });
  }

  static constexpr std::uint32_t kClient = 10;

  Prng prng;
  std::vector<Array> arrays;
  std::vector<Block> blocks;
  std::vector<Fetch> fetches;         // of requests of which the client has not said that all is there
  std::map<OpId, std::size_t> by_op;  // the arrays whose blocks an op or a layer makes
  std::map<std::pair<OpId, DeviceId>, Share> shares;
  std::set<ir::OpKind> kinds;  // of all ops

 private:
  static Options options(std::uint64_t seed) {
    Options options;
    // The plan has the ops that were asked for, besides what lowering makes of them, also those that nobody reads.
    options.passes_off = {"dead-code",    "common-subexpressions", "shared-moments", "fusion",
                          "shared-tapes", "shared-gathers",        "memory-order"};
    options.max_recompute_ns = 0;  // no anchors: copies that were not asked for
    options.pieces_always = seed % 2 == 0;
    return options;
  }

  // ---- requests ----

  struct Named {  // an array as the client knows it
    std::uint64_t number = 0;
    ir::Grid grid;
    friend bool operator==(const Named&, const Named&) = default;
  };

  const Named& any(const std::vector<Named>& of) { return of[prng.below(of.size())]; }

  // The whole of an array as it is, or turned over, or mirrored, or one line of it again and again.
  ir::View any_view(const ir::Grid& of) {
    ir::View view = ir::View::identity(of.shape());
    const int axis = static_cast<int>(prng.below(2));
    const std::uint64_t how = of.shape() == kShape ? prng.below(6) : 0;
    if (how == 1) view = *view.transpose();
    if (how == 2) view = *view.slice(axis, std::nullopt, std::nullopt, -1);
    if (how == 3) {
      const auto line = static_cast<std::int64_t>(prng.below(8));
      view = *view.slice(axis, line, line + 1, 1);
    }
    return *view.broadcast_to(kShape);
  }

  ir::Op any_op(std::uint64_t out, const std::vector<Named>& known) {
    static const std::vector<ir::Shape> cuts{{2, 2}, {4, 2}, {4, 4}, {3, 3}, {8, 2}, {2, 8}};
    const ir::Grid cut = grid(kShape, cuts[prng.below(cuts.size())]);
    const std::uint64_t kind = known.empty() ? 0 : prng.below(8);
    if (kind == 0) return fill(out, cut);
    const Named &a = any(known), &b = any(known);
    if (kind <= 2 && a.grid.shape() == kShape && b.grid.shape() == kShape) {
      ir::Op op = matmul(out, a.grid, a.number, b.grid, b.number);
      op.attrs = ir::MatmulAttrs{1};  // one sum over k
      return op;
    }
    if (kind == 3 && a.grid.shape() == kShape) {
      static const std::vector<std::vector<int>> axes{{0}, {1}, {0, 1}};
      const ir::Source source = ir::Source::of(a.number, ir::DType::kFloat64, a.grid);
      ir::Op op = *ir::infer_reduce(source, ir::ReduceKind::kSum, axes[prng.below(3)], true)->op;
      op.outputs[0].array = out;
      return op;
    }
    std::vector<std::uint64_t> in{a.number};
    if (prng.chance(0.5)) in.push_back(b.number);
    ir::Op op = map(out, cut, in);
    op.operands[0].view = any_view(a.grid);
    if (in.size() > 1) op.operands[1].view = any_view(b.grid);
    return op;
  }

  void learn(const msg::Plan& plan, std::uint64_t request) {
    for (const msg::PlannedOp& planned : plan.ops) {
      const ir::Op& op = planned.op;
      if (op.kind == ir::OpKind::kFetch) {
        fetches.push_back({request, by_id_.at(op.operands.at(0).array), {}});
        continue;
      }
      const ir::OutputSpec& output = op.outputs.at(0);
      const std::size_t index = arrays.size();
      kinds.insert(op.kind);
      const bool held =
          std::find(plan.holds.begin(), plan.holds.end(), ArrayId{output.array}) != plan.holds.end();
      arrays.push_back(
          {ArrayId{output.array}, output.grid, blocks.size(),
           op.kind == ir::OpKind::kMatmul || op.kind == ir::OpKind::kCopy || op.kind == ir::OpKind::kCombine,
           held});
      by_id_[output.array] = index;
      by_op[planned.id] = index;
      if (held) by_number_[std::stoull(op.label)] = index;
      const ir::Shape counts = output.grid.counts();
      for (std::int64_t i = 0; i < output.grid.block_count(); ++i) {
        const ir::Index at = ir::unravel(i, counts);
        std::set<BlockNo> inputs;
        for (std::size_t o = 0; o < op.operands.size(); ++o) {
          const Array& source = arrays[by_id_.at(op.operands[o].array)];
          for (const std::int64_t block : blocks_read(op, o, at, source.grid))
            inputs.insert(source.first + static_cast<BlockNo>(block));
        }
        Block block{index, i, Block::kIdle, planned.id, planned.placement.owner(at), {}, {}, {}};
        for (const BlockNo input : inputs) {
          block.inputs.emplace_back(input, Has::kNothing);
          blocks[input].readers.push_back(blocks.size());
        }
        blocks.push_back(std::move(block));
      }
      for (const DeviceId device : planned.placement.devices()) {
        Share& share = shares[{planned.id, device}];
        for (std::int64_t i = 0; i < planned.placement.owned_count(device); ++i)
          share.blocks.push_back(arrays[index].first +
                                 static_cast<BlockNo>(ir::ravel(planned.placement.nth(device, i), counts)));
      }
    }
  }

  // ---- work ----

  static Has of(const Block& reader, BlockNo no) {
    return std::find_if(reader.inputs.begin(), reader.inputs.end(),
                        [&](const auto& input) { return input.first == no; })
        ->second;
  }

  // Something happens to a task, if it can.
  void advance(Block& block) {
    if (!alive(block.owner) || block.task == Block::kMade) return;
    if (block.task == Block::kIdle) {
      Share& share = shares.at({block.maker, block.owner});
      blocks[share.blocks.at(static_cast<std::size_t>(share.next++))].task = Block::kBegun;
      return;
    }
    bool complete = true;
    for (auto& [input, has] : block.inputs) {
      Block& source = blocks[input];
      if (has == Has::kNothing && source.copies.contains(source.owner) && prng.chance(0.8)) {
        has = Has::kCopy;
        source.copies.insert(block.owner);
      } else if (has == Has::kCopy && arrays[block.array].several_steps && prng.chance(0.3)) {
        has = Has::kRead;
      }
      complete &= has != Has::kNothing;
    }
    if (!complete) return;
    block.task = Block::kMade;
    block.copies.insert(block.owner);
  }

  bool is_awaited(const Block& block) const {
    return std::any_of(fetches.begin(), fetches.end(), [&](const Fetch& fetch) {
      return fetch.array == block.array && !fetch.got.contains(block.number);
    });
  }

  // Whether the device must keep its copy: it has promised it to readers that have none yet, or its own tasks are at it.
  bool kept_on(const Block& block, BlockNo no, DeviceId device) const {
    const bool owner = device == block.owner;
    if (owner && (arrays[block.array].held || is_awaited(block))) return true;
    return std::any_of(block.readers.begin(), block.readers.end(), [&](BlockNo r) {
      const Block& reader = blocks[r];
      if (reader.task == Block::kMade || !alive(reader.owner)) return false;
      if (reader.task == Block::kIdle) return owner;
      const Has has = of(reader, no);
      return has == Has::kNothing ? owner : has == Has::kCopy && reader.owner == device;
    });
  }

  const ir::Shape kShape{8, 8};                     // of all arrays but sums
  std::vector<Named> held_;                         // by the client
  std::uint64_t named_ = 0;                         // arrays, so far
  std::map<std::uint64_t, std::size_t> by_id_;      // arrays, as the scheduler names them
  std::map<std::uint64_t, std::size_t> by_number_;  // and as the client does
  std::set<OpId> forgotten_;
};

}  // namespace tilewise::scheduler::test
