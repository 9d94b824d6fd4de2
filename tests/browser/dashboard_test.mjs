// The dashboard in a real browser, against a live cluster whose numbers are known.
//
//   node dashboard_test.mjs --programs SCHEDULER,WORKER,TOOL,CLIENT --chromium PROGRAM [--pictures FOLDER]
//
// With --pictures the pictures of docs/ are taken on the way.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser, timesSlower } from "./chromium.mjs";
import { Cluster, pause } from "./cluster.mjs";

const { values: options } = parseArgs({ options: { programs: { type: "string" }, chromium: { type: "string" }, pictures: { type: "string" } } });
const folder = mkdtempSync(join(tmpdir(), "tilewise-browser-"));
let cluster = new Cluster(options.programs.split(","), folder);
if (options.pictures) mkdirSync(options.pictures, { recursive: true });

let browser, page, passed = 0;
async function check(what, body) {
  const begin = Date.now();
  await body();
  ++passed;
  console.log(`ok ${passed} ${what} (${Date.now() - begin} ms)`);
}
// The page has turned to it when its link says so; until then the text of the last view still stands there.
async function show(view) {
  await page.go(`${cluster.base}/#/${view}`);
  await page.until(`document.querySelector('nav a[aria-current=page]')?.getAttribute("href") === "#/${view.split("/")[0]}" && location.hash === "#/${view}"`, `${view} is shown`);
}
const text = (selector) => page.run(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);
const press = (label) => page.run(`(() => { const b = [...document.querySelectorAll("button, .button")].find((b) => b.innerText.startsWith(${JSON.stringify(label)})); b?.click(); return !!b; })()`);
const says = (what, seconds) => page.until(`document.querySelector("main").innerText.includes(${JSON.stringify(what)})`, `the page says "${what}"`, seconds);
async function picture(name) {
  if (!options.pictures) return;
  await pause(700);
  await page.picture(join(options.pictures, `${name}.png`));
}

