// Checks a broker with @platformatic/kafka as it comes.
import { main } from './checks.mjs'
import * as crashes from './crashes.mjs'
import * as groups from './groups.mjs'
import * as records from './records.mjs'
import * as transactions from './transactions.mjs'

await main({
  'produce-and-consume': records.produceAndConsume,
  compression: records.compression,
  acks: records.acks,
  'offsets-by-time': records.offsetsByTime,
  'auto-creation': records.autoCreation,
  idempotent: records.idempotent,
  'group-resumes-at-commit': groups.groupResumesAtCommit,
  'group-rebalances': groups.groupRebalances,
  'group-of-the-consumer-protocol': groups.groupOfTheConsumerProtocol,
  'admin-topics': groups.adminTopics,
  'admin-configs': groups.adminConfigs,
  'admin-groups': groups.adminGroups,
  'admin-delete-records': groups.adminDeleteRecords,
  'transaction-commit-and-abort': transactions.transactionCommitAndAbort,
  'transaction-isolation': transactions.transactionIsolation,
  'transaction-consume-transform-produce': transactions.transactionConsumeTransformProduce,
  'crash-while-producing': crashes.crashWhileProducing,
  'stop-while-producing': crashes.stopWhileProducing,
  'crash-while-consuming': crashes.crashWhileConsuming,
  'many-clients': crashes.manyClients,
}, {})
