import java.net.URI;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;

/** Jobs that are started again: after they were killed, late, and with another parallelism. */
final class Recoveries {
    private static final int SHORT_TIMEOUT_MS = 5_000;
    /** Longer than a checkpoint takes on a busy machine. */
    private static final int LOSING_TIMEOUT_MS = 12_000;

    private Recoveries() {}

    static void addTo(Checks checks) {
        for (TransactionNamingStrategy naming : TransactionNamingStrategy.values()) {
            String suffix = "-" + naming.name().toLowerCase();
            checks.add("late-recovery-loses" + suffix, check -> lateRecoveryLoses(check, naming))
                    .add("late-recovery-two-phase-by-name" + suffix, check -> lateRecoveryTwoPhase(check, naming))
                    .add("job-that-does-not-come-back" + suffix, check -> jobDoesNotComeBack(check, naming))
                    .add("rescaled-after-kills" + suffix, check -> rescaledAfterKills(check, naming))
                    .add("rescaled-by-savepoints" + suffix, check -> rescaledBySavepoints(check, naming))
                    .add("kills-at-random" + suffix, check -> killsAtRandom(check, naming));
        }
        checks.add("downscale-leaves-a-transaction", check -> downscaled(check, false))
                .add("downscale-with-a-bound-leaves-none", check -> downscaled(check, true))
                .add("job-away-for-longer-than-the-bound", Recoveries::awayForLongerThanTheBound);
    }

