// A rule for every op of a planned graph, and the checks that need one: memory and plug-ins.
#include "draft.h"
#include "handlers.h"
#include "layers.h"
#include "needs.h"

#include <tilewise/ir/checkpoint.h>
#include <tilewise/ir/cost.h>
#include <tilewise/place/levels.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

struct Known {  // an array that an op of the draft reads
  ir::SourceArray source;
  const ir::Placement* placement = nullptr;
};

using place::bytes_of;

class OpPlacer {
 public:
  OpPlacer(const State& s, Draft& draft, std::vector<msg::NeedAccount>& told)
      : s_(s), draft_(draft), told_(told) {
    for (const WorkerId id : s.live) {
      if (!s.is_worker(id)) continue;
      for (const DeviceId device : s.peer(id).info.devices) {
        const Device& d = *s.device(device);
        devices_.push_back(place_device(d));
        devices_.back().stays_bytes = devices_.back().earlier_bytes = d.load_bytes;
        draining_ |= d.draining;
      }
    }
    std::sort(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    levels_.emplace(devices_, s.speeds);
    busy_s_.resize(devices_.size());
    needs_.resize(devices_.size());
    draft.placements.resize(draft.ops.size());
    draft.decisions.resize(draft.ops.size());
    for (std::size_t i = 0; i < draft.ops.size(); ++i) {
      for (const ir::OutputSpec& output : draft.ops[i].outputs) made_by_.emplace(output.array, i);
      for (const std::uint64_t array : arrays_read(draft.ops[i])) ++readers_left_[array];
      if (draft.ops[i].kind == ir::OpKind::kMatmul || draft.ops[i].kind == ir::OpKind::kMatmulPanels) {
        for (std::size_t operand = 0; operand < 2; ++operand)
          multiplied_by_.try_emplace(draft.ops[i].operands[operand].array, i, static_cast<int>(operand));
      }
      // The last explicit user wins; with several, moving to one of them is as good as to another.
      if (draft.ops[i].hint.devices.empty()) continue;
      for (const ir::Operand& operand : draft.ops[i].operands) explicit_user_[operand.array] = i;
    }
  }

  Status run() {
    for (std::size_t i = 0; i < draft_.ops.size(); ++i) {
      if (const Status status = place(i); !status) {
        for (msg::NeedAccount& need : told_) need.op = plan::describe(draft_.ops[i], i);
        return error(status.error().code,
                     "planned " + plan::describe(draft_.ops[i], i) + ": " + status.error().message);
      }
      for (const std::uint64_t array : arrays_read(draft_.ops[i])) {
        if (--readers_left_.at(array) == 0) let_go(array);
      }
    }
    draft_.levels_ns = levels_->nanoseconds();
    for (std::size_t d = 0; d < devices_.size(); ++d)
      if (needs_[d] > 0) draft_.needs.emplace_back(devices_[d].id, needs_[d]);
    TW_TRY(held_results_fit());
    if (auto need = holds_too_much(s_, draft_)) {
      told_ = {*need};
      return error(Errc::kOutOfMemory, "where they are placed, results need " + text_of(*need));
    }
    return add_pieces(s_, draft_, std::move(cuts_),
                      [&] { return make_id(s_.options.term, draft_.next_array++); });
  }

 private:
  Known known(std::uint64_t array) const {
    if (const auto it = made_by_.find(array); it != made_by_.end()) {
      const ir::Op& op = draft_.ops[it->second];
      for (const ir::OutputSpec& output : op.outputs) {
        if (output.array == array) return {{output.dtype, output.grid}, &draft_.placements[it->second]};
      }
    }
    const ArrayRecord& record = s_.arrays.at(ArrayId{array});
    const OpRecord& producer = s_.ops.at(record.producer);
    const ir::Placement& placement = layered_placement(s_, producer);
    const std::vector<DeviceId> on = placement.devices();
    if (std::all_of(on.begin(), on.end(), [&](DeviceId id) { return s_.device(id)->alive; }))
      return {record.source, &placement};
    return {record.source, &replaced_.emplace_back(without_lost(s_, placement))};
  }

  Status place(std::size_t i) {
    const ir::Op& op = draft_.ops[i];
    if (op.kind == ir::OpKind::kFetch || op.kind == ir::OpKind::kProvide) {
      const bool given = op.kind == ir::OpKind::kProvide && draft_.given;
      draft_.placements[i] =
          given ? *draft_.given
                : ir::Placement::whole(op.space.counts(),
                                       ir::Rule::constant(op.space.rank(), op.get<ir::FetchAttrs>().to));
      add_level(op, draft_.placements[i]);
      return {};
    }
    std::vector<Known> known_arrays;
    std::vector<ir::SourceArray> sources;
    for (const ir::Operand& operand : op.operands) {
      known_arrays.push_back(known(operand.array));
      sources.push_back(known_arrays.back().source);
    }
    std::vector<place::Input> inputs;
    for (const Known& k : known_arrays) inputs.push_back({&k.source, k.placement});
    TW_ASSIGN(const auto shared, s_.geometries.of(op, std::move(sources)));
    const ir::Geometry& geometry = *shared;
    std::vector<ir::Placement> wanted;
    if (op.hint.devices.empty()) explicit_wish(op, wanted);
    if (op.hint.devices.empty() && op.operands.empty() && wanted.empty()) product_wish(op, wanted);
    TW_TRY(choose_eligible(op));
    TW_TRY(task_fits(op, geometry));
    for (const ir::Operand& operand : op.operands) {
      if (gives_way(op, operand.array)) let_go(operand.array);
    }
    const place::Request request{
        &op,    &geometry,  inputs,  devices_,          eligible_,
        wanted, &s_.speeds, busy_s_, first_block_s(op), cuts_on_ && place::takes_pieces(op)};
    TW_ASSIGN(place::Decision decision, s_.placer.place(request));
    draft_.placements[i] = std::move(decision.placement);
    OpCuts cuts = cuts_of(s_, i, request, draft_.placements[i], open_devices(), decision.by_memory);
    // With pieces it reads less than these blocks.
    const bool whole = cuts.cuts.empty();
    if (auto need = whole ? step_too_large(s_, op, geometry, inputs, draft_.placements[i]) : std::nullopt) {
      told_ = {*need};
      return error(Errc::kOutOfMemory, "one step needs " + text_of(*need) + "; cut its arrays finer");
    }
    levels_->add(op, &geometry, draft_.placements[i], inputs);
    decision.work_s = add_work(op, geometry, draft_.placements[i]);
    draft_.decisions[i] = std::move(decision);
    account_pieces(cuts, 1);
    account(op, draft_.placements[i], geometry.point_count());
    account_pieces(cuts, -1);
    if (!cuts.cuts.empty()) cuts_.push_back(std::move(cuts));
    return {};
  }

  void add_level(const ir::Op& op, const ir::Placement& placement) {  // nothing runs
    std::vector<Known> known_arrays;
    for (const ir::Operand& operand : op.operands) known_arrays.push_back(known(operand.array));
    std::vector<place::Input> inputs;
    for (const Known& k : known_arrays) inputs.push_back({&k.source, k.placement});
    levels_->add(op, nullptr, placement, inputs);
  }

  static std::vector<std::uint64_t> arrays_read(const ir::Op& op) {
    std::vector<std::uint64_t> read;
    for (const ir::Operand& operand : op.operands) read.push_back(operand.array);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    return read;
  }

  // A result of the op takes the memory of the operand (the worker's rule, Core::Impl::grows_by).
  bool gives_way(const ir::Op& op, std::uint64_t array) const {
    if (op.kind != ir::OpKind::kMap || readers_left_.at(array) != 1) return false;
    const auto made = made_by_.find(array);
    if (made == made_by_.end()) return false;
    for (const ir::OutputSpec& source : draft_.ops[made->second].outputs) {
      const auto alike = [&](const ir::OutputSpec& output) {
        return output.dtype == source.dtype && output.grid == source.grid;
      };
      if (source.array != array || std::none_of(op.outputs.begin(), op.outputs.end(), alike)) continue;
      return std::all_of(op.operands.begin(), op.operands.end(), [&](const ir::Operand& operand) {
        return operand.array != array || operand.view.is_identity(source.grid.shape());
      });
    }
    return false;
  }

  // All but those that are being drained, with what they have been given so far.
  std::span<const place::Device> open_devices() {
    if (!draining_) return devices_;
    open_ = devices_;
    std::erase_if(open_, [&](const place::Device& d) { return s_.device(d.id)->draining; });
    return open_;
  }

  Status choose_eligible(const ir::Op& op) {
    for (const DeviceId id : op.hint.devices) {
      if (s_.device(id)->draining)
        return error(Errc::kUnavailable, "device " + std::to_string(id.value) + " is being drained");
    }
    const std::span<const place::Device> open = open_devices();
    if (open.empty() && !devices_.empty()) return error(Errc::kUnavailable, "all devices are being drained");
    if (devices_.empty())
      return error(Errc::kUnavailable, "no device can run op '" + std::string(ir::name_of(op.kind)) +
                                           "': no worker with a fitting device has joined");
    place::eligible_devices(op, open, eligible_);
    if (op.kind != ir::OpKind::kCall) return {};
    const auto& call = op.get<ir::CallAttrs>();
    if (ir::checkpoint::is_kernel(call.kernel))
      return error(Errc::kPermissionDenied, "kernel '" + call.kernel + "' is for the scheduler alone");
    const auto plugin = s_.plugins.find(call.kernel);
    if (plugin == s_.plugins.end()) {
      return error(Errc::kNotFound, "no worker offers the plug-in kernel '" + call.kernel + "'");
    }
    if (!call.version.empty() &&
        plugin->second.version != call.version) {  // empty: what the workers agreed on
      return error(Errc::kVersionMismatch, "plug-in kernel '" + call.kernel + "' has version '" +
                                               plugin->second.version + "', not '" + call.version + "'");
    }
    const auto offers = [&](DeviceId id) {
      const auto& offered = s_.peer(s_.device(id)->peer).plugins;
      return std::any_of(offered.begin(), offered.end(),
                         [&](const auto& p) { return p.kernel == call.kernel; });
    };
    std::erase_if(eligible_, [&](const place::Device& d) { return !offers(d.id); });
    if (eligible_.empty()) {  // only on devices that automatic placement would not have chosen
      eligible_.assign(open.begin(), open.end());
      std::erase_if(eligible_, [&](const place::Device& d) { return !offers(d.id); });
    }
    for (const DeviceId id : op.hint.devices) {
      if (!offers(id)) {
        return error(Errc::kNotFound,
                     "device " + std::to_string(id.value) + " has no plug-in kernel '" + call.kernel + "'");
      }
    }
    return {};
  }

  // What one task writes and needs besides must fit the largest device it may run on. (Zero memory: not known.)
  Status task_fits(const ir::Op& op, const ir::Geometry& geometry) {
    if (geometry.point_count() == 0) return {};
    std::int64_t needed = geometry.output_bytes_bound();
    if (op.kind == ir::OpKind::kCall) needed += op.get<ir::CallAttrs>().scratch_bytes;
    std::int64_t largest = 0;
    const auto look = [&](DeviceId id) {
      const std::int64_t memory = s_.device(id)->memory_bytes;
      largest = std::max(largest, memory == 0 ? INT64_MAX : memory);
    };
    if (!op.hint.devices.empty())
      for (const DeviceId id : op.hint.devices) look(id);
    else
      for (const place::Device& d : eligible_) look(d.id);
    if (largest == 0 || needed <= largest) return {};
    const auto tell = [&](DeviceId id) {
      if (told_.size() == msg::kMaxNeeds) return;
      msg::NeedAccount& need = told_.emplace_back();
      need.devices = {id};
      need.needed_bytes = needed;
      need.memory_bytes = s_.device(id)->memory_bytes;
      need.output_bytes = geometry.output_bytes_bound();
      need.scratch_bytes = needed - need.output_bytes;
    };
    for (const DeviceId id : op.hint.devices) tell(id);
    if (op.hint.devices.empty())
      for (const place::Device& d : eligible_) tell(d.id);
    return error(Errc::kOutOfMemory, "one task needs " + std::to_string(needed) + " bytes for its results " +
                                         (op.outputs.empty() ? "" : ir::to_string(op.outputs[0].grid)) +
                                         ", the largest device has " + std::to_string(largest) +
                                         "; cut the array finer");
  }

  // Results that a client holds stay in memory or below it, all of them at once.
  Status held_results_fit() {
    double memory = 0, pinned = 0, disk = 0;
    for (const place::Device& d : devices_) {
      const std::int64_t bytes = s_.device(d.id)->memory_bytes;
      if (bytes == 0) return {};
      memory += static_cast<double>(bytes);
      pinned += static_cast<double>(s_.device(d.id)->pinned_bytes);
      disk += static_cast<double>(s_.device(d.id)->spill_bytes);
    }
    double needed = 0;
    std::string account;
    for (const std::uint64_t array : draft_.graph.holds) {
      const auto it = made_by_.find(array);
      if (it == made_by_.end() || draft_.ops[it->second].kind == ir::OpKind::kProvide) continue;
      const Known k = known(array);
      needed += bytes_of(k.source);
      if (account.size() > 512) continue;
      account += "; array " + std::to_string(draft_.number_of(array)) + " " + ir::to_string(k.source.grid) +
                 " of " + std::string(ir::name_of(k.source.dtype)) + ": " +
                 std::to_string(static_cast<std::uint64_t>(bytes_of(k.source))) + " bytes";
    }
    if (devices_.empty() || needed <= memory + pinned + disk) return {};
    msg::NeedAccount& need = told_.emplace_back();
    for (const place::Device& d : devices_)
      if (need.devices.size() < msg::kMaxNeeds) need.devices.push_back(d.id);
    need.needed_bytes = need.held_bytes = static_cast<std::int64_t>(std::min(needed, 9e18));
    need.memory_bytes = static_cast<std::int64_t>(memory);
    need.below_bytes = static_cast<std::int64_t>(pinned + disk);
    const auto also = [](double bytes, const char* where) {
      return bytes > 0 ? ", " + std::to_string(static_cast<std::uint64_t>(bytes)) + where : std::string();
    };
    return error(Errc::kOutOfMemory,
                 "the held results need " + std::to_string(static_cast<std::uint64_t>(needed)) +
                     " bytes, the " + std::to_string(devices_.size()) + " devices have " +
                     std::to_string(static_cast<std::uint64_t>(memory)) + " together" +
                     also(pinned, " in pinned memory") + also(disk, " on disk") + account);
  }

  // A later op with explicit devices reads this result block by block: making it there saves the move.
  void explicit_wish(const ir::Op& op, std::vector<ir::Placement>& wanted) const {
    for (const ir::OutputSpec& output : op.outputs) {
      const auto it = explicit_user_.find(output.array);
      if (it == explicit_user_.end()) continue;
      const ir::Op& user = draft_.ops[it->second];
      if (user.space.counts() != op.space.counts()) continue;
      const ir::PerDim<double> even(op.space.counts().size(), 1.0);
      wanted.push_back(place::hinted(user.hint, op.space.counts(), even));
    }
  }

  // What is made of nothing is made where a product that reads it wants it.
  void product_wish(const ir::Op& op, std::vector<ir::Placement>& wanted) {
    for (const ir::OutputSpec& output : op.outputs) {
      const auto it = multiplied_by_.find(output.array);
      if (it == multiplied_by_.end()) continue;
      const auto [user, operand] = it->second;
      const ir::Op& product = draft_.ops[user];
      std::vector<Known> known_arrays;
      std::vector<ir::SourceArray> sources;
      std::vector<place::Input> inputs;
      for (const ir::Operand& read : product.operands) known_arrays.push_back(known(read.array));
      for (const Known& k : known_arrays) {
        sources.push_back(k.source);
        inputs.push_back({&k.source, k.placement});
      }
      const auto geometry = s_.geometries.of(product, std::move(sources));
      if (!geometry || !choose_eligible(product)) continue;  // its own turn will tell
      ir::Placement placement;
      if (place::wanted_by_product({&product, geometry->get(), inputs, devices_, eligible_, {}}, operand,
                                   placement))
        wanted.push_back(std::move(placement));
    }
  }

  // When devices could have made their first blocks of what it reads.
  double first_block_s(const ir::Op& op) const {
    double seconds = 0;
    for (const ir::Operand& operand : op.operands) {
      const auto made = first_block_s_.find(operand.array);
      if (made != first_block_s_.end()) seconds = std::max(seconds, made->second);
    }
    return seconds;
  }

  // So that later ops of the plan know who has much to do already, and since when there is something to read. Returns what the busiest
  // device has of this one, in seconds.
  double add_work(const ir::Op& op, const ir::Geometry& geometry, const ir::Placement& placement) {
    if (geometry.point_count() == 0) return 0;
    double most = 0, firsts_s = 0;
    std::int64_t points = 0;
    const double ready_s = first_block_s(op);
    const ir::Index middle = geometry.point(geometry.point_count() / 2);
    const double point_s =
        ir::model_step_ns(geometry, middle) * static_cast<double>(geometry.steps(middle)) * 1e-9;
    const std::vector<double> ratios = s_.speeds.coarse_ratios(devices_, ir::family_of(op));
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const std::int64_t owned = placement.owned_count(devices_[d].id);
      if (owned == 0) continue;
      const double task_s = point_s * ratios[d];
      const double seconds =
          task_s * static_cast<double>(owned) / static_cast<double>(std::max(1, devices_[d].streams));
      firsts_s += static_cast<double>(owned) * (std::max(ready_s, busy_s_[d]) + task_s);
      points += owned;
      // What reads nothing of this plan may be done while others wait.
      busy_s_[d] = (ready_s == 0 ? busy_s_[d] : std::max(busy_s_[d], ready_s)) + seconds;
      most = std::max(most, seconds);
    }
    for (const ir::OutputSpec& output : op.outputs)
      first_block_s_.emplace(output.array, points == 0 ? ready_s : firsts_s / static_cast<double>(points));
    return most;
  }

