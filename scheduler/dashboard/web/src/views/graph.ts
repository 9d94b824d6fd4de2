// The ops of a graph as written and as planned, how far each is, and what the end waited for.
import { bytes, count, h, opName, percent, replace, seconds, shortId, svg } from "../dom";
import { type Folded, fold, type Group, type Node } from "../fold";
import { live, post } from "../live";
import { badge, bar, confirm, section, Table, toast, type View } from "../parts";
import { kindColour } from "../theme";
import type { Graph, GraphSummary, Op } from "../types";

const kWidth = 176, kHeight = 58, kGapX = 44, kGapY = 16, kListed = 300, kReports = 0.01;

function nodes(g: Graph, written: boolean): Node[] {
  if (!written) return g.ops.filter((o) => o.kind !== "fetch" || o.inputs.length > 0);
  return g.source.map((s, position) => ({ ...s, position, tasks: 0, done: 0, failed: 0, finished: false, began: null, ended: null, fused: 0 }));
}

function draw(folded: Folded, written: boolean, picked: string, pick: (g: Group) => void): SVGElement {
  const width = folded.columns * (kWidth + kGapX), height = folded.rows * (kHeight + kGapY) + 12;
  const x = (g: Group) => 6 + g.column * (kWidth + kGapX), y = (g: Group) => 6 + g.row * (kHeight + kGapY);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "dag", role: "group", "aria-label": "Ops and what they read" });
  for (const e of folded.edges) {
    if (e.from.column === e.to.column) {  // folded together in depth: one above the other
      const down = e.from.row < e.to.row, at = x(e.from) + kWidth / 2 + (down ? -14 : 14);
      root.append(svg("path", { d: `M${at} ${y(e.from) + (down ? kHeight : 0)} L${at} ${y(e.to) + (down ? 0 : kHeight)}`, class: e.critical ? "edge critical" : "edge" }));
      continue;
    }
    const x1 = x(e.from) + kWidth, y1 = y(e.from) + kHeight / 2, x2 = x(e.to), y2 = y(e.to) + kHeight / 2, bend = Math.max(20, (x2 - x1) / 2);
    root.append(svg("path", { d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, class: e.critical ? "edge critical" : "edge" }));
  }
  for (const g of folded.groups) {
    const sum = (f: (n: Node) => number) => g.members.reduce((s, n) => s + f(n), 0);
    const tasks = sum((n) => n.tasks), done = sum((n) => n.done), failed = sum((n) => n.failed), ended = sum((n) => (n.finished ? 1 : 0));
    const share = tasks > 0 ? done / tasks : ended / g.members.length;
    const many = g.members.length > 1 ? ` × ${count(g.members.length)}` : "";
    const began = Math.min(...g.members.map((n) => n.began ?? Infinity)), end = Math.max(...g.members.map((n) => n.ended ?? -Infinity));
    const state = failed > 0 ? "failed" : ended === g.members.length ? "done" : done > 0 ? "running" : "waiting";
    const fused = g.members.length === 1 && g.members[0]!.fused > 0 ? `${g.members[0]!.fused} fused instructions` : "";
    const title = g.label || g.kind;
    const text = written ? g.kind : `${state}${tasks > 0 && state !== "done" ? ` ${percent(share)}` : ""}${end > began ? ` · ${seconds(end - began)}` : ""}`;
    const node = svg("g", { class: `node ${state}${g.critical ? " critical" : ""}${g.key === picked ? " picked" : ""}`, transform: `translate(${x(g)} ${y(g)})`,
                            tabindex: 0, role: "button", "aria-label": `${g.kind} ${g.label}${many}, ${text}${g.critical ? ", on the critical path" : ""}`,
                            click: () => pick(g), keydown: (e: KeyboardEvent) => { if (e.key === "Enter" || e.key === " ") e.preventDefault(), pick(g); } },
      svg("rect", { width: kWidth, height: kHeight, rx: 7, class: "box" }),
      svg("rect", { width: 5, height: kHeight, rx: 2, fill: kindColour(g.kind) }),
      written ? null : svg("rect", { x: 12, y: kHeight - 10, width: kWidth - 24, height: 4, rx: 2, class: "track" }),
      written ? null : svg("rect", { x: 12, y: kHeight - 10, width: (kWidth - 24) * share, height: 4, rx: 2, class: `fill ${state}` }),
      svg("text", { x: 12, y: 19, class: "name" }, `${title.length > 20 ? `${title.slice(0, 19)}…` : title}${many}`),
      svg("text", { x: 12, y: 37, class: "state" }, `${text}${g.label && !written ? ` · ${g.kind}` : ""}`.slice(0, 27)),
      g.critical ? svg("text", { x: kWidth - 8, y: 18, class: "mark", "text-anchor": "end" }, "◆") : null,
      svg("title", null, `${g.kind}${g.label ? ` “${g.label}”` : ""}${many}\n${count(done)} of ${count(tasks)} tasks\n${fused}`));
    root.append(node);
  }
  return root;
}

