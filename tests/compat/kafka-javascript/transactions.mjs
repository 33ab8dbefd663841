// Transactions: whole or absent, for readers that ask for it; one producer at a time.
import { Member, RdKafka, called, connectedProducer, createTopic, errorOf, numbers, readAll, withAdmin, withProducer, write } from './kafka.mjs'

export const transactional = (check) => ({ transactionalId: check.name('transaction') })

export async function transactionCommitAndAbort(check) {
  const topic = await createTopic(check, 'topic', 2)
  const [committed, all] = [[], []]
  await withProducer(check, transactional(check), async (producer) => {
    for (let number = 0; number < 12; number += 1) {
      const transaction = await producer.transaction()
      const value = `${number}`
      await transaction.send({ topic, messages: [{ value, partition: 0 }, { value, partition: 1 }] })
      all.push(value)
      if (number % 3 === 0) {
        await transaction.abort()
      } else {
        await transaction.commit()
        committed.push(value)
      }
    }
  })
  await withAdmin(check, async (admin) => {
    const ends = async () => (await admin.fetchTopicOffsets(topic)).map(({ high }) => high).join()
    await check.until('there is a marker for each transaction', async () => (await ends()) === '24,24')
  })
  for (const partition of [0, 1]) {
    check.equal('committed records', await readAll(check, topic, partition, false), committed)
    check.equal('all records', await readAll(check, topic, partition, true), all)
  }
}

// The interface of node-rdkafka: each step with a callback.
export async function transactionByCallbacks(check) {
  const topic = await createTopic(check, 'topic', 1)
  const producer = new RdKafka.Producer({
    'metadata.broker.list': check.bootstrap,
    'transactional.id': check.name('transaction'),
    'linger.ms': 0,
    log_level: 0,
  })
  await called(producer, 'connect', {})
  producer.setPollInterval(10)
  await called(producer, 'initTransactions', 60_000)
  for (let number = 0; number < 4; number += 1) {
    await called(producer, 'beginTransaction')
    producer.produce(topic, 0, Buffer.from(`${number}`))
    await called(producer, number % 2 === 0 ? 'commitTransaction' : 'abortTransaction', 60_000)
  }
  await called(producer, 'disconnect')
  check.equal('committed records', await readAll(check, topic, 0, false), ['0', '2'])
}

export async function transactionIsolation(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withProducer(check, transactional(check), async (producer) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: 'within', partition: 0 }] })
    await write(check, topic, [{ value: 'after', partition: 0 }])
    const committed = await Member.join(check, check.name('committed'), [topic])
    const all = await Member.join(check, check.name('all'), [topic], { readUncommitted: true })
    await check.until('who wants all reads all', () => all.messages.length === 2)
    check.equal('committed while open', committed.values, [])
    await transaction.abort()
    await check.until('what comes after the abort is read', () => committed.messages.length === 1)
    check.equal('committed after the abort', committed.values, ['after'])
    await Promise.all([committed.leave(), all.leave()])
  })
}

// Exactly once: what a member of a group reads, and where it is, are written in one transaction.
async function consumeTransformProduce(check, protocol) {
  const [source, sink] = [await createTopic(check, 'source', 1), await createTopic(check, 'sink', 1)]
  const group = check.name('group')
  await write(check, source, numbers(1, 0, 30))
  const member = await Member.join(check, group, [source], { autoCommit: false, protocol })
  await check.until('all is read', () => member.messages.length === 30)
  await withAdmin(check, (admin) =>
    withProducer(check, transactional(check), async (producer) => {
      const offset = async () => {
        const [of] = await admin.fetchOffsets({ groupId: group, topics: [source] })
        return (of?.partitions ?? []).map((partition) => partition.offset).join()
      }
      const transform = async (from, to) => {
        const transaction = await producer.transaction()
        const messages = member.messages.slice(from, to).map(({ value }) => ({ value, partition: 0 }))
        await transaction.send({ topic: sink, messages })
        const topics = [{ topic: source, partitions: [{ partition: 0, offset: `${to}` }] }]
        await transaction.sendOffsets({ consumer: member.consumer, topics })
        return transaction
      }
      await (await transform(0, 10)).commit()
      await check.until('the offset is committed', async () => (await offset()) === '10')
      await (await transform(10, 20)).abort()
      const last = await transform(10, 30)
      check.equal('offset after an abort', await offset(), '10')
      await last.commit()
      await check.until('the offset is committed', async () => (await offset()) === '30')
    }),
  )
  await member.leave()
  check.equal('each record once', await readAll(check, sink, 0, false), numbers(1, 0, 30).map(({ value }) => value))
}

export const transactionConsumeTransformProduce = (check) => consumeTransformProduce(check, 'classic')
export const transactionWithTheConsumerProtocol = (check) => consumeTransformProduce(check, 'consumer')

export async function transactionFencing(check) {
  const topic = await createTopic(check, 'topic', 1)
  const first = await connectedProducer(check, transactional(check))
  const zombie = await first.transaction()
  await zombie.send({ topic, messages: [{ value: 'first', partition: 0 }] })
  await withProducer(check, transactional(check), async (second) => {
    const transaction = await second.transaction()
    await transaction.send({ topic, messages: [{ value: 'second', partition: 0 }] })
    check.equal('error of the fenced producer', await errorOf(zombie.commit()), 'ERR__FENCED')
    await transaction.commit()
  })
  await first.disconnect()
  check.equal('records', await readAll(check, topic, 0, false), ['second'])
  check.equal('all records', await readAll(check, topic, 0, true), ['first', 'second'])
}
