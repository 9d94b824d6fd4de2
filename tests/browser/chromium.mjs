// Headless Chromium over the DevTools protocol, through a pipe: nothing but Node is needed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

// What waiting for something may take longer: with sanitizers (tests/sanitizers.h).
export const timesSlower = Number(process.env.TILEWISE_TIMES_SLOWER ?? 1);

export class Browser {
  #process;
  #folder = mkdtempSync(join(tmpdir(), "tilewise-chromium-"));
  #last = 0;
  #waiting = new Map();
  #listeners = [];
  #rest = "";

  static async start(program) {
    const browser = new Browser();
    browser.#process = spawn(program, [
      "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
      `--user-data-dir=${browser.#folder}`, "about:blank",
    ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], detached: true });  // a process group of its own
    browser.#process.stdio[4].setEncoding("utf8");
    browser.#process.stdio[4].on("data", (text) => browser.#take(text));
    await browser.send("Target.setDiscoverTargets", { discover: true });
    return browser;
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#last;
    this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method }));
  }

  #take(text) {
    const parts = (this.#rest + text).split("\0");
    this.#rest = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (waiting && message.error) waiting.reject(new Error(`${waiting.method}: ${message.error.message}`));
      else if (waiting) waiting.resolve(message.result);
      else for (const listener of this.#listeners) listener(message);
    }
  }

  async page(width = 1360, height = 860) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    this.#listeners.push((m) => m.sessionId === sessionId && page.heard(m));
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.send(`${domain}.enable`);
    await page.size(width, height);
    return page;
  }

  async close() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    process.kill(-this.#process.pid, "SIGKILL");  // its helpers too: they write into the folder
    await ended;
    for (let tries = 0; ; ++tries) {
      try {
        rmSync(this.#folder, { recursive: true, force: true });
        return;
      } catch (error) {
        if (tries === 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }
}

export class Page {
  complaints = [];  // errors on its console, broken policies, exceptions

  constructor(browser, session, target) {
    this.browser = browser;
    this.session = session;
    this.target = target;
  }

  send(method, params = {}) {
    return this.browser.send(method, params, this.session);
  }

  heard({ method, params }) {
    if (method === "Runtime.exceptionThrown") this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") this.complaints.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") this.complaints.push(params.args.map((a) => a.value ?? a.description).join(" "));
  }

  async size(width, height, mobile = false) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile });
  }

  async colours(scheme) {
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  async go(url) {
    await this.send("Page.navigate", { url });
  }

  // The value of an expression; promises are waited for.
  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Asks until it is true; returns its value.
  async until(expression, why, seconds = 60) {
    const end = Date.now() + seconds * timesSlower * 1000;
    for (let last; ; ) {
      try {
        if ((last = await this.run(expression))) return last;
      } catch (error) {
        last = error;
      }
      if (Date.now() > end) throw new Error(`${why} (${expression}): ${last}\n${await this.text()}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  text() {
    return this.run("document.body.innerText").catch(() => "");
  }

  async picture(file) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(file, Buffer.from(data, "base64"));
  }
}
