import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidOffsetException;

/** Reading without a group's assignments: where it starts, what it gets, and what an offset may be. */
final class Consuming {
    private Consuming() {}

    static void addTo(Checks checks) {
        checks.add("consume-from-offsets", Consuming::fromOffsets)
                .add("consume-offsets-by-time", Consuming::offsetsByTime)
                .add("consume-out-of-range", Consuming::outOfRange)
                .add("consume-small-fetches", Consuming::smallFetches)
                .add("consume-pause-and-resume", Consuming::pauseAndResume)
                .add("consume-many-partitions", Consuming::manyPartitions)
                .add("consume-topic-deleted-and-made-again", Consuming::deletedAndMadeAgain)
                .add("consume-commits-without-members", Consuming::commitsWithoutMembers);
    }

    static void fromOffsets(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = Clients.producer(check); var consumer = Clients.consumer(check)) {
            Clients.sendNumbers(producer, topic, 1, 0, 100);
            consumer.assign(List.of(partition));
            check.equal("beginning", consumer.beginningOffsets(List.of(partition)), Map.of(partition, 0L));
            check.equal("end", consumer.endOffsets(List.of(partition)), Map.of(partition, 100L));
            for (int start : new int[] {0, 1, 57, 99}) {
                consumer.seek(partition, start);
                check.equal("from " + start, Clients.values(Clients.read(check, consumer, 100 - start)),
                        Clients.numbers(start, 100, 1));
            }
            consumer.seekToEnd(List.of(partition));
            check.equal("position", consumer.position(partition), 100L);
            Clients.sendNumbers(producer, topic, 1, 100, 103);
            check.equal("what came after", Clients.values(Clients.read(check, consumer, 3)), Clients.numbers(100, 103, 1));
            check.equal("partitions", consumer.partitionsFor(topic).size(), 1);
            check.isTrue("a node leads it",
                    check.nodes().contains(consumer.partitionsFor(topic).get(0).leader().id()));
        }
    }

    static void offsetsByTime(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        long start = System.currentTimeMillis() - 600_000;
        for (String codec : List.of("none", "zstd")) {
            int partitionNumber = codec.equals("none") ? 0 : 1;
            try (var producer = Clients.producer(check, "linger.ms", 20, "compression.type", codec)) {
                // One of them is out of order.
                for (int number = 0; number < 10; number++) {
                    long time = start + (number == 5 ? 9_500 : number * 1_000);
                    producer.send(new ProducerRecord<>(topic, partitionNumber, time, null, String.valueOf(number)));
                }
            }
        }
        try (var consumer = Clients.consumer(check)) {
            for (TopicPartition partition : Clients.partitions(topic, 2)) {
                List<String> found = new ArrayList<>();
                for (long after : new long[] {-1_000, 0, 1, 4_000, 4_001, 9_000, 9_500, 9_501}) {
                    OffsetAndTimestamp one = consumer.offsetsForTimes(Map.of(partition, start + after)).get(partition);
                    found.add(one == null ? "none" : one.offset() + " at " + (one.timestamp() - start));
                }
                check.equal("found in " + partition, found, List.of("0 at 0", "0 at 0", "1 at 1000", "4 at 4000",
                        "5 at 9500", "5 at 9500", "5 at 9500", "none"));
            }
        }
    }

    static void outOfRange(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = Clients.producer(check); Admin admin = Clients.admin(check)) {
            Clients.sendNumbers(producer, topic, 1, 0, 20);
            check.equal("low watermark", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5)))
                    .lowWatermarks().get(partition).get().lowWatermark(), 5L);
        }
        try (var consumer = Clients.consumer(check, "auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            for (long offset : new long[] {4, 21}) {
                consumer.seek(partition, offset);
                var refused = check.refused("offset " + offset, OffsetOutOfRangeException.class, () -> {
                    check.until("the broker answers", () -> !consumer.poll(Clients.POLL).isEmpty());
                    return null;
                });
                check.equal("out of range", refused.offsetOutOfRangePartitions(), Map.of(partition, offset));
            }
            consumer.seek(partition, 20);
            check.equal("at the end", consumer.poll(Duration.ofMillis(200)).count(), 0);
        }
        for (String reset : List.of("earliest", "latest")) {
            try (var consumer = Clients.consumer(check, "auto.offset.reset", reset)) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 1_000);
                check.until("it starts again", () -> {
                    consumer.poll(Clients.POLL);
                    return consumer.position(partition) == 20;
                });
            } catch (InvalidOffsetException unexpected) {
                throw check.failed("reset to " + reset + ": " + unexpected);
            }
        }
    }

    /** Fetches smaller than a record, and than a batch, still get on. */
    static void smallFetches(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var producer = Clients.producer(check, "linger.ms", 10)) {
            for (int number = 0; number < 60; number++) {
                producer.send(new ProducerRecord<>(topic, number % 2, null, number + "x".repeat(2_000)));
            }
        }
        for (Object[] limits : new Object[][] {
            {"fetch.max.bytes", 1_000, "max.partition.fetch.bytes", 1_000_000},
            {"fetch.max.bytes", 50_000_000, "max.partition.fetch.bytes", 1},
            {"fetch.max.bytes", 1, "max.poll.records", 1},
            {"fetch.min.bytes", 200_000, "fetch.max.wait.ms", 50},
        }) {
            try (var consumer = Clients.consumer(check, limits)) {
                consumer.assign(Clients.partitions(topic, 2));
                var records = Clients.read(check, consumer, 60);
                for (int partition = 0; partition < 2; partition++) {
                    int wanted = partition;
                    check.equal("offsets", records.stream().filter(record -> record.partition() == wanted)
                            .map(ConsumerRecord::offset).toList(), java.util.stream.LongStream.range(0, 30).boxed().toList());
                }
            }
        }
    }

    static void pauseAndResume(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        List<TopicPartition> both = Clients.partitions(topic, 2);
        try (var producer = Clients.producer(check); var consumer = Clients.consumer(check)) {
            Clients.sendNumbers(producer, topic, 2, 0, 20);
            consumer.assign(both);
            consumer.pause(List.of(both.get(0)));
            check.equal("of the other", Clients.values(Clients.read(check, consumer, 10)), Clients.numbers(1, 20, 2));
            check.equal("paused", consumer.paused(), Set.of(both.get(0)));
            consumer.resume(List.of(both.get(0)));
            check.equal("of the first", Clients.values(Clients.read(check, consumer, 10)), Clients.numbers(0, 20, 2));
        }
    }

    /** More partitions than a fetch session's first request would want to repeat. */
    static void manyPartitions(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 200);
        try (var producer = Clients.producer(check, "linger.ms", 10); var consumer = Clients.consumer(check)) {
            consumer.assign(Clients.partitions(topic, 200));
            consumer.poll(Duration.ofMillis(200));
            for (int round = 0; round < 5; round++) {
                Clients.sendNumbers(producer, topic, 200, round * 200, round * 200 + 200);
                List<Integer> values = new ArrayList<>();
                Clients.read(check, consumer, 200).forEach(record -> values.add(Integer.parseInt(record.value())));
                values.sort(null);
                check.equal("values", values.stream().map(String::valueOf).toList(),
                        Clients.numbers(round * 200, round * 200 + 200, 1));
            }
        }
    }

    static void deletedAndMadeAgain(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = Clients.consumer(check, "metadata.max.age.ms", 500, "allow.auto.create.topics", false);
                Admin admin = Clients.admin(check)) {
            try (var producer = Clients.producer(check)) {
                Clients.sendNumbers(producer, topic, 1, 0, 3);
            }
            consumer.assign(List.of(partition));
            Clients.read(check, consumer, 3);
            admin.deleteTopics(List.of(topic)).all().get();
            check.until("it is gone", () -> !admin.listTopics().names().get().contains(topic));
            check.equal("the same name", Clients.createTopic(check, "topic", 1), topic);
            try (var producer = Clients.producer(check)) {
                Clients.sendNumbers(producer, topic, 1, 0, 5);
            }
            consumer.seekToBeginning(List.of(partition));
            check.equal("of the new topic", Clients.values(Clients.read(check, consumer, 5)), Clients.numbers(0, 5, 1));
        }
    }

    static void commitsWithoutMembers(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        List<TopicPartition> both = Clients.partitions(topic, 2);
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(
                both.get(0), new OffsetAndMetadata(7, "where I am"), both.get(1), new OffsetAndMetadata(0));
        try (var consumer = Clients.consumer(check, "group.id", check.name("group")); Admin admin = Clients.admin(check)) {
            consumer.assign(both);
            check.equal("nothing yet", consumer.committed(Set.copyOf(both)).values().stream().filter(one -> one != null)
                    .count(), 0L);
            consumer.commitSync(offsets);
            check.equal("committed", consumer.committed(Set.copyOf(both)), offsets);
            check.equal("as admin sees it", admin.listConsumerGroupOffsets(check.name("group"))
                    .partitionsToOffsetAndMetadata().get(), offsets);
            var description = admin.describeConsumerGroups(List.of(check.name("group"))).all().get().get(check.name("group"));
            check.equal("members", description.members().size(), 0);
            check.equal("state", description.state().toString(), "Empty");
        }
        // Offsets of a group survive the broker, and the consumer starts there.
        check.restart("kill");
        try (var consumer = Clients.consumer(check, "group.id", check.name("group")); var producer = Clients.producer(check)) {
            check.equal("after the crash", consumer.committed(Set.copyOf(both)), offsets);
            Clients.sendNumbers(producer, topic, 2, 0, 20);
            consumer.assign(both);
            check.equal("from there on", Clients.read(check, consumer, 3 + 10).size(), 13);
        }
    }
}
