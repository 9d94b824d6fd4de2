// What the views are made of: tables that change in place, bars, dialogs, charts.
import uPlot from "uplot";
import { bytes, h, replace, setText } from "./dom";
import { variable } from "./theme";

export interface View {
  update(): void;
  unmount?(): void;
}

export interface Column<T> { title: string; number?: boolean; cell: (item: T) => string | Node; help?: string }

// Rows are found again by key, so that focus, selection and scrolling survive an update.
export class Table<T> {
  readonly node: HTMLElement;
  private body = h("tbody");
  private rows = new Map<string, { row: HTMLTableRowElement; item: T }>();
  private empty: HTMLElement;

  constructor(private options: { caption: string; columns: Column<T>[]; key: (item: T) => string; empty: string;
                                 pick?: (item: T) => void; picked?: (item: T) => boolean }) {
    const head = h("tr", null, ...options.columns.map((c) =>
      h("th", { scope: "col", class: c.number ? "n" : null, title: c.help ?? null }, c.title)));
    this.empty = h("p", { class: "empty" }, options.empty);
    this.node = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption },
      h("table", null, h("caption", { class: "unseen" }, options.caption), h("thead", null, head), this.body), this.empty);
  }

  update(items: readonly T[]): void {
    const { columns, key, pick, picked } = this.options;
    const seen = new Set<string>();
    let before: Element | null = this.body.firstElementChild;
    for (const item of items) {
      const k = key(item);
      seen.add(k);
      let entry = this.rows.get(k);
      if (!entry) {
        const row = h("tr", null, ...columns.map((c) => h("td", { class: c.number ? "n" : null })));
        entry = { row, item };
        if (pick) {
          const held = entry;
          row.tabIndex = 0;
          row.classList.add("pick");
          row.addEventListener("click", () => pick(held.item));
          row.addEventListener("keydown", (e) => {
            if (e.key === "Enter" || e.key === " ") e.preventDefault(), pick(held.item);
          });
        }
        this.rows.set(k, entry);
      }
      entry.item = item;
      if (picked) {
        entry.row.classList.toggle("picked", picked(item));
        entry.row.setAttribute("aria-selected", String(picked(item)));
      }
      columns.forEach((c, i) => {
        const cell = entry.row.cells[i]!, value = c.cell(item);
        if (typeof value === "string") setText(cell, value);
        else if (!cell.firstChild?.isEqualNode(value) || cell.childNodes.length !== 1) replace(cell, value);
      });
      if (entry.row !== before) this.body.insertBefore(entry.row, before);
      else before = before.nextElementSibling;
    }
    for (const [k, { row }] of this.rows) {
      if (!seen.has(k)) row.remove(), this.rows.delete(k);
    }
    this.empty.hidden = items.length > 0;
  }
}

export function bar(share: number, label: string, tone = ""): HTMLElement {
  const meter = h("progress", { max: 1000, value: Math.round(Math.max(0, Math.min(1, share)) * 1000), class: tone, "aria-label": label });
  return h("span", { class: "bar" }, meter, h("span", { class: "bar-text" }, label));
}

export function section(title: string, ...children: (Node | string)[]): HTMLElement {
  const id = `s-${title.replace(/\W+/g, "-").toLowerCase()}`;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

export function badge(state: string): HTMLElement {
  const marks: Record<string, string> = { running: "▶", done: "✓", failed: "✗", cancelled: "⊘" };
  return h("span", { class: `badge ${state}` }, `${marks[state] ?? "•"} ${state}`);
}

export function confirm(question: string, action: string): Promise<boolean> {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "ask" }, h("p", { id: "ask" }, question),
      h("div", { class: "row end" },
        h("button", { type: "button", class: "quiet", click: () => dialog.close("") }, "Keep"),
        h("button", { type: "button", class: "danger", click: () => dialog.close("yes") }, action)));
    dialog.addEventListener("close", () => (resolve(dialog.returnValue === "yes"), dialog.remove()));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function toast(text: string): void {
  const node = h("div", { class: "toast", role: "status" }, text);
  document.body.append(node);
  setTimeout(() => node.remove(), 5000);
}

export interface Series { name: string; colour: string; values: (number | null)[] }

// Since the scheduler's start: 8 s, 1:05, 2:00:45.
function clock(t: number): string {
  const s = Math.round(t), two = (n: number) => String(n % 60).padStart(2, "0");
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)}:${two(s)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60))}:${two(s)}`;
}
const kBinary = Array.from({ length: 50 }, (_x, i) => 2 ** i);  // steps that are round in bytes

// Lines over time. The figures are in a table beside every chart; the canvas is for the eye.
export class Chart {
  readonly node: HTMLElement;
  private plot: uPlot | null = null;
  private names = "";
  private box = h("div", { class: "chart" });
  private observer = new ResizeObserver(() => this.fit());

  constructor(private label: string, private format: (value: number) => string, private height = 180, private top?: number) {
    this.node = h("div", { role: "img", "aria-label": label }, this.box);
    this.observer.observe(this.box);
  }

  update(times: number[], series: Series[]): void {
    const names = series.map((s) => s.name + s.colour).join("\n") + variable("--ink");
    if (names !== this.names) {
      this.names = names;
      this.plot?.destroy();
      this.plot = this.make(series);
    }
    this.plot?.setData([times, ...series.map((s) => s.values)] as uPlot.AlignedData);
    const last = series.map((s) => `${s.name} ${this.format(s.values.at(-1) ?? 0)}`).join(", ");
    this.node.setAttribute("aria-label", `${this.label}: ${last || "nothing yet"}`);
  }

  destroy(): void {
    this.observer.disconnect();
    this.plot?.destroy();
  }

  private fit(): void {
    if (this.plot && this.box.clientWidth > 0) this.plot.setSize({ width: this.box.clientWidth, height: this.height });
  }

  private make(series: Series[]): uPlot {
    const ink = variable("--muted"), line = variable("--line");
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui" };
    const plot = new uPlot({
      width: Math.max(200, this.box.clientWidth), height: this.height,
      legend: { show: series.length > 1, live: false },
      cursor: { y: false, points: { size: 5 } },
      scales: { x: { time: false }, y: { range: (_u, _min, max) => [0, this.top ?? Math.max(max * 1.1, 1e-9)] } },
      axes: [
        { ...axis, values: (_u, ticks) => ticks.map(clock) },
        { ...axis, size: 70, ...(this.format(1024).startsWith(bytes(1024)) ? { incrs: kBinary } : {}), values: (_u, ticks) => ticks.map((t) => this.format(t)) },
      ],
      series: [{}, ...series.map((s) => ({ label: s.name, stroke: s.colour, width: 1.75, points: { show: false } }))],
    }, [[], ...series.map(() => [])] as unknown as uPlot.AlignedData, this.box);
    plot.root.querySelector(".u-legend")?.setAttribute("aria-label", "Legend");  // to readers it is a table
    return plot;
  }
}
