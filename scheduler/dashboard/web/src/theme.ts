// Colours: the page's own light and dark, and one per device or kind of work. Colour never stands alone: names are beside it.
import { h } from "./dom";

const kKey = "tilewise-theme";

export function dark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function themeButton(changed: () => void): HTMLElement {
  const remembered = localStorage.getItem(kKey);
  if (remembered) document.documentElement.dataset.theme = remembered;
  const button = h("button", { type: "button", class: "quiet", click: () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem(kKey, document.documentElement.dataset.theme);
    label();
    changed();
  } });
  const label = () => {
    button.textContent = dark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (label(), changed()));
  label();
  return button;
}

export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Twelve that are told apart by most eyes, then turns of the circle.
const kPalette = ["#3b7dd8", "#e0862e", "#2f9e77", "#c64f86", "#8a6bd1", "#b59f22", "#3aa5b8", "#d05a4e", "#6f8f3a", "#9a6b4f", "#5a6fa8", "#a65fb0"];
export function colour(i: number): string {
  if (i < 0) return "#888888";
  return i < kPalette.length ? kPalette[i]! : `hsl(${(i * 137.5) % 360} 55% ${i % 2 === 0 ? 50 : 62}%)`;
}

// The same kind of work has the same colour everywhere.
const kKinds = ["matmul", "map", "reduce_blocks", "combine", "copy", "call", "matmul_panels", "reshape", "read_npy", "write_npy", "fetch", "provide"];
// What is no work: calm where nothing was to be done, loud where something was.
const kOthers: Record<string, string> = {
  "no work": "#9aa3ad", "waits for inputs": "#d9a520", "waits for memory": "#c8412f", spill: "#c8412f", unspill: "#d9a520",
  "lane mapped": "#4f9d69", "lane same-device": "#4f9d69", "lane peer-copy": "#2f8fb0", "lane cuda-ipc": "#2f8fb0", "lane shared-memory": "#3f76c9",
  "lane rdma": "#7a5bc9", "lane tcp": "#c06a1f", "lane staged": "#c8412f", "lane inline": "#6b7b8c",
};
export function kindColour(kind: string): string {
  if (kOthers[kind]) return kOthers[kind]!;
  const family = kind.split(" ")[0]!;
  let i = kKinds.indexOf(family);
  if (family === "call" || i < 0) {
    let hash = 7;
    for (const c of kind) hash = (hash * 31 + c.charCodeAt(0)) >>> 0;
    i = 12 + (hash % 24);
  }
  return colour(i);
}
