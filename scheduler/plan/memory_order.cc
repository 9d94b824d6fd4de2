// Depth first: what an op reads is made just before it, the operand that needs most memory on its way first (Sethi and
// Ullman, "The generation of optimal code for arithmetic expressions", 1970, with bytes for registers). Exact for trees;
// for graphs an estimate, so the order is kept as recorded unless a count of what lives at each moment gets better.
#include "passes.h"
#include "sources.h"

#include <algorithm>
#include <utility>

namespace tilewise::plan {
namespace {

constexpr double kWorthIt = 0.95;  // of the recorded order's peak: below, the order changes

using Order = std::vector<std::size_t>;  // positions in the graph's ops

class Program {
 public:
  explicit Program(const Graph& graph) : graph_(graph), ops_(graph.ops.size()) {
    const Sources sources(graph);
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      for (const ir::OutputSpec& output : graph.ops[i].outputs) ops_[i].bytes += bytes_of(output);
      for (const ir::Operand& operand : graph.ops[i].operands) {
        const Sources::Producer* producer = sources.producer(operand.array);
        if (producer == nullptr) continue;
        std::vector<std::size_t>& reads = ops_[i].reads;
        if (std::find(reads.begin(), reads.end(), producer->op) != reads.end()) continue;
        reads.push_back(producer->op);
        ++ops_[producer->op].readers;
      }
    }
  }

  Order recorded() const {
    Order out(ops_.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
    return out;
  }

  Order depth_first() {
    for (Node& op : ops_) estimate_need(op);  // producers come before their readers
    Order out;
    std::vector<bool> entered(ops_.size(), false);
    std::vector<std::pair<std::size_t, std::size_t>>
        path;  // an op, and how many of its reads have been visited
    for (std::size_t root = 0; root < ops_.size(); ++root) {
      if (ops_[root].readers > 0) continue;
      entered[root] = true;
      path.emplace_back(root, 0);
      while (!path.empty()) {
        auto& [op, next] = path.back();
        if (next == ops_[op].reads.size()) {
          out.push_back(op);
          path.pop_back();
          continue;
        }
        const std::size_t read = ops_[op].reads[next++];
        if (entered[read]) continue;
        entered[read] = true;
        path.emplace_back(read, 0);
      }
    }
    return out;
  }

  // Most bytes of results that live at once, if ops ran one after the other.
  double peak(const Order& order) const {
    std::vector<std::size_t> left(ops_.size());
    for (std::size_t i = 0; i < ops_.size(); ++i) left[i] = ops_[i].readers;
    double lives = 0, most = 0;
    for (const std::size_t i : order) {
      lives += ops_[i].bytes;
      most = std::max(most, lives);
      if (left[i] == 0) lives -= released(i);
      for (const std::size_t read : ops_[i].reads)
        if (--left[read] == 0) lives -= released(read);
    }
    return most;
  }

 private:
  struct Node {
    std::vector<std::size_t> reads;  // ops, each once
    std::size_t readers = 0;
    double bytes = 0;  // of its results
    double need = 0;   // to make them, if nothing were shared
  };

  static double bytes_of(const ir::OutputSpec& output) {
    double bytes = static_cast<double>(ir::size_of(output.dtype));
    for (const std::int64_t extent : output.grid.shape()) bytes *= static_cast<double>(extent);
    return bytes;
  }
  double released(std::size_t op) const {
    double bytes = 0;
    for (const ir::OutputSpec& output : graph_.ops[op].outputs)
      if (!std::binary_search(graph_.holds.begin(), graph_.holds.end(), output.array))
        bytes += bytes_of(output);
    return bytes;
  }
  // Sorts its reads as they are to be visited.
  void estimate_need(Node& op) {
    std::stable_sort(op.reads.begin(), op.reads.end(), [&](std::size_t a, std::size_t b) {
      return ops_[a].need - ops_[a].bytes > ops_[b].need - ops_[b].bytes;
    });
    double before = 0;
    for (const std::size_t read : op.reads) {
      op.need = std::max(op.need, before + ops_[read].need);
      before += ops_[read].bytes;
    }
    op.need = std::max(op.need, before + op.bytes);
  }

  const Graph& graph_;
  std::vector<Node> ops_;
};

}  // namespace

void order_for_memory(Graph& graph) {
  Program program(graph);
  const double recorded = program.peak(program.recorded());
  const Order order = program.depth_first();
  if (program.peak(order) > kWorthIt * recorded) return;
  std::vector<ir::Op> ops;
  ops.reserve(order.size());
  for (const std::size_t i : order) ops.push_back(std::move(graph.ops[i]));
  graph.ops = std::move(ops);
}

}  // namespace tilewise::plan