export function graph(root: HTMLElement, id: string | undefined): View {
  let written = false, picked = "", drawn = "", members: number[] | null = null;
  const list = new Table<GraphSummary>({
    caption: "Graphs", key: (g) => g.id, empty: "No graph has run since the scheduler was started.", pick: (g) => (location.hash = `#/graph/${g.id}`), picked: (g) => g.id === id,
    columns: [
      { title: "Graph", cell: (g) => shortId(g.id) }, { title: "State", cell: (g) => badge(g.state) }, { title: "Client", cell: (g) => g.client },
      { title: "Ops", number: true, cell: (g) => count(g.ops) },
      { title: "Progress", cell: (g) => bar(g.tasks ? g.done / g.tasks : 1, `${count(g.done)} of ${count(g.tasks)}`) },
    ],
  });
  const head = h("div"), passes = h("ol", { class: "passes" }), tabs = h("div", { class: "row", role: "tablist" }), picture = h("div", { class: "scroll dag-box", tabindex: 0, role: "region", "aria-label": "Picture of the graph" });
  const what = h("p", { class: "muted" });
  const ops = new Table<Op>({
    caption: "Ops", key: (o) => String(o.position), empty: "Nothing is known of its ops any more.",
    columns: [
      { title: "Op", cell: (o) => opName(o) }, { title: "State", cell: (o) => badge(o.failed > 0 ? "failed" : o.finished ? "done" : o.done > 0 ? "running" : "waiting") },
      { title: "Tasks", cell: (o) => o.tasks > 0 ? bar(o.done / o.tasks, `${count(o.done)} of ${count(o.tasks)}`) : "none" },
      { title: "Fused", number: true, cell: (o) => o.fused > 0 ? `${count(o.fused)} instruction${o.fused > 1 ? "s" : ""}` : "–", help: "Instructions of the tape that one pass over the data runs" },
      { title: "Began", number: true, cell: (o) => seconds(o.began === null ? null : o.began - (live.graph?.summary.submitted ?? 0)), help: "After submission, as the scheduler heard of it" },
      { title: "Took", number: true, cell: (o) => o.began !== null && o.ended !== null ? o.ended - o.began < kReports ? "< 10 ms" : seconds(o.ended - o.began) : "–", help: "From the first report of its tasks to the last; workers report every 10 ms" },
      { title: "Work", number: true, cell: (o) => o.busy_s > 0 ? seconds(o.busy_s) : "–", help: "Its steps as they ran, all devices together" },
      { title: "Result", number: true, cell: (o) => bytes(o.bytes) }, { title: "Reads ops", cell: (o) => o.inputs.slice(0, 8).join(", ") + (o.inputs.length > 8 ? " …" : "") + (o.reads_earlier && o.inputs.length === 0 && o.kind !== "map" ? "earlier arrays" : "") },
      { title: "Placed", cell: (o) => h("span", { title: o.rejected.map((r) => `not ${r.policy} (${r.placement}) ${seconds(r.seconds)}`).join("\n") || null }, o.why || "–"), help: "By which policy; Explain has what else was thought of" },
    ],
  });
  const body = h("div");
  root.append(body, section("Graphs", list.node));
  if (id) {
    body.append(section("Graph", head, passes, tabs, picture, what), section("Ops", ops.node));
  }
  const tab = (title: string, value: boolean) => h("button", { type: "button", role: "tab", "aria-selected": String(written === value), class: written === value ? "" : "quiet",
    click: () => (written = value, picked = "", members = null, drawn = "", view.update()) }, title);

  async function cancel(s: GraphSummary): Promise<void> {
    if (!(await confirm(`Cancel graph ${shortId(s.id)} of ${s.client}? Its unfinished tasks stop, and whatever waits for its results fails.`, "Cancel the graph"))) return;
    try {
      await post("/api/cancel", { graph: s.id });
      toast("The graph is being cancelled.");
    } catch (error) {
      toast((error as Error).message);
    }
  }

  const view: View = {
    update() {
      list.update(live.overview?.graphs ?? []);
      if (!id) return;
      const g = live.graph;
      if (!g || g.id !== id) {
        replace(head, h("p", { class: "empty" }, live.gone ?? "Looking …"));
        return;
      }
      const s = g.summary, share = s.tasks ? s.done / s.tasks : 1;
      const key = JSON.stringify([s, written, picked, g.ops.length, g.ops.reduce((n, o) => n + o.done, 0)]);
      if (key === drawn) return;
      drawn = key;
      replace(head, h("div", { class: "row" }, badge(s.state), h("strong", null, `Graph ${shortId(s.id)}`), h("span", { class: "muted grow" }, `${s.client}, request ${s.request}, priority ${s.priority}`),
          s.state === "running" && live.role === "operator" ? h("button", { type: "button", class: "danger", click: () => void cancel(s) }, "Cancel …") : null,
          h("a", { href: `#/explain/${id}`, class: "button quiet" }, "Explain")),
        bar(share, `${percent(share)} — ${count(s.done)} of ${count(s.tasks)} tasks, ${seconds((s.ended ?? g.now) - s.submitted)}`, "big"),
        s.cause ? h("p", { class: "bad" }, h("strong", null, "Ended because: "), s.cause.message) : null);
      replace(passes, h("li", null, h("strong", null, "as written"), ` ${count(g.source_count)} ops`), ...g.passes.map((p) => h("li", null, h("strong", null, p.name), ` ${count(p.ops)} ops`)));
      replace(tabs, tab("As planned", false), tab("As written", true));
      const all = nodes(g, written), folded = fold(all);
      const scroll = [picture.scrollLeft, picture.scrollTop] as const;
      replace(picture, draw(folded, written, picked, (group) => {
        picked = picked === group.key ? "" : group.key;
        members = picked ? group.members.map((n) => n.position) : null;
        drawn = "";
        view.update();
      }));
      [picture.scrollLeft, picture.scrollTop] = scroll;
      const grouped = folded.groups.length < all.length ? ` ${count(all.length)} ops are drawn as ${count(folded.groups.length)} groups of one kind and about one depth; choose one to list its ops.` : "";
      what.textContent = (written ? `As the client wrote it${g.source_count > g.source.length ? `, the first ${count(g.source.length)} ops` : ""}.` : "◆ marks the critical path: what the end waited for, as observed so far.") +
        grouped + (g.forgotten > 0 ? ` ${count(g.forgotten)} ops are not remembered.` : "");
      const chosen = written || !members ? g.ops : g.ops.filter((o) => members!.includes(o.position));
      ops.update(chosen.slice(0, kListed));
      if (chosen.length > kListed) what.textContent += ` The first ${kListed} of ${count(chosen.length)} are listed below.`;
    },
  };
  return view;
}
