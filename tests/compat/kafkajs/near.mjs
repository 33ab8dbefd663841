// A reader with a rack, which prints the first six bytes of each committed record.
//     node near.mjs BOOTSTRAP TOPIC RACK
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const [bootstrap, topic, rackId] = process.argv.slice(2)
const kafka = new Kafka({ clientId: topic, brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
const consumer = kafka.consumer({ groupId: `${topic}-kafkajs`, rackId, readUncommitted: false })
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await consumer.run({ eachMessage: async ({ message }) => console.log(`${message.value.subarray(0, 6)}`) })
