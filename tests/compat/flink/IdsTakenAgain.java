import java.util.Collection;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;

/**
 * A job with POOLING and two subtasks dies in a checkpoint, when the second subtask has begun its next transaction in the id
 * that the checkpoint before has committed. The first subtask keeps the checkpoint from completion.
 */
final class IdsTakenAgain extends StoppingPoints {
    private final NumbersJob job;
    private final int passes;
    private final Set<String> committed = ConcurrentHashMap.newKeySet();
    private final Semaphore checkpoints = new Semaphore(0);
    private int preCommits;
    private String last;
    private volatile boolean isTakenAgain;

    /** passes: how many transactions the second subtask pre-commits first. */
    IdsTakenAgain(NumbersJob job, int passes) {
        this.job = job;
        this.passes = passes;
    }

    /** The beginning of the transactional ids of a subtask. */
    static String idsOf(NumbersJob job, int subtask) {
        return job.prefix() + "-" + subtask + "-";
    }

    @Override
    void afterSource() throws InterruptedException {
        Thread.sleep(5); // it dies before all is copied
    }

    @Override
    void afterPreCommit(int times, Collection<KafkaCommittable> committables) throws InterruptedException {
        String id = committables.iterator().next().getTransactionalId();
        if (id.startsWith(idsOf(job, 0))) {
            checkpoints.acquire();
            return;
        }
        // A commit may come too late for its id to be taken at the next checkpoint: then it is another one.
        isTakenAgain = ++preCommits > passes && committed.contains(last);
        committed.remove(id);
        last = id;
        if (!isTakenAgain) {
            checkpoints.release();
        }
    }

    @Override
    void beforeCommit(int times, Collection<KafkaCommittable> committables) {
        committables.forEach(one -> committed.add(one.getTransactionalId()));
    }

    /** The second subtask writes on: its pre-committed transaction is open, and so is the one that it writes. */
    @Override
    void beforeRecord(long number) {
        if (isTakenAgain && Main.openTransactions(new Check("", job.bootstrap(), ""), idsOf(job, 1)).size() > 1) {
            KilledJob.die();
        }
    }
}
