// Bundles the libraries of the console into src/server/http/console/web/vendor, which is committed: cargo needs no Node.
//
//   npm ci && npm run build      writes the bundles, their licences and manifest.json
//   npm run check                fails if the committed files are not what this would write
//
// manifest.json has a hash of everything that goes in (the lock file, this script, the entries) and of everything that
// comes out. A test of the crate compares both without Node.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const vendor = process.env.CONSOLE_VENDOR ?? join(here, "../../src/server/http/console/web/vendor");
const isCheck = process.argv.includes("--check");

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** The bundle of one entry, and the packages that are in it. */
async function bundle(entry) {
  const result = await build({
    entryPoints: [join(here, "entries", entry)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    write: false,
    metafile: true,
  });
  const packages = Object.keys(result.metafile.inputs)
    .map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1])
    .filter(Boolean);
  return { bytes: Buffer.from(result.outputFiles[0].contents), packages };
}

/** The name, version and licence text of a package. */
async function licence(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((file) => /^licen[cs]e/i.test(file));
  const text = file ? await readFile(join(folder, file), "utf8") : `Licence: ${license}\n`;
  return `${name} ${version}\n${"=".repeat(name.length + version.length + 1)}\n\n${text.trim()}\n`;
}

const outputs = new Map();
const packages = new Set();
const entries = (await readdir(join(here, "entries"))).sort();
for (const entry of entries) {
  const { bytes, packages: used } = await bundle(entry);
  outputs.set(entry, bytes);
  used.forEach((name) => packages.add(name));
}
outputs.set("uplot.css", await readFile(join(here, "node_modules/uplot/dist/uPlot.min.css")));
const licences = await Promise.all([...packages].sort().map(licence));
outputs.set("LICENCES.txt", Buffer.from(licences.join("\n\n")));

const inputs = {};
for (const path of ["package.json", "package-lock.json", "build.mjs", ...entries.map((entry) => `entries/${entry}`)]) {
  inputs[path] = sha256(await readFile(join(here, path)));
}
const files = Object.fromEntries([...outputs].map(([name, bytes]) => [name, sha256(bytes)]));
outputs.set("manifest.json", Buffer.from(`${JSON.stringify({ inputs, files }, null, 2)}\n`));

await mkdir(vendor, { recursive: true });
const stale = [];
for (const [name, bytes] of outputs) {
  const path = join(vendor, name);
  const before = await readFile(path).catch(() => null);
  if (before?.equals(bytes)) continue;
  stale.push(name);
  if (!isCheck) await writeFile(path, bytes);
}
if (isCheck && stale.length > 0) {
  console.error(`these files of ${vendor} are not what the script makes: ${stale.join(", ")}: run \`npm run build\``);
  process.exit(1);
}
console.log(isCheck ? "the committed bundles are up to date" : `written: ${stale.join(", ") || "nothing new"}`);
