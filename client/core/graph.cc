#include "graph.h"

#include <tilewise/base/check.h>
#include <tilewise/base/digest.h>
#include <tilewise/ir/op_digest.h>

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
      text = "[" + text + "]";
      // Of a mesh: the same devices in another way are another placement.
      if (!h.parts.empty())
        text += " in " + ir::to_string(ir::Shape(h.parts.begin(), h.parts.end())) + " parts";
      if (h.copies > 1) text += ", " + std::to_string(h.copies) + " copies each";
      return text;
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
void Graph::collect(const std::vector<Key>& roots, std::vector<Node*>& order) {
  ++visit_;
  struct Frame {
    Node* node;
    std::size_t next;
  };
  std::vector<Frame> stack;
  const auto reach = [&](Key key) {
    Node& n = node(key);
    if (n.outputs[key % limits::kMaxOutputs].remote != 0 || n.visited == visit_) return;
    n.visited = visit_;
    stack.push_back({&n, 0});
  };
  for (const Key root : roots) {
    reach(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.node->op.operands.size()) {
        reach(top.node->op.operands[top.next++].array);  // may move `top`
        continue;
      }
      order.push_back(top.node);
      stack.pop_back();
    }
  }
}

// A submission before its arrays have numbers.
struct Graph::Draft {
  std::vector<Node*> order;
  std::vector<Key> fetch;
  std::uint64_t first = 0;              // number of the first output
  std::uint64_t outputs = 0;            // so many
  std::vector<std::uint64_t> inputs;    // numbers, by place
  std::vector<std::uint64_t> operands;  // places, of all operands in order
  ir::Constants constants;              // by number, once a program is the same

  std::uint64_t number(std::uint64_t place) const {
    return place < msg::kInputPlace ? first + place : inputs[place - msg::kInputPlace];
  }
};

void Graph::lay_out(Draft& draft) {
  const auto read = [&](Key key) {
    Output& o = out(key);
    if (std::exchange(o.visited, visit_) != visit_) {
      o.place = msg::kInputPlace + draft.inputs.size();
      draft.inputs.push_back(o.remote);
    }
    draft.operands.push_back(o.place);
  };
  for (Node* n : draft.order) {
    for (const ir::Operand& operand : n->op.operands) read(operand.array);
    for (Output& o : n->outputs) o.visited = visit_, o.place = draft.outputs++;
  }
  for (const Key key : draft.fetch) read(key);
}

bool Graph::same(Draft& draft, const msg::Program& program) const {
  auto place = draft.operands.begin();
  ir::ConstantNumbers numbers;
  const auto alike = [&](const ir::Op& a, const ir::Op& b) {
    if (a.kind != b.kind || a.operands.size() != b.operands.size() || a.outputs.size() != b.outputs.size())
      return false;
    for (const ir::Operand& operand : b.operands)
      if (operand.array != *place++) return false;
    for (std::size_t i = 0; i < a.operands.size(); ++i)
      if (a.operands[i].view != b.operands[i].view) return false;
    for (std::size_t i = 0; i < a.outputs.size(); ++i)
      if (a.outputs[i].dtype != b.outputs[i].dtype || a.outputs[i].grid != b.outputs[i].grid) return false;
    return a.space == b.space && ir::same_attrs(a, b, numbers) && a.hint == b.hint && a.label == b.label;
  };
  for (std::size_t i = 0; i < draft.order.size(); ++i)
    if (!alike(draft.order[i]->op, program.ops[i])) return false;
  for (std::size_t i = draft.order.size(); i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    if (op.kind != ir::OpKind::kFetch || op.operands[0].array != *place++) return false;
    if (output(draft.fetch[i - draft.order.size()]).grid != op.space) return false;
  }
  draft.constants = numbers.take();
  return true;
}

