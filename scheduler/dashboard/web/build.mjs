// Bundles src/ into the folder that is named (dist/ by default): what the scheduler carries inside it.
import { copyFileSync, mkdirSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
mkdirSync(out, { recursive: true });
await build({
  entryPoints: [{ in: "src/main.ts", out: "app" }, { in: "src/app.css", out: "app" }],
  outdir: out,
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  target: ["chrome110", "firefox115", "safari16"],
  legalComments: "inline",
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(`src/${file}`, `${out}/${file}`);
