// How smooth the timeline is: a trace that `tilewise trace` wrote is opened from its file, then zoomed from all of it to a
// microsecond and moved along, a wheel event a frame. Prints one line of JSON.
//
//   node frames.mjs --chromium PROGRAM --page FOLDER --trace FILE
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser } from "./chromium.mjs";

const { values: options } = parseArgs({ options: { chromium: { type: "string" }, page: { type: "string" }, trace: { type: "string" } } });

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
  await page.send("DOM.setFileInputFiles", { nodeId, files: [options.trace] });
  const shown = (await page.until(`/[\\d,]+ steps and [\\d,]+ transfers over|cannot be shown.*/.exec(document.querySelector("main").innerText)?.[0]`, "the trace is shown", 120));
  const [steps, transfers] = [...shown.matchAll(/[\d,]+/g)].map(([n]) => Number(n.replaceAll(",", "")));
  if (!(steps > 0)) throw new Error(shown);
  // What the tables say is there to be seen: waits and spills are records of their own.
  const told = await page.until(`document.querySelector('[aria-label="What came in, in the range shown"] tbody tr') && document.querySelector("main").innerText`, "it is summed up", 60);
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
  console.log(JSON.stringify({ steps, transfers, spills: /\bspill\b/.test(told), ...measured }));
} finally {
  await browser.close();
  server.close();
}