async function tests() {
  await cluster.start(2);
  const client = await cluster.client("notebook");
  browser = await Browser.start(options.chromium);
  page = await browser.page();

  await check("without a role the page shows nothing but how to log in", async () => {
    await show("overview");
    await says("Log in");
    assert.equal(await page.run("document.querySelectorAll('table').length"), 0);
    assert.equal(await page.run("fetch('/api/overview').then((r) => r.status)"), 401);
    page.complaints.length = 0;  // the browser notes each 401
  });

  await check("a login link works once and leaves no trace in the address", async () => {
    const link = await cluster.loginLink("operator");
    await page.go(link);
    await page.until("document.querySelector('.link-state.live')", "it is live");
    assert.equal(await page.run("location.href"), `${cluster.base}/`);
    assert.equal(await page.run("document.cookie"), "");
    assert.equal((await fetch(link, { redirect: "manual" })).status, 401);
  });

  await check("overview: the workers and devices that there are", async () => {
    await show("overview");
    await says("4 devices on 2 workers");
    await page.until("document.querySelectorAll('[aria-label=\"Devices with load and memory\"] tbody tr').length === 4", "four devices");
    assert.match(await text(".warnings"), /Nothing to worry about/);
  });

  await client.do("hold");
  await client.do("known");
  await check("arrays: shapes, bytes and blocks of known arrays", async () => {
    await show("arrays");
    await says("“gram matrix”");
    await says("16 of 16 blocks");  // the page may have been told of the array's last block after the client was
    const rows = await page.run("[...document.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))");
    const features = rows.find((r) => r[0].includes("features")), gram = rows.find((r) => r[0].includes("gram matrix"));
    assert.deepEqual(features.slice(1, 4), ["float64", "(2048, 1024)", "16.0 MiB"]);
    assert.match(features[4], /32 of 32 blocks/);
    assert.deepEqual(gram.slice(1, 4), ["float64", "(1024, 1024)", "8.0 MiB"]);
    assert.match(gram[4], /16 of 16 blocks/);
  });

  await check("arrays: a block's owner and story", async () => {
    await page.run("[...document.querySelectorAll('tbody tr')].find((r) => r.innerText.includes('gram matrix')).click()");
    await page.until("document.querySelector('canvas.blocks')?.width > 0 && /owns/.test(document.querySelector('canvas.blocks').getAttribute('aria-label') ?? '')", "the grid is drawn");
    assert.match(await page.run("document.querySelector('canvas.blocks').getAttribute('aria-label')"), /4 by 4 shown.*(owns 4.*){4}/);
    await page.run("document.querySelector('canvas.blocks').focus()");
    for (const key of ["ArrowRight", "ArrowDown"]) await page.send("Input.dispatchKeyEvent", { type: "keyDown", key, code: key });
    await says("Block (1, 0)");
    await says("matmul “gram matrix”");
    await says("on w");
    await says("at home, 512 KiB");
    // What the grid says is what the workers say.
    const shown = (await cluster.api("arrays")).arrays.find((a) => a.label === "gram matrix");
    const copies = (await cluster.api(`blocks?id=${shown.id}&first=0&count=16`)).copies;
    assert.equal(copies.filter((c) => c.owned && c.state === "here").length, 16);
    await says("16 at home");
    const story = await text("main");
    assert.match(story, /Moved \d+ time|No move of it is remembered/);
    await picture("arrays");
  });

  await check("graph: ended graphs with their ops, as written and as planned", async () => {
    // The client had its number before the scheduler heard of the last task, perhaps.
    const known = await cluster.until(async () => { const all = (await cluster.api("overview")).graphs; return all.find((g) => g.ops > 1 && g.state === "done" && g.request === Math.max(...all.map((x) => x.request))); }, "the last graph has ended");
    await show(`graph/${known.id}`);
    await says("as written");
    const detail = await cluster.api(`graph?id=${known.id}`);
    assert.equal(detail.summary.done, detail.summary.tasks);
    assert.equal(detail.ops.reduce((n, o) => n + o.tasks, 0), detail.summary.tasks);
    await page.until(`document.querySelectorAll('.dag .node').length === ${detail.ops.filter((o) => o.kind !== "fetch" || o.inputs.length).length}`, "a node an op");
    await press("As written");
    await page.until(`document.querySelectorAll('.dag .node').length === ${detail.source_count}`, "a node an op as written");
    await says("“total”");
  });

  await check("timeline: every step that the workers remember", async () => {
    await show("timeline");
    const trace = await cluster.api("trace");
    const kinds = trace.kind.map((k) => trace.kinds[k]), many = (kind) => kinds.filter((k) => k === kind).length.toLocaleString("en-US");
    await says(`${many("step")} steps and ${many("transfer")} transfers over`);
    await says("Nothing was left out");
    // What came in, by lane: the sums of the records.
    await page.until("document.querySelector('[aria-label=\"What came in, in the range shown\"] tbody tr')", "transfers are told");
    const came = await page.run("[...document.querySelectorAll('[aria-label=\"What came in, in the range shown\"] tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))");
    for (const [how, blocks] of came) {
      const lane = trace.lanes.indexOf(how.trim().replace("lane ", ""));
      assert.equal(Number(blocks.replaceAll(",", "")), kinds.filter((k, i) => k === "transfer" && trace.lane[i] === lane).length, how);
    }
    assert.ok(kinds.includes("no work"), "idle devices say why");
    await says("Waited for inputs");
    // A range: the last millisecond has less than all.
    assert.ok((await cluster.api("trace?from_us=1000")).kind.length < trace.kind.length);
    // From the keyboard: a transfer, and what it came from.
    await page.run("document.querySelector('canvas.timeline').focus()");
    for (let i = 0; i < 12 && !/lane /.test(await text(".said strong")); ++i) await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "ArrowDown", code: "ArrowDown" });
    assert.match(await text(".said"), /lane [\s\S]*It came from[\s\S]*(matmul|map|reduce)/);
    await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "Escape", code: "Escape" });
    assert.equal(await text(".said"), "");
    await page.run("document.querySelector('canvas.timeline').focus()");
    const all = await text(".row span.muted");
    for (let i = 0; i < 40; ++i) await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "+", text: "+" });
    await page.until("/µs – .*µs|ns/.test([...document.querySelectorAll('span.muted')].map((s) => s.innerText).join(' ')) || true", "zoomed");
    assert.notEqual(await page.run("document.querySelector('canvas.timeline').getAttribute('aria-label')"), all);
    await press("All of it");
  });

  await check("timeline: refused because others ask, it asks again", async () => {
    await page.run(`(() => {
      const real = window.fetch;
      let refused = 0;
      window.fetch = (path, more) => String(path).startsWith("/api/trace") && refused++ < 3 ? Promise.resolve(new Response('{"error":"others are collecting traces"}', { status: 503 })) : real(path, more);
      window.restoreFetch = () => ((window.fetch = real), refused);
    })()`);
    await press("Fetch from workers");
    await page.until("document.querySelector('main').innerText.includes('Asking the workers') || true", "it asks");
    await page.until("/steps and .* transfers over/.test(document.querySelector('main').innerText)", "it is told");
    assert.ok(await page.run("window.restoreFetch()") > 3);
    assert.doesNotMatch(await text("main"), /No trace/);
  });

  await client.do("fail");
  await check("errors: the root cause and what depended on it", async () => {
    await show("clients");
    await says("/nowhere/at/all");
    await says("did not complete because of it");
    await page.run("(() => { const s = document.getElementById('log-search'); s.value = 'graph ended'; s.dispatchEvent(new Event('input')); })()");
    await says("1 of the last");
    await says("graph ended early");
    // Its number is the page's, and leads there; the whole one is found too.
    const [, long] = /#\/graph\/(\d+)/.exec(await page.run("document.querySelector('[aria-label=Log] a').getAttribute('href')"));
    const short = String(BigInt(long) & ((1n << 40n) - 1n));
    assert.equal(await text("[aria-label=Log] a"), `graph=${short}`);
    for (const words of [`graph=${short} ended`, `${long} ended`]) {
      await page.run(`(() => { const s = document.getElementById('log-search'); s.value = ${JSON.stringify(words)}; s.dispatchEvent(new Event('input')); })()`);
      await says("1 of the last");
    }
    await picture("clients");
  });

  await client.do("work");
  await check("a running graph: progress, and what is predicted of the rest", async () => {
    await show("overview");
    await says("“square”");
    await page.until("document.querySelector('.graph progress')?.value > 0", "it makes progress");
    await pause(3000);
    await picture("overview");
    const running = (await cluster.api("overview")).graphs.find((g) => g.state === "running");
    assert.equal(running.tasks, 1601 * 16 + 1600 * 16);
    await show(`graph/${running.id}`);
    await says("groups of one kind");
    await picture("graph");
    await show(`explain/${running.id}`);
    await page.until("!document.querySelector('main button').disabled", "it can be asked");
    for (let tries = 0; tries < 4; ++tries) {  // on a very busy machine the scheduler may be too late
      await press("Predict");
      await page.until("/no schedule is shorter than|did not answer in time/.test(document.querySelector('main').innerText) && !document.querySelector('main button').disabled", "it is told");
      if ((await text("main")).includes("no schedule")) break;
    }
    await says("no schedule is shorter than");
    // Of a long chain little is there at once: the prediction is of that size, not of all that is still to be made.
    const peaks = await page.run("[...document.querySelectorAll('[aria-label=\"Devices, predicted\"] tbody tr')].map((r) => r.cells[3].innerText)");
    assert.ok(peaks.length === 4 && peaks.every((p) => /^[1-5]?[\d.]{1,4} (MiB|KiB)$/.test(p)), `predicted peaks ${peaks}`);
    await picture("explain");
    await show("timeline");
    await pause(500);
    await press("Fetch");
    await says("matmul");
    await picture("timeline");
    await show("devices");
    await pause(2500);
    await page.until("document.querySelectorAll('[aria-label=\"Devices\"] tbody tr').length === 4", "four devices");
    // The matrix: what each device took in from each other one.
    const links = (await cluster.api("links")).links;
    assert.ok(links.length > 0 && links.every((l) => l.bytes > 0));
    await page.until("document.querySelectorAll('table.matrix tbody tr').length >= 4 && document.querySelector('[aria-label=\"Links between devices\"] tbody tr')", "links are told");
    await picture("devices");
    await show(`graph/${running.id}`);
    await page.until(`[...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Cancel'))`, "it can be cancelled");
    await press("Cancel …");
    await press("Cancel the graph");
    await says("was cancelled by an operator");
  });

  await check("explain: what was measured stands beside what was predicted", async () => {
    const done = (await cluster.api("overview")).graphs.find((g) => g.state === "done" && g.ops > 1);
    await show(`explain/${done.id}`);
    const detail = await cluster.api(`graph?id=${done.id}`);
    const ran = detail.ops.filter((o) => o.tasks > 0);
    assert.ok(ran.length > 0 && ran.every((o) => o.busy_s > 0 && o.busiest_s <= o.busy_s && o.busiest_s > 0), JSON.stringify(ran));
    await says("Peaks, measured");
    await page.until("document.querySelectorAll('[aria-label=\"Peaks, measured\"] tbody tr').length > 0", "peaks are told");
    await says("No other graph ran meanwhile");
    // Where else each op might have been, as it was reckoned when it was placed: without asking for a prediction.
    const placed = detail.ops.filter((o) => o.rejected.length > 0);
    assert.ok(placed.length > 0 && placed.every((o) => o.rejected.length <= 2 && o.rejected.every((r) => r.policy && r.placement && r.seconds >= o.predicted_s)), JSON.stringify(detail.ops));
    const cells = await page.run("[...document.querySelectorAll('.instead')].map((n) => n.innerText)");
    assert.deepEqual(cells.map((c) => c.replace(/ [^ ]+ [^ ]+$/, "")), placed.flatMap((o) => o.rejected.map((r) => `rather than ${r.policy} (${r.placement})`)));
  });

  await check("explain: graphs that run at once are on paper together", async () => {
    await client.do("work");
    const other = await cluster.client("beside");
    await other.do("work");
    const both = await cluster.until(async () => { const all = (await cluster.api("overview")).graphs.filter((g) => g.state === "running" && g.done > 0); return all.length === 2 && all; }, "two graphs run");
    await show(`explain/${both[1].id}`);
    await page.until("!document.querySelector('main button').disabled", "it can be asked");
    await press("Predict");
    await page.until("/With the other graph that runs beside it|with what runs beside it/.test(document.querySelector('main').innerText)", "both are on paper");
    await client.do("drop");
    for (const g of both) await page.run(`fetch("/api/cancel", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ graph: "${g.id}" }) })`);
    await cluster.until(async () => (await cluster.api("overview")).graphs.every((g) => g.state !== "running"), "both are cancelled");
  });

  await check("an operator drains a worker: its blocks move and it leaves", async () => {
    await show("devices");
    await page.until("document.querySelectorAll('[data-drain]').length === 4", "each can be drained");
    const held = (await cluster.api("arrays")).arrays.filter((a) => a.held).map((a) => a.id);
    const recovered = (await cluster.api("overview")).recovered;
    await page.run("document.querySelector('[data-drain]').click()");
    await page.run("document.querySelector('dialog .danger').click()");
    await cluster.until(async () => (await cluster.api("overview")).devices.length === 2, "it has left");
    await page.until("document.querySelectorAll('[data-drain]').length === 2", "the page says so");
    const after = await cluster.api("overview");
    assert.equal(after.draining.length, 0);
    assert.ok(after.lost[0].drained);
    assert.ok(!after.warnings.some((w) => w.code === "worker-lost"), "nothing was lost");
    assert.equal(after.recovered, recovered);
    assert.deepEqual((await cluster.api("arrays")).arrays.filter((a) => a.held).map((a) => a.id), held);
    await client.do("known");
    await cluster.addWorker();
    await page.until("document.querySelectorAll('[data-drain]').length === 4", "another one comes");
  });

  await check("an operator releases an array", async () => {
    await show("arrays");
    await says("“gram matrix”");
    await page.run("[...document.querySelectorAll('tbody tr')].find((r) => r.innerText.includes('gram matrix')).click()");
    await page.until("[...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Release'))", "it can be released");
    await press("Release …");
    await page.run("document.querySelector('dialog .danger').click()");
    await page.until("!document.querySelector('[aria-label=Arrays] tbody').innerText.includes('gram matrix')", "it is gone");
  });

  await check("what was before the page was opened is there: load, memory, arrays", async () => {
    const told = await cluster.until(async () => { const h = await cluster.api("history"); return h.samples.some((s) => s.arrays.some(([, name]) => name === "features")) && h; }, "it is kept");
    assert.ok(told.samples.every((s) => s.used.length === s.busy.length) && told.samples.some((s) => s.used.length === 4));  // fewer while one was drained
    await page.go("about:blank");
    await show("devices");
    await page.until("/features .*16.0 MiB/.test(document.querySelector('[aria-label^=\"Memory by array\"]')?.getAttribute('aria-label') ?? '')", "arrays are charted");
  });

  await check("hostile names are text", async () => {
    const hostile = await cluster.client();
    await hostile.do("hostile");
    for (const view of ["overview", "arrays", "graph", "explain", "clients"]) {
      await show(view);
      if (view !== "overview") await says("<img src=x onerror=");
      assert.notEqual(await page.run("document.title"), "owned");
      assert.equal(await page.run("document.querySelectorAll('main img, main b, main script').length"), 0);
    }
  });

  await check("ten thousand ops are folded", async () => {
    await client.do("wide");
    const graph = await cluster.until(async () => (await cluster.api("overview")).graphs.find((g) => g.ops > 5000), "the wide graph");
    await show(`graph/${graph.id}`);
    await says("groups of one kind");
    const nodes = await page.run("document.querySelectorAll('.dag .node').length");
    assert.ok(nodes > 5 && nodes <= 240, `${nodes} nodes`);
    // Every op is in one of them, and each can be read: its words have room in its box.
    const detail = await cluster.until(async () => { const g = await cluster.api(`graph?id=${graph.id}`); return g.summary.state === "done" && g; }, "it is done");
    await page.until("[...document.querySelectorAll('.dag .node')].every((n) => n.classList.contains('done'))", "all are done");
    const sizes = await page.run("[...document.querySelectorAll('.dag .node')].map((n) => Number((/ × ([\\d,]+)/.exec(n.getAttribute('aria-label'))?.[1] ?? '1').replaceAll(',', '')))");
    assert.equal(sizes.reduce((a, b) => a + b, 0), detail.ops.filter((o) => o.kind !== "fetch" || o.inputs.length > 0).length);
    const cut = await page.run("[...document.querySelectorAll('.dag .node')].filter((n) => [...n.querySelectorAll('text')].some((t) => t.getBBox().x < 0 || t.getBBox().x + t.getBBox().width > 176)).map((n) => n.textContent)");
    assert.deepEqual(cut, []);
    // The critical path: from the op that ended last to one that reads nothing, by what ended last of what each reads.
    const by = new Map(detail.ops.map((o) => [o.position, o])), last = (list) => list.reduce((a, b) => (!a || b.ended > a.ended || (b.ended === a.ended && b.position > a.position) ? b : a), null);
    let length = 0;
    for (let at = last(detail.ops.filter((o) => o.ended !== null)); at; at = last(at.inputs.map((i) => by.get(i)).filter((o) => o?.ended != null))) ++length;
    assert.ok(length >= 50, `${length} ops on the path`);  // of a hundred chains of fifty products
    const critical = await page.run("[...document.querySelectorAll('.dag .node.critical')].map((n) => Number(/translate\\(([\\d.]+)/.exec(n.getAttribute('transform'))[1]))");
    assert.equal(new Set(critical).size, await page.run("new Set([...document.querySelectorAll('.dag .node')].map((n) => n.getAttribute('transform').split(' ')[0])).size"), "it goes through every column");
  });

  await check("the page opens while a million tasks run", async () => {
    await client.do("many");
    const begin = Date.now();
    await page.go("about:blank");
    await show("overview");
    await page.until("document.querySelectorAll('[aria-label=\"Devices with load and memory\"] tbody tr').length === 4", "it is open", 10);
    console.log(`   open after ${Date.now() - begin} ms`);
  });

  await check("keyboard, names and landmarks", async () => {
    for (const view of ["overview", "timeline", "graph", "arrays", "devices", "explain", "clients"]) {
      await show(view);
      await pause(250);
      const wrong = await page.run(`(() => {
        const bad = [];
        for (const b of document.querySelectorAll("button, a, [role=button]")) if (!(b.innerText || b.textContent || b.getAttribute("aria-label"))?.trim()) bad.push("nameless " + b.outerHTML);
        for (const c of document.querySelectorAll("canvas, [role=img]")) if (!c.closest("[aria-label]")) bad.push("nameless picture");
        for (const i of document.querySelectorAll("input, select")) if (!i.labels?.length) bad.push("unlabelled " + i.id);
        for (const t of document.querySelectorAll("main table:not(.u-legend)")) if (!t.querySelector("th[scope]")) bad.push("table without headers");
        for (const s of ["main", "nav[aria-label]", "h1"]) if (!document.querySelector(s)) bad.push("no " + s);
        if (document.documentElement.lang !== "en") bad.push("no language");
        return bad;
      })()`);
      assert.deepEqual(wrong, [], view);
      // As a screen reader is told.
      const { nodes } = await page.send("Accessibility.getFullAXTree");
      const told = nodes.filter((n) => !n.ignored).map((n) => ({ role: n.role?.value, name: n.name?.value?.trim() ?? "", level: n.properties?.find((p) => p.name === "level")?.value.value }));
      const needs = ["button", "link", "textbox", "searchbox", "spinbutton", "combobox", "tab", "image", "img", "table", "progressbar", "navigation", "region", "heading"];
      assert.deepEqual(told.filter((n) => needs.includes(n.role) && !n.name), [], `${view}: what has no name`);
      assert.deepEqual(told.filter((n) => n.role === "heading" && n.level === 1).length, 1, view);
      assert.ok(told.some((n) => n.role === "main") && told.some((n) => n.role === "banner") && told.some((n) => n.role === "heading" && n.level === 2), `${view}: landmarks`);
      assert.ok(told.some((n) => n.role === "table"), `${view}: its figures are in a table`);
      if (process.env.TILEWISE_SAY) console.log(`--- ${view}\n${told.filter((n) => n.name && n.role !== "InlineTextBox" && n.role !== "StaticText").map((n) => `${n.role}: ${n.name.slice(0, 100)}`).join("\n")}`);
    }
    await page.run("document.activeElement.blur()");
    await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "Tab", code: "Tab", windowsVirtualKeyCode: 9 });
    assert.notEqual(await page.run("document.activeElement.tagName"), "BODY");
  });

  await check("small screens do not scroll sideways; dark colours are dark", async () => {
    await page.size(390, 844, true);
    for (const view of ["overview", "arrays", "clients", "devices", "timeline", "graph", "explain"]) {
      await show(view);
      await pause(400);
      const wide = await page.run("document.documentElement.scrollWidth");
      const widest = await page.run(`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 400
        && !e.closest(".scroll, svg, canvas")).map((e) => e.outerHTML.slice(0, 160)).at(-1)`);
      assert.ok(wide <= 400, `${view}: ${wide} pixels wide, for one because of ${widest}`);
      if (process.env.TILEWISE_ALL_PICTURES) await picture(`small-${view}`);
    }
    await page.size(1360, 860);
    await page.colours("dark");
    for (const view of process.env.TILEWISE_ALL_PICTURES ? ["timeline", "arrays", "devices", "graph", "explain"] : []) {
      await show(view);
      await pause(1200);
      await picture(`dark-${view}`);
    }
    await show("overview");
    await picture("dark");
    const back = await page.run("getComputedStyle(document.body).backgroundColor");
    assert.ok(Number(/\d+/.exec(back)[0]) < 60, back);
    await page.colours("light");
  });

  await check("a worker's death is shown within two seconds", async () => {
    await show("overview");
    await says("4 devices on 2 workers");
    const begin = Date.now();
    cluster.kill(cluster.workers[1]);
    await says("was lost");
    const took = Date.now() - begin;
    await says("2 devices on 1 workers");
    assert.ok(took < 2000 * timesSlower, `${took} ms`);
    console.log(`   shown after ${took} ms`);
  });

  // The command-line tool collects traces too: the page is then told to ask again, which browsers call an error.
  const asksAgain = (complaint) => complaint.includes(" 503 ") && complaint.includes("/api/trace");
  await check("nothing was wrong on the page's console, no rule of its policy broken", () =>
    assert.deepEqual(page.complaints.filter((complaint) => !asksAgain(complaint)), []));

  await check("a trace that was saved is replayed without a cluster", async () => {
    const file = join(folder, "trace.json");
    await cluster.tool("trace", file);
    await show("timeline");
    await page.until("document.getElementById('open-trace')", "there is a file button");
    const { root } = await page.send("DOM.getDocument");
    const { nodeId } = await page.send("DOM.querySelector", { nodeId: root.nodeId, selector: "#open-trace" });
    cluster.kill(cluster.scheduler);
    await page.until("document.querySelector('.link-state.offline')", "it says that it is alone");
    await page.send("DOM.setFileInputFiles", { nodeId, files: [file] });
    await says("from trace.json");
    assert.doesNotMatch(await text("main"), /cannot be shown/);
  });

  await check("the page survives a restart of the scheduler, still logged in", async () => {
    await cluster.restart(2);
    await page.until("document.querySelector('.link-state.live')", "it is live again", 30);
    await show("overview");
    await says("No worker has joined");
    await cluster.addWorker();
    await says("2 devices on 1 workers");
  });

  await check("a scheduler that keeps its state goes on where it was, and so does the page", async () => {
    cluster.stop();
    cluster = new Cluster(options.programs.split(","), join(folder, "kept"), true);
    await cluster.start(2);
    const client = await cluster.client("patient");
    await client.do("hold");
    await client.do("work");
    await page.go(await cluster.loginLink("operator"));
    await page.until("document.querySelector('.link-state.live')", "it is live");
    const running = await cluster.until(async () => (await cluster.api("overview")).graphs.find((g) => g.state === "running" && g.done > 100), "it makes progress");
    await show(`graph/${running.id}`);
    await says("of 51,216 tasks");
    cluster.kill(cluster.scheduler);
    await page.until("document.querySelector('.link-state.offline')", "it says that nobody is there");
    const before = await page.run("Number(/([\\d,]+) of 51,216 tasks/.exec(document.querySelector('main').innerText)[1].replaceAll(',', ''))");
    await cluster.restart(2);
    await page.until("document.querySelector('.link-state.live')", "it is live again", 30);
    // The same graph, on the same page, goes on: nothing was begun anew.
    await page.until(`Number(/([\\d,]+) of 51,216 tasks/.exec(document.querySelector('main').innerText)?.[1].replaceAll(',', '')) > ${before + 200}`, "the graph goes on", 40);
    assert.equal(await page.run("location.hash"), `#/graph/${running.id}`);
    await show("overview");
    await says("4 devices on 2 workers");
    await show("arrays");
    await says("“gram matrix”");
    await show("clients");
    await says("patient");
    await show(`graph/${running.id}`);
    await page.until(`[...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Cancel'))`, "it can be cancelled");
    await press("Cancel …");
    await press("Cancel the graph");
    await says("was cancelled by an operator");
  });
}

let failure = null;
try {
  await tests();
} catch (error) {
  failure = error;
}
await browser?.close();
cluster.stop();
rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
if (failure) {
  console.error(failure);
  console.error(cluster.words());
  process.exit(1);
}
console.log(`${passed} checks passed`);
