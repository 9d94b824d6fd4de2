#include "replay.h"

#include <tilewise/base/digest.h>
#include <tilewise/ir/op_digest.h>

#include <algorithm>

#include "draft.h"
#include "layers.h"

namespace tilewise::scheduler {
namespace {

constexpr std::uint64_t kExternal = std::uint64_t{1} << 63;  // ArrayIds have no such bit

template <class Rename> void rename(std::vector<ir::Op>& ops, Rename&& name) {
  for (ir::Op& op : ops) {
    for (ir::Operand& operand : op.operands) operand.array = name(operand.array);
    for (ir::OutputSpec& output : op.outputs) output.array = name(output.array);
  }
}

// From ids to places and back. What is read from outside gets its place when it is first asked for.
class Places {
 public:
  explicit Places(Program& program) : program_(program) {
    for (std::size_t i = 0; i < program.externals.size(); ++i) index_.emplace(program.externals[i], i);
  }
  std::uint64_t operator()(std::uint64_t id) {
    if (id >= program_.first) return id - program_.first;
    const auto [it, fresh] = index_.emplace(id, program_.externals.size());
    if (fresh) program_.externals.push_back(id);
    return kExternal | it->second;
  }

 private:
  Program& program_;
  boost::unordered_flat_map<std::uint64_t, std::size_t> index_;
};

std::uint64_t id_of(const Program& program, std::uint64_t place) {
  return (place & kExternal) != 0 ? program.externals[place & ~kExternal] : program.first + place;
}

// Those that placement may use; of others a plan made before says nothing.
std::vector<DeviceId> worker_devices(const State& s) {
  std::vector<DeviceId> devices;
  for (const WorkerId id : s.live) {
    if (!s.is_worker(id)) continue;
    const auto& own = s.peer(id).info.devices;
    std::copy_if(own.begin(), own.end(), std::back_inserter(devices),
                 [&](DeviceId device) { return !s.device(device)->draining; });
  }
  return devices;
}

const ir::Placement& placement_of(const State& s, const ArrayRecord& array) {
  return layered_placement(s, s.ops.at(array.producer));
}

bool has_ample_room(const State& s, const std::vector<std::pair<DeviceId, std::int64_t>>& needs) {
  return std::all_of(needs.begin(), needs.end(), [&](const auto& need) {
    place::Device device = place_device(*s.device(need.first));
    device.stays_bytes = device.load_bytes;
    return need.second <= device.headroom_bytes(place::Room::kAmple);
  });
}

std::size_t bytes_of(const ir::Op& op) {
  std::size_t bytes = sizeof(op) + op.operands.size() * sizeof(ir::Operand) +
                      op.outputs.size() * sizeof(ir::OutputSpec) + op.label.size();
  if (const ir::Tape* tape = ir::tape_of(op)) bytes += tape->code.size() * sizeof(ir::TapeInstr);
  if (const auto* call = std::get_if<ir::CallAttrs>(&op.attrs)) {
    bytes += call->params.size();
    for (const ir::ExplicitMap& map : call->explicit_maps)
      bytes += map.blocks.size() * sizeof(std::int64_t) + map.offsets.size() * sizeof(std::uint32_t);
  }
  return bytes;
}

std::size_t bytes_of(const std::vector<ir::Op>& ops) {
  std::size_t bytes = 0;
  for (const ir::Op& op : ops) bytes += bytes_of(op);
  return bytes;
}

}  // namespace

SessionProgram SessionProgram::of(msg::Program program, DeviceId endpoint) {
  static_assert(kExternal == msg::kInputPlace, "programs of sessions are compared with those of plans");
  SessionProgram made;
  made.outputs = program.outputs, made.inputs = program.inputs;
  for (ir::Op& op : program.ops) {
    const bool fetch = op.kind == ir::OpKind::kFetch, provide = op.kind == ir::OpKind::kProvide;
    if (fetch || provide) op.attrs = ir::FetchAttrs{endpoint};
    if (fetch && op.operands.size() == 1) made.fetched.push_back(op.operands[0].array);
    for (const ir::OutputSpec& output : op.outputs)
      if (provide) made.provided.push_back(output.array);
    made.hinted.insert(made.hinted.end(), op.hint.devices.begin(), op.hint.devices.end());
    made.digest.mix(ir::digest(op, true));
  }
  std::sort(made.hinted.begin(), made.hinted.end());
  made.hinted.erase(std::unique(made.hinted.begin(), made.hinted.end()), made.hinted.end());
  made.constants = ir::constant_dtypes(program.ops);
  made.ops = msg::share(std::move(program.ops));
  return made;
}

std::optional<std::size_t> PlanCache::find(const State& s, const Draft& draft, const Ops& ops) const {
  const Program& program = draft.program;
  const auto same = [&](const Plan& plan) {
    if (plan.digest != program.digest || plan.replays >= plan.patience) return false;
    if (plan.sources.size() != program.externals.size()) return false;
    if (plan.program.get() != &ops && *plan.program != ops) return false;
    const auto held = [&](std::uint64_t id, std::uint64_t place) { return id == program.first + place; };
    if (!std::equal(draft.graph.holds.begin(), draft.graph.holds.end(), plan.holds.begin(), plan.holds.end(),
                    held))
      return false;
    for (std::size_t i = 0; i < program.externals.size(); ++i) {
      const ArrayRecord& array = s.arrays.at(ArrayId{program.externals[i]});
      if (array.source.dtype != plan.sources[i].dtype || !(array.source.grid == plan.sources[i].grid) ||
          !(placement_of(s, array) == plan.inputs[i]))
        return false;
    }
    return plan.devices == worker_devices(s) && has_ample_room(s, plan.needs);
  };
  const auto found = std::find_if(plans_.begin(), plans_.end(), same);
  if (found == plans_.end()) return {};
  return static_cast<std::size_t>(found - plans_.begin());
}

bool PlanCache::comes_again(std::uint64_t digest) const {
  return std::find(once_.begin(), once_.end(), digest) != once_.end() ||
         std::any_of(plans_.begin(), plans_.end(), [&](const Plan& p) { return p.digest == digest; });
}

void PlanCache::take(std::size_t at, const State& s, Draft& draft, bool dump) const {
  const Plan& plan = plans_[at];
  draft.program.replayed = true;
  draft.program.plan = at;
  draft.ops = plan.ops;
  rename(draft.ops, [&](std::uint64_t place) { return id_of(draft.program, place); });
  ir::put_constants(draft.ops, draft.program.constants);
  draft.placements = plan.placements;
  draft.decisions = plan.decisions;
  draft.levels_ns = plan.levels_ns;
  draft.needs = plan.needs;
  if (s.options.check_replays) draft.cuts = plan.cuts;
  draft.next_array = s.next_array + plan.names;
  draft.passes.push_back({"replayed", draft.ops.size(), dump ? plan::dump(draft.ops) : std::string()});
  draft.graph.ops.clear();
}

bool PlanCache::replay(const State& s, Draft& draft, bool dump) const {
  Program& program = draft.program;
  program = {};
  program.first = make_id(s.options.term, s.next_array);
  Ops& ops = draft.graph.ops;
  rename(ops, Places(program));
  program.constants = ir::take_constants(ops);
  Digest digest;
  for (const ir::Op& op : ops) digest.mix(ir::digest(op, true));
  for (const std::uint64_t id : draft.graph.holds) digest.mix(id - program.first);
  program.digest = digest.value();
  if (const auto found = find(s, draft, ops)) {
    take(*found, s, draft, dump);
    return true;
  }
  if (comes_again(program.digest) && ops.size() <= kMaxOps / 4)
    program.ops = draft.kept && *draft.kept->ops == ops ? draft.kept->ops : msg::share(ops);
  rename(ops, [&](std::uint64_t place) { return id_of(program, place); });
  ir::put_constants(ops, program.constants);
  return false;
}

bool PlanCache::replay(const State& s, const SessionProgram& kept, Draft& draft, bool dump) const {
  Program& program = draft.program;
  program.first = make_id(s.options.term, s.next_array);
  Digest digest = kept.digest;
  for (const std::uint64_t id : draft.graph.holds) digest.mix(id - program.first);
  program.digest = digest.value();
  const auto found = find(s, draft, *kept.ops);
  if (found) take(*found, s, draft, dump);
  return found.has_value();
}

void PlanCache::accepted(const State& s, Draft& draft, std::uint64_t& next_number) {
  Program& program = draft.program;
  ++clock_;
  if (program.replayed) {
    Plan& plan = plans_[*program.plan];
    ++plan.replays, ++replays_;
    plan.used = clock_;
    return;
  }
  if (!program.ops) {
    once_.push_back(program.digest);
    if (once_.size() > kRemembered) once_.pop_front();
    return;
  }
  if (std::any_of(draft.decisions.begin(), draft.decisions.end(),
                  [](const place::Decision& decision) { return decision.by_memory; }))
    return;
  Plan plan;
  plan.digest = program.digest;
  plan.program = program.ops;
  for (const std::uint64_t id : draft.graph.holds) plan.holds.push_back(id - program.first);
  for (const std::uint64_t id : program.externals) {
    const ArrayRecord& array = s.arrays.at(ArrayId{id});
    plan.sources.push_back(array.source);
    plan.inputs.push_back(placement_of(s, array));
  }
  plan.devices = worker_devices(s);
  plan.names = draft.next_array - s.next_array;
  plan.ops = draft.ops;
  Program places = program;
  rename(plan.ops, Places(places));
  ir::put_constants(plan.ops, ir::Constants(program.constants.size()));
  plan.placements = draft.placements;
  plan.decisions = draft.decisions;
  plan.levels_ns = draft.levels_ns;
  plan.needs = draft.needs;
  plan.cuts = draft.cuts;
  plan.number = next_number++;
  for (const ir::Op& op : plan.ops) {
    for (const ir::Operand& operand : op.operands) {
      const std::uint64_t input = operand.array & ~kExternal;
      if (input != operand.array && std::find(plan.read.begin(), plan.read.end(), input) == plan.read.end())
        plan.read.push_back(input);
    }
  }
  const auto first =
      std::find_if(plan.ops.begin(), plan.ops.end(), [](const ir::Op& op) { return !op.outputs.empty(); });
  if (first != plan.ops.end()) plan.first = first->outputs[0].array;
  plan.bytes = bytes_of(*plan.program) + bytes_of(plan.ops);
  program.plan = keep(std::move(plan));
  if (program.plan) draft.levels_ns = plans_[*program.plan].levels_ns;
}

PlanCache::Told PlanCache::told(const Draft& draft, const GraphRecord& graph) const {
  const Program& program = draft.program;
  if (!program.plan) return {};
  const Plan& plan = plans_[*program.plan];
  Told told{{plan.number, graph.id, graph.priority}, plan.known};
  told.replay.first_op = graph.ops.front();
  told.replay.first_array = ArrayId{program.first + plan.first};
  for (const std::uint64_t input : plan.read) told.replay.inputs.push_back(ArrayId{program.externals[input]});
  told.replay.session = graph.session;
  told.replay.weight = graph.weight;
  told.replay.constants = program.constants;
  return told;
}

void PlanCache::told_to(const Draft& draft, WorkerId last) {
  if (draft.program.plan) plans_[*draft.program.plan].known = last;
}

void PlanCache::forget_all() {
  while (!plans_.empty()) drop(plans_.size() - 1);
  std::vector<std::uint64_t> gone = take_gone();
  *this = {};
  gone_ = std::move(gone);
}

std::size_t PlanCache::ops() const {
  std::size_t ops = 0;
  for (const Plan& plan : plans_) ops += plan.ops.size() + plan.program->size();
  return ops;
}

std::size_t PlanCache::bytes() const {
  std::size_t bytes = 0;
  for (const Plan& plan : plans_) bytes += plan.bytes;
  return bytes;
}

void PlanCache::drop(std::size_t plan) {
  gone_.push_back(plans_[plan].number);
  plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(plan));
}

