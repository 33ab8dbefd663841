import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;

/** kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records. */
final class TopicTools {
    static final String CONFIGS = "org.apache.kafka.tools.ConfigCommand";

    private TopicTools() {}

    static void addTo(Checks checks) {
        checks.add("topics", TopicTools::topics)
                .add("topics-refused", TopicTools::refused)
                .add("configs-of-topics", TopicTools::configsOfTopics)
                .add("configs-of-brokers", TopicTools::configsOfBrokers)
                .add("configs-of-clients", TopicTools::configsOfClients)
                .add("configs-of-users", TopicTools::configsOfUsers)
                .add("configs-of-loggers", TopicTools::configsOfLoggers)
                .add("configs-of-addresses", TopicTools::configsOfAddresses)
                .add("get-offsets", TopicTools::getOffsets)
                .add("delete-records", TopicTools::deleteRecords);
    }

    static List<String> topics(Check check, String... arguments) throws Exception {
        return Tool.output(check, "TopicCommand", with(arguments, "--bootstrap-server", "BOOTSTRAP"));
    }

    static String[] with(String[] arguments, String... more) {
        String[] all = new String[arguments.length + more.length];
        System.arraycopy(more, 0, all, 0, more.length);
        System.arraycopy(arguments, 0, all, more.length, arguments.length);
        return all;
    }

    static void topics(Check check) throws Exception {
        String topic = check.name("topic");
        check.equal("create", topics(check, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1",
                "--config", "retention.ms=90000"), List.of("Created topic " + topic + "."));
        check.known(topic);
        check.isTrue("list", topics(check, "--list").contains(topic));
        check.equal("create again", topics(check, "--create", "--topic", topic, "--if-not-exists"), List.of());
        List<String> described = topics(check, "--describe", "--topic", topic);
        check.equal("lines", described.size(), 3);
        check.isTrue("head: " + described.get(0), described.get(0).matches("Topic: " + topic
                + "\tTopicId: [-_a-zA-Z0-9]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention.ms=90000.*"));
        check.isTrue("first: " + described.get(1), described.get(1).strip().matches("Topic: " + topic
                + "\tPartition: 0\tLeader: (\\d)\tReplicas: \\1\tIsr: \\1\tElr: \tLastKnownElr:"));
        check.equal("alter", topics(check, "--alter", "--topic", topic, "--partitions", "4"), List.of());
        check.until("grown", () -> topics(check, "--describe", "--topic", topic).size() == 5);
        check.known(topic);
        check.equal("by id", topics(check, "--describe", "--topic-id",
                described.get(0).replaceAll(".*TopicId: (\\S+).*", "$1")).size(), 5);
        check.equal("overrides", topics(check, "--describe", "--topic", topic, "--topics-with-overrides").size(), 1);
        for (String filter : List.of("--under-replicated-partitions", "--unavailable-partitions",
                "--under-min-isr-partitions", "--at-min-isr-partitions")) {
            check.fact(filter, topics(check, "--describe", "--topic", topic, filter).size());
        }
        check.equal("delete", topics(check, "--delete", "--topic", topic), List.of());
        check.until("it is gone", () -> !topics(check, "--list").contains(topic));
    }

    static void refused(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String[][] attempts = {
            {"--create", "--topic", topic},
            {"--create", "--topic", "a b"},
            {"--create", "--topic", check.name("replicas"), "--replication-factor", "1000"},
            {"--create", "--topic", check.name("config"), "--config", "unheard.of=1"},
            {"--alter", "--topic", topic, "--partitions", "1"},
            {"--describe", "--topic", check.name("unknown")},
            {"--delete", "--topic", check.name("unknown")},
        };
        for (String[] attempt : attempts) {
            Tool ended = Tool.run(check, "TopicCommand", with(attempt, "--bootstrap-server", "BOOTSTRAP"));
            check.equal(String.join(" ", attempt), ended.exitCode(), 1);
            check.isTrue(String.join(" ", attempt) + " says why: " + ended.text(),
                    ended.lines().stream().anyMatch(line -> line.startsWith("Error while executing topic command")));
        }
    }

    static List<String> configs(Check check, String... arguments) throws Exception {
        return Tool.output(check, CONFIGS, with(arguments, "--bootstrap-server", "BOOTSTRAP"));
    }

