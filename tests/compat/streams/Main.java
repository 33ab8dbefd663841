import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A Kafka Streams application that counts exactly once, and everything around it that can be killed. */
final class Main {
    private static final int PARTITIONS = 3;
    private static final int WORDS = 20;

    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        addTo(checks, "", "classic");
        addTo(checks, "-streams-protocol", "streams");
        StreamsGroups.addTo(checks);
        ManyThreads.addTo(checks);
        checks.main(arguments);
    }

    private static void addTo(Checks checks, String suffix, String protocol) {
        checks.add("counts" + suffix, check -> counts(check, protocol))
                .add("counts-through-kills-of-the-application" + suffix, check -> applicationKilled(check, protocol))
                .add("counts-after-state-was-lost" + suffix, check -> stateLost(check, protocol))
                .add("counts-with-two-instances" + suffix, check -> twoInstances(check, protocol))
                .add("counts-through-kill-of-the-broker" + suffix, check -> brokerEnds(check, protocol, "kill"))
                .add("counts-through-termination-of-the-broker" + suffix, check -> brokerEnds(check, protocol, "terminate"))
                .add("counts-through-kills-before-commits" + suffix, check -> killedBeforeCommit(check, protocol));
    }

    /** The topics and the state of one application, the processes that run it, and what was given to it. */
    static final class Application implements AutoCloseable {
        private final Check check;
        private final int partitions;
        private final int words;
        private String protocol;
        private final String source;
        private final String target;
        private final Path state = Files.createTempDirectory("fencepost-streams-");
        private final List<Process> processes = new ArrayList<>();
        private final KafkaProducer<String, String> producer;
        private int sent;
        private int transactionTimeoutMs = 3_000;

        /** protocol: that of its group, "classic" or "streams". */
        Application(Check check, String protocol) throws Exception {
            this(check, protocol, PARTITIONS, WORDS);
        }

        /** partitions, words: how many partitions its topics have, and how many different values are counted. */
        Application(Check check, String protocol, int partitions, int words) throws Exception {
            this.check = check;
            this.protocol = protocol;
            this.partitions = partitions;
            this.words = words;
            source = Clients.createTopic(check, "source", partitions);
            target = Clients.createTopic(check, "target", partitions);
            producer = Clients.producer(check, "linger.ms", 5, "reconnect.backoff.max.ms", 200);
        }

        /** Starts another process of it, with its own state. */
        Process start(String instance) throws IOException {
            Process process = new ProcessBuilder("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                    System.getProperty("java.class.path"), "CountingApplication", check.bootstrap, check.name("application"),
                    source, target, state.resolve(instance).toString(), protocol, stops().toString(),
                    String.valueOf(transactionTimeoutMs))
                    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                    .redirectError(ProcessBuilder.Redirect.DISCARD)
                    .start();
            processes.add(process);
            return process;
        }

        /** Of processes that are started from now on. */
        void setProtocol(String protocol) {
            this.protocol = protocol;
        }

        /** Of processes that are started from now on: longer than a broker's restart takes. */
        void setLongTransactions() {
            transactionTimeoutMs = 60_000;
        }

        String source() {
            return source;
        }

        String target() {
            return target;
        }

        Path state() {
            return state;
        }

        /** The folder of the StoppingProducers of its processes. */
        Path stops() throws IOException {
            return Files.createDirectories(state.resolve("stops"));
        }

        void send(int count) {
            for (int end = sent + count; sent < end; sent++) {
                producer.send(new ProducerRecord<>(source, sent % partitions, null, "word-" + sent % words));
            }
            producer.flush();
        }

        /** Waits until the newest counts are there, or `share` of them. */
        void awaitCounts(double share) throws Exception {
            try (var consumer = Clients.consumer(check, "isolation.level", "read_committed")) {
                consumer.assign(Clients.partitions(target, partitions));
                int[] seen = {0};
                check.until((int) (sent * share) + " of " + sent + " counts are there", () -> {
                    seen[0] += consumer.poll(Clients.POLL).count();
                    return seen[0] >= sent * share;
                });
            }
        }

        /** Every word's counts are 1, 2, 3 … in this order, each exactly once. */
        void checkCounts() throws Exception {
            awaitCounts(1);
            Map<String, List<Long>> counts = new TreeMap<>();
            try (var consumer = Clients.consumer(check, "isolation.level", "read_committed")) {
                consumer.assign(Clients.partitions(target, partitions));
                Clients.read(check, consumer, sent).forEach(record -> counts.computeIfAbsent(
                        record.key(), word -> new ArrayList<>()).add(Long.parseLong(record.value())));
            }
            check.equal("words", counts.size(), words);
            for (int word = 0; word < words; word++) {
                check.equal("counts of word " + word, counts.get("word-" + word),
                        LongStream.rangeClosed(1, sent / words).boxed().toList());
            }
        }

        @Override
        public void close() throws IOException {
            processes.forEach(Process::destroyForcibly);
            producer.close();
            deleteState();
        }

        void deleteState() throws IOException {
            try (Stream<Path> paths = Files.walk(state)) {
                paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    static void counts(Check check, String protocol) throws Exception {
        try (var application = new Application(check, protocol)) {
            application.send(2_000);
            Process process = application.start("one");
            application.checkCounts();
            // SIGTERM: it closes, and leaves its group.
            process.destroy();
            check.isTrue("it ends", process.waitFor(20, TimeUnit.SECONDS));
            try (Admin admin = Clients.admin(check)) {
                String store = check.name("application") + "-counts-";
                var names = admin.listTopics().names().get();
                check.isTrue("its topics: " + names,
                        names.contains(store + "changelog") && names.contains(store + "repartition"));
                var committed = admin.listConsumerGroupOffsets(check.name("application")).partitionsToOffsetAndMetadata().get();
                long total = committed.entrySet().stream().filter(entry -> entry.getKey().topic().startsWith("source"))
                        .mapToLong(entry -> entry.getValue().offset()).sum();
                check.equal("committed", total, 2_000L);
            }
        }
    }

    static void applicationKilled(Check check, String protocol) throws Exception {
        try (var application = new Application(check, protocol)) {
            Process process = application.start("one");
            for (int round = 0; round < 3; round++) {
                application.send(800);
                application.awaitCounts(0.5);
                process.destroyForcibly().waitFor();
                application.send(200);
                process = application.start("one");
            }
            application.checkCounts();
        }
    }

    /** The state is read back from the changelog. */
    static void stateLost(Check check, String protocol) throws Exception {
        try (var application = new Application(check, protocol)) {
            application.send(1_000);
            Process process = application.start("one");
            application.awaitCounts(1);
            process.destroyForcibly().waitFor();
            application.deleteState();
            application.send(1_000);
            application.start("one");
            application.checkCounts();
        }
    }

    /** Two processes share the work; what one of them had when it was killed goes to the other. */
    static void twoInstances(Check check, String protocol) throws Exception {
        try (var application = new Application(check, protocol)) {
            application.start("one");
            Process second = application.start("two");
            application.send(1_000);
            application.awaitCounts(1);
            application.send(1_000);
            second.destroyForcibly().waitFor();
            application.send(1_000);
            application.checkCounts();
        }
    }

    static void brokerEnds(Check check, String protocol, String how) throws Exception {
        try (var application = new Application(check, protocol)) {
            application.start("one");
            for (int round = 0; round < 2; round++) {
                application.send(1_000);
                application.awaitCounts(0.3);
                check.restart(how);
                application.send(1_000);
            }
            application.checkCounts();
        }
    }

    /**
     * With all records and offsets of a transaction sent and its commit still to come, the broker is killed: the producer
     * commits when it is back. Then the application is killed there, too, and another one aborts, and counts again.
     */
    static void killedBeforeCommit(Check check, String protocol) throws Exception {
        try (var application = new Application(check, protocol)) {
            Path stops = application.stops();
            application.setLongTransactions();
            Process process = application.start("one");
            application.send(1_000);
            application.awaitCounts(1);

            StoppingProducers.stopNext(stops);
            application.send(1_000);
            check.until("a commit is stopped", () -> StoppingProducers.isStopped(stops));
            check.restart("kill");
            StoppingProducers.goOn(stops);
            check.until("it is committed", () -> StoppingProducers.isCommitted(stops));
            application.awaitCounts(1);

            StoppingProducers.stopNext(stops);
            application.send(1_000);
            check.until("a commit is stopped", () -> StoppingProducers.isStopped(stops));
            check.restart("kill");
            process.destroyForcibly().waitFor();
            application.start("one");
            application.checkCounts();
        }
    }
}
