// KafkaJS at a secured broker.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import kafkajs from 'kafkajs'
import { sleep } from './checks.mjs'

const { Kafka, KafkaJSProtocolError, Partitioners, logLevel } = kafkajs
const ALICE = { listener: 'SASL_SSL', user: 'alice', password: 'alice-secret', token: 'alice', authority: 'authority' }
const PLAIN = { ...ALICE, mechanism: 'plain' }
const ADMIN = { ...PLAIN, user: 'admin', password: 'admin-secret' }

// To KafkaJS, a coordinator that it may not ask for is not there.
const HIDDEN_COORDINATOR = 'KafkaJSGroupCoordinatorNotFound'

const file = (name) => readFileSync(join(process.env.SECURED_FILES, name), 'utf8')

function newKafka(login) {
  const settings = {
    brokers: [process.env[`SECURED_${login.listener}`]],
    logLevel: logLevel.NOTHING,
    reauthenticationThreshold: 500, // its sessions of ten seconds and less would end at every request
    retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 3 },
  }
  if (!['SASL_PLAINTEXT', 'SHORT'].includes(login.listener)) {
    settings.ssl = { ca: file(`${login.authority}.pem`) }
    if (login.certificate) {
      settings.ssl.cert = file(`${login.certificate}.crt`)
      settings.ssl.key = file(`${login.certificate}.key`)
    }
  }
  if (login.mechanism === 'oauthbearer') {
    const oauthBearerProvider = async () => ({ value: file(`${login.token}.jwt`) })
    settings.sasl = { mechanism: login.mechanism, oauthBearerProvider }
  } else if (login.mechanism) {
    settings.sasl = { mechanism: login.mechanism, username: login.user, password: login.password }
  }
  return new Kafka(settings)
}

// The name of the error that a promise ends with: Kafka's, the one of TLS, or the library's.
async function errorOf(promise) {
  try {
    await promise
    return 'none'
  } catch (error) {
    return nameOf(error)
  }
}

function nameOf(error) {
  for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0]) {
    if (each instanceof KafkaJSProtocolError) return each.type
    const tls = /unable to verify the first certificate|unable to get local issuer certificate|self-signed certificate/
    if (tls.test(each.message)) return 'unknown authority'
    if (/certificate has expired/.test(each.message)) return 'expired'
    if (/SSL alert number/.test(each.message)) return 'alert'
  }
  return error.name
}

async function withWriter(login, settings, use) {
  const producer = newKafka(login).producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const write = (producer, topic, ...values) =>
  producer.send({ topic, messages: values.map((value) => ({ value, partition: 0 })) })

// A member of a group; it hands over what it got, and commits when it is asked to.
class Reader {
  static async start(login, topic, group) {
    const reader = new Reader()
    reader.values = []
    reader.errors = []
    reader.topic = topic
    reader.consumer = newKafka(login).consumer({
      groupId: group,
      maxWaitTimeInMs: 100,
      heartbeatInterval: 200,
      retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 3, restartOnFailure: async () => true },
      allowAutoTopicCreation: false,
    })
    reader.consumer.on(reader.consumer.events.CRASH, ({ payload }) => reader.errors.push(nameOf(payload.error)))
    try {
      await reader.consumer.connect()
      await reader.consumer.subscribe({ topics: [topic], fromBeginning: true })
      await reader.consumer.run({
        autoCommit: false,
        eachMessage: async ({ message }) => {
          reader.values.push(message.value.toString())
          reader.next = `${BigInt(message.offset) + 1n}`
        },
      })
    } catch (error) {
      await reader.close()
      throw error
    }
    return reader
  }

  commit() {
    return this.consumer.commitOffsets([{ topic: this.topic, partition: 0, offset: this.next }])
  }

  close() {
    return this.consumer.disconnect().catch(() => {})
  }
}

async function withReader(login, topic, group, use) {
  const reader = await Reader.start(login, topic, group)
  try {
    return await use(reader)
  } finally {
    await reader.close()
  }
}

async function topicOf(check, user, ...operations) {
  const topic = check.name('topic')
  await check.ask(`topic ${topic}`)
  for (const operation of operations) await check.ask(`allow User:${user} ${operation} topic ${topic}`)
  return topic
}

async function groupOf(check, user) {
  const group = check.name('group')
  await check.ask(`allow User:${user} READ group ${group}`)
  return group
}

const numbers = (count) => Array.from({ length: count }, (_, number) => `${number}`)

