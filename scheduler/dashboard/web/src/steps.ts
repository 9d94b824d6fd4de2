// What devices did, in rows: steps of each stream, what came from other devices, why nothing ran. With coarser levels, so that a
// picture of any range costs the same.
import type { TraceColumns } from "./types";

export type RowKind = "step" | "transfer" | "wait";
export interface Row {
  name: string; device: string; kind: RowKind; stream: number;
  // One entry a record, by start; times in nanoseconds since the trace's beginning. What is drawn does not overlap: `end` is where
  // the next one begins at the latest, `took` what was recorded.
  start: Float64Array; end: Float64Array; took: Float64Array; what: Uint16Array; op: Uint32Array; point: Float64Array;
  // Of transfers; else empty.
  bytes: Float64Array; peer: Uint16Array; user: Uint32Array;
  levels: Level[];
}
// Entry i covers kFold^(level+1) records: how much of its time was taken, and by which kind most.
interface Level { start: Float64Array; end: Float64Array; busy: Float64Array; what: Uint16Array }
export interface Steps {
  rows: Row[]; families: string[]; ops: string[]; graphs: string[]; devices: string[];
  count: number; transfers: number; lost: number; cut: number; span: number; source: string;
  since: Map<string, number>;  // by device: what was before has been overwritten
  now: number;                 // where "now" was when it was fetched; NaN of files
}

const kFold = 16, kTracks = 8;  // transfers beside each other, of one device
export const kWaits = ["no work", "waits for inputs", "waits for memory"];

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

interface Raw { device: string; kind: RowKind; stream: number; start: number; took: number; what: number; op: number; point: number; bytes: number; peer: string; user: number }

class Builder {
  private rows = new Map<string, Raw[]>();
  private device = new Map<string, number>();

  add(step: Raw): void {
    const key = `${step.device}\n${step.kind}\n${step.kind === "step" ? step.stream : 0}`;
    const row = this.rows.get(key);
    if (row) row.push(step);
    else this.rows.set(key, [step]);
  }

  // Transfers overlap: each goes to the first track that is free, so that all of them are seen.
  private tracks(all: Raw[]): Raw[][] {
    const tracks: Raw[][] = [], free: number[] = [];
    for (const s of all) {
      let t = free.findIndex((f) => f <= s.start);
      if (t < 0) t = free.length < kTracks ? free.length : free.indexOf(Math.min(...free));
      free[t] = Math.max(free[t] ?? 0, s.start + s.took);
      (tracks[t] ??= []).push(s);
    }
    return tracks;
  }

  private number(device: string): number {
    return this.device.get(device) ?? (this.device.set(device, this.device.size), this.device.size - 1);
  }

  private row(steps: Raw[], track: number, origin: number, kinds: number): Row {
    const n = steps.length, moved = steps[0]!.kind === "transfer", m = moved ? n : 0;
    const row: Row = {
      name: "", device: steps[0]!.device, kind: steps[0]!.kind, stream: moved ? track : steps[0]!.stream,
      start: new Float64Array(n), end: new Float64Array(n), took: new Float64Array(n), what: new Uint16Array(n), op: new Uint32Array(n), point: new Float64Array(n),
      bytes: new Float64Array(m), peer: new Uint16Array(m), user: new Uint32Array(m), levels: [],
    };
    steps.forEach((s, i) => {
      const next = steps[i + 1];
      row.start[i] = s.start - origin;
      row.end[i] = Math.min(s.start + s.took, next ? Math.max(s.start, next.start) : Infinity) - origin;
      row.took[i] = s.took;
      row.what[i] = s.what;
      row.op[i] = s.op;
      row.point[i] = s.point;
      if (moved) row.bytes[i] = s.bytes, row.peer[i] = this.number(s.peer), row.user[i] = s.user;
    });
    let level: Level | null = null;
    while ((level?.start ?? row.start).length > 256) {
      const next: Level = level ? fold(level.start, level.end, level.busy, level.what, kinds) : fold(row.start, row.end, null, row.what, kinds);
      row.levels.push(next);
      level = next;
    }
    return row;
  }

  build(families: string[], ops: string[], graphs: string[], about: { lost: number; cut: number; source: string; since: Map<string, number>; now: number }): Steps {
    let count = 0, transfers = 0, span = 1, origin = Infinity;
    for (const steps of this.rows.values()) for (const s of steps) origin = Math.min(origin, s.start);
    const rows: Row[] = [];
    for (const steps of this.rows.values()) {
      steps.sort((a, b) => a.start - b.start);
      for (const s of steps) span = Math.max(span, s.start - origin + s.took);
      if (steps[0]!.kind === "step") count += steps.length;
      if (steps[0]!.kind === "transfer") transfers += steps.length;
      const parts = steps[0]!.kind === "transfer" ? this.tracks(steps) : [steps];
      parts.forEach((part, track) => rows.push(this.row(part, track, origin, families.length)));
    }
    const order = { step: 0, wait: 1, transfer: 2 };
    rows.sort((a, b) => a.device.localeCompare(b.device, "en", { numeric: true }) || order[a.kind] - order[b.kind] || a.stream - b.stream);
    for (const row of rows) {
      const streams = rows.some((r) => r !== row && r.device === row.device && r.kind === "step" && row.kind === "step");
      row.name = row.kind === "wait" ? "  idle, why" : row.kind === "transfer" ? (row.stream === 0 ? "  came in" : "") : streams ? `${row.device} stream ${row.stream}` : row.device;
    }
    return { rows, families, ops, graphs, devices: [...this.device.keys()], count, transfers, span, ...about };
  }
}

