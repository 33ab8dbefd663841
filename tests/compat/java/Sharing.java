import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Share groups (KIP-932): consumers acquire records one by one, and acknowledge, release or reject them. */
final class Sharing {
    private Sharing() {}

    static void addTo(Checks checks) {
        checks.add("share-records-once", Sharing::once)
                .add("share-acknowledgements", Sharing::acknowledgements)
                .add("share-more-consumers-than-partitions", Sharing::manyConsumers)
                .add("share-admin", Sharing::admin)
                .add("share-through-kill", Sharing::throughKill);
    }

    /** Has the check's group begin at the start of its topics, which is not what share groups usually do. */
    private static void beginAtStart(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            Administering.alter(admin, new ConfigResource(ConfigResource.Type.GROUP, check.name("group")),
                    AlterConfigOp.OpType.SET, "share.auto.offset.reset", "earliest");
        }
    }

    private static KafkaShareConsumer<String, String> consumer(Check check, String topic, String mode) {
        Map<String, Object> settings = new HashMap<>(Clients.settings(check, "group.id", check.name("group"),
                "share.acknowledgement.mode", mode, "reconnect.backoff.max.ms", 200));
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static void once(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        beginAtStart(check);
        try (var producer = Clients.producer(check); var consumer = consumer(check, topic, "implicit")) {
            Clients.sendNumbers(producer, topic, 2, 0, 100);
            List<Integer> values = new ArrayList<>();
            check.until("all have come", () -> {
                consumer.poll(Clients.POLL).forEach(record -> values.add(Integer.parseInt(record.value())));
                return values.size() >= 100;
            });
            consumer.commitSync();
            values.sort(null);
            check.equal("values", values.stream().map(String::valueOf).toList(), Clients.numbers(0, 100, 1));
        }
        // What was acknowledged does not come again.
        try (var producer = Clients.producer(check); var consumer = consumer(check, topic, "implicit")) {
            Clients.sendNumbers(producer, topic, 2, 100, 102);
            List<String> values = new ArrayList<>();
            check.until("the new ones have come", () -> {
                consumer.poll(Clients.POLL).forEach(record -> values.add(record.value()));
                return values.size() >= 2;
            });
            values.sort(null);
            check.equal("only the new ones", values, List.of("100", "101"));
        }
    }

    /** Accepted records are done with, released ones come again and count their deliveries, rejected ones never do. */
    static void acknowledgements(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        beginAtStart(check);
        try (var producer = Clients.producer(check); var consumer = consumer(check, topic, "explicit")) {
            Clients.sendNumbers(producer, topic, 1, 0, 9);
            Map<Integer, List<Short>> deliveries = new TreeMap<>();
            int[] open = {9};
            check.until("all are done with", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(Clients.POLL)) {
                    int number = Integer.parseInt(record.value());
                    short delivery = record.deliveryCount().orElse((short) -1);
                    deliveries.computeIfAbsent(number, unused -> new ArrayList<>()).add(delivery);
                    boolean again = number % 3 == 1 && delivery < 3;
                    consumer.acknowledge(record, again ? AcknowledgeType.RELEASE
                            : number % 3 == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    open[0] -= again ? 0 : 1;
                }
                consumer.commitSync().values().forEach(failure -> check.isTrue("committed: " + failure, failure.isEmpty()));
                return open[0] == 0;
            });
            for (int number = 0; number < 9; number++) {
                check.equal("deliveries of " + number, deliveries.get(number), number % 3 == 1
                        ? List.of((short) 1, (short) 2, (short) 3) : List.of((short) 1));
            }
            check.equal("nothing more", consumer.poll(java.time.Duration.ofMillis(500)).count(), 0);
        }
    }

    /** Unlike in a consumer group, the records of one partition go to all. */
    static void manyConsumers(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        beginAtStart(check);
        List<KafkaShareConsumer<String, String>> consumers = new ArrayList<>();
        try (var producer = Clients.producer(check, "linger.ms", 0, "batch.size", 1)) {
            for (int number = 0; number < 4; number++) {
                consumers.add(consumer(check, topic, "implicit"));
            }
            List<String> values = new ArrayList<>();
            int[] sent = {0};
            check.until("all have come", () -> {
                if (sent[0] < 400) {
                    Clients.sendNumbers(producer, topic, 1, sent[0], sent[0] + 40);
                    sent[0] += 40;
                }
                for (var consumer : consumers) {
                    consumer.poll(java.time.Duration.ofMillis(20)).forEach(record -> values.add(record.value()));
                }
                return values.size() >= 400;
            });
            check.equal("none twice", values.size(), 400);
            check.equal("all", new TreeSet<>(values), new TreeSet<>(Clients.numbers(0, 400, 1)));
        } finally {
            consumers.forEach(KafkaShareConsumer::close);
        }
    }

    static void admin(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        String group = check.name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        beginAtStart(check);
        try (Admin admin = Clients.admin(check); var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, 1, 0, 10);
            try (var consumer = consumer(check, topic, "implicit")) {
                int[] seen = {0};
                check.until("all have come", () -> (seen[0] += consumer.poll(Clients.POLL).count()) >= 10);
                consumer.commitSync();
                var description = admin.describeShareGroups(List.of(group)).all().get().get(group);
                check.equal("state", description.groupState().toString(), "Stable");
                check.equal("members", description.members().size(), 1);
                check.equal("assignment", description.members().iterator().next().assignment().topicPartitions(),
                        java.util.Set.of(partition));
                check.isTrue("listed", admin.listGroups().all().get().stream().anyMatch(one ->
                        one.groupId().equals(group) && one.type().orElseThrow().toString().equals("Share")));
                check.refused("deleting it", GroupNotEmptyException.class,
                        () -> admin.deleteShareGroups(List.of(group)).all().get());
            }
            check.until("it is empty", () -> admin.describeShareGroups(List.of(group)).all().get().get(group).groupState()
                    .toString().equals("Empty"));
            // The stored start offset is where the group began; the ten acknowledged records are above it.
            check.fact("start", start(admin, group, partition));
            admin.alterShareGroupOffsets(group, Map.of(partition, 4L)).all().get();
            check.equal("altered", start(admin, group, partition), 4L);
            try (var consumer = consumer(check, topic, "implicit")) {
                List<String> values = new ArrayList<>();
                check.until("they have come again", () -> {
                    consumer.poll(Clients.POLL).forEach(record -> values.add(record.value()));
                    return values.size() >= 6;
                });
                check.equal("from there on", values, Clients.numbers(4, 10, 1));
            }
            check.until("it is empty again", () -> admin.describeShareGroups(List.of(group)).all().get().get(group)
                    .groupState().toString().equals("Empty"));
            admin.deleteShareGroups(List.of(group)).all().get();
            check.isTrue("gone", admin.listGroups().all().get().stream().noneMatch(one -> one.groupId().equals(group)));
        }
    }

    private static long start(Admin admin, String group, TopicPartition partition) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get()
                .get(partition).startOffset();
    }

    /** Every record comes at least once, and what was acknowledged before the crash does not come after it. */
    static void throughKill(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        beginAtStart(check);
        try (var producer = Clients.producer(check, "reconnect.backoff.max.ms", 200);
                var consumer = consumer(check, topic, "implicit")) {
            Map<Integer, Integer> seen = new TreeMap<>();
            for (int round = 0; round < 3; round++) {
                Clients.sendNumbers(producer, topic, 2, round * 100, round * 100 + 100);
                int end = round * 100 + 100;
                check.until("round " + round + " has come", () -> {
                    consumer.poll(Clients.POLL).forEach(record -> seen.merge(Integer.parseInt(record.value()), 1, Integer::sum));
                    return seen.size() >= end;
                });
                consumer.commitSync();
                if (round < 2) {
                    check.restart("kill");
                }
            }
            check.equal("once each", seen.values().stream().mapToInt(Integer::intValue).sum(), 300);
        }
    }
}
