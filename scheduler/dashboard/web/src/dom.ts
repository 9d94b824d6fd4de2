// Elements and text. Names come from anybody, so nothing here or elsewhere ever parses markup: text is text.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

function fill(node: Element, props: Props | null, children: Child[]): void {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value as EventListener);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  append(node, ...children);
}

export function append(node: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props?: Props | null, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, props ?? null, children);
  return node;
}

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, props?: Props | null, ...children: Child[]): SVGElementTagNameMap[K] {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, props ?? null, children);
  return node;
}

export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function replace(node: Element, ...children: Child[]): void {
  node.replaceChildren();
  append(node, ...children);
}

// ---- numbers for people ----------------------------------------------------------------------------------------------

export function bytes(n: number | null): string {
  if (n === null) return "not counted";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(n) >= 1024 && unit < 5; ++unit) n /= 1024;
  return unit === 0 ? `${n} B` : `${n >= 100 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

export function count(n: number): string {
  return Math.round(n).toLocaleString("en-US");
}

export function short(n: number): string {
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  for (; Math.abs(n) >= 999.5 && unit < 4; ++unit) n /= 1000;
  return `${n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1)}${units[unit]}`;
}

export function seconds(s: number | null): string {
  if (s === null) return "–";
  if (s === 0) return "0 s";
  if (s < 0) return `−${seconds(-s)}`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  if (s >= 60) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  const units = ["s", "ms", "µs", "ns"];
  let unit = 0;
  for (; Math.abs(s) < 0.9995 && unit < 3; ++unit) s *= 1000;
  return `${Number(s.toPrecision(3))} ${units[unit]}`;
}

export function percent(x: number): string {
  return `${Math.round(Math.max(0, Math.min(1, x)) * 100)} %`;
}

export function opName(op: { kind: string; label: string; position?: number }): string {
  const name = op.label ? `${op.kind} “${op.label}”` : op.kind;
  return op.position === undefined ? name : `${op.position} ${name}`;
}

// The part of an id that differs within one life of the scheduler.
export function shortId(id: string): string {
  return (BigInt(id) & ((1n << 40n) - 1n)).toString();
}
