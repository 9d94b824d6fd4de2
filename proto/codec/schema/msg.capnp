# Messages on the wire: the structs of tilewise/msg, seen by the process that sends them. Ids are their plain numbers.
#
# Evolution: fields, enumerants and alternatives are only ever appended.
# Texts are names of up to 256 bytes unless it says otherwise.
@0xe2dd43440152a436;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tilewise::wire");
using Ir = import "ir.capnp";
using Account = import "account.capnp";

struct Outcome {
  # "No error" is sent as a null pointer.
  code @0 :UInt16;         # Errc
  message @1 :Text;        # for people; longer ones are cut at 4096 bytes by the sender
}

# ---- joining --------------------------------------------------------------------------------------------------------

enum Role { worker @0; client @1; tool @2; }

struct DeviceDesc {
  name @0 :Text;           # local: "host:0"
  kind @1 :UInt8;          # device::Kind
  model @2 :Text;
  numericClass @3 :Text;   # what the last bits of results depend on
  memoryBytes @4 :Int64;   # of the arena
  streams @5 :Int32 = 1;
  spillBytes @6 :Int64;    # its share of what the worker may have on disk
  pinnedBytes @7 :Int64;   # likewise in pinned host memory
  gpu @8 :Text;            # cuda: which one it is, the same in every process
}

struct PluginDesc { kernel @0 :Text; version @1 :Text; hash @2 :UInt64; }

struct Join {
  role @0 :Role;
  name @1 :Text;           # for people
  softwareVersion @2 :Text;
  hostId @3 :Text;         # equal on two processes that may share memory
  addresses @4 :List(Text);  # where I can be reached, best first; up to 4096 bytes each
  devices @5 :List(DeviceDesc);  # a client lists its one endpoint
  plugins @6 :List(PluginDesc);
  blackBox @7 :UInt64;     # workers: names me in my supervisor's LastWords; 0: I have none
  leaseNs @8 :Int64;       # how long I may stay away when my link breaks, unless I said Leave
}

struct Welcome {
  term @0 :UInt32;         # of this scheduler life
  you @1 :UInt32;          # the receiver's WorkerId, its incarnation
  session @2 :UInt32;      # clients only, else 0
  devices @3 :List(UInt32);  # in the order of Join
  refused @4 :Outcome;     # an error: the link closes after this
  state @5 :UInt64;        # names what I know of my peers; 0: with this link you are lost
  durable @6 :Bool;        # it is on disk, and outlives my process
  introduced @7 :UInt32;   # so many PeerJoined follow at once, of those who are there
}

struct Resume {
  # First on a link to a scheduler that keeps its state: I have joined before.
  state @0 :UInt64;        # as in Welcome
  me @1 :UInt32;           # my WorkerId
  received @2 :UInt64;     # messages from you so far, from Welcome on; Resume, Resumed and Ack not counted
  term @3 :UInt32;         # the last that you named to me
}

struct Resumed {
  term @0 :UInt32;
  received @1 :UInt64;     # messages from you so far, from Join on
  refused @2 :Outcome;     # an error: you are lost; the link closes after this
}

struct PeerInfo {
  id @0 :UInt32;
  role @1 :Role;
  name @2 :Text;
  hostId @3 :Text;
  addresses @4 :List(Text);  # up to 4096 bytes each
  devices @5 :List(UInt32);
  descriptions @6 :List(DeviceDesc);  # parallel to `devices`
}

# ---- the log --------------------------------------------------------------------------------------------------------

