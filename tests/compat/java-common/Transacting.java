import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** Transactions as the client makes them: of version 2 with kafka-clients 4, of version 1 with 3.9. */
final class Transacting {
    private Transacting() {}

    static void addTo(Checks checks) {
        checks.add("transaction-commit-and-abort", Transacting::commitAndAbort)
                .add("transaction-isolation", Transacting::isolation)
                .add("transaction-many-partitions", Transacting::manyPartitions)
                .add("transaction-empty", Transacting::empty)
                .add("transaction-consume-transform-produce", Transacting::consumeTransformProduce)
                .add("transaction-offsets-of-old-generation", Transacting::offsetsOfOldGeneration)
                .add("transaction-fencing", Transacting::fencing)
                .add("transaction-takes-over-open", Transacting::takesOverOpen)
                .add("transaction-timeout", Transacting::timeout)
                .add("transaction-timeout-too-long", Transacting::timeoutTooLong)
                .add("transaction-admin", Transacting::admin)
                .add("transaction-admin-aborts", Transacting::adminAborts)
                .add("transaction-admin-fences", Transacting::adminFences)
                .add("transaction-through-kill", check -> throughRestart(check, "kill"))
                .add("transaction-through-termination", check -> throughRestart(check, "terminate"));
    }

    static KafkaProducer<String, String> transactional(Check check, String kind, Object... namesAndValues) {
        Object[] all = new Object[namesAndValues.length + 2];
        all[0] = "transactional.id";
        all[1] = check.name(kind);
        System.arraycopy(namesAndValues, 0, all, 2, namesAndValues.length);
        KafkaProducer<String, String> producer = Clients.producer(check, all);
        producer.initTransactions();
        return producer;
    }

