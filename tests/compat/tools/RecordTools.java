import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.stream.IntStream;

/** Console producer and consumer, the verifiable clients, performance tools, the transactional copier. */
final class RecordTools {
    private RecordTools() {}

    static void addTo(Checks checks) {
        checks.add("console", RecordTools::console)
                .add("console-consumer-isolation", RecordTools::isolation)
                .add("verifiable-clients", check -> verifiable(check, "classic"))
                .add("verifiable-clients-consumer-protocol", check -> verifiable(check, "consumer"))
                .add("verifiable-clients-through-kill", check -> verifiableThrough(check, "kill"))
                .add("verifiable-clients-through-termination", check -> verifiableThrough(check, "terminate"))
                .add("performance", RecordTools::performance)
                .add("end-to-end-latency", RecordTools::latency)
                .add("transactional-copier", RecordTools::copier)
                .add("client-compatibility-test", RecordTools::compatibility);
    }

    static void console(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        Tool.outputOf(check, "a:1\nb:2\nc:3\n", "ConsoleProducer",
                "--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--reader-property", "parse.key=true",
                "--reader-property", "key.separator=:");
        Tool.outputOf(check, "origin:JFK\td:4\n", "ConsoleProducer", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--reader-property", "parse.key=true", "--reader-property", "key.separator=:", "--reader-property",
                "parse.headers=true", "--compression-codec", "zstd", "--sync");
        check.equal("consumed", Tool.output(check, "org.apache.kafka.tools.consumer.ConsoleConsumer",
                "--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--from-beginning", "--max-messages", "4",
                "--timeout-ms", "20000", "--formatter-property", "print.key=true", "--formatter-property",
                "print.headers=true", "--formatter-property", "print.offset=true"),
                List.of("Offset:0\tNO_HEADERS\ta\t1", "Offset:1\tNO_HEADERS\tb\t2", "Offset:2\tNO_HEADERS\tc\t3",
                        "Offset:3\torigin:JFK\td\t4"));
        check.equal("from an offset", consume(check, topic, 2, "--partition", "0", "--offset", "2"), List.of("3", "4"));
        String group = check.name("group");
        check.equal("in a group", consume(check, topic, 4, "--group", group, "--from-beginning"), List.of("1", "2", "3", "4"));
        check.equal("committed", GroupTools.described(check, group).get(0).subList(0, 6),
                List.of(group, topic, "0", "4", "4", "0"));
    }

    static List<String> consume(Check check, String topic, int count, String... arguments) throws Exception {
        return Tool.output(check, "org.apache.kafka.tools.consumer.ConsoleConsumer", TopicTools.with(arguments,
                "--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--max-messages", "" + count, "--timeout-ms", "20000"));
    }