    /** The tool describes an entity before it deletes configs of it, and fails at a node that does not know them yet. */
    private static void deleteConfigs(Check check, String names, String... entity) throws Exception {
        String[] arguments = with(entity, "--bootstrap-server", "BOOTSTRAP", "--alter", "--delete-config", names);
        check.until("a node that knows them is asked", () -> Tool.run(check, CONFIGS, arguments).exitCode() == 0);
    }

    static void configsOfTopics(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        check.equal("none", configs(check, "--describe", "--entity-type", "topics", "--entity-name", topic),
                List.of("Dynamic configs for topic " + topic + " are:"));
        check.equal("alter", configs(check, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config",
                "retention.ms=70000,cleanup.policy=[compact,delete]"), List.of("Completed updating config for topic " + topic + "."));
        List<String> two = new ArrayList<>();
        check.until("both are there", () -> {
            two.clear();
            two.addAll(configs(check, "--describe", "--entity-type", "topics", "--entity-name", topic));
            return two.size() == 3;
        });
        check.fact("two", two.stream().sorted().map(line -> line.replace(topic, "TOPIC")).toList());
        check.isTrue("retention: " + two, two.stream().anyMatch(line -> line.startsWith(
                "  retention.ms=70000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=70000")));
        deleteConfigs(check, "cleanup.policy", "--entity-type", "topics", "--entity-name", topic);
        check.until("one is left", () ->
                configs(check, "--describe", "--entity-type", "topics", "--entity-name", topic).size() == 2);
        List<String> all = configs(check, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic);
        check.fact("all", all.stream().skip(1).sorted().map(line -> line.strip().split("=")[0]).toList());
        Tool refused = Tool.run(check, CONFIGS, "--bootstrap-server", "BOOTSTRAP", "--alter", "--entity-type", "topics",
                "--entity-name", topic, "--add-config", "retention.ms=soon");
        check.equal("a bad value", refused.exitCode(), 1);
        check.isTrue("its reason: " + refused.text(), refused.text().contains("InvalidConfigurationException"));
    }

