import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment.TaskIds;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/** What the groups of the streams protocol look like from outside, and what their settings change. */
final class StreamsGroups {
    private static final int PARTITIONS = 3;
    private static final String TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand";

    private StreamsGroups() {}

    static void addTo(Checks checks) {
        checks.add("streams-group-described", StreamsGroups::described)
                .add("streams-group-standby-replicas", StreamsGroups::standbyReplicas)
                .add("streams-group-interactive-queries", StreamsGroups::interactiveQueries)
                .add("streams-group-waits-for-its-topic", StreamsGroups::waitsForTopic)
                .add("streams-group-changes-its-protocol", StreamsGroups::changesProtocol)
                .add("streams-groups-tool", StreamsGroups::tool);
    }

    // Groups as the administrator sees them

    static StreamsGroupDescription description(Admin admin, String group) throws Exception {
        return admin.describeStreamsGroups(List.of(group)).all().get().get(group);
    }

    static void setConfig(Admin admin, String group, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    }

    /** The group once it is stable with this number of members. */
    static StreamsGroupDescription stable(Check check, Admin admin, String group, int members) throws Exception {
        StreamsGroupDescription[] found = {null};
        check.until(group + " is stable with " + members + " members", () -> {
            try {
                found[0] = description(admin, group);
            } catch (java.util.concurrent.ExecutionException failure) {
                if (failure.getCause() instanceof GroupIdNotFoundException) {
                    return false;
                }
                throw failure;
            }
            return found[0].groupState() == GroupState.STABLE && found[0].members().size() == members;
        });
        return found[0];
    }