std::optional<std::size_t> PlanCache::keep(Plan plan) {
  plan.used = clock_;
  const auto old =
      std::find_if(plans_.begin(), plans_.end(), [&](const Plan& p) { return p.digest == plan.digest; });
  if (old != plans_.end()) {
    plan.patience = std::min(kMostReplays, 2 * old->patience);
    // Made anew, and the same: workers have it. They compare what is read as well.
    if (plan.ops == old->ops && plan.placements == old->placements && plan.holds == old->holds &&
        plan.sources == old->sources) {
      plan.levels_ns = old->levels_ns;  // theirs: speeds may have changed since
      plan.number = old->number;
      plan.known = old->known;
      plans_.erase(old);
    } else {
      drop(static_cast<std::size_t>(old - plans_.begin()));
    }
  }
  const std::size_t more = plan.ops.size() + plan.program->size();
  if (more > kMaxOps || plan.bytes > kMaxBytes) {
    gone_.push_back(plan.number);
    return {};
  }
  while (plans_.size() >= kMaxPlans || ops() + more > kMaxOps || bytes() + plan.bytes > kMaxBytes) {
    drop(static_cast<std::size_t>(
        std::min_element(plans_.begin(), plans_.end(),
                         [](const Plan& a, const Plan& b) { return a.used < b.used; }) -
        plans_.begin()));
  }
  plans_.push_back(std::move(plan));
  return plans_.size() - 1;
}

void PlanCache::mix_into(Digest& digest) const {
  digest.mix(clock_), digest.mix(replays_);
  for (const Plan& plan : plans_) {
    for (const std::uint64_t x :
         {plan.digest, std::uint64_t{plan.replays}, plan.used, plan.number, std::uint64_t{plan.known.value}})
      digest.mix(x);
  }
  for (const std::uint64_t number : gone_) digest.mix(number);
  for (const std::uint64_t once : once_) digest.mix(once);
}

}  // namespace tilewise::scheduler
