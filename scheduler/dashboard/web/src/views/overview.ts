// What runs, where, how full, how fast, and what is wrong.
import { bytes, count, h, opName, percent, replace, seconds, setText, shortId, short } from "../dom";
import { live } from "../live";
import { badge, bar, Chart, section, Table, type View } from "../parts";
import { colour, kindColour } from "../theme";
import type { Device, GraphSummary, Warning } from "../types";

const kShown = 20, kEnded = 40;

function tile(title: string): { node: HTMLElement; set: (value: string, note: string) => void } {
  const value = h("div", { class: "value" }, "–"), note = h("div", { class: "note" });
  const node = h("div", { class: "tile" }, h("div", { class: "title" }, title), value, note);
  return { node, set: (v, n) => (value.textContent !== v && (value.textContent = v), note.textContent !== n && (note.textContent = n)) };
}

export function warningList(warnings: Warning[]): HTMLElement[] {
  return warnings.map((w) => h("li", { class: w.serious ? "warning serious" : "warning" },
    h("strong", null, w.serious ? "Problem: " : "Warning: "), w.what, h("div", { class: "todo" }, `What to do: ${w.to_do}`)));
}

function graphCard(g: GraphSummary): HTMLElement {
  const share = g.tasks > 0 ? g.done / g.tasks : 0;
  const groups = g.groups.filter((o) => o.tasks > 0).slice(0, 8).map((o) =>
    h("li", null, h("span", { class: "dot", "data-kind": o.kind }), h("span", { class: "grow" }, opName(o), o.ops > 1 ? ` × ${count(o.ops)}` : ""),
      bar(o.done / o.tasks, `${short(o.done)} / ${short(o.tasks)}`), o.failed > 0 ? h("span", { class: "bad" }, `${count(o.failed)} failed`) : null));
  const left = g.done > 0 && live.overview ? (live.overview.now - g.submitted) * (1 - share) / share : null;
  return h("article", { class: "graph" },
    h("header", { class: "row" }, badge(g.state), h("a", { href: `#/graph/${g.id}`, class: "grow" }, `Graph ${shortId(g.id)}`),
      h("span", { class: "muted" }, `${g.client}, request ${g.request}`)),
    bar(share, `${percent(share)} — ${count(g.done)} of ${count(g.tasks)} tasks${left !== null && share > 0.02 ? `, about ${seconds(left)} left` : ""}`, "big"),
    h("ul", { class: "ops" }, ...groups));
}

