// Checks a broker with @confluentinc/kafka-javascript as it comes.
import { main } from './checks.mjs'
import * as crashes from './crashes.mjs'
import * as groups from './groups.mjs'
import * as records from './records.mjs'
import { checks as secured } from './secured.mjs'
import * as transactions from './transactions.mjs'

await main({
  'produce-and-consume': records.produceAndConsume,
  'produce-and-consume-by-callbacks': records.produceAndConsumeByCallbacks,
  compression: records.compression,
  acks: records.acks,
  'record-too-large': records.recordTooLarge,
  'offsets-by-time': records.offsetsByTime,
  'auto-creation': records.autoCreation,
  idempotent: records.idempotent,
  'group-resumes-at-commit': groups.groupResumesAtCommit,
  'group-with-eager-rebalances': groups.groupWithEagerRebalances,
  'group-with-cooperative-rebalances': groups.groupWithCooperativeRebalances,
  'group-of-the-consumer-protocol': groups.groupOfTheConsumerProtocol,
  'admin-topics': groups.adminTopics,
  'admin-groups': groups.adminGroups,
  'admin-groups-of-the-consumer-protocol': groups.adminGroupsOfTheConsumerProtocol,
  'admin-delete-records': groups.adminDeleteRecords,
  'transaction-commit-and-abort': transactions.transactionCommitAndAbort,
  'transaction-by-callbacks': transactions.transactionByCallbacks,
  'transaction-isolation': transactions.transactionIsolation,
  'transaction-consume-transform-produce': transactions.transactionConsumeTransformProduce,
  'transaction-with-the-consumer-protocol': transactions.transactionWithTheConsumerProtocol,
  'transaction-fencing': transactions.transactionFencing,
  'crash-while-producing': crashes.crashWhileProducing,
  'stop-while-producing': crashes.stopWhileProducing,
  'crash-in-transaction': crashes.crashInTransaction,
  'crash-while-consuming': crashes.crashWhileConsuming,
  'many-clients': crashes.manyClients,
}, secured)
