// Who holds what, what failed and why, and the scheduler's log.
import { bytes, count, h, replace, seconds, shortId } from "../dom";
import { live } from "../live";
import { badge, section, Table, type View } from "../parts";
import type { GraphSummary, LogLine, Lost, SessionInfo } from "../types";

const kShownLines = 500;
const kLevels = ["debug", "info", "warning", "error"];

// Ids of graphs and ops are shown as everywhere on the page; the whole number, as other logs have it, is found and told too.
const kIds = ["graph", "op", "array"];
const brief = (v: string) => /^\d+$/.test(v) ? shortId(v) : v;
function fieldOf(key: string, text: string): HTMLElement | string {
  if (!kIds.includes(key) || brief(text) === text) return `${key}=${text}`;
  return key === "graph" ? h("a", { href: `#/graph/${text}`, title: text }, `graph=${brief(text)}`) : h("span", { title: text }, `${key}=${brief(text)}`);
}

function failure(g: GraphSummary): HTMLElement {
  const more = g.affected_count - g.affected.length;
  return h("article", { class: "failure" },
    h("header", { class: "row" }, badge(g.state), h("a", { href: `#/graph/${g.id}` }, `Graph ${shortId(g.id)}`),
      h("span", { class: "muted grow" }, `${g.client}, request ${g.request}, ended at ${seconds(g.ended)}`)),
    h("p", null, h("strong", null, "Root cause: "), `${g.cause?.message ?? ""} (${g.cause?.code ?? ""})`),
    g.affected_count > 0 ? h("details", null, h("summary", null, `${count(g.affected_count)} ${g.affected_count === 1 ? "op" : "ops"} did not complete because of it`),
      h("ul", null, ...g.affected.map((op) => h("li", null, op)), more > 0 ? h("li", { class: "muted" }, `and ${count(more)} more`) : null)) : null);
}

export function clients(root: HTMLElement): View {
  const sessions = new Table<SessionInfo>({
    caption: "Clients and what they hold", key: (s) => String(s.id), empty: "No client is connected.",
    columns: [
      { title: "Session", cell: (s) => String(s.id) }, { title: "Client", cell: (s) => s.client },
      { title: "Running graphs", number: true, cell: (s) => count(s.running) }, { title: "Arrays held", number: true, cell: (s) => count(s.held_arrays) },
      { title: "Their bytes", number: true, cell: (s) => bytes(s.held_bytes) },
    ],
  });
  const failures = h("div", { class: "failures" });
  const lost = new Table<Lost>({
    caption: "Processes that left", key: (l) => String(l.id), empty: "Nobody has left.",
    columns: [{ title: "Process", cell: (l) => `${l.role} ${l.name}` }, { title: "Id", number: true, cell: (l) => `w${l.id}` },
              { title: "When", number: true, cell: (l) => `${seconds((live.overview?.now ?? l.at) - l.at)} ago` }],
  });
  const search = h("input", { type: "search", id: "log-search", placeholder: "graph, op, worker, words …", input: () => draw(true) });
  const level = h("select", { id: "log-level", change: () => draw(true) }, ...kLevels.map((l) => h("option", { value: l, selected: l === "info" }, l)));
  const found = h("p", { class: "muted", role: "status" });
  const lines = new Table<LogLine>({
    caption: "Log", key: (l) => String(l.number), empty: "No line matches.",
    columns: [
      { title: "Time", cell: (l) => new Date(l.wall_ms).toLocaleTimeString([], { hour12: false }) },
      { title: "Level", cell: (l) => h("span", { class: `level ${l.level}` }, l.level) }, { title: "Event", cell: (l) => l.event },
      { title: "Fields", cell: (l) => h("span", null, ...Object.entries(l.fields).flatMap(([k, v]) => [fieldOf(k, v), "  "])) },
    ],
  });
  root.append(section("Clients", sessions.node), section("Failures", failures), section("Left", lost.node),
    section("Log", h("div", { class: "row" }, h("label", { for: "log-search" }, "Search"), search, h("label", { for: "log-level" }, "From level"), level), found, lines.node));

  let drawn = -1, shown = "";
  function draw(always: boolean): void {
    const last = live.log.at(-1)?.number ?? 0;
    if (!always && last === drawn) return;
    drawn = last;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), from = kLevels.indexOf(level.value);
    const matching = live.log.filter((l) => {
      if (kLevels.indexOf(l.level) < from) return false;
      const text = `${l.event} ${Object.entries(l.fields).map(([k, v]) => `${k}=${v} ${kIds.includes(k) ? `${k}=${brief(v)}` : ""}`).join(" ")}`.toLowerCase();
      return words.every((w) => text.includes(w));
    });
    lines.update(matching.slice(-kShownLines).reverse());
    found.textContent = `${count(matching.length)} of the last ${count(live.log.length)} lines, newest first` +
      (matching.length > kShownLines ? `; the latest ${kShownLines} are shown` : "") + ". The scheduler keeps 2,000; its standard error has all.";
  }
  return {
    update() {
      const o = live.overview;
      if (!o) return;
      sessions.update(o.sessions);
      const bad = o.graphs.filter((g) => g.cause !== null);
      const key = bad.map((g) => g.id).join();
      if (key !== shown || failures.childElementCount === 0) {
        shown = key;
        replace(failures, ...(bad.length ? bad.map(failure) : [h("p", { class: "empty" }, "Nothing has failed among the graphs that are remembered.")]));
      }
      lost.update(o.lost);
      draw(false);
    },
  };
}
