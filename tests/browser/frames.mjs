// How smooth the timeline is: a trace of so many steps is opened from a file, then zoomed from all of it to a microsecond
// and moved along, a wheel event a frame. Prints one line of JSON.
//
//   node frames.mjs --chromium PROGRAM --page FOLDER --steps N
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser } from "./chromium.mjs";

const { values: options } = parseArgs({ options: { chromium: { type: "string" }, page: { type: "string" }, steps: { type: "string" } } });
const steps = Number(options.steps), folder = mkdtempSync(join(tmpdir(), "tilewise-frames-")), trace = join(folder, "trace.json");

// What `tilewise trace` would write of a run on 16 devices: busy nine tenths of the time, steps of 1 to 200 us.
const file = openSync(trace, "w");
writeSync(file, '{"displayTimeUnit":"ns","traceEvents":[');
for (let d = 0; d < 16; ++d) writeSync(file, `${d ? "," : ""}{"ph":"M","name":"process_name","pid":${d + 1},"args":{"name":"w${1 + (d >> 1)}/host:${d & 1}"}}`);
const kinds = ["matmul", "map", "reduce_blocks", "combine", "copy", "call heat.windowed"], ends = new Array(16).fill(0);
let random = 12345;
const next = () => (random = (Math.imul(random, 1103515245) + 12345) >>> 0) / 2 ** 32;
for (let i = 0, text = ""; i < steps; ++i) {
  const d = i % 16, took = 1 + 199 * next() ** 3, start = ends[d] + took * 0.2 * next();
  ends[d] = start + took;
  text += `,{"ph":"X","name":"${kinds[Math.floor(next() * kinds.length)]}","pid":${d + 1},"tid":0,"ts":${start.toFixed(3)},"dur":${took.toFixed(3)},"args":{"op":${1000 + (i >> 10)},"graph":7,"point":${i}}}`;
  if (text.length > 1 << 20 || i + 1 === steps) writeSync(file, text), (text = "");
}
writeSync(file, "]}\n");
closeSync(file);

const types = { "/": ["index.html", "text/html"], "/app.js": ["app.js", "text/javascript"], "/app.css": ["app.css", "text/css"], "/icon.svg": ["icon.svg", "image/svg+xml"] };
const server = createServer((request, response) => {
  const found = types[request.url];
  response.writeHead(found ? 200 : 401, { "Content-Type": found?.[1] ?? "application/json" }).end(found ? readFileSync(join(options.page, found[0])) : "{}");
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const browser = await Browser.start(options.chromium);
try {
  const page = await browser.page();
  await page.go(`http://127.0.0.1:${server.address().port}/#/timeline`);
  await page.until("document.querySelector('.link-state').innerText === 'Not logged in' && document.getElementById('open-trace')", "the page is there");
  const { root } = await page.send("DOM.getDocument");
  const { nodeId } = await page.send("DOM.querySelector", { nodeId: root.nodeId, selector: "#open-trace" });
  await page.send("DOM.setFileInputFiles", { nodeId, files: [trace] });
  await page.until(`document.querySelector("main").innerText.includes("${steps.toLocaleString("en-US")} steps")`, "the trace is shown", 120);
  const measured = await page.run(`(async () => {
    const canvas = document.querySelector("canvas.timeline"), box = canvas.getBoundingClientRect();
    const wheel = (deltaX, deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", { deltaX, deltaY, clientX: box.x + box.width * 0.6, clientY: box.y + 60, cancelable: true, bubbles: true }));
    const frames = [], draws = [];
    const real = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (fn) => real((t) => { const begin = performance.now(); fn(t); draws.push(performance.now() - begin); });
    let last = performance.now();
    for (let i = 0; i < 300; ++i) {
      const at = i % 150;
      if (at < 60) wheel(0, -90);
      else if (at < 90) wheel(at % 2 ? 400 : 300, 0);
      else wheel(0, 90);
      await new Promise((resolve) => real(resolve));
      const now = performance.now();
      if (i > 5) frames.push(now - last);
      last = now;
    }
    const p95 = (values) => values.sort((a, b) => a - b)[Math.floor(values.length * 0.95)];
    return { frame_p95_ms: p95(frames), draw_p95_ms: p95(draws), frames: frames.length };
  })()`);
  console.log(JSON.stringify({ steps, ...measured }));
} finally {
  await browser.close();
  server.close();
  rmSync(folder, { recursive: true, force: true });
}