    static void commitAndAbort(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var producer = transactional(check, "producer")) {
            for (int turn = 0; turn < 20; turn++) {
                producer.beginTransaction();
                Clients.sendNumbers(producer, topic, 2, turn * 10, turn * 10 + 10);
                if (turn % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> even = Clients.numbers(0, 200, 2);
        List<String> odd = Clients.numbers(1, 200, 2);
        check.equal("uncommitted", Clients.readAll(check, topic, 2, "read_uncommitted"), Map.of(0, even, 1, odd));
        even.removeIf(value -> Integer.parseInt(value) / 10 % 3 == 2);
        odd.removeIf(value -> Integer.parseInt(value) / 10 % 3 == 2);
        check.equal("committed", Clients.readAll(check, topic, 2, "read_committed"), Map.of(0, even, 1, odd));
        try (var consumer = Clients.consumer(check)) {
            // Ten records a turn, half of them in each partition, and a marker.
            check.until("every turn has its marker", () -> consumer.endOffsets(Clients.partitions(topic, 2)).values().stream()
                    .toList().equals(List.of(120L, 120L)));
        }
    }

    static void isolation(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var plain = Clients.producer(check);
                var open = transactional(check, "open");
                var committed = Clients.consumer(check, "isolation.level", "read_committed");
                var uncommitted = Clients.consumer(check, "isolation.level", "read_uncommitted")) {
            plain.send(new ProducerRecord<>(topic, "before")).get();
            open.beginTransaction();
            open.send(new ProducerRecord<>(topic, "inside")).get();
            plain.send(new ProducerRecord<>(topic, "after")).get();
            committed.assign(List.of(partition));
            uncommitted.assign(List.of(partition));
            check.equal("end, uncommitted", uncommitted.endOffsets(List.of(partition)), Map.of(partition, 3L));
            check.equal("end, committed", committed.endOffsets(List.of(partition)), Map.of(partition, 1L));
            check.equal("uncommitted", Clients.values(Clients.read(check, uncommitted, 3)),
                    List.of("before", "inside", "after"));
            check.equal("committed", Clients.values(Clients.read(check, committed, 1)), List.of("before"));
            check.equal("nothing more", committed.poll(Duration.ofMillis(300)).count(), 0);
            check.equal("lag, committed", committed.currentLag(partition).orElse(-1), 0L);
            open.commitTransaction();
            check.equal("then", Clients.values(Clients.read(check, committed, 2)), List.of("inside", "after"));
            open.beginTransaction();
            open.send(new ProducerRecord<>(topic, "never")).get();
            open.abortTransaction();
            check.until("it is aborted", () -> committed.endOffsets(List.of(partition)).get(partition) == 6);
            plain.send(new ProducerRecord<>(topic, "last")).get();
            check.equal("at last", Clients.values(Clients.read(check, committed, 1)), List.of("last"));
            check.equal("position", committed.position(partition), 6L + 1);
        }
    }

    static void manyPartitions(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 50);
        try (var producer = transactional(check, "producer")) {
            for (int turn = 0; turn < 4; turn++) {
                producer.beginTransaction();
                Clients.sendNumbers(producer, topic, 50, turn * 100, turn * 100 + 100);
                if (turn % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        Map<Integer, List<String>> values = Clients.readAll(check, topic, 50, "read_committed");
        for (int partition = 0; partition < 50; partition++) {
            List<String> want = new ArrayList<>(Clients.numbers(partition, 100, 50));
            want.addAll(Clients.numbers(200 + partition, 300, 50));
            check.equal("partition " + partition, values.get(partition), want);
        }
    }

    static void empty(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var producer = transactional(check, "producer")) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "first"));
            producer.commitTransaction();
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("first"));
    }

    static KafkaConsumer<String, String> groupConsumer(Check check, Object... namesAndValues) {
        Object[] all = new Object[namesAndValues.length + 4];
        System.arraycopy(new Object[] {"group.id", check.name("group"), "isolation.level", "read_committed"}, 0, all, 0, 4);
        System.arraycopy(namesAndValues, 0, all, 4, namesAndValues.length);
        return Clients.consumer(check, all);
    }

    /** Doubles every number exactly once, with an abort in every third transaction and its work done again. */
    static void consumeTransformProduce(Check check) throws Exception {
        String source = Clients.createTopic(check, "source", 3);
        String target = Clients.createTopic(check, "target", 1);
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, source, 3, 0, 300);
        }
        try (var producer = transactional(check, "producer");
                var consumer = groupConsumer(check, "max.poll.records", 20)) {
            consumer.subscribe(List.of(source));
            int[] turnAndDone = {0, 0};
            check.until("all is done", () -> {
                var records = consumer.poll(Clients.POLL);
                if (records.isEmpty()) {
                    return turnAndDone[1] >= 300;
                }
                producer.beginTransaction();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(target, String.valueOf(2 * Integer.parseInt(record.value()))));
                }
                Map<TopicPartition, OffsetAndMetadata> ends = new java.util.HashMap<>();
                Map<TopicPartition, Long> starts = new java.util.HashMap<>();
                for (TopicPartition partition : records.partitions()) {
                    var ofPartition = records.records(partition);
                    starts.put(partition, ofPartition.get(0).offset());
                    ends.put(partition, new OffsetAndMetadata(ofPartition.get(ofPartition.size() - 1).offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                if (turnAndDone[0]++ % 3 == 2) {
                    producer.abortTransaction();
                    starts.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                    turnAndDone[1] += records.count();
                }
                return turnAndDone[1] >= 300;
            });
            check.equal("done", turnAndDone[1], 300);
        }
        List<Integer> doubled = new ArrayList<>();
        Clients.readAll(check, target, 1, "read_committed").get(0).forEach(value -> doubled.add(Integer.parseInt(value)));
        doubled.sort(null);
        check.equal("values", doubled.stream().map(String::valueOf).toList(), Clients.numbers(0, 600, 2));
        try (Admin admin = Clients.admin(check)) {
            for (TopicPartition partition : Clients.partitions(source, 3)) {
                check.until("all is committed in " + partition, () -> admin.listConsumerGroupOffsets(check.name("group"))
                        .partitionsToOffsetAndMetadata().get().get(partition).offset() == 100);
            }
        }
    }

    static void offsetsOfOldGeneration(Check check) throws Exception {
        String source = Clients.createTopic(check, "source", 1);
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(source, 0), new OffsetAndMetadata(1));
        try (var producer = transactional(check, "producer"); var consumer = groupConsumer(check)) {
            consumer.subscribe(List.of(source));
            check.until("the partition is assigned", () -> {
                consumer.poll(Clients.POLL);
                return !consumer.assignment().isEmpty();
            });
            ConsumerGroupMetadata now = consumer.groupMetadata();
            ConsumerGroupMetadata old = new ConsumerGroupMetadata(
                    now.groupId(), now.generationId() - 1, now.memberId(), now.groupInstanceId());
            producer.beginTransaction();
            check.refused("offsets of an old generation", CommitFailedException.class, () -> {
                producer.sendOffsetsToTransaction(offsets, old);
                return null;
            });
            producer.abortTransaction();
            producer.beginTransaction();
            check.refused("offsets of nobody", CommitFailedException.class, () -> {
                producer.sendOffsetsToTransaction(offsets,
                        new ConsumerGroupMetadata(now.groupId(), now.generationId(), "nobody", now.groupInstanceId()));
                return null;
            });
            producer.abortTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(offsets, now);
            producer.commitTransaction();
            // The consumer answers from its own fetch, if one is under way since it got the partition.
            check.until("they are committed", () -> consumer.committed(offsets.keySet()).equals(offsets));
        }
    }

    static void fencing(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var zombie = transactional(check, "producer")) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, "by the zombie")).get();
            try (var successor = transactional(check, "producer")) {
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(topic, "by the successor")).get();
                var produced = check.refused("producing", KafkaException.class,
                        () -> zombie.send(new ProducerRecord<>(topic, "too late")).get());
                check.fact("producing", produced.getClass().getSimpleName());
                var committed = check.refused("committing", KafkaException.class, () -> {
                    zombie.commitTransaction();
                    return null;
                });
                check.fact("committing", committed.getClass().getSimpleName());
                successor.commitTransaction();
            }
        }
        try (var zombie = transactional(check, "idle"); var successor = transactional(check, "idle")) {
            var fenced = check.refused("the idle zombie", KafkaException.class, () -> {
                zombie.beginTransaction();
                zombie.send(new ProducerRecord<>(topic, "too late"));
                zombie.commitTransaction();
                return null;
            });
            check.isTrue("fenced: " + fenced,
                    fenced instanceof ProducerFencedException || fenced instanceof InvalidProducerEpochException);
            check.fact("the idle zombie", fenced.getClass().getSimpleName());
            successor.beginTransaction();
            successor.send(new ProducerRecord<>(topic, "by the second successor"));
            successor.commitTransaction();
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0),
                List.of("by the successor", "by the second successor"));
    }

    static void takesOverOpen(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        var first = transactional(check, "producer");
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, "left open")).get();
        first.close(Duration.ZERO);
        try (var second = transactional(check, "producer")) {
            // It is aborted when initTransactions returns: nothing is open that readers would wait for.
            try (var consumer = Clients.consumer(check, "isolation.level", "read_committed")) {
                TopicPartition partition = new TopicPartition(topic, 0);
                check.equal("end", consumer.endOffsets(List.of(partition)), Map.of(partition, 2L));
            }
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "committed"));
            second.commitTransaction();
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("committed"));
    }

    static void timeout(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = transactional(check, "producer", "transaction.timeout.ms", 1_000);
                var consumer = Clients.consumer(check, "isolation.level", "read_committed")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "too slow")).get();
            check.equal("end, open", consumer.endOffsets(List.of(partition)), Map.of(partition, 0L));
            check.until("it is aborted", () -> consumer.endOffsets(List.of(partition)).get(partition) == 2L);
            var refused = check.refused("committing", KafkaException.class, () -> {
                producer.commitTransaction();
                return null;
            });
            check.fact("committing", refused.getClass().getSimpleName());
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
    }

    static void timeoutTooLong(Check check) {
        var refused = check.refused("a time-out above the broker's limit", KafkaException.class, () -> {
            try (var producer = transactional(check, "producer", "transaction.timeout.ms", 900_001)) {
                return producer;
            }
        });
        check.fact("message", refused.getMessage());
        try (var producer = transactional(check, "producer", "transaction.timeout.ms", 900_000)) {
            producer.beginTransaction();
            producer.commitTransaction();
        }
    }

    static void admin(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String id = check.name("producer");
        try (Admin admin = Clients.admin(check); var producer = transactional(check, "producer")) {
            check.equal("new", describe(admin, id).state(), TransactionState.EMPTY);
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "value")).get();
            TransactionDescription open = describe(admin, id);
            check.equal("open", open.state(), TransactionState.ONGOING);
            check.equal("partitions", open.topicPartitions(), Set.of(new TopicPartition(topic, 1)));
            check.equal("time-out", open.transactionTimeoutMs(), 60_000L);
            check.isTrue("start", open.transactionStartTimeMs().isPresent());
            var listed = admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)))
                    .all().get().stream().filter(one -> one.transactionalId().equals(id)).toList();
            check.equal("listed", listed.size(), 1);
            check.equal("by producer id", admin.listTransactions(
                            new ListTransactionsOptions().filterProducerIds(Set.of(open.producerId()))).all().get().stream()
                    .map(one -> one.transactionalId() + " " + one.state()).toList(), List.of(id + " Ongoing"));
            check.equal("by duration", admin.listTransactions(new ListTransactionsOptions()
                    .filterStates(Set.of(TransactionState.ONGOING)).filterOnDuration(3_600_000)).all().get().size(), 0);
            List<ProducerState> producers = describeProducers(admin, new TopicPartition(topic, 1));
            check.equal("producers", producers.size(), 1);
            check.equal("its id", producers.get(0).producerId(), open.producerId());
            check.equal("its epoch", producers.get(0).producerEpoch(), open.producerEpoch());
            check.equal("its sequence", producers.get(0).lastSequence(), 0);
            check.equal("its transaction", producers.get(0).currentTransactionStartOffset().orElse(-1), 0L);
            check.equal("none", describeProducers(admin, new TopicPartition(topic, 0)).size(), 0);
            producer.commitTransaction();
            check.until("complete", () -> describe(admin, id).state() == TransactionState.COMPLETE_COMMIT);
            check.equal("partitions at the end", describe(admin, id).topicPartitions(), Set.of());
            check.equal("closed", describeProducers(admin, new TopicPartition(topic, 1)).get(0)
                    .currentTransactionStartOffset().isPresent(), false);
            check.refused("an unknown id", TransactionalIdNotFoundException.class,
                    () -> admin.describeTransactions(List.of(check.name("unknown"))).all().get());
        }
    }

    static TransactionDescription describe(Admin admin, String id) throws Exception {
        return admin.describeTransactions(List.of(id)).all().get().get(id);
    }

    static List<ProducerState> describeProducers(Admin admin, TopicPartition partition) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
    }

    /** Aborted through the leader of the partition, as `kafka-transactions.sh abort` does. */
    static void adminAborts(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Clients.admin(check); var producer = transactional(check, "producer")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "hanging")).get();
            ProducerState state = describeProducers(admin, partition).get(0);
            admin.abortTransaction(new AbortTransactionSpec(
                            partition, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0)))
                    .all().get();
            check.equal("end", admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get()
                    .get(partition).offset(), 2L);
            check.equal("closed", describeProducers(admin, partition).get(0).currentTransactionStartOffset().isPresent(),
                    false);
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
    }

    static void adminFences(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (Admin admin = Clients.admin(check); var producer = transactional(check, "producer")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value")).get();
            var result = admin.fenceProducers(List.of(check.name("producer"), check.name("new")));
            result.all().get();
            check.equal("epoch of a new id", result.epochId(check.name("new")).get(), (short) 0);
            check.isTrue("a producer id", result.producerId(check.name("producer")).get() >= 0);
            var refused = check.refused("committing", KafkaException.class, () -> {
                producer.commitTransaction();
                return null;
            });
            check.isTrue("fenced: " + refused,
                    refused instanceof ProducerFencedException || refused instanceof InvalidProducerEpochException);
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
    }

    /** Transactions go on through the end of the broker; each is whole or not there. */
    static void throughRestart(Check check, String how) throws Exception {
        String topic = Clients.createTopic(check, "topic", 3);
        try (var producer = transactional(
                check, "producer", "reconnect.backoff.max.ms", 200, "retry.backoff.max.ms", 200, "linger.ms", 0)) {
            for (int turn = 0; turn < 30; turn++) {
                producer.beginTransaction();
                for (int number = turn * 30; number < turn * 30 + 30; number++) {
                    producer.send(new ProducerRecord<>(topic, number % 3, null, String.valueOf(number)));
                    if (turn == 10 && number % 30 == 15) {
                        check.restart(how);
                    }
                }
                if (turn == 20) {
                    producer.flush();
                    check.restart(how);
                }
                if (turn % 5 == 4) {
                    // Records that are not sent yet when a transaction is aborted may slip into the next one: the client's sender
                    // looks for unsent batches before it takes the request that ends the transaction.
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Map<Integer, List<String>> values = Clients.readAll(check, topic, 3, "read_committed");
        for (int partition = 0; partition < 3; partition++) {
            List<String> want = new ArrayList<>(Clients.numbers(partition, 900, 3));
            want.removeIf(value -> Integer.parseInt(value) / 30 % 5 == 4);
            check.equal("partition " + partition, values.get(partition), want);
        }
    }
}
