/** The bytes of requests, as tests/vectors has them for the daemon and for all clients. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AUTH, encodeNext, encodeRequest, INFO, PING } from "../dist/protocol.js";

const file = new URL("../../../tests/vectors/requests.txt", import.meta.url);

const next = (tag, count, source, maxWaitMs, flags) =>
  encodeNext(tag, { count, source, maxWaitMs, flags });

const REQUESTS = {
  next: next(7, 1000, 0, 65535, 0),
  "next-explicit": next(258, 3, 1, 0, 1),
  "next-partial": next(8, 40_000, 0, 250, 2),
  "next-explicit-partial": next(65535, 2 ** 32 - 1, 65535, 65534, 3),
  info: encodeRequest(INFO, 1, Buffer.alloc(0)),
  ping: encodeRequest(PING, 2, Buffer.from("snowbank")),
  "ping-empty": encodeRequest(PING, 3, Buffer.alloc(0)),
  auth: encodeRequest(AUTH, 0, Buffer.from("s3cret")),
};

test("requests have the bytes of the protocol's page", () => {
  const lines = readFileSync(file, "utf8").split("\n");
  const vectors = lines.filter((line) => line !== "" && !line.startsWith("#"));
  assert.equal(vectors.length, Object.keys(REQUESTS).length);
  for (const vector of vectors) {
    const [name, , hex] = vector.split(" | ");
    assert.equal(REQUESTS[name].toString("hex"), hex.replaceAll(" ", ""), name);
  }
});
