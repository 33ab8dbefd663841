import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;

/** The sink at a secured broker, by TLS and with a password: which rights its user needs, and no more. */
final class Rights {
    private static final Secured.Login ALICE = Secured.Login.of("SASL_SSL", "SCRAM-SHA-512");
    private static final Secured.Login ADMIN = ALICE.as("admin", "admin-secret");

    private Rights() {}

    static void addTo(Checks checks) {
        checks.add("sink-incrementing", Rights::incrementing)
                .add("sink-pooling", Rights::pooling)
                .add("sink-two-phase-by-name", Rights::twoPhase);
    }

    private static NumbersJob job(Check check, String prefix, TransactionNamingStrategy naming) throws Exception {
        String topic = check.name("numbers");
        check.ask("topic " + topic);
        Map<String, String> login = ALICE.settings().entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, one -> String.valueOf(one.getValue())));
        return new NumbersJob(check.bootstrap, topic, check.name(prefix), naming,
                Files.createTempDirectory("fencepost-flink-"), Main.LONG_TIMEOUT_MS, NumbersJob.COUNT, null, login);
    }

    private static void allow(Check check, String operation, String kind, String resource) throws Exception {
        check.ask("allow User:alice " + operation + " " + kind + " " + resource);
    }

    private static void incrementing(Check check) throws Exception {
        NumbersJob job = job(check, "flink", TransactionNamingStrategy.INCREMENTING);
        allow(check, "WRITE", "topic", job.topic());
        isRefused(check, job, TransactionalIdAuthorizationException.class);
        allow(check, "WRITE", "transactional-id", "*");
        recovers(check, job);
        check.ask("forbid User:alice WRITE transactional-id *");
    }

    /** It asks for the producers of its topics, too. */
    private static void pooling(Check check) throws Exception {
        NumbersJob job = job(check, "flink", TransactionNamingStrategy.POOLING);
        allow(check, "WRITE", "topic", job.topic());
        allow(check, "WRITE", "transactional-id", "*");
        isRefused(check, job, TopicAuthorizationException.class);
        allow(check, "READ", "topic", job.topic());
        recovers(check, job);
        check.ask("forbid User:alice WRITE transactional-id *");
    }

    private static void twoPhase(Check check) throws Exception {
        try (Admin admin = ADMIN.admin()) {
            Recoveries.needTwoPhaseByName(admin);
        }
        NumbersJob job = job(check, "two-phase", TransactionNamingStrategy.INCREMENTING);
        allow(check, "WRITE", "topic", job.topic());
        allow(check, "WRITE", "transactional-id", "*");
        isRefused(check, job, TransactionalIdAuthorizationException.class);
        // The harness's library has no word for TwoPhaseCommit alone, which is a part of all.
        allow(check, "ALL", "transactional-id", "*");
        recovers(check, job);
    }

    private static void isRefused(Check check, NumbersJob job, Class<? extends AuthorizationException> kind)
            throws Exception {
        new StoppingPoints().watch(job.prefix());
        try {
            Main.runToItsEnd(job, 1, null);
        } catch (ExecutionException failed) {
            List<String> causes = new ArrayList<>();
            for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
                causes.add(cause.toString());
            }
            check.isTrue("the job fails for want of a right: " + causes,
                    causes.stream().anyMatch(cause -> cause.contains(kind.getName())));
            return;
        }
        throw check.failed("the job was not refused");
    }

    /** It commits, and aborts what a failure has left. */
    private static void recovers(Check check, NumbersJob job) throws Exception {
        AtomicBoolean isFailed = new AtomicBoolean();
        new StoppingPoints() {
            @Override
            void afterPreCommit(int times, Collection<KafkaCommittable> committables) {
                if (times == 4 && !isFailed.getAndSet(true)) {
                    throw new PlannedException("after the pre-commit");
                }
            }
        }.watch(job.prefix());
        Main.runToItsEnd(job, 1, null);
        List<String> numbers = read(check, job.topic(), "read_committed").stream()
                .map(Integer::valueOf).sorted().map(String::valueOf).toList();
        check.equal("numbers", numbers, Clients.numbers(0, NumbersJob.COUNT, 1));
        check.isTrue("some were aborted", read(check, job.topic(), "read_uncommitted").size() > NumbersJob.COUNT);
    }

    /** All values of the topic, as the administrator reads them. */
    private static List<String> read(Check check, String topic, String isolation) throws Exception {
        try (var consumer = ADMIN.consumer("isolation.level", isolation);
                var ends = ADMIN.consumer("isolation.level", "read_uncommitted")) {
            var partitions = Clients.partitions(topic, 1);
            long end = ends.endOffsets(partitions).get(partitions.get(0));
            consumer.assign(partitions);
            List<String> values = new ArrayList<>();
            check.until("all is read", () -> {
                consumer.poll(Clients.POLL).forEach(record -> values.add(record.value()));
                return consumer.position(partitions.get(0)) >= end;
            });
            return values;
        }
    }
}
