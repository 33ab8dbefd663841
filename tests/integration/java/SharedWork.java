// Members of a share group that share the records of a topic until all are accepted, while brokers may be killed.
// Run as a single source file: java -cp 'JARS/*' SharedWork.java BOOTSTRAP_SERVERS TOPIC GROUP MEMBERS RECORDS
// Prints "accepted N" as the number grows. A record counts as accepted once a broker has confirmed that. It counts as
// unanswered if its broker ended before it confirmed: then the group may have it accepted, and never delivers it again,
// or available, and delivers it to another member. The group's lag says which: the work ends when it is 0.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class SharedWork {
    static final long PATIENCE_MS = 300_000;
    static final Set<String> accepted = ConcurrentHashMap.newKeySet();
    static final Set<String> unanswered = ConcurrentHashMap.newKeySet();
    static final AtomicInteger again = new AtomicInteger();
    static final AtomicInteger highestCount = new AtomicInteger();
    static final AtomicInteger refused = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = new ArrayList<>();
        for (int number = 0; number < members; number++) {
            Thread thread = new Thread(() -> work(arguments[0], arguments[1], arguments[2], records));
            thread.setUncaughtExceptionHandler((of, failure) -> {
                synchronized (failures) {
                    failures.add(failure);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        failures.forEach(failure -> System.out.println("failure " + failure));
        System.out.println("refused " + refused);
        System.out.println("most deliveries of a record " + highestCount);
        unanswered.removeAll(accepted);
        System.out.println("unanswered " + unanswered.size());
        System.out.println("done: delivered " + (accepted.size() + unanswered.size()) + ", again " + again);
    }

    /** Whether each record is accepted; if the answer for some was lost, the group has to say so. */
    static boolean isDone(Admin admin, String group, int records) {
        if (accepted.size() == records) {
            return true;
        }
        Set<String> delivered = new HashSet<>(accepted);
        delivered.addAll(unanswered);
        return delivered.size() == records && lag(admin, group) == 0;
    }

    /** The number of records that the group has not accepted; at least 1 while one partition's is unknown. */
    static long lag(Admin admin, String group) {
        try {
            var offsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get();
            return offsets.values().stream().mapToLong(one -> one == null ? 1 : one.lag().orElse(1L)).sum();
        } catch (ExecutionException | InterruptedException unknown) {
            return 1; // asked again after the next poll
        }
    }

    static void work(String servers, String topic, String group, int records) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers,
            "group.id", group,
            "share.acknowledgement.mode", "explicit",
            "max.poll.records", 50,
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (var consumer = new KafkaShareConsumer<String, String>(settings);
                var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", servers))) {
            consumer.subscribe(List.of(topic));
            while (!isDone(admin, group, records) && System.currentTimeMillis() < deadline) {
                Map<Integer, List<String>> polled = new HashMap<>();
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    String name = record.partition() + "-" + record.offset();
                    if (accepted.contains(name)) {
                        again.incrementAndGet();
                    }
                    highestCount.accumulateAndGet(record.deliveryCount().map(Short::intValue).orElse(0), Math::max);
                    polled.computeIfAbsent(record.partition(), of -> new ArrayList<>()).add(name);
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                int before = accepted.size();
                Map<TopicIdPartition, Optional<org.apache.kafka.common.KafkaException>> results = consumer.commitSync();
                results.forEach((partition, problem) -> {
                    List<String> names = polled.getOrDefault(partition.partition(), List.of());
                    if (problem.isPresent()) {
                        refused.incrementAndGet();
                        System.out.println("refused for " + names.size() + " of " + partition + ": " + problem.get());
                        unanswered.addAll(names);
                    } else {
                        accepted.addAll(names);
                    }
                });
                if (accepted.size() / 100 > before / 100) {
                    System.out.println("accepted " + accepted.size());
                }
            }
        }
    }
}
