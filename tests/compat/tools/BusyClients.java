import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/**
 * 200 clients that work at once until they have to stop, and the exact expected results: 100 producers with a
 * partition each, 40 of them in transactions, and two groups, one of each protocol, of 50 members that read it all.
 */
final class BusyClients implements AutoCloseable {
    static final int WRITERS = 100;
    static final int TRANSACTIONAL_WRITERS = 40;
    static final int MEMBERS = 50;
    static final List<String> PROTOCOLS = List.of("classic", "consumer");

    private static final int TRANSACTION_RECORDS = 3;
    /** One of this many transactions is aborted. */
    private static final int ABORT_EVERY = 4;
    /** Between two turns of a writer: all of them together leave the machine some room. */
    private static final long PAUSE_MS = 1_000;

    private static final Duration POLL = Duration.ofMillis(500);

    private final Check check;
    private final String topic;
    private final List<Writer> writers = new ArrayList<>();
    private final List<Member> members = new ArrayList<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Future<?>> working = new ArrayList<>();
    private volatile boolean writing = true;
    private volatile boolean reading = true;

    BusyClients(Check check) throws Exception {
        this.check = check;
        topic = Clients.createTopic(check, "crowd", WRITERS);
        for (String protocol : PROTOCOLS) {
            for (int number = 0; number < MEMBERS; number++) {
                members.add(new Member(protocol, number));
            }
        }
        for (int partition = 0; partition < WRITERS; partition++) {
            writers.add(new Writer(partition));
        }
    }

    /** Starts them all; returns when the members share the partitions and every writer has written. */
    void start() throws Exception {
        // Groups that have settled before there is anything to read get every record exactly once.
        members.forEach(member -> working.add(threads.submit(member)));
        until("the members share the partitions",
                () -> members.stream().allMatch(member -> member.held == WRITERS / MEMBERS));
        writers.forEach(writer -> working.add(threads.submit(writer)));
        until("every writer has written", () -> writers.stream().allMatch(writer -> writer.ends > 0));
    }

    String topic() {
        return topic;
    }

    String group(String protocol) {
        return check.name(protocol + "-group");
    }

    String transactionalIdPattern() {
        return check.name("writer") + "-.*";
    }

    /** How many of them have a connection now. */
    long connected() {
        return members.stream().filter(member -> connections(member.consumer.metrics()) > 0).count()
                + writers.stream().filter(writer -> connections(writer.producer.metrics()) > 0).count();
    }

    private static double connections(Map<MetricName, ? extends Metric> metrics) {
        return metrics.entrySet().stream().filter(entry -> entry.getKey().name().equals("connection-count"))
                .mapToDouble(entry -> (Double) entry.getValue().metricValue()).sum();
    }

    /** Where every partition ends at least. */
    List<Long> ends() {
        return writers.stream().map(writer -> writer.ends).toList();
    }

    /** Where every partition ends at most. */
    List<Long> limits() {
        return writers.stream().map(writer -> writer.limit).toList();
    }

    /** Has the writers end, and waits until both groups have read what they wrote: everything once and in order. */
    void stopWriting() throws Exception {
        writing = false;
        for (Future<?> writer : working.subList(members.size(), working.size())) {
            writer.get();
        }
        Map<Integer, List<String>> want = new TreeMap<>();
        writers.forEach(writer -> want.put(writer.partition, writer.values));
        int total = want.values().stream().mapToInt(List::size).sum();
        for (String protocol : PROTOCOLS) {
            until("the " + protocol + " group has read all", () -> read(protocol).values().stream()
                    .mapToInt(List::size).sum() >= total);
            check.equal("read by the " + protocol + " group", read(protocol), want);
        }
    }

    /** Has the members leave. */
    void stopReading() throws Exception {
        reading = false;
        for (Future<?> client : working) {
            client.get();
        }
    }

    private Map<Integer, List<String>> read(String protocol) {
        Map<Integer, List<String>> values = new TreeMap<>();
        members.stream().filter(member -> member.protocol.equals(protocol)).forEach(member -> member.values.forEach(
                (partition, some) -> values.computeIfAbsent(partition, one -> new ArrayList<>()).addAll(some)));
        return values;
    }

