// Clients of the check's broker, and what the checks do with them.
import confluent from '@confluentinc/kafka-javascript'

const { ErrorCodes, Kafka, logLevel } = confluent.KafkaJS
export const RdKafka = confluent

const LONG_MS = 60_000

// The library's defaults, but for how long it retries, and silent.
export function newKafka(check, more = {}) {
  return new Kafka({
    kafkaJS: { clientId: check.name('client'), brokers: check.bootstrap.split(','), logLevel: logLevel.NOTHING },
    'retry.backoff.ms': 50,
    'retry.backoff.max.ms': 200,
    'reconnect.backoff.max.ms': 500,
    ...more,
  })
}

// kafkaJS: what the KafkaJS-like configuration has; more: properties of librdkafka.
export async function connectedProducer(check, kafkaJS = {}, more = {}) {
  const producer = newKafka(check).producer({
    kafkaJS: { retry: { retries: 10_000 }, ...kafkaJS },
    'linger.ms': 0,
    ...more,
  })
  await producer.connect()
  return producer
}

export async function withProducer(check, kafkaJS, use, more = {}) {
  const producer = await connectedProducer(check, kafkaJS, more)
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

export async function withAdmin(check, use) {
  const admin = newKafka(check).admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

// A topic of the check's own, once it is known.
export async function createTopic(check, kind, partitions) {
  const topic = check.name(kind)
  await withAdmin(check, async (admin) => {
    await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }], timeout: LONG_MS })
    await check.until('the topic is known', async () => {
      const described = await admin.fetchTopicMetadata({ topics: [topic] }).catch(() => [])
      return described[0]?.partitions.length === partitions
    })
    await check.known(topic)
  })
  return topic
}

// Messages with the values from, from + 1, …, dealt to the partitions in turn.
export function numbers(partitions, from, to) {
  const messages = []
  for (let number = from; number < to; number += 1) {
    messages.push({ value: `${number}`, partition: number % partitions })
  }
  return messages
}

export const write = (check, topic, messages) =>
  withProducer(check, {}, (producer) => producer.send({ topic, messages }))

// A member of a group that reads in the background, commits soon, and knows what it holds.
export class Member {
  static async join(check, group, topics, { autoCommit = true, readUncommitted = false, protocol = 'classic', more = {} } = {}) {
    const member = new Member()
    member.messages = []
    const ofClassic = { sessionTimeout: 10_000, heartbeatInterval: 200 }
    member.consumer = newKafka(check).consumer({
      kafkaJS: {
        groupId: group,
        fromBeginning: true,
        autoCommit,
        autoCommitInterval: 50,
        readUncommitted,
        maxWaitTimeInMs: 100,
        allowAutoTopicCreation: false,
        ...(protocol === 'classic' ? ofClassic : {}),
      },
      'group.protocol': protocol,
      'fetch.error.backoff.ms': 50,
      ...more,
    })
    await member.consumer.connect()
    await member.consumer.subscribe({ topics })
    await member.consumer.run({
      eachMessage: async ({ partition, message }) => {
        member.messages.push({ partition, ...message })
      },
    })
    return member
  }

  get held() {
    return this.consumer.assignment().map(({ partition }) => partition)
  }

  get values() {
    return this.messages.map((message) => message.value?.toString() ?? null)
  }

  leave() {
    return this.consumer.disconnect()
  }
}

// The values that a reader sees in a partition before a message that is written for the purpose.
export async function readAll(check, topic, partition, readUncommitted) {
  const end = `the end of ${partition}, ${Math.random()}`
  await write(check, topic, [{ value: end, partition }])
  const group = `${check.name('reader')}-${Math.random()}`
  const member = await Member.join(check, group, [topic], { readUncommitted, autoCommit: false })
  await check.until('reading a partition', () => member.values.includes(end))
  await member.leave()
  const values = member.messages.filter((message) => message.partition === partition)
  return values.map((message) => message.value.toString()).filter((value) => !value.startsWith('the end of'))
}

const NAMES = new Map(Object.entries(ErrorCodes).map(([name, code]) => [code, name]))

// The name of an error: Kafka's or librdkafka's.
export function nameOf(error) {
  for (let each = error; each; each = each.cause ?? each.errors?.[0] ?? each.groups?.[0]?.error ?? each.partitions?.[0]?.error) {
    if (each.code !== undefined && each.code !== ErrorCodes.ERR_UNKNOWN) return NAMES.get(each.code) ?? `${each.code}`
  }
  return `${error.name}: ${error.message}`
}

// The name of the error that a promise ends with, "none" when it does not.
export async function errorOf(promise) {
  try {
    await promise
    return 'none'
  } catch (error) {
    return nameOf(error)
  }
}

// Calls a function of the node-rdkafka-like interface, whose last argument is a callback.
export const called = (client, method, ...args) =>
  new Promise((resolve, reject) => {
    client[method](...args, (error, result) => (error ? reject(error) : resolve(result)))
  })

export const sorted = (...lists) => lists.flat().sort()
