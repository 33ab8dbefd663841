import java.util.List;

/** The tools that are about the cluster: its leaders, directories, features, quorum and versions. */
final class ClusterTools {
    private ClusterTools() {}

    static void addTo(Checks checks) {
        checks.add("leader-election", ClusterTools::leaderElection)
                .add("log-directories", ClusterTools::logDirectories)
                .add("features", ClusterTools::features)
                .add("metadata-quorum", ClusterTools::quorum)
                .add("broker-api-versions", ClusterTools::apiVersions)
                .add("cluster", ClusterTools::cluster)
                .add("reassign-partitions", ClusterTools::reassign)
                .add("acls", ClusterTools::acls);
    }

    static void leaderElection(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        List<String> lines = Tool.output(check, "LeaderElectionCommand", "--bootstrap-server", "BOOTSTRAP", "--election-type",
                "preferred", "--topic", topic, "--partition", "0");
        check.equal("one", lines, List.of("Valid replica already elected for partitions " + topic + "-0"));
        Tool.output(check, "LeaderElectionCommand", "--bootstrap-server", "BOOTSTRAP", "--election-type",
                "preferred", "--all-topic-partitions");
        Tool refused = Tool.run(check, "LeaderElectionCommand", "--bootstrap-server", "BOOTSTRAP", "--election-type",
                "unclean", "--topic", check.name("unknown"), "--partition", "0");
        check.equal("an unknown topic", refused.exitCode(), 1);
    }

    static void logDirectories(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, 1, 0, 10);
        }
        List<String> lines = Tool.output(check, "LogDirsCommand", "--bootstrap-server", "BOOTSTRAP", "--describe",
                "--topic-list", topic);
        String json = lines.get(lines.size() - 1);
        check.isTrue("what it prints: " + json, json.contains("\"partition\":\"" + topic + "-0\"") && json.contains(
                "\"broker\":1,") && json.contains("\"error\":null") && json.contains("\"isFuture\":false"));
        check.isTrue("a size: " + json, !json.contains("\"size\":0"));
    }

    static void features(Check check) throws Exception {
        List<String> lines = Tool.output(check, "FeatureCommand", "--bootstrap-server", "BOOTSTRAP", "describe");
        check.isTrue("transactions: " + lines, lines.stream().anyMatch(line ->
                line.startsWith("Feature: transaction.version") && line.contains("FinalizedVersionLevel: 2")));
        check.isTrue("groups: " + lines, lines.stream().anyMatch(line ->
                line.startsWith("Feature: group.version") && line.contains("FinalizedVersionLevel: 1")));
    }

    static void quorum(Check check) throws Exception {
        List<String> status = Tool.output(check, "MetadataQuorumCommand", "--bootstrap-server", "BOOTSTRAP", "describe",
                "--status");
        check.isTrue("leader: " + status, check.nodes().stream().anyMatch(node ->
                Tool.words(status).contains(List.of("LeaderId:", "" + node))));
        check.isTrue("lag: " + status, Tool.words(status).contains(List.of("MaxFollowerLag:", "0")));
        List<List<String>> replication = Tool.words(Tool.output(check, "MetadataQuorumCommand", "--bootstrap-server",
                "BOOTSTRAP", "describe", "--replication"));
        check.equal("replicas", replication.size(), 2);
        check.isTrue("a node", check.nodes().contains(Integer.valueOf(replication.get(1).get(0))));
        check.equal("status", replication.get(1).get(replication.get(1).size() - 1), "Leader");
    }

    static void apiVersions(Check check) throws Exception {
        List<String> lines = Tool.output(check, "BrokerApiVersionsCommand", "--bootstrap-server", "BOOTSTRAP");
        check.equal("heads", lines.stream().filter(line ->
                line.matches(".*\\(id: \\d rack: null isFenced: false\\) -> \\(")).count(), (long) check.nodes().size());
        check.isTrue("produce", lines.stream().anyMatch(line -> line.strip().startsWith("Produce(0): 0 to 13 [usable: 13]")));
    }

    static void cluster(Check check) throws Exception {
        List<String> id = Tool.output(check, "ClusterTool", "cluster-id", "--bootstrap-server", "BOOTSTRAP");
        check.isTrue("id: " + id, id.get(0).matches("Cluster ID: [-_a-zA-Z0-9]{22}"));
        List<List<String>> endpoints = Tool.words(
                Tool.output(check, "ClusterTool", "list-endpoints", "--bootstrap-server", "BOOTSTRAP"));
        check.equal("endpoints", endpoints.stream().skip(1).map(words -> String.join(":", words.subList(1, 3))).sorted()
                .toList(), List.of(check.bootstrap.split(",")));
    }

    static void reassign(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        String topics = Tool.file("{\"version\": 1, \"topics\": [{\"topic\": \"" + topic + "\"}]}");
        List<String> generated = Tool.output(check, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", "BOOTSTRAP", "--generate",
                "--topics-to-move-json-file", topics, "--broker-list", "1");
        String plan = Tool.file(generated.get(generated.size() - 1));
        List<String> executed = Tool.output(check, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
                "--bootstrap-server", "BOOTSTRAP", "--execute", "--reassignment-json-file", plan);
        check.isTrue("executed: " + executed, executed.contains("Successfully started partition reassignment for " + topic + "-0"));
        check.until("it is completed", () -> Tool.output(check, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
                "--bootstrap-server", "BOOTSTRAP", "--verify", "--reassignment-json-file", plan)
                .contains("Reassignment of partition " + topic + "-0 is completed."));
        List<String> listed = Tool.output(check, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
                "--bootstrap-server", "BOOTSTRAP", "--list");
        check.equal("none goes on", listed, List.of("No partition reassignments found."));
    }

    static void acls(Check check) throws Exception {
        Tool refused = Tool.run(check, "AclCommand", "--bootstrap-server", "BOOTSTRAP", "--list");
        check.isTrue("no authorizer: " + refused.text(), refused.text().contains("SecurityDisabledException"));
    }
}