    static void isolation(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var producer = Clients.producer(check, "transactional.id", check.name("producer"))) {
            producer.initTransactions();
            for (int turn = 0; turn < 2; turn++) {
                producer.beginTransaction();
                Clients.sendNumbers(producer, topic, 1, turn * 2, turn * 2 + 2);
                if (turn == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        check.equal("committed", consume(check, topic, 2, "--from-beginning", "--isolation-level", "read_committed"),
                List.of("2", "3"));
        check.equal("uncommitted", consume(check, topic, 4, "--from-beginning"), List.of("0", "1", "2", "3"));
    }

    static void verifiable(Check check, String protocol) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        List<String> produced = Tool.processOutput(check, "VerifiableProducer", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--max-messages", "200", "--acks", "-1");
        check.equal("acknowledged", produced.stream().filter(line -> line.contains("producer_send_success")).count(), 200L);
        check.equal("errors", produced.stream().filter(line -> line.contains("producer_send_error")).count(), 0L);
        List<String> consumed = Tool.processOutput(check, "VerifiableConsumer", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--group-id", check.name("group"), "--group-protocol", protocol, "--max-messages", "200", "--verbose",
                "--reset-policy", "earliest");
        check.equal("consumed", consumed.stream().filter(line -> line.contains("\"record_data\"")).count(), 200L);
        check.isTrue("committed", consumed.stream().anyMatch(line ->
                line.contains("\"offsets_committed\"") && line.contains("\"success\":true")));
        List<Long> lags = new ArrayList<>();
        GroupTools.described(check, check.name("group")).forEach(row -> lags.add(Long.parseLong(row.get(5))));
        check.equal("lags", lags, List.of(0L));
    }

    /** A producer and two members of a group go on while the broker is restarted; then one of the members leaves. */
    static void verifiableThrough(Check check, String how) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String[] consumer = {"--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--group-id", check.name("group"),
                "--group-protocol", "classic", "--verbose", "--reset-policy", "earliest"};
        // Records without keys may all go to one partition: the producer changes it only after a number of bytes.
        String[] producer = {"--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--acks", "-1", "--throughput", "100",
                "--max-messages", "1500", "--repeating-keys", "20"};
        try (var first = new RunningTool(check, "VerifiableConsumer", consumer);
                var second = new RunningTool(check, "VerifiableConsumer", consumer)) {
            check.until("both members hold a partition", () -> first.held() == 1 && second.held() == 1);
            try (var writer = new RunningTool(check, "VerifiableProducer", producer)) {
                check.until("both members have read", () ->
                        !first.events("record_data").isEmpty() && !second.events("record_data").isEmpty());
                check.restart(how);
                // It sends no record again: what it wrote while the broker was away may be refused.
                check.until("all is written", () -> !writer.isRunning());
                var acknowledged = writer.numbers("producer_send_success");
                check.isTrue("most of it is acknowledged: " + acknowledged.size(), acknowledged.size() > 500);
                check.until("what was acknowledged is read", () -> {
                    var read = new HashSet<>(first.numbers("record_data"));
                    read.addAll(second.numbers("record_data"));
                    return read.containsAll(acknowledged);
                });
            }
            first.terminate(check);
            check.until("the other member has both partitions", () -> second.held() == 2);
        }
    }

    static void performance(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 3);
        List<String> produced = Tool.output(check, "ProducerPerformance", "--topic", topic, "--num-records", "20000",
                "--record-size", "200", "--throughput", "-1", "--bootstrap-server", "BOOTSTRAP", "--command-property",
                "acks=all");
        check.isTrue("produced: " + produced, produced.get(produced.size() - 1).startsWith("20000 records sent, "));
        List<String> transactional = Tool.output(check, "ProducerPerformance", "--topic", topic, "--num-records", "5000",
                "--record-size", "200", "--throughput", "-1", "--bootstrap-server", "BOOTSTRAP", "--transactional-id",
                check.name("producer"), "--transaction-duration-ms", "100");
        check.isTrue("in transactions: " + transactional,
                transactional.get(transactional.size() - 1).startsWith("5000 records sent, "));
        List<String> consumed = Tool.output(check, "ConsumerPerformance", "--topic", topic, "--num-records", "25000",
                "--bootstrap-server", "BOOTSTRAP", "--timeout", "20000");
        check.equal("consumed", consumed.get(consumed.size() - 1).split(", ")[4], "25000");
    }

    static void latency(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        List<String> lines = Tool.output(check, "EndToEndLatency", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--num-records", "50", "--producer-acks", "all", "--record-size", "100");
        check.isTrue("figures: " + lines, lines.stream().anyMatch(line -> line.startsWith("Percentiles")));
    }

    static void copier(Check check) throws Exception {
        String source = Clients.createTopic(check, "source", 1);
        String target = Clients.createTopic(check, "target", 2);
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, source, 1, 0, 100);
        }
        List<String> lines = Tool.output(check, "TransactionalMessageCopier", "--broker-list", "BOOTSTRAP", "--input-topic",
                source, "--input-partition", "0", "--output-topic", target, "--consumer-group", check.name("group"),
                "--transactional-id", check.name("copier"), "--transaction-size", "10", "--max-messages", "100",
                "--enable-random-aborts");
        check.isTrue("done: " + lines.get(lines.size() - 1), lines.get(lines.size() - 1).contains("\"consumed\":100"));
        List<Integer> values = new ArrayList<>();
        Clients.readAll(check, target, 2, "read_committed").values()
                .forEach(some -> some.forEach(value -> values.add(Integer.parseInt(value))));
        values.sort(null);
        check.equal("copied", values, IntStream.range(0, 100).boxed().toList());
    }

    /** Kafka's own test of what a broker can do, as its system tests run it. */
    static void compatibility(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        // It makes a topic of this name, and expects to be the only one that ever did.
        String made = "newtopic";
        if (TopicTools.topics(check, "--list").contains(made)) {
            TopicTools.topics(check, "--delete", "--topic", made);
            check.until("it is gone", () -> !TopicTools.topics(check, "--list").contains(made));
        }
        Tool.output(check, "ClientCompatibilityTest", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--offsets-for-times-supported", "true", "--cluster-id-supported", "true", "--expect-record-too-large-exception",
                "false", "--num-cluster-nodes", "" + check.nodes().size(), "--create-topics-supported", "true", "--describe-acls-supported", "true",
                "--describe-configs-supported", "true", "--idempotent-producer-supported", "true");
    }
}