    static Set<String> tasks(List<TaskIds> assigned) {
        return assigned.stream().flatMap(each -> each.partitions().stream().map(number -> each.subtopologyId() + "_" + number))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    static Set<String> allTasks() {
        Set<String> tasks = new TreeSet<>();
        for (int number = 0; number < PARTITIONS; number++) {
            tasks.add("0_" + number);
            tasks.add("1_" + number);
        }
        return tasks;
    }

    static Map<String, String> topicConfigs(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> configs = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                configs.put(entry.name(), entry.value());
            }
        }
        return configs;
    }

    static void described(Check check) throws Exception {
        try (var application = new Main.Application(check, "streams"); Admin admin = Clients.admin(check)) {
            String group = check.name("application");
            application.send(200);
            Process process = application.start("one");
            application.checkCounts();
            StreamsGroupDescription description = stable(check, admin, group, 2);
            Set<String> tasks = new TreeSet<>();
            for (StreamsGroupMemberDescription member : description.members()) {
                check.equal("tasks of a thread", tasks(member.assignment().activeTasks()).size(), PARTITIONS);
                check.equal("its target", tasks(member.targetAssignment().activeTasks()),
                        tasks(member.assignment().activeTasks()));
                check.equal("epoch", member.memberEpoch(), description.targetAssignmentEpoch());
                check.equal("topology epoch", member.topologyEpoch(), 0);
                tasks.addAll(tasks(member.assignment().activeTasks()));
            }
            check.equal("tasks", tasks, allTasks());
            check.equal("processes", description.members().stream().map(StreamsGroupMemberDescription::processId).distinct()
                    .count(), 1L);
            Map<String, StreamsGroupSubtopologyDescription> subtopologies = new TreeMap<>();
            description.subtopologies().forEach(each -> subtopologies.put(each.subtopologyId(), each));
            String changelog = group + "-counts-changelog";
            String repartition = group + "-counts-repartition";
            check.equal("sources", subtopologies.get("0").sourceTopics(), List.of(application.source()));
            check.equal("sinks", subtopologies.get("0").repartitionSinkTopics(), List.of(repartition));
            check.equal("changelogs", subtopologies.get("1").stateChangelogTopics().keySet(), Set.of(changelog));
            check.equal("their partitions", subtopologies.get("1").stateChangelogTopics().get(changelog).partitions(), PARTITIONS);
            check.fact("changelog", topicConfigs(admin, changelog));
            check.equal("changelog is", topicConfigs(admin, changelog).get("cleanup.policy"), "compact");
            check.fact("repartition", topicConfigs(admin, repartition));
            check.equal("repartition is kept", topicConfigs(admin, repartition).get("retention.ms"), "-1");
            check.equal("partitions", admin.describeTopics(List.of(repartition)).allTopicNames().get().get(repartition)
                    .partitions().size(), PARTITIONS);
            GroupListing listing = admin.listGroups().all().get().stream().filter(each -> each.groupId().equals(group))
                    .findFirst().orElseThrow();
            check.equal("type", listing.type().orElseThrow(), GroupType.STREAMS);
            check.equal("protocol", listing.protocol(), "streams");
            check.refused("deleting it", GroupNotEmptyException.class, () -> admin.deleteStreamsGroups(List.of(group)).all().get());
            process.destroy();
            check.isTrue("it ends", process.waitFor(20, TimeUnit.SECONDS));
            check.until("it is empty", () -> description(admin, group).groupState() == GroupState.EMPTY);
            check.equal("committed", committed(admin, group, application.source()).stream().mapToLong(one -> one).sum(), 200L);
            admin.deleteStreamsGroups(List.of(group)).all().get();
            check.refused("describing it", GroupIdNotFoundException.class, () -> description(admin, group));
        }
    }

    /** Every task with a store has a copy in the other process, which takes over when the first is killed. */
    static void standbyReplicas(Check check) throws Exception {
        try (var application = new Main.Application(check, "streams"); Admin admin = Clients.admin(check)) {
            String group = check.name("application");
            setConfig(admin, group, "streams.num.standby.replicas", "1");
            application.send(400);
            application.start("one");
            Process second = application.start("two");
            application.awaitCounts(1);
            check.until("every store has a copy in the other process", () -> {
                StreamsGroupDescription description = stable(check, admin, group, 4);
                Map<String, Set<String>> active = new HashMap<>();
                Map<String, Set<String>> standby = new HashMap<>();
                for (StreamsGroupMemberDescription member : description.members()) {
                    for (String task : tasks(member.assignment().activeTasks())) {
                        active.computeIfAbsent(task, name -> new HashSet<>()).add(member.processId());
                    }
                    for (String task : tasks(member.assignment().standbyTasks())) {
                        standby.computeIfAbsent(task, name -> new HashSet<>()).add(member.processId());
                    }
                }
                check.isTrue("no task is active twice", active.values().stream().allMatch(each -> each.size() == 1));
                check.isTrue("no process has a task twice", standby.entrySet().stream().noneMatch(
                        each -> each.getValue().stream().anyMatch(active.getOrDefault(each.getKey(), Set.of())::contains)));
                return active.keySet().equals(allTasks()) && standby.keySet().equals(Set.of("1_0", "1_1", "1_2"));
            });
            second.destroyForcibly().waitFor();
            application.send(400);
            application.checkCounts();
            StreamsGroupDescription left = stable(check, admin, group, 2);
            check.isTrue("no copies are left", left.members().stream().allMatch(
                    member -> member.assignment().standbyTasks().isEmpty()));
        }
    }

    // Applications in this process

    private static final int NO_PORT = 0;

    /** port: where it would answer interactive queries, or NO_PORT. */
    static KafkaStreams counting(Check check, String source, int port) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", check.bootstrap);
        settings.put("application.id", check.name("application"));
        if (port != NO_PORT) {
            settings.put("application.server", "localhost:" + port);
        }
        settings.put("group.protocol", "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", 1);
        settings.put("commit.interval.ms", 100);
        settings.put("metadata.max.age.ms", 500);
        settings.put("state.dir", Files.createTempDirectory("fencepost-streams-").toString());
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(source).groupBy((key, word) -> word).count(Materialized.as("counts"));
        return new KafkaStreams(builder.build(), settings);
    }

    static void leave(KafkaStreams streams) {
        streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                .withTimeout(Duration.ofSeconds(20)));
    }

    static void send(Check check, String source, int count) {
        try (var producer = Clients.producer(check)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(source, number % PARTITIONS, null, "word-" + number % 10));
            }
        }
    }

    /** Both processes know of each other which partitions they have, and together they know every count. */
    static void interactiveQueries(Check check) throws Exception {
        String source = Clients.createTopic(check, "source", PARTITIONS);
        send(check, source, 300);
        try (KafkaStreams one = counting(check, source, 7001); KafkaStreams two = counting(check, source, 7002)) {
            one.start();
            two.start();
            Set<HostInfo> hosts = Set.of(new HostInfo("localhost", 7001), new HostInfo("localhost", 7002));
            for (KafkaStreams streams : List.of(one, two)) {
                check.until("both are known, with all partitions of the store", () -> {
                    Set<HostInfo> known = new HashSet<>();
                    List<Integer> partitions = new ArrayList<>();
                    streams.streamsMetadataForStore("counts").forEach(each -> {
                        known.add(each.hostInfo());
                        each.topicPartitions().stream().filter(each1 -> each1.topic().endsWith("-repartition"))
                                .forEach(each1 -> partitions.add(each1.partition()));
                    });
                    return known.equals(hosts) && partitions.size() == PARTITIONS && Set.copyOf(partitions).equals(Set.of(0, 1, 2));
                });
            }
            check.until("together they have every count", () -> {
                Map<String, Long> counts = new TreeMap<>();
                for (KafkaStreams streams : List.of(one, two)) {
                    if (streams.state() != KafkaStreams.State.RUNNING) {
                        return false;
                    }
                    var store = streams.store(StoreQueryParameters.fromNameAndType("counts",
                            QueryableStoreTypes.<String, Long>keyValueStore()));
                    try (var all = store.all()) {
                        all.forEachRemaining(each -> counts.put(each.key, each.value));
                    }
                }
                return counts.size() == 10 && counts.values().stream().allMatch(count -> count == 30);
            });
            leave(two);
            check.until("the other has all of it", () -> one.streamsMetadataForStore("counts").stream().anyMatch(
                    each -> each.hostInfo().port() == 7001 && each.topicPartitions().stream()
                            .filter(partition -> partition.topic().endsWith("-repartition")).count() == PARTITIONS));
            leave(one);
        }
    }

    /** A group whose source topic is missing goes on once it is there. (Kafka 4.3 fails when a member has a port, too.) */
    static void waitsForTopic(Check check) throws Exception {
        String source = check.name("source");
        String group = check.name("application");
        try (Admin admin = Clients.admin(check); KafkaStreams streams = counting(check, source, NO_PORT)) {
            streams.start();
            check.until("it is not ready", () -> {
                try {
                    return description(admin, group).groupState() == GroupState.NOT_READY;
                } catch (java.util.concurrent.ExecutionException notThere) {
                    return false;
                }
            });
            admin.createTopics(List.of(new NewTopic(source, PARTITIONS, (short) 1))).all().get();
            StreamsGroupDescription description = stable(check, admin, group, 1);
            check.equal("tasks", tasks(description.members().iterator().next().assignment().activeTasks()), allTasks());
            check.until("it runs", () -> streams.state() == KafkaStreams.State.RUNNING);
            leave(streams);
        }
    }

    /** A streams group continues from the offsets of a classic application, and the other way round. */
    static void changesProtocol(Check check) throws Exception {
        String group = check.name("application");
        try (var classic = new Main.Application(check, "classic"); Admin admin = Clients.admin(check)) {
            classic.send(100);
            Process process = classic.start("one");
            classic.awaitCounts(1);
            for (String protocol : List.of("streams", "classic")) {
                process.destroy();
                check.isTrue("it ends", process.waitFor(20, TimeUnit.SECONDS));
                check.until("its group is empty", () -> admin.listGroups().all().get().stream().anyMatch(
                        each -> each.groupId().equals(group) && each.groupState().orElseThrow() == GroupState.EMPTY));
                classic.send(100);
                classic.setProtocol(protocol);
                process = classic.start("one");
                classic.awaitCounts(1);
                String type = admin.listGroups().all().get().stream().filter(each -> each.groupId().equals(group))
                        .findFirst().orElseThrow().type().orElseThrow().name();
                check.equal("type", type, protocol.toUpperCase());
            }
            classic.checkCounts();
        }
    }

    /** kafka-streams-groups: list, describe, reset, delete. */
    static void tool(Check check) throws Exception {
        String source = Clients.createTopic(check, "source", PARTITIONS);
        String group = check.name("application");
        send(check, source, 300);
        try (KafkaStreams streams = counting(check, source, NO_PORT); Admin admin = Clients.admin(check)) {
            streams.start();
            stable(check, admin, group, 1);
            // GROUP TOPIC PARTITION CURRENT-OFFSET LEADER-EPOCH LOG-END-OFFSET OFFSET-LAG
            check.until("all is committed", () -> rows(check, group, "--describe", "--verbose").stream()
                    .filter(row -> row.get(1).equals(source) && row.get(3).equals("100")).count() == PARTITIONS);
            check.isTrue("listed", Tool.output(check, TOOL, "--bootstrap-server", "BOOTSTRAP", "--list").contains(group));
            check.equal("state", rows(check, group, "--describe", "--state").get(0).contains("Stable"), true);
            check.equal("members", rows(check, group, "--describe", "--members").size(), 1);
            check.fact("offsets", rows(check, group, "--describe").stream().filter(row -> row.get(1).equals(source))
                    .map(row -> row.subList(2, row.size()).toString()).sorted().toList());
            Tool refused = Tool.run(check, TOOL, "--bootstrap-server", "BOOTSTRAP", "--delete", "--group", group);
            check.isTrue("deleting it: " + refused.text(), refused.text().toLowerCase().contains("not empty")
                    || refused.text().contains("NonEmptyGroup") || refused.text().contains("GroupNotEmpty"));
            leave(streams);
            check.until("it is empty", () -> description(admin, group).groupState() == GroupState.EMPTY);
            List<List<String>> reset = Tool.words(Tool.output(check, TOOL, "--bootstrap-server", "BOOTSTRAP",
                    "--reset-offsets", "--group", group, "--input-topic", source, "--to-earliest", "--execute"));
            check.isTrue("reset: " + reset, reset.contains(List.of(group, source, "0", "0")));
            check.equal("offsets", committed(admin, group, source), List.of(0L, 0L, 0L));
            Tool.output(check, TOOL, "--bootstrap-server", "BOOTSTRAP", "--delete-offsets", "--group", group, "--input-topic",
                    source);
            check.equal("offsets", committed(admin, group, source), List.of());
            Tool.output(check, TOOL, "--bootstrap-server", "BOOTSTRAP", "--delete", "--group", group);
            check.isTrue("gone", !Tool.output(check, TOOL, "--bootstrap-server", "BOOTSTRAP", "--list").contains(group));
            check.fact("internal topics", admin.listTopics().names().get().stream().filter(name -> name.startsWith(group))
                    .map(name -> name.replace(group, "GROUP")).sorted().toList());
        }
    }

    static List<Long> committed(Admin admin, String group, String topic) throws Exception {
        return admin.listStreamsGroupOffsets(Map.of(group, new ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group).get().entrySet().stream()
                .filter(entry -> entry.getKey().topic().equals(topic)).map(entry -> entry.getValue().offset()).toList();
    }

    /** The rows of a table, without its heading. */
    static List<List<String>> rows(Check check, String group, String... arguments) throws Exception {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", "BOOTSTRAP", "--group", group));
        all.addAll(List.of(arguments));
        return Tool.words(Tool.output(check, TOOL, all.toArray(String[]::new))).stream()
                .filter(row -> row.get(0).equals(group)).toList();
    }
}
