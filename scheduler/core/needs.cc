#include "needs.h"

#include <tilewise/ir/donation.h>

#include "draft.h"

#include <algorithm>
#include <map>
#include <set>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kMaxCounted = 65'536;  // points whose bytes are counted one by one
constexpr double kSurely = 1.25;              // beyond, means do

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }  // as arenas do

// Outputs that may take the memory of an input (the worker's rule) are not needed beside it.
ir::Donors donors_of(const ir::Op& op, const ir::Geometry& geometry, std::span<const place::Input> inputs) {
  const std::size_t outputs =
      op.kind == ir::OpKind::kMap && geometry.point_count() > 0 ? op.outputs.size() : 0;
  return ir::match_donors(outputs, inputs.size(), [&](std::size_t o, std::size_t i) {
    return ir::may_overwrite(op, o, i, inputs[i].array->dtype, inputs[i].array->grid);
  });
}

struct Step {
  std::int64_t inputs = 0, outputs = 0;  // scratch lies outside the arenas
  std::int64_t bytes() const { return inputs + outputs; }
};

class Steps {
 public:
  Steps(const State& s, const ir::Op& op, const ir::Geometry& geometry, std::span<const place::Input> inputs)
      : s_(s), op_(op), geometry_(geometry), inputs_(inputs), donors_(donors_of(op, geometry, inputs)) {}

  // Of all that the step reads (`on` null), or what has to be in that device's memory.
  Step of(const ir::Index& point, std::int64_t step, const Device* on) {
    geometry_.reads(point, step, reads_);
    Step out;
    std::set<std::pair<std::uint64_t, std::int64_t>> seen;
    for (const ir::Read& read : reads_) {
      const place::Input& input = inputs_[read.operand];
      if (!seen.emplace(op_.operands[read.operand].array, read.block).second) continue;
      const ir::Index at = ir::unravel(read.block, input.array->grid.counts());
      if (on != nullptr) {
        const Device* owner = s_.device(input.placement->owner(at));
        // Clients' blocks are copied.
        const bool in_place =
            owner != nullptr && owner->id != on->id && owner->host == on->host && s_.is_worker(owner->peer);
        if (in_place) continue;
      }
      out.inputs += rounded(input.array->grid.box(at).volume() *
                            static_cast<std::int64_t>(ir::size_of(input.array->dtype)));
    }
    std::int64_t over_inputs = 0;
    for (std::size_t o = 0; o < op_.outputs.size(); ++o) {
      const ir::OutputSpec& output = op_.outputs[o];
      (donors_[o] < 0 ? out.outputs : over_inputs) +=
          rounded(output.grid.box(point).volume() * static_cast<std::int64_t>(ir::size_of(output.dtype)));
    }
    out.outputs += std::max<std::int64_t>(0, over_inputs - out.inputs);
    return out;
  }

 private:
  const State& s_;
  const ir::Op& op_;
  const ir::Geometry& geometry_;
  std::span<const place::Input> inputs_;
  ir::Donors donors_;
  std::vector<ir::Read> reads_;
};

// Of the held outputs of a placed op on a device.
double held_bytes(const Draft& draft, std::size_t i, DeviceId device, bool exactly) {
  const ir::Op& op = draft.ops[i];
  const ir::Placement& placement = draft.placements[i];
  const std::int64_t owned = placement.owned_count(device);
  double bytes = 0;
  for (const ir::OutputSpec& output : op.outputs) {
    if (!std::binary_search(draft.graph.holds.begin(), draft.graph.holds.end(), output.array)) continue;
    const double element = static_cast<double>(ir::size_of(output.dtype));
    if (!exactly) {
      const std::int64_t points = std::max<std::int64_t>(1, op.space.block_count());
      bytes += place::bytes_of({output.dtype, output.grid}) * static_cast<double>(owned) /
               static_cast<double>(points);
      continue;
    }
    for (std::int64_t n = 0; n < owned; ++n)
      bytes += element * static_cast<double>(output.grid.box(placement.nth(device, n)).volume());
  }
  return bytes;
}

}  // namespace

std::int64_t below_bytes(const State& s, const Device& device) {
  std::int64_t bytes = 0;
  for (const DeviceId id : s.peer(device.peer).info.devices) {
    const Device& other = *s.device(id);
    bytes += other.spill_bytes + other.pinned_bytes;
    // A GPU's neighbours may take its blocks.
    if (device.kind == place::kCudaKind && other.kind == place::kCudaKind && other.id != device.id)
      bytes += other.memory_bytes;
  }
  return bytes;
}

