/** The frames of docs/protocol.md. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Hello, info, Next, ping, whatAnswers } from "../dist/wire.js";

function hex(text) {
  return Buffer.from(text.replaceAll(" ", ""), "hex");
}

test("requests are the vectors", () => {
  const none = Buffer.alloc(0);
  const next = new Next(1000, none, 65_535, false).encode(7);
  assert.deepEqual(next, hex("0a000000 01 00 0700 e8030000 ffff"));
  const orders = new Next(3, Buffer.from("orders"), 0, true).encode(258);
  assert.deepEqual(orders, hex("10000000 01 02 0201 03000000 0000 6f7264657273"));
  assert.deepEqual(new Hello(none).encode(1), hex("0e000000 04 00 0100 534e4f570d0a0d0a 01 00"));
  assert.deepEqual(info().encode(1), hex("04000000 02 00 0100"));
  assert.deepEqual(ping().encode(2), hex("0c000000 03 00 0200 736e6f7762616e6b"));
});

test("a run of the vectors is read", () => {
  const request = new Next(1000, Buffer.alloc(0), 0, false);
  assert.ok(request.add(0x81, 0, hex("00a017621fa16515 e8030000 01000000")));
  assert.equal(request.ids.length, 1000);
  assert.equal(request.ids[999], 1541815603606036480n + 999n);
});

test("servers of other protocols are named", () => {
  for (const [answer, pattern] of [
    ["HTTP/1.1 400 Bad Request\r\n\r\n", /answers "HTTP\/1.1 400 Bad Request": is this/],
    ["-ERR unknown command\r\n", /answers "-ERR unknown command": is this/],
    ["\r\nSSH-2.0-OpenSSH_9.2\r\n", /answers "SSH-2.0-OpenSSH_9.2": is this/],
    ["\x15\x03\x01\x00\x02\x02\x0a", /write tls:host:port/],
    ["\0\0\0\0", /a length of 0/],
  ]) {
    assert.match(whatAnswers(Buffer.from(answer, "latin1")), pattern);
  }
});
