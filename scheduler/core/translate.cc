// From a client's words to the scheduler's: session numbers become ArrayIds, and everything that names something is
// checked. What an op means by itself is checked by ir::verify, which the planner runs first.
#include "draft.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

Error in_op(const ir::Op& op, std::size_t position, Errc code, const std::string& what) {
  return error(code, plan::describe(op, position) + ": " + what);
}

std::string device_name(const State& s, DeviceId id) {
  const Device* device = s.device(id);
  if (device == nullptr) return "device " + std::to_string(id.value);
  const msg::PeerInfo& info = s.peer(device->peer).info;
  const auto at = std::find(info.devices.begin(), info.devices.end(), id) - info.devices.begin();
  return info.descriptions[static_cast<std::size_t>(at)].name;
}

bool is_workers(const State& s, const Device* device) {
  return device != nullptr && s.is_worker(device->peer);
}

Status check_hint(const State& s, const ir::Op& op, std::size_t position) {
  for (const DeviceId id : op.hint.devices) {
    const Device* device = s.device(id);
    if (!is_workers(s, device)) {
      return in_op(op, position, Errc::kNotFound,
                   "there is no device " + std::to_string(id.value) + " to place it on");
    }
    if (!device->alive) {
      return in_op(op, position, Errc::kWorkerLost,
                   "device " + device_name(s, id) + " was lost with its worker");
    }
  }
  return {};
}

// kFetch and kProvide: the client's own endpoint, whatever it wrote.
Status bind_endpoint(const State& s, const Session& session, ir::Op& op, std::size_t position) {
  if (!session.device) {
    return in_op(op, position, Errc::kInvalidArgument, "this client has joined without a data endpoint");
  }
  if (!op.hint.devices.empty()) {
    return in_op(op, position, Errc::kPlacementConflict,
                 "placed on " + device_name(s, op.hint.devices[0]) + ", but its blocks are on the client's " +
                     device_name(s, session.device));
  }
  op.attrs = ir::FetchAttrs{session.device};
  return {};
}

class Translator {
 public:
  Translator(const State& s, const Session& session) : s_(s), session_(session) {
    draft_.next_array = s.next_array;
  }

  Status op(ir::Op& op, std::size_t position) {
    if (op.operands.size() > static_cast<std::size_t>(limits::kMaxOperands) ||
        op.outputs.size() > static_cast<std::size_t>(limits::kMaxOutputs)) {
      return in_op(op, position, Errc::kLimitExceeded,
                   std::to_string(op.operands.size()) + " operands and " + std::to_string(op.outputs.size()) +
                       " outputs");
    }
    const bool endpoint = op.kind == ir::OpKind::kFetch || op.kind == ir::OpKind::kProvide;
    if (op.kind == ir::OpKind::kFetch) {
      if (op.operands.size() != 1) return in_op(op, position, Errc::kInvalidArgument, "fetches one array");
      draft_.fetched.push_back(op.operands[0].array);
    }
    TW_TRY(endpoint ? bind_endpoint(s_, session_, op, position) : check_hint(s_, op, position));
    for (ir::Operand& operand : op.operands) TW_TRY(read(op, position, operand));
    for (ir::OutputSpec& output : op.outputs) TW_TRY(write(op, position, output));
    return {};
  }

  Status hold(std::uint64_t number) {
    const auto it = draft_.names.find(number);
    if (it == draft_.names.end()) {
      return error(Errc::kNotFound,
                   "array " + std::to_string(number) + " is to be held, but no op of this request makes it");
    }
    draft_.graph.holds.push_back(it->second);
    return {};
  }

  void holds_are_all() {
    auto& holds = draft_.graph.holds;
    std::sort(holds.begin(), holds.end());
    holds.erase(std::unique(holds.begin(), holds.end()), holds.end());
  }

  Status keep(const msg::Keep& keep) {
    const std::string name = "array " + std::to_string(keep.array);
    if (keep.copies < 1 || keep.copies > msg::kMaxCopies) {
      return error(Errc::kInvalidArgument, std::to_string(keep.copies) + " copies of " + name + ": 1 to " +
                                               std::to_string(msg::kMaxCopies) + " can be kept");
    }
    const auto own = draft_.names.find(keep.array);
    const auto held = session_.arrays.find(keep.array);
    const auto& holds = draft_.graph.holds;
    ArrayId id;
    if (own != draft_.names.end() && std::binary_search(holds.begin(), holds.end(), own->second))
      id = ArrayId{own->second};
    else if (own == draft_.names.end() && held != session_.arrays.end())
      id = held->second;
    else
      return error(Errc::kNotFound, name + " is to have copies, but it is not held");
    if (const ArrayRecord* array = s_.arrays.find(id); array != nullptr && !array->failed.ok())
      return error(array->failed.code, name + " cannot be used: " + array->failed.message);
    if (keep.copies > 1) draft_.copies.emplace_back(id, keep.copies);
    return {};
  }

