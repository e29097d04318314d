/** What is not allowed ends in an error that says what was found and what to do. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { Client, SnowbankError } from "../dist/index.js";
import { Settings } from "../dist/options.js";
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

test("an endpoint that is none is refused", () => {
  for (const endpoint of [
    "",
    "7660",
    "ids-1",
    "ids-1:",
    "ids-1:0",
    "ids-1:70000",
    "ids-1:http",
    "::1:7660",
    "[::1]",
    "[ids]:7660",
    "1.2.3:7660",
    "a b:7660",
    "ids-1:7660\n",
    "/run/snowbank.sock",
    "unix:",
    `unix:/${"x".repeat(107)}`,
    "tls:unix:/run/x",
  ]) {
    const expected = refused("bad_argument", /is no .*write .*unix:PATH/);
    assert.throws(() => new Client([endpoint]), expected, endpoint);
  }
  const scheme = refused("bad_argument", /leave out the scheme/);
  assert.throws(() => new Client("http://ids-1:7660"), scheme);
  for (const number of [7660, [7660]]) {
    assert.throws(() => new Client(number), refused("bad_argument", /this is 7660/));
  }
  for (const nothing of [[], undefined, null]) {
    assert.throws(() => new Client(nothing), refused("bad_argument", /at least one is needed/));
  }
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
    await assert.rejects(client.batch(count), refused("bad_argument", /a whole number from 1/));
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

test("a token of a file is bytes", () => {
  const tokenFile = file("bytes", Buffer.from([0xff, 0x78, 0x0a]));
  const settings = new Settings("127.0.0.1:7660", { tokenFile });
  assert.deepEqual(settings.readToken(), Buffer.from([0xff, 0x78]));
});

test("a time that is none is refused", async () => {
  const client = new Client("127.0.0.1:7660");
  for (const timeoutMs of [0, -5, Number.NaN, Number.NEGATIVE_INFINITY, "5", 5n]) {
    const expected = refused("bad_argument", /timeoutMs is .*a number above 0 is needed/);
    assert.throws(() => new Client("127.0.0.1:7660", { timeoutMs }), expected);
    await assert.rejects(client.batch(1, { timeoutMs }), expected);
    await assert.rejects(client.ids().next({ timeoutMs }), expected);
  }
  await assert.rejects(client.batch(1, { signal: {} }), {
    name: "TypeError",
    message: /EventTarget/,
  });
  for (const source of [1, "", "x".repeat(65)]) {
    const expected = refused("bad_argument", /a name of 1 to 64 bytes is allowed/);
    assert.throws(() => client.ids({ source }), expected);
    await assert.rejects(client.batch(1, { source }), expected);
    assert.throws(() => new Client("127.0.0.1:7660", { source }), expected);
  }
  await client.close();
});

test("an endless deadline is one without a limit", async (t) => {
  const { client } = await started(t);
  for (const timeoutMs of [2 ** 31, 1e300, Number.POSITIVE_INFINITY]) {
    assert.equal((await client.batch(1, { timeoutMs })).length, 1);
    await client.ids({ timeoutMs }).next({ timeoutMs });
  }
});

test("null is no value of an option", async (t) => {
  const { daemon, client } = await started(t);
  const none = { source: null, timeoutMs: null, token: null, tokenFile: null, caFile: null };
  for (const options of [
    null,
    none,
    { ...none, certFile: null, keyFile: null, serverName: null },
  ]) {
    await new Client(daemon.address, options).close(null);
  }
  for (const options of [null, { timeoutMs: null, signal: null }]) {
    assert.equal((await client.batch(1, options)).length, 1);
    await client.ping(options);
    await client.ids(null).next(options);
  }
});

test("an option that does not exist is refused", async (t) => {
  const { daemon, client } = await started(t);
  const expected = refused("bad_argument", /no option timeout; there are .*timeoutMs/);
  assert.throws(() => new Client(daemon.address, { timeout: 5 }), expected);
  assert.throws(() => client.ids({ timeout: 5 }), expected);
  for (const call of ["batch", "ping", "close"]) {
    const options = call === "batch" ? [1, { timeout: 5 }] : [{ timeout: 5 }];
    await assert.rejects(client[call](...options), expected);
  }
  await assert.rejects(client.ids().next({ timeout: 5 }), expected);
  await assert.rejects(
    client.batch(1, "orders"),
    refused("bad_argument", /are "orders"; an object/),
  );
  assert.throws(() => new Client(daemon.address, 5), refused("bad_argument", /are 5; an object/));
  for (const option of ["tokenFile", "caFile", "certFile", "keyFile", "serverName"]) {
    const text = refused("bad_argument", new RegExp(`${option} is .*; a text is needed`));
    assert.throws(() => new Client(daemon.address, { [option]: 5 }), text);
    assert.throws(() => new Client(daemon.address, { [option]: "" }), text);
  }
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
  const certFile = join(home, "certificate.pem");
  const subject = ["-subj", "/CN=ids-1", "-out", certFile];
  spawnSync("openssl", ["req", "-x509", "-key", keyFile, ...subject]);
  const make = (files) => () => new Client("tls:127.0.0.1:7661", files);
  make({ certFile, keyFile, caFile: certFile })().close();
  const mismatch = refused("bad_argument", /do not fit each other: .*mismatch/);
  assert.throws(make({ certFile, keyFile: otherKey }), mismatch);
  assert.throws(make({ certFile }), refused("bad_argument", /give both, or neither/));
  const noPem = /has no line -----BEGIN CERTIFICATE-----/;
  assert.throws(make({ caFile: keyFile }), refused("bad_argument", noPem));
  const swapped = refused("bad_argument", /do not fit each other: .*no start line/);
  assert.throws(make({ certFile: keyFile, keyFile: certFile }), swapped);
  const missing = refused("bad_argument", /cannot be read: .*none/);
  assert.throws(make({ caFile: join(home, "none") }), missing);
  const plain = refused("bad_argument", /no endpoint begins with tls:/);
  assert.throws(() => new Client("127.0.0.1:7660", { caFile: certFile }), plain);
});

test("a closed client fails every call, also those that wait", async (t) => {
  const { daemon, client } = await started(t);
  const ids = client.ids();
  await ids.next();
  daemon.onNext = () => true;
  const waiting = client.batch(1);
  const closing = client.close();
  const closed = refused("closed", /create another one/);
  await assert.rejects(waiting, closed);
  await closing;
  await assert.rejects(client.batch(1), closed);
  await assert.rejects(ids.next(), closed);
  assert.throws(() => ids.tryNext(), closed);
});
