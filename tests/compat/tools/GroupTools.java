import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** kafka-consumer-groups, kafka-groups. */
final class GroupTools {
    private static final String GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";

    private GroupTools() {}

    static void addTo(Checks checks) {
        checks.add("consumer-groups", check -> describe(check, "classic"))
                .add("consumer-groups-consumer-protocol", check -> describe(check, "consumer"))
                .add("consumer-groups-reset", GroupTools::reset)
                .add("consumer-groups-delete", GroupTools::delete)
                .add("share-groups", GroupTools::share);
    }

    static List<String> groups(Check check, String... arguments) throws Exception {
        return Tool.output(check, GROUPS, TopicTools.with(arguments, "--bootstrap-server", "BOOTSTRAP"));
    }

    /** The rows below the heading of --describe: GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG … */
    static List<List<String>> described(Check check, String group, String... arguments) throws Exception {
        return Tool.words(groups(check, TopicTools.with(arguments, "--describe", "--group", group))).stream()
                .filter(row -> row.get(0).equals(group)).toList();
    }

    static void describe(Check check, String protocol) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String group = check.name("group");
        try (var producer = Clients.producer(check);
                var consumer = Clients.consumer(check, "group.id", group, "group.protocol", protocol, "client.id", "me")) {
            Clients.sendNumbers(producer, topic, 2, 0, 10);
            consumer.subscribe(List.of(topic));
            check.until("both are assigned", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().size() == 2;
            });
            consumer.commitSync(Map.of(
                    new TopicPartition(topic, 0), new OffsetAndMetadata(2), new TopicPartition(topic, 1), new OffsetAndMetadata(5)));
            check.until("it is stable", () -> {
                consumer.poll(Clients.POLL);
                return described(check, group, "--state").get(0).contains("Stable");
            });
            List<List<String>> offsets = described(check, group);
            check.equal("first", offsets.get(0).subList(0, 6), List.of(group, topic, "0", "2", "5", "3"));
            check.equal("second", offsets.get(1).subList(0, 6), List.of(group, topic, "1", "5", "5", "0"));
            check.equal("client", offsets.get(0).get(8), "me");
            List<List<String>> members = described(check, group, "--members", "--verbose");
            check.equal("members", members.size(), 1);
            check.fact("member", members.get(0).stream().skip(3).map(word -> word.replace(check.name(""), "")).toList());
            List<List<String>> state = described(check, group, "--state");
            check.fact("state", state.get(0).stream().skip(3).toList());
            check.isTrue("listed", groups(check, "--list").contains(group));
            check.isTrue("listed with its state", Tool.words(groups(check, "--list", "--state")).contains(
                    List.of(group, "Stable")));
            check.isTrue("listed with its type", Tool.words(Tool.output(check, "GroupsCommand", "--bootstrap-server",
                    "BOOTSTRAP", "--list")).contains(List.of(group, protocol.equals("classic") ? "Classic" : "Consumer",
                    "consumer")));
            Tool refused = Tool.run(check, GROUPS, "--bootstrap-server", "BOOTSTRAP", "--delete", "--group", group);
            check.isTrue("deleting it: " + refused.text(), refused.text().contains("GroupNotEmptyException"));
        }
    }

    static void reset(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String group = check.name("group");
        long time = System.currentTimeMillis() - 1_000_000;
        try (var producer = Clients.producer(check); var consumer = Clients.consumer(check, "group.id", group)) {
            for (int number = 0; number < 20; number++) {
                producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(
                        topic, number % 2, time + number * 1_000, null, "value")).get();
            }
            consumer.commitSync(Map.of(
                    new TopicPartition(topic, 0), new OffsetAndMetadata(5), new TopicPartition(topic, 1), new OffsetAndMetadata(5)));
        }
        check.equal("only said", reset(check, group, topic, "--to-earliest", "--dry-run"), List.of("0", "0"));
        check.equal("still", current(check, group), List.of("5", "5"));
        check.equal("to earliest", reset(check, group, topic, "--to-earliest", "--execute"), List.of("0", "0"));
        check.equal("by three", reset(check, group, topic, "--shift-by", "3", "--execute"), List.of("3", "3"));
        check.equal("to latest", reset(check, group, topic, "--to-latest", "--execute"), List.of("10", "10"));
        check.equal("to an offset", reset(check, group, topic, "--to-offset", "4", "--execute"), List.of("4", "4"));
        check.equal("beyond the end", reset(check, group, topic, "--to-offset", "99", "--execute"), List.of("10", "10"));
        String when = java.time.Instant.ofEpochMilli(time + 6_500).toString();
        check.equal("to a time", reset(check, group, topic, "--to-datetime", when, "--execute"), List.of("4", "3"));
        check.equal("to the current", reset(check, group, topic, "--to-current", "--execute"), List.of("4", "3"));
        String file = Tool.file("\"" + topic + "\",0,7\n\"" + topic + "\",1,8\n");
        check.equal("from a file", reset(check, group, topic, "--from-file", file, "--execute"), List.of("7", "8"));
        check.equal("at last", current(check, group), List.of("7", "8"));
        List<String> exported = groups(check, "--reset-offsets", "--group", group, "--topic", topic, "--to-current", "--export",
                "--dry-run");
        check.isTrue("exported: " + exported, exported.contains("\"" + topic + "\",0,7"));
    }

    /** The new offsets that it prints, by partition. */
    static List<String> reset(Check check, String group, String topic, String... arguments) throws Exception {
        return Tool.words(groups(check, TopicTools.with(arguments, "--reset-offsets", "--group", group, "--topic", topic)))
                .stream().filter(row -> row.get(0).equals(group)).sorted((one, other) -> one.get(2).compareTo(other.get(2)))
                .map(row -> row.get(3)).toList();
    }

    private static List<String> current(Check check, String group) throws Exception {
        return described(check, group).stream().map(row -> row.get(3)).toList();
    }

    static void delete(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String group = check.name("group");
        try (var consumer = Clients.consumer(check, "group.id", group)) {
            consumer.commitSync(Map.of(
                    new TopicPartition(topic, 0), new OffsetAndMetadata(0), new TopicPartition(topic, 1), new OffsetAndMetadata(0)));
        }
        List<String> deleted = groups(check, "--delete-offsets", "--group", group, "--topic", topic + ":0");
        check.isTrue("offsets: " + deleted, Tool.words(deleted).contains(List.of(topic, "0", "Successful")));
        check.equal("what is left", described(check, group).stream().map(row -> row.get(2)).toList(), List.of("1"));
        check.equal("the group", groups(check, "--delete", "--group", group),
                List.of("Deletion of requested consumer groups ('" + group + "') was successful."));
        Tool gone = Tool.run(check, GROUPS, "--bootstrap-server", "BOOTSTRAP", "--describe", "--group", group);
        check.fact("gone", gone.exitCode() + " " + gone.text().strip().replace(group, "GROUP").lines().findFirst().orElse(""));
        Tool again = Tool.run(check, GROUPS, "--bootstrap-server", "BOOTSTRAP", "--delete", "--group", group);
        check.isTrue("again: " + again.text(), again.text().contains("GroupIdNotFoundException"));
    }

    static void share(Check check) throws Exception {
        String tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand";
        String topic = Clients.createTopic(check, "topic", 1);
        String group = check.name("group");
        TopicTools.configs(check, "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config",
                "share.auto.offset.reset=earliest");
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, 1, 0, 5);
        }
        check.equal("consumed", Tool.output(check, "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
                "--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--group", group, "--max-messages", "5", "--timeout-ms",
                "20000"), Clients.numbers(0, 5, 1));
        check.isTrue("listed", Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP", "--list").contains(group));
        check.until("it is empty", () -> Tool.words(Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP", "--describe",
                "--group", group, "--state")).stream().anyMatch(row -> row.get(0).equals(group) && row.contains("Empty")));
        List<List<String>> reset = Tool.words(Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP", "--reset-offsets",
                "--group", group, "--topic", topic, "--to-earliest", "--execute"));
        check.isTrue("reset: " + reset, reset.contains(List.of(group, topic, "0", "0")));
        check.equal("consumed again", Tool.output(check, "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
                "--bootstrap-server", "BOOTSTRAP", "--topic", topic, "--group", group, "--max-messages", "5", "--timeout-ms",
                "20000"), Clients.numbers(0, 5, 1));
        check.until("it is empty again", () -> Tool.words(Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP",
                "--describe", "--group", group, "--state")).stream().anyMatch(
                row -> row.get(0).equals(group) && row.contains("Empty")));
        Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP", "--delete", "--group", group);
        check.isTrue("gone", !Tool.output(check, tool, "--bootstrap-server", "BOOTSTRAP", "--list").contains(group));
    }
}
