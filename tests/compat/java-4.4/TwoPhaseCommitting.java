import java.util.Collection;
import java.util.List;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Transactions that are prepared, and ended by another session than the one that wrote them. */
final class TwoPhaseCommitting {
    private static final long NEVER_MS = Integer.MAX_VALUE;

    private TwoPhaseCommitting() {}

    static void addTo(Checks checks) {
        checks.add("two-phase-commit", check -> keptAndEnded(check, true))
                .add("two-phase-abort", check -> keptAndEnded(check, false))
                .add("two-phase-same-session", TwoPhaseCommitting::sameSession)
                .add("two-phase-nothing-to-keep", TwoPhaseCommitting::nothingToKeep)
                .add("two-phase-kept-twice", TwoPhaseCommitting::keptTwice)
                .add("two-phase-not-kept", TwoPhaseCommitting::notKept)
                .add("two-phase-terminated", TwoPhaseCommitting::terminated)
                .add("two-phase-kill-before-the-end", check -> throughKill(check, true))
                .add("two-phase-kill-after-the-end", check -> throughKill(check, false))
                .add("two-phase-records", TwoPhaseCommitting::records)
                .add("two-phase-setting-alone", TwoPhaseCommitting::settingAlone);
    }

    private static KeepingProducer session(Check check, boolean keeps) {
        var producer = new KeepingProducer(Clients.settings(check, "transactional.id", check.name("id"),
                "max.block.ms", 30_000, "reconnect.backoff.max.ms", 200, "retry.backoff.max.ms", 200));
        producer.initTransactions(keeps);
        return producer;
    }

