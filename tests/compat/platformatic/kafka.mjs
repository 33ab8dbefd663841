// Clients of the check's broker, and what the checks do with them.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

// The client's defaults, but for how long it tries again.
const settings = (check, kind) => ({
  clientId: check.name(kind),
  bootstrapBrokers: check.bootstrap.split(','),
  retries: 60,
  retryDelay: 100,
})

const newProducer = (check, more) =>
  new Producer({ ...settings(check, 'producer'), serializers: stringSerializers, ...more })

async function used(client, use) {
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}

export const withProducer = (check, more, use) => used(newProducer(check, more), use)

export const withAdmin = (check, use, more = {}) => used(new Admin({ ...settings(check, 'admin'), ...more }), use)

// A topic of the check's own, once it is known.
export async function createTopic(check, kind, partitions) {
  const topic = check.name(kind)
  await withAdmin(check, async (admin) => {
    await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
    await check.until('the topic is known', async () => (await admin.listTopics()).includes(topic))
    await check.known(topic)
  })
  return topic
}

// Messages with the values from, from + 1, …, dealt to the partitions in turn.
export function numbers(topic, partitions, from, to) {
  const messages = []
  for (let number = from; number < to; number += 1) {
    messages.push({ topic, value: `${number}`, partition: number % partitions })
  }
  return messages
}

export const write = (check, messages) => withProducer(check, {}, (producer) => producer.send({ messages }))

// A member of a group that reads in the background, commits each message, and knows what it holds.
export class Member {
  static async join(check, group, topics, { isCommitting = true, isolationLevel = 1, mode = 'committed', ...more } = {}) {
    const member = new Member()
    member.messages = []
    member.errors = []
    member.consumer = new Consumer({
      ...settings(check, 'consumer'),
      groupId: group,
      deserializers: stringDeserializers,
      maxWaitTime: 100,
      isolationLevel,
      autocommit: isCommitting ? 50 : false,
      ...(more.groupProtocol === 'consumer' ? {} : { sessionTimeout: 10_000, heartbeatInterval: 200, rebalanceTimeout: 10_000 }),
      ...more,
    })
    member.stream = await member.consumer.consume({ topics, mode, fallbackMode: 'earliest' })
    member.stream.on('data', (message) => { member.messages.push(message) })
    member.stream.on('error', (error) => { member.errors.push(error) })
    return member
  }

  get held() {
    return (this.consumer.assignments ?? []).flatMap(({ partitions }) => partitions)
  }

  get values() {
    return this.messages.map(({ value }) => value ?? null)
  }

  leave() {
    return this.consumer.close(true)
  }
}

// The values that a reader sees in a partition before a message that is written for the purpose.
export async function readAll(check, topic, partition, isolationLevel) {
  const end = `the end of ${partition}, ${Math.random()}`
  await write(check, [{ topic, value: end, partition }])
  const group = `${check.name('reader')}-${Math.random()}`
  const member = await Member.join(check, group, [topic], { isolationLevel, isCommitting: false, mode: 'earliest' })
  await check.until('reading a partition', () => member.values.includes(end))
  await member.leave()
  const values = member.messages.filter((message) => message.partition === partition).map(({ value }) => value)
  return values.filter((value) => !value.startsWith('the end of'))
}

// The id of the Kafka error that a promise ends with, "none" when it does not.
export async function errorOf(promise) {
  try {
    await promise
    return 'none'
  } catch (error) {
    const waiting = [error]
    while (waiting.length > 0) {
      const each = waiting.shift()
      if (each?.apiId) return each.apiId
      waiting.push(...[each?.cause, ...(each?.errors ?? [])].filter(Boolean))
    }
    return `${error.code}: ${error.message}`
  }
}

export const sorted = (...lists) => lists.flat().sort()
