// Consumer groups, and administration.
import kafkajs from 'kafkajs'

import { Member, createTopic, errorOf, numbers, sorted, withAdmin, write } from './kafka.mjs'

const { ConfigResourceTypes } = kafkajs

const offsetsOf = (admin, group, topic) =>
  admin.fetchOffsets({ groupId: group, topics: [topic] }).then(([of]) =>
    of.partitions.sort((one, other) => one.partition - other.partition).map(({ offset }) => Number(offset)),
  )

export async function groupResumesAtCommit(check) {
  const [topic, group] = [await createTopic(check, 'topic', 1), check.name('group')]
  await write(check, topic, numbers(1, 0, 12))
  const first = await Member.join(check, group, [topic])
  await check.until('all is read', () => first.messages.length === 12)
  await first.leave()
  await write(check, topic, numbers(1, 12, 30))
  const second = await Member.join(check, group, [topic])
  await check.until('the rest is read', () => second.messages.length >= 18)
  await second.leave()
  check.equal('records after the commit', second.values, numbers(1, 12, 30).map(({ value }) => value))
  await withAdmin(check, async (admin) => check.equal('committed', await offsetsOf(admin, group, topic), [30]))
}

export async function groupRebalances(check) {
  const [topic, group] = [await createTopic(check, 'topic', 6), check.name('group')]
  const first = await Member.join(check, group, [topic])
  await check.until('the only member has all partitions', () => first.held.length === 6)
  await write(check, topic, numbers(6, 0, 60))
  await check.until('the only member has read all', () => first.messages.length === 60)
  const second = await Member.join(check, group, [topic])
  await check.until('two members share', () => first.held.length === 3 && second.held.length === 3)
  check.equal('partitions of both', sorted(first.held, second.held), [0, 1, 2, 3, 4, 5])
  await write(check, topic, numbers(6, 60, 120))
  await check.until('both have read all', () => first.messages.length + second.messages.length >= 120)
  await first.leave()
  await check.until('the last member has all', () => second.held.length === 6)
  await write(check, topic, numbers(6, 120, 180))
  const all = sorted(numbers(6, 0, 180).map(({ value }) => value))
  await check.until('the last member has read all', () => new Set([...first.values, ...second.values]).size === 180)
  await second.leave()
  check.equal('all that was read', sorted([...new Set([...first.values, ...second.values])]), all)
}

export async function adminTopics(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withAdmin(check, async (admin) => {
    const create = (settings) =>
      errorOf(admin.createTopics({ topics: [{ topic: check.name('missing'), numPartitions: 1, replicationFactor: 1, ...settings }] }))
    check.equal('create one that exists', await admin.createTopics({ topics: [{ topic }] }), false)
    check.equal('create with too many replicas', await create({ replicationFactor: 1000 }), 'INVALID_REPLICATION_FACTOR')
    check.equal('create with a bad name', await create({ topic: 'a/b' }), 'INVALID_TOPIC_EXCEPTION')
    const configEntries = [{ name: 'cleanup.policy', value: 'nonsense' }]
    check.equal('create with a bad config', await create({ configEntries }), 'INVALID_CONFIG')
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
    await check.until('it has grown', async () => (await partitions()) === 5)
    await admin.deleteTopics({ topics: [topic] })
    await check.until('it is gone', async () => !(await admin.listTopics()).includes(topic))
  })
}

export async function adminConfigs(check) {
  const topic = await createTopic(check, 'topic', 1)
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  await withAdmin(check, async (admin) => {
    const value = async () => {
      const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
      return resources[0].configEntries[0].configValue
    }
    const alter = (text) =>
      admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: text }] }] })
    check.equal('default', await value(), '604800000')
    await alter('1000000')
    await check.until('it is set', async () => (await value()) === '1000000')
    check.equal('a bad value', await errorOf(alter('soon')), 'INVALID_CONFIG')
  })
}

export async function adminGroups(check) {
  const [topic, group] = [await createTopic(check, 'topic', 2), check.name('group')]
  await write(check, topic, numbers(2, 0, 10))
  const member = await Member.join(check, group, [topic])
  await withAdmin(check, async (admin) => {
    await check.until('all is committed', async () => `${await offsetsOf(admin, group, topic)}` === '5,5')
    const { groups } = await admin.describeGroups([group])
    check.equal('described', [groups[0].state, groups[0].protocolType, groups[0].members.length], ['Stable', 'consumer', 1])
    const listed = (await admin.listGroups()).groups.find(({ groupId }) => groupId === group)
    check.equal('listed', listed.protocolType, 'consumer')
    check.equal('delete a group with members', await errorOf(admin.deleteGroups([group])), 'NON_EMPTY_GROUP')
    await member.leave()
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }] })
    check.equal('offsets that were set', await offsetsOf(admin, group, topic), [1, 5])
    await admin.deleteGroups([group])
    check.equal('delete a group that is gone', await errorOf(admin.deleteGroups([group])), 'GROUP_ID_NOT_FOUND')
  })
}

export async function adminDeleteRecords(check) {
  const topic = await createTopic(check, 'topic', 1)
  await write(check, topic, numbers(1, 0, 20))
  await withAdmin(check, async (admin) => {
    // The client deletes records only of topics whose leaders it has asked for.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '7' }] })
    const [of] = await admin.fetchTopicOffsets(topic)
    check.equal('start and end', [of.low, of.high], ['7', '20'])
  })
}
