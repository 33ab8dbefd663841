import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.connector.kafka.sink.internal.FlinkKafkaInternalProducer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What the connector's own producer asks of a broker beyond what a KafkaProducer does, question by question. */
final class InternalProducers {
    /** Of KafkaSinkBuilder. */
    private static final int DEFAULT_TIMEOUT_MS = 3_600_000;

    private InternalProducers() {}

    static void addTo(Checks checks) {
        checks.add("producer-commits", InternalProducers::commits)
                .add("producer-resumes", InternalProducers::resumes)
                .add("producer-probes", InternalProducers::probes)
                .add("producer-is-fenced", InternalProducers::isFenced)
                .add("producer-with-the-default-time-out", InternalProducers::defaultTimeOut);
    }

    private static FlinkKafkaInternalProducer<byte[], byte[]> producer(Check check, String id, Object... more) {
        Properties properties = new Properties();
        properties.putAll(Clients.settings(check, more));
        properties.putAll(Map.of("key.serializer", ByteArraySerializer.class.getName(), "value.serializer",
                ByteArraySerializer.class.getName(), "max.block.ms", "30000"));
        return new FlinkKafkaInternalProducer<>(properties, id);
    }

    /** A producer with one record flushed and pre-committed. */
    private static FlinkKafkaInternalProducer<byte[], byte[]> preCommitted(Check check, String id, String topic)
            throws Exception {
        var producer = producer(check, id);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, "one".getBytes(StandardCharsets.UTF_8)), null).get();
        producer.flush();
        producer.precommitTransaction();
        return producer;
    }

    /**
     * Another producer commits by producer id and epoch, and so may any number of them; the other outcome is refused.
     *
     * A resumed producer takes a new epoch after its commit if it learned before the commit, from the broker's answer to
     * ApiVersions, that transactions have version 2. Its thread decides that: it has mostly not asked by then. Those that
     * resume after it are fenced.
     */
    private static void resumes(Check check) throws Exception {
        String topic = Clients.createTopic(check, "numbers", 1);
        String id = check.name("flink");
        try (var first = preCommitted(check, id, topic)) {
            int fenced = 0;
            for (int times = 0; times < 3; times++) {
                try (var other = producer(check, id)) {
                    other.resumeTransaction(first.getProducerId(), first.getEpoch());
                    other.commitTransaction();
                    check.equal("producers fenced before one that commits", fenced, 0);
                } catch (ProducerFencedException refused) {
                    fenced++;
                }
            }
            check.equal("records", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("one"));
            boolean isNewEpoch = described(check, id).producerEpoch() != first.getEpoch();
            check.isTrue("only a new epoch fences, and not the first", fenced == 0 || isNewEpoch && fenced < 3);
            try (var other = producer(check, id)) {
                other.resumeTransaction(first.getProducerId(), first.getEpoch());
                var refusal = isNewEpoch ? ProducerFencedException.class : InvalidTxnStateException.class;
                check.refused("abort", refusal, () -> {
                    other.abortTransaction();
                    return null;
                });
            }
        }
        var last = described(check, id);
        check.isTrue("its state", List.of(TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY).contains(last.state()));
        check.equal("records at last", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("one"));
    }

    private static TransactionDescription described(Check check, String id) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            return admin.describeTransactions(List.of(id)).description(id).get();
        }
    }

    /** The epoch that the coordinator has for an id, whose last transaction is committed. */
    private static int committedEpoch(Check check, String id) throws Exception {
        var last = described(check, id);
        check.equal("its state", last.state(), TransactionState.COMPLETE_COMMIT);
        return last.producerEpoch();
    }

    /**
     * The producer of a writer commits by itself, and a recovery repeats it. After a commit of version 2, which takes a new
     * epoch, the repetition is refused, by an Apache Kafka as well: the connector's resumed producers speak version 1.
     */
    private static void commits(Check check) throws Exception {
        String topic = Clients.createTopic(check, "numbers", 1);
        String id = check.name("flink");
        List<String> repeated = new ArrayList<>();
        try (var producer = producer(check, id)) {
            producer.initTransactions();
            for (int times = 0; times < 3; times++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "one".getBytes(StandardCharsets.UTF_8)), null);
                producer.flush();
                producer.precommitTransaction();
                short epoch = producer.getEpoch();
                producer.commitTransaction();
                try (var other = producer(check, id)) {
                    other.resumeTransaction(producer.getProducerId(), epoch);
                    other.commitTransaction();
                    repeated.add("done");
                } catch (ProducerFencedException refused) {
                    repeated.add("fenced");
                }
            }
        }
        check.fact("repeated commits", repeated);
        check.fact("epoch after commits", committedEpoch(check, id));
        check.equal("records", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of("one", "one", "one"));
    }

    /** A recovery asks for ids in turn until one is new, whose epoch is 0; one that was used has a higher epoch. */
    private static void probes(Check check) throws Exception {
        String topic = Clients.createTopic(check, "numbers", 1);
        String id = check.name("flink");
        try (var left = preCommitted(check, id + "-1", topic)) {
            check.equal("first epoch", (int) left.getEpoch(), 0);
            try (var probing = producer(check, id + "-1")) {
                probing.initTransactions();
                check.isTrue("the same producer id", probing.getProducerId() == left.getProducerId());
                check.isTrue("a higher epoch", probing.getEpoch() > 0);
                check.fact("epoch of a used id", (int) probing.getEpoch());
                probing.setTransactionId(id + "-2");
                probing.initTransactions();
                check.equal("epoch of an unused id", (int) probing.getEpoch(), 0);
            }
        }
        check.equal("records", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
        check.equal("aborted records", Clients.readAll(check, topic, 1, "read_uncommitted").get(0), List.of("one"));
    }

    /** After the id was asked for, nobody can commit what was pre-committed under it. */
    private static void isFenced(Check check) throws Exception {
        String topic = Clients.createTopic(check, "numbers", 1);
        String id = check.name("flink");
        try (var first = preCommitted(check, id, topic); var second = producer(check, id); var third = producer(check, id)) {
            second.initTransactions();
            third.resumeTransaction(first.getProducerId(), first.getEpoch());
            check.refused("commit of what was pre-committed", ProducerFencedException.class, () -> {
                third.commitTransaction();
                return null;
            });
        }
        check.equal("records", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
    }

    /** The connector's default of an hour is longer than brokers take, and no matter to an id that is two-phase by its name. */
    private static void defaultTimeOut(Check check) throws Exception {
        try (var producer = producer(check, check.name("flink"), "transaction.timeout.ms", DEFAULT_TIMEOUT_MS)) {
            String reason = check.refused("an hour", KafkaException.class, () -> {
                producer.initTransactions();
                return null;
            }).getMessage();
            check.isTrue("it says which setting: " + reason, reason.contains("transaction.max.timeout.ms"));
        }
        try (Admin admin = Clients.admin(check)) {
            Recoveries.needTwoPhaseByName(admin);
        }
        try (var producer = producer(check, check.name("two-phase"), "transaction.timeout.ms", DEFAULT_TIMEOUT_MS)) {
            producer.initTransactions();
        }
    }
}
