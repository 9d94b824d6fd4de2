// What the scheduler predicts of a graph beside what happened.
import { bytes, count, h, replace, seconds, setText, shortId } from "../dom";
import { get, live } from "../live";
import { badge, section, Table, type View } from "../parts";
import type { Choice, Explanation, Op, TraceColumns } from "../types";

interface Row { position: number; name: string; predicted: Explanation["ops"][number] | null; op: Op | null }

const kRows = 400, kLinks = 100;
const kBeside = 16;  // that the scheduler has on paper with it

// Where it is, and the best of where it might have been.
function placed(taken: string, rejected: Choice[]): HTMLElement {
  const cost = (c: Choice) => `${c.policy} (${c.placement})${c.seconds > 0 ? ` ${seconds(c.seconds)}` : ""}`;
  return h("span", { class: "whole" }, taken, ...rejected.map((c) => h("span", { class: "instead" }, `rather than ${cost(c)}`)));
}

export function explain(root: HTMLElement, id: string | undefined): View {
  let said: Explanation | null = null, busy = false, why = "";
  const pick = h("select", { id: "explain-graph", change: () => (location.hash = `#/explain/${pick.value}`) });
  const ask = h("button", { type: "button", click: () => void predict() }, "Predict what is left of it");
  const status = h("p", { class: "muted", role: "status" });
  const totals = h("p"), listed = h("p", { class: "muted" });
  const device = (n: number) => live.overview?.devices.find((d) => d.id === n)?.name ?? `client ${n}`;
  const ops = new Table<Row>({
    caption: "Ops, predicted beside observed", key: (r) => String(r.position), empty: "Choose a graph.",
    columns: [
      { title: "Op", cell: (r) => h("span", { class: "whole" }, r.name) },
      { title: "Tasks", number: true, cell: (r) => count(r.op?.tasks ?? r.predicted?.tasks ?? 0) },
      { title: "Placed", cell: (r) => placed(r.predicted?.choices[0] ? `${r.predicted.choices[0].policy} (${r.predicted.choices[0].placement})` : r.op?.why || "–", r.predicted?.choices.slice(1) ?? r.op?.rejected ?? []), help: "By which policy; the times are what the cost model said of the others' busiest device" },
      { title: "Estimate", number: true, cell: (r) => r.op && r.op.predicted_s > 0 ? seconds(r.op.predicted_s) : "–", help: "When it was placed: of the busiest device, from the cost model" },
      { title: "Measured", number: true, cell: (r) => r.op && r.op.busiest_s > 0 ? seconds(r.op.busiest_s) : "–", help: "Of the busiest device's steps, as they ran; to be compared with the estimate. Known of a device's share when that is complete" },
      { title: "All devices", number: true, cell: (r) => r.op && r.op.busy_s > 0 ? `${seconds(r.op.busy_s)}${r.predicted && r.predicted.busy_s > 0 ? ` of ${seconds(r.predicted.busy_s)}` : ""}` : "–", help: "Of all its steps together, as they ran; of what is predicted" },
      { title: "When, predicted", number: true, cell: (r) => r.predicted && said?.simulated ? `${seconds(r.predicted.begin_s)} – ${seconds(r.predicted.end_s)}` : "–", help: "From the moment of asking" },
      { title: "Took", number: true, cell: (r) => r.op?.began != null && r.op.ended !== null ? `${r.op.ended - r.op.began < 0.01 ? "< 10 ms" : seconds(r.op.ended - r.op.began)}${r.op.finished ? "" : " so far"}` : "–", help: "Observed: from the first report of its tasks to the last, as the scheduler heard them (every 10 ms)" },
      { title: "To move", number: true, cell: (r) => r.predicted && said?.simulated ? bytes(r.predicted.bytes_moved) : "–", help: "Predicted, of its inputs, to the devices that run it; what is read in place included" },
      { title: "Copied", number: true, cell: (r) => r.op && r.op.done > 0 ? bytes(r.op.bytes_moved) : "–", help: "Measured, of its inputs, from other devices; what is read in place is not copied" },
    ],
  });
  const rest = h("div");
  root.append(section("Account of a graph", h("div", { class: "row" }, h("label", { for: "explain-graph" }, "Graph"), pick, ask), status, totals, ops.node, listed), rest);

  async function predict(): Promise<void> {
    if (!id || busy) return;
    busy = true;
    why = "";
    status.textContent = "The scheduler runs the plan on paper …";
    try {
      said = await get<Explanation>(`/api/explain?id=${id}`);
    } catch (error) {
      why = (error as Error).message;
    }
    busy = false;
    drawAccount();
    view.update();
  }

  function drawAccount(): void {
    replace(rest);
    status.textContent = why || (said || !id ? "" : ended() ? "It has ended: what was estimated stands beside what was measured." : "A prediction is made when you ask: it takes the scheduler some milliseconds.");
    if (!said) return;
    const beside = Math.min(kBeside, Math.max(0, (live.overview?.totals.graphs_running ?? 0) - 1));
    totals.textContent = said.refused ? `Nothing is predicted: ${said.refused.message}.` :
      `${count(said.op_count)} ops left, ${count(said.tasks)} tasks, ${count(said.steps)} steps. ` + (said.simulated ?
        `Predicted ${seconds(said.seconds)}; no schedule is shorter than ${seconds(said.bound_s)}.${beside > 0 ? ` With ${beside === 1 ? "the other graph that runs" : `the ${count(beside)} other graphs that run`} beside it: they share the devices' time, and peaks have their blocks too.` : ""}` :
        `Too many steps${beside > 0 ? ", with what runs beside it," : ""} to run them on paper: no times, peaks and links.`);
    if (!said.simulated) return;
    const devices = new Table<Explanation["devices"][number]>({
      caption: "Devices, predicted", key: (d) => String(d.device), empty: "Not simulated.",
      columns: [{ title: "Device", cell: (d) => device(d.device) }, { title: "Tasks", number: true, cell: (d) => count(d.tasks) },
                { title: "Busy", number: true, cell: (d) => seconds(d.busy_s) }, { title: "Peak predicted", number: true, cell: (d) => bytes(d.peak) },
                { title: "Peak measured", number: true, cell: (d) => peak(d.device) === undefined ? "–" : `${bytes(peak(d.device)![1])}, ${bytes(peak(d.device)![2])} before it`, help: "While this graph ran, as far as it has; of that, what was there before it began. Predicted peaks have that too, and blocks of the graphs that run beside it" }],
    });
    devices.update(said.devices);
    const links = new Table<Explanation["links"][number]>({
      caption: "Links, predicted", key: (l) => `${l.from}-${l.to}`, empty: "Nothing is read from another device.",
      columns: [{ title: "From", cell: (l) => device(l.from) }, { title: "To", cell: (l) => device(l.to) }, { title: "Blocks", number: true, cell: (l) => count(l.blocks) },
                { title: "Bytes", number: true, cell: (l) => bytes(l.bytes) }, { title: "How", cell: (l) => l.mapped ? "read in place" : seconds(l.busy_s) }],
    });
    links.update(said.links.slice(0, kLinks));
    const path = said.critical.slice(-20).map((c) => h("li", null, `${said!.ops[c.op]?.op ?? "?"} ${c.what === "moves" ? "waits for bytes to" : c.what === "waits" ? "waits for other graphs on" : "runs on"} ${device(c.device)}: ${seconds(c.seconds)}`));
    replace(rest, h("div", { class: "columns" }, section("Devices", devices.node), section("Links", said.links.length > kLinks ? `The ${kLinks} of ${count(said.links.length)} with most bytes.` : "", links.node)),
      section("Critical path, predicted", path.length ? h("ol", null, ...path) : h("p", { class: "empty" }, "None was found.")));
  }

  let saidEnded = false;
  const ended = () => live.graph?.id === id && live.graph?.summary.state !== "running";
  const peak = (d: number) => live.graph?.peaks.find(([x]) => x === d);
  const measured = h("div");
  root.append(measured);
  let measuring = false, measuredFor = "";
  // What is known without asking for a prediction: peaks, and links from the workers' records.
  async function measure(): Promise<void> {
    if (!id || measuring) return;
    measuring = true;
    const shared = h("p", { class: "muted" });
    const peaks = new Table<[number, number, number]>({
      caption: "Peaks, measured", key: ([d]) => String(d), empty: "No device has reported yet.",
      columns: [{ title: "Device", cell: ([d]) => device(d) }, { title: "Most bytes while it ran", number: true, cell: ([, n]) => bytes(n) },
                { title: "There before it began", number: true, cell: ([, , n]) => bytes(n) }],
    });
    const links = new Table<{ from: number; to: number; lane: string; blocks: number; bytes: number; took: number }>({
      caption: "Links, measured", key: (l) => `${l.from} ${l.to} ${l.lane}`, empty: "No transfer of this graph is remembered.",
      columns: [{ title: "From", cell: (l) => device(l.from) }, { title: "To", cell: (l) => device(l.to) }, { title: "Lane", cell: (l) => l.lane }, { title: "Blocks", number: true, cell: (l) => count(l.blocks) },
                { title: "Bytes", number: true, cell: (l) => bytes(l.bytes) }, { title: "Block on its way", number: true, cell: (l) => l.took > 0 ? seconds(l.took / l.blocks * 1e-9) : "read in place" }],
    });
    const note = h("p", { class: "muted" });
    try {
      const t = await get<TraceColumns>(`/api/trace?id=${id}`), sums = new Map<string, { from: number; to: number; lane: string; blocks: number; bytes: number; took: number }>();
      t.kind.forEach((k, i) => {
        if (t.kinds[k] !== "transfer") return;
        const lane = t.lanes[t.lane[i]!]!, key = `${t.peer[i]} ${t.device[i]} ${lane}`;
        const sum = sums.get(key) ?? { from: t.peer[i]!, to: t.device[i]!, lane, blocks: 0, bytes: 0, took: 0 };
        ++sum.blocks, (sum.bytes += t.bytes[i]!), (sum.took += t.took[i]!);
        sums.set(key, sum);
      });
      links.update([...sums.values()].sort((a, b) => b.bytes - a.bytes).slice(0, kLinks));
      note.textContent = (sums.size > kLinks ? `The ${kLinks} of ${count(sums.size)} links with most bytes. ` : "") + "From the workers' records of this graph" + (t.lost > 0 ? `; ${count(t.lost)} older records were overwritten, so sums may miss some.` : "; nothing was overwritten.");
    } catch (error) {
      note.textContent = `Links cannot be told: ${(error as Error).message}.`;
    }
    replace(measured, h("div", { class: "columns" }, section("Peaks, measured", shared, peaks.node), section("Links, measured", note, links.node)));
    showPeaks = () => {
      peaks.update(live.graph?.peaks ?? []);
      setText(shared, live.graph?.alone === false ? "Other graphs ran meanwhile: these peaks are of all of them." : "No other graph ran meanwhile: what was not there before is its own.");
    };
    showPeaks();
    measuring = false;
  }
  let showPeaks = () => {};

  let options = "";
  const view: View = {
    update() {
      const o = live.overview;
      if (!o) return;
      const key = o.graphs.map((g) => g.id + g.state).join();
      if (key !== options) {
        options = key;
        replace(pick, h("option", { value: "" }, "choose …"), ...o.graphs.map((g) =>
          h("option", { value: g.id, selected: g.id === id }, `${shortId(g.id)} ${g.state}, ${g.client}, ${count(g.tasks)} tasks`)));
      }
      ask.disabled = !id || busy;
      setText(ask, ended() ? "Show what was predicted last" : "Predict what is left of it");
      const g = live.graph;
      if (!said && !why && !busy && ended() !== saidEnded) saidEnded = ended(), drawAccount();
      if (g && measuredFor !== g.summary.state) measuredFor = g.summary.state, void measure();
      showPeaks();
      const rows = new Map<number, Row>();
      for (const op of g?.ops ?? []) rows.set(op.position, { position: op.position, name: `${op.position} ${op.kind}${op.label ? ` “${op.label}”` : ""}`, predicted: null, op });
      for (const p of said?.ops ?? []) {
        const position = Number(/^op (\d+)/.exec(p.op)?.[1] ?? -1);
        const row = rows.get(position) ?? { position, name: p.op, predicted: null, op: null };
        row.predicted = p;
        rows.set(position, row);
      }
      const all = [...rows.values()].sort((a, b) => Number(!a.predicted) - Number(!b.predicted) || a.position - b.position);
      ops.update(all.slice(0, kRows));
      setText(listed, all.length > kRows ? `The first ${kRows} of ${count(all.length)} ops are listed, those with a prediction first.` : "");
      if (g && !said) replace(totals, badge(g.summary.state), ` ${count(g.summary.ops)} ops, ${count(g.summary.tasks)} tasks`);
    },
  };
  drawAccount();
  return view;
}