export function overview(root: HTMLElement): View {
  const warnings = h("ul", { class: "warnings", "aria-live": "polite" });
  const tiles = { tasks: tile("Tasks a second"), graphs: tile("Graphs"), load: tile("Load"), memory: tile("Memory of blocks"), moved: tile("Moved a second") };
  const running = h("div", { class: "graphs" });
  const tasksChart = new Chart("Tasks completed a second", (v) => short(v), 150);
  const laneChart = new Chart("Bytes a second by lane", (v) => `${bytes(v)}/s`, 150);
  const tiers = h("div", { class: "tiers" });
  const devices = new Table<Device>({
    caption: "Devices with load and memory", key: (d) => String(d.id), empty: "No worker has joined yet.",
    columns: [
      { title: "Device", cell: (d) => h("span", null, h("span", { class: "dot", "data-colour": d.id - 1 }), d.name) },
      { title: "Kind", cell: (d) => d.kind },
      { title: "Load", cell: (d) => bar(live.busy(d.id), percent(live.busy(d.id))) },
      { title: "Memory", cell: (d) => bar(d.memory ? d.used / d.memory : 0, `${bytes(d.used)} of ${bytes(d.memory)}`, d.used > 0.9 * d.memory ? "full" : "") },
      { title: "Peak", number: true, cell: (d) => bytes(d.peak) },
      { title: "Steps", number: true, cell: (d) => count(d.steps) },
    ],
  });
  const lanes = new Table<{ lane: string; bytes: number; transfers: number; rate: number; failed: number }>({
    caption: "Transfers by lane", key: (l) => l.lane, empty: "Nothing has moved yet.",
    columns: [
      { title: "Lane", cell: (l) => l.lane }, { title: "Now", number: true, cell: (l) => `${bytes(l.rate)}/s` },
      { title: "In all", number: true, cell: (l) => bytes(l.bytes) }, { title: "Blocks", number: true, cell: (l) => count(l.transfers) },
      { title: "Failed", number: true, cell: (l) => count(l.failed), help: "And were tried again, or given up" },
    ],
  });
  const endedNote = h("p", { class: "muted" });
  const ended = new Table<GraphSummary>({
    caption: "Graphs that ended last", key: (g) => g.id, empty: "None has ended since the scheduler was started.",
    pick: (g) => (location.hash = `#/graph/${g.id}`),
    columns: [
      { title: "Graph", cell: (g) => shortId(g.id) }, { title: "State", cell: (g) => badge(g.state) },
      { title: "Client", cell: (g) => g.client }, { title: "Tasks", number: true, cell: (g) => count(g.tasks) },
      { title: "Ops", number: true, cell: (g) => count(g.ops) },
      { title: "Took", number: true, cell: (g) => seconds(g.ended === null ? null : g.ended - g.submitted) },
    ],
  });
  root.append(warnings,
    h("div", { class: "tiles" }, ...Object.values(tiles).map((t) => t.node)),
    h("div", { class: "columns" },
      section("Running graphs", running),
      section("Tasks a second", tasksChart.node)),
    section("Devices", devices.node),
    h("div", { class: "columns" }, section("Memory by tier", tiers), section("Transfers by lane", laneChart.node, lanes.node)),
    section("Ended last", endedNote, ended.node));

  let shown = "";
  return {
    update() {
      const o = live.overview;
      if (!o) return;
      const key = JSON.stringify(o.warnings);
      if (key !== shown) {
        shown = key;
        replace(warnings, ...(o.warnings.length > 0 ? warningList(o.warnings) : [h("li", { class: "fine" }, "✓ Nothing to worry about.")]));
      }
      const load = o.devices.length ? o.devices.reduce((sum, d) => sum + live.busy(d.id), 0) / o.devices.length : 0;
      const used = o.devices.reduce((sum, d) => sum + d.used, 0), memory = o.devices.reduce((sum, d) => sum + d.memory, 0);
      const spilled = o.devices.reduce((sum, d) => sum + d.spilled, 0), disk = o.devices.reduce((sum, d) => sum + d.spill_limit, 0);
      const pinned = o.devices.reduce((sum, d) => sum + d.pinned, 0), pinnable = o.devices.reduce((sum, d) => sum + d.pinned_limit, 0);
      const lodged = o.devices.reduce((sum, d) => sum + d.lodged, 0);
      tiles.tasks.set(short(live.rate((s) => s.tasks)), `${count(o.totals.tasks_done)} in all`);
      tiles.graphs.set(`${o.totals.graphs_running} running`, `${count(o.totals.graphs_done)} done, ${count(o.totals.graphs_failed)} failed`);
      tiles.load.set(percent(load), `${o.devices.length} devices on ${o.peers.filter((p) => p.role === "worker").length} workers`);
      tiles.memory.set(bytes(used), `of ${bytes(memory)}, ${count(o.totals.arrays)} arrays`);
      const laneNames = [...new Set(o.lanes.map((l) => l.lane))].sort();
      const rates = new Map(laneNames.map((name) => [name, live.rate((s) => s.lanes.get(name) ?? 0)]));
      tiles.moved.set(`${bytes([...rates.values()].reduce((a, b) => a + b, 0))}/s`, laneNames.length ? `over ${laneNames.join(", ")}` : "nothing yet");

      const all = o.graphs.filter((g) => g.state === "running"), active = all.slice(0, kShown);
      const rest = Math.max(o.totals.graphs_running, all.length) - active.length;
      replace(running, ...(active.length ? [...active.map(graphCard), rest > 0 ? h("p", { class: "muted" }, `and ${count(rest)} more`) : h("span")] : [h("p", { class: "empty" }, "Nothing is running. Graphs appear here as soon as a client computes something.")]));
      colourDots(root);
      devices.update(o.devices);
      colourDots(devices.node);
      lanes.update(laneNames.map((name) => ({ lane: name, rate: rates.get(name) ?? 0,
        bytes: o.lanes.filter((l) => l.lane === name).reduce((a, l) => a + l.bytes, 0),
        transfers: o.lanes.filter((l) => l.lane === name).reduce((a, l) => a + l.transfers, 0), failed: o.lanes.filter((l) => l.lane === name).reduce((a, l) => a + l.failed, 0) })));
      const past = o.graphs.filter((g) => g.state !== "running");
      ended.update(past.slice(0, kEnded));
      setText(endedNote, past.length > kEnded ? `The last ${kEnded}; the Graph view has all ${count(past.length)} that are remembered.` : "");

      replace(tiers,
        h("div", { class: "tier" }, h("span", null, "Device"), bar(memory ? used / memory : 0, `${bytes(used)} of ${bytes(memory)}`)),
        ...(lodged > 0 ? [h("div", { class: "tier" }, h("span", null, "Neighbours"), bar(memory ? lodged / memory : 0, `${bytes(lodged)} of blocks in other devices’ memory`))] : []),
        pinnable > 0
          ? h("div", { class: "tier" }, h("span", null, "Pinned host"), bar(pinned / pinnable, `${bytes(pinned)} of ${bytes(pinnable)}`))
          : h("div", { class: "tier off" }, h("span", null, "Pinned host"), h("span", { class: "muted" }, "no worker with GPUs has a --pinned-limit")),
        disk > 0
          ? h("div", { class: "tier" }, h("span", null, "Disk"), bar(spilled / disk, `${bytes(spilled)} of ${bytes(disk)}`))
          : h("div", { class: "tier off" }, h("span", null, "Disk"), h("span", { class: "muted" }, "no worker has a --spill-dir: what does not fit fails")));

      const samples = live.samples.slice(-240);
      const per = (value: (i: number) => number) => samples.map((s, i) => i === 0 ? 0 : Math.max(0, value(i) - value(i - 1)) / Math.max(1e-3, s.t - samples[i - 1]!.t));
      const times = samples.map((s) => s.t);
      tasksChart.update(times, [{ name: "tasks/s", colour: colour(0), values: per((i) => samples[i]!.tasks) }]);
      laneChart.update(times, laneNames.map((name, k) => ({ name, colour: colour(k), values: per((i) => samples[i]!.lanes.get(name) ?? 0) })));
    },
    unmount() { tasksChart.destroy(); laneChart.destroy(); },
  };
}

// Colours of data go through the object model: the page's policy allows no inline style.
export function colourDots(root: Element): void {
  for (const dot of root.querySelectorAll<HTMLElement>(".dot")) {
    const { kind, colour: index } = dot.dataset;
    dot.style.background = kind !== undefined ? kindColour(kind) : colour(Number(index ?? 0));
  }
}
