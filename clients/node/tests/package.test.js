/**
 * The package as users get it: packed or taken from the folder $SNOWBANK_DIST, installed into an
 * empty folder, and README's program run there.
 */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Daemon, withoutDaemon } from "./support/daemon.js";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));

/** Runs a program to its end. */
function run(program, args, cwd) {
  const ended = spawnSync(program, args, { cwd, encoding: "utf8", timeout: 120_000 });
  assert.equal(ended.status, 0, `${program} ${args.join(" ")}: ${ended.stdout}${ended.stderr}`);
  return ended.stdout;
}

/** Returns the first block of README in that language. */
function snippet(language) {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  return readme.split(`\`\`\`${language}\n`)[1].split("```")[0];
}

test("README's program runs over a kill, from the package alone", {
  skip: withoutDaemon,
}, async (t) => {
  const home = mkdtempSync(join(tmpdir(), "snowbank-package-"));
  t.after(() => rmSync(home, { recursive: true }));
  const dist = process.env.SNOWBANK_DIST ?? home;
  if (dist === home) {
    run("npm", ["pack", "--silent", "--pack-destination", home], PACKAGE);
  }
  const packed = readdirSync(dist).find((name) => /^snowbank-client-.*\.tgz$/.test(name));
  writeFileSync(join(home, "package.json"), '{ "private": true }');
  const quiet = ["--offline", "--no-audit", "--no-fund", "--no-package-lock", "--silent"];
  run("npm", ["install", ...quiet, join(dist, packed)], home);
  const common = "const { Client } = require('snowbank-client'); new Client('127.0.0.1:7660');";
  run(process.execPath, ["--eval", common], home);
  const daemons = [await Daemon.start(1), await Daemon.start(2)];
  t.after(() => Promise.all(daemons.map((daemon) => daemon.end())));
  const program = snippet("js")
    .replace("127.0.0.1:7660", daemons[0].address)
    .replace("127.0.0.1:7661", daemons[1].address)
    .replace("setTimeout(resolve, 10)", "setTimeout(resolve, 2)");
  writeFileSync(join(home, "rows.mjs"), program);
  const sqlite = "node_modules/node-sqlite3-wasm";
  symlinkSync(join(PACKAGE, sqlite), join(home, sqlite));
  const rows = spawn(process.execPath, ["rows.mjs"], { cwd: home });
  let output = "";
  for (const stream of [rows.stdout, rows.stderr]) {
    stream.on("data", (text) => {
      output += text;
    });
  }
  const ended = once(rows, "exit");
  // The table is there before the first row.
  const file = join(home, "rows.sqlite3");
  while (rows.exitCode === null && !(existsSync(file) && statSync(file).size > 0)) {
    await sleep(10);
  }
  await daemons[0].kill();
  assert.equal(rows.exitCode, null, `the daemon was killed after the last row: ${output}`);
  const [code] = await ended;
  assert.equal(code, 0, output);
  assert.match(output, /^\{\s*n: 1000,/);

  await t.test("its types are sound", () => {
    const lines = [
      "const first: bigint | undefined = ids.tryNext();",
      "for await (const id of ids) { const next: bigint = id; void [first, next]; break; }",
      "{ await using used = new Client('127.0.0.1:7660'); used.on('failed', ({ reason }) => reason.trim()); }",
    ];
    const typed = [snippet("js"), ...lines].join("\n");
    writeFileSync(join(home, "rows.mts"), typed);
    const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
    const types = ["--types", "node", "--typeRoots", join(PACKAGE, "node_modules/@types")];
    const strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--noEmit"];
    const lib = ["--lib", "es2022,esnext.disposable"];
    run(process.execPath, [tsc, ...strict, ...lib, ...types, "rows.mts"], home);
  });
});
