#include "graph.h"

#include <tilewise/base/check.h>

#include <algorithm>

namespace tilewise::client {

Key Graph::add(ir::Op op, std::shared_ptr<const Memory> memory) {
  const std::uint64_t number = next_node_++;
  const Key key = number * limits::kMaxOutputs;
  for (const ir::Operand& operand : op.operands) ++out(operand.array).users;
  Node& n = nodes_[number];
  n.outputs.assign(op.outputs.size(), Output{.pins = 1});
  for (std::size_t o = 0; o < op.outputs.size(); ++o) op.outputs[o].array = key + o;
  n.op = std::move(op);
  n.memory = std::move(memory);
  return key;
}

const ir::OutputSpec& Graph::output(Key key) const { return node(key).op.outputs[key % limits::kMaxOutputs]; }

ir::SourceArray Graph::source(Key key) const {
  const ir::OutputSpec& spec = output(key);
  return {spec.dtype, spec.grid};
}

Result<bool> Graph::place(Key key, const ir::DeviceHint& hint,
                          const std::function<std::string(DeviceId)>& name) {
  Node& n = node(key);
  if (n.op.hint == hint) return true;
  if (n.submitted) return false;
  if (!n.op.hint.devices.empty()) {
    const auto names = [&](const ir::DeviceHint& h) {
      std::string text;
      for (const DeviceId d : h.devices) text += (text.empty() ? "" : ", ") + name(d);
      return "[" + text + "]";
    };
    return error(Errc::kPlacementConflict, "the array of shape " + ir::to_string(output(key).grid.shape()) +
                                               " is placed on " + names(n.op.hint) +
                                               " and cannot also be placed on " + names(hint));
  }
  n.op.hint = hint;
  return true;
}

void Graph::unpin(Key key) {
  Output& o = out(key);
  TW_CHECK(o.pins > 0, "unpin of an array that is not pinned");
  --o.pins;
  settle(key);
}

void Graph::settle(Key first) {
  std::vector<Key> pending{first};
  while (!pending.empty()) {
    const Key key = pending.back();
    pending.pop_back();
    const auto it = nodes_.find(key / limits::kMaxOutputs);
    if (it == nodes_.end()) continue;
    Node& n = it->second;
    Output& o = n.outputs[key % limits::kMaxOutputs];
    if (o.pins > 0 || o.users > 0) continue;
    if (o.remote != 0) released_.push_back(std::exchange(o.remote, 0));
    const bool wanted = std::any_of(n.outputs.begin(), n.outputs.end(),
                                    [](const Output& x) { return x.pins > 0 || x.users > 0; });
    if (wanted) continue;
    for (const ir::Operand& operand : n.op.operands) {
      --out(operand.array).users;
      pending.push_back(operand.array);
    }
    nodes_.erase(it);
  }
}

// Depth first with an explicit stack: a node is appended after everything it reads.
void Graph::collect(const std::vector<Key>& roots, std::vector<std::uint64_t>& order) {
  ++visit_;
  struct Frame {
    std::uint64_t number;
    std::size_t next;
  };
  std::vector<Frame> stack;
  const auto reach = [&](Key key) {
    Node& n = node(key);
    if (out(key).remote != 0 || n.visited == visit_) return;
    n.visited = visit_;
    stack.push_back({key / limits::kMaxOutputs, 0});
  };
  for (const Key root : roots) {
    reach(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      const Node& n = nodes_.at(top.number);
      if (top.next < n.op.operands.size()) {
        reach(n.op.operands[top.next++].array);  // may move `top`
        continue;
      }
      order.push_back(top.number);
      stack.pop_back();
    }
  }
}

Result<Submission> Graph::submit(const Wish& wish, bool only_look) {
  std::vector<Key> roots = wish.fetch;
  roots.insert(roots.end(), wish.hold.begin(), wish.hold.end());
  roots.insert(roots.end(), wish.run.begin(), wish.run.end());
  std::vector<std::uint64_t> order;
  collect(roots, order);

  std::vector<Key> fetch = wish.fetch;
  std::sort(fetch.begin(), fetch.end());
  fetch.erase(std::unique(fetch.begin(), fetch.end()), fetch.end());
  const std::size_t count = order.size() + fetch.size();
  if (count > limits::kMaxOpsPerSubmit) {
    return error(Errc::kLimitExceeded, "an expression of " + std::to_string(count) +
                                           " ops; one request takes " +
                                           std::to_string(limits::kMaxOpsPerSubmit) +
                                           ": persist() an intermediate array and go on from there");
  }

  Submission s;
  const std::uint64_t first_number = next_number_;
  s.ops.reserve(count);
  std::unordered_map<Key, std::uint64_t> numbers;
  const auto number_of = [&](Key key) -> std::uint64_t {
    const auto it = numbers.find(key);
    if (it != numbers.end()) return it->second;
    s.named.push_back(out(key).remote);
    return out(key).remote;
  };
  for (const std::uint64_t number : order) {
    Node& n = nodes_.at(number);
    n.submitted |= !only_look;
    ir::Op op = n.op;
    for (ir::Operand& operand : op.operands) operand.array = number_of(operand.array);
    for (ir::OutputSpec& output : op.outputs) {
      const Key key = output.array;
      output.array = numbers[key] = next_number_++;
      if (n.memory) s.provided.push_back({output.array, {output.dtype, output.grid}, n.memory});
    }
    s.ops.push_back(std::move(op));
  }
  for (const Key key : fetch) {
    const ir::OutputSpec& array = output(key);
    ir::Op op{ir::OpKind::kFetch, {{number_of(key), ir::View::identity(array.grid.shape())}}, {}, array.grid};
    op.attrs = ir::FetchAttrs{};
    s.ops.push_back(std::move(op));
  }
  if (wish.undo) {
    s.undo = wish.undo;
    s.undo->outputs[0].array = next_number_++;
  }
  for (const Key key : wish.fetch) s.fetches.push_back({key, number_of(key)});
  for (const Key key : wish.hold) {
    const bool named =
        std::any_of(s.holds.begin(), s.holds.end(), [&](const auto& h) { return h.key == key; });
    if (out(key).remote != 0 || named) continue;  // held already, or named twice
    s.holds.push_back({key, number_of(key)});
    if (!only_look) out(key).remote = number_of(key);
  }
  if (only_look) next_number_ = first_number;
  return s;
}

void Graph::held(const Submission& submission, bool ok) {
  for (const auto& [key, number] : submission.holds) {
    const auto it = nodes_.find(key / limits::kMaxOutputs);
    if (it == nodes_.end()) continue;  // let go meanwhile
    Node& n = it->second;
    Output& o = n.outputs[key % limits::kMaxOutputs];
    if (o.remote != number) continue;
    if (!ok) {
      released_.push_back(std::exchange(o.remote, 0));
      n.submitted = false;
      continue;
    }
    // The lineage is the scheduler's business now. Loops that persist each turn's result stay as small as one turn.
    const bool all = std::all_of(n.outputs.begin(), n.outputs.end(), [](const Output& x) {
      return x.remote != 0 || (x.pins == 0 && x.users == 0);
    });
    if (!all) continue;
    for (const ir::Operand& operand : std::exchange(n.op.operands, {})) {
      --out(operand.array).users;
      settle(operand.array);
    }
    n.memory.reset();
  }
}

}  // namespace tilewise::client
