# What is told of plans: the parts of an Explanation (msg.capnp), and what does not fit. The structs of tilewise/msg/account.h.
#
# Evolution: fields are only ever appended.
@0xd3b1a6c4f0e85a27;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tilewise::wire");
using Ir = import "ir.capnp";

struct PassAccount { name @0 :Text; ops @1 :UInt32; dump @2 :Text; }

struct ChoiceAccount { policy @0 :Text; placement @1 :Text; seconds @2 :Float64; }

struct OpAccount {
  op @0 :Text;
  tasks @1 :Int64;
  steps @2 :Int64;
  flops @3 :Float64;
  bytesWritten @4 :Int64;
  bytesMoved @5 :Int64;
  beginS @6 :Float64;
  endS @7 :Float64;
  busyS @8 :Float64;
  criticalS @9 :Float64;
  choices @10 :List(ChoiceAccount);  # the one taken, then the best of those rejected
}

struct DeviceAccount {
  device @0 :UInt32;
  tasks @1 :Int64;
  bytesBefore @2 :Int64;
  bytesPeak @3 :Int64;
  bytesAfter @4 :Int64;
  bytesMemory @5 :Int64;
  busyS @6 :Float64;
  bytesBelow @7 :Int64;      # bound of the tiers below
  bytesSpilled @8 :Int64;    # that leave for these
  bytesReturned @9 :Int64;   # and come back
  spillS @10 :Float64;
}

struct LinkAccount {
  from @0 :UInt32;
  to @1 :UInt32;
  mapped @2 :Bool;
  blocks @3 :Int64;
  bytes @4 :Int64;
  busyS @5 :Float64;
  bytesPerS @6 :Float64;
  measured @7 :Bool;       # by transfers; else by topology
}

struct CriticalAccount { op @0 :UInt32; device @1 :UInt32; what @2 :Text; seconds @3 :Float64; }

struct ArrayAccount {
  array @0 :UInt64;          # the session's number
  dtype @1 :Ir.DType;
  grid @2 :Ir.Grid;
  placement @3 :List(Ir.Piece);
  planned @4 :Bool;          # not submitted yet
}

struct NeedAccount {
  devices @0 :List(UInt32);  # one, or some together; at most 64
  neededBytes @1 :Int64;     # at once, at least
  memoryBytes @2 :Int64;
  belowBytes @3 :Int64;      # on disk and in pinned memory, where that helps
  op @4 :Text;               # whose task needs most; empty: held results
  inputBytes @5 :Int64;
  outputBytes @6 :Int64;
  scratchBytes @7 :Int64;
  heldBytes @8 :Int64;
}

struct MeasuredOp {
  id @0 :UInt64;
  op @1 :UInt32;             # place in Explanation.ops
  tasks @2 :Int64;
  failed @3 :Int64;
  bytesMoved @4 :Int64;
  beginS @5 :Float64;        # since submission; -1: not yet
  endS @6 :Float64;
  busyS @7 :Float64;
  busiestS @8 :Float64;
}

struct MeasuredDevice {
  device @0 :UInt32;
  tasks @1 :Int64;
  bytesBefore @2 :Int64;
  bytesPeak @3 :Int64;
  bytesSpilled @4 :Int64;
  bytesReturned @5 :Int64;
  busyS @6 :Float64;
}
