// Where each array is, block by block, and the story of a block as far as it is known.
import { append, bytes, count, h, replace, seconds, shortId } from "../dom";
import { get, live, post } from "../live";
import { bar, confirm, section, Table, toast, type View } from "../parts";
import { colour, variable } from "../theme";
import type { ArrayDetail, ArrayInfo, BlockCopy, Blocks, TraceColumns } from "../types";
import { colourDots } from "./overview";

const kAsked = 4096;        // blocks whose copies may be asked for at once
const kLookAgain = 2_000;   // milliseconds

export function arrays(root: HTMLElement, id: string | undefined): View {
  let from: number[] = [], detail: ArrayDetail | null = null, chosen = -1;
  let copies = new Map<number, BlockCopy[]>(), copiesKnown = false, lookedAt = 0, looking = false;
  const note = h("p", { class: "muted" });
  const table = new Table<ArrayInfo>({
    caption: "Arrays", key: (a) => a.id, empty: "No array is alive. A client that holds one (persist) keeps it here.",
    pick: (a) => (location.hash = `#/arrays/${a.id}`), picked: (a) => a.id === id,
    columns: [
      { title: "Array", cell: (a) => `${shortId(a.id)}${a.label ? ` “${a.label}”` : ""}` }, { title: "Type", cell: (a) => a.dtype },
      { title: "Shape", cell: (a) => `(${a.shape.join(", ")})` }, { title: "Bytes", number: true, cell: (a) => bytes(a.bytes) },
      { title: "Made", cell: (a) => bar(a.blocks ? a.made / a.blocks : 1, `${count(a.made)} of ${count(a.blocks)} blocks`) },
      { title: "Held by", cell: (a) => a.held ? a.client : "nobody: on its way" }, { title: "Where", cell: (a) => a.placement },
    ],
  });
  const canvas = h("canvas", { class: "blocks", tabindex: 0, role: "img", "aria-label": "Grid of blocks", click: (e: MouseEvent) => click(e), keydown: (e: KeyboardEvent) => key(e) });
  const about = h("div"), legend = h("div", { class: "legend" }), story = h("div", { "aria-live": "polite" }), moves = h("div", { class: "row" });
  const panel = section("Blocks", about, legend, canvas, moves, story);
  panel.hidden = !id;
  root.append(section("Arrays", note, table.node), panel);

  const name = (device: number) => live.overview?.devices.find((d) => d.id === device)?.name ?? `client ${device}`;

  async function release(a: ArrayInfo): Promise<void> {
    if (!(await confirm(`Release array ${shortId(a.id)} of ${a.client}? Its ${bytes(a.bytes)} are freed as soon as nothing reads it, and the client can no longer use it.`, "Release"))) return;
    try {
      await post("/api/release", { array: a.id });
      toast("The array is being released.");
    } catch (error) {
      toast((error as Error).message);
    }
  }

  async function load(at: number[]): Promise<void> {
    if (!id) return;
    try {
      detail = await get<ArrayDetail>(`/api/array?id=${id}&at=${at.join(",")}`);
      from = detail.from;
      copiesKnown = false;
      draw();
      void locate();
    } catch (error) {
      replace(about, h("p", { class: "empty" }, (error as Error).message));
    }
  }

  // The number of a block of the window, in C order.
  function numberOf(d: ArrayDetail, index: number): number {
    const { columns } = geometry(d), block = [...from], rank = block.length;
    if (rank >= 2) block[rank - 2]! += Math.floor(index / columns);
    if (rank >= 1) block[rank - 1]! += index % columns;
    return block.reduce((sum, at, i) => sum * d.array.counts[i]! + at, 0);
  }

  // Where the blocks of the window really are, as their workers know it.
  async function locate(): Promise<void> {
    const d = detail;
    if (!d || looking || live.state !== "live") return;
    const { rows, columns } = geometry(d);
    const first = numberOf(d, 0), last = numberOf(d, rows * columns - 1) + 1;
    lookedAt = performance.now();
    if (last - first > kAsked || last <= first) return;
    looking = true;
    try {
      const told = await get<Blocks>(`/api/blocks?id=${d.array.id}&first=${first}&count=${last - first}`);
      copies = new Map();
      for (const c of told.copies) copies.set(c.block, [...(copies.get(c.block) ?? []), c]);
      copiesKnown = true;
      draw();
    } catch { /* what is known of owners stays */ }
    looking = false;
  }

  function geometry(d: ArrayDetail): { rows: number; columns: number; cell: number } {
    const rows = d.owners.length, columns = d.owners[0]?.length ?? 0;
    const width = Math.max(240, Math.min(720, panel.clientWidth - 40));
    return { rows, columns, cell: Math.max(5, Math.min(44, Math.floor(width / Math.max(1, columns)))) };
  }

  function draw(): void {
    const d = detail;
    if (!d) return;
    const { rows, columns, cell } = geometry(d), a = d.array;
    const ratio = devicePixelRatio || 1;
    canvas.width = columns * cell * ratio;
    canvas.height = rows * cell * ratio;
    canvas.style.width = `${columns * cell}px`;
    canvas.style.height = `${rows * cell}px`;
    const g = canvas.getContext("2d")!;
    g.scale(ratio, ratio);
    g.font = `${Math.min(12, cell * 0.45)}px system-ui`;
    g.textAlign = "center";
    g.textBaseline = "middle";
    const done = new Map(a.shares.map(([device, owned, made]) => [device, made >= owned]));
    d.owners.forEach((row, r) => row.forEach((device, c) => {
      g.fillStyle = colour(device - 1);
      const all = copies.get(numberOf(d, r * columns + c)) ?? [], own = all.find((x) => x.owned);
      const here = copiesKnown ? own?.state === "here" : done.get(device) !== false;
      // Pale: not made yet, or not there any more. Where workers were not asked, of a device that has not made all of its own.
      g.globalAlpha = here ? 1 : own?.state === "spilled" ? 0.65 : 0.35;
      g.fillRect(c * cell + 0.5, r * cell + 0.5, cell - 1, cell - 1);
      g.globalAlpha = 1;
      const others = all.filter((x) => !x.owned), moving = others.some((x) => x.state === "in flight");
      if (own?.state === "spilled") {
        g.strokeStyle = "#fff";
        g.lineWidth = 1;
        g.beginPath();
        g.moveTo(c * cell + 2, (r + 1) * cell - 2), g.lineTo((c + 1) * cell - 2, r * cell + 2);
        g.stroke();
      }
      // A triangle in the corner: others have it too; hollow: on its way to them.
      if (others.length > 0) {
        const s = Math.max(3, cell * 0.28), x = (c + 1) * cell - 1, y = r * cell + 1;
        g.beginPath();
        g.moveTo(x - s, y), g.lineTo(x, y), g.lineTo(x, y + s), g.closePath();
        g.fillStyle = g.strokeStyle = "#fff";
        if (moving) g.stroke();
        else g.fill();
        g.fillStyle = colour(device - 1);
      }
      if (cell >= 18) {
        g.fillStyle = "#fff";
        g.fillText(String(device), (c + 0.5) * cell, (r + 0.5) * cell);
      }
    }));
    if (chosen >= 0) {
      g.strokeStyle = variable("--ink");
      g.lineWidth = 2;
      g.strokeRect((chosen % columns) * cell + 1, Math.floor(chosen / columns) * cell + 1, cell - 2, cell - 2);
    }
    canvas.setAttribute("aria-label", `Grid of blocks of array ${shortId(a.id)}, ${rows} by ${columns} shown, coloured by device: ` +
      a.shares.map(([device, owned]) => `${name(device)} owns ${owned}`).join(", ") + ". Arrow keys choose a block.");
    drawWords(d);
  }

  function whereabouts(d: ArrayDetail): string {
    const { rows, columns } = geometry(d);
    if (!copiesKnown) return rows * columns > 0 && numberOf(d, rows * columns - 1) - numberOf(d, 0) >= kAsked ? "Too many blocks to ask the workers for copies of all that are shown; choose one." : "";
    const all = [...copies.values()].flat(), n = (pick: (c: BlockCopy) => boolean) => count(all.filter(pick).length);
    return `Of those shown, as their workers know it: ${n((c) => c.owned && c.state === "here")} at home, ${n((c) => !c.owned && c.state === "here")} copies elsewhere (${bytes(all.reduce((s, c) => s + (!c.owned && c.state === "here" ? c.bytes : 0), 0))}), ` +
      `${n((c) => c.state === "read in place")} read in place by others, ${n((c) => c.state === "in flight")} in flight, ${n((c) => c.state === "spilled")} spilled.`;
  }

  function drawWords(d: ArrayDetail): void {
    const a = d.array;
    replace(about,
      h("p", null, `${a.grid}, ${a.dtype}, ${bytes(a.bytes)} in ${count(a.blocks)} blocks; ${count(a.made)} made, ${count(a.blocks - a.made)} not yet. ` +
        (a.copies > 1 ? `By its placement each block has ${a.copies - 1} more ${a.copies > 2 ? "holders" : "holder"} beside its owner. ` : "") + whereabouts(d)),
      a.failed ? h("p", { class: "bad" }, `Cannot be used: ${a.failed.message}`) : null,
      a.held && live.role === "operator" ? h("button", { type: "button", class: "danger", click: () => void release(a) }, "Release …") : null);
    replace(legend, ...a.shares.map(([device, owned, made]) => h("span", { class: "key" }, h("span", { class: "dot", "data-colour": device - 1 }),
      `${device} = ${name(device)}: ${count(made)} of ${count(owned)} blocks made`)));
    append(legend, h("span", { class: "key" }, "pale: not made, or freed"), h("span", { class: "key" }, "◥ others have it too"), h("span", { class: "key" }, "◹ on its way to others"), h("span", { class: "key" }, "╱ spilled"));
    colourDots(legend);
    replace(moves);
    const rank = a.counts.length;
    for (const [dimension, back, forth] of [[rank - 2, "▲ Up", "▼ Down"], [rank - 1, "◀ Left", "▶ Right"]] as const) {
      if (dimension < 0 || a.counts[dimension]! <= 64) continue;
      const step = (by: number) => h("button", { type: "button", class: "quiet", click: () => {
        const at = [...from];
        at[dimension] = Math.max(0, Math.min(a.counts[dimension]! - 1, at[dimension]! + by));
        chosen = -1;
        void load(at);
      } }, by < 0 ? back : forth);
      append(moves, step(-64), step(64));
    }
    for (let dimension = 0; dimension + 2 < rank; ++dimension) {
      const input = h("input", { type: "number", min: 0, max: a.counts[dimension]! - 1, value: from[dimension]!, id: `slice${dimension}`, change: () => {
        const at = [...from];
        at[dimension] = Number(input.value);
        void load(at);
      } });
      append(moves, h("label", { for: `slice${dimension}` }, `Slice of dimension ${dimension}`), input);
    }
    if (moves.childElementCount) append(moves, h("span", { class: "muted" }, `from block (${from.join(", ")}) of (${a.counts.join(", ")})`));
    if (chosen < 0) replace(story, d.producer ? h("p", { class: "muted" }, "Choose a block for its story.") : null);
  }

  function choose(index: number): void {
    const d = detail;
    if (!d) return;
    const { rows, columns } = geometry(d);
    if (index < 0 || index >= rows * columns) return;
    chosen = index;
    draw();
    const block = [...from], rank = block.length;
    if (rank >= 2) block[rank - 2]! += Math.floor(index / columns);
    if (rank >= 1) block[rank - 1]! += index % columns;
    const point = numberOf(d, index);
    const owner = d.owners[Math.floor(index / columns)]![index % columns]!;
    const ran = h("li", null, "When it was made: looking at what the workers remember …"), where = h("li", null, "Where it is: asking the workers …"), moved = h("li", null);
    replace(story, h("h3", null, `Block (${block.join(", ")})`), h("ul", null,
      h("li", null, `Made by op ${d.producer.position} (${d.producer.kind}${d.producer.label ? ` “${d.producer.label}”` : ""}) of graph ${shortId(d.array.graph)}, task ${count(point)}, on ${name(owner)}.`),
      h("li", null, `Why there: the op was placed “${d.producer.why || "by its client"}” (${d.array.placement}).`), ran, where, moved,
      h("li", null, d.readers.length ? `Read by ${d.readers.map((r) => `op ${r.position} (${r.kind}${r.label ? ` “${r.label}”` : ""})${r.finished ? ", done" : ""}`).join("; ")}.` : "No op that is still known reads it.")));
    void get<Blocks>(`/api/blocks?id=${d.array.id}&first=${point}&count=1`).then((told) => {
      where.textContent = told.copies.length === 0 ? "Where it is: nowhere; it is not made yet, or nothing needed it any more." :
        `Where it is: ${told.copies.map((c) => `${name(c.device)}: ${c.state === "here" ? c.owned ? "at home" : "a copy" : c.state}${!c.owned && c.from ? ` (from ${name(c.from)})` : ""}, ${bytes(c.bytes)}`).join("; ")}.`;
    }).catch((error: Error) => (where.textContent = `Where it is cannot be told: ${error.message}.`));
    void get<TraceColumns>("/api/trace").then((t) => {
      const op = t.ops.indexOf(d.array.op), steps: number[] = [];
      const kind = (i: number) => t.kinds[t.kind[i]!]!, moves: number[] = [];
      t.point.forEach((p, i) => {
        if (t.op[i] !== op || p !== point || op < 0) return;
        if (kind(i) === "step") steps.push(i);
        else if (kind(i) === "transfer" || kind(i) === "spill" || kind(i) === "unspill") moves.push(i);
      });
      moves.sort((a, b) => t.start[a]! - t.start[b]!);
      const ago = (i: number) => `${seconds((t.now - t.start[i]!) * 1e-9)} ago`;
      moved.textContent = moves.length === 0 ? `No move of it is remembered${t.lost > 0 ? `; ${count(t.lost)} older records were overwritten` : ""}.` :
        `Moved ${count(moves.length)} ${moves.length === 1 ? "time" : "times"}: ${moves.slice(-12).map((i) => kind(i) === "transfer" ?
          `${ago(i)} to ${name(t.device[i]!)} from ${name(t.peer[i]!)} over ${t.lanes[t.lane[i]!]}${t.took[i]! > 0 ? ` in ${seconds(t.took[i]! * 1e-9)}` : ", read in place"}` :
          `${ago(i)} ${kind(i)} on ${name(t.device[i]!)}`).join("; ")}.`;
      const took = steps.reduce((sum, i) => sum + t.took[i]!, 0);
      ran.textContent = steps.length ? `Ran as ${steps.length} step${steps.length > 1 ? "s" : ""} on ${name(t.device[steps[0]!]!)}, ${ago(steps.at(-1)!)}, ${seconds(took * 1e-9)} in all.` :
        "When it was made is not known any more: a worker remembers its last 65,536 records.";
    }).catch((error: Error) => (ran.textContent = `When it was made cannot be told: ${error.message}.`));
  }

  function click(e: MouseEvent): void {
    if (!detail) return;
    const { columns, cell } = geometry(detail);
    choose(Math.floor(e.offsetY / cell) * columns + Math.floor(e.offsetX / cell));
  }
  function key(e: KeyboardEvent): void {
    if (!detail) return;
    const { columns } = geometry(detail);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    choose(Math.max(0, chosen) + (chosen < 0 ? 0 : step));
  }

  void load([]);
  return {
    update() {
      const list = live.arrays;
      if (list) {
        table.update(list.arrays.slice(0, 500));
        note.textContent = `${count(list.live)} arrays are alive` + (list.arrays.length > 500 ? "; the 500 held or largest ones are listed" : "") +
          (list.looked_at < list.live ? `; ${count(list.looked_at)} of them were looked at` : "") + `. Held in all: ${bytes(list.arrays.reduce((s, a) => s + (a.held ? a.bytes : 0), 0))}.`;
        const mine = list.arrays.find((a) => a.id === id);
        if (detail && mine && JSON.stringify(mine) !== JSON.stringify(detail.array)) {
          detail.array = mine;
          draw();
        }
        if (mine && performance.now() - lookedAt > kLookAgain) void locate();
        if (id && !mine && detail) replace(about, h("p", { class: "empty" }, "This array is not alive any more."));
      }
    },
  };
}
