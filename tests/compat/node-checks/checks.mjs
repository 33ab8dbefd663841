// Runs named checks and speaks with the harness around the program, as README.md of the folder above says.
import { isDeepStrictEqual } from 'node:util'
import { createInterface } from 'node:readline'

// How long one check may take, a restarting broker and a busy machine included, in milliseconds.
const LIMIT_MS = 180_000
// The timestamp that checks count from: young enough that retention deletes nothing.
export const START_MS = Date.now() - 60_000

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

class Failed extends Error {}
class Skipped extends Error {}

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

// Why the harness did not do what it was asked for; empty when it did.
async function answerTo(what) {
  say({ ask: what })
  const { value, done } = await answers.next()
  if (done) return 'nobody does this here'
  return value.trim() === 'done' ? '' : value.trim()
}

export class Check {
  constructor(name, run, bootstrap) {
    this.check = name
    this.run = run
    this.bootstrap = bootstrap
    this.facts = {}
  }

  // A name that no other check and no other run uses.
  name(kind) {
    return `${kind}-${this.check}-${this.run}`
  }

  // Ends the check unless both are deeply equal.
  equal(what, got, want) {
    if (!isDeepStrictEqual(got, want)) {
      throw new Failed(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
    }
  }

  // Asks again until the condition, which may be asynchronous, holds.
  async until(what, holds) {
    const deadline = Date.now() + LIMIT_MS / 2
    while (!(await holds())) {
      if (Date.now() > deadline) throw new Failed(`${what}: did not come about`)
      await sleep(20)
    }
  }

  // Records what was seen, to be compared with what the same check sees of another broker.
  fact(name, value) {
    this.facts[name] = value
  }

  // Ends the broker ("kill" or "terminate") and starts it again on its data.
  async restart(how) {
    const refusal = await answerTo(how)
    if (refusal) throw new Skipped(refusal)
  }

  // Waits until every node knows a topic, which they learn one after the other.
  async known(topic) {
    if (this.bootstrap.includes(',')) await this.ask(`known ${topic}`)
  }

  // Has the harness make a topic or change a right; README.md has the words.
  async ask(what) {
    this.equal(what, await answerTo(what), '')
  }
}

// The program: BOOTSTRAP RUN [CHECK...]. `everybodys` are functions by the names of the checks, and so are `secured`
// for a secured broker.
export async function main(everybodys, secured) {
  const checks = process.env.SECURED_FILES ? secured : everybodys
  const [bootstrap, run, ...wanted] = process.argv.slice(2)
  const unknown = wanted.filter((name) => !(name in checks))
  if (run === undefined || unknown.length > 0) {
    process.stderr.write(`usage: program BOOTSTRAP RUN [CHECK...]; no such check: ${unknown.join(', ')}\n`)
    process.exit(2)
  }
  for (const [name, make] of Object.entries(checks)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue
    const check = new Check(name, run, bootstrap)
    const started = Date.now()
    let outcome = 'passed'
    let detail = ''
    let timer
    try {
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Failed('the check did not end in time')), LIMIT_MS)
      })
      await Promise.race([make(check), late])
    } catch (reason) {
      outcome = reason instanceof Skipped ? 'skipped' : 'failed'
      detail = reason instanceof Skipped ? reason.message : `${reason?.stack ?? reason}`
    } finally {
      clearTimeout(timer)
    }
    say({ check: name, outcome, seconds: (Date.now() - started) / 1000, detail, facts: check.facts })
  }
  // Clients that a failed check left behind do not keep the program.
  process.exit(0)
}
