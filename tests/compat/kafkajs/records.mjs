// What is written comes back as it was, whatever carried it.
import { START_MS } from './checks.mjs'
import { CompressionTypes, Member, createTopic, errorOf, newKafka, numbers, readAll, withAdmin, withProducer } from './kafka.mjs'

export async function produceAndConsume(check) {
  const topic = await createTopic(check, 'topic', 3)
  const messages = numbers(3, 0, 300).map((message, number) => ({
    ...message,
    key: number % 30 === 0 ? null : `key-${number}`,
    value: number % 30 === 2 ? null : message.value,
    timestamp: `${START_MS + number}`,
    headers: { number: `${number}`, twice: ['once', 'again'] },
  }))
  const sent = await withProducer(check, {}, (producer) => producer.send({ topic, messages }))
  const offsets = sent.map(({ partition, baseOffset, errorCode }) => [partition, baseOffset, errorCode])
  check.equal('acknowledgements', offsets.sort(), [[0, '0', 0], [1, '0', 0], [2, '0', 0]])
  const member = await Member.join(check, check.name('group'), [topic])
  await check.until('all is read', () => member.messages.length === 300)
  await member.leave()
  const next = [0, 0, 0]
  for (const message of member.messages) {
    check.equal('offset', message.offset, `${next[message.partition]}`)
    const written = messages[next[message.partition] * 3 + message.partition]
    next[message.partition] += 1
    check.equal('key', message.key?.toString() ?? null, written.key)
    check.equal('value', message.value?.toString() ?? null, written.value)
    check.equal('timestamp', message.timestamp, written.timestamp)
    check.equal('header', message.headers.number.toString(), written.headers.number)
    check.equal('header that comes twice', message.headers.twice.map(String), ['once', 'again'])
  }
  check.equal('records by partition', next, [100, 100, 100])
}

export async function compression(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const codec of [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]) {
    const values = Array.from({ length: 20 }, (_, number) => `${codec} ${number} `.repeat(1 + number * number))
    const messages = values.map((value) => ({ value, partition: 0 }))
    await withProducer(check, {}, (producer) => producer.send({ topic, messages, compression: codec }))
    want.push(...values)
  }
  check.equal('records', await readAll(check, topic, 0, false), want)
}

export async function acks(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const level of [-1, 1, 0]) {
    await withProducer(check, {}, async (producer) => {
      for (let number = 0; number < 10; number += 1) {
        want.push(`${level} ${number}`)
        await producer.send({ topic, acks: level, messages: [{ value: `${level} ${number}`, partition: 0 }] })
      }
    })
  }
  const member = await Member.join(check, check.name('group'), [topic])
  await check.until('all is read', () => member.messages.length === 30)
  await member.leave()
  check.equal('records', member.values, want)
}

export async function recordTooLarge(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withProducer(check, { retry: { retries: 0 } }, async (producer) => {
    const send = (size) => producer.send({ topic, messages: [{ value: Buffer.alloc(size), partition: 0 }] })
    await send(1_000_000)
    check.equal('error of a batch above message.max.bytes', await errorOf(send(1_100_000)), 'MESSAGE_TOO_LARGE')
    await send(5)
  })
  const member = await Member.join(check, check.name('group'), [topic])
  await check.until('both are read', () => member.messages.length === 2)
  await member.leave()
  check.equal('sizes', member.messages.map((message) => message.value.length), [1_000_000, 5])
}

export async function offsetsByTime(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withProducer(check, {}, async (producer) => {
    for (const after of [1000, 3000, 2000, 5000]) {
      await producer.send({ topic, messages: [{ value: 'x', partition: 0, timestamp: `${START_MS + after}` }] })
    }
  })
  await withAdmin(check, async (admin) => {
    const found = []
    for (const after of [1000, 1001, 3001, 5001]) {
      const [of] = await admin.fetchTopicOffsetsByTimestamp(topic, START_MS + after)
      found.push(of.offset)
    }
    check.equal('offsets by time', found, ['0', '1', '3', '4'])
    const [of] = await admin.fetchTopicOffsets(topic)
    check.equal('start and end', [of.low, of.high], ['0', '4'])
  })
}

export async function autoCreation(check) {
  const topic = check.name('topic')
  await withProducer(check, { allowAutoTopicCreation: true }, (producer) =>
    producer.send({ topic, messages: [{ value: 'created' }] }),
  )
  check.equal('records', await readAll(check, topic, 0, false), ['created'])
  const refused = newKafka(check).producer({ allowAutoTopicCreation: false, retry: { retries: 0 } })
  await refused.connect()
  const error = await errorOf(refused.send({ topic: check.name('missing'), messages: [{ value: 'refused' }] }))
  await refused.disconnect()
  check.equal('a topic is not created for a client that does not want it', error, 'UNKNOWN_TOPIC_OR_PARTITION')
}

export async function idempotent(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withProducer(check, { idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
    for (let start = 0; start < 500; start += 100) {
      await producer.send({ topic, messages: numbers(2, start, start + 100) })
    }
  })
  for (const partition of [0, 1]) {
    const want = Array.from({ length: 250 }, (_, index) => `${index * 2 + partition}`)
    check.equal('records', await readAll(check, topic, partition, false), want)
  }
}
