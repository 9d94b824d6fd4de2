#include <tilewise/ir/cost.h>
#include <tilewise/place/levels.h>

#include <algorithm>
#include <queue>

#include "paper_state.h"

namespace tilewise::place {
namespace {

constexpr std::int64_t kReadsAStep = 4;  // on average, of plans that are looked at whole

class Run : PaperState {
 public:
  Run(std::span<const SimOp> ops, std::span<const SimArray> arrays, std::span<const Device> devices,
      const Speeds& speeds, const SimOptions& options, bool bounded, Simulation& out)
      : PaperState(ops, arrays, devices, speeds, options, bounded, out) {
    if (options.by_level) find_levels(devices);
  }

  bool small_enough() {
    double steps = 0;
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      const SimOp& op = ops_[o];
      if (op.geometry == nullptr) {
        for (const std::size_t array : op.inputs)
          steps += static_cast<double>(arrays_[array].source.grid.block_count());
        continue;
      }
      const std::int64_t points = op.geometry->point_count();
      if (points == 0) continue;
      const ir::Index middle = op.geometry->point(points / 2);
      SimOpResult& result = out_.ops[o];
      result.tasks = points;
      const double all = static_cast<double>(points) * static_cast<double>(op.geometry->steps(middle));
      result.steps = static_cast<std::int64_t>(std::min(all, 1e15));
      result.flops = op.geometry->flops(middle) * static_cast<double>(points);
      steps += static_cast<double>(result.steps);
      if (!asked(o)) continue;
      out_.tasks += result.tasks;
      out_.steps += result.steps;
      out_.flops += result.flops;
    }
    return steps <= static_cast<double>(options_.max_steps);
  }

  void run() {
    if (!build()) return;
    if (bounded_) furnish();
    for (Index p = 0; p < static_cast<Index>(places_.size()); ++p) {
      for (std::uint32_t g = 0; g < options_.graphs.size(); ++g) expand(p, g);
    }
    for (const Index copy : fetched_) request(copy);
    for (Index p = 0; p < static_cast<Index>(places_.size()); ++p) dispatch(p);
    do {
      while (!events_.empty()) {
        const Event event = events_.top();
        events_.pop();
        now_ = event.at;
        switch (event.what) {
          case Event::kStepEnds: ended(event.index); break;
          case Event::kPartComes: begun(event.index); break;
          case Event::kCopyComes: arrived(event.index); break;
        }
        if (bounded_) stir();
      }
    } while (bounded_ && go_without_room());
    finish();
  }

 private:
  // ---- what there is to do ----

  void find_levels(std::span<const Device> devices) {
    Levels levels(devices, speeds_);
    std::vector<Input> inputs;
    for (const SimOp& op : ops_) {
      inputs.clear();
      for (const std::size_t array : op.inputs)
        inputs.push_back({&arrays_[array].source, arrays_[array].placement});
      levels.add(*op.op, op.geometry, *op.placement, inputs);
    }
    levels_ns_ = levels.nanoseconds();
  }

