#include "paper.h"

#include "graphs.h"
#include "layers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxLinks = 4096, kMaxCritical = 256;
// Nobody measures these ways yet.
constexpr double kDiskBytesPerS = 1e9, kPinnedBytesPerS = 1e10;

}  // namespace

Paper::Paper(const State& s) : s_(&s), speeds_(&s.speeds) {
  for (const WorkerId id : s.live) {
    if (!s.is_worker(id)) continue;
    for (const DeviceId device : s.peer(id).info.devices) devices_.push_back(place_device(*s.device(device)));
  }
  std::sort(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const place::Device& d : devices_) {
    const Device& device = *s.device(d.id);
    below_.push_back(device.spill_bytes + device.pinned_bytes);
    std::vector<place::SimTier>& tiers = options_.below.emplace_back();
    if (device.pinned_bytes > 0) tiers.push_back({device.pinned_bytes, kPinnedBytesPerS});
    if (device.spill_bytes > 0) tiers.push_back({device.spill_bytes, kDiskBytesPerS});
  }
}

void Paper::begin(const place::SimGraph& graph, bool asked) {
  if (graphs_++ > 0) options_.graphs.emplace_back();
  options_.graphs.back() = graph;
  if (asked) options_.asked = graphs_ - 1, first_ = ops_.size();
}

void Paper::add(const ir::Op& op, const ir::Placement& placement, const std::vector<std::uint64_t>& held) {
  place::SimOp sim;
  sim.graph = static_cast<std::uint32_t>(options_.graphs.size() - 1);
  sim.op = &op;
  sim.placement = &placement;
  std::vector<ir::SourceArray> sources;
  for (const ir::Operand& operand : op.operands) {
    sim.inputs.push_back(array(operand.array));
    sources.push_back(arrays_[sim.inputs.back()].source);
  }
  const bool provided = op.kind == ir::OpKind::kProvide;
  if (op.kind == ir::OpKind::kFetch || provided) {
    sim.to = op.get<ir::FetchAttrs>().to;
  } else if (auto geometry = ir::Geometry::make(op, std::move(sources))) {
    geometries_.push_back(std::move(*geometry));
    sim.geometry = &geometries_.back();
  }
  for (const ir::OutputSpec& output : op.outputs) {
    sim.outputs.push_back(arrays_.size());
    index_.emplace(output.array, arrays_.size());
    const bool holds = std::binary_search(held.begin(), held.end(), output.array);
    arrays_.push_back({{output.dtype, output.grid}, &placement, provided, holds});
  }
  ops_.push_back(std::move(sim));
}

void Paper::keep() {
  forget_promises();
  for (const std::size_t a : read_)
    arrays_[a].placement = &own_placements_.emplace_back(*arrays_[a].placement);
  own_speeds_ = std::make_unique<place::Speeds>(*speeds_);
  speeds_ = own_speeds_.get();
  s_ = nullptr;
}

void Paper::account(msg::Explanation& out) {
  if (s_ != nullptr) forget_promises();
  const place::Simulation done = place::simulate(ops_, arrays_, devices_, *speeds_, options_);
  out.simulated = done.complete;
  out.tasks = done.tasks;
  out.steps = done.steps;
  out.flops = done.flops;
  out.seconds = done.seconds;
  out.bound_s = done.bound_s;
  for (std::size_t i = first_; i < ops_.size() && ops_[i].graph == options_.asked; ++i) {
    const place::SimOpResult& from = done.ops[i];
    msg::OpAccount& op = out.ops[i - first_];
    op.tasks = from.tasks;
    op.steps = from.steps;
    op.flops = from.flops;
    op.bytes_moved = from.bytes_moved;
    op.begin_s = from.begin_s;
    op.end_s = from.end_s;
    op.busy_s = from.busy_s;
    op.critical_s = from.critical_s;
    op.bytes_written = output_bytes(*ops_[i].op);
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const place::SimDevice& d = done.devices[i];
    msg::DeviceAccount& device = out.devices.emplace_back();
    device.device = d.id;
    device.tasks = d.tasks;
    device.bytes_before = d.bytes_before;
    device.bytes_peak = d.bytes_peak;
    device.bytes_after = d.bytes_after;
    device.bytes_memory = devices_[i].memory_bytes;
    device.bytes_below = below_[i];
    device.busy_s = d.busy_s;
    device.bytes_spilled = d.bytes_spilled;
    device.bytes_returned = d.bytes_returned;
    device.spill_s = d.spill_s;
  }
  out.fits = done.fits;
  for (const place::SimNeed& need : done.needs) {
    if (out.needs.size() == msg::kMaxNeeds) break;
    msg::NeedAccount& told = out.needs.emplace_back();
    told.devices = {need.device};
    told.needed_bytes = need.bytes;
    told.input_bytes = need.input_bytes, told.output_bytes = need.output_bytes;
    told.op = plan::describe(*ops_[need.op].op, need.op - std::min(need.op, first_));
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].id != need.device) continue;
      told.memory_bytes = devices_[i].memory_bytes, told.below_bytes = below_[i];
    }
  }
  for (const place::SimLink& link : done.links) {
    const place::LinkSpeed speed = speed_of(link.from, link.to, link.mapped);
    out.links.push_back({link.from, link.to, link.mapped, link.blocks, link.bytes, link.busy_s,
                         speed.bytes_per_s, speed.measured});
  }
  std::stable_sort(out.links.begin(), out.links.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (out.links.size() > kMaxLinks) out.links.resize(kMaxLinks);
  critical_path(done.critical, out);
  // What is cut is at the beginning: the end is where the time is decided.
  if (out.critical.size() > kMaxCritical)
    out.critical.erase(out.critical.begin(), out.critical.end() - static_cast<std::ptrdiff_t>(kMaxCritical));
}