    /**
     * FLINK-40626: the checkpoint says that an id is pre-committed, which has been taken for the next transaction. The
     * recovery does not abort that one, and with fewer subtasks never uses the id. Only the bound of the pool ends it.
     */
    private static void downscaled(Check check, boolean isBounded) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            needTwoPhaseByName(admin);
            NumbersJob job = Main.job(check, isBounded ? "two-phase-bounded" : "two-phase", TransactionNamingStrategy.POOLING,
                    SHORT_TIMEOUT_MS).withCount(4 * NumbersJob.COUNT).withSource(Clients.createTopic(check, "source", 2));
            try (var producer = Clients.producer(check)) {
                Clients.sendNumbers(producer, job.source(), 2, 0, job.count());
            }
            KilledJob.run(check, job, 2, null, KilledJob.Point.ID_TAKEN_AGAIN, 3);
            Set<String> left = Main.openTransactions(check, IdsTakenAgain.idsOf(job, 1));
            check.equal("transactions that the second subtask has left", left.size(), 2);
            CountDownLatch isSlow = new CountDownLatch(1);
            new StoppingPoints() {
                @Override
                void afterSource() throws InterruptedException {
                    if (isBounded) {
                        isSlow.await(20, TimeUnit.MILLISECONDS);
                    }
                }
            }.watch(job.prefix());
            var running = job.start(1, job.latestCheckpoint());
            if (isBounded) {
                check.until("what was left is ended", () -> Main.openTransactions(check, IdsTakenAgain.idsOf(job, 1)).isEmpty());
                check.isTrue("while the job runs", running.getJobStatus().get() == JobStatus.RUNNING);
                isSlow.countDown();
            }
            // A source that was restored with fewer readers may not end by itself, though it has read all.
            check.until("all is written", () -> new HashSet<>(Clients.readAll(check, job.topic(), Main.PARTITIONS, "read_uncommitted")
                    .values().stream().flatMap(List::stream).toList()).size() == job.count());
            check.until("all is committed", () -> Main.openTransactions(check, job.prefix()).size() <= (isBounded ? 0 : 1));
            running.cancel().get(Check.LIMIT_MS, TimeUnit.MILLISECONDS);
            left.retainAll(Main.openTransactions(check, job.prefix()));
            if (!isBounded) {
                check.equal("transactions of ids that nobody uses", left.size(), 1);
                check.isTrue("readers wait", ends(check, job, "read_committed") < ends(check, job, "read_uncommitted"));
                admin.fenceProducers(left).all().get();
            }
            Main.checkNumbers(check, job);
            check.isTrue("what the killed had begun is aborted", Main.aborted(check, job) > 0);
        }
    }

    /** The sum of the offsets up to which readers of an isolation level get. */
    private static long ends(Check check, NumbersJob job, String isolation) {
        try (var consumer = Clients.consumer(check, "isolation.level", isolation)) {
            return consumer.endOffsets(Clients.partitions(job.topic(), Main.PARTITIONS)).values().stream()
                    .mapToLong(Long::longValue).sum();
        }
    }

    /** While a job is away, nothing of it is aborted, nor when it comes back. */
    private static void awayForLongerThanTheBound(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            needTwoPhaseByName(admin);
        }
        NumbersJob job = Main.job(check, "two-phase-bounded", TransactionNamingStrategy.POOLING, SHORT_TIMEOUT_MS);
        KilledJob.run(check, job, 2, null, KilledJob.Point.CHECKPOINT_COMPLETE, 4);
        Set<String> open = Main.openTransactions(check, job.prefix());
        check.isTrue("transactions are open", !open.isEmpty());
        awaitTimeOut(check);
        check.equal("open transactions", Main.openTransactions(check, job.prefix()), open);
        StoppingPoints stops = new StoppingPoints();
        stops.watch(job.prefix());
        Main.runToItsEnd(job, 2, job.latestCheckpoint());
        check.isTrue("transactions were resumed", !stops.resumed.isEmpty());
        Main.checkNumbers(check, job);
    }

    /**
     * The pause is longer than the time-out: the broker has aborted what the checkpoint says is pre-committed. The connector
     * gives those transactions up, the job ends well, and their records are lost.
     */
    private static void lateRecoveryLoses(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = Main.job(check, "flink", naming, LOSING_TIMEOUT_MS);
        KilledJob.run(check, job, 2, null, KilledJob.Point.CHECKPOINT_COMPLETE, 4);
        check.isTrue("transactions are open", !Main.openTransactions(check, job.prefix()).isEmpty());
        check.until("the broker has aborted them", () -> Main.openTransactions(check, job.prefix()).isEmpty());
        StoppingPoints stops = new StoppingPoints();
        stops.watch(job.prefix());
        Main.runToItsEnd(job, 2, job.latestCheckpoint());
        check.isTrue("transactions were resumed", !stops.resumed.isEmpty());
        check.isTrue("transactions were given up", !stops.givenUp.isEmpty());
        check.fact("given up with", stops.givenUp.stream().map(one -> one.getClass().getSimpleName())
                .collect(Collectors.toCollection(TreeSet::new)));
        List<String> found = Main.committed(check, job);
        Set<String> missing = new HashSet<>(Clients.numbers(0, job.count(), 1));
        found.forEach(missing::remove);
        check.isTrue("numbers are missing", !missing.isEmpty());
        check.equal("numbers that are there, each once", found.size(), job.count() - missing.size());
        Set<String> inTheLog = Clients.readAll(check, job.topic(), Main.PARTITIONS, "read_uncommitted").values().stream()
                .flatMap(List::stream).collect(Collectors.toSet());
        check.isTrue("what is missing had been written, and was aborted", inTheLog.containsAll(missing));
    }

    /** The same job and the same pause, in which the broker is killed, too, with ids that are two-phase by their name. */
    private static void lateRecoveryTwoPhase(Check check, TransactionNamingStrategy naming) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            needTwoPhaseByName(admin);
        }
        NumbersJob job = Main.job(check, "two-phase", naming, SHORT_TIMEOUT_MS);
        KilledJob.run(check, job, 2, null, KilledJob.Point.CHECKPOINT_COMPLETE, 4);
        Set<String> open = Main.openTransactions(check, job.prefix());
        check.isTrue("transactions are open", !open.isEmpty());
        awaitTimeOut(check);
        check.restart("kill");
        awaitTimeOut(check);
        check.equal("open transactions", Main.openTransactions(check, job.prefix()), open);
        StoppingPoints stops = new StoppingPoints();
        stops.watch(job.prefix());
        Main.runToItsEnd(job, 2, job.latestCheckpoint());
        check.isTrue("transactions were resumed", !stops.resumed.isEmpty());
        Main.checkNumbers(check, job);
    }

    /** What a job leaves that nobody starts again holds readers up until somebody ends it. */
    private static void jobDoesNotComeBack(Check check, TransactionNamingStrategy naming) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            needTwoPhaseByName(admin);
        }
        NumbersJob job = Main.job(check, "two-phase", naming, SHORT_TIMEOUT_MS);
        KilledJob.run(check, job, 2, null, KilledJob.Point.CHECKPOINT_COMPLETE, 4);
        Set<String> open = Main.openTransactions(check, job.prefix());
        check.isTrue("transactions are open", !open.isEmpty());
        try (Admin admin = Clients.admin(check)) {
            admin.fenceProducers(open).all().get();
        }
        check.equal("open transactions", Main.openTransactions(check, job.prefix()), Set.of());
        List<String> found = Main.committed(check, job);
        check.isTrue("what was committed is there", !found.isEmpty());
        check.equal("each once", new HashSet<>(found).size(), found.size());
        check.isTrue("the rest is aborted", Main.aborted(check, job) > 0);
    }

    static void needTwoPhaseByName(Admin admin) throws Exception {
        String node = admin.describeCluster().nodes().get().iterator().next().idString();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        // Apache Kafka lists what its file has and it does not know, without a value.
        var ids = admin.describeConfigs(List.of(broker)).all().get().get(broker).get("fencepost.two.phase.transactional.ids");
        if (ids == null || ids.value() == null) {
            throw new Check.SkippedException("this broker does not know two-phase by name");
        }
    }

    /** Returns when a transaction that is begun now, with the short time-out, was aborted by the broker. */
    private static void awaitTimeOut(Check check) throws Exception {
        String id = check.name("witness");
        try (var producer = Clients.producer(check, "transactional.id", id, "transaction.timeout.ms", SHORT_TIMEOUT_MS)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(Clients.createTopic(check, "witness-" + System.nanoTime(), 1), "here")).get();
            check.equal("open transactions", Main.openTransactions(check, id), Set.of(id));
            check.until("it is aborted", () -> Main.openTransactions(check, id).isEmpty());
        }
    }

    /** 2, 3, 1: a process is killed before it commits, the next one before its checkpoint is complete; the others take over. */
    private static void rescaledAfterKills(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = Main.job(check, "flink", naming, Main.LONG_TIMEOUT_MS);
        KilledJob.run(check, job, 2, null, KilledJob.Point.CHECKPOINT_COMPLETE, 4);
        KilledJob.run(check, job, 3, job.latestCheckpoint(), KilledJob.Point.PRE_COMMITTED, 6);
        check.isTrue("transactions are open", !Main.openTransactions(check, job.prefix()).isEmpty());
        new StoppingPoints().watch(job.prefix());
        Main.runToItsEnd(job, 1, job.latestCheckpoint());
        Main.checkNumbers(check, job);
        check.isTrue("what the killed had begun is aborted", Main.aborted(check, job) > 0);
    }

    /** 2, 3, 1: each stops with a savepoint, from which the next one goes on. */
    private static void rescaledBySavepoints(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = Main.job(check, "flink", naming, Main.LONG_TIMEOUT_MS).withCount(4 * NumbersJob.COUNT);
        Path savepoint = null;
        for (int parallelism = 2; parallelism <= 3; parallelism++) {
            CountDownLatch progress = new CountDownLatch(200);
            new StoppingPoints() {
                @Override
                void beforeRecord(long number) {
                    progress.countDown();
                }
            }.watch(job.prefix());
            var running = job.start(parallelism, savepoint);
            check.isTrue("it makes progress", progress.await(Check.LIMIT_MS / 2, TimeUnit.MILLISECONDS));
            savepoint = Path.of(URI.create(running.stopWithSavepoint(false,
                    job.checkpoints().toUri().toString(), SavepointFormatType.CANONICAL).get()));
            List<String> found = Main.committed(check, job);
            check.isTrue("some are committed", !found.isEmpty() && found.size() < job.count());
        }
        new StoppingPoints().watch(job.prefix());
        Main.runToItsEnd(job, 1, savepoint);
        Main.checkNumbers(check, job);
    }

    /** Processes of the job die at any moment, and so does the broker, while the job runs and while it does not. */
    private static void killsAtRandom(Check check, TransactionNamingStrategy naming) throws Exception {
        NumbersJob job = Main.job(check, "flink", naming, Main.LONG_TIMEOUT_MS).withCount(4 * NumbersJob.COUNT);
        long seed = System.nanoTime();
        Random random = new Random(seed);
        List<String> events = new ArrayList<>(List.of("seed " + seed));
        for (int round = 0; round < 4; round++) {
            int parallelism = 1 + random.nextInt(3);
            Path from = job.latestCheckpoint();
            events.add(parallelism + " from " + from);
            Process process = KilledJob.start(job, parallelism, from, KilledJob.Point.CHECKPOINT_COMPLETE, Integer.MAX_VALUE);
            try {
                if (process.waitFor(2_500 + random.nextInt(3_000), TimeUnit.MILLISECONDS)) {
                    check.equal("how it ended: " + events, process.exitValue(), 0);
                    break;
                }
                if (random.nextBoolean()) {
                    events.add("broker killed beside it");
                    check.restart("kill");
                    process.waitFor(random.nextInt(1_500), TimeUnit.MILLISECONDS);
                }
            } finally {
                process.destroyForcibly().waitFor();
            }
            if (random.nextInt(3) == 0) {
                events.add("broker killed after it");
                check.restart("kill");
            }
        }
        new StoppingPoints().watch(job.prefix());
        Main.runToItsEnd(job, 2, job.latestCheckpoint());
        check.equal("numbers: " + events, Main.committed(check, job), Clients.numbers(0, job.count(), 1));
        check.equal("open transactions", Main.openTransactions(check, job.prefix()), Set.of());
    }
}