  // False: more steps, or reads, than may be looked at.
  bool build() {
    readers_.resize(arrays_.size());
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      for (const std::size_t array : ops_[o].inputs) {
        if (readers_[array].empty() || readers_[array].back() != o) readers_[array].push_back(o);
      }
    }
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      const SimOp& op = ops_[o];
      for_asked_ = asked(o);
      added_ = o;
      if (op.geometry == nullptr) {
        if (op.inputs.empty()) continue;  // kProvide: its blocks exist
        const Index client = place(op.to);
        for (std::int64_t b = 0; b < arrays_[op.inputs[0]].source.grid.block_count(); ++b) {
          const Index copy = copy_at(op.inputs[0], b, client);
          see_reader(copy, o);
          if (at_(copy).home != kNone) fetched_.push_back(copy);
        }
        continue;
      }
      for (const DeviceId device : op.placement->devices()) {
        const std::int64_t owned = op.placement->owned_count(device);
        const Index here = place(device);
        for (std::int64_t i = 0; i < owned; ++i) {
          if (!add_task(o, here, op.placement->nth(device, i))) return false;
        }
      }
    }
    return true;
  }
  void see_reader(Index copy, std::size_t op) {
    if (!levels_ns_.empty()) at_(copy).level = std::max(at_(copy).level, levels_ns_[op]);
  }
  bool add_task(std::size_t o, Index here, const ir::Index& point) {
    const SimOp& op = ops_[o];
    Task task;
    task.op = o;
    task.device = here;
    task.point = ir::ravel(point, op.geometry->counts());
    task.steps = op.geometry->steps(point);
    looked_at_ += task.steps;
    std::int64_t largest = 0;
    for (std::int64_t s = 0; s < task.steps; ++s) {
      std::int64_t bytes = 0;
      op.geometry->reads(point, s, reads_);
      looked_at_ += static_cast<std::int64_t>(reads_.size());
      if (looked_at_ > kReadsAStep * options_.max_steps) return false;
      for (const ir::Read& read : reads_) {
        const Index used = copy_at(op.inputs[read.operand], read.block, here);
        see_reader(used, o);
        Copy& copy = at_(used);
        ++copy.uses;
        if (bounded_) note_reader(used, static_cast<Index>(tasks_.size()));
        if (!copy.mapped || copy.home == kNone) bytes += rounded(copy.bytes);
        if (op.op->kind == ir::OpKind::kKeep && copy.home != kNone) copy.mapped = false, copy.keeps = true;
      }
      largest = std::max(largest, bytes);
    }
    for (const std::size_t array : op.outputs) {
      task.outputs.push_back(copy_at(array, task.point, here));
      largest += rounded(at_(task.outputs.back()).bytes);
    }
    if (Place& there = places_[static_cast<std::size_t>(here)]; there.memory) {
      there.reserve = std::max(there.reserve, largest);
      there.tasks.push_back(static_cast<Index>(tasks_.size()));
    }
    std::vector<Queue::Share>& shares = queue_of(task).shares;
    if (shares.empty() || shares.back().op != o) shares.push_back({o, tasks_.size(), tasks_.size()});
    tasks_.push_back(std::move(task));
    ++shares.back().end;
    return true;
  }

  // ---- memory that is bounded ----

  // Who waits for memory that has come free.
  void stir() {
    for (Index p = 0; p < static_cast<Index>(places_.size()); ++p) {
      Place& here = places_[static_cast<std::size_t>(p)];
      if (!std::exchange(here.stirred, false)) continue;
      while (!here.arriving.empty()) {
        const auto [copy, sender, earliest] = here.arriving.front();
        if (!make_room_for(copy)) break;
        here.arriving.pop_front();
        transmit(copy, sender, earliest);
      }
      dispatch(p);
    }
  }
  // Nothing is under way, and somebody waits for room: the lowest task goes on without it. False: nobody does.
  bool go_without_room() {
    for (Place& here : places_) here.stirred = true;
    stir();
    if (!events_.empty()) return true;
    Index lowest = kNone;
    for (Place& here : places_) {
      for (const Queue& queue : here.queues) {
        queue.ready.for_each([&](std::uint32_t task) {
          const auto t = static_cast<Index>(task);
          if (lowest == kNone || t < lowest) lowest = t;
        });
      }
    }
    if (lowest != kNone) {
      const Task& task = tasks_[static_cast<std::size_t>(lowest)];
      queue_of(task).ready.erase(static_cast<std::uint32_t>(lowest));
      if (start_in(task.device, lowest, false)) return true;  // behind others that were tried before it
      const Wants w = wants(task);
      tell_need(task.op, places_[static_cast<std::size_t>(task.device)], w.inputs, w.outputs, w.missing);
      start_in(task.device, lowest, true);
      return true;
    }
    for (Place& here : places_) {
      if (here.arriving.empty()) continue;
      const auto [copy, sender, earliest] = here.arriving.front();
      here.arriving.pop_front();
      tell_need(at_(copy).reader, here, at_(copy).bytes, 0, at_(copy).bytes);
      transmit(copy, sender, earliest, true);
      return true;
    }
    return false;
  }

  // ---- blocks on their way ----

  void request(Index copy) {
    Copy& c = at_(copy);
    if (c.home == kNone || std::exchange(c.requested, true)) return;
    if (at_(c.home).ready)
      send(copy);
    else
      at_(c.home).wanted.push_back(copy);
  }
  void send(Index copy) {
    const Index home = at_(copy).home;
    const Index sender = is_far(home, copy) ? place_in_tree(home, copy) : home;
    if (sender == home) return transmit(copy, home, now_);
    at_(copy).sender = sender;
    if (at_(sender).ready || at_(sender).begun)
      pass_on(copy, sender);
    else
      at_(sender).wanted.push_back(copy);
  }
  void begun(Index copy) {
    at_(copy).begun = true;
    for (const Index next : std::exchange(at_(copy).wanted, {})) pass_on(next, copy);
  }
  // The owner has to hear first that some of the bytes are there.
  void pass_on(Index copy, Index sender) {
    transmit(copy, sender, now_ + link(at_(sender).home, at_(sender).device).latency_s);
  }
  // `force`: whether there is room or not.
  void transmit(Index copy, Index sender, double earliest, bool force = false) {
    if (bounded_ && !force && !at_(copy).in_memory && !at_(copy).mapped && !make_room_for(copy)) {
      owner(copy).arriving.emplace_back(copy, sender, earliest);
      return;
    }
    Copy& c = at_(copy);
    Place &from = owner(sender), &to = owner(copy);
    LinkSpeed speed = link(c.home, c.device);
    if (sender != c.home || speed.mapped != c.mapped) speed = speeds_.copying(from.device, to.device);
    double start = now_, took = 0;
    if (!c.mapped) {
      take(copy);
      if (to.memory) note_peak(c.device);
      if (bounded_) use_memory(copy), use_memory(sender);
      if (from.memory && from.memory->is_below(sender))
        earliest = from.memory->read_below(sender, std::max(earliest, now_));
      start = std::max({earliest, from.sends_until, to.receives_until});
      took = speed.bytes_per_s > 0 ? static_cast<double>(c.bytes) / speed.bytes_per_s : 0;
      const double busy = took, part = first_part(copy) * took;
      if (sender != c.home && !at_(sender).ready) took = std::max(took, at_(sender).comes_s + part - start);
      c.comes_s = start + took;
      if (part < took) events_.push({start + part + speed.latency_s, ++number_, Event::kPartComes, copy});
      from.sends_until = to.receives_until = start + busy;
    }
    if (c.asked) {
      SimLink& total = links_[{from.device.id, to.device.id, c.mapped}];
      ++total.blocks;
      total.bytes += c.bytes;
      total.busy_s += took;
    }
    events_.push({start + took + (c.mapped ? 0.1 : 1) * speed.latency_s, ++number_, Event::kCopyComes, copy});
  }
  void arrived(Index copy) {
    Copy& c = at_(copy);
    c.ready = true;
    if (c.asked) end_s_ = now_;
    c.made_by = at_(c.home).made_by;
    c.chain_s = at_(c.home).chain_s;
    if (bounded_ && !c.mapped) end_use(c.sender != kNone ? c.sender : c.home), end_use(copy);
    if (!c.mapped) discharge(c.home);
    if (c.sender != kNone) discharge(c.sender);
    for (const Index next : std::exchange(c.wanted, {})) pass_on(next, copy);
    wake(copy);
    use(copy);
    let_go(copy);
    dispatch(c.device);
  }
  void wake(Index copy) {
    const std::vector<Index> waiters = std::exchange(at_(copy).waiters, {});
    for (std::size_t i = waiters.size(); i-- > 0;) consider(waiters[i], copy);  // the longest waiting first
  }

  // ---- tasks ----

  // As workers do (worker/core/tasks.cc): ops in order, a window of tasks of each graph at a time ...
  void expand(Index p, std::uint32_t graph) {
    for (;;) {
      Queue& queue = places_[static_cast<std::size_t>(p)].queues[graph];
      while (queue.front < queue.shares.size() &&
             queue.shares[queue.front].next == queue.shares[queue.front].end)
        ++queue.front;
      if (queue.front == queue.shares.size() || queue.live - queue.eager >= options_.window) return;
      const auto t = static_cast<Index>(queue.shares[queue.front].next++);
      ++queue.live;
      const Task& task = tasks_[static_cast<std::size_t>(t)];
      const SimOp& op = ops_[task.op];
      const ir::Index point = op.geometry->point(task.point);
      for (std::int64_t s = 0; s < task.steps; ++s) {
        op.geometry->reads(point, s, reads_);
        const std::vector<ir::Read> all = reads_;
        for (const ir::Read& read : all) request(copy_at(op.inputs[read.operand], read.block, p));
      }
      consider(t, kNone);
    }
  }
  // ... but first those tasks of later ops that have all they read, now that this copy has come.
  void use(Index copy) {
    const Index p = at_(copy).device;
    std::int64_t largest = 0;
    for (const std::size_t op : readers_[at_(copy).array]) {
      if (ops_[op].geometry == nullptr) continue;
      Queue& queue = places_[static_cast<std::size_t>(p)].queues[ops_[op].graph];
      const auto share = std::lower_bound(queue.shares.begin(), queue.shares.end(), op,
                                          [](const Queue::Share& s, std::size_t o) { return s.op < o; });
      if (share == queue.shares.end() || share->op != op) continue;
      const bool front = share - queue.shares.begin() <= static_cast<std::ptrdiff_t>(queue.front);
      while (share->next < share->end &&
             (front ? queue.live < 3 * options_.window : queue.eager < options_.window) &&
             all_here(static_cast<Index>(share->next), largest = 0)) {
        const auto t = static_cast<Index>(share->next++);
        Task& task = tasks_[static_cast<std::size_t>(t)];
        task.eager = !front;
        task.ready_s = now_;
        task.ready_by = copy;
        ++queue.live;
        queue.eager += task.eager ? 1 : 0;
        make_ready(t, true, largest);
      }
    }
  }
  // `largest`: of the blocks that it reads, in bytes.
  bool all_here(Index t, std::int64_t& largest) {
    const Task& task = tasks_[static_cast<std::size_t>(t)];
    const SimOp& op = ops_[task.op];
    const ir::Index point = op.geometry->point(task.point);
    for (std::int64_t s = task.steps; s-- > 0;) {
      op.geometry->reads(point, s, reads_);
      for (const ir::Read& read : reads_) {
        const Copy& c = at_(copy_at(op.inputs[read.operand], read.block, task.device));
        if (!c.ready) return false;
        largest = std::max(largest, c.bytes);
      }
    }
    return true;
  }
  // As workers do, with the same list.
  void make_ready(Index t, bool came, std::int64_t came_bytes) {
    const Task& task = tasks_[static_cast<std::size_t>(t)];
    ir::Runnable r{.task = static_cast<std::uint32_t>(t), .op = task.op, .came = came};
    for (const Index output : task.outputs) {
      for (Index c = output; c != kNone; c = at_(c).next) {
        r.awaited |= c != output;
        r.level = std::max(r.level, at_(c).level);
      }
    }
    r.reads_large = came_bytes >= ir::kLargeBytes;
    if (r.awaited || r.reads_large) r.grows_bytes = growth_of(task);
    queue_of(task).ready.push(r);
  }
  std::int64_t growth_of(const Task& task) {
    std::int64_t bytes = 0;
    for (const Index output : task.outputs) bytes += at_(output).bytes;
    if (task.next > 0 || bytes - given_way(task) <= ir::kLargeBytes) return 0;
    const SimOp& op = ops_[task.op];
    op.geometry->reads(op.geometry->point(task.point), 0, reads_);
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      const Index copy = copy_at(op.inputs[reads_[i].operand], reads_[i].block, task.device);
      const Copy& c = at_(copy);
      const auto same = [&](const ir::Read& read) {
        return copy_at(op.inputs[read.operand], read.block, task.device) == copy;
      };
      const auto here = reads_.begin() + static_cast<std::ptrdiff_t>(i);
      if (!c.in_memory || arrays_[c.array].held || std::any_of(reads_.begin(), here, same)) continue;
      if (c.uses == std::count_if(here, reads_.end(), same)) bytes -= c.bytes;
    }
    return bytes;
  }
  // Bytes of its results that take the memory of operands that nobody else reads later.
  std::int64_t given_way(const Task& task) {
    const SimOp& op = ops_[task.op];
    if (op.op->kind != ir::OpKind::kMap) return 0;
    const ir::Donors donors =
        ir::match_donors(op.outputs.size(), op.inputs.size(), [&](std::size_t o, std::size_t i) {
          const SimArray& source = arrays_[op.inputs[i]];
          return !source.held && !source.exists && readers_[op.inputs[i]].back() == task.op &&
                 *source.placement == *op.placement &&
                 ir::may_overwrite(*op.op, o, i, source.source.dtype, source.source.grid);
        });
    std::int64_t bytes = 0;
    for (std::size_t o = 0; o < op.outputs.size(); ++o)
      if (donors[o] >= 0) bytes += at_(task.outputs[o]).bytes;
    return bytes;
  }
  // `going_on`: one of its steps has just ended.
  void consider(Index t, Index came, bool going_on = false) {
    Task& task = tasks_[static_cast<std::size_t>(t)];
    const SimOp& op = ops_[task.op];
    op.geometry->reads(op.geometry->point(task.point), task.next, reads_);
    for (const ir::Read& read : reads_) {
      Copy& c = at_(copy_at(op.inputs[read.operand], read.block, task.device));
      if (c.ready) continue;
      c.waiters.push_back(t);
      return;
    }
    task.ready_s = now_;
    task.ready_by = came;
    if (going_on)
      queue_of(task).ready.push_first(static_cast<std::uint32_t>(t));
    else
      make_ready(t, came != kNone, came == kNone ? 0 : at_(came).bytes);
  }

  // Sessions by what they have had for their weight; of one session, by priority; else in turn.
  Queue* next_queue(Place& here) {
    Queue* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i < here.queues.size(); ++i) {
      const std::size_t at = (here.turn + i) % here.queues.size();
      if (here.queues[at].ready.empty()) continue;
      const SimGraph &mine = options_.graphs[at], &other = options_.graphs[best_at];
      if (best != nullptr && !(here.served[mine.session] < here.served[other.session]) &&
          !(mine.session == other.session && mine.priority > other.priority))
        continue;
      best = &here.queues[at], best_at = at;
    }
    if (best != nullptr) here.turn = best_at + 1;
    return best;
  }
  void dispatch(Index p) {
    Place& here = places_[static_cast<std::size_t>(p)];
    while (here.free_streams > 0) {
      Queue* queue = next_queue(here);
      if (queue == nullptr) return;
      if (here.memory) {
        if (!start_first_that_fits(p, *queue)) return;
        continue;
      }
      start_in(p, static_cast<Index>(queue->ready.take(is_short(here))), false);
    }
  }
  static bool is_short(const Place& here) {
    return here.device.memory_bytes > 0 && here.bytes > here.device.memory_bytes / 2;
  }
  // Of those that are ready, the first few: others may free what the first one waits for.
  bool start_first_that_fits(Index p, Queue& queue) {
    constexpr std::size_t kTried = 16;
    std::vector<std::uint32_t> refused;
    bool started = false;
    while (!started && refused.size() < kTried && !queue.ready.empty()) {
      const std::uint32_t t = queue.ready.take(is_short(places_[static_cast<std::size_t>(p)]));
      started = start_in(p, static_cast<Index>(t), false);
      if (!started) refused.push_back(t);
    }
    for (auto t = refused.rbegin(); t != refused.rend(); ++t) queue.ready.push_first(*t);
    return started;
  }
  bool start_in(Index p, Index t, bool force) {
    Place& here = places_[static_cast<std::size_t>(p)];
    double at = now_;
    if (!enter(t, at, force)) return false;
    --here.free_streams;
    start(t, at - now_);
    if (here.memory) note_peak(p);
    return true;
  }
  void start(Index t, double waits_s) {
    Task& task = tasks_[static_cast<std::size_t>(t)];
    const SimOp& op = ops_[task.op];
    Place& here = places_[static_cast<std::size_t>(task.device)];
    const ir::Index point = op.geometry->point(task.point);
    op.geometry->reads(point, task.next, reads_);
    for (const ir::Read& read : reads_) {
      task.chain_s =
          std::max(task.chain_s, at_(copy_at(op.inputs[read.operand], read.block, task.device)).chain_s);
    }
    if (task.next == 0) take_memory(task, op);
    if (task.next == 0 && bounded_)
      for (const Index output : task.outputs) use_memory(output);
    const double took = op.op->kind == ir::OpKind::kKeep ? 0  // nothing runs
                                                         : ir::model_step_ns(*op.geometry, point) * 1e-9 *
                                                               speeds_.ratio(here.device, family(task.op));
    Record record{task.op, task.device, now_ + waits_s, now_ + waits_s + took, kNone, false, waits_s};
    if (now_ > task.ready_s) {
      record.cause = here.last_record;
    } else if (task.ready_by != kNone) {
      record.cause = at_(task.ready_by).made_by;
      record.moved = at_(task.ready_by).home != kNone;
    } else if (task.next > 0) {
      record.cause = here.last_record;
    }
    task.chain_s += took;
    last_of_.resize(tasks_.size(), kNone);
    last_of_[static_cast<std::size_t>(t)] = static_cast<Index>(records_.size());
    records_.push_back(record);
    SimOpResult& result = out_.ops[task.op];
    result.begin_s = result.busy_s == 0 ? now_ : std::min(result.begin_s, now_);
    result.end_s = std::max(result.end_s, record.end_s);
    result.busy_s += took;
    const SimGraph& graph = options_.graphs[op.graph];
    here.served[graph.session] += took / std::max<std::uint32_t>(1, graph.weight);
    if (asked(task.op) && static_cast<std::size_t>(task.device) < out_.devices.size())
      out_.devices[static_cast<std::size_t>(task.device)].busy_s += took;
    events_.push({record.end_s, ++number_, Event::kStepEnds, t});
  }
  // Each output takes the memory of an input that nobody else needs, or its own.
  void take_memory(const Task& task, const SimOp& op) {
    const ir::Donors donors = donors_of(task, op);
    for (std::size_t o = 0; o < task.outputs.size(); ++o) {
      if (donors[o] < 0) {
        take(task.outputs[o]);
        continue;
      }
      const ir::Read& read = reads_[static_cast<std::size_t>(donors[o])];
      const Index copy = copy_at(op.inputs[read.operand], read.block, task.device);
      at_(copy).in_memory = false;
      at_(task.outputs[o]).in_memory = true;
      Place& here = places_[static_cast<std::size_t>(task.device)];
      if (here.memory) here.memory->rename(copy, task.outputs[o]);
    }
  }
  void ended(Index t) {
    Task& task = tasks_[static_cast<std::size_t>(t)];
    const SimOp& op = ops_[task.op];
    const Index p = task.device;
    Place& here = places_[static_cast<std::size_t>(p)];
    const Index record = last_of_[static_cast<std::size_t>(t)];
    here.last_record = record;
    ++here.free_streams;
    op.geometry->reads(op.geometry->point(task.point), task.next, reads_);
    const std::vector<ir::Read> all = reads_;
    ++task.next;
    if (bounded_) leave_step(task);
    for (const ir::Read& read : all) discharge(copy_at(op.inputs[read.operand], read.block, p));
    if (task.next < task.steps) {
      consider(t, kNone, true);
    } else {
      if (asked(task.op) && static_cast<std::size_t>(p) < out_.devices.size())
        ++out_.devices[static_cast<std::size_t>(p)].tasks;
      Queue& queue = queue_of(task);
      --queue.live;
      queue.eager -= task.eager ? 1 : 0;
      for (const Index output : task.outputs) {
        Copy& c = at_(output);
        c.ready = true;
        c.made_by = record;
        c.chain_s = task.chain_s;
        for (const Index copy : std::exchange(c.wanted, {})) send(copy);
        if (bounded_) end_use(output);
        wake(output);
        use(output);
        let_go(output);
      }
      if (asked(task.op)) longest_s_ = std::max(longest_s_, task.chain_s), end_s_ = now_;
      expand(p, op.graph);
    }
    dispatch(p);
  }

  const std::string& family(std::size_t op) {
    if (families_.empty()) {
      for (const SimOp& o : ops_)
        families_.push_back(o.geometry == nullptr ? std::string() : ir::family_of(*o.op));
    }
    return families_[op];
  }

  void finish() {
    Index last = kNone;
    double busy_s = 0, streams = 0;
    for (std::size_t r = 0; r < records_.size(); ++r) {
      if (!asked(records_[r].op)) continue;
      if (last == kNone || records_[r].end_s > records_[static_cast<std::size_t>(last)].end_s)
        last = static_cast<Index>(r);
    }
    out_.seconds = end_s_;
    for (std::size_t p = 0; p < out_.devices.size(); ++p) {
      out_.devices[p].bytes_after = places_[p].bytes;
      if (const auto& memory = places_[p].memory) {
        out_.devices[p].bytes_after = memory->bytes();
        out_.devices[p].bytes_spilled = memory->spilled_bytes();
        out_.devices[p].bytes_returned = memory->returned_bytes();
        out_.devices[p].spill_s = memory->spill_s();
      }
      busy_s += out_.devices[p].busy_s;
      if (out_.devices[p].tasks > 0) streams += std::max(1, places_[p].device.streams);
    }
    out_.bound_s = std::max(longest_s_, streams > 0 ? busy_s / streams : 0);
    for (const auto& [ends, total] : links_) {
      out_.links.push_back(total);
      std::tie(out_.links.back().from, out_.links.back().to, out_.links.back().mapped) = ends;
    }
    // As workers report it: what was copied, once, by whom it was first wanted.
    for (const Copy& c : copies_) {
      if (c.home != kNone && c.requested && c.asked && !c.mapped) out_.ops[c.reader].bytes_moved += c.bytes;
    }
    critical_path(last);
    out_.complete = true;
  }
  void critical_path(Index last) {
    const auto add = [&](std::size_t op, Index device, bool moves, bool spills, double seconds) {
      const DeviceId id = places_[static_cast<std::size_t>(device)].device.id;
      if (!out_.critical.empty()) {
        SimCritical& before = out_.critical.back();
        if (before.op == op && before.device == id && before.moves == moves && before.spills == spills) {
          before.seconds += seconds;
          return;
        }
      }
      out_.critical.push_back({moves, spills, op, id, seconds});
    };
    for (Index r = last; r != kNone;) {
      const Record& record = records_[static_cast<std::size_t>(r)];
      add(record.op, record.device, false, false, record.end_s - record.start_s);
      if (record.waited_s > 0) add(record.op, record.device, false, true, record.waited_s);
      out_.ops[record.op].critical_s += record.end_s - record.start_s;
      const double before =
          record.cause == kNone ? 0 : records_[static_cast<std::size_t>(record.cause)].end_s;
      // Within bounds it may have waited for memory that other devices' steps gave back.
      const double came_s = record.start_s - record.waited_s - before;
      const bool moved = record.moved || record.cause == kNone;
      if (came_s > 1e-12 && (moved || bounded_)) add(record.op, record.device, moved, !moved, came_s);
      r = record.cause;
    }
    std::reverse(out_.critical.begin(), out_.critical.end());
  }

  double longest_s_ = 0, end_s_ = 0;
  std::int64_t looked_at_ = 0;  // steps and reads
  std::int64_t number_ = 0;
  std::vector<std::vector<std::size_t>> readers_;  // ops, by array
  std::vector<Record> records_;
  std::vector<Index> last_of_;  // by task
  std::vector<Index> fetched_;
  std::priority_queue<Event> events_;
  std::map<std::tuple<DeviceId, DeviceId, bool>, SimLink> links_;
  std::vector<std::string> families_;
  std::vector<std::int64_t> levels_ns_;  // by op
};

}  // namespace

Simulation simulate(std::span<const SimOp> ops, std::span<const SimArray> arrays,
                    std::span<const Device> devices, const Speeds& speeds, const SimOptions& options) {
  Simulation out;
  Run run(ops, arrays, devices, speeds, options, false, out);
  if (!run.small_enough()) return out;
  run.run();
  bool bounded = false;
  for (std::size_t d = 0; d < devices.size() && out.complete; ++d)
    bounded |= devices[d].memory_bytes > 0 && out.devices[d].bytes_peak > devices[d].memory_bytes;
  if (!bounded) return out;
  Simulation within;
  Run again(ops, arrays, devices, speeds, options, true, within);
  if (again.small_enough()) again.run();
  return within;
}

}  // namespace tilewise::place
