// A producer, a transactional producer and a member of a group that never stop, with KafkaJS's defaults.
//     node steady.mjs BOOTSTRAP TOPIC PARTITIONS FEED
// Each line is the part ("produce", "transact", "consume"), a partition and when what has arrived was sent, in
// milliseconds of Unix time. A transaction writes to all partitions, and its line has the partition -1.
import kafkajs from 'kafkajs'

const { Kafka, Partitioners, logLevel } = kafkajs
const [bootstrap, topic, count, feed] = process.argv.slice(2)
const kafka = new Kafka({ clientId: topic, brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const createPartitioner = Partitioners.DefaultPartitioner
const partitions = Array.from({ length: Number(count) }, (_, partition) => partition)
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
const message = (partition) => ({ partition, value: `${Date.now()}` })
const say = (part, partition, sent) => console.log(part, partition, sent)
const complain = (part, error) => console.error(part, `${error}`)

async function produce() {
  const producer = kafka.producer({ createPartitioner })
  await producer.connect()
  for (;;) {
    // One request for each partition, as a partition without a leader would keep the others waiting.
    for (const partition of partitions) {
      const sent = message(partition)
      producer.send({ topic, messages: [sent] }).then(
        () => say('produce', partition, sent.value),
        (error) => complain('produce', error),
      )
    }
    await sleep(250)
  }
}

async function transactional() {
  const settings = { createPartitioner, transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }
  const producer = kafka.producer(settings)
  await producer.connect()
  return producer
}

async function transact() {
  let producer
  for (;;) {
    const began = Date.now()
    let transaction
    try {
      producer ??= await transactional()
      transaction = await producer.transaction()
      await transaction.send({ topic, messages: partitions.map(message) })
      await transaction.commit()
      say('transact', -1, began)
    } catch (error) {
      complain('transact', error)
      try {
        await transaction?.abort()
      } catch (failure) {
        // It can neither be committed nor aborted: another producer fences this one.
        complain('transact', failure)
        await producer.disconnect().catch(() => {})
        producer = undefined
      }
    }
    await sleep(250)
  }
}

async function consume() {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic: feed })
  await consumer.run({ eachMessage: async ({ partition, message: { value } }) => say('consume', partition, `${value}`) })
}

await Promise.all([produce(), transact(), consume()])
