// Groups that go on where they were and share what there is, and what an administrator does.
import { Member, createTopic, errorOf, numbers, sorted, withAdmin, write } from './kafka.mjs'

const TOPIC = 2 // as a type of resource

async function committed(admin, group, topic) {
  const [of] = await admin.listConsumerGroupOffsets({ groups: [group] })
  const partitions = of.topics.find(({ name }) => name === topic)?.partitions ?? []
  return partitions
    .sort((one, other) => one.partitionIndex - other.partitionIndex)
    .map(({ committedOffset }) => Number(committedOffset))
}

export async function groupResumesAtCommit(check) {
  const [topic, group] = [await createTopic(check, 'topic', 1), check.name('group')]
  await write(check, numbers(topic, 1, 0, 12))
  const first = await Member.join(check, group, [topic])
  await check.until('all is read', () => first.messages.length === 12)
  await withAdmin(check, async (admin) => {
    await check.until('all is committed', async () => `${await committed(admin, group, topic)}` === '12')
    await first.leave()
    await write(check, numbers(topic, 1, 12, 30))
    const second = await Member.join(check, group, [topic])
    await check.until('the rest is read', () => second.messages.length >= 18)
    await check.until('the rest is committed', async () => `${await committed(admin, group, topic)}` === '30')
    await second.leave()
    check.equal('records after the commit', second.values, numbers(topic, 1, 12, 30).map(({ value }) => value))
  })
}

async function rebalancing(check, more) {
  const [topic, group] = [await createTopic(check, 'topic', 6), check.name('group')]
  const first = await Member.join(check, group, [topic], more)
  await check.until('the only member has all partitions', () => first.held.length === 6)
  await write(check, numbers(topic, 6, 0, 60))
  await check.until('the only member has read all', () => first.messages.length === 60)
  const second = await Member.join(check, group, [topic], more)
  await check.until('two members share', () => first.held.length === 3 && second.held.length === 3)
  check.equal('partitions of both', sorted(first.held, second.held), [0, 1, 2, 3, 4, 5])
  await write(check, numbers(topic, 6, 60, 120))
  await check.until('both have read all', () => new Set([...first.values, ...second.values]).size === 120)
  await first.leave()
  await check.until('the last member has all', () => second.held.length === 6)
  await write(check, numbers(topic, 6, 120, 180))
  await check.until('the last member has read all', () => new Set([...first.values, ...second.values]).size === 180)
  await second.leave()
}

export const groupRebalances = (check) => rebalancing(check, {})

export async function groupOfTheConsumerProtocol(check) {
  await rebalancing(check, { groupProtocol: 'consumer' })
  await withAdmin(check, async (admin) => {
    check.equal('type', (await admin.listGroups({ types: ['consumer'] })).get(check.name('group'))?.groupType, 'consumer')
  })
}

export async function adminTopics(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withAdmin(check, async (admin) => {
    const create = (more) => errorOf(admin.createTopics({ topics: [check.name('missing')], partitions: 1, replicas: 1, ...more }))
    check.equal('create one that exists', await create({ topics: [topic] }), 'TOPIC_ALREADY_EXISTS')
    check.equal('create with too many replicas', await create({ replicas: 1000 }), 'INVALID_REPLICATION_FACTOR')
    check.equal('create with a bad name', await create({ topics: ['a/b'] }), 'INVALID_TOPIC_EXCEPTION')
    const configs = [{ name: 'cleanup.policy', value: 'nonsense' }]
    check.equal('create with a bad config', await create({ configs }), 'INVALID_CONFIG')
    await admin.createPartitions({ topics: [{ name: topic, count: 5 }] })
    const partitions = async () => (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic).partitionsCount
    await check.until('it has grown', async () => (await partitions()) === 5)
    await admin.deleteTopics({ topics: [topic] })
    await check.until('it is gone', async () => !(await admin.listTopics()).includes(topic))
  }, { retries: 0 })
}

export async function adminConfigs(check) {
  const topic = await createTopic(check, 'topic', 1)
  await withAdmin(check, async (admin) => {
    const value = async () => {
      const resources = [{ resourceType: TOPIC, resourceName: topic, configurationKeys: ['retention.ms'] }]
      return (await admin.describeConfigs({ resources }))[0].configs[0].value
    }
    const alter = (text) => {
      const configs = [{ name: 'retention.ms', configOperation: 0, value: text }]
      return admin.incrementalAlterConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic, configs }] })
    }
    check.equal('default', await value(), '604800000')
    await alter('1000000')
    await check.until('it is set', async () => (await value()) === '1000000')
    check.equal('a bad value', await errorOf(alter('soon')), 'INVALID_CONFIG')
  }, { retries: 0 })
}

export async function adminGroups(check) {
  const [topic, group] = [await createTopic(check, 'topic', 2), check.name('group')]
  await write(check, numbers(topic, 2, 0, 10))
  const member = await Member.join(check, group, [topic])
  await withAdmin(check, async (admin) => {
    await check.until('all is committed', async () => `${await committed(admin, group, topic)}` === '5,5')
    const described = (await admin.describeGroups({ groups: [group] })).get(group)
    check.equal('described', [described.state, described.protocolType, described.members.size], ['Stable', 'consumer', 1])
    check.equal('listed', (await admin.listGroups()).get(group).protocolType, 'consumer')
    check.equal('delete a group with members', await errorOf(admin.deleteGroups({ groups: [group] })), 'NON_EMPTY_GROUP')
    await member.leave()
    const topics = [{ name: topic, partitionOffsets: [{ partition: 0, offset: 1n }] }]
    await admin.alterConsumerGroupOffsets({ groupId: group, topics })
    check.equal('offsets that were set', await committed(admin, group, topic), [1, 5])
    await admin.deleteGroups({ groups: [group] })
    check.equal('delete a group that is gone', await errorOf(admin.deleteGroups({ groups: [group] })), 'GROUP_ID_NOT_FOUND')
  }, { retries: 0 })
}

export async function adminDeleteRecords(check) {
  const topic = await createTopic(check, 'topic', 1)
  await write(check, numbers(topic, 1, 0, 20))
  await withAdmin(check, async (admin) => {
    const topics = [{ name: topic, partitions: [{ partition: 0, offset: 7n }] }]
    const [of] = await admin.deleteRecords({ topics })
    check.equal('low watermark', Number(of.partitions[0].lowWatermark), 7)
  })
}
