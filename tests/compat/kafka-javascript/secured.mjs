// The library at a secured broker, by its interface of node-rdkafka, which shows errors as they come.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { sleep } from './checks.mjs'
import { RdKafka, called, errorOf, nameOf } from './kafka.mjs'

const ALICE = { listener: 'SASL_SSL', user: 'alice', password: 'alice-secret', token: 'alice', authority: 'authority' }
const PLAIN = { ...ALICE, mechanism: 'PLAIN' }
const ADMIN = { ...PLAIN, user: 'admin', password: 'admin-secret' }

const WRONG_TOPIC = 'ERR_TOPIC_AUTHORIZATION_FAILED'
const WRONG_GROUP = 'ERR_GROUP_AUTHORIZATION_FAILED'
const WRONG_TRANSACTIONAL_ID = 'ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED'
const LONG_MS = 60_000

const file = (name) => join(process.env.SECURED_FILES, name)

function settingsOf(login, more = {}) {
  const hasTls = !['SASL_PLAINTEXT', 'SHORT'].includes(login.listener)
  const settings = {
    'bootstrap.servers': process.env[`SECURED_${login.listener}`],
    'security.protocol': `${login.mechanism ? 'sasl_' : ''}${hasTls ? 'ssl' : 'plaintext'}`,
    'retry.backoff.max.ms': 200,
    'reconnect.backoff.max.ms': 500,
    log_level: 0,
    ...more,
  }
  if (hasTls) settings['ssl.ca.location'] = file(`${login.authority}.pem`)
  if (login.certificate) {
    settings['ssl.certificate.location'] = file(`${login.certificate}.crt`)
    settings['ssl.key.location'] = file(`${login.certificate}.key`)
  }
  if (login.mechanism) settings['sasl.mechanism'] = login.mechanism
  if (login.mechanism === 'OAUTHBEARER') {
    // The client does not look into the token: it is to be valid for an hour, even if it is not.
    settings.oauthbearer_token_refresh_cb = async () => ({
      tokenValue: readFileSync(file(`${login.token}.jwt`), 'utf8'),
      lifetime: Date.now() + 3_600_000,
      principal: login.user,
    })
  } else if (login.mechanism) {
    settings['sasl.username'] = login.user
    settings['sasl.password'] = login.password
  }
  return settings
}

// A producer that waits for the outcome of each record.
class Writer {
  constructor(login, more) {
    this.producer = new RdKafka.Producer(settingsOf(login, { 'linger.ms': 0, dr_cb: true, ...more }))
    this.producer.on('event.error', () => {}) // what matters comes with a delivery report
    this.producer.on('delivery-report', (error, { opaque }) => (error ? opaque.reject(error) : opaque.resolve()))
  }

  async connect() {
    await called(this.producer, 'connect', { timeout: LONG_MS })
    this.producer.setPollInterval(10)
  }

  write(topic, ...values) {
    const written = (value) => new Promise((resolve, reject) => {
      this.producer.produce(topic, 0, Buffer.from(value), null, null, { resolve, reject })
    })
    return Promise.all(values.map(written))
  }
}

async function withWriter(login, more, use) {
  const writer = new Writer(login, more)
  await writer.connect()
  try {
    return await use(writer)
  } finally {
    await called(writer.producer, 'disconnect')
  }
}

// A member of a group that keeps what it got and every error, and commits when it is asked to.
class Reader {
  constructor(login, topic, group) {
    this.topic = topic
    this.values = []
    this.errors = []
    const settings = { 'group.id': group, 'enable.auto.commit': false, 'fetch.wait.max.ms': 100 }
    this.consumer = new RdKafka.KafkaConsumer(settingsOf(login, settings), { 'auto.offset.reset': 'earliest' })
    this.consumer.on('event.error', () => {}) // the errors of a topic or group come in place of records
    this.consumer.setDefaultConsumeTimeout(100)
  }

  async start() {
    await called(this.consumer, 'connect', { timeout: LONG_MS })
    this.consumer.subscribe([this.topic])
    this.reading = this.read()
  }

  async read() {
    while (!this.isClosed) {
      try {
        for (const { value, offset } of await called(this.consumer, 'consume', 100)) {
          this.values.push(`${value}`)
          this.next = offset + 1
        }
      } catch (error) {
        this.errors.push(nameOf(error))
      }
    }
  }