struct PlannedOp {
  id @0 :UInt64;
  op @1 :Ir.Op;            # arrays named by ArrayId
  placement @2 :List(Ir.Piece);  # of the op's space: disjoint boxes that cover it
  done @3 :Bool;           # in a late joiner's snapshot and in a recovery: its blocks exist
  of @4 :UInt64;           # in a recovery: OpId of the op whose blocks these are
  listed @5 :Bool;         # the placement is `runs`
  runs @6 :List(Ir.Run);   # rising
  alone @7 :Bool;          # its steps run while no other step runs on their worker
  doomed @8 :Outcome;      # an error: its tasks are not run but fail so
  levelNs @9 :Int64;       # predicted: from the beginning of one of its tasks to the end of the plan, along the longest path
  placedAs @10 :UInt32;    # its placement is that of the plan's op before it with this number, counted from 1; 0: its own
}

struct Plan {
  graph @0 :UInt64;
  priority @1 :Int32;      # higher first
  ops @2 :List(PlannedOp); # producers before users
  holds @3 :List(UInt64);  # ArrayIds a client keeps until a Release
  session @4 :UInt64;      # whose share of the devices' time it takes
  weight @5 :UInt32;       # of that session, 1 to 10,000
  keepAs @6 :UInt64;       # number by which a Replay names it; 0: none
}

struct Replay {
  plan @0 :UInt64;         # Plan.keepAs
  graph @1 :UInt64;
  priority @2 :Int32;
  firstOp @3 :UInt64;      # OpId of the plan's first op; the others keep their distance
  firstArray @4 :UInt64;   # ArrayId of the plan's first output; likewise
  inputs @5 :List(UInt64); # ArrayIds, in the order in which the plan first mentions them
  session @6 :UInt64;
  weight @7 :UInt32;
  constants @8 :List(Ir.Constant);  # of the plan's tapes, by number; at most 65,535
}

struct CancelGraph { graph @0 :UInt64; why @1 :Outcome; }

struct PeerLost {
  peer @0 :UInt32;         # WorkerId
  version @1 :UInt64;      # of the recovery that follows; 0: none
  ops @2 :List(UInt64);    # OpIds whose results are pinned
  holds @3 :List(Tail);    # not begun until the Recover
}

struct Tail { op @0 :UInt64; device @1 :UInt32; from @2 :Int64; }  # points of this ordinal and above

struct Recover {
  version @0 :UInt64;
  plans @1 :List(Plan);    # producers before users
  moved @2 :List(Tail);    # made by layers from now on
}

struct Drain {
  # A worker is to leave without a loss.
  peer @0 :UInt32;         # WorkerId
  order @1 :UInt8;         # 0 it stays after all, 1 it begins nothing new, 2 take these copies and keep them, 3 it leaves
  round @2 :UInt64;        # to be said again in Drained
  keeps @3 :List(Keep);

  struct Keep { array @0 :UInt64; from @1 :UInt32; to @2 :UInt32; blocks @3 :List(Range); }
}

struct LogEntry {
  union {
    plan @0 :Plan;
    release @1 :List(UInt64);   # ArrayIds whose hold ends
    cancelGraph @2 :CancelGraph;
    retire @3 :List(UInt64);    # OpIds to forget
    peerJoined @4 :PeerInfo;
    peerLost @5 :PeerLost;
    recover @6 :Recover;
    replay @7 :Replay;
    forgetPlans @8 :List(UInt64);  # numbers of kept plans
    drain @9 :Drain;
  }
}

struct Log {
  term @0 :UInt32;
  first @1 :UInt64 = 1;    # number of the first entry below
  entries @2 :List(LogEntry);
}

# ---- worker to scheduler --------------------------------------------------------------------------------------------

enum Lane {
  sameDevice @0; mapped @1; peerCopy @2; cudaIpc @3; sharedMemory @4; rdma @5; tcp @6; staged @7; inlined @8;
}

struct OpProgress {
  # Cumulative.
  op @0 :UInt64;
  device @1 :UInt32;
  completed @2 :Int64;     # points finished, failed ones included
  failed @3 :Int64;
}

