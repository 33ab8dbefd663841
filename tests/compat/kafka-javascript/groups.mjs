// Consumer groups of both protocols, and administration.
import { Member, RdKafka, called, createTopic, errorOf, numbers, sorted, withAdmin, write } from './kafka.mjs'

const { ConsumerGroupStates, ConsumerGroupTypes } = RdKafka.KafkaJS

const offsetsOf = (admin, group, topic) =>
  admin.fetchOffsets({ groupId: group, topics: [topic] }).then(([of]) =>
    (of?.partitions ?? []).sort((one, other) => one.partition - other.partition).map(({ offset }) => Number(offset)),
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

// Members come and go while records are written; each record is read.
async function rebalancing(check, settings) {
  const [topic, group] = [await createTopic(check, 'topic', 6), check.name('group')]
  const first = await Member.join(check, group, [topic], settings)
  await check.until('the only member has all partitions', () => first.held.length === 6)
  await write(check, topic, numbers(6, 0, 60))
  await check.until('the only member has read all', () => first.messages.length === 60)
  const second = await Member.join(check, group, [topic], settings)
  await check.until('two members share', () => first.held.length === 3 && second.held.length === 3)
  check.equal('partitions of both', sorted(first.held, second.held), [0, 1, 2, 3, 4, 5])
  await write(check, topic, numbers(6, 60, 120))
  await check.until('both have read all', () => new Set([...first.values, ...second.values]).size === 120)
  await first.leave()
  await check.until('the last member has all', () => second.held.length === 6)
  await write(check, topic, numbers(6, 120, 180))
  await check.until('the last member has read all', () => new Set([...first.values, ...second.values]).size === 180)
  await second.leave()
  const all = sorted(numbers(6, 0, 180).map(({ value }) => value))
  check.equal('all that was read', sorted([...new Set([...first.values, ...second.values])]), all)
}

export const groupWithEagerRebalances = (check) => rebalancing(check, { more: { 'partition.assignment.strategy': 'range' } })
export const groupWithCooperativeRebalances = (check) =>
  rebalancing(check, { more: { 'partition.assignment.strategy': 'cooperative-sticky' } })

export async function groupOfTheConsumerProtocol(check) {
  await rebalancing(check, { protocol: 'consumer', more: { 'group.remote.assignor': 'uniform' } })
  await withAdmin(check, async (admin) => {
    const { groups } = await admin.listGroups({ matchConsumerGroupTypes: [ConsumerGroupTypes.CONSUMER] })
    check.equal('the group is of the new type', groups.some(({ groupId }) => groupId === check.name('group')), true)
  })
}

export async function adminTopics(check) {
  const topic = await createTopic(check, 'topic', 2)
  await withAdmin(check, async (admin) => {
    const create = (settings) =>
      errorOf(admin.createTopics({ topics: [{ topic: check.name('missing'), numPartitions: 1, replicationFactor: 1, ...settings }] }))
    check.equal('create one that exists', await admin.createTopics({ topics: [{ topic }] }), false)
    check.equal('create with too many replicas', await create({ replicationFactor: 1000 }), 'ERR_INVALID_REPLICATION_FACTOR')
    check.equal('create with a bad name', await create({ topic: 'a/b' }), 'ERR_TOPIC_EXCEPTION')
    const configEntries = [{ name: 'cleanup.policy', value: 'nonsense' }]
    check.equal('create with a bad config', await create({ configEntries }), 'ERR_INVALID_CONFIG')
    // Only the interface of node-rdkafka has more partitions.
    const other = RdKafka.AdminClient.create({ 'bootstrap.servers': check.bootstrap, log_level: 0 })
    await called(other, 'createPartitions', topic, 5, 60_000)
    check.equal('fewer partitions', await errorOf(called(other, 'createPartitions', topic, 3, 60_000)), 'ERR_INVALID_PARTITIONS')
    other.disconnect()
    const partitions = async () => (await admin.fetchTopicMetadata({ topics: [topic] }))[0].partitions.length
    await check.until('it has grown', async () => (await partitions()) === 5)
    await admin.deleteTopics({ topics: [topic] })
    await check.until('it is gone', async () => !(await admin.listTopics()).includes(topic))
  })
}

async function groups(check, protocol, type) {
  const [topic, group] = [await createTopic(check, 'topic', 2), check.name('group')]
  await write(check, topic, numbers(2, 0, 10))
  const member = await Member.join(check, group, [topic], { protocol })
  await withAdmin(check, async (admin) => {
    await check.until('all is committed', async () => `${await offsetsOf(admin, group, topic)}` === '5,5')
    const { groups: [described] } = await admin.describeGroups([group])
    check.equal('described', [described.state, described.type, described.members.length], [ConsumerGroupStates.STABLE, type, 1])
    const held = described.members[0].assignment.topicPartitions.map(({ partition }) => partition)
    check.equal('what the member holds', sorted(held), [0, 1])
    const listed = (await admin.listGroups()).groups.find(({ groupId }) => groupId === group)
    check.equal('listed', listed.type, type)
    check.equal('delete a group with members', await errorOf(admin.deleteGroups([group])), 'ERR_NON_EMPTY_GROUP')
    await member.leave()
    check.equal('offsets when all have left', await offsetsOf(admin, group, topic), [5, 5])
    await admin.deleteGroups([group])
    check.equal('delete a group that is gone', await errorOf(admin.deleteGroups([group])), 'ERR_GROUP_ID_NOT_FOUND')
  })
}

export const adminGroups = (check) => groups(check, 'classic', ConsumerGroupTypes.CLASSIC)
export const adminGroupsOfTheConsumerProtocol = (check) => groups(check, 'consumer', ConsumerGroupTypes.CONSUMER)

export async function adminDeleteRecords(check) {
  const topic = await createTopic(check, 'topic', 1)
  await write(check, topic, numbers(1, 0, 20))
  await withAdmin(check, async (admin) => {
    const [deleted] = await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '7' }] })
    check.equal('low watermark', Number(deleted.lowWatermark), 7)
    const [of] = await admin.fetchTopicOffsets(topic)
    check.equal('start and end', [of.low, of.high], ['7', '20'])
  })
}