  async commit() {
    this.consumer.commitSync([{ topic: this.topic, partition: 0, offset: this.next }])
  }

  async close() {
    this.isClosed = true
    await this.reading
    await called(this.consumer, 'disconnect')
  }
}

async function withReader(login, topic, group, use) {
  const reader = new Reader(login, topic, group)
  await reader.start()
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
  await withWriter(login, {}, (writer) => writer.write(topic, ...numbers(100)))
  await withReader(login, topic, group, async (reader) => {
    await check.until('100 records', () => reader.values.length >= 100)
    check.equal('values', reader.values, numbers(100))
    await reader.commit()
  })
}

// What a client shows that cannot connect: the text of its first error, which comes without a code, but for "all broker
// connections are down"; of a certificate what its log says, as the error is one or another.
async function connectionError(check, login) {
  const [errors, lines] = [[], []]
  // Not a producer or consumer: its events are shown when it is ready.
  const admin = RdKafka.AdminClient.create(settingsOf(login, { log_level: 3 }), {
    'event.error': ({ message }) => errors.push(message),
    'event.log': ({ message }) => lines.push(message),
  })
  const named = () => errors.find((message) => message !== 'all broker connections are down')
  await check.until('the client shows why it does not connect', named)
  admin.disconnect()
  return lines.some((line) => /certificate verify failed/.test(line)) ? 'certificate verify failed' : named()
}

async function mutualTls(check) {
  await works(check, { ...ALICE, listener: 'MUTUAL', certificate: 'alice' })
  // The handshake of TLS 1.3 is over when the broker looks for a certificate.
  check.equal('without a certificate', await connectionError(check, { ...ALICE, listener: 'MUTUAL' }), 'broker transport failure')
}

async function oauthbearer(check) {
  const login = { ...ALICE, mechanism: 'OAUTHBEARER' }
  await works(check, login)
  for (const token of ['expired', 'forged']) {
    const error = await connectionError(check, { ...login, token })
    check.equal(`with a token that is ${token}`, error, 'authentication failure')
  }
}

async function wrongPasswords(check) {
  for (const mechanism of ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']) {
    const login = { ...ALICE, mechanism }
    for (const wrong of [{ password: 'wrong' }, { user: 'bob' }, { user: 'nobody' }]) {
      const error = await connectionError(check, { ...login, ...wrong })
      check.equal(`${mechanism} with ${JSON.stringify(wrong)}`, error, 'authentication failure')
    }
  }
  await works(check, PLAIN)
}

async function wrongAuthority(check) {
  const error = await connectionError(check, { ...PLAIN, authority: 'other-authority' })
  check.equal('error', error, 'certificate verify failed')
}

async function expiredCertificate(check) {
  check.equal('error', await connectionError(check, { ...ALICE, listener: 'EXPIRED' }), 'certificate verify failed')
}

// What a consumer shows; it must not get a record.
async function errorOfReading(check, topic, group) {
  return withReader(PLAIN, topic, group, async (reader) => {
    await check.until('the consumer shows an error', () => reader.errors.length > 0)
    check.equal('records', reader.values, [])
    return reader.errors[0]
  })
}

async function noRight(check) {
  const topic = await topicOf(check, 'bob', 'READ', 'WRITE')
  const group = check.name('group')
  await withWriter(PLAIN, {}, async (writer) => {
    check.equal('writing', await errorOf(writer.write(topic, 'x')), WRONG_TOPIC)
  })
  await check.ask(`allow User:alice READ group ${group}`)
  check.equal('without a right to the topic', await errorOfReading(check, topic, group), WRONG_TOPIC)
  await check.ask(`forbid User:alice READ group ${group}`)
  await check.ask(`allow User:alice READ topic ${topic}`)
  check.equal('without a right to the group', await errorOfReading(check, topic, group), WRONG_GROUP)
  await withWriter(ADMIN, {}, (writer) => writer.write(topic, 'only this'))
  check.equal('what was written', await contents(check, topic, 1), ['only this'])
}

async function rightRevokedWhileProducing(check) {
  const topic = await topicOf(check, 'alice', 'WRITE')
  const want = numbers(20)
  await withWriter(PLAIN, {}, async (writer) => {
    for (const value of want) await writer.write(topic, value) // the broker knows the same request by then
    for (let turn = 0; turn < 3; turn += 1) {
      await check.ask(`forbid User:alice WRITE topic ${topic}`)
      check.equal('without the right', await errorOf(writer.write(topic, 'refused')), WRONG_TOPIC)
      await check.ask(`allow User:alice WRITE topic ${topic}`)
      const again = `again ${turn}`
      await check.until('with it again', async () => (await errorOf(writer.write(topic, again))) === 'none')
      want.push(again)
    }
  })
  check.equal('what was written', await contents(check, topic, want.length), want)
}