export function fromColumns(t: TraceColumns, name: (device: number) => string): Steps {
  const builder = new Builder(), families = [...t.families], index = new Map<string, number>();
  const named = (what: string) => index.get(what) ?? (index.set(what, families.length), families.push(what), families.length - 1);
  const names = new Map<number, string>();
  const device = (d: number) => names.get(d) ?? (names.set(d, name(d)), names.get(d)!);
  for (let i = 0; i < t.start.length; ++i) {
    const kind = t.kinds[t.kind[i]!] ?? "?";
    const base = { device: device(t.device[i]!), stream: t.stream[i]!, start: t.start[i]!, took: t.took[i]!, op: t.op[i]!, point: t.point[i]!, bytes: t.bytes[i]!, peer: "", user: t.user[i]! };
    if (kind === "step") builder.add({ ...base, kind: "step", what: Math.max(0, t.family[i]!) });
    else if (kWaits.includes(kind)) builder.add({ ...base, kind: "wait", stream: 0, what: named(kind) });
    else builder.add({ ...base, kind: "transfer", peer: t.peer[i]! ? device(t.peer[i]!) : "", what: named(kind === "transfer" ? `lane ${t.lanes[t.lane[i]!] ?? "?"}` : kind) });
  }
  return builder.build(families, t.ops, t.op_graphs, { lost: t.lost, cut: t.cut, source: "the workers' memory", now: t.now,
                                                       since: new Map(t.since.map(([d, at]) => [device(d), at])) });
}

interface ChromeEvent { ph?: unknown; cat?: unknown; name?: unknown; pid?: unknown; tid?: unknown; ts?: unknown; dur?: unknown; args?: Record<string, unknown> }

// A file that `tilewise trace` wrote, or another in Chrome's format. Anything may stand in it.
export function fromFile(text: string, source: string): Steps {
  const parsed = JSON.parse(text) as { traceEvents?: unknown; tilewise?: { lost?: unknown; cut?: unknown } } | unknown[];
  const events = (Array.isArray(parsed) ? parsed : parsed?.traceEvents) as ChromeEvent[];
  if (!Array.isArray(events)) throw new Error("no trace events are in this file");
  const told = Array.isArray(parsed) ? undefined : parsed.tilewise;
  const devices = new Map<unknown, string>(), families = new Map<string, number>(), ops = new Map<string, number>(), graphs: string[] = [];
  const builder = new Builder();
  const index = (map: Map<string, number>, key: string) => map.get(key) ?? (map.set(key, map.size), map.size - 1);
  for (const e of events) if (e.ph === "M" && e.name === "process_name") devices.set(e.pid, String(e.args?.["name"] ?? e.pid));
  for (const e of events) {
    if (e.ph !== "X" || typeof e.ts !== "number" || typeof e.dur !== "number" || families.size > 60000) continue;
    const op = index(ops, String(e.args?.["op"] ?? "?"));
    graphs[op] = String(e.args?.["graph"] ?? "?");
    const kind = e.cat === "transfer" || e.cat === "wait" ? e.cat : "step";
    builder.add({ device: devices.get(e.pid) ?? `process ${String(e.pid)}`, kind, stream: Number(e.tid) || 0, start: e.ts * 1000, took: e.dur * 1000,
                  what: index(families, String(e.name)), op, point: Number(e.args?.["point"] ?? 0), bytes: Number(e.args?.["bytes"] ?? 0),
                  peer: String(e.args?.["from"] ?? ""), user: kind === "transfer" ? index(ops, String(e.args?.["user"] ?? "?")) : 0 });
  }
  return builder.build([...families.keys()], [...ops.keys()], graphs, { lost: Number(told?.lost ?? 0) || 0, cut: Number(told?.cut ?? 0) || 0, source, since: new Map(), now: NaN });
}

