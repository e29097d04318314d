/** What is not allowed ends in an error that says what was found and what to do. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { Client, SnowbankError } from "../dist/index.js";
import { FakeDaemon } from "./support/fake.js";

const home = mkdtempSync(join(tmpdir(), "snowbank-node-"));
after(() => rmSync(home, { recursive: true }));

function file(name, text) {
  const path = join(home, name);
  writeFileSync(path, text);
  return path;
}

async function started(t) {
  const daemon = await FakeDaemon.start();
  const client = new Client(daemon.address);
  t.after(async () => {
    client.close();
    await daemon.stop();
  });
  return { daemon, client };
}

function refused(code, pattern) {
  return (error) => {
    assert.ok(error instanceof SnowbankError && error instanceof Error, inspect(error));
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  };
}

test("an address that is none is refused", () => {
  for (const [address, pattern] of [
    ["", /it is empty; write 127\.0\.0\.1:7660/],
    ["7660", /the host is missing; write 127\.0\.0\.1:7660/],
    ["ids-1", /the port is missing; write ids-1:7660/],
    ["ids-1:0", /nobody listens on port 0/],
    ["ids-1:70000", /above 65535/],
    ["ids-1:http", /"http" is not a number/],
    ["::1:7660", /in brackets/],
    ["[::1]", /write \[::1\]:7660/],
    ["[ids]:7660", /not an IPv6 address/],
    ["1.2.3:7660", /not an IPv4 address/],
    ["a b:7660", /" " cannot be part of a host name/],
    ["/run/snowbank.sock", /unix:\/run\/snowbank\.sock/],
    ["unix:", /wants the path of a socket/],
    [`unix:/${"x".repeat(107)}`, /at most 107 bytes, and this one has 108/],
    ["tls:unix:/run/x", /takes no TLS/],
    [7660, /an address is a text/],
  ]) {
    assert.throws(() => new Client([address]), refused("bad_argument", pattern), String(address));
  }
  assert.throws(() => new Client([]), refused("bad_argument", /at least one is needed/));
});

test("sound addresses are accepted", () => {
  for (const address of [
    "[::1]:7660",
    "[fe80::1%eth0]:7660",
    "ids-1.internal:7660",
    "unix:/run/x",
  ]) {
    new Client(address).close();
  }
});

test("a count that no daemon can serve is refused, and not sent", async (t) => {
  const { daemon, client } = await started(t);
  for (const count of [0, -1, 1.5, 2 ** 40, 2 ** 32, Number.NaN, "5", 5n, undefined]) {
    await assert.rejects(client.batch(count), refused("bad_count", /a whole number from 1/));
  }
  assert.deepEqual(daemon.asked, []);
});

test("a token is checked and never shown", async () => {
  const secret = "s3cret-token";
  const make = (options) => () => new Client("127.0.0.1:7660", options);
  assert.throws(make({ token: `${secret}\n` }), refused("bad_argument", /has a newline/));
  assert.throws(make({ token: "" }), refused("bad_argument", /0 bytes; 1 to 512/));
  assert.throws(make({ token: "x".repeat(513) }), refused("bad_argument", /513 bytes/));
  assert.throws(make({ token: 5 }), refused("bad_argument", /not number/));
  assert.throws(make({ tokenFile: join(home, "none") }), refused("bad_argument", /cannot be read/));
  const both = { token: secret, tokenFile: file("token", secret) };
  assert.throws(make(both), refused("bad_argument", /give one of them/));
  for (const options of [{ token: secret }, { tokenFile: file("token", `${secret}\n`) }]) {
    const client = make(options)();
    assert.doesNotMatch(inspect(client, { depth: 20, showHidden: true }), /s3cret/);
    client.close();
  }
  try {
    make({ token: `${secret}\n` })();
  } catch (error) {
    assert.doesNotMatch(inspect(error), /s3cret/);
  }
});

test("a time that is none is refused", async () => {
  const client = new Client("127.0.0.1:7660");
  for (const timeoutMs of [0, -5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, "5"]) {
    const expected = refused(
      "bad_argument",
      /timeoutMs is .*; a whole number from 1 to 2147483647/,
    );
    assert.throws(() => new Client("127.0.0.1:7660", { timeoutMs }), expected);
    await assert.rejects(client.batch(1, { timeoutMs }), expected);
    await assert.rejects(client.ids().next({ timeoutMs }), expected);
  }
  assert.throws(() => client.ids({ maxAgeMs: 0 }), refused("bad_argument", /maxAgeMs is 0/));
  assert.throws(() => client.ids({ maxBatch: 0 }), refused("bad_argument", /maxBatch is 0/));
  assert.throws(() => client.ids({ source: 1 }), refused("bad_argument", /a source has a name/));
  client.close();
});

test("an option that does not exist is refused", () => {
  const make = () => new Client("127.0.0.1:7660", { timeout: 5 });
  assert.throws(make, refused("bad_argument", /no option timeout; there are token/));
});

test("files of TLS that do not fit are refused", (t) => {
  if (spawnSync("openssl", ["version"]).status !== 0) {
    t.skip("there is no openssl to make certificates with");
    return;
  }
  const key = (name) => {
    const path = join(home, name);
    const curve = ["-pkeyopt", "ec_paramgen_curve:P-256"];
    spawnSync("openssl", ["genpkey", "-algorithm", "EC", ...curve, "-out", path]);
    return path;
  };
  const [keyFile, otherKey] = [key("key.pem"), key("other.pem")];
  const certificateFile = join(home, "certificate.pem");
  const subject = ["-subj", "/CN=ids-1", "-out", certificateFile];
  spawnSync("openssl", ["req", "-x509", "-key", keyFile, ...subject]);
  const make = (tls) => () => new Client("tls:127.0.0.1:7661", { tls });
  make({ certificateFile, keyFile, caFile: certificateFile })().close();
  const mismatch = refused("tls", /a key that is not that of the certificate .*made together/);
  assert.throws(make({ certificateFile, keyFile: otherKey }), mismatch);
  assert.throws(make({ certificateFile }), refused("tls", /without tls\.keyFile; give both/));
  assert.throws(make({ caFile: keyFile }), refused("tls", /found no certificate, allowed: PEM/));
  const swapped = { certificateFile: keyFile, keyFile: certificateFile };
  assert.throws(make(swapped), refused("tls", /found no certificate/));
  assert.throws(make({ caFile: join(home, "none") }), refused("tls", /cannot be read/));
});

test("a closed client fails every call, also those that wait", async (t) => {
  const { daemon, client } = await started(t);
  const ids = client.ids();
  await ids.next();
  daemon.onNext = () => true;
  const waiting = client.batch(1);
  client.close();
  const closed = refused("closed", /create another one/);
  await assert.rejects(waiting, closed);
  await assert.rejects(client.batch(1), closed);
  await assert.rejects(ids.next(), closed);
  assert.throws(() => ids.tryNext(), closed);
});
