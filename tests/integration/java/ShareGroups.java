// Share groups as Kafka's own client sees them, one scenario at a time; what is printed is the same with Apache Kafka.
// Run as a single source file: java -cp 'JARS/*' ShareGroups.java BOOTSTRAP_SERVERS SCENARIO...

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ShareGroups {
    static final int SHORT_LOCK_MS = 2_000;
    static final int RENEWED_LOCK_MS = 8_000;
    static final int LONG_LOCK_MS = 60_000;
    static final long PATIENCE_MS = 60_000;
    static Map<String, Object> common;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        common = Map.of("bootstrap.servers", arguments[0]);
        try (Admin opened = Admin.create(common)) {
            admin = opened;
            for (String scenario : List.of(arguments).subList(1, arguments.length)) {
                System.out.println("# " + scenario);
                switch (scenario) {
                    case "explicit" -> explicit();
                    case "implicit" -> implicit();
                    case "locks" -> locks();
                    case "renewal" -> renewal();
                    case "limit" -> limit();
                    case "two" -> two(scenario, "batch_optimized");
                    case "record-limit" -> two(scenario, "record_limit");
                    case "transactions" -> transactions();
                    case "administration" -> administration();
                    case "crash" -> crash();
                    default -> throw new IllegalArgumentException(scenario);
                }
            }
        }
    }

    /** Accepted and rejected records never come again, released ones do, counted. */
    static void explicit() throws Exception {
        prepare("explicit", 1, 12, Map.of());
        Map<Long, List<Short>> deliveries = new TreeMap<>();
        try (var consumer = consumer("explicit", "explicit", Map.of())) {
            int done = 0;
            while (done < 12) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    deliveries.computeIfAbsent(record.offset(), offset -> new ArrayList<>()).add(count(record));
                    boolean comesBack = record.offset() % 3 == 0 && count(record) == 1;
                    AcknowledgeType last = record.offset() % 2 == 0 ? AcknowledgeType.ACCEPT : AcknowledgeType.REJECT;
                    consumer.acknowledge(record, comesBack ? AcknowledgeType.RELEASE : last);
                    done += comesBack ? 0 : 1;
                }
                print(consumer.commitSync());
            }
            nothingComes(consumer);
        }
        System.out.println(deliveries);
    }

    /** The next poll accepts what the one before returned, and so does closing. */
    static void implicit() throws Exception {
        prepare("implicit", 1, 10, Map.of());
        Set<Long> offsets = new TreeSet<>();
        try (var consumer = consumer("implicit", "implicit", Map.of("share.acknowledgement.mode", "implicit"))) {
            while (offsets.size() < 10) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> offsets.add(record.offset()));
            }
            consumer.commitSync();
        }
        produce("implicit", 1);
        try (var consumer = consumer("implicit", "implicit", Map.of("share.acknowledgement.mode", "implicit"))) {
            while (offsets.size() < 11) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println("offset " + record.offset() + " for the " + count(record) + ". time");
                    offsets.add(record.offset());
                }
            }
        }
    }

    /** Records that a member keeps too long go to another, and its word for them comes too late. */
    static void locks() throws Exception {
        prepare("locks", 1, 3, Map.of());
        try (var slow = consumer("locks", "locks", Map.of());
                var quick = consumer("locks", "locks", Map.of())) {
            List<ConsumerRecord<String, String>> kept = some(slow);
            System.out.println("kept " + offsets(kept));
            configure("locks", Map.of("share.record.lock.duration.ms", "" + LONG_LOCK_MS)); // of the locks to come
            Thread.sleep(SHORT_LOCK_MS + 500);
            List<ConsumerRecord<String, String>> taken = some(quick);
            for (var record : taken) {
                System.out.println("offset " + record.offset() + " for the " + count(record) + ". time");
                quick.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            kept.forEach(record -> slow.acknowledge(record, AcknowledgeType.ACCEPT));
            print(slow.commitSync());
            print(quick.commitSync());
        }
    }

    /** A lock that is renewed in time lasts longer. There is time to renew it, even on a busy machine. */
    static void renewal() throws Exception {
        prepare("renewal", 1, 1, Map.of());
        try (var consumer = consumer("renewal", "renewal", Map.of())) {
            var record = some(consumer).get(0);
            for (int turn = 0; turn < 3; turn++) {
                Thread.sleep(RENEWED_LOCK_MS * 36 / 100);
                consumer.acknowledge(record, AcknowledgeType.RENEW);
                print(consumer.commitSync());
                consumer.poll(Duration.ZERO);
            }
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            print(consumer.commitSync());
            nothingComes(consumer);
        }
    }

    /** A record that is released every time is given up in the end. */
    static void limit() throws Exception {
        prepare("limit", 1, 1, Map.of("share.delivery.count.limit", "3"));
        List<Short> counts = new ArrayList<>();
        try (var consumer = consumer("limit", "limit", Map.of())) {
            while (counts.size() < 3) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    counts.add(count(record));
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                consumer.commitSync();
            }
            nothingComes(consumer);
        }
        System.out.println(counts);
    }

    /** Two members of one group on one partition: every record is processed once, by one of them. */
    static void two(String name, String mode) throws Exception {
        prepare(name, 1, 0, Map.of());
        Map<Long, Integer> times = new ConcurrentHashMap<>();
        Set<String> members = ConcurrentHashMap.newKeySet();
        List<Thread> threads = new ArrayList<>();
        for (String member : List.of("first", "second")) {
            Thread thread = new Thread(() -> {
                try (var consumer = consumer(name, name, Map.of("max.poll.records", 50, "share.acquire.mode", mode))) {
                    long deadline = System.currentTimeMillis() + PATIENCE_MS;
                    while (times.size() < 1_000 && System.currentTimeMillis() < deadline) {
                        for (var record : consumer.poll(Duration.ofMillis(200))) {
                            times.merge(record.offset(), 1, Integer::sum);
                            members.add(member);
                            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        }
                        consumer.commitSync();
                        do { // the other one gets the next records, also where it is slow to begin
                            Thread.sleep(5);
                        } while (members.equals(Set.of(member)) && System.currentTimeMillis() < deadline);
                    }
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            });
            thread.start();
            threads.add(thread);
        }
        while (readers(name) < 2) {
            Thread.sleep(100);
        }
        produce(name, 1_000);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(times.size() + " records, more than once " + times.values().stream().filter(n -> n > 1).count());
        System.out.println("by " + new TreeSet<>(members));
        awaitLag(name, name, 0);
    }

    /** A group that reads what is committed never sees what was aborted. */
    static void transactions() throws Exception {
        prepare("transactions", 1, 0, Map.of("share.isolation.level", "read_committed"));
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("transactional.id", "share-transactions");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int turn = 0; turn < 4; turn++) {
                producer.beginTransaction();
                for (int index = 0; index < 3; index++) {
                    producer.send(new ProducerRecord<>("transactions", "key", turn % 2 == 0 ? "committed" : "aborted"));
                }
                producer.flush();
                if (turn % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        Map<Long, String> values = new TreeMap<>();
        try (var consumer = consumer("transactions", "transactions", Map.of())) {
            while (values.size() < 6) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    values.put(record.offset(), record.value());
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
            }
            nothingComes(consumer);
        }
        System.out.println(values);
    }

    static void administration() throws Exception {
        prepare("administration", 2, 10, Map.of());
        String group = "administration";
        try (var consumer = consumer("administration", group, Map.of())) {
            int accepted = 0;
            while (accepted < 10) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    accepted++;
                }
                consumer.commitSync();
            }
            var description = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
            System.out.println(description.groupState() + " " + description.members().size());
            for (var member : description.members()) {
                System.out.println(new TreeSet<>(member.assignment().topicPartitions().stream().map(Object::toString).toList()));
            }
            for (GroupListing listing : admin.listGroups().all().get()) {
                if (listing.groupId().equals(group)) {
                    System.out.println(listing.type() + " " + listing.protocol() + " " + listing.groupState());
                }
            }
            failure(() -> admin.alterShareGroupOffsets(group, Map.of(new TopicPartition("administration", 0), 0L)).all().get());
            failure(() -> admin.deleteShareGroups(List.of(group)).all().get());
        }
        awaitLag("administration", group, 0);
        awaitEmpty(group);
        admin.alterShareGroupOffsets(group, Map.of(new TopicPartition("administration", 0), 1L)).all().get();
        var moved = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get().get(new TopicPartition("administration", 0));
        System.out.println("moved to " + moved.startOffset() + ", lag known " + moved.lag().isPresent());
        try (var consumer = consumer("administration", group, Map.of())) {
            Set<Long> again = new TreeSet<>();
            while (!again.contains(moved.startOffset())) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    again.add(record.offset());
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
            }
            System.out.println("again from " + again.iterator().next());
        }
        awaitEmpty(group);
        admin.deleteShareGroupOffsets(group, Set.of("administration")).all().get();
        System.out.println("left " + admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get());
        failure(() -> admin.deleteShareGroupOffsets(group, Set.of("administration")).all().get());
        admin.deleteShareGroups(List.of(group)).all().get();
        failure(() -> admin.describeShareGroups(List.of(group)).all().get());
        failure(() -> admin.deleteShareGroups(List.of(group)).all().get());
    }

    /** Half of the records are accepted, then the broker is killed: the others come, those do not. */
    static void crash() throws Exception {
        prepare("crash", 1, 1_000, Map.of());
        Set<Long> accepted = new TreeSet<>();
        int again = 0;
        boolean wasKilled = false;
        try (var consumer = consumer("crash", "crash", Map.of("max.poll.records", 100, "share.acquire.mode", "record_limit"))) {
            long deadline = System.currentTimeMillis() + 2 * PATIENCE_MS;
            while (accepted.size() < 1_000 && System.currentTimeMillis() < deadline) {
                List<Long> polled = new ArrayList<>();
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    if (accepted.contains(record.offset())) {
                        again++;
                    }
                    polled.add(record.offset());
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                if (accepted.size() >= 400 && !wasKilled && !polled.isEmpty()) {
                    wasKilled = true;
                    System.out.println("half");
                    System.in.read();
                }
                boolean isDone = consumer.commitSync().values().stream().noneMatch(Optional::isPresent);
                if (isDone) {
                    accepted.addAll(polled);
                }
            }
        }
        System.out.println("accepted " + accepted.size() + ", again " + again);
    }

    // What the scenarios are made of

    static void prepare(String name, int partitions, int records, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        Map<String, String> all = new TreeMap<>(configs);
        all.put("share.auto.offset.reset", "earliest");
        int lockMs = name.equals("locks") ? SHORT_LOCK_MS : name.equals("renewal") ? RENEWED_LOCK_MS : LONG_LOCK_MS;
        all.put("share.record.lock.duration.ms", "" + lockMs);
        configure(name, all);
        produce(name, records);
        Thread.sleep(500);
    }

    static void configure(String group, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        configs.forEach((config, value) -> operations.add(new AlterConfigOp(new ConfigEntry(config, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), operations)).all().get();
    }

    static void produce(String topic, int records) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("linger.ms", 200);
        settings.put("batch.size", 1_000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            int partitions = producer.partitionsFor(topic).size();
            for (int index = 0; index < records; index++) {
                producer.send(new ProducerRecord<>(topic, index % partitions, "key", "value"));
            }
        }
    }

    static KafkaShareConsumer<String, String> consumer(String topic, String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.putAll(more);
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static List<ConsumerRecord<String, String>> some(KafkaShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        while (records.isEmpty()) {
            consumer.poll(Duration.ofMillis(500)).forEach(records::add);
        }
        return records;
    }

    static void nothingComes(KafkaShareConsumer<String, String> consumer) {
        System.out.println("nothing comes: " + consumer.poll(Duration.ofSeconds(2)).isEmpty());
    }

    static short count(ConsumerRecord<String, String> record) {
        return record.deliveryCount().orElse((short) -1);
    }

    static List<Long> offsets(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::offset).toList();
    }

    static void print(Map<?, Optional<org.apache.kafka.common.KafkaException>> outcomes) {
        outcomes.values().forEach(error -> System.out.println("committed: " + error.map(e -> e.getClass().getSimpleName()).orElse("yes")));
    }

    static void awaitLag(String topic, String group, long lag) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            var offsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get();
            var info = offsets.get(new TopicPartition(topic, 0));
            if (info != null && info.lag().isPresent() && info.lag().get() == lag) {
                System.out.println("lag " + lag);
                return;
            }
            Thread.sleep(100);
        }
        System.out.println("lag is not " + lag);
    }

    static long readers(String group) throws Exception {
        try {
            var members = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get().members();
            return members.stream().filter(member -> !member.assignment().topicPartitions().isEmpty()).count();
        } catch (ExecutionException notThereYet) {
            return 0;
        }
    }

    static void awaitEmpty(String group) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            if (admin.describeShareGroups(List.of(group)).describedGroups().get(group).get().members().isEmpty()) {
                return;
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
        System.out.println("never empty");
    }

    interface Attempt {
        void run() throws Exception;
    }

    static void failure(Attempt attempt) throws Exception {
        try {
            attempt.run();
            System.out.println("no failure");
        } catch (ExecutionException failed) {
            System.out.println(failed.getCause().getClass().getSimpleName());
        }
    }
}