    static void configsOfBrokers(Check check) throws Exception {
        check.equal("alter", configs(check, "--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                "log.segment.bytes=99000000"), List.of("Completed updating default config for brokers in the cluster."));
        check.until("it is there", () -> configs(check, "--describe", "--entity-type", "brokers", "--entity-default")
                .stream().anyMatch(line -> line.strip().startsWith("log.segment.bytes=99000000 ")));
        deleteConfigs(check, "log.segment.bytes", "--entity-type", "brokers", "--entity-default");
        check.until("it is gone", () -> configs(check, "--describe", "--entity-type", "brokers", "--entity-default")
                .stream().noneMatch(line -> line.strip().startsWith("log.segment.bytes=")));
        check.isTrue("all of one broker", configs(check, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
                .stream().anyMatch(line -> line.strip().startsWith("node.id=1 ")));
    }

    static void configsOfClients(Check check) throws Exception {
        String client = check.name("client");
        check.equal("alter", configs(check, "--alter", "--entity-type", "clients", "--entity-name", client, "--add-config",
                "producer_byte_rate=100000,request_percentage=150"),
                List.of("Completed updating config for client " + client + "."));
        check.until("they are there", () -> {
            List<String> described = configs(check, "--describe", "--entity-type", "clients", "--entity-name", client);
            return described.size() == 1 && described.get(0).startsWith("Quota configs for client-id '" + client + "' are ")
                    && described.get(0).contains("producer_byte_rate=100000.0")
                    && described.get(0).contains("request_percentage=150.0");
        });
        deleteConfigs(check, "producer_byte_rate,request_percentage", "--entity-type", "clients", "--entity-name", client);
        check.until("they are gone", () ->
                configs(check, "--describe", "--entity-type", "clients", "--entity-name", client).isEmpty());
    }

    static void configsOfUsers(Check check) throws Exception {
        String user = check.name("user");
        check.equal("alter", configs(check, "--alter", "--entity-type", "users", "--entity-name", user, "--add-config",
                "SCRAM-SHA-256=[iterations=4096,password=secret]"),
                List.of("Completed updating config for user " + user + "."));
        check.until("it is there", () -> configs(check, "--describe", "--entity-type", "users", "--entity-name", user)
                .equals(List.of("SCRAM credential configs for user-principal '" + user + "' are SCRAM-SHA-256=iterations=4096")));
        configs(check, "--alter", "--entity-type", "users", "--entity-name", user, "--delete-config", "SCRAM-SHA-256");
        check.until("it is gone", () -> configs(check, "--describe", "--entity-type", "users", "--entity-name", user).stream()
                .noneMatch(line -> line.contains("SCRAM-SHA-256")));
    }

    static void configsOfLoggers(Check check) throws Exception {
        String[] loggers = {"--entity-type", "broker-loggers", "--entity-name", "1"};
        List<String> before = configs(check, with(loggers, "--describe"));
        check.isTrue("the root: " + before, before.stream().anyMatch(line -> line.strip().startsWith("root=")));
        check.equal("alter", configs(check, with(loggers, "--alter", "--add-config", "root=WARN")),
                List.of("Completed updating config for broker-logger 1."));
        check.isTrue("it is set", configs(check, with(loggers, "--describe")).stream()
                .anyMatch(line -> line.strip().startsWith("root=WARN ")));
        Tool refused = Tool.run(check, CONFIGS, with(new String[] {"--bootstrap-server", "BOOTSTRAP"},
                with(loggers, "--alter", "--add-config", "no.such.logger=WARN")));
        check.equal("an unknown logger", refused.exitCode(), 1);
        String level = before.stream().map(String::strip).filter(line -> line.startsWith("root=")).findFirst().get()
                .split("[= ]")[1];
        configs(check, with(loggers, "--alter", "--add-config", "root=" + level));
    }

    static void configsOfAddresses(Check check) throws Exception {
        String[] address = {"--entity-type", "ips", "--entity-name", "10.11.12.13"};
        check.equal("alter", configs(check, with(address, "--alter", "--add-config", "connection_creation_rate=20")),
                List.of("Completed updating config for ip 10.11.12.13."));
        check.until("it is there", () -> configs(check, with(address, "--describe"))
                .equals(List.of("Quota configs for ip '10.11.12.13' are connection_creation_rate=20.0")));
        deleteConfigs(check, "connection_creation_rate", address);
        check.until("it is gone", () -> configs(check, with(address, "--describe")).isEmpty());
    }

    static void getOffsets(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        long time = System.currentTimeMillis() - 100_000;
        try (var producer = Clients.producer(check)) {
            for (int number = 0; number < 9; number++) {
                producer.send(new ProducerRecord<>(topic, number % 3 == 0 ? 0 : 1, time + number, null, "value")).get();
            }
        }
        for (String[] timeAndWant : new String[][] {
            {"-1", "3", "6"}, {"latest", "3", "6"}, {"-2", "0", "0"}, {"earliest", "0", "0"}, {"max-timestamp", "2", "5"},
            {"" + (time + 4), "2", "2"}, {"-4", "0", "0"}, {"earliest-local", "0", "0"},
        }) {
            check.equal("at " + timeAndWant[0], Tool.output(check, "GetOffsetShell", "--bootstrap-server", "BOOTSTRAP",
                    "--topic", topic, "--time", timeAndWant[0]),
                    List.of(topic + ":0:" + timeAndWant[1], topic + ":1:" + timeAndWant[2]));
        }
        check.equal("one partition", Tool.output(check, "GetOffsetShell", "--bootstrap-server", "BOOTSTRAP",
                "--topic-partitions", topic + ":1"), List.of(topic + ":1:6"));
        check.isTrue("without internal topics", Tool.output(check, "GetOffsetShell", "--bootstrap-server", "BOOTSTRAP",
                "--exclude-internal-topics").stream().noneMatch(line -> line.startsWith("__")));
    }

    static void deleteRecords(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, 2, 0, 20);
        }
        String file = Tool.file("{\"version\": 1, \"partitions\": [{\"topic\": \"" + topic
                + "\", \"partition\": 0, \"offset\": 4}, {\"topic\": \"" + topic + "\", \"partition\": 1, \"offset\": -1}]}");
        List<String> lines = Tool.output(check, "DeleteRecordsCommand", "--bootstrap-server", "BOOTSTRAP",
                "--offset-json-file", file);
        check.isTrue("first: " + lines, lines.contains("partition: " + topic + "-0\tlow_watermark: 4"));
        check.isTrue("second: " + lines, lines.contains("partition: " + topic + "-1\tlow_watermark: 10"));
        check.equal("earliest", Tool.output(check, "GetOffsetShell", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--time", "-2"), List.of(topic + ":0:4", topic + ":1:10"));
    }
}
