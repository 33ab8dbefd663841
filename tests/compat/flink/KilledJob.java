import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;

/**
 * A job in a process of its own, which dies as by kill -9, with transactions that are pre-committed: nothing is closed,
 * nothing aborted.
 */
final class KilledJob {
    private static final int CODE = 137;

    private KilledJob() {}

    /** Where it dies: before its checkpoint is complete, or after it and before the commit, or when `IdsTakenAgain` says. */
    enum Point {
        PRE_COMMITTED,
        CHECKPOINT_COMPLETE,
        ID_TAKEN_AGAIN
    }

    /** Runs it until it is dead. from: a checkpoint, or null; times: how often it passes the point before it dies there. */
    static void run(Check check, NumbersJob job, int parallelism, Path from, Point point, int times) throws Exception {
        Process process = start(job, parallelism, from, point, times);
        try {
            check.isTrue("the job comes to where it dies", process.waitFor(Check.LIMIT_MS / 2, TimeUnit.MILLISECONDS));
            check.equal("how it ended", process.exitValue(), CODE);
        } finally {
            process.destroyForcibly();
        }
    }

    /** Starts it; a job that has come to its end exits with 0. */
    static Process start(NumbersJob job, int parallelism, Path from, Point point, int times) throws IOException {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                System.getProperty("java.class.path"), "KilledJob", job.bootstrap(), job.topic(), job.prefix(),
                job.naming().name(), job.checkpoints().toString(), String.valueOf(job.transactionTimeoutMs()),
                String.valueOf(job.count()), String.valueOf(parallelism), point.name(), String.valueOf(times),
                job.source() == null ? "" : job.source()));
        if (from != null) {
            command.add(from.toString());
        }
        return new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
    }

    public static void main(String[] arguments) throws Exception {
        NumbersJob job = new NumbersJob(arguments[0], arguments[1], arguments[2],
                TransactionNamingStrategy.valueOf(arguments[3]), Path.of(arguments[4]), Integer.parseInt(arguments[5]),
                Integer.parseInt(arguments[6]), arguments[10].isEmpty() ? null : arguments[10], Map.of());
        Point dies = Point.valueOf(arguments[8]);
        int passes = Integer.parseInt(arguments[9]);
        StoppingPoints stops = dies == Point.ID_TAKEN_AGAIN ? new IdsTakenAgain(job, passes) : new StoppingPoints() {
            @Override
            void afterPreCommit(int times, Collection<KafkaCommittable> committables) {
                pass(Point.PRE_COMMITTED, times);
            }

            @Override
            void beforeCommit(int times, Collection<KafkaCommittable> committables) {
                pass(Point.CHECKPOINT_COMPLETE, times);
            }

            private void pass(Point point, int times) {
                if (point == dies && times > passes) {
                    die();
                }
            }
        };
        stops.watch(job.prefix());
        Path from = arguments.length > 11 ? Path.of(arguments[11]) : null;
        job.start(Integer.parseInt(arguments[7]), from).getJobExecutionResult().get();
        System.exit(0);
    }

    static void die() {
        Runtime.getRuntime().halt(CODE);
    }
}
