// The link to the server: what the current view watches, what came, and whether we are connected and logged in.
import type { ArrayDetail, ArrayList, Graph, History, LinkList, LogLine, Message, Op, Overview } from "./types";

export interface Watch { view: "overview" | "graph" | "arrays" | "array" | "links" | "log"; id?: string }

// One moment of what changes all the time, for rates and charts.
export interface Sample { t: number; tasks: number; used: Map<number, number>; busy: Map<number, number>; lanes: Map<string, number> }
const kSamples = 2700;

// An hour of what was: all of the last quarter, and before it one every five seconds, as the scheduler keeps them.
function lastHour<T extends { t: number }>(list: T[]): T[] {
  const now = list.at(-1)?.t ?? 0;
  let kept = -Infinity;
  return list.filter((s) => {
    if (now - s.t > 3600 || (now - s.t > 900 && s.t - kept < 4)) return false;
    kept = s.t;
    return true;
  });
}

type State = "connecting" | "live" | "offline" | "locked";

class Live {
  state: State = "connecting";
  role: "reader" | "operator" | null = null;
  overview: Overview | null = null;
  overviewAt = 0;
  samples: Sample[] = [];
  graph: Graph | null = null;
  arrays: ArrayList | null = null;
  array: ArrayDetail | null = null;
  links: LinkList | null = null;
  linksBefore: { t: number; list: LinkList } | null = null;
  held: { t: number; arrays: Map<string, number> }[] = [];  // bytes that are made of each array, while arrays are watched
  names = new Map<string, string>();
  gone: string | null = null;
  log: LogLine[] = [];
  changed: () => void = () => {};

  private socket: WebSocket | null = null;
  private watching: Watch[] = [];
  private retry = 250;
  private recallDue = false;

  start(): void {
    void this.connect();
  }

  watch(what: Watch[]): void {
    // What arrays were while nobody here looked at them.
    const arrays = (w: Watch[]) => w.some((x) => x.view === "arrays");
    if (arrays(what) && !arrays(this.watching) && this.state === "live") void this.recall();
    this.watching = what;
    const graph = what.find((w) => w.view === "graph");
    if (this.graph && this.graph.id !== graph?.id) this.graph = null;
    const array = what.find((w) => w.view === "array");
    if (this.array && this.array.id !== array?.id) this.array = null;
    this.gone = null;
    this.tell();
  }

