// Each device's load and memory over time, what fills it, and what went over which lane.
import { bytes, count, h, percent, replace, seconds, setText, shortId } from "../dom";
import { live, post } from "../live";
import { bar, Chart, confirm, section, Table, toast, type View } from "../parts";
import { colour } from "../theme";
import type { ArrayInfo, Device, Link, LinkClass } from "../types";
import { colourDots } from "./overview";

const kCharted = 16, kGap = 12;  // seconds without a look

const kArraysCharted = 8, kLinksListed = 400, kPairsDrawn = 24;

// A process leaves as a whole, so every device of a worker says the same.
async function drain(d: Device, on: boolean): Promise<void> {
  const others = live.overview?.devices.filter((x) => x.worker === d.worker).map((x) => x.name).join(", ");
  if (on && !(await confirm(`Drain w${d.worker} (${others})? It ends what it has begun, blocks that somebody needs move to other workers, and its process ends.`, "Drain"))) return;
  try {
    await post("/api/drain", { worker: String(d.worker), on: on ? "yes" : "no" });
    toast(on ? `w${d.worker} is to leave.` : `w${d.worker} stays.`);
  } catch (error) {
    toast((error as Error).message);
  }
}

function drainState(d: Device): HTMLElement | string {
  const found = live.overview?.draining.find((x) => x.worker === d.worker);
  const button = (label: string, on: boolean) => live.role === "operator" ? h("button", { type: "button", class: "quiet small", "data-drain": `${d.id} ${on ? "yes" : "no"}` }, label) : "";
  if (!found) return h("span", { class: "row" }, "takes work", button("Drain …", true));
  const said = found.state === "moving" ? `leaving: ${count(found.blocks_left)} blocks still to move` :
    found.state === "stopping" ? "leaving: ends what it has begun" :
    found.why ? `cannot leave: ${found.why}` : "is to leave: waits for its turn";
  return h("span", { class: "row" }, said, button("Let it stay", false));
}