struct DeviceStats {
  device @0 :UInt32;
  bytesUsed @1 :Int64;
  bytesPeak @2 :Int64;
  bytesResident @3 :Int64;
  stepsRun @4 :Int64;      # cumulative
  busyNs @5 :Int64;        # cumulative
  spilledBytes @6 :Int64;  # of blocks that are on disk only
  diskWritten @7 :Int64;   # bytes, cumulative, as are the next three
  diskRead @8 :Int64;
  blocksWritten @9 :Int64;
  blocksReadBack @10 :Int64;
  bytesHigh @11 :Int64;     # most at once since the last report
  pinnedBytes @12 :Int64;   # of blocks that are in pinned host memory only
  pinnedWritten @13 :Int64; # bytes, cumulative, as is the next
  pinnedRead @14 :Int64;
  lodgedBytes @15 :Int64;   # of blocks that are in neighbours' memory only
  lodgedWritten @16 :Int64; # bytes, cumulative, as is the next
  lodgedRead @17 :Int64;
  guestBytes @18 :Int64;    # of bytesUsed: neighbours' blocks
  relocated @19 :Int64;     # bytes, cumulative: of blocks that moved within memory
  diskTaken @20 :Int64;     # an equal share of what its worker's spill file takes on the disk
}

struct LaneStats { lane @0 :Lane; transfers @1 :Int64; bytes @2 :Int64; failed @3 :Int64; }  # cumulative

struct Progress {
  logApplied @0 :UInt64;   # highest contiguous log entry applied
  ops @1 :List(OpProgress);
  devices @2 :List(DeviceStats);
  lanes @3 :List(LaneStats);
  families @4 :List(FamilyStats);  # those that have moved
  links @5 :List(LinkStats);       # likewise
  pairs @6 :List(PairStats);       # likewise
  measured @7 :List(OpMeasured);
}

struct OpMeasured {
  # When a device's share of an op is complete.
  op @0 :UInt64;
  device @1 :UInt32;
  busyNs @2 :Int64;        # of its steps
  bytesMoved @3 :Int64;    # of its inputs, copied there from other devices
}

struct PairStats {
  # Cumulative: what one device took in from another, by lane; what is read in place included.
  from @0 :UInt32;
  to @1 :UInt32;
  lane @2 :Lane;
  transfers @3 :Int64;
  bytes @4 :Int64;
  busyNs @5 :Int64;        # summed over transfers
}

struct LinkStats {
  # Cumulative: blocks of one class of sizes that were copied from one peer to the reporter.
  from @0 :UInt32;
  sizeClass @1 :UInt8;
  transfers @2 :Int64;
  bytes @3 :Int64;
  busyNs @4 :Int64;        # with at least one of them under way
}

struct FamilyStats {
  # Cumulative: what steps of one family of ops took, beside the plain model.
  device @0 :UInt32;
  family @1 :Text;
  steps @2 :Int64;
  busyNs @3 :Int64;
  modelNs @4 :Int64;
}

struct TaskFailed {
  op @0 :UInt64;
  device @1 :UInt32;
  point @2 :Int64;         # C-order number in the op's space
  why @3 :Outcome;
}

struct Stuck {
  # My lowest unfinished task does not fit, and nothing here can make room.
  graph @0 :UInt64;
  op @1 :UInt64;
  device @2 :UInt32;
  bytesNeeded @3 :Int64;
  bytesAvailable @4 :Int64;
  diskLimit @5 :Int64;     # of the worker
  diskUsed @6 :Int64;
  diskFull @7 :Bool;       # what could make room found none there
  pinnedLimit @8 :Int64;   # of the worker, where the device may spill there; else 0
  pinnedUsed @9 :Int64;
  refused @10 :Outcome;    # why the system gives the device no more memory; absent: it was not asked, or gave
}

# ---- client and scheduler -------------------------------------------------------------------------------------------