// The same format, for other viewers and for later.
export function toFile(steps: Steps): Blob {
  const parts: string[] = [`{"displayTimeUnit":"ns","tilewise":{"lost":${steps.lost},"cut":${steps.cut}},"traceEvents":[`];
  let comma = "";
  const pids = new Map<string, number>();
  for (const row of steps.rows) {
    if (!pids.has(row.device)) {
      pids.set(row.device, pids.size + 1);
      parts.push(`${comma}{"ph":"M","name":"process_name","pid":${pids.get(row.device)},"args":{"name":${JSON.stringify(row.device)}}}`);
      comma = ",";
    }
    const tid = row.kind === "step" ? row.stream : row.kind === "wait" ? 90 : 100 + row.stream;
    if (row.kind !== "step") parts.push(`,{"ph":"M","name":"thread_name","pid":${pids.get(row.device)},"tid":${tid},"args":{"name":${JSON.stringify(row.kind === "wait" ? "idle, why" : "came in")}}}`);
    for (let i = 0; i < row.start.length; ++i) {
      const more = row.kind === "transfer" ? `,"bytes":${row.bytes[i]},"from":${JSON.stringify(steps.devices[row.peer[i]!])},"user":${JSON.stringify(steps.ops[row.user[i]!])}` : "";
      parts.push(`,{"ph":"X","cat":"${row.kind}","name":${JSON.stringify(steps.families[row.what[i]!] ?? "?")},"pid":${pids.get(row.device)},"tid":${tid},` +
        `"ts":${(row.start[i]! / 1000).toFixed(3)},"dur":${(row.took[i]! / 1000).toFixed(3)},` +
        `"args":{"op":${JSON.stringify(steps.ops[row.op[i]!])},"graph":${JSON.stringify(steps.graphs[row.op[i]!])},"point":${row.point[i]}${more}}}`);
    }
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

export interface Place { row: number; at: number }

// Who made what this needed, and who needed what this made: as far as records of moves say so, exactly; within a device nothing moves
// and nothing is told.
export function related(steps: Steps, of: Place): { from: Place; to: Place }[] {
  const row = steps.rows[of.row]!, out: { from: Place; to: Place }[] = [];
  const maker = (move: Row, i: number): Place | null => {
    const device = steps.devices[move.peer[i]!];
    for (let r = 0; r < steps.rows.length; ++r) {
      const source = steps.rows[r]!;
      if (source.kind !== "step" || source.device !== device) continue;
      for (let k = above(source.start, move.start[i]! + move.took[i]!) - 1; k >= 0; --k)
        if (source.op[k] === move.op[i] && source.point[k] === move.point[i]) return { row: r, at: k };
    }
    return null;
  };
  const user = (move: Row, i: number): Place | null => {
    let best: Place | null = null;
    steps.rows.forEach((target, r) => {
      if (target.kind !== "step" || target.device !== move.device) return;
      for (let k = above(target.end, move.start[i]! + move.took[i]!); k < target.start.length; ++k) {
        if (target.op[k] !== move.user[i]) continue;
        if (!best || target.start[k]! < steps.rows[best.row]!.start[best.at]!) best = { row: r, at: k };
        break;
      }
    });
    return best;
  };
  const around = (r: number, i: number): void => {
    const move = steps.rows[r]!, made = maker(move, i), used = user(move, i);
    if (made) out.push({ from: made, to: { row: r, at: i } });
    if (used) out.push({ from: { row: r, at: i }, to: used });
  };
  if (row.kind === "transfer") around(of.row, of.at);
  if (row.kind !== "step") return out;
  steps.rows.forEach((move, r) => {
    if (move.kind !== "transfer") return;
    for (let i = 0; i < move.start.length && out.length < 200; ++i) {
      if (steps.devices[move.peer[i]!] === row.device && move.op[i] === row.op[of.at] && move.point[i] === row.point[of.at]) around(r, i);
      else if (move.device === row.device && move.user[i] === row.op[of.at]) {
        const used = user(move, i);
        if (used && used.row === of.row && used.at === of.at) around(r, i);
      }
    }
  });
  return out;
}

// Calls draw for what of a row lies in [from, to]: stretches of records with how busy they were where these are no longer than
// `wide`, else the records themselves. So a short step in a long idle time stands where it was.
export function visit(row: Row, from: number, to: number, wide: number, draw: (start: number, end: number, share: number, what: number, step: number) => void): void {
  const look = (depth: number, first: number, last: number): void => {
    if (depth < 0) {
      const end = Math.min(last, above(row.start, to));
      for (let i = Math.max(first, above(row.end, from)); i < end; ++i) draw(row.start[i]!, row.end[i]!, 1, row.what[i]!, i);
      return;
    }
    const level = row.levels[depth]!, below = depth > 0 ? row.levels[depth - 1]!.start.length : row.start.length;
    for (let i = first; i < last; ++i) {
      const begin = level.start[i]!, end = level.end[i]!;
      if (end <= from || begin > to) continue;
      if (end - begin > wide) look(depth - 1, i * kFold, Math.min(below, (i + 1) * kFold));
      else draw(begin, end, end > begin ? level.busy[i]! / (end - begin) : 1, level.what[i]!, -1);
    }
  };
  const top = row.levels.length - 1;
  look(top, 0, top < 0 ? row.start.length : row.levels[top]!.start.length);
}
