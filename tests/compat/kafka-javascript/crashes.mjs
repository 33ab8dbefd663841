// The broker ends, in one way or another, and comes back; and two hundred clients at once.
import { sleep } from './checks.mjs'
import { Member, createTopic, numbers, readAll, withProducer, write } from './kafka.mjs'
import { transactional } from './transactions.mjs'

// An idempotent producer writes while the broker is restarted; each record is there once, in order.
async function produceThrough(check, how) {
  const topic = await createTopic(check, 'topic', 1)
  let count = 0
  await withProducer(check, { idempotent: true }, async (producer) => {
    const send = async () => {
      await producer.send({ topic, messages: numbers(1, count, count + 10) })
      count += 10
    }
    for (let number = 0; number < 5; number += 1) await send()
    let restarted = false
    const restart = check.restart(how).then(() => { restarted = true })
    while (!restarted) {
      await send()
      await sleep(1)
    }
    await restart
    for (let number = 0; number < 5; number += 1) await send()
  })
  check.equal('records', await readAll(check, topic, 0, false), numbers(1, 0, count).map(({ value }) => value))
}

export const crashWhileProducing = (check) => produceThrough(check, 'kill')
export const stopWhileProducing = (check) => produceThrough(check, 'terminate')

// Ends a transaction; the library waits five seconds for that, and says that the same may be asked again.
async function ended(transaction, how) {
  for (;;) {
    try {
      return await transaction[how]()
    } catch (error) {
      if (!error.retriable) throw error
    }
  }
}

export async function crashInTransaction(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withProducer(check, transactional(check), async (producer) => {
    const first = await producer.transaction()
    await first.send({ topic, messages: [{ value: 'before', partition: 0 }] })
    await check.restart('kill')
    await first.send({ topic, messages: [{ value: 'after', partition: 1 }] })
    await ended(first, 'commit')
    const second = await producer.transaction()
    await second.send({ topic, messages: [{ value: 'aborted', partition: 0 }] })
    await check.restart('terminate')
    await ended(second, 'abort')
  })
  check.equal('record from before the crash', await readAll(check, topic, 0, false), ['before'])
  check.equal('record from after the crash', await readAll(check, topic, 1, false), ['after'])
}

export async function crashWhileConsuming(check) {
  const [topic, group] = [await createTopic(check, 'topic', 2), check.name('group')]
  const member = await Member.join(check, group, [topic])
  let count = 0
  for (const how of ['kill', 'terminate']) {
    await write(check, topic, numbers(2, count, count + 40))
    count += 40
    await check.until('all is read', () => new Set(member.values).size === count)
    await check.restart(how)
  }
  await write(check, topic, numbers(2, count, count + 40))
  // What was read but not yet committed when the broker went may come again; nothing is left out.
  await check.until('all is read', () => new Set(member.values).size === count + 40)
  await member.leave()
}

// 100 idempotent producers and the 100 members of one group work at once, a partition each.
export async function manyClients(check) {
  const [pairs, each] = [100, 10]
  const [topic, group] = [await createTopic(check, 'topic', pairs), check.name('group')]
  const joining = Promise.all(Array.from({ length: pairs }, () => Member.join(check, group, [topic])))
  const producing = Array.from({ length: pairs }, (_, partition) =>
    withProducer(check, { idempotent: true }, async (producer) => {
      for (let number = 0; number < each; number += 1) {
        const [sent] = await producer.send({ topic, messages: [{ value: `${partition}:${number}`, partition }] })
        check.equal('offset', sent.baseOffset, `${number}`)
      }
    }),
  )
  await Promise.all(producing)
  const members = await joining
  await check.until('every member holds one partition', () => members.every((member) => member.held.length === 1))
  // A record that was read just before its partition went to another member may be read twice; none is left out.
  await check.until('all is read', () => new Set(members.flatMap((member) => member.values)).size === pairs * each)
  await Promise.all(members.map((member) => member.leave()))
}