  private tell(): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ watch: this.watching }));
  }

  private set(state: State): void {
    this.state = state;
    this.changed();
  }

  private async connect(): Promise<void> {
    try {
      const me = await fetch("/api/me");
      if (me.status === 401) return this.set("locked");
      if (!me.ok) throw new Error(me.statusText);
      this.role = (await me.json()).role;
    } catch {
      return this.later();
    }
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.socket = socket;
    socket.onopen = () => {
      this.retry = 250;
      this.recallDue = true;
      this.graph = null;  // another life of the scheduler may have begun
      this.log = [];
      this.links = this.linksBefore = null;
      this.tell();
    };
    socket.onmessage = (event) => this.take(JSON.parse(event.data as string) as Message);
    socket.onclose = () => this.later();
  }

  private later(): void {
    this.set("offline");
    setTimeout(() => void this.connect(), this.retry);
    this.retry = Math.min(5000, this.retry * 2);
  }

  private take(message: Message): void {
    switch (message.view) {
      case "overview": this.takeOverview(message); break;
      case "graph": this.takeGraph(message); break;
      case "arrays": this.takeArrays(message); break;
      case "links": this.takeLinks(message); break;
      case "array": this.array = message; break;
      case "gone": this.gone = message.error; break;
      case "log": {
        const last = this.log.at(-1)?.number ?? 0;
        this.log.push(...message.lines.filter((l) => l.number > last));
        if (this.log.length > 2000) this.log.splice(0, this.log.length - 2000);
      }
    }
    this.changed();
  }

  private takeOverview(o: Overview): void {
    if (this.overview && (o.now < this.overview.now || o.term !== this.overview.term)) this.samples = [], this.held = [];
    this.overview = o;
    this.overviewAt = performance.now();
    this.state = "live";
    if (this.recallDue) this.recallDue = false, void this.recall();
    // One look is told to every watcher, and told again when the view changes.
    if (o.now - (this.samples.at(-1)?.t ?? -1) < 0.2) return;
    const lanes = new Map<string, number>();
    for (const lane of o.lanes) lanes.set(lane.lane, (lanes.get(lane.lane) ?? 0) + lane.bytes);
    this.samples.push({
      t: o.now, tasks: o.totals.tasks_done, lanes,
      used: new Map(o.devices.map((d) => [d.id, d.used])), busy: new Map(o.devices.map((d) => [d.id, d.busy_s])),
    });
    if (this.samples.length > kSamples) this.samples = lastHour(this.samples);
  }

  // What was before we looked, or while we were not connected.
  private async recall(): Promise<void> {
    let told: History;
    try {
      told = await get<History>("/api/history");
    } catch {
      return;  // charts begin now
    }
    const fill = <T extends { t: number }>(ours: T[], theirs: T[], apart: number): T[] => {
      const missing = theirs.filter((s) => !ours.some((x) => Math.abs(x.t - s.t) < apart));
      return lastHour([...missing, ...ours].sort((a, b) => a.t - b.t));
    };
    this.samples = fill(this.samples, told.samples.map((s) => ({ t: s.t, tasks: s.tasks, used: new Map(s.used), busy: new Map(s.busy), lanes: new Map(s.lanes) })), 2);
    this.held = fill(this.held, told.samples.map((s) => ({ t: s.t, arrays: new Map(s.arrays.map(([id, , n]) => [id, n])) })), 2);
    for (const s of told.samples) for (const [id, name] of s.arrays) this.names.set(id, name);
    this.changed();
  }

  private takeArrays(list: ArrayList): void {
    this.arrays = list;
    const t = this.overview?.now ?? 0;
    if (t < (this.held.at(-1)?.t ?? 0)) this.held = [];
    this.held.push({ t, arrays: new Map(list.arrays.filter((a) => a.made > 0).map((a) => [a.id, a.blocks ? a.bytes * a.made / a.blocks : 0])) });
    for (const a of list.arrays) this.names.set(a.id, a.label || a.kind);
    if (this.held.length > kSamples) this.held = lastHour(this.held);
    if (this.names.size > 20_000) this.names.clear();
  }

  private takeLinks(list: LinkList): void {
    const t = this.overview?.now ?? 0;
    if (this.links && (!this.linksBefore || t - this.linksBefore.t >= 2)) this.linksBefore = { t, list: this.links };
    this.links = list;
  }

  private takeGraph(g: Graph): void {
    if (!g.whole && this.graph?.id === g.id) {
      const ops = new Map<number, Op>(this.graph.ops.map((op) => [op.position, op]));
      for (const op of g.ops) ops.set(op.position, op);
      g.ops = [...ops.values()].sort((a, b) => a.position - b.position);
      g.source = this.graph.source;
    }
    this.graph = g;
  }

  // Per second over about the last `span` seconds.
  rate(value: (s: Sample) => number, span = 2): number {
    const last = this.samples.at(-1);
    if (!last) return 0;
    let first = last;
    for (let i = this.samples.length - 1; i >= 0 && last.t - first.t < span; --i) first = this.samples[i]!;
    return last.t > first.t ? Math.max(0, (value(last) - value(first)) / (last.t - first.t)) : 0;
  }

  busy(device: number): number {
    const streams = this.overview?.devices.find((d) => d.id === device)?.streams ?? 1;
    return Math.min(1, this.rate((s) => s.busy.get(device) ?? 0) / Math.max(1, streams));
  }
}

export const live = new Live();

// Others may be asking for the same at this moment: that is told as 503, and passes.
export async function get<T>(path: string, tries = 8): Promise<T> {
  let answer = await fetch(path);
  for (let i = 1; i < tries && answer.status === 503; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 150 * i * (0.75 + Math.random() / 2)));
    answer = await fetch(path);
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error((body as { error?: string }).error ?? answer.statusText);
  return body as T;
}

export async function post(path: string, body: Record<string, string>): Promise<void> {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(((await answer.json()) as { error?: string }).error ?? answer.statusText);
}
