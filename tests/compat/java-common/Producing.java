import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What a producer sends is what a consumer gets: contents, offsets, order, times, and Kafka's refusals. */
final class Producing {
    private Producing() {}

    static void addTo(Checks checks) {
        checks.add("produce-and-consume", Producing::produceAndConsume)
                .add("produce-headers-and-nulls", Producing::headersAndNulls)
                .add("produce-compression", Producing::compression)
                .add("produce-acks", Producing::acks)
                .add("produce-order-with-many-in-flight", Producing::orderWithManyInFlight)
                .add("produce-log-append-time", Producing::logAppendTime)
                .add("produce-record-too-large", Producing::recordTooLarge)
                .add("produce-invalid-records", Producing::invalidRecords)
                .add("produce-topic-compression", Producing::topicCompression)
                .add("produce-auto-creation", Producing::autoCreation)
                .add("produce-through-restarts", Producing::throughRestarts);
    }

    static void produceAndConsume(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 3);
        try (var producer = Clients.producer(check, "linger.ms", 5)) {
            List<RecordMetadata> sent = Clients.sendNumbers(producer, topic, 3, 0, 300);
            for (int number = 0; number < 300; number++) {
                check.equal("partition of " + number, sent.get(number).partition(), number % 3);
                check.equal("offset of " + number, sent.get(number).offset(), (long) (number / 3));
            }
        }
        try (var consumer = Clients.consumer(check)) {
            consumer.assign(Clients.partitions(topic, 3));
            Map<Integer, Long> next = new TreeMap<>();
            for (var record : Clients.read(check, consumer, 300)) {
                long offset = next.getOrDefault(record.partition(), 0L);
                check.equal("offset in partition " + record.partition(), record.offset(), offset);
                check.equal("value", record.value(), String.valueOf(offset * 3 + record.partition()));
                check.equal("leader epoch", record.leaderEpoch().orElse(-1), 0);
                next.put(record.partition(), offset + 1);
            }
            check.equal("ends", next, Map.of(0, 100L, 1, 100L, 2, 100L));
        }
    }

    static void headersAndNulls(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        long time = System.currentTimeMillis() - 60_000;
        try (var producer = Clients.producer(check)) {
            List<org.apache.kafka.common.header.Header> headers = List.of(
                    new RecordHeader("origin", "JFK".getBytes(StandardCharsets.UTF_8)),
                    new RecordHeader("origin", null),
                    new RecordHeader("", new byte[0]));
            producer.send(new ProducerRecord<>(topic, 0, time, "key", "value", headers)).get();
            producer.send(new ProducerRecord<>(topic, 0, time + 1, null, "no key")).get();
            producer.send(new ProducerRecord<>(topic, 0, time + 2, "no value", (String) null)).get();
            producer.send(new ProducerRecord<>(topic, 0, time + 3, "", "")).get();
        }
        try (var consumer = Clients.consumer(check)) {
            consumer.assign(Clients.partitions(topic, 1));
            var records = Clients.read(check, consumer, 4);
            check.equal("keys", records.stream().map(record -> String.valueOf(record.key())).toList(),
                    List.of("key", "null", "no value", ""));
            check.equal("values", records.stream().map(record -> String.valueOf(record.value())).toList(),
                    List.of("value", "no key", "null", ""));
            for (int index = 0; index < 4; index++) {
                check.equal("timestamp", records.get(index).timestamp(), time + index);
                check.equal("timestamp type", records.get(index).timestampType().toString(), "CreateTime");
            }
            List<String> headers = new ArrayList<>();
            records.get(0).headers().forEach(header -> headers.add(header.key() + "="
                    + (header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8))));
            check.equal("headers", headers, List.of("origin=JFK", "origin=null", "="));
            check.equal("no headers", records.get(1).headers().toArray().length, 0);
        }
    }

    static void compression(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        List<String> values = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (var producer = Clients.producer(check, "compression.type", codec, "linger.ms", 20)) {
                for (int number = 0; number < 200; number++) {
                    String value = codec + " " + "abcdefghij".repeat(number) + number;
                    values.add(value);
                    producer.send(new ProducerRecord<>(topic, 0, codec, value));
                }
            }
        }
        try (var consumer = Clients.consumer(check)) {
            consumer.assign(Clients.partitions(topic, 1));
            check.equal("values", Clients.values(Clients.read(check, consumer, 1000)), values);
        }
    }

    static void acks(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        List<String> seen = new ArrayList<>();
        for (String acks : List.of("0", "1", "all")) {
            try (var producer = Clients.producer(check, "acks", acks, "enable.idempotence", false)) {
                RecordMetadata sent = producer.send(new ProducerRecord<>(topic, "acks " + acks)).get();
                seen.add(acks + " " + sent.hasOffset());
                if (!acks.equals("0")) {
                    check.equal("offset", sent.offset(), (long) (acks.equals("1") ? 1 : 2));
                } else {
                    producer.flush();
                    check.until("the record is there", () -> Clients.readAll(check, topic, 1, "read_committed")
                            .get(0).equals(List.of("acks 0")));
                }
            }
        }
        check.equal("offsets known", seen, List.of("0 false", "1 true", "all true"));
        check.equal("values", Clients.readAll(check, topic, 1, "read_uncommitted").get(0),
                List.of("acks 0", "acks 1", "acks all"));
    }

    static void orderWithManyInFlight(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var producer = Clients.producer(
                check, "linger.ms", 0, "batch.size", 400, "max.in.flight.requests.per.connection", 5)) {
            Clients.sendNumbers(producer, topic, 2, 0, 8_000);
        }
        check.equal("values", Clients.readAll(check, topic, 2, "read_committed"),
                Map.of(0, Clients.numbers(0, 8_000, 2), 1, Clients.numbers(1, 8_000, 2)));
    }

    static void logAppendTime(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (var producer = Clients.producer(check)) {
            long answered = producer.send(new ProducerRecord<>(topic, 0, 1_000L, null, "value")).get().timestamp();
            check.isTrue("the answer has the broker's time", answered >= before - 1_000);
            try (var consumer = Clients.consumer(check)) {
                consumer.assign(Clients.partitions(topic, 1));
                var record = Clients.read(check, consumer, 1).get(0);
                check.equal("timestamp type", record.timestampType().toString(), "LogAppendTime");
                check.equal("timestamp", record.timestamp(), answered);
            }
        }
    }

    static void recordTooLarge(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1, "max.message.bytes", "2000");
        try (var producer = Clients.producer(check)) {
            check.refused("a record above max.message.bytes", RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, "x".repeat(3_000))).get());
            check.equal("offset", producer.send(new ProducerRecord<>(topic, "small enough")).get().offset(), 0L);
            check.refused("a record above max.request.size", RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, "z".repeat(2_000_000))).get());
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("small enough"));
    }

    /** A batch that is too large is split by the client until its parts are not. Version 3.9 splits for ever. */
    static void batchTooLarge(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1, "max.message.bytes", "2000");
        try (var producer = Clients.producer(check, "linger.ms", 50, "batch.size", 100_000)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 40; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, number + " " + "y".repeat(500))));
            }
            for (int number = 0; number < 40; number++) {
                check.equal("offset", sent.get(number).get().offset(), (long) number);
            }
        }
        check.equal("records", Clients.readAll(check, topic, 1, "read_committed").get(0).size(), 40);
    }

    static void invalidRecords(Check check) throws Exception {
        String compacted = Clients.createTopic(check, "compacted", 1, "cleanup.policy", "compact");
        String punctual = Clients.createTopic(
                check, "punctual", 1, "message.timestamp.before.max.ms", "60000", "message.timestamp.after.max.ms", "60000");
        long now = System.currentTimeMillis();
        try (var producer = Clients.producer(check, "linger.ms", 50)) {
            var first = producer.send(new ProducerRecord<>(compacted, 0, null, "no key"));
            check.refused("a record without a key", InvalidRecordException.class, first::get);
            check.equal("offset", producer.send(new ProducerRecord<>(compacted, 0, "key", "value")).get().offset(), 0L);
            for (long time : new long[] {now - 120_000, now + 120_000}) {
                check.refused("a record of another time", InvalidTimestampException.class,
                        () -> producer.send(new ProducerRecord<>(punctual, 0, time, null, "value")).get());
            }
            check.equal("offset", producer.send(new ProducerRecord<>(punctual, 0, now, null, "v")).get().offset(), 0L);
            check.refused("a topic name that is none", InvalidTopicException.class,
                    () -> producer.send(new ProducerRecord<>("no topic/", "value")).get());
        }
    }

    static void topicCompression(Check check) throws Exception {
        for (String codec : List.of("gzip", "zstd", "lz4", "snappy", "uncompressed")) {
            String topic = Clients.createTopic(check, codec, 1, "compression.type", codec);
            try (var producer = Clients.producer(check, "compression.type", "lz4", "linger.ms", 20)) {
                for (int number = 0; number < 50; number++) {
                    producer.send(new ProducerRecord<>(topic, "value ".repeat(100) + number));
                }
            }
            List<String> values = Clients.readAll(check, topic, 1, "read_committed").get(0);
            check.equal("count", values.size(), 50);
            check.equal("last", values.get(49), "value ".repeat(100) + 49);
        }
    }

    static void autoCreation(Check check) throws Exception {
        String topic = check.name("made-by-producing");
        try (var producer = Clients.producer(check); Admin admin = Clients.admin(check)) {
            check.equal("offset", producer.send(new ProducerRecord<>(topic, "first")).get().offset(), 0L);
            check.equal("partitions",
                    admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size(), 1);
        }
        String read = check.name("made-by-reading");
        try (var consumer = Clients.consumer(check); Admin admin = Clients.admin(check)) {
            consumer.assign(List.of(new TopicPartition(read, 0)));
            check.until("the topic is made", () -> {
                consumer.poll(Clients.POLL);
                return admin.listTopics().names().get().contains(read);
            });
        }
        String kept = check.name("not-made");
        try (var consumer = Clients.consumer(check, "allow.auto.create.topics", false); Admin admin = Clients.admin(check)) {
            consumer.assign(List.of(new TopicPartition(kept, 0)));
            consumer.poll(Duration.ofSeconds(1));
            check.isTrue("the topic is not made", !admin.listTopics().names().get().contains(kept));
        }
    }

    /** The broker is killed, then ended, while an idempotent producer sends: nothing is lost, doubled or out of order. */
    static void throughRestarts(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var producer = Clients.producer(
                check, "linger.ms", 1, "batch.size", 1000, "reconnect.backoff.max.ms", 200, "retry.backoff.max.ms", 200)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 3_000; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, number % 2, null, String.valueOf(number))));
                if (number == 1_000 || number == 2_000) {
                    check.restart(number == 1_000 ? "kill" : "terminate");
                }
            }
            for (int number = 0; number < 3_000; number++) {
                check.equal("offset of " + number, sent.get(number).get().offset(), (long) (number / 2));
            }
        }
        check.equal("values", Clients.readAll(check, topic, 2, "read_committed"),
                Map.of(0, Clients.numbers(0, 3_000, 2), 1, Clients.numbers(1, 3_000, 2)));
    }
}