struct Submit {
  request @0 :UInt64;      # rising per session; a repeat is answered, not executed, again
  priority @1 :Int32;
  ops @2 :List(Ir.Op);     # arrays named by the session's numbers; producers before users; at most 65,536
  holds @3 :List(UInt64);  # outputs I keep until I release them
  weight @4 :UInt32;       # my share of contended devices beside other sessions', 1 to 10,000
  keeps @5 :List(Keep);    # arrays in `holds`, or held before, of which several workers are to have copies
  keepAs @6 :UInt32;       # 1 to 4: keep `ops` in that place, instead of what was there; 0: do not keep them
  program @7 :UInt64;      # not 0: `ops` is empty, they are what I had you keep with the request of this number, called:
  firstOutput @8 :UInt64;  # outputs so and on in a row,
  inputs @9 :List(UInt64); # and what it reads and does not make so, by first mention
  account @10 :Bool;       # I may ask for an account of it (Explain): keep what is predicted now
  constants @11 :List(Ir.Constant);  # with `program`: of its tapes, by number; at most 65,535
}

struct Keep { array @0 :UInt64; copies @1 :UInt32; }  # by the session's number; how many, 1 to 16

struct NamedArray { number @0 :UInt64; array @1 :UInt64; }  # the session's number, the ArrayId

struct SubmitReply {
  request @0 :UInt64;
  outcome @1 :Outcome;     # an error: nothing of it was executed
  graph @2 :UInt64;
  arrays @3 :List(NamedArray);  # operands of fetch ops, outputs of provide ops; of an Announce: its array
  grid @4 :Ir.Grid;        # of an Announce: the cuts that all pieces make
  needs @5 :List(Account.NeedAccount);  # where memory does not suffice for it
  lastOp @6 :UInt64;       # later ones are of requests that are not answered yet
}

struct Announce {
  # I have these pieces of an array; others, who announce the same name, have the rest. Answered by a SubmitReply.
  request @0 :UInt64;      # one of my requests' numbers; a repeat is answered, not counted, again
  name @1 :Text;
  dtype @2 :Ir.DType;
  shape @3 :List(Int64);   # of the whole array
  processes @4 :UInt32;    # announcements that it takes, 1 to 4,096
  timeoutNs @5 :Int64;     # how long I wait for the others; 0: for ever
  array @6 :UInt64;        # what I call the array; I hold it from then on
  weight @7 :UInt32;       # as in Submit
  pieces @8 :List(Box);    # at most 65,536
  failed @9 :Outcome;      # an error: I cannot take part
}

struct Box { lo @0 :List(Int64); hi @1 :List(Int64); }  # elements [lo, hi)

struct GraphProgress { request @0 :UInt64; done @1 :Int64; total @2 :Int64; }  # tasks

struct GraphDone {
  request @0 :UInt64;
  outcome @1 :Outcome;
  tasks @2 :Int64;
  needs @3 :List(Account.NeedAccount);  # where memory did not suffice for it
}

struct ReleaseArrays {  # what a session needs no more
  arrays @0 :List(UInt64);     # session numbers; after the submits that name them
  delivered @1 :List(UInt64);  # requests whose results are all here, or not wanted any more
}

# ---- status ---------------------------------------------------------------------------------------------------------

struct GraphStatus {
  graph @0 :UInt64;
  session @1 :UInt32;
  done @2 :Int64;          # tasks
  total @3 :Int64;
  ops @4 :Int32;
  failed @5 :Bool;
}

struct WorkerLane { worker @0 :UInt32; stats @1 :LaneStats; }

struct StatusReply {
  term @0 :UInt32;
  uptimeNs @1 :Int64;
  peers @2 :List(PeerInfo);
  devices @3 :List(DeviceStats);
  lanes @4 :List(WorkerLane);
  graphs @5 :List(GraphStatus);  # running ones
  graphsDone @6 :Int64;
  graphsFailed @7 :Int64;
  tasksDone @8 :Int64;
  arraysLive @9 :Int64;
  families @10 :List(FamilyStats);
}