// What is in a topic, as an administrator reads it.
async function contents(check, topic, count) {
  return withReader(ADMIN, topic, `${check.name('admin')}-${Math.random()}`, async (reader) => {
    await check.until('all is read', () => reader.values.length >= count)
    return reader.values
  })
}

async function works(check, login, user = 'alice') {
  const topic = await topicOf(check, user, 'READ', 'WRITE')
  const group = await groupOf(check, user)
  await withWriter(login, {}, (producer) => write(producer, topic, ...numbers(100)))
  await withReader(login, topic, group, async (reader) => {
    await check.until('100 records', () => reader.values.length >= 100)
    check.equal('values', reader.values, numbers(100))
    await reader.commit()
  })
}

const connectionError = (login) => errorOf(withWriter(login, { retry: { retries: 0 } }, async () => {}))

async function mutualTls(check) {
  await works(check, { ...ALICE, listener: 'MUTUAL', certificate: 'alice' })
  check.equal('without a certificate', await connectionError({ ...ALICE, listener: 'MUTUAL' }), 'alert')
}

async function oauthbearer(check) {
  const login = { ...ALICE, mechanism: 'oauthbearer' }
  await works(check, login)
  const topic = check.name('topic')
  for (const token of ['expired', 'forged']) {
    // It takes the refusal for success, and gets answers without content.
    const error = await errorOf(withWriter({ ...login, token }, {}, (producer) => write(producer, topic, 'x')))
    check.equal(`with a token that is ${token}`, error, 'ILLEGAL_SASL_STATE')
  }
}

async function wrongPasswords(check) {
  for (const mechanism of ['plain', 'scram-sha-256', 'scram-sha-512']) {
    const login = { ...ALICE, mechanism }
    for (const wrong of [{ password: 'wrong' }, { user: 'bob' }, { user: 'nobody' }]) {
      const error = await connectionError({ ...login, ...wrong })
      check.equal(`${mechanism} with ${JSON.stringify(wrong)}`, error, 'KafkaJSSASLAuthenticationError')
    }
  }
  await works(check, PLAIN)
}

async function wrongAuthority(check) {
  check.equal('error', await connectionError({ ...PLAIN, authority: 'other-authority' }), 'unknown authority')
}

async function expiredCertificate(check) {
  check.equal('error', await connectionError({ ...ALICE, listener: 'EXPIRED' }), 'expired')
}

// What a consumer shows before it stops; it must not get a record.
async function errorOfReading(check, topic, group) {
  let reader
  const error = await errorOf(
    Reader.start(PLAIN, topic, group).then((started) => {
      reader = started
    }),
  )
  if (!reader) return error
  await check.until('the consumer shows an error', () => reader.errors.length > 0)
  await reader.close()
  check.equal('records', reader.values, [])
  return reader.errors[0]
}

async function noRight(check) {
  const topic = await topicOf(check, 'bob', 'READ', 'WRITE')
  const group = check.name('group')
  await withWriter(PLAIN, {}, async (producer) => {
    check.equal('writing', await errorOf(write(producer, topic, 'x')), 'TOPIC_AUTHORIZATION_FAILED')
  })
  const shown = async (want) => check.equal('what a consumer shows', await errorOfReading(check, topic, group), want)
  await check.ask(`allow User:alice READ group ${group}`)
  await shown('TOPIC_AUTHORIZATION_FAILED')
  await check.ask(`forbid User:alice READ group ${group}`)
  await check.ask(`allow User:alice READ topic ${topic}`)
  await shown(HIDDEN_COORDINATOR)
  await withWriter(ADMIN, {}, (producer) => write(producer, topic, 'only this'))
  check.equal('what was written', await contents(check, topic, 1), ['only this'])
}

async function rightRevokedWhileProducing(check) {
  const topic = await topicOf(check, 'alice', 'WRITE')
  const want = numbers(20)
  await withWriter(PLAIN, {}, async (producer) => {
    for (const value of want) await write(producer, topic, value) // the broker knows the same request by then
    for (let turn = 0; turn < 3; turn += 1) {
      await check.ask(`forbid User:alice WRITE topic ${topic}`)
      check.equal('without the right', await errorOf(write(producer, topic, 'refused')), 'TOPIC_AUTHORIZATION_FAILED')
      await check.ask(`allow User:alice WRITE topic ${topic}`)
      const again = `again ${turn}`
      await check.until('with it again', async () => (await errorOf(write(producer, topic, again))) === 'none')
      want.push(again)
    }
  })
  check.equal('what was written', await contents(check, topic, want.length), want)
}

