#include <tilewise/base/digest.h>
#include <tilewise/ir/op_digest.h>

#include <bit>

namespace tilewise::ir {
namespace {

void mix(Digest& d, std::int64_t x) { d.mix(static_cast<std::uint64_t>(x)); }

void mix(Digest& d, const Grid& grid) {
  mix(d, grid.rank());
  for (const DimGrid& dim : grid.dims()) {
    mix(d, dim.extent()), mix(d, dim.count());
    if (dim.is_uniform())
      mix(d, dim.block()), mix(d, dim.phase());
    else
      for (const std::int64_t at : dim.starts()) mix(d, at);
  }
}

void mix(Digest& d, const View& view) {
  mix(d, view.rank());
  for (const std::int64_t n : view.shape) mix(d, n);
  for (const SourceDim& s : view.source) mix(d, s.dim), mix(d, s.start), mix(d, s.step);
}

void mix(Digest& d, const std::vector<OperandMap>& maps) {
  for (const OperandMap& map : maps) {
    mix(d, static_cast<std::int64_t>(map.size()));
    for (const DimMap& m : map) {
      mix(d, static_cast<std::int64_t>(m.kind)), mix(d, m.dim), mix(d, m.mul), mix(d, m.div),
          mix(d, m.before), mix(d, m.after);
    }
  }
}

struct MixAttrs {
  Digest& d;
  void operator()(const MapAttrs& a) const { d.mix(a.tape.digest()); }
  void operator()(const ReduceAttrs& a) const {
    d.mix(a.tape.digest()), mix(d, static_cast<std::int64_t>(a.kind)), mix(d, a.axes);
  }
  void operator()(const CombineAttrs& a) const {
    mix(d, static_cast<std::int64_t>(a.kind)), mix(d, a.axis), mix(d, a.fan_in);
  }
  void operator()(const MatmulAttrs& a) const { mix(d, a.k_parts), mix(d, a.tf32); }
  void operator()(const CopyAttrs& a) const { mix(d, a.maps); }
  void operator()(const ReshapeAttrs&) const {}
  void operator()(const NpyAttrs& a) const {
    d.mix(std::string_view(a.path)), mix(d, a.data_offset), mix(d, a.fortran_order), d.mix(a.token);
    mix(d, a.stamp.bytes), mix(d, a.stamp.changed_ns);
  }
  void operator()(const CallAttrs& a) const {
    d.mix(std::string_view(a.kernel)), d.mix(std::string_view(a.version)), d.mix(std::string_view(a.params));
    mix(d, a.maps);
    for (const ExplicitMap& m : a.explicit_maps) {
      for (const std::uint32_t at : m.offsets) mix(d, at);
      for (const std::int64_t block : m.blocks) mix(d, block);
    }
    d.mix(std::bit_cast<std::uint64_t>(a.flops_per_point)), mix(d, a.scratch_bytes);
  }
  void operator()(const FetchAttrs& a) const { mix(d, a.to.value); }
  void operator()(const ScanAttrs& a) const {
    mix(d, static_cast<std::int64_t>(a.kind)), mix(d, a.axis), mix(d, static_cast<std::int64_t>(a.mode));
  }
};

}  // namespace

std::uint64_t digest(const Op& op, bool names) {
  Digest d;
  mix(d, static_cast<std::int64_t>(op.kind));
  for (const Operand& operand : op.operands) d.mix(operand.array), mix(d, operand.view);
  for (const OutputSpec& output : op.outputs) {
    if (names) d.mix(output.array);
    mix(d, static_cast<std::int64_t>(output.dtype)), mix(d, output.grid);
  }
  mix(d, op.space);
  mix(d, static_cast<std::int64_t>(op.attrs.index()));
  std::visit(MixAttrs{d}, op.attrs);
  for (const DeviceId device : op.hint.devices) mix(d, device.value);
  for (const std::int32_t parts : op.hint.parts) mix(d, static_cast<std::uint64_t>(parts));
  mix(d, static_cast<std::uint64_t>(op.hint.copies));
  if (names) d.mix(std::string_view(op.label));
  return d.value();
}

}  // namespace tilewise::ir
