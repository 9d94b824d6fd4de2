// A scheduler with a dashboard, workers and a client, as processes that end with this one.
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { timesSlower } from "./chromium.mjs";

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Cluster {
  workers = [];
  #all = [];
  #said = "";

  // With `keepsState` the scheduler goes on where it was when it is started again.
  constructor([scheduler, worker, tool, client], folder, keepsState = false) {
    this.programs = { scheduler, worker, tool, client };
    this.folder = folder;
    this.keepsState = keepsState;
    mkdirSync(folder, { recursive: true });
    this.token = join(folder, "token");
    writeFileSync(this.token, randomBytes(32).toString("hex"), { mode: 0o600 });
  }

  #spawn(program, args, stdin = "ignore") {
    const child = spawn(program, args, { stdio: [stdin, "pipe", "pipe"], env: { ...process.env, TILEWISE_TOKEN_FILE: this.token, TILEWISE_SCHEDULER: this.address ?? "" } });
    child.stdout.setEncoding("utf8");
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (this.#said = (this.#said + text).slice(-20_000)));
    this.#all.push(child);
    return child;
  }

  async start(workers) {
    this.address = `127.0.0.1:${await freePort()}`;
    this.dashboard = `127.0.0.1:${await freePort()}`;
    this.base = `http://${this.dashboard}`;
    await this.restart(1);
    for (let i = 0; i < workers; ++i) await this.addWorker();
    this.key = (await this.tool("dashboard", "--print-token", "operator")).trim();
  }

  async restart(term) {
    const ready = join(this.folder, `ready${term}`);
    const life = this.keepsState ? ["--state-dir", join(this.folder, "state")] : ["--term", String(term)];
    this.scheduler = this.#spawn(this.programs.scheduler, ["--listen", this.address, "--dashboard-listen", this.dashboard, "--address-file", ready, ...life]);
    await this.until(() => existsSync(ready), "the scheduler is there");
  }

  async addWorker() {
    const ready = join(this.folder, `worker${this.workers.length}`);
    // Browser and scheduler come first where there are few cores: it is the page that is tested.
    this.workers.push(this.#spawn("nice", ["-n", "10", this.programs.worker, "--scheduler", this.address, "--devices", "host:0-1", "--cores", "1", "--memory", "512MiB", "--address-file", ready]));
    await this.until(() => existsSync(ready), "a worker is there");
  }

  async client(...name) {
    const child = this.#spawn(this.programs.client, name, "pipe");
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    return {
      do: async (what) => {
        said = "";
        child.stdin.write(`${what}\n`);
        await this.until(() => said.includes(`ok ${what}`), `the client does ${what}`);
      },
    };
  }

  kill(child) {
    child.kill("SIGKILL");
  }

  tool(...args) {
    const env = { ...process.env, TILEWISE_TOKEN_FILE: this.token, TILEWISE_SCHEDULER: this.address };
    return new Promise((resolve, reject) =>
      execFile(this.programs.tool, [...args, "--dashboard", this.dashboard], { env, maxBuffer: 1 << 28 }, (error, out, words) => (error ? reject(new Error(`${error.message}\n${words}`)) : resolve(out))));
  }
  async loginLink(role) {
    return (await this.tool("dashboard", "--role", role)).trim();
  }

  async api(path) {
    const ask = () => fetch(`${this.base}/api/${path}`, { headers: { Authorization: `Bearer ${this.key}` } });
    let answer = await ask();
    for (let tries = 0; [503, 504].includes(answer.status) && tries < 50; ++tries) {  // the page asks just now, or the machine is very busy
      await pause(200);
      answer = await ask();
    }
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  async until(condition, what, seconds = 40) {
    for (const end = Date.now() + seconds * timesSlower * 1000; ; await pause(30)) {
      const value = await condition();
      if (value) return value;
      if (Date.now() > end) throw new Error(`${what}: not within ${seconds * timesSlower} s`);
    }
  }

  stop() {
    for (const child of this.#all) child.kill("SIGKILL");
  }
  words() {
    return this.#said;
  }
}
