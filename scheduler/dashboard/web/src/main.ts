// The page: a bar of views, one view at a time, and a word on how the link to the scheduler is.
import { h, replace, seconds, setText } from "./dom";
import { live, post, type Watch } from "./live";
import type { View } from "./parts";
import { themeButton } from "./theme";
import { arrays } from "./views/arrays";
import { clients } from "./views/clients";
import { devices } from "./views/devices";
import { explain } from "./views/explain";
import { graph } from "./views/graph";
import { overview } from "./views/overview";
import { timeline } from "./views/timeline";

interface Page { title: string; make: (root: HTMLElement, id: string | undefined) => View; watch: (id: string | undefined) => Watch[]; offline?: boolean }
const pages: Record<string, Page> = {
  overview: { title: "Overview", make: overview, watch: () => [] },
  timeline: { title: "Timeline", make: timeline, watch: () => [], offline: true },
  graph: { title: "Graph", make: graph, watch: (id) => (id ? [{ view: "graph", id }] : []) },
  arrays: { title: "Arrays", make: arrays, watch: () => [{ view: "arrays" }] },
  devices: { title: "Devices", make: devices, watch: () => [{ view: "arrays" }, { view: "links" }] },
  explain: { title: "Explain", make: explain, watch: (id) => (id ? [{ view: "graph", id }] : []) },
  clients: { title: "Clients, errors, log", make: clients, watch: () => [{ view: "log" }] },
};

const app = document.getElementById("app")!;
const links = new Map<string, HTMLElement>();
const state = h("span", { class: "link-state", role: "status" });
const facts = h("span", { class: "muted facts" });
const main = h("main", { id: "main", tabindex: -1 });
const bar = h("header", { class: "top" }, h("a", { class: "brand", href: "#/overview" }, h("span", { class: "logo", "aria-hidden": "true" }), "Tilewise"),
  h("nav", { "aria-label": "Views" }, ...Object.entries(pages).map(([key, page]) => {
    const link = h("a", { href: `#/${key}` }, page.title);
    links.set(key, link);
    return link;
  })), h("div", { class: "row tools" }, facts, state, themeButton(() => route())));
app.append(bar, main);

let shown: View | null = null;

function loginForm(): HTMLElement {
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const why = h("p", { class: "bad", role: "alert" });
  return h("section", { class: "card login" }, h("h1", null, "Log in"),
    h("p", null, "On a machine that has the cluster's token, run"), h("pre", null, "tilewise dashboard"),
    h("p", null, "and open the link that it prints: it works once. Or paste a role's token, which ", h("code", null, "tilewise dashboard --print-token reader"), " prints."),
    h("form", { submit: (e: Event) => {
      e.preventDefault();
      post("/login", { token: token.value }).then(() => (token.value = "", live.start()), (error: Error) => (why.textContent = error.message));
    } }, h("label", { for: "token" }, "Token"), token, h("button", { type: "submit" }, "Log in")), why,
    h("p", { class: "muted" }, "A trace that was saved can be looked at without: ", h("a", { href: "#/timeline" }, "Timeline"), "."));
}

function route(): void {
  const [key = "overview", id] = location.hash.replace(/^#\//, "").split("/");
  const page = pages[key] ?? pages["overview"]!;
  shown?.unmount?.();
  shown = null;
  replace(main, h("h1", { class: "unseen" }, page.title));
  document.title = `${page.title} – Tilewise`;
  for (const [name, link] of links) {
    if (pages[name] === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (live.state === "locked" && !page.offline) {
    main.append(loginForm());
    return;
  }
  const box = h("div", { class: "view" });
  main.append(box);
  shown = page.make(box, id && /^\d+$/.test(id) ? id : undefined);
  live.watch(page.watch(id));
  shown.update();
}

let pending = false, locked = false;
live.changed = () => {
  if ((live.state === "locked") !== locked) {
    locked = live.state === "locked";
    route();
  }
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    const words = { connecting: "Connecting …", live: "● Live", offline: "○ Not connected: trying again", locked: "Not logged in" };
    setText(state, words[live.state]);
    state.className = `link-state ${live.state}`;
    setText(facts, live.overview ? `v${live.overview.version} · up ${seconds(Math.round(live.overview.now))}${live.role ? ` · ${live.role}` : ""}` : "");
    shown?.update();
  });
};

window.addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
route();
live.start();
