import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;

/** kafka-transactions, and the formatters that show what internal topics hold. */
final class TransactionTools {
    private TransactionTools() {}

    static void addTo(Checks checks) {
        checks.add("transactions", TransactionTools::transactions)
                .add("transactions-hanging", TransactionTools::hanging)
                .add("internal-topics", TransactionTools::internalTopics);
    }

    static List<List<String>> table(Check check, String... arguments) throws Exception {
        return Tool.words(Tool.output(
                check, "TransactionsCommand", TopicTools.with(arguments, "--bootstrap-server", "BOOTSTRAP")));
    }

    static void transactions(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String id = check.name("producer");
        try (var producer = Clients.producer(check, "transactional.id", id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "value")).get();
            List<String> listed = table(check, "list").stream().filter(row -> row.get(0).equals(id)).findFirst().orElseThrow();
            check.equal("state", listed.get(3), "Ongoing");
            check.isTrue("a node coordinates it", check.nodes().contains(Integer.valueOf(listed.get(1))));
            check.equal("none runs that long", table(check, "list", "--duration-filter", "3600000").stream()
                    .filter(row -> row.get(0).equals(id)).count(), 0L);
            check.equal("by pattern", table(check, "list", "--transactional-id-pattern", "producer-transactions-.*").stream()
                    .filter(row -> row.get(0).equals(id)).count(), 1L);
            List<String> described = table(check, "describe", "--transactional-id", id).get(1);
            check.equal("described", described.get(4), "Ongoing");
            check.equal("time-out", described.get(5), "60000");
            check.equal("partitions", described.get(described.size() - 1), topic + "-1");
            List<String> state = table(check, "describe-producers", "--topic", topic, "--partition", "1").get(1);
            check.equal("producer", state.get(0), listed.get(2));
            check.equal("starts at", state.get(5), "0");
            producer.commitTransaction();
        }
        check.until("it is complete",
                () -> table(check, "describe", "--transactional-id", id).get(1).get(4).equals("CompleteCommit"));
        Tool unknown = Tool.run(check, "TransactionsCommand", "--bootstrap-server", "BOOTSTRAP", "describe",
                "--transactional-id", check.name("unknown"));
        check.equal("an unknown id", unknown.exitCode(), 1);
    }

    static void hanging(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var producer = Clients.producer(check, "transactional.id", check.name("producer"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value")).get();
            // It is open, but its coordinator knows of it.
            check.equal("found", table(check, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0").size(), 1);
            check.equal("aborted", table(check, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0"), List.of());
        }
        check.equal("values", Clients.readAll(check, topic, 1, "read_committed").get(0), List.of());
    }

    /** What is stored is what Kafka's own readers of it expect. */
    static void internalTopics(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        String group = check.name("group");
        try (var producer = Clients.producer(check, "transactional.id", check.name("producer"));
                var consumer = Clients.consumer(check, "group.id", group)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value"));
            producer.commitTransaction();
            consumer.commitSync(java.util.Map.of(new org.apache.kafka.common.TopicPartition(topic, 0),
                    new org.apache.kafka.clients.consumer.OffsetAndMetadata(3, "here")));
        }
        List<String> offsets = formatted(check, "__consumer_offsets", "OffsetsMessageFormatter");
        check.isTrue("the committed offset: " + offsets, offsets.stream().anyMatch(line -> line.contains("\"group\":\"" + group
                + "\"") && line.contains("\"offset\":3") && line.contains("\"metadata\":\"here\"")));
        List<String> transactions = formatted(check, "__transaction_state", "TransactionLogMessageFormatter");
        check.isTrue("the transaction", transactions.stream().anyMatch(line -> line.contains("\"transactionalId\":\""
                + check.name("producer") + "\"") && line.contains("\"transactionStatus\":\"CompleteCommit\"")));
    }

    private static List<String> formatted(Check check, String topic, String formatter) throws Exception {
        // Ends when nothing comes any more, which is an error to it.
        return Tool.run(check, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", "BOOTSTRAP", "--topic",
                topic, "--from-beginning", "--timeout-ms", "3000", "--formatter",
                "org.apache.kafka.tools.consumer." + formatter).lines();
    }
}