std::optional<msg::NeedAccount> step_too_large(const State& s, const ir::Op& op, const ir::Geometry& geometry,
                                               std::span<const place::Input> inputs,
                                               const ir::Placement& placement) {
  const std::int64_t points = geometry.point_count();
  if (points == 0 || op.kind == ir::OpKind::kKeep) return {};
  const std::vector<DeviceId> devices = placement.devices();
  std::int64_t smallest = INT64_MAX;
  for (const DeviceId id : devices) {
    const Device* device = s.device(id);
    if (device == nullptr || device->memory_bytes == 0) return {};  // not known
    smallest = std::min(smallest, device->memory_bytes);
  }
  Steps steps(s, op, geometry, inputs);
  // Blocks differ by less than this, unless they were cut by hand; then a later sample may still tell.
  if (steps.of(geometry.point(points / 2), 0, nullptr).bytes() <= smallest / 4 &&
      steps.of(geometry.point(0), 0, nullptr).bytes() <= smallest / 4)
    return {};
  for (const DeviceId id : devices) {
    const Device& device = *s.device(id);
    const std::int64_t owned = placement.owned_count(id);
    for (const std::int64_t n : {std::int64_t{0}, owned / 2, owned - 1}) {
      if (n < 0 || n >= owned) continue;
      const ir::Index point = placement.nth(id, n);
      const std::int64_t last = geometry.steps(point) - 1;
      for (const std::int64_t number : {std::int64_t{0}, last}) {
        const Step step = steps.of(point, number, &device);
        if (step.bytes() <= device.memory_bytes) continue;
        msg::NeedAccount need;
        need.devices = {id};
        need.needed_bytes = step.bytes();
        need.memory_bytes = device.memory_bytes;
        need.input_bytes = step.inputs, need.output_bytes = step.outputs;
        return need;
      }
    }
  }
  return {};
}

std::optional<msg::NeedAccount> holds_too_much(const State& s, const Draft& draft) {
  std::map<DeviceId, double> held;
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < draft.ops.size(); ++i) {
      const ir::Op& op = draft.ops[i];
      const bool holds = std::any_of(op.outputs.begin(), op.outputs.end(), [&](const ir::OutputSpec& output) {
        return std::binary_search(draft.graph.holds.begin(), draft.graph.holds.end(), output.array);
      });
      if (!holds || op.kind == ir::OpKind::kProvide) continue;
      for (const DeviceId id : draft.placements[i].devices()) visit(i, id);
    }
  };
  each([&](std::size_t i, DeviceId id) { held[id] += held_bytes(draft, i, id, false); });
  // What devices may have below is their worker's: so either one is too full for all of that, or they are together.
  const auto look = [&](const std::vector<DeviceId>& devices) -> std::optional<msg::NeedAccount> {
    double needed = 0, memory = 0;
    for (const DeviceId id : devices) {
      if (s.device(id)->memory_bytes == 0) return {};
      needed += held.at(id);
      memory += static_cast<double>(s.device(id)->memory_bytes);
    }
    const double below = static_cast<double>(below_bytes(s, *s.device(devices.front())));
    const double room = memory + below;
    if (needed <= room) return {};
    double counted = 0;
    std::int64_t points = 0;
    each([&](std::size_t i, DeviceId id) {
      if (std::binary_search(devices.begin(), devices.end(), id))
        points += draft.placements[i].owned_count(id);
    });
    if (points > kMaxCounted) {
      if (needed <= kSurely * room) return {};
      counted = needed;
    } else {
      each([&](std::size_t i, DeviceId id) {
        if (std::binary_search(devices.begin(), devices.end(), id)) counted += held_bytes(draft, i, id, true);
      });
      if (counted <= room) return {};
    }
    msg::NeedAccount need;
    need.devices = devices;
    if (need.devices.size() > msg::kMaxNeeds) need.devices.resize(msg::kMaxNeeds);
    need.needed_bytes = need.held_bytes = static_cast<std::int64_t>(std::min(counted, 9e18));
    need.memory_bytes = static_cast<std::int64_t>(memory);
    need.below_bytes = static_cast<std::int64_t>(below);
    return need;
  };
  std::map<WorkerId, std::vector<DeviceId>> of_worker;
  for (const auto& [id, bytes] : held) {
    if (s.device(id) == nullptr) continue;
    of_worker[s.device(id)->peer].push_back(id);
    if (auto need = look({id})) return need;
  }
  for (const auto& [worker, devices] : of_worker) {
    if (s.device(devices.front())->kind == place::kCudaKind)
      continue;  // their neighbours' memory is in it already
    if (auto need = look(devices)) return need;
  }
  return {};
}

std::string text_of(const msg::NeedAccount& need) {
  std::string out;
  const auto also = [&](std::int64_t bytes, const char* what) {
    if (bytes > 0) out += (out.empty() ? "" : " and ") + std::to_string(bytes) + what;
  };
  also(need.input_bytes, " bytes to read");
  also(need.output_bytes, " to write");
  also(need.scratch_bytes, " to work in");
  also(need.held_bytes, " bytes of held results");
  out += " at once on ";
  out += need.devices.size() == 1 ? "device " : "devices ";
  for (std::size_t i = 0; i < std::min<std::size_t>(need.devices.size(), 8); ++i)
    out += (i > 0 ? ", " : "") + std::to_string(need.devices[i].value);
  if (need.devices.size() > 8) out += " ...";
  out += need.devices.size() == 1 ? ", which has " : ", which have ";
  out += std::to_string(need.memory_bytes) + " bytes";
  if (need.below_bytes > 0) out += " and " + std::to_string(need.below_bytes) + " below";
  return out;
}

}  // namespace tilewise::scheduler
