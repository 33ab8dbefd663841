// What no other test of a transaction can show: each test has a broker of its own, whose failures it chooses.
import assert from "node:assert/strict";
import test from "node:test";
import { Kafka, logLevel } from "kafkajs";
import { startBroker } from "./fencepost.mjs";

test("a zombie is fenced and its records stay hidden", async (t) => {
  const broker = await startBroker(t);
  const zombie = await begin(await producer(t, broker), "from the zombie");
  const transaction = await begin(await producer(t, broker), "from its successor"); // the same transactional id
  await assert.rejects(zombie.commit(), { type: "INVALID_PRODUCER_EPOCH" });
  await transaction.commit();
  assert.deepEqual(await broker.values("orders", 1), ["from its successor"]);
});

test("a commit whose reply is lost is committed, though KafkaJS says that it failed", async (t) => {
  const broker = await startBroker(t);
  const transaction = await begin(await producer(t, broker), "tea");
  await broker.disconnect("EndTxn"); // carried out, and not answered
  await assert.rejects(transaction.commit(), { name: "KafkaJSConnectionClosedError" }); // other clients ask again
  assert.deepEqual(await broker.values("orders", 1), ["tea"]);
  assert.equal(await broker.transactionState("orders-1"), "CompleteCommit");
});

test("a transaction that is forgotten is aborted after sixteen minutes", async (t) => {
  const broker = await startBroker(t);
  await begin(await producer(t, broker), "tea");
  const began = performance.now();
  await broker.advance(16 * 60); // its time-out is fifteen
  assert.equal(await broker.transactionState("orders-1"), "CompleteAbort");
  console.log(`sixteen minutes took ${Math.round(performance.now() - began)} ms`);
  assert.deepEqual(await broker.values("orders", 0), []);
});

async function producer(t, broker) {
  const kafka = new Kafka({ brokers: [broker.bootstrapServers], logLevel: logLevel.NOTHING });
  const made = kafka.producer({
    transactionalId: "orders-1",
    transactionTimeout: 900_000,
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: true,
  });
  await made.connect();
  t.after(() => made.disconnect());
  return made;
}

async function begin(kafkaProducer, value) {
  const transaction = await kafkaProducer.transaction();
  await transaction.send({ topic: "orders", messages: [{ value }] });
  return transaction;
}
