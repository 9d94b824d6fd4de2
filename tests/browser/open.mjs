// How long the page takes to open: from its address to live figures, in a tab that has nothing of it yet. Prints one line of JSON.
//
//   node open.mjs --chromium PROGRAM --link LOGIN_LINK --devices N --times N
import { parseArgs } from "node:util";
import { Browser } from "./chromium.mjs";

const { values: options } = parseArgs({ options: { chromium: { type: "string" }, link: { type: "string" }, devices: { type: "string" }, times: { type: "string" } } });

const browser = await Browser.start(options.chromium);
try {
  const page = await browser.page();
  await page.go(options.link);
  await page.until("document.querySelector('.link-state.live')", "it is live");
  await page.send("Network.enable");
  await page.send("Network.setCacheDisabled", { cacheDisabled: true });
  // Noted by the page itself, at the moment at which the last device's row is there.
  await page.send("Page.addScriptToEvaluateOnNewDocument", { source: `
    new MutationObserver((_changes, observer) => {
      if (document.querySelectorAll('[aria-label="Devices with load and memory"] tbody tr').length !== ${Number(options.devices)}) return;
      observer.disconnect();
      requestAnimationFrame(() => (window.openAfter = performance.now()));
    }).observe(document, { childList: true, subtree: true });` });
  const open_ms = [];
  let ran = 0;
  for (let i = 0; i < Number(options.times); ++i) {
    await page.go("about:blank");
    await page.go(new URL("/#/overview", options.link).href);
    open_ms.push(await page.until("window.openAfter", "it is open", 30));
    // Under load, or it would be another figure.
    ran += await page.run("fetch('/api/overview').then((r) => r.json()).then((o) => o.totals.graphs_running > 0 ? 1 : 0)");
  }
  console.log(JSON.stringify({ open_ms, ran }));
} finally {
  await browser.close();
}
