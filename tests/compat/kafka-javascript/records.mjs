// What is written comes back as it was, whatever carried it.
import confluent from '@confluentinc/kafka-javascript'

import { START_MS } from './checks.mjs'
import { Member, RdKafka, called, createTopic, errorOf, numbers, readAll, withAdmin, withProducer } from './kafka.mjs'

const { CompressionTypes } = confluent.KafkaJS

export async function produceAndConsume(check) {
  const topic = await createTopic(check, 'topic', 3)
  const messages = numbers(3, 0, 300).map((message, number) => ({
    ...message,
    key: number % 30 === 0 ? null : `key-${number}`,
    value: number % 30 === 2 ? null : message.value,
    timestamp: `${START_MS + number}`,
    headers: { number: `${number}`, twice: ['once', 'again'] },
  }))
  // The library replaces values by buffers in what it is given.
  const given = messages.map((message) => ({ ...message }))
  const sent = await withProducer(check, { idempotent: true }, (producer) => producer.send({ topic, messages: given }))
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

// The interface of node-rdkafka: delivery reports, and a consumer that is asked for records.
export async function produceAndConsumeByCallbacks(check) {
  const topic = await createTopic(check, 'topic', 1)
  const common = { 'metadata.broker.list': check.bootstrap, log_level: 0 }
  const producer = new RdKafka.Producer({ ...common, 'linger.ms': 0, dr_cb: true })
  await called(producer, 'connect', {})
  producer.setPollInterval(10)
  const reports = []
  producer.on('delivery-report', (error, report) => reports.push([error?.message ?? null, report.offset, report.opaque]))
  for (let number = 0; number < 20; number += 1) {
    producer.produce(topic, 0, Buffer.from(`${number}`), `key-${number}`, START_MS + number, number, [{ number: `${number}` }])
  }
  await check.until('all deliveries are reported', () => reports.length === 20)
  check.equal('delivery reports', reports, Array.from({ length: 20 }, (_, number) => [null, number, number]))
  await called(producer, 'disconnect')

  const consumer = new RdKafka.KafkaConsumer({ ...common, 'group.id': check.name('group') }, { 'auto.offset.reset': 'earliest' })
  await called(consumer, 'connect', {})
  consumer.assign([{ topic, partition: 0, offset: 5 }])
  const read = []
  await check.until('all is read', async () => {
    read.push(...(await called(consumer, 'consume', 20)))
    return read.length >= 15
  })
  const seen = read.map(({ value, key, offset, timestamp, headers }) =>
    [`${value}`, `${key}`, offset, timestamp, `${headers[0].number}`])
  check.equal('records', seen, Array.from({ length: 15 }, (_, index) => index + 5).map((number) =>
    [`${number}`, `key-${number}`, number, START_MS + number, `${number}`]))
  await called(consumer, 'disconnect')
}

export async function compression(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const codec of Object.values(CompressionTypes)) {
    const values = Array.from({ length: 20 }, (_, number) => `${codec} ${number} `.repeat(1 + number * number))
    const messages = values.map((value) => ({ value, partition: 0 }))
    await withProducer(check, { compression: codec }, (producer) => producer.send({ topic, messages }))
    want.push(...values)
  }
  check.equal('codecs', Object.values(CompressionTypes).sort(), ['gzip', 'lz4', 'none', 'snappy', 'zstd'])
  check.equal('records', await readAll(check, topic, 0, false), want)
}

export async function acks(check) {
  const topic = await createTopic(check, 'topic', 1)
  const want = []
  for (const level of [-1, 1, 0]) {
    await withProducer(check, { acks: level }, async (producer) => {
      for (let number = 0; number < 10; number += 1) {
        want.push(`${level} ${number}`)
        await producer.send({ topic, messages: [{ value: `${level} ${number}`, partition: 0 }] })
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
  await withProducer(check, {}, async (producer) => {
    const send = (size) => producer.send({ topic, messages: [{ value: Buffer.alloc(size), partition: 0 }] })
    await send(1_000_000)
    check.equal('error of a batch above message.max.bytes', await errorOf(send(1_100_000)), 'ERR_MSG_SIZE_TOO_LARGE')
    await send(5)
  }, { 'message.max.bytes': 2_000_000 })
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
  await withProducer(check, { allowAutoTopicCreation: false }, async (producer) => {
    const refused = producer.send({ topic: check.name('missing'), messages: [{ value: 'refused' }] })
    check.equal('a topic is not created for a client that does not want it', await errorOf(refused), 'ERR_UNKNOWN_TOPIC_OR_PART')
  }, { 'topic.metadata.propagation.max.ms': 500 })
}

export async function idempotent(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withProducer(check, { idempotent: true }, async (producer) => {
    for (let start = 0; start < 500; start += 100) {
      await producer.send({ topic, messages: numbers(2, start, start + 100) })
    }
  })
  for (const partition of [0, 1]) {
    const want = Array.from({ length: 250 }, (_, index) => `${index * 2 + partition}`)
    check.equal('records', await readAll(check, topic, partition, false), want)
  }
}
