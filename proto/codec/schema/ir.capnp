# Expressions and placements on the wire: the structs of tilewise/ir, seen by the process that sends them.
# Everything is symbolic: an op of a million tasks is as long as an op of ten.
#
# Evolution: fields and enumerants are only ever appended. Enumerant numbers are those of the C++ enums.
@0xb1e9ec549717b2b9;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tilewise::wire");

enum DType {
  boolean @0; int32 @1; int64 @2; float32 @3; float64 @4; int8 @5; int16 @6; uint8 @7; uint16 @8; uint32 @9; uint64 @10;
  float16 @11; bfloat16 @12; complex64 @13; complex128 @14;
}

struct DimGrid {
  # The cuts of one dimension.
  extent @0 :Int64;        # elements, at least 0
  block @1 :Int64 = 1;     # uniform cuts: block i starts at i*block - phase, clipped
  phase @2 :Int64;         # 0 <= phase < block
  starts @3 :List(Int64);  # not empty: explicit cuts, strictly rising from 0; `block` and `phase` mean nothing then
}

struct Grid { dims @0 :List(DimGrid); }  # one entry a dimension, at most 8

struct SourceDim {
  # One dimension of the array that a view reads: position = start + step * logical[dim].
  dim @0 :Int8 = -1;       # -1: always at `start`
  start @1 :Int64;
  step @2 :Int64 = 1;      # signed, never 0
}

struct View {
  shape @0 :List(Int64);   # logical extents, at most 8
  source @1 :List(SourceDim);  # one entry a dimension of the array, at most 8
}

struct Operand {
  array @0 :UInt64;        # a session's number in a submission, an ArrayId in a plan
  view @1 :View;
}

struct OutputSpec {
  array @0 :UInt64;        # as in Operand
  dtype @1 :DType;
  grid @2 :Grid;           # block counts are those of the op's space
}

enum TapeOp {
  load @0; constant @1; iota @2; uniform @3; normal @4; randomInt @5; randomBelow @6;
  cast @7; neg @8; abs @9; sign @10; sqrt @11; exp @12; expm1 @13; log @14; log1p @15; sin @16; cos @17; tan @18;
  tanh @19; floor @20; ceil @21; trunc @22; round @23; isNan @24; isInf @25; isFinite @26; logicalNot @27;
  invert @28;
  add @29; sub @30; mul @31; div @32; floorDiv @33; rem @34; pow @35; minimum @36; maximum @37; atan2 @38; eq @39;
  ne @40; lt @41; le @42; gt @43; ge @44; bitAnd @45; bitOr @46; bitXor @47; shl @48; shr @49;
  where @50;
  acos @51; acosh @52; asin @53; asinh @54; atan @55; atanh @56; cosh @57; sinh @58; log2 @59; log10 @60; signbit @61;
  conj @62; real @63; imag @64; copysign @65; nextafter @66; hypot @67; logaddexp @68; complex @69;
}

struct TapeInstr {
  op @0 :TapeOp;
  dtype @1 :DType;         # of the result
  a @2 :UInt16;            # arguments: numbers of earlier instructions; of a constant its own number in a program, or 0
  b @3 :UInt16;
  c @4 :UInt16;
  immF @5 :Float64;        # constant of a floating dtype, real part of a complex one; bits are preserved, NaN payloads too
  immI @6 :Int64;          # constant of another dtype (uint64: its bits; complex: bits of the imaginary part's float64); operand of a load; dimension of an iota; random key
}

struct Constant { f @0 :Float64; i @1 :Int64; }  # immF and immI of a constant

enum ReduceKind { sum @0; prod @1; min @2; max @3; any @4; all @5; argMin @6; argMax @7; moments @8; }

enum ScanMode { inclusive @0; exclusive @1; total @2; }

enum DimMapKind { span @0; whole @1; step @2; block @3; }

struct DimMap {
  # How the region of one logical operand dimension follows from a point of the iteration space.
  kind @0 :DimMapKind;
  dim @1 :Int8;            # of the space; `span` only
  mul @2 :Int64 = 1;
  div @3 :Int64 = 1;       # never 0
  before @4 :Int64;
  after @5 :Int64;
}

