// Device by time, from an hour to a microsecond. Works without a server: open a file.
import { count, h, percent, replace, seconds, shortId } from "../dom";
import { get, live } from "../live";
import { section, Table, type View } from "../parts";
import { above, fromColumns, fromFile, type Steps, toFile, visit } from "../steps";
import { kindColour, variable } from "../theme";
import type { TraceColumns } from "../types";

const kRowHeight = 30, kAxis = 26, kNames = 132, kShortest = 1_000;  // nanoseconds across the whole canvas
const kMaxFile = 512 * 1024 * 1024;

// Kept when another view is looked at.
let steps: Steps | null = null;
let from = 0, to = 1;

export function timeline(root: HTMLElement, id: string | undefined): View {
  const status = h("p", { class: "muted", role: "status" });
  const file = h("input", { type: "file", id: "open-trace", accept: ".json,application/json", class: "unseen", change: () => void open() });
  const fetchButton = h("button", { type: "button", click: () => void load() }, "Fetch from workers");
  const canvas = h("canvas", { class: "timeline", tabindex: 0, role: "img", "aria-label": "Timeline of the devices" });
  const tip = h("div", { class: "tip", hidden: true });
  const range = h("span", { class: "muted", "aria-live": "polite" });
  const said = h("div", { "aria-live": "polite" });
  const table = new Table<{ name: string; steps: number; total: number; longest: number; share: number }>({
    caption: "Work by kind, in the range shown", key: (f) => f.name, empty: "No steps.",
    columns: [
      { title: "Kind of work", cell: (f) => dotted(f.name) }, { title: "Steps", number: true, cell: (f) => count(f.steps) },
      { title: "Time", number: true, cell: (f) => seconds(f.total * 1e-9) }, { title: "Mean", number: true, cell: (f) => seconds(f.total / f.steps * 1e-9) },
      { title: "Longest", number: true, cell: (f) => seconds(f.longest * 1e-9) }, { title: "Of all work", number: true, cell: (f) => percent(f.share) },
    ],
  });
  const rows = new Table<{ name: string; steps: number; busy: number }>({
    caption: "Devices, in the range shown", key: (r) => r.name, empty: "No steps.",
    columns: [{ title: "Device", cell: (r) => r.name }, { title: "Steps", number: true, cell: (r) => count(r.steps) },
              { title: "Working", number: true, cell: (r) => percent(r.busy) }, { title: "Waiting or idle", number: true, cell: (r) => percent(1 - r.busy) }],
  });
  const zoom = (by: number) => h("button", { type: "button", class: "quiet", click: () => scale(by, 0.5) }, by < 1 ? "+ Zoom in" : "− Zoom out");
  root.append(section("Timeline",
    h("div", { class: "row" }, fetchButton, h("label", { for: "open-trace", class: "button quiet", tabindex: 0 }, "Open a file …"), file,
      h("button", { type: "button", class: "quiet", click: save }, "Save"), h("span", { class: "grow" }),
      zoom(0.5), zoom(2), h("button", { type: "button", class: "quiet", click: () => show(0, steps?.span ?? 1) }, "All of it"), range),
    status, h("div", { class: "frame" }, canvas, tip), said,
    h("p", { class: "muted" }, "Wheel or + and − zoom, drag or arrow keys move. Filled: a kernel runs. Empty: the device waits for inputs or has nothing to do. " +
      "The workers record kernels of host devices only; transfers are counted by lane (see Devices), and there are no spills in this version.")),
    h("div", { class: "columns" }, section("Kinds of work", table.node), section("Devices", rows.node)));

  function dotted(name: string): HTMLElement {
    const dot = h("span", { class: "dot" });
    dot.style.background = kindColour(name);
    return h("span", null, dot, name);
  }

  function use(next: Steps): void {
    steps = next;
    status.textContent = `${count(next.count)} steps over ${seconds(next.span * 1e-9)} from ${next.source}.` +
      (next.lost > 0 ? ` ${count(next.lost)} older steps had been overwritten: a worker remembers its last 65,536.` : " Nothing was left out.");
    show(0, next.span);
  }

  async function load(): Promise<void> {
    fetchButton.disabled = true;
    status.textContent = "Asking the workers …";
    try {
      const columns = await get<TraceColumns>(`/api/trace${id ? `?id=${id}` : ""}`);
      use(fromColumns(columns, (d) => live.overview?.devices.find((x) => x.id === d)?.name ?? `device ${d}`));
    } catch (error) {
      status.textContent = `No trace: ${(error as Error).message}.`;
    }
    fetchButton.disabled = false;
  }

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

  let pending = false, hovered = "";
  function show(a: number, b: number): void {
    const span = steps?.span ?? 1, width = Math.max(kShortest, Math.min(b - a, span));
    from = Math.max(0, Math.min(a, span - width));
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
    const width = canvas.parentElement!.clientWidth, list = steps?.rows ?? [], ratio = devicePixelRatio || 1;
    const height = kAxis + Math.max(1, list.length) * kRowHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const g = canvas.getContext("2d")!, ink = variable("--ink"), muted = variable("--muted"), line = variable("--line");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const room = width - kNames, per = room / (to - from);
    // Round times along the top.
    let tick = 10 ** Math.floor(Math.log10((to - from) / 4));
    if ((to - from) / tick > 20) tick *= 5;
    else if ((to - from) / tick > 8) tick *= 2;
    g.lineWidth = 1;
    for (let t = Math.ceil(from / tick) * tick; t <= to; t += tick) {
      const x = Math.round(kNames + (t - from) * per) + 0.5;
      g.strokeStyle = line;
      g.beginPath();
      g.moveTo(x, kAxis - 6);
      g.lineTo(x, height);
      g.stroke();
      g.fillStyle = muted;
      g.fillText(seconds(t * 1e-9), x + 3, 10);
    }
    if (list.length === 0) {
      g.fillStyle = muted;
      g.fillText("Fetch what the workers remember, or open a file that tilewise trace wrote.", kNames, kAxis + 14);
    }
    const colours = (steps?.families ?? []).map(kindColour);
    list.forEach((row, r) => {
      const y = kAxis + r * kRowHeight;
      g.fillStyle = r % 2 === 0 ? variable("--row") : "transparent";
      g.fillRect(0, y, width, kRowHeight);
      visit(row, from, to, Math.max(200, room), (start, end, share, what, step) => {
        const x = kNames + (Math.max(start, from) - from) * per, w = Math.max(0.6, (Math.min(end, to) - Math.max(start, from)) * per);
        const tall = Math.max(2, (kRowHeight - 8) * Math.min(1, share));
        g.fillStyle = colours[what] ?? "#888";
        g.fillRect(x, y + kRowHeight - 4 - tall, w > 3 ? w - 0.5 : w, tall);
        if (step >= 0 && w > 60) {
          g.fillStyle = "#fff";
          const name = steps!.families[what] ?? "?";
          g.fillText(name.length * 6.5 > w - 8 ? name.slice(0, Math.floor((w - 8) / 6.5)) : name, x + 4, y + kRowHeight / 2);
        }
      });
      g.fillStyle = variable("--card");
      g.fillRect(0, y, kNames - 4, kRowHeight);
      g.fillStyle = ink;
      g.fillText(row.name.length > 19 ? `${row.name.slice(0, 18)}…` : row.name, 6, y + kRowHeight / 2);
    });
    canvas.setAttribute("aria-label", steps ? `Timeline of ${list.length} rows, from ${seconds(from * 1e-9)} to ${seconds(to * 1e-9)}; the tables below say the same in figures` : "Timeline, empty");
    range.textContent = steps ? `${seconds(from * 1e-9)} – ${seconds(to * 1e-9)}` : "";
  }

  let summary = 0;
  function summarise(): void {
    clearTimeout(summary);
    summary = window.setTimeout(() => {
      if (!steps) return;
      const kinds = steps.families.map((name) => ({ name, steps: 0, total: 0, longest: 0, share: 0 }));
      let all = 0;
      const devices = steps.rows.map((row) => {
        let n = 0, busy = 0;
        const last = above(row.start, to);
        for (let i = above(row.end, from); i < last; ++i) {
          const took = Math.min(row.end[i]!, to) - Math.max(row.start[i]!, from), kind = kinds[row.what[i]!]!;
          ++kind.steps;
          kind.total += took;
          kind.longest = Math.max(kind.longest, row.end[i]! - row.start[i]!);
          ++n;
          busy += took;
        }
        all += busy;
        return { name: row.name, steps: n, busy: busy / (to - from) };
      });
      for (const kind of kinds) kind.share = all > 0 ? kind.total / all : 0;
      table.update(kinds.filter((k) => k.steps > 0).sort((a, b) => b.total - a.total));
      rows.update(devices);
    }, 120);
  }

  function at(e: MouseEvent): { text: string } | null {
    const row = steps?.rows[Math.floor((e.offsetY - kAxis) / kRowHeight)];
    if (!row || e.offsetX < kNames || e.offsetY < kAxis) return null;
    const t = from + (e.offsetX - kNames) / (canvas.clientWidth - kNames) * (to - from);
    const i = above(row.start, t) - 1;
    if (i < 0 || row.end[i]! + (to - from) / 2000 < t) return null;
    const op = steps!.ops[row.op[i]!] ?? "?", graph = steps!.graphs[row.op[i]!] ?? "?";
    const id = (x: string) => /^\d+$/.test(x) ? shortId(x) : x;
    return { text: `${steps!.families[row.what[i]!] ?? "?"}\n${row.name}, at ${seconds(row.start[i]! * 1e-9)} for ${seconds((row.end[i]! - row.start[i]!) * 1e-9)}\nop ${id(op)} of graph ${id(graph)}, task ${row.point[i]}` };
  }

  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = (e.deltaX || e.deltaY) / canvas.clientWidth * (to - from);
      show(from + by, to + by);
    } else {
      scale(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), Math.max(0, Math.min(1, (e.offsetX - kNames) / (canvas.clientWidth - kNames))));
    }
  }, { passive: false });
  let dragged: { x: number; from: number; to: number } | null = null;
  canvas.addEventListener("pointerdown", (e) => {
    dragged = { x: e.clientX, from, to };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", () => (dragged = null));
  canvas.addEventListener("pointermove", (e) => {
    if (dragged) {
      const by = (dragged.x - e.clientX) / (canvas.clientWidth - kNames) * (dragged.to - dragged.from);
      return show(dragged.from + by, dragged.to + by);
    }
    const found = at(e);
    tip.hidden = !found;
    if (!found) return;
    if (found.text !== hovered) replace(tip, ...found.text.split("\n").map((l, i) => h(i === 0 ? "strong" : "div", null, l))), (hovered = found.text);
    tip.style.left = `${Math.min(e.offsetX + 12, canvas.clientWidth - 250)}px`;
    tip.style.top = `${e.offsetY + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("keydown", (e) => {
    const width = to - from;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => show(from - width / 8, to - width / 8), ArrowRight: () => show(from + width / 8, to + width / 8),
      "+": () => scale(0.5, 0.5), "=": () => scale(0.5, 0.5), "-": () => scale(2, 0.5), Home: () => show(0, width),
      End: () => show((steps?.span ?? 1) - width, steps?.span ?? 1), "0": () => show(0, steps?.span ?? 1),
    };
    if (!moves[e.key]) return;
    e.preventDefault();
    moves[e.key]!();
  });
  const observer = new ResizeObserver(redraw);
  observer.observe(canvas.parentElement!);
  if (steps) show(from, to);
  else redraw();
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
