// Makes a graph of ten thousand ops legible: ops of one kind and label that are about as deep stand together.
export interface Node { inputs: number[]; kind: string; label: string; tasks: number; done: number; failed: number; finished: boolean; began: number | null; ended: number | null; fused: number; position: number }
export interface Group { key: string; kind: string; label: string; column: number; row: number; members: Node[]; critical: boolean }
export interface Edge { from: Group; to: Group; count: number; critical: boolean }
export interface Folded { groups: Group[]; edges: Edge[]; columns: number; rows: number }

const kColumns = 24, kRows = 10;

export function critical(nodes: Node[]): Set<number> {
  // From the op that ended last, always on to the input that ended last: what the end waited for.
  const by = new Map(nodes.map((n) => [n.position, n]));
  let at: Node | undefined;
  for (const n of nodes) if (n.ended !== null && (!at || n.ended > at.ended! || (n.ended === at.ended && n.position > at.position))) at = n;
  const path = new Set<number>();
  while (at && !path.has(at.position)) {
    path.add(at.position);
    let next: Node | undefined;
    for (const i of at.inputs) {
      const input = by.get(i);
      if (input?.ended != null && (!next || input.ended > next.ended!)) next = input;
    }
    at = next;
  }
  return path;
}

export function fold(nodes: Node[]): Folded {
  const depth = new Map<number, number>();
  let deepest = 0;
  for (const n of nodes) {  // producers come first
    let d = 0;
    for (const i of n.inputs) d = Math.max(d, (depth.get(i) ?? -1) + 1);
    depth.set(n.position, d);
    deepest = Math.max(deepest, d);
  }
  const bands = deepest + 1 > kColumns ? kColumns : deepest + 1;
  const column = (n: Node) => Math.floor((depth.get(n.position)! * bands) / (deepest + 1));
  const path = critical(nodes);
  const make = (key: (n: Node) => string): Map<string, Group> => {
    const groups = new Map<string, Group>();
    for (const n of nodes) {
      const k = `${column(n)}\n${key(n)}`;
      let group = groups.get(k);
      if (!group) groups.set(k, (group = { key: k, kind: n.kind, label: n.label, column: column(n), row: 0, members: [], critical: false }));
      group.members.push(n);
      group.critical ||= path.has(n.position);
      if (group.label !== n.label) group.label = "…";
    }
    return groups;
  };
  // Each op for itself where there is room; else by kind and label; else by kind.
  const widest = (groups: Map<string, Group>) => {
    const per = new Array<number>(bands).fill(0);
    for (const g of groups.values()) per[g.column]!++;
    return Math.max(0, ...per);
  };
  let groups = make((n) => String(n.position));
  if (widest(groups) > kRows || nodes.length > 150) groups = make((n) => `${n.kind}\n${n.label}`);
  if (widest(groups) > kRows) groups = make((n) => n.kind);

  const of = new Map<number, Group>();
  for (const g of groups.values()) for (const n of g.members) of.set(n.position, g);
  const edges = new Map<string, Edge>();
  for (const n of nodes) {
    for (const i of n.inputs) {
      const from = of.get(i), to = of.get(n.position)!;
      if (!from || from === to) continue;
      const k = `${from.key}\n\n${to.key}`, edge = edges.get(k);
      const hot = path.has(i) && path.has(n.position);
      if (edge) edge.count++, (edge.critical ||= hot);
      else edges.set(k, { from, to, count: 1, critical: hot });
    }
  }
  // Rows: by where the inputs stand, column after column.
  const inputs = new Map<Group, Group[]>();
  for (const e of edges.values()) inputs.set(e.to, [...(inputs.get(e.to) ?? []), e.from]);
  let rows = 1;
  for (let c = 0; c < bands; ++c) {
    const here = [...groups.values()].filter((g) => g.column === c);
    const wish = (g: Group) => {
      const from = inputs.get(g) ?? [];
      return from.length ? from.reduce((s, f) => s + f.row, 0) / from.length : 1e6;
    };
    here.sort((a, b) => wish(a) - wish(b) || a.members[0]!.position - b.members[0]!.position).forEach((g, i) => (g.row = i));
    rows = Math.max(rows, here.length);
  }
  return { groups: [...groups.values()], edges: [...edges.values()], columns: bands, rows };
}
