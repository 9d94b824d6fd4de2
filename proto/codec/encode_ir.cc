// Arrays, ops and placements as the schema has them; encode.cc has the messages.
#include "writers.h"

namespace tilewise::codec {

void write(wire::Grid::Builder b, const ir::Grid& grid) {
  each(b.initDims(count(grid.dims().size(), limits::kMaxRank, "dimensions of a grid")), grid.dims(),
       [](wire::DimGrid::Builder d, const ir::DimGrid& dim) {
         d.setExtent(dim.extent());
         if (dim.is_uniform()) {
           d.setBlock(dim.block());
           d.setPhase(dim.phase());
         } else {
           numbers(d.initStarts(count(dim.starts().size(), limits::kMaxExplicitCuts, "cuts of a dimension")),
                   dim.starts());
         }
       });
}

unsigned constant_count(const ir::Constants& constants) {
  return count(constants.size(), ir::kMaxConstants, "constants of a program");
}

void write(capnp::List<wire::Constant>::Builder b, const ir::Constants& constants) {
  each(b, constants, [](wire::Constant::Builder c, const ir::Constant& constant) {
    c.setF(constant.f), c.setI(constant.i);
  });
}

namespace {

void write(wire::View::Builder b, const ir::View& view) {
  numbers(b.initShape(any_count(view.shape.size())), view.shape);
  each(b.initSource(any_count(view.source.size())), view.source,
       [](wire::SourceDim::Builder s, const ir::SourceDim& source) {
         s.setDim(source.dim);
         s.setStart(source.start);
         s.setStep(source.step);
       });
}

unsigned tape_length(const ir::Tape& tape) {
  return count(tape.code.size(), limits::kMaxTapeInstructions, "instructions of a tape");
}

void write(capnp::List<wire::TapeInstr>::Builder b, const ir::Tape& tape) {
  each(b, tape.code, [](wire::TapeInstr::Builder i, const ir::TapeInstr& instr) {
    i.setOp(wire::TapeOp{wire_enum(instr.op)});
    i.setDtype(wire::DType{wire_enum(instr.dtype)});
    i.setA(instr.a);
    i.setB(instr.b);
    i.setC(instr.c);
    i.setImmF(instr.imm_f);
    i.setImmI(instr.imm_i);
  });
}

unsigned map_count(const std::vector<ir::OperandMap>& maps) {
  return count(maps.size(), limits::kMaxOperands, "maps of an op");
}

void write(capnp::List<wire::OperandMap>::Builder b, const std::vector<ir::OperandMap>& maps) {
  each(b, maps, [](wire::OperandMap::Builder m, const ir::OperandMap& map) {
    each(m.initDims(any_count(map.size())), map, [](wire::DimMap::Builder d, const ir::DimMap& dim) {
      d.setKind(wire::DimMapKind{wire_enum(dim.kind)});
      d.setDim(dim.dim);
      d.setMul(dim.mul);
      d.setDiv(dim.div);
      d.setBefore(dim.before);
      d.setAfter(dim.after);
    });
  });
}

using AttrsBuilder = wire::Op::Attrs::Builder;

void write(AttrsBuilder b, const ir::MapAttrs& a) {
  auto m = b.initMap();
  write(m.initTape(tape_length(a.tape)), a.tape);
  numbers(m.initOutputs(any_count(a.tape.outputs.size())), a.tape.outputs);
}
void write(AttrsBuilder b, const ir::ReduceAttrs& a) {
  auto r = b.initReduce();
  write(r.initTape(tape_length(a.tape)), a.tape);
  r.setKind(wire::ReduceKind{wire_enum(a.kind)});
  r.setAxes(a.axes);
}
void write(AttrsBuilder b, const ir::CombineAttrs& a) {
  auto c = b.initCombine();
  c.setKind(wire::ReduceKind{wire_enum(a.kind)});
  c.setAxis(a.axis);
  c.setFanIn(a.fan_in);
}
void write(AttrsBuilder b, const ir::MatmulAttrs& a) {
  auto m = b.initMatmul();
  m.setParts(a.k_parts);
  m.setTf32(a.tf32);
}
void write(AttrsBuilder b, const ir::CopyAttrs& a) { write(b.initCopy(map_count(a.maps)), a.maps); }
void write(AttrsBuilder b, const ir::ReshapeAttrs&) { b.setReshape(); }
void write(AttrsBuilder b, const ir::NpyAttrs& a) {
  auto n = b.initNpy();
  n.setPath(text(a.path, limits::kMaxPathBytes, "bytes of a path"));
  n.setDataOffset(a.data_offset);
  n.setFortranOrder(a.fortran_order);
  n.setToken(a.token);
  n.setFileBytes(a.stamp.bytes);
  n.setFileChangedNs(a.stamp.changed_ns);
}
void write(AttrsBuilder b, const ir::CallAttrs& a) {
  auto c = b.initCall();
  c.setKernel(name(a.kernel));
  c.setVersion(name(a.version));
  c.setParams(data(a.params, limits::kMaxParamBytes, "bytes of a kernel's parameters"));
  write(c.initMaps(map_count(a.maps)), a.maps);
  each(c.initExplicitMaps(count(a.explicit_maps.size(), limits::kMaxOperands, "maps of an op")),
       a.explicit_maps, [](wire::ExplicitMap::Builder e, const ir::ExplicitMap& map) {
         numbers(e.initOffsets(
                     count(map.offsets.size(), limits::kMaxExplicitRefs + 1, "points of an explicit map")),
                 map.offsets);
         numbers(
             e.initBlocks(count(map.blocks.size(), limits::kMaxExplicitRefs, "blocks of an explicit map")),
             map.blocks);
       });
  c.setFlopsPerPoint(a.flops_per_point);
  c.setScratchBytes(a.scratch_bytes);
}
void write(AttrsBuilder b, const ir::FetchAttrs& a) { b.setFetch(a.to.value); }
void write(AttrsBuilder b, const ir::ScanAttrs& a) {
  auto s = b.initScan();
  s.setKind(wire::ReduceKind{wire_enum(a.kind)});
  s.setAxis(a.axis);
  s.setMode(wire::ScanMode{wire_enum(a.mode)});
}

}  // namespace

void write(wire::Op::Builder b, const ir::Op& op) {
  if (op.attrs.index() != attrs_of(op.kind)) {
    refuse(Errc::kInvalidArgument, "an op of kind " + std::to_string(static_cast<int>(op.kind)) +
                                       " carries the attributes of another kind");
  }
  b.setKind(wire::OpKind{wire_enum(op.kind)});
  each(b.initOperands(count(op.operands.size(), limits::kMaxOperands, "operands of an op")), op.operands,
       [](wire::Operand::Builder o, const ir::Operand& operand) {
         o.setArray(operand.array);
         write(o.initView(), operand.view);
       });
  each(b.initOutputs(count(op.outputs.size(), limits::kMaxOutputs, "outputs of an op")), op.outputs,
       [](wire::OutputSpec::Builder o, const ir::OutputSpec& output) {
         o.setArray(output.array);
         o.setDtype(wire::DType{wire_enum(output.dtype)});
         write(o.initGrid(), output.grid);
       });
  write(b.initSpace(), op.space);
  ids(b.initHint(any_count(op.hint.devices.size())), op.hint.devices);
  numbers(b.initHintParts(any_count(op.hint.parts.size())), op.hint.parts);
  b.setHintCopies(op.hint.copies);
  b.setLabel(name(op.label));
  std::visit([&](const auto& attrs) { write(b.getAttrs(), attrs); }, op.attrs);
}

void write(capnp::List<wire::Piece>::Builder b, const ir::Placement& placement) {
  each(b, placement.pieces(), [](wire::Piece::Builder p, const ir::Piece& piece) {
    numbers(p.initLo(any_count(piece.box.lo.size())), piece.box.lo);
    numbers(p.initHi(any_count(piece.box.hi.size())), piece.box.hi);
    auto r = p.initRule();
    numbers(r.initParts(any_count(piece.rule.parts.size())), piece.rule.parts);
    numbers(r.initCyclic(any_count(piece.rule.cyclic.size())), piece.rule.cyclic);
    ids(r.initDevices(count(piece.rule.devices.size(), ir::kMaxRuleDevices, "devices of a placement")),
        piece.rule.devices);
    r.setCopies(piece.rule.copies);
  });
}

}  // namespace tilewise::codec