    /** Asks again until the condition holds; a client that has failed meanwhile says why. */
    private void until(String what, Callable<Boolean> holds) throws Exception {
        check.until(what, () -> {
            for (Future<?> client : working) {
                if (client.isDone()) {
                    client.get();
                }
            }
            return holds.call();
        });
    }

    @Override
    public void close() {
        writing = false;
        reading = false;
        threads.shutdown();
        try {
            threads.awaitTermination(30, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The only one that writes to its partition, and so knows the offset of every record beforehand. */
    private final class Writer implements Callable<Void> {
        final int partition;
        final KafkaProducer<String, String> producer;
        /** What readers of committed records must see, in order. */
        final List<String> values = new ArrayList<>();
        volatile long ends;
        volatile long limit;
        private final boolean inTransactions;

        Writer(int partition) {
            this.partition = partition;
            inTransactions = partition < TRANSACTIONAL_WRITERS;
            String name = check.name("writer") + "-" + partition;
            producer = inTransactions
                    ? Clients.producer(check, "client.id", name, "transactional.id", name)
                    : Clients.producer(check, "client.id", name);
        }

        @Override
        public Void call() throws Exception {
            try (producer) {
                if (inTransactions) {
                    producer.initTransactions();
                }
                for (int turn = 0; writing; turn++) {
                    if (inTransactions) {
                        transact(turn);
                    } else {
                        limit++;
                        values.addAll(send(turn, 1));
                        ends = limit;
                    }
                    Thread.sleep(PAUSE_MS);
                }
            }
            return null;
        }

        private void transact(int turn) throws ExecutionException, InterruptedException {
            // The marker comes after the records; a commit does not wait for it.
            limit += TRANSACTION_RECORDS + 1;
            producer.beginTransaction();
            List<String> sent = send(turn * (TRANSACTION_RECORDS + 1), TRANSACTION_RECORDS);
            if (turn % ABORT_EVERY == ABORT_EVERY - 1) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
                values.addAll(sent);
            }
            ends = limit - 1;
        }

        /** Sends records whose values are their offsets, and waits for them; returns the values. */
        private List<String> send(int first, int count) throws ExecutionException, InterruptedException {
            List<String> sent = Clients.numbers(first, first + count, 1);
            List<Future<RecordMetadata>> acknowledged = new ArrayList<>();
            sent.forEach(value -> acknowledged.add(producer.send(new ProducerRecord<>(topic, partition, null, value))));
            for (int index = 0; index < count; index++) {
                check.equal("offset in partition " + partition, acknowledged.get(index).get().offset(), (long) first + index);
            }
            return sent;
        }
    }

    private final class Member implements Callable<Void> {
        final String protocol;
        final KafkaConsumer<String, String> consumer;
        final Map<Integer, List<String>> values = new ConcurrentHashMap<>();
        volatile int held;

        Member(String protocol, int number) {
            this.protocol = protocol;
            List<Object> settings = new ArrayList<>(List.of("group.id", group(protocol), "group.protocol", protocol, "client.id",
                    protocol + "-" + number, "isolation.level", "read_committed", "enable.auto.commit", true,
                    "auto.commit.interval.ms", 2_000, "receive.buffer.bytes", 8_192));
            if (protocol.equals("classic")) {
                // Members of old hear of new ones when they send a heartbeat. The broker says when the others send theirs.
                settings.addAll(List.of("heartbeat.interval.ms", 500));
            }
            consumer = Clients.consumer(check, settings.toArray());
        }

        @Override
        public Void call() {
            try (consumer) {
                consumer.subscribe(List.of(topic));
                while (reading) {
                    consumer.poll(POLL).forEach(record -> values.computeIfAbsent(
                            record.partition(), partition -> new CopyOnWriteArrayList<>()).add(record.value()));
                    held = consumer.assignment().size();
                }
            }
            return null;
        }
    }
}