// The ops as they are sent; returns the digest of the program, that is by place and without constants.
std::uint64_t Graph::write_ops(const Draft& draft, std::vector<ir::Op>& ops) const {
  auto place = draft.operands.begin();
  ops.reserve(draft.order.size() + draft.fetch.size());
  const auto add = [&](ir::Op op, std::uint64_t output) {
    for (ir::Operand& operand : op.operands) operand.array = *place++;
    for (ir::OutputSpec& spec : op.outputs) spec.array = output++;
    ops.push_back(std::move(op));
  };
  for (const Node* n : draft.order) add(n->op, n->outputs.empty() ? 0 : n->outputs[0].place);
  for (const Key key : draft.fetch) {
    const ir::OutputSpec& array = output(key);
    ir::Op op{ir::OpKind::kFetch, {{0, ir::View::identity(array.grid.shape())}}, {}, array.grid};
    op.attrs = ir::FetchAttrs{};
    add(std::move(op), 0);
  }
  const ir::Constants constants = ir::take_constants(ops);
  Digest digest;
  for (ir::Op& op : ops) {
    digest.mix(ir::digest(op, true));
    for (ir::Operand& operand : op.operands) operand.array = draft.number(operand.array);
    for (ir::OutputSpec& spec : op.outputs) spec.array = draft.number(spec.array);
  }
  ir::put_constants(ops, constants);
  return digest.value();
}

Result<Submission> Graph::submit(const Wish& wish, std::uint64_t request, bool only_look) {
  std::vector<Key> roots = wish.fetch;
  roots.insert(roots.end(), wish.hold.begin(), wish.hold.end());
  roots.insert(roots.end(), wish.run.begin(), wish.run.end());
  Draft draft;
  collect(roots, draft.order);
  for (const Node* n : draft.order) {
    if (n->failed) return *n->failed;
  }

  draft.fetch = wish.fetch;
  std::sort(draft.fetch.begin(), draft.fetch.end());
  draft.fetch.erase(std::unique(draft.fetch.begin(), draft.fetch.end()), draft.fetch.end());
  const std::size_t count = draft.order.size() + draft.fetch.size();
  if (count > limits::kMaxOpsPerSubmit) {
    return error(Errc::kLimitExceeded, "an expression of " + std::to_string(count) +
                                           " ops; one request takes " +
                                           std::to_string(limits::kMaxOpsPerSubmit) +
                                           ": persist() an intermediate array and go on from there");
  }
  draft.first = next_number_;
  lay_out(draft);

  Submission s;
  s.op_count = count;
  const auto kept = [&](const msg::Program& program) { return same(draft, program); };
  const bool may_keep = request != 0 && !only_look && draft.outputs > 0;
  if (const auto known =
          may_keep ? programs_.find(count, draft.outputs, draft.inputs.size(), kept) : std::nullopt) {
    s.program = s.kept_by = *known;
    s.first_output = draft.first;
    s.inputs = draft.inputs;
    s.constants = std::move(draft.constants);
  } else {
    const std::uint64_t digest = write_ops(draft, s.ops);
    if (may_keep) s.keep_as = programs_.sent(digest, request, s.ops);
    if (s.keep_as != 0) s.kept_by = request;
  }
  for (Node* n : draft.order) {
    n->submitted |= !only_look;
    for (std::size_t o = 0; n->memory && o < n->outputs.size(); ++o) {
      const ir::OutputSpec& spec = n->op.outputs[o];
      s.provided.push_back({draft.number(n->outputs[o].place), {spec.dtype, spec.grid}, n->memory});
    }
  }
  s.named = draft.inputs;
  if (!only_look) next_number_ += draft.outputs;
  const auto number_of = [&](Key key) { return draft.number(out(key).place); };
  for (const Key key : wish.fetch) s.fetches.push_back({key, number_of(key)});
  for (const Key key : wish.hold) {
    const bool named =
        std::any_of(s.holds.begin(), s.holds.end(), [&](const auto& h) { return h.key == key; });
    if (out(key).remote != 0 || named) continue;  // held already, or named twice
    s.holds.push_back({key, number_of(key)});
    if (!only_look) out(key).remote = number_of(key);
  }
  return s;
}

void Graph::refused(const Submission& submission) {
  if (submission.kept_by != 0) programs_.forget(submission.kept_by);
  held(submission, false);
}

Key Graph::adopt(ir::SourceArray array, std::uint64_t number) {
  ir::Op op;
  op.kind = ir::OpKind::kProvide;
  op.attrs = ir::FetchAttrs{};
  op.space = array.grid;
  op.outputs = {{0, array.dtype, std::move(array.grid)}};
  const Key key = add(std::move(op));
  out(key).remote = number;
  node(key).submitted = true;
  return key;
}

void Graph::fail(Key key, Error why) {
  const auto it = nodes_.find(key / limits::kMaxOutputs);
  if (it == nodes_.end()) return;  // let go meanwhile
  it->second.failed = std::move(why);
  if (out(key).remote != 0) released_.push_back(std::exchange(out(key).remote, 0));
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
