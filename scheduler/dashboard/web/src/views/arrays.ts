// Where each array is, block by block, and the story of a block as far as it is known.
import { append, bytes, count, h, replace, seconds, shortId } from "../dom";
import { get, live, post } from "../live";
import { bar, confirm, section, Table, toast, type View } from "../parts";
import { colour, variable } from "../theme";
import type { ArrayDetail, ArrayInfo, TraceColumns } from "../types";
import { colourDots } from "./overview";

export function arrays(root: HTMLElement, id: string | undefined): View {
  let from: number[] = [], detail: ArrayDetail | null = null, chosen = -1;
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
      draw();
    } catch (error) {
      replace(about, h("p", { class: "empty" }, (error as Error).message));
    }
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
      // Not all of this device's blocks are made yet: pale, since which ones are is not known here.
      g.globalAlpha = done.get(device) === false ? 0.4 : 1;
      g.fillRect(c * cell + 0.5, r * cell + 0.5, cell - 1, cell - 1);
      g.globalAlpha = 1;
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

  function drawWords(d: ArrayDetail): void {
    const a = d.array;
    replace(about,
      h("p", null, `${a.grid}, ${a.dtype}, ${bytes(a.bytes)} in ${count(a.blocks)} blocks; ${count(a.made)} made, ${count(a.blocks - a.made)} not yet. ` +
        (a.copies > 1 ? `Each block may have ${a.copies - 1} more ${a.copies > 2 ? "holders" : "holder"} beside its owner.` : "One owner a block, no replicas.")),
      a.failed ? h("p", { class: "bad" }, `Cannot be used: ${a.failed.message}`) : null,
      a.held && live.role === "operator" ? h("button", { type: "button", class: "danger", click: () => void release(a) }, "Release …") : null);
    replace(legend, ...a.shares.map(([device, owned, made]) => h("span", { class: "key" }, h("span", { class: "dot", "data-colour": device - 1 }),
      `${device} = ${name(device)}: ${count(made)} of ${count(owned)} blocks made`)));
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
    const point = block.reduce((sum, at, i) => sum * d.array.counts[i]! + at, 0);
    const owner = d.owners[Math.floor(index / columns)]![index % columns]!;
    const ran = h("li", null, "When it was made: looking at what the workers remember …");
    replace(story, h("h3", null, `Block (${block.join(", ")})`), h("ul", null,
      h("li", null, `Made by op ${d.producer.position} (${d.producer.kind}${d.producer.label ? ` “${d.producer.label}”` : ""}) of graph ${shortId(d.array.graph)}, task ${count(point)}, on ${name(owner)}.`),
      h("li", null, `Why there: the op was placed “${d.producer.why || "by its client"}” (${d.array.placement}).`), ran,
      h("li", null, d.readers.length ? `Read by ${d.readers.map((r) => `op ${r.position} (${r.kind}${r.label ? ` “${r.label}”` : ""})${r.finished ? ", done" : ""}`).join("; ")}.` : "No op that is still known reads it."),
      h("li", { class: "muted" }, "Moves of single blocks are not recorded in this version, and nothing is spilled; lanes are counted per worker (see Devices).")));
    void get<TraceColumns>(`/api/trace?id=${d.array.graph}`).then((t) => {
      const op = t.ops.indexOf(d.array.op), steps: number[] = [];
      t.point.forEach((p, i) => { if (t.op[i] === op && p === point && op >= 0) steps.push(i); });
      const took = steps.reduce((sum, i) => sum + t.took[i]!, 0);
      ran.textContent = steps.length ? `Ran as ${steps.length} step${steps.length > 1 ? "s" : ""} on ${name(t.device[steps[0]!]!)}, ${seconds(took * 1e-9)} in all.` :
        "When it was made is not known any more: the workers remember their last 65,536 steps.";
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
        if (id && !mine && detail) replace(about, h("p", { class: "empty" }, "This array is not alive any more."));
      }
    },
  };
}
