// What is known about every array of a graph, by name.
#pragma once
#include <tilewise/plan/plan.h>

#include <boost/unordered/unordered_flat_map.hpp>

namespace tilewise::plan {

// Names of arrays are looked up, never iterated over.
class Sources {
 public:
  struct Producer {
    std::size_t op = 0;
    std::size_t output = 0;
  };

  explicit Sources(const Graph& graph) : graph_(graph) {
    for (std::size_t i = 0; i < graph.externals.size(); ++i) externals_.emplace(graph.externals[i].array, i);
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      for (std::size_t o = 0; o < graph.ops[i].outputs.size(); ++o) {
        producers_.emplace(graph.ops[i].outputs[o].array, Producer{i, o});
      }
    }
  }
  const Producer* producer(std::uint64_t array) const {
    const auto it = producers_.find(array);
    return it == producers_.end() ? nullptr : &it->second;
  }
  // The array is now made there.
  void move(std::uint64_t array, Producer to) { producers_[array] = to; }
  bool find(std::uint64_t array, ir::SourceArray& out) const {
    if (const Producer* p = producer(array)) {
      const ir::OutputSpec& spec = graph_.ops[p->op].outputs[p->output];
      out = {spec.dtype, spec.grid};
      return true;
    }
    const auto it = externals_.find(array);
    if (it == externals_.end()) return false;
    out = graph_.externals[it->second].source;
    return true;
  }
  // Sources of an op's operands; kNotFound names the array.
  Result<std::vector<ir::SourceArray>> of(const ir::Op& op) const {
    std::vector<ir::SourceArray> out(op.operands.size());
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (!find(op.operands[i].array, out[i])) {
        return error(Errc::kNotFound, "operand " + std::to_string(i) + " names array " +
                                          std::to_string(op.operands[i].array) +
                                          ", which nothing before it makes");
      }
    }
    return out;
  }

 private:
  const Graph& graph_;
  boost::unordered_flat_map<std::uint64_t, std::size_t> externals_;
  boost::unordered_flat_map<std::uint64_t, Producer> producers_;
};

}  // namespace tilewise::plan
