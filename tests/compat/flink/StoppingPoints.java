import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;

/**
 * Where a job can be stopped, and what was seen there. A job finds the object of its own by the prefix of its transactional
 * ids: Flink copies what a job is made of, but not static fields, and all of its tasks run in this process.
 */
class StoppingPoints {
    private static final Map<String, StoppingPoints> OF_PREFIX = new ConcurrentHashMap<>();

    private final AtomicInteger prepared = new AtomicInteger();
    private final AtomicInteger committed = new AtomicInteger();
    /** Transactions that a committer ended which does not have the producer that wrote them. */
    final Set<String> resumed = ConcurrentHashMap.newKeySet();
    /** Why records were given up: of a commit that fails in these ways the connector does not ask Flink to start again. */
    final List<Throwable> givenUp = new CopyOnWriteArrayList<>();

    static StoppingPoints of(String prefix) {
        return OF_PREFIX.get(prefix);
    }

    /** From now on the jobs with this prefix come here. */
    void watch(String prefix) {
        OF_PREFIX.put(prefix, this);
    }

    final void prepared(Collection<KafkaCommittable> committables) throws InterruptedException {
        if (!committables.isEmpty()) {
            afterPreCommit(prepared.incrementAndGet(), committables);
        }
    }

    final void committing(Collection<KafkaCommittable> committables) throws InterruptedException {
        committables.stream().filter(one -> one.getProducer().isEmpty()).forEach(one -> resumed.add(one.getTransactionalId()));
        if (!committables.isEmpty()) {
            beforeCommit(committed.incrementAndGet(), committables);
        }
    }

    /** After a record has come from a topic, before it is in a buffer. */
    void afterSource() throws InterruptedException {}

    /** Before a record is given to the sink. */
    void beforeRecord(long number) {}

    /** After a writer has flushed a transaction, before Flink's checkpoint has it. times: how often it came here, from 1. */
    void afterPreCommit(int times, Collection<KafkaCommittable> committables) throws InterruptedException {}

    /** After the checkpoint is complete, before the transactions are committed. times: how often it came here, from 1. */
    void beforeCommit(int times, Collection<KafkaCommittable> committables) throws InterruptedException {}

    /** What a job fails with that is to fail. */
    static final class PlannedException extends RuntimeException {
        PlannedException(String where) {
            super("planned: " + where);
        }
    }
}
