// Planning: named passes that rewrite the ops of one submission. Pure functions of the graph; nothing here depends on
// the cluster (D9) or on the number of blocks.
//
// Every pass keeps the bits of every array that survives it. Each can be switched off by name, except lowering, which
// workers need.
#pragma once
#include <tilewise/ir/geometry_cache.h>
#include <tilewise/ir/op.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::plan {

using NewArray = std::function<std::uint64_t()>;  // names an array that a pass makes up

struct External {  // an array of an earlier submission
  std::uint64_t array = 0;
  ir::SourceArray source;
};

struct Graph {
  std::vector<ir::Op> ops;           // user-level kinds, producers before users, each array written once
  std::vector<External> externals;   // every array read but not written here, sorted by `array`
  std::vector<std::uint64_t> holds;  // arrays that must survive, sorted
};

struct Options {
  std::vector<std::string> off;  // names of passes to leave out
  bool dump = false;             // keep the text of the graph after each pass
  // Verify what each pass leaves, not only the last. Debug builds always do.
#ifdef NDEBUG
  bool verify_each = false;
#else
  bool verify_each = true;
#endif
  ir::GeometryCache* geometries = nullptr;  // what earlier submissions had in common with this one
};

struct PassReport {
  std::string_view name;
  std::size_t ops = 0;  // after the pass
  std::string dump;     // one line an op, if asked for
};

struct PlannedGraph {
  std::vector<ir::Op> ops;         // lowered kinds; kFetch ops keep their number and order
  std::vector<PassReport> passes;  // those that ran, in order
};

// "dead-code", "common-subexpressions", "shared-moments", "fusion", "shared-tapes", "lowering", "shared-gathers", "memory-order": as they run.
std::span<const std::string_view> pass_names();
// Whether all these may be left out: kInvalidArgument names one that may not, or that there is not.
Status check_off(std::span<const std::string> names);

// A pass that needs placements, so whoever places runs it, after these; as an option it is known here too.
constexpr std::string_view kPlacedPass = "pieces";

// Verifies every op on entry and after the last pass. An error on entry is the user's and names op and shapes; one after a
// pass is kInternal and names the pass. kInvalidArgument for an unknown name in `options.off`.
Result<PlannedGraph> run_passes(Graph graph, const NewArray& new_array, const Options& options = {});

// One line an op: "%7 = map(%3, %5) (1024, 1024) in blocks of (256, 256) 'label'", tapes indented below.
std::string dump(std::span<const ir::Op> ops);

// "op 3 (map 'residual')": how errors name an op.
std::string describe(const ir::Op& op, std::size_t position);

}  // namespace tilewise::plan