    private static KeepingProducer.Pair prepare(KeepingProducer producer, String topic, String... values) {
        producer.beginTransaction();
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, 0, null, value));
        }
        return producer.prepare();
    }

    private static TransactionDescription describe(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            String id = check.name("id");
            return admin.describeTransactions(List.of(id)).all().get().get(id);
        }
    }

    private static void isOpen(Check check, KeepingProducer.Pair pair) throws Exception {
        TransactionDescription open = describe(check);
        check.equal("state", open.state(), TransactionState.ONGOING);
        check.equal("producer id", open.producerId(), pair.producerId());
        check.equal("epoch", open.producerEpoch(), pair.epoch());
        check.equal("time-out", open.transactionTimeoutMs(), NEVER_MS);
    }

    private static void isFenced(Check check, String what, KeepingProducer producer) {
        var refused = check.refused(what, KafkaException.class, () -> {
            producer.commitTransaction();
            return null;
        });
        check.isTrue(what + " is fenced: " + refused,
                refused instanceof ProducerFencedException || refused instanceof InvalidProducerEpochException);
    }

    private static Collection<String> committed(Check check, String topic) throws Exception {
        return Clients.readAll(check, topic, 1, "read_committed").get(0);
    }

    /** The first session prepares, the second keeps, the first is fenced, the second ends it and goes on. */
    private static void keptAndEnded(Check check, boolean commits) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, false); var second = prepared(check, topic, first)) {
            isFenced(check, "the first session", first);
            end(second, commits);
            TransactionState ended = commits ? TransactionState.COMPLETE_COMMIT : TransactionState.COMPLETE_ABORT;
            check.until("it is complete", () -> describe(check).state() == ended);
            check.equal("values", committed(check, topic), commits ? List.of("1", "2") : List.of());
            for (String value : List.of("3", "4")) {
                second.beginTransaction();
                second.send(new ProducerRecord<>(topic, value));
                second.commitTransaction();
            }
            check.equal("values then", committed(check, topic),
                    commits ? List.of("1", "2", "3", "4") : List.of("3", "4"));
        }
    }

    private static void end(KeepingProducer producer, boolean commits) {
        if (commits) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** The second session, which has kept what the first one has prepared here. */
    private static KeepingProducer prepared(Check check, String topic, KeepingProducer first) throws Exception {
        var pair = prepare(first, topic, "1", "2");
        isOpen(check, pair);
        var second = session(check, true);
        check.equal("what is kept", second.kept(), pair);
        isOpen(check, pair);
        return second;
    }

    private static void sameSession(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var producer = session(check, false)) {
            isOpen(check, prepare(producer, topic, "1"));
            producer.commitTransaction();
            isOpen(check, prepare(producer, topic, "2"));
            producer.abortTransaction();
            prepare(producer, topic, "3");
            producer.commitTransaction();
        }
        check.equal("values", committed(check, topic), List.of("1", "3"));
    }

    private static void nothingToKeep(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, true)) {
            check.isTrue("a new id has nothing to keep", !first.kept().hasTransaction());
            prepare(first, topic, "1");
            first.commitTransaction();
        }
        try (var second = session(check, true)) {
            check.isTrue("what was committed is not kept", !second.kept().hasTransaction());
            prepare(second, topic, "2");
            second.commitTransaction();
        }
        check.equal("values", committed(check, topic), List.of("1", "2"));
    }

    private static void keptTwice(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, false);
                var second = prepared(check, topic, first);
                var third = session(check, true)) {
            check.equal("what the third session keeps", third.kept(), second.kept());
            isFenced(check, "the second session", second);
            third.commitTransaction();
        }
        check.equal("values", committed(check, topic), List.of("1", "2"));
    }

    /** A session that does not keep aborts what was prepared, as a plain one does. */
    private static void notKept(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, false); var second = prepared(check, topic, first);
                var third = session(check, false)) {
            check.isTrue("nothing is kept", !third.kept().hasTransaction());
            isFenced(check, "the second session", second);
            prepare(third, topic, "3");
            third.commitTransaction();
        }
        check.equal("values", committed(check, topic), List.of("3"));
    }

    private static void terminated(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, false); var second = prepared(check, topic, first);
                Admin admin = Clients.admin(check)) {
            admin.forceTerminateTransaction(check.name("id")).result().get();
            isFenced(check, "the second session", second);
            check.until("nothing is open", () -> describe(check).state() != TransactionState.ONGOING);
        }
        check.equal("values", committed(check, topic), List.of());
    }

    /** kill -9 between keep and end, or after the end and before anything else. */
    private static void throughKill(Check check, boolean isBeforeTheEnd) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var first = session(check, false); var second = prepared(check, topic, first)) {
            if (isBeforeTheEnd) {
                check.restart("kill");
                isOpen(check, second.kept());
            }
            second.commitTransaction();
            if (!isBeforeTheEnd) {
                check.restart("kill");
            }
            check.until("it is complete", () -> describe(check).state() == TransactionState.COMPLETE_COMMIT);
            check.equal("values", committed(check, topic), List.of("1", "2"));
            prepare(second, topic, "3");
            second.commitTransaction();
        }
        check.equal("values then", committed(check, topic), List.of("1", "2", "3"));
        try (var consumer = Clients.consumer(check)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            check.until("each transaction has its marker", () -> consumer.endOffsets(List.of(partition)).get(partition) >= 5);
        }
    }

    /** Every record of a transaction that two sessions have kept, the second of which commits it. */
    private static void records(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        String id = check.name("id");
        try (var first = session(check, false); var second = prepared(check, topic, first);
                var third = session(check, true)) {
            long producerId = third.kept().producerId();
            third.commitTransaction();
            // Nobody waits for the last one: readers get it with the next sync.
            check.until("all are there", () -> StoredTransactions.of(check, id, producerId).size() >= 6);
            List<String> written = List.of(topic + "-0");
            check.equal("records", StoredTransactions.of(check, id, producerId), List.of(
                    new StoredTransactions.Row(0, "0:0", "-1", "-1:-1", Integer.MAX_VALUE, List.of()),
                    new StoredTransactions.Row(1, "0:0", "-1", "-1:-1", Integer.MAX_VALUE, written),
                    new StoredTransactions.Row(1, "0:0", "-1", "0:1", Integer.MAX_VALUE, written),
                    new StoredTransactions.Row(1, "0:0", "-1", "0:2", Integer.MAX_VALUE, written),
                    new StoredTransactions.Row(2, "0:1", "0", "0:3", Integer.MAX_VALUE, written),
                    new StoredTransactions.Row(4, "0:3", "0", "-1:-1", Integer.MAX_VALUE, List.of())));
            check.isTrue("the second session has kept it, too", second.kept().hasTransaction());
        }
    }

    /** The client has a setting for all of this, which changes nothing on the wire: its transactions time out. */
    private static void settingAlone(Check check) throws Exception {
        try (var producer = Clients.producer(check, "transactional.id", check.name("id"),
                "transaction.two.phase.commit.enable", true)) {
            producer.initTransactions();
            check.equal("time-out", describe(check).transactionTimeoutMs(), 60_000L);
        }
    }

    /** WRITE is not enough for a two-phase commit, and enough for all else. */
    static void withoutTheRight(Check check) throws Exception {
        String id = check.name("id");
        String topic = check.name("topic");
        check.ask("topic " + topic);
        check.ask("allow User:alice WRITE topic " + topic);
        check.ask("allow User:alice WRITE transactional-id " + id);
        var login = Secured.Login.of("SASL_SSL", "PLAIN");
        check.refused("a session without the right", TransactionalIdAuthorizationException.class, () -> {
            try (var producer = new KeepingProducer(login.settings("transactional.id", id))) {
                producer.initTransactions(false);
                return producer;
            }
        });
        try (var producer = login.producer("transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "1"));
            producer.commitTransaction();
        }
        try (Admin admin = login.as("admin", "admin-secret").admin()) {
            var resource = new ResourcePattern(ResourceType.TRANSACTIONAL_ID, id, PatternType.LITERAL);
            var entry = new AccessControlEntry(
                    "User:alice", "*", AclOperation.TWO_PHASE_COMMIT, AclPermissionType.ALLOW);
            admin.createAcls(List.of(new AclBinding(resource, entry))).all().get();
        }
        try (var first = new KeepingProducer(login.settings("transactional.id", id))) {
            first.initTransactions(false);
            var pair = prepare(first, topic, "2");
            try (var second = new KeepingProducer(login.settings("transactional.id", id))) {
                second.initTransactions(true);
                check.equal("what is kept", second.kept(), pair);
                second.commitTransaction();
            }
        }
        try (var consumer = login.as("admin", "admin-secret").consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            check.equal("values", Clients.values(Clients.read(check, consumer, 2)), List.of("1", "2"));
        }
    }
}