async function rightRevokedWhileConsuming(check) {
  const topic = await topicOf(check, 'alice', 'READ')
  const group = await groupOf(check, 'alice')
  const refused = 'TOPIC_AUTHORIZATION_FAILED'
  await withWriter(ADMIN, {}, async (admin) => {
    await withReader(PLAIN, topic, group, async (reader) => {
      await write(admin, topic, ...numbers(10))
      await check.until('ten records', () => reader.values.length >= 10)
      await reader.commit()
      await check.ask(`forbid User:alice READ topic ${topic}`)
      await check.until('the consumer shows an error', () => reader.errors.length > 0) // and stops
      check.equal('error', reader.errors, [refused])
      await write(admin, topic, 'hidden')
      check.equal('values', reader.values, numbers(10))
    })
    check.equal('what the next consumer shows', await errorOfReading(check, topic, group), refused)
    await check.ask(`allow User:alice READ topic ${topic}`)
    await withReader(PLAIN, topic, group, async (reader) => {
      await check.until('the right is back', () => reader.values.length > 0)
      check.equal('values', reader.values, ['hidden'])
      await check.ask(`forbid User:alice READ group ${group}`)
      check.equal('committing', await errorOf(reader.commit()), 'GROUP_AUTHORIZATION_FAILED')
    })
  })
}

async function rightRevokedInTransaction(check) {
  const topic = await topicOf(check, 'alice', 'WRITE')
  const transactionalId = check.name('transaction')
  const right = `User:alice WRITE transactional-id ${transactionalId}`
  const settings = { transactionalId, maxInFlightRequests: 1, idempotent: true }
  const want = []
  const commit = async (producer, value) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value, partition: 0 }] })
    await transaction.commit()
    want.push(value)
  }
  const hidden = await errorOf(withWriter(PLAIN, settings, (producer) => producer.transaction()))
  check.equal('initializing', hidden, HIDDEN_COORDINATOR)
  await check.ask(`allow ${right}`)
  await withWriter(PLAIN, settings, async (producer) => {
    for (let number = 0; number < 3; number += 1) await commit(producer, `committed ${number}`)
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: 'never committed', partition: 0 }] })
    await check.ask(`forbid ${right}`)
    check.equal('committing', await errorOf(transaction.commit()), HIDDEN_COORDINATOR)
  })
  await check.ask(`allow ${right}`)
  // The next producer ends what the first left open.
  await withWriter(PLAIN, settings, (producer) => commit(producer, 'the last'))
  check.equal('what was committed', await contents(check, topic, want.length), want)
}

// Clients authenticate again, or connect again, when their session ends; they lose nothing.
async function sessionsThatEnd(check) {
  const topic = await topicOf(check, 'alice', 'READ', 'WRITE')
  const group = await groupOf(check, 'alice')
  const login = { ...ALICE, listener: 'SHORT', mechanism: 'scram-sha-256' }
  const want = []
  await withWriter(login, {}, (producer) =>
    withReader(login, topic, group, async (reader) => {
      const started = Date.now()
      while (Date.now() < started + 5_000) {
        await write(producer, topic, `${want.length}`)
        want.push(`${want.length}`)
        await sleep(20)
      }
      await check.until('all is read', () => reader.values.length >= want.length)
      check.equal('what was read', reader.values, want)
    }),
  )
}

export const checks = {
  ssl: (check) => works(check, { ...ALICE, listener: 'SSL' }, 'ANONYMOUS'),
  'mutual-tls': mutualTls,
  plain: (check) => works(check, PLAIN),
  'scram-sha-256': (check) => works(check, { ...ALICE, mechanism: 'scram-sha-256' }),
  'scram-sha-512': (check) => works(check, { ...ALICE, mechanism: 'scram-sha-512' }),
  oauthbearer,
  'without-tls': (check) => works(check, { ...ALICE, listener: 'SASL_PLAINTEXT', mechanism: 'scram-sha-256' }),
  'wrong-passwords': wrongPasswords,
  'wrong-authority': wrongAuthority,
  'expired-certificate': expiredCertificate,
  'no-right': noRight,
  'right-revoked-while-producing': rightRevokedWhileProducing,
  'right-revoked-while-consuming': rightRevokedWhileConsuming,
  'right-revoked-in-transaction': rightRevokedInTransaction,
  'sessions-that-end': sessionsThatEnd,
}
