// Steps that ran, in rows of a device's stream, with coarser levels so that a picture of any range costs the same.
import type { TraceColumns } from "./types";

export interface Row {
  name: string; device: string; stream: number;
  // One entry a step, by start; times in nanoseconds since the trace's beginning. Steps of a row do not overlap.
  start: Float64Array; end: Float64Array; what: Uint16Array; op: Uint32Array; point: Float64Array;
  levels: Level[];
}
// Entry i covers kFold^(level+1) steps: how much of its time was work, and of which kind most.
interface Level { start: Float64Array; end: Float64Array; busy: Float64Array; what: Uint16Array }
export interface Steps {
  rows: Row[]; families: string[]; ops: string[]; graphs: string[]; count: number; lost: number; span: number; source: string;
}

const kFold = 16;

function fold(start: Float64Array, end: Float64Array, busy: Float64Array | null, what: Uint16Array, kinds: number): Level {
  const n = Math.ceil(start.length / kFold);
  const out = { start: new Float64Array(n), end: new Float64Array(n), busy: new Float64Array(n), what: new Uint16Array(n) };
  const per = new Float64Array(kinds + 1);
  for (let i = 0; i < n; ++i) {
    const first = i * kFold, last = Math.min(start.length, first + kFold);
    per.fill(0);
    let sum = 0, best = what[first]!;
    for (let k = first; k < last; ++k) {
      const work = busy ? busy[k]! : end[k]! - start[k]!;
      sum += work;
      const kind = what[k]!;
      per[kind] = per[kind]! + work;
      if (per[kind]! > per[best]!) best = kind;
    }
    out.start[i] = start[first]!;
    out.end[i] = end[last - 1]!;
    out.busy[i] = sum;
    out.what[i] = best;
  }
  return out;
}

interface Raw { device: string; stream: number; start: number; took: number; what: number; op: number; point: number }

class Builder {
  private rows = new Map<string, Raw[]>();
  add(step: Raw): void {
    const key = `${step.device}\n${step.stream}`;
    const row = this.rows.get(key);
    if (row) row.push(step);
    else this.rows.set(key, [step]);
  }
  build(families: string[], ops: string[], graphs: string[], lost: number, source: string): Steps {
    let count = 0, span = 1, origin = Infinity;
    for (const steps of this.rows.values()) for (const s of steps) origin = Math.min(origin, s.start);
    const rows = [...this.rows.values()].map((steps): Row => {
      steps.sort((a, b) => a.start - b.start);
      const n = steps.length, row: Row = {
        name: "", device: steps[0]!.device, stream: steps[0]!.stream, start: new Float64Array(n), end: new Float64Array(n),
        what: new Uint16Array(n), op: new Uint32Array(n), point: new Float64Array(n), levels: [],
      };
      steps.forEach((s, i) => {
        row.start[i] = s.start - origin;
        row.end[i] = s.start - origin + s.took;
        row.what[i] = s.what;
        row.op[i] = s.op;
        row.point[i] = s.point;
        span = Math.max(span, row.end[i]!);
      });
      count += n;
      let level: Level | null = null;
      while ((level?.start ?? row.start).length > 256) {
        const next: Level = level ? fold(level.start, level.end, level.busy, level.what, families.length) : fold(row.start, row.end, null, row.what, families.length);
        row.levels.push(next);
        level = next;
      }
      return row;
    });
    rows.sort((a, b) => a.device.localeCompare(b.device, "en", { numeric: true }) || a.stream - b.stream);
    for (const row of rows) row.name = rows.some((r) => r !== row && r.device === row.device) ? `${row.device} stream ${row.stream}` : row.device;
    return { rows, families, ops, graphs, count, lost, span, source };
  }
}

export function fromColumns(t: TraceColumns, name: (device: number) => string): Steps {
  const builder = new Builder();
  for (let i = 0; i < t.start.length; ++i)
    builder.add({ device: name(t.device[i]!), stream: t.stream[i]!, start: t.start[i]!, took: t.took[i]!, what: Math.max(0, t.family[i]!), op: t.op[i]!, point: t.point[i]! });
  return builder.build(t.families, t.ops, t.op_graphs, t.lost, "the workers' memory");
}

