#include <tilewise/base/check.h>
#include <tilewise/ir/cost.h>
#include <tilewise/place/levels.h>

#include "paper.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <queue>
#include <tuple>

namespace tilewise::place {
namespace {

using namespace paper;

constexpr std::int64_t kReadsAStep = 4;  // on average, of plans that are looked at whole

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

class Run {
 public:
  Run(std::span<const SimOp> ops, std::span<const SimArray> arrays, std::span<const Device> devices,
      const Speeds& speeds, const SimOptions& options, Simulation& out)
      : ops_(ops), arrays_(arrays), speeds_(speeds), options_(options), out_(out) {
    if (options.by_level) find_levels(devices);
    for (const Device& device : devices) add_place(device, false);
    out_.ops.resize(ops.size());
    for (const Device& device : devices) {
      const std::int64_t bytes = device.load_bytes;
      out_.devices.push_back({device.id, 0, bytes, bytes, bytes, 0});
    }
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
    for (Index p = 0; p < static_cast<Index>(places_.size()); ++p) {
      for (std::uint32_t g = 0; g < options_.graphs.size(); ++g) expand(p, g);
    }
    for (const Index copy : fetched_) request(copy);
    for (Index p = 0; p < static_cast<Index>(places_.size()); ++p) dispatch(p);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (event.step)
        ended(event.index);
      else
        arrived(event.index);
    }
    finish();
  }

 private:
  bool asked(std::size_t op) const { return ops_[op].graph == options_.asked; }
  Queue& queue_of(const Task& task) {
    return places_[static_cast<std::size_t>(task.device)].queues[ops_[task.op].graph];
  }

  Index add_place(const Device& device, bool client) {
    places_.push_back({});
    places_.back().device = device;
    places_.back().client = client;
    places_.back().free_streams = std::max(1, device.streams);
    places_.back().queues.resize(options_.graphs.size());
    places_.back().bytes = device.load_bytes;
    place_of_[device.id] = static_cast<Index>(places_.size() - 1);
    return static_cast<Index>(places_.size() - 1);
  }
  Index place(DeviceId id) {  // clients' endpoints and devices that left are added as they are met
    const auto it = place_of_.find(id);
    return it != place_of_.end() ? it->second : add_place({.id = id, .host = ~0u}, true);
  }

  // ---- what there is to do ----

  Index copy_at(std::size_t array, std::int64_t block, Index device) {
    const SimArray& source = arrays_[array];
    const auto [it, fresh] = first_.try_emplace(
        (static_cast<std::uint64_t>(array) << 32) | static_cast<std::uint64_t>(block), kNone);
    const ir::Index at = ir::unravel(block, source.source.grid.counts());
    if (fresh) {
      Copy home;
      home.array = array;
      home.bytes =
          source.source.grid.box(at).volume() * static_cast<std::int64_t>(ir::size_of(source.source.dtype));
      home.device = place(source.placement->owner(at));
      home.ready = home.in_memory = source.exists;
      it->second = add(std::move(home));
    }
    for (Index c = it->second; c != kNone; c = copies_[static_cast<std::size_t>(c)].next) {
      if (copies_[static_cast<std::size_t>(c)].device == device) return c;
    }
    Copy copy;
    copy.array = array;
    copy.bytes = at_(it->second).bytes;
    copy.device = device;
    copy.home = it->second;
    const Place& there = places_[static_cast<std::size_t>(device)];
    copy.mapped = !there.client && !owner(it->second).client && link(it->second, device).mapped;
    copy.keeps = source.held && source.placement->holds(at, there.device.id);
    copy.next = at_(it->second).next;
    const Index made = add(std::move(copy));
    at_(it->second).next = made;
    ++at_(it->second).uses;
    return made;
  }
  Index add(Copy copy) {
    copy.asked = for_asked_;
    copy.reader = added_;
    copies_.push_back(std::move(copy));
    return static_cast<Index>(copies_.size() - 1);
  }
  Copy& at_(Index copy) { return copies_[static_cast<std::size_t>(copy)]; }
  Place& owner(Index copy) { return places_[static_cast<std::size_t>(at_(copy).device)]; }
  LinkSpeed link(Index home, Index device) {
    const Place &from = owner(home), &to = places_[static_cast<std::size_t>(device)];
    if (from.client || to.client) return {options_.client_bytes_per_s, 30e-6, false};
    return speeds_.link(from.device, to.device);
  }

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
    for (std::int64_t s = 0; s < task.steps; ++s) {
      op.geometry->reads(point, s, reads_);
      looked_at_ += static_cast<std::int64_t>(reads_.size());
      if (looked_at_ > kReadsAStep * options_.max_steps) return false;
      for (const ir::Read& read : reads_) {
        const Index c = copy_at(op.inputs[read.operand], read.block, here);
        see_reader(c, o);
        Copy& copy = at_(c);
        ++copy.uses;
        if (op.op->kind == ir::OpKind::kKeep && copy.home != kNone) copy.mapped = false, copy.keeps = true;
      }
    }
    for (const std::size_t array : op.outputs) task.outputs.push_back(copy_at(array, task.point, here));
    std::vector<Queue::Share>& shares = queue_of(task).shares;
    if (shares.empty() || shares.back().op != o) shares.push_back({o, tasks_.size(), tasks_.size()});
    tasks_.push_back(std::move(task));
    ++shares.back().end;
    return true;
  }