# ---- explaining ------------------------------------------------------------------------------------------------------

struct Explain {
  submit @0 :Submit;         # its request numbers the answer only
  arrays @1 :List(UInt64);   # whose placements are wanted, by the session's numbers
  graph @2 :UInt64;          # given: this one instead of `submit`
  account @3 :Bool;          # of `graph`, ended or not: as it was predicted, beside what was measured
}

struct Explanation {
  request @0 :UInt64;
  outcome @1 :Outcome;       # why it would be refused
  simulated @2 :Bool;
  tasks @3 :Int64;
  steps @4 :Int64;
  flops @5 :Float64;
  seconds @6 :Float64;
  boundS @7 :Float64;
  passes @8 :List(Account.PassAccount);
  ops @9 :List(Account.OpAccount);
  devices @10 :List(Account.DeviceAccount);
  links @11 :List(Account.LinkAccount);
  critical @12 :List(Account.CriticalAccount);
  arrays @13 :List(Account.ArrayAccount);
  opCount @14 :UInt32;       # planned; of very many only the last are in `ops`
  tight @15 :Bool;           # as simulated, it does not fit
  needs @16 :List(Account.NeedAccount);
  unpredicted @17 :Text;     # of an account: why nothing is predicted
  measured @18 :Measured;    # of an account
}

struct Measured {
  running @0 :Bool;
  shared @1 :Bool;           # other graphs ran meanwhile
  outcome @2 :Outcome;
  seconds @3 :Float64;       # from submission to end, or to now
  agoS @4 :Float64;          # since submission
  tasks @5 :Int64;
  tasksDone @6 :Int64;
  forgotten @7 :UInt32;
  ops @8 :List(Account.MeasuredOp);
  devices @9 :List(Account.MeasuredDevice);
  links @10 :List(MeasuredLink);
}

struct MeasuredLink {
  from @0 :UInt32;
  to @1 :UInt32;
  lane @2 :Lane;
  blocks @3 :Int64;
  bytes @4 :Int64;
  busyS @5 :Float64;
}

# ---- tracing ---------------------------------------------------------------------------------------------------------

struct TraceRequest {
  nonce @0 :UInt64;
  graph @1 :UInt64;
  maxSteps @2 :UInt32;
  fromAgeNs @3 :Int64;     # what ended at most so long ago
  untilAgeNs @4 :Int64;    # what began at least so long ago
}

struct TracedStep {
  op @0 :UInt64;
  graph @1 :UInt64;
  point @2 :Int64;
  family @3 :UInt32;       # place in TraceReply.families
  device @4 :UInt32;
  stream @5 :UInt8;
  startNs @6 :Int64;       # monotonic clock of that host
  endNs @7 :Int64;
  kind @8 :UInt8;          # msg::TraceKind
  lane @9 :Lane;           # of transfers, as are the next three
  peer @10 :UInt32;        # from whom
  bytes @11 :Int64;
  user @12 :UInt64;        # the op that wanted it
}

struct TraceReply {
  nonce @0 :UInt64;
  worker @1 :UInt32;
  of @2 :UInt32;           # replies to expect
  lost @3 :UInt64;         # older steps that were forgotten
  families @4 :List(Text);
  steps @5 :List(TracedStep);
  refused @6 :Outcome;     # by the scheduler
  nowNs @7 :Int64;         # of that host
  sinceNs @8 :Int64;       # of what ended from here on nothing was overwritten; 0: nothing at all
  cut @9 :UInt64;          # records of the range that were left out
}

struct BlocksRequest { nonce @0 :UInt64; array @1 :UInt64; first @2 :Int64; count @3 :Int64; }

struct BlocksReply {
  nonce @0 :UInt64;
  worker @1 :UInt32;
  of @2 :UInt32;           # replies to expect
  refused @3 :Outcome;
  copies @4 :List(Copy);

