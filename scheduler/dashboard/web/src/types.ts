// What the server sends: scheduler/dashboard/views.cc.
export type Id = string;

export interface Cause { code: string; message: string }
export interface OpGroup { kind: string; label: string; ops: number; ops_done: number; tasks: number; done: number; failed: number }
export interface GraphSummary {
  id: Id; session: number; client: string; request: number; priority: number;
  state: "running" | "done" | "failed" | "cancelled";
  tasks: number; done: number; failed: number; ops: number; ops_open: number;
  submitted: number; ended: number | null; cause: Cause | null;
  affected: string[]; affected_count: number; groups: OpGroup[];
}
export interface Peer { id: number; role: "worker" | "client" | "tool"; name: string; host: string; devices: number }
export interface Device {
  id: number; name: string; worker: number; kind: string; model: string; class: string; streams: number;
  memory: number; used: number; peak: number; resident: number; spilled: number; spill_limit: number; pinned: number; pinned_limit: number; lodged: number; steps: number; busy_s: number;
}
export interface Lane { worker: number; lane: string; transfers: number; bytes: number; failed: number }
export interface SessionInfo { id: number; client: string; peer: number; held_arrays: number; held_bytes: number | null; running: number }
export interface Warning { serious: boolean; code: string; what: string; to_do: string }
export interface Lost { id: number; role: string; name: string; at: number; drained: boolean }
export interface Overview {
  view: "overview"; now: number; wall_ms: number; term: number; version: string;
  totals: { graphs_running: number; graphs_done: number; graphs_failed: number; tasks_done: number; arrays: number };
  peers: Peer[]; devices: Device[]; lanes: Lane[]; graphs: GraphSummary[]; sessions: SessionInfo[];
  stuck: { device: number; graph: Id; needed: number; available: number }[]; lost: Lost[]; warnings: Warning[];
  draining: { worker: number; state: string; why: string; tasks_left: number; blocks_left: number; bytes: number }[]; recovered: number;
}
export type Share = [device: number, owned: number, completed: number];
export interface Choice { policy: string; placement: string; seconds: number }
export interface Op {
  id: Id; position: number; kind: string; label: string; fused: number; inputs: number[]; reads_earlier: boolean;
  tasks: number; done: number; failed: number; bytes: number; finished: boolean;
  began: number | null; ended: number | null; predicted_s: number; why: string; rejected: Choice[]; busy_s: number; busiest_s: number; bytes_moved: number; shares: Share[];
}
export interface SourceOp { kind: string; label: string; inputs: number[] }
export interface Graph {
  view: "graph"; id: Id; now: number; whole: boolean; summary: GraphSummary; source: SourceOp[]; source_count: number;
  passes: { name: string; ops: number }[]; ops: Op[]; forgotten: number; peaks: [device: number, bytes: number, before: number][]; alone: boolean;
}
export interface ArrayInfo {
  id: Id; session: number; client: string; number: number; held: boolean; dtype: string; shape: number[]; grid: string;
  counts: number[]; bytes: number; blocks: number; made: number; open_users: number; graph: Id; op: Id; position: number;
  kind: string; label: string; placement: string; copies: number; shares: Share[]; failed: Cause | null;
}
export interface ArrayList { view: "arrays"; id: Id; live: number; looked_at: number; arrays: ArrayInfo[] }
export interface ArrayDetail {
  view: "array"; id: Id; array: ArrayInfo; from: number[]; owners: number[][]; producer: Op; program: string; readers: Op[];
}
export interface Link { from: number; to: number; lane: string; transfers: number; bytes: number; busy_s: number; limit_bytes_per_s: number; latency_s: number }
export interface LinkClass {
  state: string; from_host: string; to_host: string; from_kind: string; to_kind: string; inside: boolean; from: number; to: number;
  at: number | null; mapped: boolean; sizes: { bytes: number; transfers: number; seconds: number; lane: string }[]; why: string;
  bytes_per_s: number; latency_s: number;
}
export interface LinkList { view: "links"; count: number; links: Link[]; class_count: number; classes: LinkClass[] }
export interface BlockCopy { block: number; device: number; state: string; owned: boolean; bytes: number; from: number }
export interface Blocks { copies: BlockCopy[] }
export interface Gone { view: "gone"; what: string; id: Id; error: string }
export interface LogLine { number: number; wall_ms: number; level: string; event: string; fields: Record<string, string> }
export interface Log { view: "log"; lines: LogLine[] }
export interface History {
  view: "history";
  samples: { t: number; tasks: number; used: [number, number][]; busy: [number, number][]; lanes: [string, number][]; arrays: [id: Id, name: string, bytes: number][] }[];
}
export type Message = Overview | Graph | ArrayList | ArrayDetail | LinkList | Gone | Log;
export interface Explanation {
  refused: Cause | null; simulated: boolean; tasks: number; steps: number; flops: number; seconds: number; bound_s: number;
  op_count: number;
  ops: { op: string; tasks: number; steps: number; flops: number; bytes_written: number; bytes_moved: number;
         begin_s: number; end_s: number; busy_s: number; critical_s: number;
         choices: { policy: string; placement: string; seconds: number }[] }[];
  devices: { device: number; tasks: number; before: number; peak: number; after: number; memory: number; busy_s: number }[];
  links: { from: number; to: number; mapped: boolean; blocks: number; bytes: number; busy_s: number }[];
  critical: { op: number; device: number; what: string; seconds: number }[];
}
export interface TraceColumns {
  now: number; lost: number; cut: number; since: [device: number, at: number][];
  families: string[]; lanes: string[]; kinds: string[]; ops: Id[]; op_graphs: Id[]; op_families: number[];
  family: number[]; device: number[]; stream: number[]; start: number[]; took: number[]; op: number[]; point: number[];
  kind: number[]; lane: number[]; peer: number[]; bytes: number[]; user: number[];
}