// Where other graphs had to go first, the next op of this one waits for them.
void Paper::critical_path(const std::vector<place::SimCritical>& path, msg::Explanation& out) const {
  double waits_s = 0;
  for (const place::SimCritical& c : path) {
    if (ops_[c.op].graph != options_.asked) {
      waits_s += c.seconds;
      continue;
    }
    const auto op = static_cast<std::uint32_t>(c.op - first_);
    if (waits_s > 0) out.critical.push_back({op, c.device, "waits", std::exchange(waits_s, 0)});
    out.critical.push_back({op, c.device, c.spills ? "spills" : c.moves ? "moves" : "runs", c.seconds});
  }
}

// A device's load has what running ops are to make, all at once; memory has only what was made. What is on paper is made
// there, and what others will have made meanwhile nobody knows, but for what is read here.
void Paper::forget_promises() {
  s_->ops.for_each([&](const OpRecord& op) {
    if (op.finished || op.points == 0) return;
    for (const ir::OutputSpec& output : op.op.outputs) {
      const auto known = index_.find(output.array);
      if (known != index_.end() && arrays_[known->second].exists) return;
    }
    for (const OpShare& share : op.shares) {
      const auto device = std::lower_bound(devices_.begin(), devices_.end(), share.device,
                                           [](const place::Device& d, DeviceId id) { return d.id < id; });
      if (device != devices_.end() && device->id == share.device)
        device->load_bytes -= share_bytes(op, share);
    }
  });
}

std::size_t Paper::array(std::uint64_t id) {
  if (const auto it = index_.find(id); it != index_.end()) return it->second;
  const ArrayRecord& record = s_->arrays.at(ArrayId{id});
  read_.push_back(arrays_.size());
  arrays_.push_back({record.source, &layered_placement(*s_, s_->ops.at(record.producer)), true, record.held});
  index_.emplace(id, arrays_.size() - 1);
  return arrays_.size() - 1;
}

// Nothing is known of links to clients.
place::LinkSpeed Paper::speed_of(DeviceId from, DeviceId to, bool mapped) const {
  const auto find = [&](DeviceId id) {
    return std::find_if(devices_.begin(), devices_.end(), [&](const place::Device& d) { return d.id == id; });
  };
  const auto a = find(from), b = find(to);
  if (a == devices_.end() || b == devices_.end()) return {};
  return mapped ? speeds_->link(*a, *b) : speeds_->copying(*a, *b);
}

void cut_ops(msg::Explanation& out) {
  out.op_count = static_cast<std::uint32_t>(out.ops.size());
  if (out.ops.size() <= kMaxToldOps) return;
  const std::size_t cut = out.ops.size() - kMaxToldOps;
  out.ops.erase(out.ops.begin(), out.ops.begin() + static_cast<std::ptrdiff_t>(cut));
  std::erase_if(out.critical, [&](const msg::CriticalAccount& c) { return c.op < cut; });
  for (msg::CriticalAccount& c : out.critical) c.op -= static_cast<std::uint32_t>(cut);
}

void tell_choices(const Draft& draft, std::size_t op, msg::OpAccount& out) {
  out.op = plan::describe(draft.ops[op], op);
  const place::Decision& decision = draft.decisions[op];
  out.choices.push_back({std::string(decision.why),
                         place::describe(draft.placements[op], decision.moved_bytes), decision.seconds});
  for (const place::Rejected& other : decision.rejected)
    out.choices.push_back(
        {std::string(other.why), place::describe(other.placement, other.moved_bytes), other.seconds});
}

void tell_keep(const PlannedKeep& keep, std::size_t position, msg::OpAccount& out) {
  out.op = plan::describe(keep.op, position);
  out.choices.push_back({"copies", place::describe(keep.placement, 0), 0});
}

}  // namespace tilewise::scheduler
