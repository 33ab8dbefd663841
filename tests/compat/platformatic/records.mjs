// What is written comes back as it was, whatever carried it.
import { START_MS } from './checks.mjs'
import { Member, createTopic, errorOf, numbers, readAll, withAdmin, withProducer } from './kafka.mjs'

export async function produceAndConsume(check) {
  const topic = await createTopic(check, 'topic', 3)
  const messages = numbers(topic, 3, 0, 300).map((message, number) => ({
    ...message,
    key: number % 30 === 0 ? undefined : `key-${number}`,
    value: number % 30 === 2 ? undefined : message.value,
    timestamp: BigInt(START_MS + number),
    headers: new Map([['number', `${number}`]]),
  }))
  const sent = await withProducer(check, {}, (producer) => producer.send({ messages }))
  const offsets = sent.offsets.map(({ partition, offset }) => [partition, Number(offset)])
  check.equal('acknowledgements', offsets.sort(), [[0, 0], [1, 0], [2, 0]])
  const member = await Member.join(check, check.name('group'), [topic])
  await check.until('all is read', () => member.messages.length === 300)
  await member.leave()
  const next = [0, 0, 0]
  for (const message of member.messages) {
    check.equal('offset', Number(message.offset), next[message.partition])
    const written = messages[next[message.partition] * 3 + message.partition]
    next[message.partition] += 1
    check.equal('key', message.key ?? null, written.key ?? null)
    check.equal('value', message.value ?? null, written.value ?? null)
    check.equal('timestamp', message.timestamp, written.timestamp)
    check.equal('header', message.headers.get('number'), written.headers.get('number'))
  }
  check.equal('records by partition', next, [100, 100, 100])
}

export async function compression(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const codec of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
    const values = Array.from({ length: 20 }, (_, number) => `${codec} ${number} `.repeat(1 + number * number))
    const messages = values.map((value) => ({ topic, value, partition: 0 }))
    await withProducer(check, {}, (producer) => producer.send({ messages, compression: codec }))
    want.push(...values)
  }
  check.equal('records', await readAll(check, topic, 0, 1), want)
}

export async function acks(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const level of [-1, 1, 0]) {
    await withProducer(check, {}, async (producer) => {
      for (let number = 0; number < 10; number += 1) {
        want.push(`${level} ${number}`)
        await producer.send({ acks: level, messages: [{ topic, value: `${level} ${number}`, partition: 0 }] })
      }
    })
  }
  const member = await Member.join(check, check.name('group'), [topic])
  await check.until('all is read', () => member.messages.length === 30)
  await member.leave()
  check.equal('records', member.values, want)
}

export async function offsetsByTime(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withProducer(check, {}, async (producer) => {
    for (const after of [1000, 3000, 2000, 5000]) {
      await producer.send({ messages: [{ topic, value: 'x', partition: 0, timestamp: BigInt(START_MS + after) }] })
    }
  })
  await withAdmin(check, async (admin) => {
    const found = []
    for (const timestamp of [1000, 1001, 3001, 5001].map((after) => BigInt(START_MS + after)).concat(-2n, -1n)) {
      const [of] = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }] })
      found.push(Number(of.partitions[0].offset))
    }
    check.equal('offsets by time, start and end', found, [0, 1, 3, -1, 0, 4])
  })
}

export async function autoCreation(check) {
  const topic = check.name('topic')
  await withProducer(check, { autocreateTopics: true }, (producer) =>
    producer.send({ messages: [{ topic, value: 'created', partition: 0 }] }),
  )
  check.equal('records', await readAll(check, topic, 0, 1), ['created'])
  await withProducer(check, { autocreateTopics: false, retries: 0 }, async (producer) => {
    const refused = producer.send({ messages: [{ topic: check.name('missing'), value: 'refused', partition: 0 }] })
    check.equal('error of a topic that is missing', await errorOf(refused), 'PLT_KFK_USER: Unknown topic ' + check.name('missing') + '.')
  })
}

export async function idempotent(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  await withProducer(check, { idempotent: true }, async (producer) => {
    for (let number = 0; number < 60; number += 1) {
      want.push(`${number}`)
      const { offsets } = await producer.send({ messages: [{ topic, value: `${number}`, partition: 0 }] })
      check.equal('offset', Number(offsets[0].offset), number)
    }
  })
  check.equal('records', await readAll(check, topic, 0, 1), want)
}
