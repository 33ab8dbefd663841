// Clients of the check's broker, and what the checks do with them.
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'

const { CompressionCodecs, CompressionTypes, Kafka, KafkaJSProtocolError, Partitioners, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = snappy
export { CompressionTypes }

// KafkaJS's defaults, but for the pace at which it comes back, and silent.
export function newKafka(check) {
  return new Kafka({
    clientId: check.name('client'),
    brokers: check.bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 60 },
  })
}

export async function withProducer(check, settings, use) {
  const producer = newKafka(check).producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings })
  await producer.connect()
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
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1 }
    await admin.createTopics({ topics: [wanted], waitForLeaders: false })
    await check.until('the topic is known', async () => {
      const described = await admin.fetchTopicMetadata({ topics: [topic] }).catch(() => ({ topics: [] }))
      return described.topics[0]?.partitions.length === partitions
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

// A member of a group that reads in the background, commits each message, and knows what it holds.
export class Member {
  static async join(check, group, topics, { autoCommit = true, ...settings } = {}) {
    const member = new Member()
    member.messages = []
    member.held = []
    member.consumer = newKafka(check).consumer({
      groupId: group,
      sessionTimeout: 10_000,
      heartbeatInterval: 200,
      maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false,
      ...settings,
    })
    member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => {
      member.held = Object.values(payload.memberAssignment).flat()
    })
    await member.consumer.connect()
    await member.consumer.subscribe({ topics, fromBeginning: true })
    await member.consumer.run({
      autoCommit,
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => {
        member.messages.push({ partition, ...message })
      },
    })
    return member
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

// The name of the Kafka error that a promise ends with, "none" when it does not.
export async function errorOf(promise) {
  try {
    await promise
    return 'none'
  } catch (error) {
    for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0] ?? each.groups?.[0]?.error) {
      if (each instanceof KafkaJSProtocolError) return each.type
    }
    return error.name
  }
}

export const sorted = (...lists) => lists.flat().sort()