struct OperandMap { dims @0 :List(DimMap); }  # one entry a logical dimension, at most 8

struct ExplicitMap {
  offsets @0 :List(UInt32);  # points + 1 entries
  blocks @1 :List(Int64);    # point p reads blocks[offsets[p] .. offsets[p+1])
}

enum OpKind {
  map @0; reduce @1; reduceBlocks @2; combine @3; matmul @4; matmulPanels @5; copy @6; reshape @7; readNpy @8;
  writeNpy @9; call @10; fetch @11; provide @12; scan @13; keep @14;
}

struct Op {
  kind @0 :OpKind;
  operands @1 :List(Operand);     # at most 64
  outputs @2 :List(OutputSpec);   # at most 4
  space @3 :Grid;                 # its blocks are the tasks
  hint @4 :List(UInt32);          # explicit placement, as the user wrote it; empty: automatic
  label @5 :Text;                 # the user's name for it, up to 256 bytes
  attrs :union {                  # the alternative that belongs to `kind`; any other is refused
    map :group {
      tape @6 :List(TapeInstr);   # at most 256 instructions
      outputs @34 :List(UInt16);  # two to four: those that give the op's outputs; empty: there is one, which the last gives
    }
    reduce :group {               # reduce, reduceBlocks
      tape @7 :List(TapeInstr);   # applied to the operands first
      kind @8 :ReduceKind;
      axes @9 :UInt32;            # bit d: dimension d is reduced
    }
    combine :group {
      kind @10 :ReduceKind;
      axis @11 :Int8;
      fanIn @12 :Int64 = 16;
    }
    matmul :group {               # matmul, matmulPanels
      parts @13 :Int64;           # of k
      tf32 @33 :Bool;             # float32 on GPUs: factors may be rounded to 10 bits of mantissa
    }
    copy @14 :List(OperandMap);   # one entry an operand
    reshape @15 :Void;
    npy :group {                  # readNpy, writeNpy
      path @16 :Text;             # as the workers see it, up to 4096 bytes
      dataOffset @17 :Int64;      # bytes before the first element
      fortranOrder @18 :Bool;
      token @19 :UInt64;          # writing: names the temporary file
      fileBytes @35 :Int64 = -1;  # reading: of the version that is meant, with its time of modification; -1: whichever is there
      fileChangedNs @36 :Int64;
    }
    call :group {
      kernel @20 :Text;           # a plug-in's name and version, up to 256 bytes each
      version @21 :Text;
      params @22 :Data;           # opaque to all but the kernel, up to 64 KiB
      maps @23 :List(OperandMap); # one entry an operand, unless explicit
      explicitMaps @24 :List(ExplicitMap);
      flopsPerPoint @25 :Float64;
      scratchBytes @26 :Int64;
    }
    fetch @27 :UInt32;            # fetch, provide: the client's device; 0 from a client, which names only itself
    scan :group {
      kind @30 :ReduceKind;       # sum or prod
      axis @31 :Int8;
      mode @32 :ScanMode;
    }
  }
  hintParts @28 :List(Int32);     # as in Rule, of the first output; empty: tiled over the hint's devices
  hintCopies @29 :Int32 = 1;
}

struct Rule {
  # Points of a box, tiled over a grid of devices.
  parts @0 :List(Int32);   # device grid, one entry a dimension
  cyclic @1 :List(UInt8);  # 0 contiguous, 1 cyclic; one entry a dimension
  devices @2 :List(UInt32);  # product of `parts` and `copies` entries, C order; the first of each part's owns it
  copies @3 :Int32 = 1;
}

struct Piece {
  lo @0 :List(Int64);      # box [lo, hi) of block indices
  hi @1 :List(Int64);
  rule @2 :Rule;
}

struct Run {
  # Points [first, first + count) in C order of a space, and who owns them.
  first @0 :Int64;
  count @1 :Int64;
  device @2 :UInt32;
}