  Draft take(std::vector<ir::Op> ops) {
    draft_.graph.ops = std::move(ops);
    draft_.own = draft_.numbers.size();
    auto& copies = draft_.copies;  // of several wishes for one array the largest
    std::sort(copies.begin(), copies.end(), std::greater<>());
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    copies.erase(std::unique(copies.begin(), copies.end(), same), copies.end());
    auto& externals = draft_.graph.externals;
    std::sort(externals.begin(), externals.end(),
              [](const auto& a, const auto& b) { return a.array < b.array; });
    externals.erase(std::unique(externals.begin(), externals.end(),
                                [](const auto& a, const auto& b) { return a.array == b.array; }),
                    externals.end());
    return std::move(draft_);
  }

 private:
  Status read(const ir::Op& op, std::size_t position, ir::Operand& operand) {
    const std::uint64_t number = operand.array;
    if (const auto own = draft_.names.find(number); own != draft_.names.end()) {
      operand.array = own->second;
      return {};
    }
    const auto held = session_.arrays.find(number);
    if (held == session_.arrays.end()) {
      return in_op(op, position, Errc::kNotFound,
                   "array " + std::to_string(number) + " is unknown: never made, not held, or released");
    }
    const ArrayRecord& array = s_.arrays.at(held->second);
    if (!array.failed.ok()) {
      return in_op(op, position, array.failed.code,
                   "array " + std::to_string(number) + " " + ir::to_string(array.source.grid) +
                       " cannot be used: " + array.failed.message);
    }
    operand.array = array.id.value;
    draft_.graph.externals.push_back({array.id.value, array.source});
    return {};
  }

  Status write(const ir::Op& op, std::size_t position, ir::OutputSpec& output) {
    const std::uint64_t id = make_id(s_.options.term, draft_.next_array);
    if (session_.arrays.contains(output.array) || !draft_.names.emplace(output.array, id).second) {
      return in_op(op, position, Errc::kAlreadyExists,
                   "output number " + std::to_string(output.array) + " is in use");
    }
    ++draft_.next_array;
    draft_.numbers.emplace(id, output.array);
    if (op.kind == ir::OpKind::kProvide) draft_.provided.emplace_back(output.array, ArrayId{id});
    output.array = id;
    return {};
  }

  const State& s_;
  const Session& session_;
  Draft draft_;
};

Status check_weight(const msg::Submit& submit) {
  if (submit.weight >= 1 && submit.weight <= msg::kMaxWeight) return {};
  return error(Errc::kInvalidArgument, "a session's weight is 1 to " + std::to_string(msg::kMaxWeight) +
                                           ", not " + std::to_string(submit.weight));
}

}  // namespace

std::optional<Draft> translate_kept(const State& s, const Session& session, const msg::Submit& submit,
                                    const SessionProgram* kept) {
  const std::uint64_t first = submit.first_output;
  if (!check_weight(submit) || !submit.keeps.empty() || !ir::fit(kept->constants, submit.constants))
    return {};
  if (first == 0 || first >= msg::kInputPlace) return {};
  // Also those of ops that no plan has, since nobody reads them: with ops or by name, a request is refused alike.
  for (const DeviceId id : kept->hinted) {
    const Device* device = s.device(id);
    if (!is_workers(s, device) || !device->alive) return {};
  }
  const auto taken = session.arrays.lower_bound(first);
  if (taken != session.arrays.end() && taken->first - first < kept->outputs) return {};
  Draft draft;
  draft.kept = kept;
  draft.own = kept->outputs;
  draft.first_number = first;
  draft.next_array = s.next_array + kept->outputs;
  for (const std::uint64_t number : submit.inputs) {
    const auto held = session.arrays.find(number);
    if (held == session.arrays.end() || !s.arrays.at(held->second).failed.ok()) return {};
    draft.program.externals.push_back(held->second.value);
  }
  draft.program.constants = submit.constants;
  std::vector<std::uint64_t> distinct = draft.program.externals;
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) return {};
  const std::uint64_t first_id = make_id(s.options.term, s.next_array);
  std::vector<std::uint64_t>& holds = draft.graph.holds;
  for (const std::uint64_t number : submit.holds) {
    if (number - first >= kept->outputs) return {};
    holds.push_back(number - first + first_id);
  }
  std::sort(holds.begin(), holds.end());
  holds.erase(std::unique(holds.begin(), holds.end()), holds.end());
  for (const std::uint64_t place : kept->fetched)
    draft.fetched.push_back(place < msg::kInputPlace ? first + place
                                                     : submit.inputs[place - msg::kInputPlace]);
  for (const std::uint64_t place : kept->provided)
    draft.provided.emplace_back(first + place, ArrayId{first_id + place});
  return draft;
}

Result<Draft> translate(const State& s, const Session& session, msg::Submit& submit) {
  if (submit.ops.size() > limits::kMaxOpsPerSubmit) {
    return error(Errc::kLimitExceeded, std::to_string(submit.ops.size()) +
                                           " ops in one request, the limit is " +
                                           std::to_string(limits::kMaxOpsPerSubmit));
  }
  TW_TRY(check_weight(submit));
  Translator translator(s, session);
  for (std::size_t i = 0; i < submit.ops.size(); ++i) TW_TRY(translator.op(submit.ops[i], i));
  for (const std::uint64_t number : submit.holds) TW_TRY(translator.hold(number));
  translator.holds_are_all();
  for (const msg::Keep& keep : submit.keeps) TW_TRY(translator.keep(keep));
  return translator.take(std::move(submit.ops));
}

}  // namespace tilewise::scheduler
