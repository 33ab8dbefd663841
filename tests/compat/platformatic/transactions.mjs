// Transactions: whole or absent, for readers that ask for it.
import { Member, createTopic, numbers, readAll, withAdmin, withProducer, write } from './kafka.mjs'

const transactional = (check) => ({ transactionalId: check.name('transaction'), idempotent: true })

export async function transactionCommitAndAbort(check) {
  const topic = await createTopic(check, 'topic', 2)
  const [committed, all] = [[], []]
  await withProducer(check, transactional(check), async (producer) => {
    for (let number = 0; number < 12; number += 1) {
      const transaction = await producer.beginTransaction()
      const value = `${number}`
      await transaction.send({ messages: [{ topic, value, partition: 0 }, { topic, value, partition: 1 }] })
      all.push(value)
      // One abort alone: of several by one producer, the client counts the last.
      if (number === 5) {
        await transaction.abort()
      } else {
        await transaction.commit()
        committed.push(value)
      }
    }
  })
  for (const partition of [0, 1]) {
    check.equal('committed records', await readAll(check, topic, partition, 1), committed)
    check.equal('all records', await readAll(check, topic, partition, 0), all)
  }
}

export async function transactionIsolation(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withProducer(check, transactional(check), async (producer) => {
    const transaction = await producer.beginTransaction()
    await transaction.send({ messages: [{ topic, value: 'within', partition: 0 }] })
    await write(check, [{ topic, value: 'after', partition: 0 }])
    const committed = await Member.join(check, check.name('committed'), [topic])
    const all = await Member.join(check, check.name('all'), [topic], { isolationLevel: 0 })
    await check.until('who wants all reads all', () => all.messages.length === 2)
    check.equal('committed while open', committed.values, [])
    await transaction.abort()
    await check.until('what comes after the abort is read', () => committed.messages.length === 1)
    check.equal('committed after the abort', committed.values, ['after'])
    await Promise.all([committed.leave(), all.leave()])
  })
}

export async function transactionConsumeTransformProduce(check) {
  const [source, sink] = [await createTopic(check, 'source', 1), await createTopic(check, 'sink', 1)]
  const group = check.name('group')
  await write(check, numbers(source, 1, 0, 30))
  const member = await Member.join(check, group, [source], { isCommitting: false })
  await check.until('all is read', () => member.messages.length === 30)
  await withAdmin(check, (admin) =>
    withProducer(check, transactional(check), async (producer) => {
      const offset = async () => {
        const [of] = await admin.listConsumerGroupOffsets({ groups: [group] })
        return of.topics.flatMap(({ partitions }) => partitions.map(({ committedOffset }) => Number(committedOffset)))
      }
      const transform = async (from, to) => {
        const transaction = await producer.beginTransaction()
        await transaction.addConsumer(member.consumer)
        await transaction.send({ messages: numbers(sink, 1, from, to) })
        await transaction.addOffset(member.messages[to - 1])
        return transaction
      }
      await (await transform(0, 10)).commit()
      await check.until('the offset is committed', async () => `${await offset()}` === '10')
      await (await transform(10, 20)).abort()
      const last = await transform(10, 30)
      await last.commit()
      await check.until('the offset is committed', async () => `${await offset()}` === '30')
    }),
  )
  await member.leave()
  check.equal('each record once', await readAll(check, sink, 0, 1), numbers(sink, 1, 0, 30).map(({ value }) => value))
}