  // ---- memory ----

  void take(Index copy) {
    Copy& c = at_(copy);
    if (std::exchange(c.in_memory, true)) return;
    Place& p = owner(copy);
    p.bytes += rounded(c.bytes);
    if (static_cast<std::size_t>(c.device) < out_.devices.size()) {
      SimDevice& device = out_.devices[static_cast<std::size_t>(c.device)];
      device.bytes_peak = std::max(device.bytes_peak, p.bytes);
    }
  }
  void let_go(Index copy) {
    Copy& c = at_(copy);
    if (c.uses > 0 || !c.ready) return;
    if (c.home != kNone && c.mapped) discharge(c.home);
    if (arrays_[c.array].held && (c.home == kNone || c.keeps)) return;
    if (!std::exchange(c.in_memory, false)) return;
    owner(copy).bytes -= rounded(c.bytes);
  }
  void discharge(Index copy) {
    if (--at_(copy).uses == 0) let_go(copy);
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
  // It comes to this copy's host once.
  bool is_far(Index home, Index copy) {
    const Place &from = owner(home), &to = owner(copy);
    return at_(copy).bytes > options_.tree_bytes && !from.client && !to.client &&
           from.device.host != to.device.host;
  }
  void send(Index copy) {
    const Index home = at_(copy).home;
    const Index sender = is_far(home, copy) ? place_in_tree(home, copy) : home;
    if (sender == home) return transmit(copy, home, now_);
    at_(copy).sender = sender;
    if (at_(sender).ready)
      pass_on(copy, sender);
    else
      at_(sender).wanted.push_back(copy);
  }
  // Who sends it there. The first copy of a host is its leader, and stays until all whom it is to send to have theirs.
  Index place_in_tree(Index home, Index copy) {
    Tree& tree = trees_[home];
    const std::uint32_t host = owner(copy).device.host;
    for (const Tree::Leader& leader : tree.leaders)
      if (leader.host == host) return leader.copy;
    const std::size_t number = tree.leaders.size();
    tree.leaders.push_back({host, copy});
    std::vector<std::uint32_t> hosts;
    for (Index c = at_(home).next; c != kNone; c = at_(c).next) {
      if (at_(c).uses == 0 || !is_far(home, c)) continue;
      const std::uint32_t other = owner(c).device.host;
      if (number == 0) hosts.push_back(other);
      if (c != copy && other == host) ++at_(copy).uses;
    }
    if (number == 0) {
      std::sort(hosts.begin(), hosts.end());
      tree.hosts = static_cast<std::size_t>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
    }
    for (const std::size_t child : {2 * number + 2, 2 * number + 3})
      at_(copy).uses += child < tree.hosts ? 1 : 0;
    return number < 2 ? home : tree.leaders[number / 2 - 1].copy;
  }
  // The owner has to hear first that the bytes are there.
  void pass_on(Index copy, Index sender) {
    transmit(copy, sender, now_ + link(at_(sender).home, at_(sender).device).latency_s);
  }
  void transmit(Index copy, Index sender, double earliest) {
    Copy& c = at_(copy);
    Place &from = owner(sender), &to = owner(copy);
    LinkSpeed speed = link(c.home, c.device);
    if (sender != c.home || speed.mapped != c.mapped) speed = speeds_.copying(from.device, to.device);
    double start = now_, took = 0;
    if (!c.mapped) {
      take(copy);
      start = std::max({earliest, from.sends_until, to.receives_until});
      took = speed.bytes_per_s > 0 ? static_cast<double>(c.bytes) / speed.bytes_per_s : 0;
      from.sends_until = to.receives_until = start + took;
    }
    if (c.asked) {
      SimLink& total = links_[{from.device.id, to.device.id, c.mapped}];
      ++total.blocks;
      total.bytes += c.bytes;
      total.busy_s += took;
    }
    events_.push({start + took + (c.mapped ? 0.1 : 1) * speed.latency_s, ++number_, false, copy});
  }
  void arrived(Index copy) {
    Copy& c = at_(copy);
    c.ready = true;
    if (c.asked) end_s_ = now_;
    c.made_by = at_(c.home).made_by;
    c.chain_s = at_(c.home).chain_s;
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
    if (task.next > 0 || bytes <= ir::kLargeBytes || gives_way(task.op)) return 0;
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
  // Its results take the memory of an operand that nobody else reads later.
  bool gives_way(std::size_t o) const {
    const SimOp& op = ops_[o];
    if (op.op->kind != ir::OpKind::kMap || op.outputs.size() != 1) return false;
    const SimArray& target = arrays_[op.outputs[0]];
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const SimArray& source = arrays_[op.inputs[i]];
      if (!source.held && !source.exists && readers_[op.inputs[i]].back() == o &&
          *source.placement == *op.placement && source.source.dtype == target.source.dtype &&
          source.source.grid == target.source.grid &&
          op.op->operands[i].view.is_identity(source.source.grid.shape()))
        return true;
    }
    return false;
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
      const std::int64_t memory = here.device.memory_bytes;
      const auto t = static_cast<Index>(queue->ready.take(memory > 0 && here.bytes > memory / 2));
      --here.free_streams;
      start(t);
    }
  }
  void start(Index t) {
    Task& task = tasks_[static_cast<std::size_t>(t)];
    const SimOp& op = ops_[task.op];
    Place& here = places_[static_cast<std::size_t>(task.device)];
    const ir::Index point = op.geometry->point(task.point);
    op.geometry->reads(point, task.next, reads_);
    for (const ir::Read& read : reads_) {
      task.chain_s =
          std::max(task.chain_s, at_(copy_at(op.inputs[read.operand], read.block, task.device)).chain_s);
    }
    if (task.next == 0 && !donated(task, op)) {
      for (const Index output : task.outputs) take(output);
    }
    const double took = op.op->kind == ir::OpKind::kKeep ? 0  // nothing runs
                                                         : ir::model_step_ns(*op.geometry, point) * 1e-9 *
                                                               speeds_.ratio(here.device, family(task.op));
    Record record{task.op, task.device, now_, now_ + took, kNone, false};
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
    events_.push({record.end_s, ++number_, true, t});
  }
  // The output takes the memory of an input that nobody else needs (the worker's rule, worker/core/tasks.cc).
  bool donated(const Task& task, const SimOp& op) {
    if (op.op->kind != ir::OpKind::kMap || task.steps != 1 || task.outputs.size() != 1) return false;
    const SimArray& target = arrays_[op.outputs[0]];
    for (const ir::Read& read : reads_) {
      const std::size_t array = op.inputs[read.operand];
      const SimArray& source = arrays_[array];
      Copy& c = at_(copy_at(array, read.block, task.device));
      if (!c.in_memory || c.uses != 1 || source.held || c.bytes != at_(task.outputs[0]).bytes) continue;
      if (source.source.dtype != target.source.dtype || source.source.grid != target.source.grid) continue;
      if (!op.op->operands[read.operand].view.is_identity(source.source.grid.shape())) continue;
      c.in_memory = false;
      at_(task.outputs[0]).in_memory = true;
      return true;
    }
    return false;
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
    for (const ir::Read& read : all) discharge(copy_at(op.inputs[read.operand], read.block, p));
    if (++task.next < task.steps) {
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
    const auto add = [&](std::size_t op, Index device, bool moves, double seconds) {
      const DeviceId id = places_[static_cast<std::size_t>(device)].device.id;
      if (!out_.critical.empty()) {
        SimCritical& before = out_.critical.back();
        if (before.op == op && before.device == id && before.moves == moves) {
          before.seconds += seconds;
          return;
        }
      }
      out_.critical.push_back({moves, op, id, seconds});
    };
    for (Index r = last; r != kNone;) {
      const Record& record = records_[static_cast<std::size_t>(r)];
      add(record.op, record.device, false, record.end_s - record.start_s);
      out_.ops[record.op].critical_s += record.end_s - record.start_s;
      const double before =
          record.cause == kNone ? 0 : records_[static_cast<std::size_t>(record.cause)].end_s;
      if (record.start_s - before > 1e-12 && (record.moved || record.cause == kNone))
        add(record.op, record.device, true, record.start_s - before);
      r = record.cause;
    }
    std::reverse(out_.critical.begin(), out_.critical.end());
  }

  std::span<const SimOp> ops_;
  std::span<const SimArray> arrays_;
  const Speeds& speeds_;
  const SimOptions& options_;
  Simulation& out_;
  double now_ = 0, longest_s_ = 0, end_s_ = 0;
  bool for_asked_ = false;      // copies that are added now
  std::size_t added_ = 0;       // op, while tasks are added
  std::int64_t looked_at_ = 0;  // steps and reads
  std::int64_t number_ = 0;
  std::vector<Place> places_;  // those given, then clients
  std::map<DeviceId, Index> place_of_;
  std::vector<Copy> copies_;
  boost::unordered_flat_map<std::uint64_t, Index> first_;  // (array, block) -> home; looked up, never walked
  std::vector<Task> tasks_;                                // by op, device, and order there
  std::vector<std::vector<std::size_t>> readers_;          // ops, by array
  std::vector<Record> records_;
  std::vector<Index> last_of_;  // by task
  std::vector<Index> fetched_;
  std::priority_queue<Event> events_;
  boost::unordered_flat_map<Index, Tree> trees_;  // by home; looked up, never walked
  std::map<std::tuple<DeviceId, DeviceId, bool>, SimLink> links_;
  std::vector<std::string> families_;
  std::vector<std::int64_t> levels_ns_;  // by op
  std::vector<ir::Read> reads_;
};

}  // namespace

Simulation simulate(std::span<const SimOp> ops, std::span<const SimArray> arrays,
                    std::span<const Device> devices, const Speeds& speeds, const SimOptions& options) {
  Simulation out;
  Run run(ops, arrays, devices, speeds, options, out);
  if (run.small_enough()) run.run();
  return out;
}

}  // namespace tilewise::place
