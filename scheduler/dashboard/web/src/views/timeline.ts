// Device by time, from an hour to a microsecond. Works without a server: open a file.
import { bytes, count, h, percent, replace, seconds, shortId } from "../dom";
import { get, live } from "../live";
import { section, Table, type View } from "../parts";
import { above, fromColumns, fromFile, kWaits, type Place, related, type Row, type Steps, toFile, visit } from "../steps";
import { kindColour, variable } from "../theme";
import type { TraceColumns } from "../types";

const kHeights = { step: 28, wait: 14, transfer: 11 }, kAxis = 26, kShortest = 1_000;  // nanoseconds across the whole canvas
const kMaxFile = 512 * 1024 * 1024, kRemembered = 65_536;
const kRanges: [label: string, seconds: number][] = [["all that is remembered", 0], ["the last second", 1], ["the last 10 s", 10], ["the last minute", 60], ["the last 10 min", 600], ["the last hour", 3600]];

// Kept when another view is looked at.
let steps: Steps | null = null, fetchedAt = 0;
let from = 0, to = 1, past = 0;  // past: how long before its first record something is known, from the scheduler's looks

export function timeline(root: HTMLElement, id: string | undefined): View {
  const status = h("p", { class: "muted", role: "status" });
  const file = h("input", { type: "file", id: "open-trace", accept: ".json,application/json", class: "unseen", change: () => void open() });
  const fetchButton = h("button", { type: "button", click: () => void load() }, "Fetch from workers");
  const back = h("select", { id: "trace-range" }, ...kRanges.map(([label, s]) => h("option", { value: s }, label)));
  const whole = h("button", { type: "button", class: "quiet", hidden: true, click: () => void loadShown() }, "Fetch what is shown");
  const canvas = h("canvas", { class: "timeline", tabindex: 0, role: "img", "aria-label": "Timeline of the devices" });
  const tip = h("div", { class: "tip", hidden: true });
  const range = h("span", { class: "muted", "aria-live": "polite" });
  const said = h("div", { "aria-live": "polite", class: "said" });
  const table = new Table<{ name: string; steps: number; total: number; longest: number; share: number }>({
    caption: "Work by kind, in the range shown", key: (f) => f.name, empty: "No steps.",
    columns: [
      { title: "Kind of work", cell: (f) => dotted(f.name) }, { title: "Steps", number: true, cell: (f) => count(f.steps) },
      { title: "Time", number: true, cell: (f) => seconds(f.total * 1e-9) }, { title: "Mean", number: true, cell: (f) => seconds(f.total / f.steps * 1e-9) },
      { title: "Longest", number: true, cell: (f) => seconds(f.longest * 1e-9) }, { title: "Of all work", number: true, cell: (f) => percent(f.share) },
    ],
  });
  const rows = new Table<{ name: string; steps: number; busy: number; idle: number[]; known: boolean }>({
    caption: "Devices, in the range shown", key: (r) => r.name, empty: "No steps.",
    columns: [{ title: "Device", cell: (r) => r.name }, { title: "Steps", number: true, cell: (r) => count(r.steps) },
              { title: "Working", number: true, cell: (r) => percent(r.busy) },
              { title: "No work", number: true, cell: (r) => r.known ? percent(r.idle[0]!) : "–" },
              { title: "Waited for inputs", number: true, cell: (r) => r.known ? percent(r.idle[1]!) : "–", help: "Its lowest task waited for blocks of others" },
              { title: "Waited for memory", number: true, cell: (r) => r.known ? percent(r.idle[2]!) : "–", help: "Its lowest task did not fit" }],
  });
  const moved = new Table<{ name: string; blocks: number; bytes: number; took: number }>({
    caption: "What came in, in the range shown", key: (m) => m.name, empty: "Nothing came from another device.",
    columns: [{ title: "How", cell: (m) => dotted(m.name) }, { title: "Blocks", number: true, cell: (m) => count(m.blocks) }, { title: "Bytes", number: true, cell: (m) => bytes(m.bytes) },
              { title: "Mean time", number: true, cell: (m) => m.took > 0 ? seconds(m.took / m.blocks * 1e-9) : "read in place" },
              { title: "Each at", number: true, cell: (m) => m.took > 0 ? `${bytes(m.bytes / (m.took * 1e-9))}/s` : "–", help: "Bytes over the time from grant to arrival, of one block" }],
  });
  const zoom = (by: number) => h("button", { type: "button", class: "quiet", click: () => scale(by, 0.5) }, by < 1 ? "+ Zoom in" : "− Zoom out");
  root.append(section("Timeline",
    h("div", { class: "row" }, fetchButton, h("label", { for: "trace-range", class: "unseen" }, "How far back"), back, whole,
      h("label", { for: "open-trace", class: "button quiet", tabindex: 0 }, "Open a file …"), file,
      h("button", { type: "button", class: "quiet", click: save }, "Save"), h("span", { class: "grow" }),
      zoom(0.5), zoom(2), h("button", { type: "button", class: "quiet", click: () => show(-past, steps?.span ?? 1) }, "All of it"), range),
    status, h("div", { class: "frame" }, canvas, tip), said,
    h("div", { class: "legend" }, ...kWaits.map(dotted), ...["mapped", "shared-memory", "tcp", "rdma", "staged", "inline"].map((l) => dotted(`lane ${l}`)), h("span", null, "▨ overwritten; grey: how busy, from the scheduler's looks")),
    h("p", { class: "muted" }, "Wheel or + and − zoom, drag or arrow keys move; a click on a step or a transfer shows what it came from and what it was for, n and p go to the next and the one before. " +
      "Below each device: why it idled, and the blocks that came in. Times of GPUs are as seen by their host; times of different hosts are lined up by when they answered, to about a message's delay.")),
    h("div", { class: "columns" }, section("Kinds of work", table.node), section("Devices", rows.node)), section("Came in", moved.node));

  function dotted(name: string): HTMLElement {
    const dot = h("span", { class: "dot" });
    dot.style.background = kindColour(name);
    return h("span", null, dot, name);
  }

  function use(next: Steps): void {
    steps = next;
    chosen = null;
    links = [];
    replace(said);
    const gone: string[] = [];
    if (next.lost > 0) gone.push(`${count(next.lost)} older records had been overwritten: a worker remembers its last ${count(kRemembered)}; what is hatched is gone`);
    if (next.cut > 0) gone.push(`${count(next.cut)} records of this range were left out, the oldest: zoom in and fetch what is shown`);
    status.textContent = `${count(next.count)} steps and ${count(next.transfers)} transfers over ${seconds(next.span * 1e-9)} from ${next.source}. ${gone.length ? `${gone.join(". ")}.` : "Nothing was left out."}`;
    whole.hidden = Number.isNaN(next.now);
    past = Number.isNaN(next.now) ? 0 : Math.max(0, -(coarse()[0]?.t ?? 0));
    show(0, next.span);
  }

  async function fetchRange(query: string): Promise<void> {
    fetchButton.disabled = whole.disabled = true;
    status.textContent = "Asking the workers …";
    try {
      const columns = await get<TraceColumns>(`/api/trace?${[id ? `id=${id}` : "", query].filter(Boolean).join("&")}`);
      fetchedAt = performance.now();
      use(fromColumns(columns, (d) => live.overview?.devices.find((x) => x.id === d)?.name ?? `device ${d}`));
    } catch (error) {
      status.textContent = `No trace: ${(error as Error).message}.`;
    }
    fetchButton.disabled = whole.disabled = false;
  }
  const load = () => fetchRange(Number(back.value) > 0 ? `from_us=${Number(back.value) * 1e6}` : "");
  // Ages grow while we look.
  const loadShown = () => {
    if (!steps) return;
    const age = (at: number) => Math.max(1, Math.round((steps!.now - at) / 1000 + (performance.now() - fetchedAt) * 1000));
    return fetchRange(`from_us=${age(from)}&until_us=${age(to)}`);
  };

  async function open(): Promise<void> {
    const chosen = file.files?.[0];
    if (!chosen) return;
    try {
      if (chosen.size > kMaxFile) throw new Error("it is larger than 512 MiB");
      use(fromFile(await chosen.text(), chosen.name));
    } catch (error) {
      status.textContent = `${chosen.name} cannot be shown: ${(error as Error).message}.`;
    }
    file.value = "";
  }

  function save(): void {
    if (!steps) return;
    const url = URL.createObjectURL(toFile(steps));
    h("a", { href: url, download: "tilewise-trace.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  // ---- the picture ---------------------------------------------------------------------------------------------------

  let pending = false, hovered = "", chosen: Place | null = null, links: { from: Place; to: Place }[] = [];
  const namesWidth = () => canvas.parentElement!.clientWidth < 560 ? 84 : 132;
  const tops = (list: readonly Row[]): number[] => {
    const out = [kAxis];
    list.forEach((row, i) => out.push(out[i]! + kHeights[row.kind] + (list[i + 1]?.device !== row.device ? 5 : 0)));
    return out;
  };
  function show(a: number, b: number): void {
    const span = steps?.span ?? 1, width = Math.max(kShortest, Math.min(b - a, span + past));
    from = Math.max(-past, Math.min(a, span - width));
    to = from + width;
    redraw();
    summarise();
  }
  function scale(by: number, around: number): void {
    const at = from + (to - from) * around, width = (to - from) * by;
    show(at - width * around, at + width * (1 - around));
  }
  function redraw(): void {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => (pending = false, draw()));
  }

  function draw(): void {
    const width = canvas.parentElement!.clientWidth, list = steps?.rows ?? [], ratio = devicePixelRatio || 1, kNames = namesWidth();
    const top = tops(list), height = Math.max(kAxis + kHeights.step, top[list.length]!);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const g = canvas.getContext("2d")!, ink = variable("--ink"), muted = variable("--muted"), line = variable("--line"), card = variable("--card"), shade = variable("--row");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const room = width - kNames, per = room / (to - from), x = (t: number) => kNames + (t - from) * per;
    // Round times along the top.
    let tick = 10 ** Math.floor(Math.log10((to - from) / 4));
    if ((to - from) / tick * 70 > 5 * room) tick *= 10;
    else if ((to - from) / tick > 20 || (to - from) / tick * 70 > 2 * room) tick *= 5;
    else if ((to - from) / tick > 8 || (to - from) / tick * 70 > room) tick *= 2;
    g.lineWidth = 1;
    for (let t = Math.ceil(from / tick) * tick; t <= to; t += tick) {
      const at = Math.round(x(t)) + 0.5;
      g.strokeStyle = line;
      g.beginPath();
      g.moveTo(at, kAxis - 6);
      g.lineTo(at, height);
      g.stroke();
      g.fillStyle = muted;
      g.fillText(seconds(t * 1e-9), at + 3, 10);
    }
    if (list.length === 0) {
      g.fillStyle = muted;
      g.fillText("Fetch what the workers remember, or open a file that tilewise trace wrote.", kNames, kAxis + 14);
    }
    const colours = (steps?.families ?? []).map(kindColour);
    list.forEach((row, r) => {
      const y = top[r]!, high = kHeights[row.kind];
      if (row.kind === "step") {
        g.fillStyle = shade;
        g.fillRect(0, y, width, high);
      }
      const since = steps!.since.get(row.device) ?? 0;
      if (row.kind === "step" && from < Math.max(0, since)) drawLoad(g, row, Math.max(0, since), x, y, high, muted);
      if (since > from) hatch(g, kNames, y, Math.min(room, (since - from) * per), high, line);
      visit(row, from, to, (row.kind === "step" ? 8 : 12) / per, (start, end, share, what, step) => {
        const at = x(Math.max(start, from)), w = Math.max(row.kind === "transfer" ? 1.5 : 0.6, (Math.min(end, to) - Math.max(start, from)) * per);
        // Of many transfers drawn as one, as tall as they filled the time: what is read in place takes none.
        const tall = row.kind === "step" ? Math.max(2, (high - 6) * Math.min(1, share)) : row.kind === "wait" || step >= 0 ? high - 3 : Math.max(1.5, (high - 3) * Math.sqrt(Math.min(1, share)));
        g.fillStyle = colours[what] ?? "#888";
        g.globalAlpha = row.kind === "step" ? 1 : row.kind === "wait" ? 0.3 + 0.55 * Math.min(1, share) : 0.95;
        g.fillRect(at, y + high - (row.kind === "step" ? 3 : 2) - tall, w > 3 ? w - 0.5 : w, tall);
        g.globalAlpha = 1;
        if (step >= 0 && w > 60 && row.kind !== "transfer") {
          g.fillStyle = row.kind === "step" ? "#fff" : ink;
          if (row.kind === "wait") g.font = "10px system-ui, sans-serif";
          const name = steps!.families[what] ?? "?";
          g.fillText(name.length * 6.5 > w - 8 ? name.slice(0, Math.floor((w - 8) / 6.5)) : name, at + 4, y + high / 2);
          if (row.kind === "wait") g.font = "12px system-ui, sans-serif";
        }
      });
      if (chosen?.row === r) outline(g, row, chosen.at, x, y, high, ink);
      g.fillStyle = row.kind === "step" ? shade : card;
      g.fillRect(0, y, kNames - 4, high);
      g.fillStyle = row.kind === "step" ? ink : muted;
      g.font = row.kind === "step" ? "12px system-ui, sans-serif" : "10px system-ui, sans-serif";
      const longest = Math.floor((kNames - 12) / 6.3);
      g.fillText(row.name.length > longest ? `${row.name.slice(0, longest - 1)}…` : row.name, row.kind === "step" ? 6 : 16, y + high / 2);
      g.font = "12px system-ui, sans-serif";
    });
    // What the chosen one came from, and what it was for.
    g.save();
    g.beginPath();
    g.rect(kNames, kAxis, room, height - kAxis);
    g.clip();
    g.strokeStyle = ink;
    g.lineWidth = 1.5;
    for (const link of links) {
      const a = list[link.from.row]!, b = list[link.to.row]!;
      const x1 = x(a.start[link.from.at]! + a.took[link.from.at]!), x2 = x(b.start[link.to.at]!);
      const y1 = top[link.from.row]! + kHeights[a.kind] / 2, y2 = top[link.to.row]! + kHeights[b.kind] / 2, bend = Math.max(14, Math.abs(x2 - x1) / 2);
      g.beginPath();
      g.moveTo(x1, y1);
      g.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      g.stroke();
      g.beginPath();
      g.arc(x2, y2, 3, 0, 7);
      g.fillStyle = ink;
      g.fill();
    }
    g.restore();
    canvas.setAttribute("aria-label", steps ? `Timeline of ${list.length} rows, from ${seconds(from * 1e-9)} to ${seconds(to * 1e-9)}; the tables below say the same in figures` : "Timeline, empty");
    range.textContent = steps ? `${seconds(from * 1e-9)} – ${seconds(to * 1e-9)}` : "";
  }

  // The scheduler's looks in the time of this trace: "now" was the same moment for both.
  function coarse(): { t: number; busy: Map<number, number> }[] {
    if (!steps || Number.isNaN(steps.now) || !live.overview) return [];
    const now = steps.now, then = live.overview.now - (live.overviewAt - fetchedAt) / 1000;
    return live.samples.map((s) => ({ t: now + (s.t - then) * 1e9, busy: s.busy })).filter((s) => s.t < now);
  }
  // Where no records are: how busy the device was between two looks.
  function drawLoad(g: CanvasRenderingContext2D, row: Row, until: number, x: (t: number) => number, y: number, high: number, ink: string): void {
    const device = live.overview?.devices.find((d) => d.name === row.device), looks = device ? coarse() : [];
    g.fillStyle = ink;
    for (let i = 1; i < looks.length; ++i) {
      const a = looks[i - 1]!, b = looks[i]!, busy = (b.busy.get(device!.id) ?? 0) - (a.busy.get(device!.id) ?? 0);
      if (a.t >= until || a.t > to || b.t < from || busy <= 0) continue;
      const left = x(Math.max(a.t, from)), tall = Math.max(2, (high - 6) * Math.min(1, busy / ((b.t - a.t) * 1e-9) / Math.max(1, device!.streams)));
      g.fillRect(left, y + high - 3 - tall, Math.max(1, x(Math.min(b.t, until, to)) - left), tall);
    }
  }

  function hatch(g: CanvasRenderingContext2D, x: number, y: number, w: number, high: number, ink: string): void {
    g.save();
    g.beginPath();
    g.rect(x, y, w, high);
    g.clip();
    g.strokeStyle = ink;
    g.beginPath();
    for (let at = x - high; at < x + w; at += 7) g.moveTo(at, y + high), g.lineTo(at + high, y);
    g.stroke();
    g.restore();
  }
  function outline(g: CanvasRenderingContext2D, row: Row, i: number, x: (t: number) => number, y: number, high: number, ink: string): void {
    g.strokeStyle = ink;
    g.lineWidth = 2;
    g.strokeRect(x(row.start[i]!) - 1, y + 1, Math.max(4, x(row.end[i]!) - x(row.start[i]!)) + 2, high - 2);
    g.lineWidth = 1;
  }

  let summary = 0;
  function summarise(): void {
    clearTimeout(summary);
    summary = window.setTimeout(() => {
      if (!steps) return;
      const begin = Math.max(from, 0);  // what was before is known as load only
      const kinds = steps.families.map((name) => ({ name, steps: 0, total: 0, longest: 0, share: 0 }));
      const came = steps.families.map((name) => ({ name, blocks: 0, bytes: 0, took: 0 }));
      const idle = new Map<string, number[]>();
      let all = 0;
      const devices: { name: string; steps: number; busy: number; device: string }[] = [];
      for (const row of steps.rows) {
        let n = 0, busy = 0;
        const last = above(row.start, to), why = idle.get(row.device) ?? [0, 0, 0];
        if (row.kind === "wait") idle.set(row.device, why);
        for (let i = above(row.end, begin); i < last; ++i) {
          const took = Math.min(row.end[i]!, to) - Math.max(row.start[i]!, begin), what = row.what[i]!;
          if (row.kind === "wait") {
            const k = kWaits.indexOf(steps.families[what]!);
            if (k >= 0) why[k]! += took / Math.max(1, to - begin);
          } else if (row.kind === "transfer") {
            const move = came[what]!;
            ++move.blocks;
            move.bytes += row.bytes[i]!;
            move.took += row.took[i]!;
          } else {
            const kind = kinds[what]!;
            ++kind.steps;
            kind.total += took;
            kind.longest = Math.max(kind.longest, row.took[i]!);
            ++n;
            busy += took;
          }
        }
        if (row.kind !== "step") continue;
        all += busy;
        devices.push({ name: row.name, steps: n, busy: busy / Math.max(1, to - begin), device: row.device });
      }
      for (const kind of kinds) kind.share = all > 0 ? kind.total / all : 0;
      table.update(kinds.filter((k) => k.steps > 0).sort((a, b) => b.total - a.total));
      rows.update(devices.map((d) => ({ ...d, idle: idle.get(d.device) ?? [0, 0, 0], known: idle.has(d.device) })));
      moved.update(came.filter((m) => m.blocks > 0).sort((a, b) => b.bytes - a.bytes));
    }, 120);
  }

  function find(e: MouseEvent): Place | null {
    const list = steps?.rows ?? [], top = tops(list), kNames = namesWidth();
    const r = list.findIndex((row, i) => e.offsetY >= top[i]! && e.offsetY < top[i]! + kHeights[row.kind]);
    const row = list[r];
    if (!row || e.offsetX < kNames) return null;
    const t = from + (e.offsetX - kNames) / (canvas.clientWidth - kNames) * (to - from), slack = (to - from) / 400;
    const i = above(row.start, t + (row.kind === "transfer" ? slack : 0)) - 1;
    return i < 0 || row.end[i]! + slack < t ? null : { row: r, at: i };
  }

  function words(place: Place): string[] {
    const row = steps!.rows[place.row]!, i = place.at, what = steps!.families[row.what[i]!] ?? "?";
    const id = (n: number) => { const x = steps!.ops[n] ?? "?"; return /^\d+$/.test(x) ? shortId(x) : x; };
    const graph = steps!.graphs[row.op[i]!] ?? "?", when = `${row.device}, at ${seconds(row.start[i]! * 1e-9)} for ${seconds(row.took[i]! * 1e-9)}`;
    if (row.kind === "transfer") {
      const rate = row.took[i]! > 0 ? `, ${bytes(row.bytes[i]! / (row.took[i]! * 1e-9))}/s` : ": read in place";
      return [what, `${bytes(row.bytes[i]!)} from ${steps!.devices[row.peer[i]!] || "?"} to ${when}${rate}`, `block ${row.point[i]} of op ${id(row.op[i]!)}, for op ${id(row.user[i]!)}`];
    }
    if (row.kind === "wait") return [what, when, what === "no work" ? "nothing that it owns was left to do" : `first of all for task ${row.point[i]} of op ${id(row.op[i]!)}`];
    return [what, when, `op ${id(row.op[i]!)} of graph ${/^\d+$/.test(graph) ? shortId(graph) : graph}, task ${row.point[i]}`];
  }

  function choose(place: Place | null): void {
    chosen = place;
    links = place && steps ? related(steps, place) : [];
    if (!place || !steps) replace(said);
    else {
      const list = (title: string, all: Place[]) => all.length === 0 ? null :
        h("div", null, h("strong", null, title), h("ul", null, ...all.slice(0, 8).map((p) => h("li", null, words(p).join("; "))), all.length > 8 ? h("li", { class: "muted" }, `and ${count(all.length - 8)} more`) : null));
      const same = (a: Place) => a.row === place.row && a.at === place.at;
      replace(said, h("p", null, h("strong", null, words(place)[0]!), ` — ${words(place).slice(1).join("; ")}`),
        list("It came from", links.filter((l) => !same(l.from)).map((l) => l.from).filter((p) => !same(p))), list("It was for", links.filter((l) => !same(l.to)).map((l) => l.to).filter((p) => !same(p))));
    }
    redraw();
  }

  // From the keyboard: through the rows' records, in the range shown.
  function nextOne(by: number): void {
    if (!steps || steps.rows.length === 0) return;
    const row = chosen ? steps.rows[chosen.row]! : steps.rows[0]!, r = chosen?.row ?? 0;
    const at = chosen ? chosen.at + by : above(row.end, from);
    if (at < 0 || at >= row.start.length) return;
    if (row.start[at]! > to || row.end[at]! < from) show(row.start[at]! - (to - from) / 2, row.start[at]! + (to - from) / 2);
    choose({ row: r, at });
  }

  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = (e.deltaX || e.deltaY) / canvas.clientWidth * (to - from);
      show(from + by, to + by);
    } else {
      scale(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), Math.max(0, Math.min(1, (e.offsetX - namesWidth()) / (canvas.clientWidth - namesWidth()))));
    }
  }, { passive: false });
  let dragged: { x: number; from: number; to: number; far: boolean } | null = null;
  canvas.addEventListener("pointerdown", (e) => {
    dragged = { x: e.clientX, from, to, far: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", (e) => {
    if (dragged && !dragged.far) choose(find(e));
    dragged = null;
  });
  canvas.addEventListener("pointermove", (e) => {
    if (dragged) {
      if (Math.abs(dragged.x - e.clientX) < 4 && !dragged.far) return;
      dragged.far = true;
      const by = (dragged.x - e.clientX) / (canvas.clientWidth - namesWidth()) * (dragged.to - dragged.from);
      return show(dragged.from + by, dragged.to + by);
    }
    const found = find(e);
    tip.hidden = !found;
    if (!found) return;
    const lines = words(found), text = lines.join("\n");
    if (text !== hovered) replace(tip, ...lines.map((l, i) => h(i === 0 ? "strong" : "div", null, l))), (hovered = text);
    tip.style.left = `${Math.min(e.offsetX + 12, canvas.clientWidth - 250)}px`;
    tip.style.top = `${e.offsetY + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("keydown", (e) => {
    const width = to - from;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => show(from - width / 8, to - width / 8), ArrowRight: () => show(from + width / 8, to + width / 8),
      "+": () => scale(0.5, 0.5), "=": () => scale(0.5, 0.5), "-": () => scale(2, 0.5), Home: () => show(-past, width - past),
      End: () => show((steps?.span ?? 1) - width, steps?.span ?? 1), "0": () => show(-past, steps?.span ?? 1),
      n: () => nextOne(1), p: () => nextOne(-1), Escape: () => choose(null),
      ArrowDown: () => steps && choose(otherRow(1)), ArrowUp: () => steps && choose(otherRow(-1)),
    };
    if (!moves[e.key]) return;
    e.preventDefault();
    moves[e.key]!();
  });
  function otherRow(by: number): Place | null {
    const list = steps!.rows, r = Math.max(0, Math.min(list.length - 1, (chosen?.row ?? (by > 0 ? -1 : list.length)) + by)), row = list[r];
    if (!row) return null;
    const t = chosen ? list[chosen.row]!.start[chosen.at]! : from;
    return { row: r, at: Math.max(0, Math.min(row.start.length - 1, above(row.end, t))) };
  }
  const observer = new ResizeObserver(redraw);
  observer.observe(canvas.parentElement!);
  if (steps) show(from, to);
  redraw();
  let asked = false;
  return {
    update() {
      fetchButton.disabled = live.state !== "live";
      if (!asked && !steps && live.state === "live") asked = true, void load();
      redraw();
    },
    unmount() { observer.disconnect(); },
  };
}