  struct Copy {
    block @0 :Int64;
    device @1 :UInt32;
    state @2 :UInt8;       # msg::BlockState
    owned @3 :Bool;
    bytes @4 :Int64;
    from @5 :UInt32;       # of copies
  }
}

# ---- between peers --------------------------------------------------------------------------------------------------

struct PeerHello {
  from @0 :UInt32;         # my WorkerId
  to @1 :UInt32;           # whom I mean: another incarnation closes the link
  hostId @2 :Text;
  slabFds @3 :Int32;       # arenas handed over with this or a later ArenaMap
}

struct SlabDesc {
  device @0 :UInt32;
  slab @1 :UInt32;
  bytes @2 :Int64;
  ipcHandle @3 :Data;      # cuda only; up to 256 bytes
}

struct ArenaMap {
  slabs @0 :List(SlabDesc);
  ucxAddress @1 :Data;     # may be empty; up to 64 KiB
}

# Those of a PeerBatch are flat, because there is one for every block that moves.

struct Subscribe {
  array @0 :UInt64;
  block @1 :Int64;
  op @2 :UInt64;
  from @3 :UInt32;
  to @4 :UInt32;
  via @5 :UInt32;          # named in an offer, and has not sent it: send it yourself; yourself: you could not. 0: none
}

struct Offer {
  array @0 :UInt64;
  block @1 :Int64;
  op @2 :UInt64;           # the user that subscribed, or the fetch that wished for it
  from @3 :UInt32;         # the block's owner: me
  to @4 :UInt32;
  slab @5 :UInt32;
  offset @6 :Int64;        # bytes, in the slab
  bytes @7 :Int64;
  failed @8 :Outcome;      # an error: there will be no bytes
  inlined @9 :Bool;        # the bytes are in `data`
  data @10 :Data;          # up to 4096 bytes
  via @11 :UInt32;         # grant it there, not to me. 0: none
  relays @12 :Bool;        # others are to get it from you
}

struct Grant {
  array @0 :UInt64;
  block @1 :Int64;
  from @2 :UInt32;
  to @3 :UInt32;
  transfer @4 :UInt64;
  via @5 :UInt32;          # as in the offer
  inParts @6 :Bool;        # a transfer for each part of the block
}

struct Relay {
  array @0 :UInt64;
  block @1 :Int64;
  from @2 :UInt32;         # who says it
  to @3 :UInt32;
  word @4 :UInt8;          # 0 has, 1 declined, 2 over, 3 missing
  transfer @5 :UInt64;     # of missing
}

struct Done { array @0 :UInt64; block @1 :Int64; op @2 :UInt64; from @3 :UInt32; to @4 :UInt32; also @5 :UInt64; }

struct Gone { array @0 :UInt64; block @1 :Int64; from @2 :UInt32; to @3 :UInt32; }

struct Probe {
  # I measure the way from `from`: send so many bytes of anything, under this number.
  from @0 :UInt32;
  to @1 :UInt32;
  transfer @2 :UInt64;
  bytes @3 :Int64;         # up to 8 MiB
}

struct Range { first @0 :Int64; count @1 :Int64; }  # blocks [first, first + count) in C order

struct Held {
  # What I have of the ops that a PeerLost names.
  version @0 :UInt64;
  shares @1 :List(Share);
  blocks @2 :List(Blocks);
  cut @3 :Bool;            # too many ranges to tell
  fetches @4 :List(Fetch); # of a client

  struct Share { op @0 :UInt64; device @1 :UInt32; next @2 :Int64; begun @3 :List(Range); }
  struct Blocks { array @0 :UInt64; device @1 :UInt32; sealed @2 :List(Range); wanted @3 :List(Range); }
  struct Fetch { request @0 :UInt64; array @1 :UInt64; missing @2 :List(Range); }
}

struct Drained { peer @0 :UInt32; round @1 :UInt64; left @2 :Int64; }  # left: blocks still to come

