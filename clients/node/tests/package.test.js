/**
 * The package as users get it: packed, installed into an empty folder, and README's program run
 * there.
 */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
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
  const packed = run("npm", ["pack", "--silent", "--pack-destination", home], PACKAGE).trim();
  writeFileSync(join(home, "package.json"), '{ "private": true }');
  const quiet = ["--offline", "--no-audit", "--no-fund", "--no-package-lock", "--silent"];
  run("npm", ["install", ...quiet, join(home, packed.split("\n").at(-1))], home);
  const daemons = [await Daemon.start(1), await Daemon.start(2)];
  t.after(() => Promise.all(daemons.map((daemon) => daemon.end())));
  const program = snippet("js")
    .replace("127.0.0.1:7660", daemons[0].address)
    .replace("127.0.0.1:7670", daemons[1].address)
    .replace("500)", "400)");
  writeFileSync(join(home, "rows.mjs"), program);
  const rows = spawn(process.execPath, ["rows.mjs"], { cwd: home });
  let output = "";
  let wasKilledBetween = false;
  rows.stderr.on("data", (text) => {
    output += text;
  });
  rows.stdout.on("data", (text) => {
    output += text;
    if (!wasKilledBetween && output.includes("row 5:")) {
      daemons[0].signal("SIGKILL");
      wasKilledBetween = !output.includes("row 19:");
    }
  });
  const [code] = await once(rows, "exit");
  assert.equal(code, 0, output);
  assert.ok(wasKilledBetween, output);
  const ids = [...output.matchAll(/^row \d+: (\d+)$/gm)].map((match) => match[1]);
  assert.equal(ids.length, 20, output);
  assert.equal(new Set(ids).size, 20, output);

  await t.test("its types are sound", () => {
    const typed = `${snippet("js")}\nconst first: bigint | undefined = ids.tryNext();\nvoid first;\n`;
    writeFileSync(join(home, "rows.mts"), typed);
    const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
    const types = ["--types", "node", "--typeRoots", join(PACKAGE, "node_modules/@types")];
    const strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--noEmit"];
    run(process.execPath, [tsc, ...strict, ...types, "rows.mts"], home);
  });
});