async function rightRevokedWhileConsuming(check) {
  const topic = await topicOf(check, 'alice', 'READ')
  const group = await groupOf(check, 'alice')
  await withWriter(ADMIN, {}, (admin) =>
    withReader(PLAIN, topic, group, async (reader) => {
      await admin.write(topic, ...numbers(10))
      await check.until('ten records', () => reader.values.length >= 10)
      await reader.commit()
      await check.ask(`forbid User:alice READ topic ${topic}`)
      await check.until('the consumer shows an error', () => reader.errors.length > 0)
      await admin.write(topic, 'hidden')
      check.equal('errors', [...new Set(reader.errors)], [WRONG_TOPIC])
      check.equal('values', reader.values, numbers(10))
      await check.ask(`allow User:alice READ topic ${topic}`)
      await check.until('the right is back', () => reader.values.length > 10)
      check.equal('values', reader.values, [...numbers(10), 'hidden'])
      await check.ask(`forbid User:alice READ group ${group}`)
      check.equal('committing', await errorOf(reader.commit()), WRONG_GROUP)
    }),
  )
}

async function rightRevokedInTransaction(check) {
  const topic = await topicOf(check, 'alice', 'WRITE')
  const transactionalId = check.name('transaction')
  const right = `User:alice WRITE transactional-id ${transactionalId}`
  const want = []
  const withTransactions = (use) => withWriter(PLAIN, { 'transactional.id': transactionalId }, async (writer) => {
    await called(writer.producer, 'initTransactions', LONG_MS)
    await use(writer)
  })
  const commit = async (writer, value) => {
    await called(writer.producer, 'beginTransaction')
    await writer.write(topic, value)
    await called(writer.producer, 'commitTransaction', LONG_MS)
    want.push(value)
  }
  check.equal('initializing', await errorOf(withTransactions(() => {})), WRONG_TRANSACTIONAL_ID)
  await check.ask(`allow ${right}`)
  await withTransactions(async (writer) => {
    for (let number = 0; number < 3; number += 1) await commit(writer, `committed ${number}`)
    await called(writer.producer, 'beginTransaction')
    await writer.write(topic, 'never committed')
    await check.ask(`forbid ${right}`)
    const error = await errorOf(called(writer.producer, 'commitTransaction', LONG_MS))
    check.equal('committing', error, WRONG_TRANSACTIONAL_ID)
  })
  await check.ask(`allow ${right}`)
  // The next producer ends what the first left open.
  await withTransactions((writer) => commit(writer, 'the last'))
  check.equal('what was committed', await contents(check, topic, want.length), want)
}

// Clients authenticate again when their session ends; they lose nothing.
async function sessionsThatEnd(check) {
  const topic = await topicOf(check, 'alice', 'READ', 'WRITE')
  const group = await groupOf(check, 'alice')
  const login = { ...ALICE, listener: 'SHORT', mechanism: 'SCRAM-SHA-256' }
  const want = []
  await withWriter(login, {}, (writer) =>
    withReader(login, topic, group, async (reader) => {
      const started = Date.now()
      while (Date.now() < started + 5_000) {
        await writer.write(topic, `${want.length}`)
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
  'scram-sha-256': (check) => works(check, { ...ALICE, mechanism: 'SCRAM-SHA-256' }),
  'scram-sha-512': (check) => works(check, { ...ALICE, mechanism: 'SCRAM-SHA-512' }),
  oauthbearer,
  'without-tls': (check) => works(check, { ...ALICE, listener: 'SASL_PLAINTEXT', mechanism: 'SCRAM-SHA-256' }),
  'wrong-passwords': wrongPasswords,
  'wrong-authority': wrongAuthority,
  'expired-certificate': expiredCertificate,
  'no-right': noRight,
  'right-revoked-while-producing': rightRevokedWhileProducing,
  'right-revoked-while-consuming': rightRevokedWhileConsuming,
  'right-revoked-in-transaction': rightRevokedInTransaction,
  'sessions-that-end': sessionsThatEnd,
}