struct DrainRequest {
  worker @0 :Text;         # "w3", "3" or its name
  wish @1 :UInt8;          # 0 only ask, 1 that it leave, 2 that it stay
}

struct DrainReply {
  outcome @0 :Outcome;     # an error: there is no such worker
  worker @1 :UInt32;
  name @2 :Text;
  state @3 :UInt8;         # 0 stays, 1 waiting, 2 stopping, 3 moving, 4 gone, 5 lost
  why @4 :Text;            # of waiting
  tasksLeft @5 :Int64;
  blocksLeft @6 :Int64;
  bytes @7 :Int64;
}

struct LastWords {
  # From a supervisor: how its worker ended, and what was running there.
  worker @0 :UInt32;
  blackBox @1 :UInt64;     # as in the worker's Join
  how @2 :Text;
  running @3 :List(Running);

  struct Running { op @0 :UInt64; device @1 :UInt32; point @2 :Int64; }  # C-order number in the op's space
}

struct LinkProbe {
  # Measure the way from the device `from` to your device `to`, unless there is work.
  nonce @0 :UInt64;        # rising
  from @1 :UInt32;
  to @2 :UInt32;
}

struct LinkProbed {
  nonce @0 :UInt64;        # of the LinkProbe
  end @1 :UInt8;           # 0 measured, 1 given up because of work, 2 failed
  mapped @2 :Bool;         # blocks from there are read in place
  sizes @3 :List(Size);    # rising; also of what was given up or failed later
  why @4 :Text;

  struct Size {
    bytes @0 :Int64;
    transfers @1 :UInt32;
    tookNs @2 :Int64;      # median, from asking for the bytes to their arrival
    lane @3 :Lane;
  }
}

struct PeerBatch {
  # Processed in this order, relays before dones.
  subscribes @0 :List(Subscribe);
  offers @1 :List(Offer);
  grants @2 :List(Grant);
  dones @3 :List(Done);
  gones @4 :List(Gone);
  recovery @5 :UInt64;     # version of the last Recover that I have applied
  relays @6 :List(Relay);
  probes @7 :List(Probe);
}

# ---- the root -------------------------------------------------------------------------------------------------------

struct Message {
  # Alternatives in the order of msg::Message: the discriminant is the frame's type.
  union {
    join @0 :Join;
    welcome @1 :Welcome;
    log @2 :Log;
    progress @3 :Progress;
    taskFailed @4 :TaskFailed;
    stuck @5 :Stuck;
    submit @6 :Submit;
    submitReply @7 :SubmitReply;
    graphProgress @8 :GraphProgress;
    graphDone @9 :GraphDone;
    releaseArrays @10 :ReleaseArrays;
    cancelRequest @11 :UInt64;        # number of the request
    statusRequest @12 :Void;
    statusReply @13 :StatusReply;
    shutdown @14 :Void;
    ping @15 :UInt64;                 # nonce, returned by pong
    pong @16 :UInt64;
    refusal @17 :Outcome;             # of a message that could not be taken; an error
    peerHello @18 :PeerHello;
    arenaMap @19 :ArenaMap;
    peerBatch @20 :PeerBatch;
    explain @21 :Explain;
    explanation @22 :Explanation;
    traceRequest @23 :TraceRequest;
    traceReply @24 :TraceReply;
    held @25 :Held;
    resume @26 :Resume;
    resumed @27 :Resumed;
    ack @28 :UInt64;                  # messages received so far
    blocksRequest @29 :BlocksRequest;
    blocksReply @30 :BlocksReply;
    drained @31 :Drained;
    drainRequest @32 :DrainRequest;
    drainReply @33 :DrainReply;
    lastWords @34 :LastWords;
    leave @35 :Void;                  # I end this link on purpose
    announce @36 :Announce;
    linkProbe @37 :LinkProbe;
    linkProbed @38 :LinkProbed;
  }
}
