// Transactions: whole or absent, for readers that ask for it; one producer at a time.
import { Member, createTopic, errorOf, newKafka, numbers, readAll, withAdmin, withProducer, write } from './kafka.mjs'

export const transactional = (check) => ({
  transactionalId: check.name('transaction'),
  idempotent: true,
  maxInFlightRequests: 1,
})

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

export async function transactionConsumeTransformProduce(check) {
  const [source, sink] = [await createTopic(check, 'source', 1), await createTopic(check, 'sink', 1)]
  const group = check.name('group')
  await write(check, source, numbers(1, 0, 30))
  await withAdmin(check, (admin) =>
    withProducer(check, transactional(check), async (producer) => {
      const offset = async () => {
        const [of] = await admin.fetchOffsets({ groupId: group, topics: [source] })
        return of.partitions.map((partition) => partition.offset).join()
      }
      const transform = async (from, to) => {
        const transaction = await producer.transaction()
        const messages = numbers(1, from, to).map((message) => ({ ...message, partition: 0 }))
        await transaction.send({ topic: sink, messages })
        const topics = [{ topic: source, partitions: [{ partition: 0, offset: `${to}` }] }]
        await transaction.sendOffsets({ consumerGroupId: group, topics })
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
  check.equal('each record once', await readAll(check, sink, 0, false), numbers(1, 0, 30).map(({ value }) => value))
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

export async function transactionFencing(check) {
  const topic = await createTopic(check, 'topic', 1)
  const first = newKafka(check).producer({ ...transactional(check), retry: { retries: 2 } })
  await first.connect()
  const zombie = await first.transaction()
  await zombie.send({ topic, messages: [{ value: 'first', partition: 0 }] })
  await withProducer(check, transactional(check), async (second) => {
    const transaction = await second.transaction()
    await transaction.send({ topic, messages: [{ value: 'second', partition: 0 }] })
    const error = await errorOf(zombie.commit())
    check.fact('error of the fenced producer', error)
    check.equal('the first producer is fenced', ['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(error), true)
    await transaction.commit()
  })
  await first.disconnect()
  check.equal('records', await readAll(check, topic, 0, false), ['second'])
}
