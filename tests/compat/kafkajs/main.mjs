// Checks a broker with KafkaJS as it comes.
import { main } from './checks.mjs'
import * as crashes from './crashes.mjs'
import * as groups from './groups.mjs'
import * as records from './records.mjs'
import { checks as secured } from './secured.mjs'
import * as transactions from './transactions.mjs'

await main({
  'produce-and-consume': records.produceAndConsume,
  compression: records.compression,
  acks: records.acks,
  'record-too-large': records.recordTooLarge,
  'offsets-by-time': records.offsetsByTime,
  'auto-creation': records.autoCreation,
  idempotent: records.idempotent,
  'group-resumes-at-commit': groups.groupResumesAtCommit,
  'group-rebalances': groups.groupRebalances,
  'admin-topics': groups.adminTopics,
  'admin-configs': groups.adminConfigs,
  'admin-groups': groups.adminGroups,
  'admin-delete-records': groups.adminDeleteRecords,
  'transaction-commit-and-abort': transactions.transactionCommitAndAbort,
  'transaction-isolation': transactions.transactionIsolation,
  'transaction-consume-transform-produce': transactions.transactionConsumeTransformProduce,
  'transaction-fencing': transactions.transactionFencing,
  'crash-while-producing': crashes.crashWhileProducing,
  'stop-while-producing': crashes.stopWhileProducing,
  'crash-in-transaction': crashes.crashInTransaction,
  'crash-while-consuming': crashes.crashWhileConsuming,
  'many-clients': crashes.manyClients,
}, secured)
