#include "unrolled.h"

#include <tilewise/base/check.h>
#include <tilewise/ir/cost.h>

#include <algorithm>
#include <map>

namespace tilewise::scale {
namespace {

struct Known {  // an array: its first block's number
  ir::SourceArray source;
  std::uint32_t first = 0;
};

class Unroller {
 public:
  explicit Unroller(const msg::Plan& plan) : plan_(plan) {}

  Unrolled run() {
    out_.first_step.push_back(0);
    out_.first_read.push_back(0);
    for (const msg::PlannedOp& planned : plan_.ops) {
      if (planned.op.kind != ir::OpKind::kFetch) add(planned);
    }
    return std::move(out_);
  }

 private:
  void add(const msg::PlannedOp& planned) {
    const ir::Op& op = planned.op;
    TW_CHECK(op.outputs.size() == 1 && op.kind != ir::OpKind::kProvide,
             "only ops with one output are unrolled");
    std::vector<ir::SourceArray> sources;
    std::vector<std::uint32_t> first;
    for (const ir::Operand& operand : op.operands) {
      const Known& known = arrays_.at(operand.array);
      sources.push_back(known.source);
      first.push_back(known.first);
    }
    const auto geometry = ir::Geometry::make(op, std::move(sources));
    TW_CHECK(geometry.has_value(), "a planned op has no geometry");
    const std::int64_t points = geometry->point_count();
    TW_CHECK(points + out_.tasks() < 0xFFFFFFFFll, "too many tasks to unroll");
    const ir::OutputSpec& output = op.outputs[0];
    const ArrayId array{output.array};
    const bool held = std::find(plan_.holds.begin(), plan_.holds.end(), array) != plan_.holds.end();
    const std::uint32_t begin = out_.tasks();
    out_.ops.push_back(
        {planned.id, ir::family_of(op), begin, static_cast<std::uint32_t>(points), held, geometry->counts()});
    arrays_[output.array] = {{output.dtype, output.grid}, begin};
    std::vector<ir::Read> reads;
    for (std::int64_t p = 0; p < points; ++p) {
      const ir::Index point = geometry->point(p);
      out_.op_of.push_back(static_cast<std::uint32_t>(out_.ops.size() - 1));
      out_.bytes.push_back(static_cast<std::uint32_t>(output.grid.box(point).volume() *
                                                      static_cast<std::int64_t>(ir::size_of(output.dtype))));
      out_.step_s.push_back(static_cast<float>(ir::model_step_ns(*geometry, point) * 1e-9));
      for (std::int64_t s = 0; s < geometry->steps(point); ++s) {
        geometry->reads(point, s, reads);
        for (const ir::Read& read : reads)
          out_.reads.push_back(first[read.operand] + static_cast<std::uint32_t>(read.block));
        out_.first_read.push_back(static_cast<std::uint32_t>(out_.reads.size()));
      }
      out_.first_step.push_back(out_.steps());
    }
  }

  const msg::Plan& plan_;
  Unrolled out_;
  std::map<std::uint64_t, Known> arrays_;
};

}  // namespace

double Unrolled::work_s() const {
  double all = 0;
  for (std::uint32_t t = 0; t < tasks(); ++t)
    all += static_cast<double>(step_s[t]) * (first_step[t + 1] - first_step[t]);
  return all;
}

double Unrolled::chain_s() const {
  std::vector<double> ends(tasks());
  double longest = 0;
  for (std::uint32_t t = 0; t < tasks(); ++t) {  // makers come before users
    double end = 0;
    for (std::uint32_t s = first_step[t]; s < first_step[t + 1]; ++s) {
      for (std::uint32_t r = first_read[s]; r < first_read[s + 1]; ++r) end = std::max(end, ends[reads[r]]);
      end += static_cast<double>(step_s[t]);
    }
    ends[t] = end;
    longest = std::max(longest, end);
  }
  return longest;
}

Unrolled unroll(const msg::Plan& plan) { return Unroller(plan).run(); }

std::vector<std::int32_t> owners(const Unrolled& graph, const msg::Plan& plan,
                                 std::span<const place::Device> devices) {
  std::vector<std::int32_t> out;
  out.reserve(graph.tasks());
  std::size_t at = 0;
  for (const msg::PlannedOp& planned : plan.ops) {
    if (planned.op.kind == ir::OpKind::kFetch) continue;
    const Unrolled::Op& op = graph.ops[at++];
    for (std::uint32_t p = 0; p < op.tasks; ++p) {
      const DeviceId owner = planned.placement.owner(ir::unravel(p, op.counts));
      const auto it = std::lower_bound(devices.begin(), devices.end(), owner,
                                       [](const place::Device& d, DeviceId id) { return d.id < id; });
      TW_CHECK(it != devices.end() && it->id == owner, "a rule names a device that is not there");
      out.push_back(static_cast<std::int32_t>(it - devices.begin()));
    }
  }
  return out;
}

}  // namespace tilewise::scale