  // What the op makes is there while later ops of the plan read it, and stays where it is held.
  void account(const ir::Op& op, const ir::Placement& placement, std::int64_t points) {
    if (points == 0) return;
    double bytes = 0, held = 0;
    for (const ir::OutputSpec& output : op.outputs) {
      const double all = bytes_of({output.dtype, output.grid});
      bytes += all;
      if (is_held(output.array)) held += all;
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const double share =
          static_cast<double>(placement.owned_count(devices_[d].id)) / static_cast<double>(points);
      if (share == 0) continue;
      devices_[d].load_bytes += static_cast<std::int64_t>(bytes * share);
      const std::int64_t stays = devices_[d].stays_bytes - devices_[d].earlier_bytes;
      needs_[d] = std::max(needs_[d], stays + static_cast<std::int64_t>(bytes * share));
      devices_[d].stays_bytes += static_cast<std::int64_t>(held * share);
      for (const ir::OutputSpec& output : op.outputs) {
        if (!is_read_later(output.array)) continue;
        const auto part = static_cast<std::int64_t>(bytes_of({output.dtype, output.grid}) * share);
        devices_[d].stays_bytes += part;
        to_be_read_[output.array].push_back({d, part});
      }
    }
  }
  // Pieces are there until the op has them.
  void account_pieces(const OpCuts& cuts, std::int64_t sign) {
    for (const place::Cut& cut : cuts.cuts) {
      for (const place::CutPart& part : cut.parts) {
        if (!part.apart) continue;
        const double bytes =
            bytes_of({cut.source.dtype, part.pieces}) / static_cast<double>(part.pieces.block_count());
        for (place::Device& device : devices_) {
          const auto here =
              static_cast<std::int64_t>(bytes * static_cast<double>(part.placement.owned_count(device.id)));
          device.stays_bytes += sign * here;
          device.load_bytes += sign * here;
        }
      }
    }
  }
  bool is_held(std::uint64_t array) const {
    return std::binary_search(draft_.graph.holds.begin(), draft_.graph.holds.end(), array);
  }
  bool is_read_later(std::uint64_t array) const { return !is_held(array) && readers_left_.contains(array); }
  // Its last reader has been placed, or takes its memory.
  void let_go(std::uint64_t array) {
    const auto parts = to_be_read_.find(array);
    if (parts == to_be_read_.end()) return;
    for (const auto& [d, bytes] : parts->second) devices_[d].stays_bytes -= bytes;
    to_be_read_.erase(parts);
  }

