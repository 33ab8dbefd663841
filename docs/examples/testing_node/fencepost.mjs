/**
 * Gives each test a Kafka broker of its own, which starts in milliseconds.
 *
 *     import test from "node:test";
 *     import { startBroker } from "./fencepost.mjs";
 *
 *     test("orders", async (t) => {
 *       const broker = await startBroker(t);
 *       const kafka = new Kafka({ brokers: [broker.bootstrapServers] });
 *       …
 *     });
 *
 * Copy this file. It needs Node.js 20.12 or later, and the program fencepost on PATH, or its command in the environment
 * variable FENCEPOST. The program is started once for all tests of a process, and ends with it. The broker's view of a
 * test that fails is printed; one that passes fails if a fault that it set has never fired.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** Start an empty broker, which is closed at the end of the test. t: the test's context. */
export async function startBroker(t) {
  const made = await call("POST", "/brokers", {});
  const broker = new Broker(made);
  t.after(() => broker.close(t));
  return broker;
}

/** A broker of a test. `get` and `post` reach all operations of the control API, and throw its refusals. */
class Broker {
  #address;

  constructor(made) {
    this.#address = `/brokers/${made.broker}`;
    this.bootstrapServers = made.bootstrap_servers;
  }

  async createTopic(name, partitions = 1) {
    await this.post("topic", { name, partitions });
  }

  /** Append records; creates the topic if need be. */
  async produce(topic, ...values) {
    await this.post("produce", { topic, values });
  }

  /** The committed values of a topic, as soon as there are at least as many; it waits ten seconds for them. */
  async values(topic, count) {
    const values = [];
    for (let skip = 0; skip !== null; ) {
      const page = await this.get("records", { topic, count, skip });
      values.push(...page.records.map((one) => one.value));
      skip = page.next_skip;
    }
    return values;
  }

  /** The state of a transaction by Kafka's names, such as CompleteCommit. */
  async transactionState(transactionalId) {
    return (await this.get("transaction", { transactional_id: transactionalId })).state;
  }

  /** Begin a session of a transactional id, as a second instance does: its producer is a zombie from now on. */
  async fence(transactionalId) {
    await this.post("fence", { transactional_id: transactionalId });
  }

  /** Answer the next request of an API (EndTxn) with an error (NOT_COORDINATOR). */
  fail(api, error) {
    return this.fault("fail", { api, error });
  }

  /** Close the connection in place of the next reply of an API: the request is carried out, its reply is lost. */
  disconnect(api) {
    return this.fault("disconnect", { api });
  }

  /** Hold the replies of an API until `release`. */
  hold(api) {
    return this.fault("hold", { api });
  }

  /** End the broker at the next request of an API, before its reply leaves; see `restart`. */
  crashAfter(api) {
    return this.fault("crash_after", { api });
  }

  /** A fault with all arguments of the control API. It can be waited for, released and removed. */
  async fault(operation, args) {
    const { fault } = await this.post(operation, args);
    return {
      /** Wait until it has met a request, for ten seconds. */
      waitUntilFired: () => this.post(`faults/${fault}/wait_until_fired`, {}),
      /** Let the requests go that it holds; it holds later ones. Returns how many. */
      release: async () => (await this.post(`faults/${fault}/release`, {})).released,
      /** End the fault. */
      remove: () => call("DELETE", `${this.#address}/faults/${fault}`),
    };
  }

  /** Start the broker again, on the same data and address. */
  async restart() {
    await this.post("restart", {});
  }

  /** Turn the broker's clock forward. Returns when all that became due is done. */
  async advance(seconds) {
    await this.post("advance", { seconds });
  }

  /** The broker's view in lines of text: requests, faults, transactions, groups. */
  async describe() {
    return (await this.get("describe")).text;
  }

  /** An operation of the control API that asks. */
  get(operation, args = {}) {
    return call("GET", `${this.#address}/${operation}?${new URLSearchParams(args)}`);
  }

  /** An operation of the control API that changes something. */
  post(operation, args) {
    return call("POST", `${this.#address}/${operation}`, args);
  }

  /** Called at the end of the test. Throws for a fault that has never fired. */
  async close(t) {
    if (!t.passed) {
      console.log(await this.describe());
    }
    const closed = await call("DELETE", this.#address);
    if (t.passed && closed.never_fired.length > 0) {
      throw new Error([...closed.never_fired, closed.description].join("\n"));
    }
  }
}

let program;

/** The URL of the program, which is started by the first call. It ends with its standard input, and so with us. */
async function start() {
  const words = [...(process.env.FENCEPOST || "fencepost").split(" "), "test-broker", "--json", "--until-stdin-closes"];
  const child = spawn(words[0], words.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const failed = once(child, "error").then(([error]) => {
    const advice = "install it, or name its command in the environment variable FENCEPOST";
    throw new Error(`${error.message}: ${advice}`, { cause: error });
  });
  const line = once(createInterface(child.stdout), "line").then(([text]) => text);
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`${words.join(" ")} ended with ${code}; its errors are above`);
  });
  ended.catch(() => {}); // after its first line, it ends with us
  const ready = await Promise.race([line, failed, ended]);
  for (const one of [child, child.stdin, child.stdout]) {
    one.unref(); // they keep no test runner alive
  }
  return JSON.parse(ready).url;
}

async function call(method, path, args) {
  program ??= start();
  const response = await fetch((await program) + path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: args === undefined ? undefined : JSON.stringify(args),
  });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error([answer.message, answer.description].filter(Boolean).join("\n"));
  }
  return answer;
}
