import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;

/** Flink's exactly-once Kafka sink, and jobs that fail, and brokers that are killed, at each point of its two phases. */
final class Main {
    static final int PARTITIONS = 3;
    static final int LONG_TIMEOUT_MS = 600_000;

    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        if (Checks.isSecured()) {
            Rights.addTo(checks);
            checks.main(arguments);
        }
        for (TransactionNamingStrategy naming : TransactionNamingStrategy.values()) {
            String suffix = "-" + naming.name().toLowerCase();
            checks.add("job-fails-half-way" + suffix, check -> failsHalfWay(check, naming))
                    .add("job-fails-after-pre-commit" + suffix, check -> failsAfterPreCommit(check, naming))
                    .add("job-fails-in-checkpoint" + suffix, check -> failsInCheckpoint(check, naming))
                    .add("broker-killed-after-pre-commit" + suffix, check -> brokerKilled(check, naming))
                    .add("copies-a-topic" + suffix, check -> copiesTopic(check, naming));
        }
        Recoveries.addTo(checks);
        InternalProducers.addTo(checks);
        checks.main(arguments);
    }

    /** A job with a topic of its own; prefix: the beginning of its transactional ids, before the check's name. */
    static NumbersJob job(Check check, String prefix, TransactionNamingStrategy naming, int timeoutMs) throws Exception {
        // The harness removes what is made here, in its own folder for temporary files.
        Path checkpoints = Files.createTempDirectory("fencepost-flink-");
        return new NumbersJob(check.bootstrap, Clients.createTopic(check, "numbers", PARTITIONS), check.name(prefix), naming,
                checkpoints, timeoutMs, NumbersJob.COUNT, null, Map.of());
    }

    static void runToItsEnd(NumbersJob job, int parallelism, Path from) throws Exception {
        job.start(parallelism, from).getJobExecutionResult().get(Check.LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    /** Committed readers find each number once, and no transaction is left open. */
    static void checkNumbers(Check check, NumbersJob job) throws Exception {
        check.equal("numbers", committed(check, job), Clients.numbers(0, job.count(), 1));
        check.equal("open transactions", openTransactions(check, job.prefix()), Set.of());
    }

    /** What committed readers find, in the order of numbers. */
    static List<String> committed(Check check, NumbersJob job) throws Exception {
        return numbers(Clients.readAll(check, job.topic(), PARTITIONS, "read_committed"));
    }

    /** How many records of aborted transactions the topic has, once no transaction is open. */
    static int aborted(Check check, NumbersJob job) throws Exception {
        int all = numbers(Clients.readAll(check, job.topic(), PARTITIONS, "read_uncommitted")).size();
        return all - committed(check, job).size();
    }

    private static List<String> numbers(Map<Integer, List<String>> values) {
        return values.values().stream().flatMap(List::stream).map(Integer::valueOf).sorted().map(String::valueOf).toList();
    }

    /** The transactional ids with this prefix whose transaction is open. */
    static Set<String> openTransactions(Check check, String prefix) {
        try (Admin admin = Clients.admin(check)) {
            return admin.listTransactions().all().toCompletionStage().toCompletableFuture().join().stream()
                    .filter(one -> one.transactionalId().startsWith(prefix) && one.state() == TransactionState.ONGOING)
                    .map(TransactionListing::transactionalId).collect(Collectors.toSet());
        }
    }

    static void failsHalfWay(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = job(check, "flink", naming, LONG_TIMEOUT_MS);
        AtomicInteger failures = new AtomicInteger();
        new StoppingPoints() {
            @Override
            void beforeRecord(long number) {
                if (number == job.count() / 2 && failures.getAndIncrement() == 0) {
                    throw new PlannedException("half way");
                }
            }
        }.watch(job.prefix());
        runToItsEnd(job, 2, null);
        check.isTrue("it came again to where it had failed", failures.get() >= 2);
        checkNumbers(check, job);
    }

    /**
     * The checkpoint is complete, and nobody has committed: what was pre-committed has to be resumed by another producer.
     *
     * <p>With POOLING the other writer may have committed already and have taken the id for its next transaction. Then its
     * commit is repeated by the recovery and refused, which the connector knows and only logs.
     */
    static void failsAfterPreCommit(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = job(check, "flink", naming, LONG_TIMEOUT_MS);
        AtomicBoolean isFailed = new AtomicBoolean();
        StoppingPoints stops = new StoppingPoints() {
            @Override
            void beforeCommit(int times, Collection<KafkaCommittable> committables) {
                if (times > 4 && !isFailed.getAndSet(true)) {
                    throw new PlannedException("before the commit of " + committables);
                }
            }
        };
        stops.watch(job.prefix());
        runToItsEnd(job, 2, null);
        check.isTrue("it failed as planned", isFailed.get());
        check.isTrue("transactions were resumed", !stops.resumed.isEmpty());
        checkNumbers(check, job);
    }

    /** A writer has flushed a transaction when its checkpoint fails: the recovery has to abort what nobody will commit. */
    static void failsInCheckpoint(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = job(check, "flink", naming, LONG_TIMEOUT_MS);
        AtomicInteger written = new AtomicInteger();
        AtomicInteger unfinished = new AtomicInteger();
        AtomicBoolean isOpen = new AtomicBoolean();
        new StoppingPoints() {
            @Override
            void beforeRecord(long number) {
                written.incrementAndGet();
            }

            @Override
            void afterPreCommit(int times, Collection<KafkaCommittable> committables) {
                int records = written.getAndSet(0);
                if (times == 4) {
                    String id = committables.iterator().next().getTransactionalId();
                    isOpen.set(openTransactions(check, job.prefix()).contains(id));
                    unfinished.set(records);
                    throw new PlannedException("after the pre-commit of " + id);
                }
            }
        }.watch(job.prefix());
        runToItsEnd(job, 1, null);
        check.isTrue("the transaction was left open", isOpen.get());
        check.isTrue("it had records", unfinished.get() > 0);
        checkNumbers(check, job);
        check.equal("aborted records", aborted(check, job), unfinished.get());
    }

    /**
     * The broker is killed, with everything flushed and a checkpoint complete, before the commit: first the same producer
     * commits, then a second kill has the job fail as well, so that another producer resumes.
     */
    static void brokerKilled(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = job(check, "flink", naming, LONG_TIMEOUT_MS);
        Semaphore arrivals = new Semaphore(0);
        Semaphore departures = new Semaphore(0);
        AtomicInteger kills = new AtomicInteger();
        StoppingPoints stops = new StoppingPoints() {
            @Override
            void beforeCommit(int times, Collection<KafkaCommittable> committables) throws InterruptedException {
                if (times == 3 || times > 6 && kills.compareAndSet(1, 2)) {
                    kills.compareAndSet(0, 1);
                    arrivals.release();
                    departures.acquire();
                    if (times != 3) {
                        throw new PlannedException("after the broker's restart");
                    }
                }
            }
        };
        stops.watch(job.prefix());
        var running = job.start(2, null);
        for (int kill = 0; kill < 2; kill++) {
            check.isTrue("the job comes to a commit", arrivals.tryAcquire(Check.LIMIT_MS / 2, TimeUnit.MILLISECONDS));
            check.restart("kill");
            departures.release();
        }
        running.getJobExecutionResult().get(Check.LIMIT_MS, TimeUnit.MILLISECONDS);
        check.isTrue("transactions were resumed", !stops.resumed.isEmpty());
        checkNumbers(check, job);
    }

    /** Both ends are topics, with aborted records in the first one; the broker is killed, and then the job fails. */
    static void copiesTopic(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = job(check, "flink", naming, LONG_TIMEOUT_MS).withCount(4 * NumbersJob.COUNT)
                .withSource(Clients.createTopic(check, "source", PARTITIONS));
        try (var producer = Clients.producer(check, "transactional.id", check.name("source"))) {
            producer.initTransactions();
            for (int first = 0; first < job.count(); first += 100) {
                producer.beginTransaction();
                Clients.sendNumbers(producer, job.source(), PARTITIONS, first, first + 100);
                producer.commitTransaction();
                producer.beginTransaction();
                Clients.sendNumbers(producer, job.source(), PARTITIONS, first, first + 10);
                producer.abortTransaction();
            }
        }
        Semaphore arrivals = new Semaphore(0);
        Semaphore departures = new Semaphore(0);
        AtomicInteger events = new AtomicInteger();
        new StoppingPoints() {
            @Override
            void afterSource() throws InterruptedException {
                Thread.sleep(2); // some checkpoints before all is copied
            }

            @Override
            void beforeCommit(int times, Collection<KafkaCommittable> committables) throws InterruptedException {
                if (times == 2) {
                    events.incrementAndGet();
                    arrivals.release();
                    departures.acquire();
                } else if (times > 4 && events.compareAndSet(1, 2)) {
                    throw new PlannedException("before the commit of " + committables);
                }
            }
        }.watch(job.prefix());
        var running = job.start(2, null);
        check.isTrue("the job comes to a commit", arrivals.tryAcquire(Check.LIMIT_MS / 2, TimeUnit.MILLISECONDS));
        check.restart("kill");
        departures.release();
        running.getJobExecutionResult().get(Check.LIMIT_MS, TimeUnit.MILLISECONDS);
        check.equal("what was planned", events.get(), 2);
        checkNumbers(check, job);
        try (Admin admin = Clients.admin(check)) {
            var offsets = admin.listConsumerGroupOffsets(job.prefix()).partitionsToOffsetAndMetadata().get();
            // A reader that comes to the end of its partitions may end without a last commit of their offsets.
            check.isTrue("offsets are committed", !offsets.isEmpty());
        }
    }
}
