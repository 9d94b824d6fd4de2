// Each device's load and memory over time, what fills it, and what went over which lane.
import { bytes, count, h, percent, replace, shortId } from "../dom";
import { live } from "../live";
import { bar, Chart, section, Table, type View } from "../parts";
import { colour } from "../theme";
import type { ArrayInfo, Device } from "../types";
import { colourDots } from "./overview";

const kCharted = 16;

export function devices(root: HTMLElement): View {
  const loadChart = new Chart("Load of each device", percent, 200, 1);
  const memoryChart = new Chart("Memory of blocks on each device", bytes, 200);
  const table = new Table<Device>({
    caption: "Devices", key: (d) => String(d.id), empty: "No worker has joined yet.",
    columns: [
      { title: "Device", cell: (d) => h("span", null, h("span", { class: "dot", "data-colour": d.id - 1 }), d.name) },
      { title: "Model", cell: (d) => d.model }, { title: "Numeric class", cell: (d) => d.class, help: "What the last bits may depend on" },
      { title: "Streams", number: true, cell: (d) => String(d.streams) },
      { title: "Load", cell: (d) => bar(live.busy(d.id), percent(live.busy(d.id))) },
      { title: "Blocks", number: true, cell: (d) => bytes(d.used) }, { title: "Peak", number: true, cell: (d) => bytes(d.peak) },
      { title: "Backed by memory", number: true, cell: (d) => bytes(d.resident) }, { title: "Limit", number: true, cell: (d) => bytes(d.memory) },
      { title: "Busy in all", number: true, cell: (d) => `${d.busy_s.toFixed(1)} s` },
    ],
  });
  const holders = h("div", { class: "scroll" });
  const matrix = h("div", { class: "scroll" });
  root.append(
    h("div", { class: "columns" }, section("Load", loadChart.node), section("Memory", memoryChart.node)),
    section("All devices", table.node),
    h("div", { class: "columns" },
      section("What fills each device", h("p", { class: "muted" }, "Complete blocks at their owners, by array; spare copies are not counted."), holders),
      section("Lanes", h("p", { class: "muted" }, "Bytes that each worker took in, by the lane that they really came over. Counts are kept per worker; " +
        "pairs of devices and the limit of each link are not measured in this version (the cost model takes fixed rates by topology)."), matrix)));
  return {
    update() {
      const o = live.overview;
      if (!o) return;
      table.update(o.devices);
      colourDots(table.node);
      const charted = o.devices.slice(0, kCharted);
      const samples = live.samples.slice(-1200), times = samples.map((s) => s.t);
      loadChart.update(times, charted.map((d) => ({ name: d.name, colour: colour(d.id - 1), values: samples.map((s, i) => {
        const before = samples[Math.max(0, i - 2)]!;
        return s.t > before.t ? Math.min(1, ((s.busy.get(d.id) ?? 0) - (before.busy.get(d.id) ?? 0)) / (s.t - before.t) / Math.max(1, d.streams)) : 0;
      }) })));
      memoryChart.update(times, charted.map((d) => ({ name: d.name, colour: colour(d.id - 1), values: samples.map((s) => s.used.get(d.id) ?? 0) })));

      const per = new Map<number, { array: ArrayInfo; bytes: number }[]>();
      for (const array of live.arrays?.arrays ?? []) {
        for (const [device, , done] of array.shares) {
          if (done === 0 || array.blocks === 0) continue;
          if (!per.has(device)) per.set(device, []);
          per.get(device)!.push({ array, bytes: array.bytes * done / array.blocks });
        }
      }
      const rows = charted.map((d) => {
        const top = (per.get(d.id) ?? []).sort((a, b) => b.bytes - a.bytes).slice(0, 3);
        return h("tr", null, h("th", { scope: "row" }, d.name), h("td", null,
          top.length ? top.map((t) => `${t.array.label || t.array.kind} (array ${shortId(t.array.id)}): ${bytes(t.bytes)}`).join("; ") : "no arrays"));
      });
      replace(holders, h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Device"), h("th", { scope: "col" }, "Largest arrays"))), h("tbody", null, ...rows)));

      const lanes = [...new Set(o.lanes.map((l) => l.lane))].sort();
      const workers = o.peers.filter((p) => p.role === "worker");
      const cell = (worker: number, lane: string) => o.lanes.find((l) => l.worker === worker && l.lane === lane);
      const most = Math.max(1, ...o.lanes.map((l) => l.bytes));
      replace(matrix, lanes.length === 0 ? h("p", { class: "empty" }, "Nothing has moved yet.") :
        h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "Bytes by worker and lane"),
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "Into"), ...lanes.map((l) => h("th", { scope: "col", class: "n" }, l)))),
          h("tbody", null, ...workers.map((w) => h("tr", null, h("th", { scope: "row" }, `w${w.id} ${w.name}`), ...lanes.map((l) => {
            const found = cell(w.id, l);
            const td = h("td", { class: "n", title: found ? `${count(found.transfers)} blocks` : null }, found ? bytes(found.bytes) : "–");
            if (found) td.style.setProperty("--heat", String(Math.round(60 * found.bytes / most)));
            return td;
          }))))));
    },
    unmount() { loadChart.destroy(); memoryChart.destroy(); },
  };
}