interface ChromeEvent { ph?: unknown; name?: unknown; pid?: unknown; tid?: unknown; ts?: unknown; dur?: unknown; args?: Record<string, unknown> }

// A file that `tilewise trace` wrote, or another in Chrome's format. Anything may stand in it.
export function fromFile(text: string, source: string): Steps {
  const parsed = JSON.parse(text) as { traceEvents?: unknown } | unknown[];
  const events = (Array.isArray(parsed) ? parsed : parsed?.traceEvents) as ChromeEvent[];
  if (!Array.isArray(events)) throw new Error("no trace events are in this file");
  const devices = new Map<unknown, string>(), families = new Map<string, number>(), ops = new Map<string, number>(), graphs: string[] = [];
  const builder = new Builder();
  const index = (map: Map<string, number>, key: string) => map.get(key) ?? (map.set(key, map.size), map.size - 1);
  for (const e of events) if (e.ph === "M" && e.name === "process_name") devices.set(e.pid, String(e.args?.["name"] ?? e.pid));
  for (const e of events) {
    if (e.ph !== "X" || typeof e.ts !== "number" || typeof e.dur !== "number" || families.size > 60000) continue;
    const op = index(ops, String(e.args?.["op"] ?? "?"));
    graphs[op] = String(e.args?.["graph"] ?? "?");
    builder.add({ device: devices.get(e.pid) ?? `process ${String(e.pid)}`, stream: Number(e.tid) || 0, start: e.ts * 1000, took: e.dur * 1000,
                  what: index(families, String(e.name)), op, point: Number(e.args?.["point"] ?? 0) });
  }
  return builder.build([...families.keys()], [...ops.keys()], graphs, 0, source);
}

// The same format, for other viewers and for later.
export function toFile(steps: Steps): Blob {
  const parts: string[] = ['{"displayTimeUnit":"ns","traceEvents":['];
  let comma = "";
  const pids = new Map<string, number>();
  for (const row of steps.rows) {
    if (!pids.has(row.device)) {
      pids.set(row.device, pids.size + 1);
      parts.push(`${comma}{"ph":"M","name":"process_name","pid":${pids.get(row.device)},"args":{"name":${JSON.stringify(row.device)}}}`);
      comma = ",";
    }
    for (let i = 0; i < row.start.length; ++i)
      parts.push(`,{"ph":"X","name":${JSON.stringify(steps.families[row.what[i]!] ?? "?")},"pid":${pids.get(row.device)},"tid":${row.stream},` +
        `"ts":${(row.start[i]! / 1000).toFixed(3)},"dur":${((row.end[i]! - row.start[i]!) / 1000).toFixed(3)},` +
        `"args":{"op":${JSON.stringify(steps.ops[row.op[i]!])},"graph":${JSON.stringify(steps.graphs[row.op[i]!])},"point":${row.point[i]}}}`);
  }
  parts.push("]}\n");
  return new Blob(parts, { type: "application/json" });
}

// The first index whose value is above `x`.
export function above(values: Float64Array, x: number): number {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Calls draw for what of a row lies in [from, to]: steps where they are few, else stretches of them with how busy they were.
export function visit(row: Row, from: number, to: number, most: number, draw: (start: number, end: number, share: number, what: number, step: number) => void): void {
  let first = above(row.end, from), last = above(row.start, to);
  if (last - first <= most || row.levels.length === 0) {
    for (let i = first; i < last; ++i) draw(row.start[i]!, row.end[i]!, 1, row.what[i]!, i);
    return;
  }
  let level = row.levels[0]!;
  for (const candidate of row.levels) {
    level = candidate;
    first = above(level.end, from);
    last = above(level.start, to);
    if (last - first <= most) break;
  }
  for (let i = first; i < last; ++i) {
    const took = level.end[i]! - level.start[i]!;
    draw(level.start[i]!, level.end[i]!, took > 0 ? level.busy[i]! / took : 1, level.what[i]!, -1);
  }
}
