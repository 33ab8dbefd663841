// Tests that fail, each in another way, and a pair that would fail if it shared a broker.
import assert from "node:assert/strict";
import test from "node:test";
import { startBroker } from "./fencepost.mjs";

test("wrong", async (t) => {
  const broker = await startBroker(t);
  await broker.produce("orders", "tea");
  assert.deepEqual(await broker.values("orders", 1), ["coffee"]);
});

test("neverFired", async (t) => {
  await (await startBroker(t)).fail("EndTxn", "NOT_COORDINATOR");
});

test("refused", async (t) => {
  await (await startBroker(t)).fault("fail", { api: "EndTransaction", error: "NOT_COORDINATOR" });
});

test("waited", async (t) => {
  await (await startBroker(t)).get("records", { topic: "orders", count: 1, timeout: 0.1 });
});

test("many", async (t) => {
  const broker = await startBroker(t);
  await broker.produce("orders", ...Array(2001).fill("tea"));
  assert.equal((await broker.values("orders", 2001)).length, 2001);
});

for (const name of ["first", "second"]) {
  test(name, async (t) => {
    const broker = await startBroker(t);
    await broker.produce("orders", "tea");
    assert.deepEqual(await broker.values("orders", 1), ["tea"]);
    assert.notEqual(await broker.describe(), "");
  });
}