export function devices(root: HTMLElement): View {
  const loadChart = new Chart("Load of each device", percent, 200, 1);
  const memoryChart = new Chart("Memory of blocks on each device", bytes, 200);
  const arrayChart = new Chart("Memory by array", bytes, 200);
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
      { title: "State", cell: drainState },
    ],
  });
  // Cells are made anew when their text changes; one listener for all of them.
  table.node.addEventListener("click", (e) => {
    const [id, on] = ((e.target as HTMLElement).dataset["drain"] ?? "").split(" ");
    const found = live.overview?.devices.find((d) => String(d.id) === id);
    if (found) void drain(found, on === "yes");
  });
  const links = new Table<Link & { rate: number }>({
    caption: "Links between devices", key: (l) => `${l.from} ${l.to} ${l.lane}`, empty: "Nothing has moved between devices yet.",
    columns: [
      { title: "From", cell: (l) => name(l.from) }, { title: "To", cell: (l) => name(l.to) }, { title: "Lane", cell: (l) => l.lane },
      { title: "Blocks", number: true, cell: (l) => count(l.transfers) }, { title: "Bytes", number: true, cell: (l) => bytes(l.bytes) },
      { title: "Now", number: true, cell: (l) => `${bytes(l.rate)}/s` },
      { title: "Block on its way", number: true, cell: (l) => l.busy_s > 0 ? seconds(l.busy_s / l.transfers) : "read in place", help: "Mean, from grant to arrival" },
      { title: "Of the link's limit, now", cell: (l) => l.limit_bytes_per_s > 0 ? bar(l.rate / l.limit_bytes_per_s, `${percent(l.rate / l.limit_bytes_per_s)} of ${bytes(l.limit_bytes_per_s)}/s`) : "–",
        help: "The limit is what large blocks have had on this link, or, before any were measured, what the topology suggests; the cost model uses the same" },
    ],
  });
  const kindsOf = (c: LinkClass) => `${c.from_kind} to ${c.to_kind} ${c.inside ? "in a process" : c.from_host === c.to_host ? "on a host" : "between hosts"}`;
  const probed = new Table<LinkClass>({
    caption: "Links measured while nothing ran", key: (c) => `${c.from_host} ${c.from_kind} ${c.to_host} ${c.to_kind} ${c.inside}`, empty: "None: one host, or the scheduler was told not to.",
    columns: [
      { title: "From", cell: (c) => c.sizes.length > 0 ? name(c.from) : "–" }, { title: "To", cell: (c) => c.sizes.length > 0 ? name(c.to) : "–" },
      { title: "Stands for", cell: kindsOf }, { title: "State", cell: (c) => c.why && c.state !== "measured" ? `${c.state}: ${c.why}` : c.state },
      { title: "Measured", cell: (c) => c.at === null ? "–" : `${seconds(Math.max(0, (live.overview?.now ?? c.at) - c.at))} ago` },
      { title: "By size", cell: (c) => c.sizes.map((s) => `${bytes(s.bytes)} ${seconds(s.seconds)} ${s.lane}`).join(", ") || "–", help: "Median from asking for the bytes to their arrival, and the lane" },
      { title: "Reckoned with", cell: (c) => c.sizes.length === 0 ? "–" : `${seconds(c.latency_s)}, ${bytes(c.bytes_per_s)}/s${c.mapped ? "; blocks are read in place" : ""}`, help: "What placement uses for these two devices now: what blocks have shown since, or the probe" },
    ],
  });
  const name = (id: number) => live.overview?.devices.find((d) => d.id === id)?.name ?? `client ${id}`;
  const holders = h("div", { class: "scroll" });
  const more = h("p", { class: "muted", hidden: true });
  const matrix = h("div", { class: "scroll" }), linksNote = h("p", { class: "muted" });
  root.append(
    h("div", { class: "columns" }, section("Load", loadChart.node), section("Memory", memoryChart.node)), more,
    section("All devices", table.node),
    section("Memory over time, by array", h("p", { class: "muted" }, `Complete blocks at their owners, of the ${kArraysCharted} arrays that were largest; the last hour, every few seconds, finer since this view was opened.`), arrayChart.node),
    h("div", { class: "columns" },
      section("What fills each device", h("p", { class: "muted" }, "Complete blocks at their owners, by array; spare copies are not counted."), holders),
      section("Link matrix", h("p", { class: "muted" }, "Bytes that each device took in from each other one, over all lanes."), matrix)),
    section("Links, measured", h("p", { class: "muted" }, "While nothing runs, one link of all that are alike is measured; blocks that move correct it."), probed.node),
    section("Links", linksNote, links.node));
  function drawLinks(): void {
    const list = live.links, before = live.linksBefore;
    if (!list) return;
    probed.update(list.classes.slice(0, kLinksListed));
    const passed = before ? (live.overview?.now ?? 0) - before.t : 0;
    const earlier = new Map(before?.list.links.map((l) => [`${l.from} ${l.to} ${l.lane}`, l.bytes]) ?? []);
    links.update(list.links.slice(0, kLinksListed).map((l) => ({ ...l, rate: passed > 0 ? Math.max(0, l.bytes - (earlier.get(`${l.from} ${l.to} ${l.lane}`) ?? l.bytes)) / passed : 0 })));
    linksNote.textContent = list.count > kLinksListed ? `${count(list.count)} pairs and lanes were used; the ${kLinksListed} with most bytes are listed.` : "By the lane that bytes really came over.";
    const sums = new Map<string, number>(), ends = new Set<number>();
    for (const l of list.links) {
      sums.set(`${l.from} ${l.to}`, (sums.get(`${l.from} ${l.to}`) ?? 0) + l.bytes);
      ends.add(l.from), ends.add(l.to);
    }
    const shown = [...ends].sort((a, b) => a - b).slice(0, kPairsDrawn), most = Math.max(1, ...sums.values());
    replace(matrix, sums.size === 0 ? h("p", { class: "empty" }, "Nothing has moved yet.") :
      h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "Bytes by sending and receiving device"),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "From ↓ to →"), ...shown.map((d) => h("th", { scope: "col", class: "n" }, name(d))))),
        h("tbody", null, ...shown.map((a) => h("tr", null, h("th", { scope: "row" }, name(a)), ...shown.map((b) => {
          const sum = sums.get(`${a} ${b}`), lanes = list.links.filter((l) => l.from === a && l.to === b).map((l) => `${l.lane} ${bytes(l.bytes)}`).join(", ");
          const td = h("td", { class: "n", title: lanes || null }, a === b ? "" : sum === undefined ? "–" : bytes(sum));
          if (sum !== undefined) td.style.setProperty("--heat", String(Math.round(60 * sum / most)));
          return td;
        })))), ends.size > kPairsDrawn ? h("tfoot", null, h("tr", null, h("td", { colspan: shown.length + 1 }, `the first ${kPairsDrawn} of ${ends.size} devices`))) : null));
  }

  function drawArrays(): void {
    // A gap where nobody looked, not a line across it.
    const samples: { t: number; arrays: Map<string, number> | null }[] = [];
    for (const s of live.held) {
      const last = samples.at(-1);
      if (last && s.t - last.t > kGap) samples.push({ t: last.t + 0.01, arrays: null });
      samples.push(s);
    }
    const sums = new Map<string, number>();
    for (const s of samples) for (const [id, n] of s.arrays ?? []) sums.set(id, Math.max(sums.get(id) ?? 0, n));
    const top = [...sums].sort((a, b) => b[1] - a[1]).slice(0, kArraysCharted).map(([id]) => id);
    arrayChart.update(samples.map((s) => s.t), top.map((id, i) => ({ name: `${live.names.get(id) ?? "array"} (${shortId(id)})`, colour: colour(i), values: samples.map((s) => s.arrays === null ? null : s.arrays.get(id) ?? 0) })));
  }

  return {
    update() {
      const o = live.overview;
      if (!o) return;
      table.update(o.devices);
      colourDots(table.node);
      const charted = o.devices.slice(0, kCharted);
      more.hidden = o.devices.length <= kCharted;
      setText(more, `The charts and what fills each device have the first ${kCharted} of ${count(o.devices.length)} devices; the table has all.`);
      const samples = live.samples, times = samples.map((s) => s.t);
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
      replace(holders, h("table", null, h("caption", { class: "unseen" }, "What fills each device"), h("thead", null, h("tr", null, h("th", { scope: "col" }, "Device"), h("th", { scope: "col" }, "Largest arrays"))), h("tbody", null, ...rows)));

      drawLinks();
      drawArrays();
    },
    unmount() { loadChart.destroy(); memoryChart.destroy(); arrayChart.destroy(); },
  };
}