  const State& s_;
  Draft& draft_;
  std::vector<msg::NeedAccount>& told_;         // what does not fit
  mutable std::deque<ir::Placement> replaced_;  // of arrays with blocks on lost devices
  bool draining_ = false;                       // some device is
  const bool cuts_on_ = cuts_pieces(s_.options);
  Cuts cuts_;
  std::vector<place::Device> devices_, open_,
      eligible_;  // all; those that are not drained; those that may run an op
  std::optional<place::Levels> levels_;
  std::vector<double> busy_s_;  // by device: when it would be done with this plan's work so far
  boost::unordered_flat_map<std::uint64_t, double>
      first_block_s_;  // by array of this plan: when those who make it could have one each, on average
  std::vector<std::int64_t> needs_;  // by device: most bytes of this plan at once
  boost::unordered_flat_map<std::uint64_t, std::size_t> made_by_, explicit_user_;
  boost::unordered_flat_map<std::uint64_t, std::int64_t>
      readers_left_;  // ops of the plan that read the array and are not placed yet
  using Part = std::pair<std::size_t, std::int64_t>;  // of devices_, and bytes
  boost::unordered_flat_map<std::uint64_t, std::vector<Part>>
      to_be_read_;  // what stays_bytes has of arrays that are not held
  boost::unordered_flat_map<std::uint64_t, std::pair<std::size_t, int>> multiplied_by_;  // op and operand
};

}  // namespace

Status place_ops(const State& s, Draft& draft, std::vector<msg::NeedAccount>& needs) {
  return OpPlacer(s, draft, needs).run();
}

}  // namespace tilewise::scheduler
