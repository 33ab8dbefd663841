import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.DelegationTokenDisabledException;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Every call of the admin client that a single node answers. */
final class Administering {
    private Administering() {}

    static void addTo(Checks checks) {
        checks.add("admin-create-topics", Administering::createTopics)
                .add("admin-describe-topics", Administering::describeTopics)
                .add("admin-delete-topics", Administering::deleteTopics)
                .add("admin-create-partitions", Administering::createPartitions)
                .add("admin-topic-configs", Administering::topicConfigs)
                .add("admin-broker-configs", Administering::brokerConfigs)
                .add("admin-logger-configs", Administering::loggerConfigs)
                .add("admin-config-resources", Administering::configResources)
                .add("admin-list-offsets", Administering::listOffsets)
                .add("admin-delete-records", Administering::deleteRecords)
                .add("admin-cluster", Administering::cluster)
                .add("admin-features", Administering::features)
                .add("admin-update-features", Administering::updateFeatures)
                .add("admin-quorum", Administering::quorum)
                .add("admin-log-directories", Administering::logDirectories)
                .add("admin-elect-leaders", Administering::electLeaders)
                .add("admin-reassignments", Administering::reassignments)
                .add("admin-quotas", Administering::quotas)
                .add("admin-acls", Administering::acls)
                .add("admin-scram", Administering::scram)
                .add("admin-delegation-tokens", Administering::delegationTokens)
                .add("admin-survives-restart", Administering::survivesRestart);
    }

    static void createTopics(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            String first = check.name("first");
            var created = admin.createTopics(List.of(
                    new NewTopic(first, 3, (short) 1).configs(Map.of("retention.ms", "1000000")),
                    new NewTopic(check.name("defaults"), Optional.empty(), Optional.empty()),
                    new NewTopic(check.name("assigned"), Map.of(0, List.of(1), 1, List.of(1)))));
            created.all().get();
            check.equal("partitions", created.numPartitions(first).get(), 3);
            check.equal("replicas", created.replicationFactor(first).get(), 1);
            check.equal("a config", created.config(first).get().get("retention.ms").value(), "1000000");
            check.equal("its source", created.config(first).get().get("retention.ms").source(),
                    ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            check.equal("default partitions", created.numPartitions(check.name("defaults")).get(), 1);
            check.equal("assigned partitions", created.numPartitions(check.name("assigned")).get(), 2);
            check.equal("its id", created.topicId(first).get(),
                    admin.describeTopics(List.of(first)).allTopicNames().get().get(first).topicId());

            Map<String, NewTopic> refused = new TreeMap<>();
            refused.put("exists", new NewTopic(first, 1, (short) 1));
            refused.put("no partitions", new NewTopic(check.name("none"), 0, (short) 1));
            refused.put("too many replicas", new NewTopic(check.name("replicas"), 1, (short) 1_000));
            refused.put("no replicas", new NewTopic(check.name("no-replicas"), 1, (short) 0));
            refused.put("a name", new NewTopic("not/a/name", 1, (short) 1));
            refused.put("dots", new NewTopic("..", 1, (short) 1));
            refused.put("long", new NewTopic("n".repeat(250), 1, (short) 1));
            refused.put("an unknown config",
                    new NewTopic(check.name("config"), 1, (short) 1).configs(Map.of("unheard.of", "1")));
            refused.put("a bad value",
                    new NewTopic(check.name("value"), 1, (short) 1).configs(Map.of("retention.ms", "soon")));
            refused.put("a bad policy",
                    new NewTopic(check.name("policy"), 1, (short) 1).configs(Map.of("cleanup.policy", "keep")));
            refused.put("an unknown node", new NewTopic(check.name("node"), Map.of(0, List.of(7))));
            refused.put("a gap", new NewTopic(check.name("gap"), Map.of(1, List.of(1))));
            Map<String, Class<? extends Throwable>> kinds = Map.ofEntries(
                    Map.entry("exists", TopicExistsException.class),
                    Map.entry("no partitions", InvalidPartitionsException.class),
                    Map.entry("too many replicas", InvalidReplicationFactorException.class),
                    Map.entry("no replicas", InvalidReplicationFactorException.class),
                    Map.entry("a name", InvalidTopicException.class),
                    Map.entry("dots", InvalidTopicException.class),
                    Map.entry("long", InvalidTopicException.class),
                    Map.entry("an unknown config", InvalidConfigurationException.class),
                    Map.entry("a bad value", InvalidConfigurationException.class),
                    Map.entry("a bad policy", InvalidConfigurationException.class),
                    Map.entry("an unknown node", InvalidReplicaAssignmentException.class),
                    Map.entry("a gap", InvalidReplicaAssignmentException.class));
            for (var entry : refused.entrySet()) {
                for (boolean only : new boolean[] {true, false}) {
                    Throwable refusal = check.refused(entry.getKey(), kinds.get(entry.getKey()),
                            () -> admin.createTopics(List.of(entry.getValue()), new CreateTopicsOptions().validateOnly(only))
                                    .all().get());
                    check.isTrue(entry.getKey() + " says why", !refusal.getMessage().isEmpty());
                }
            }
            String imagined = check.name("imagined");
            var validated = admin.createTopics(
                    List.of(new NewTopic(imagined, 2, (short) 1)), new CreateTopicsOptions().validateOnly(true));
            validated.all().get();
            check.equal("of the imagined one", validated.numPartitions(imagined).get(), 2);
            check.isTrue("nothing was made", !admin.listTopics().names().get().contains(imagined));
        }
    }

    static void describeTopics(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 3);
        try (Admin admin = Clients.admin(check)) {
            TopicDescription description = admin.describeTopics(
                            List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                    .allTopicNames().get().get(topic);
            check.equal("partitions", description.partitions().stream().map(one -> one.partition()).toList(), List.of(0, 1, 2));
            for (var partition : description.partitions()) {
                check.isTrue("a node leads it", check.nodes().contains(partition.leader().id()));
                check.equal("replicas", partition.replicas().size(), 1);
                check.equal("in sync", partition.isr().size(), 1);
                check.equal("eligible", partition.elr(), List.of());
            }
            check.fact("operations", new TreeSet<>(description.authorizedOperations().stream().map(Enum::name).toList()));
            check.equal("internal", description.isInternal(), false);
            check.equal("by id", admin.describeTopics(TopicCollection.ofTopicIds(List.of(description.topicId())))
                    .allTopicIds().get().get(description.topicId()).name(), topic);
            check.refused("an unknown name", UnknownTopicOrPartitionException.class,
                    () -> admin.describeTopics(List.of(check.name("unknown"))).allTopicNames().get());
            check.refused("an unknown id", UnknownTopicIdException.class,
                    () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(org.apache.kafka.common.Uuid.randomUuid())))
                            .allTopicIds().get());
            check.refused("no name", InvalidTopicException.class,
                    () -> admin.describeTopics(List.of("")).allTopicNames().get());
            // More than one page of partitions.
            String large = Clients.createTopic(check, "large", 120);
            check.equal("of the large one", admin.describeTopics(List.of(large),
                            new DescribeTopicsOptions().partitionSizeLimitPerResponse(50)).allTopicNames().get().get(large)
                    .partitions().size(), 120);
            check.isTrue("listed", admin.listTopics().listings().get().stream()
                    .anyMatch(listing -> listing.name().equals(topic) && listing.topicId().equals(description.topicId())));
            check.equal("internal ones, not asked for", admin.listTopics(new ListTopicsOptions().listInternal(false)).names()
                    .get().stream().filter(name -> name.startsWith("__")).count(), 0L);
        }
    }

    static void deleteTopics(Check check) throws Exception {
        String byName = Clients.createTopic(check, "by-name", 1);
        String byId = Clients.createTopic(check, "by-id", 1);
        try (Admin admin = Clients.admin(check); var producer = Clients.producer(check)) {
            producer.send(new ProducerRecord<>(byName, "value")).get();
            var id = admin.describeTopics(List.of(byId)).allTopicNames().get().get(byId).topicId();
            admin.deleteTopics(TopicCollection.ofTopicNames(List.of(byName))).all().get();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            check.until("they are gone", () -> {
                Set<String> names = admin.listTopics().names().get();
                return !names.contains(byName) && !names.contains(byId);
            });
            check.refused("a name again", UnknownTopicOrPartitionException.class,
                    () -> admin.deleteTopics(List.of(byName)).all().get());
            check.refused("an id again", UnknownTopicIdException.class,
                    () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        }
    }

    static void createPartitions(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (Admin admin = Clients.admin(check); var producer = Clients.producer(check, "metadata.max.age.ms", 200)) {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5)), new CreatePartitionsOptions().validateOnly(true))
                    .all().get();
            check.equal("only validated", partitionCount(admin, topic), 2);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4, List.of(List.of(1))))).all().get();
            check.until("they are there", () -> partitionCount(admin, topic) == 4);
            check.equal("offset in a new one", producer.send(new ProducerRecord<>(topic, 3, null, "value")).get().offset(), 0L);
            for (int count : new int[] {4, 3, 0}) {
                check.refused(count + " partitions", InvalidPartitionsException.class,
                        () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get());
            }
            check.refused("an unknown node", InvalidReplicaAssignmentException.class,
                    () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5, List.of(List.of(9))))).all().get());
            check.refused("an unknown topic", UnknownTopicOrPartitionException.class, () -> admin
                    .createPartitions(Map.of(check.name("unknown"), NewPartitions.increaseTo(5))).all().get());
        }
    }

    private static int partitionCount(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    static ConfigResource topicResource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static Config describe(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    static void alter(Admin admin, ConfigResource resource, AlterConfigOp.OpType kind, String... namesAndValues)
            throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (int index = 0; index < namesAndValues.length; index += 2) {
            operations.add(new AlterConfigOp(new ConfigEntry(namesAndValues[index], namesAndValues[index + 1]), kind));
        }
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    static void topicConfigs(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1, "retention.ms", "5000000");
        ConfigResource resource = topicResource(topic);
        try (Admin admin = Clients.admin(check)) {
            Config config = describe(admin, resource);
            Map<String, String> defaults = new TreeMap<>();
            config.entries().forEach(entry -> defaults.put(
                    entry.name(), entry.value() + " " + entry.source() + " " + entry.isReadOnly() + " " + entry.isSensitive()
                            + " " + entry.type()));
            Set<String> names = new TreeSet<>(defaults.keySet());
            // Records are on disk when they are acknowledged, unlike in Kafka; and there are no replicas to wait for.
            defaults.keySet().removeAll(Set.of("flush.messages", "min.insync.replicas"));
            check.fact("configs", defaults);
            for (var field : TopicConfig.class.getFields()) {
                if (field.getName().endsWith("_CONFIG") && !field.isAnnotationPresent(Deprecated.class)) {
                    check.isTrue("has " + field.get(null), names.contains(String.valueOf(field.get(null))));
                }
            }
            check.equal("own", config.get("retention.ms").source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);

            alter(admin, resource, AlterConfigOp.OpType.SET, "max.message.bytes", "12345", "cleanup.policy", "compact");
            check.until("they are set", () -> describe(admin, resource).get("max.message.bytes").value().equals("12345"));
            alter(admin, resource, AlterConfigOp.OpType.APPEND, "cleanup.policy", "delete");
            check.until("one is appended",
                    () -> describe(admin, resource).get("cleanup.policy").value().equals("compact,delete"));
            alter(admin, resource, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "compact");
            check.until("one is taken away", () -> describe(admin, resource).get("cleanup.policy").value().equals("delete"));
            alter(admin, resource, AlterConfigOp.OpType.DELETE, "max.message.bytes", null, "retention.ms", null);
            check.until("they are the defaults", () -> {
                ConfigEntry entry = describe(admin, resource).get("retention.ms");
                return entry.value().equals("604800000") && entry.source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG;
            });

            for (String[] bad : new String[][] {
                {"retention.ms", "soon"}, {"unheard.of", "1"}, {"cleanup.policy", "keep"}, {"min.insync.replicas", "0"},
                {"segment.bytes", "1"}, {"compression.type", "best"}, {"min.cleanable.dirty.ratio", "2"},
            }) {
                check.refused(bad[0] + "=" + bad[1], InvalidConfigurationException.class, () -> {
                    alter(admin, resource, AlterConfigOp.OpType.SET, bad);
                    return null;
                });
            }
            var operation = new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(operation)), new AlterConfigsOptions().validateOnly(true))
                    .all().get();
            check.equal("only validated", describe(admin, resource).get("retention.ms").value(), "604800000");
            check.refused("an unknown topic", UnknownTopicOrPartitionException.class, () -> {
                alter(admin, topicResource(check.name("unknown")), AlterConfigOp.OpType.SET, "retention.ms", "1");
                return null;
            });
            check.refused("describing an unknown topic", UnknownTopicOrPartitionException.class,
                    () -> describe(admin, topicResource(check.name("unknown"))));
            var detailed = admin.describeConfigs(List.of(resource),
                    new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(resource);
            check.fact("synonyms", detailed.get("retention.ms").synonyms().stream().map(one -> one.name() + "=" + one.value()
                    + " " + one.source()).toList());
            check.isTrue("documentation", detailed.get("retention.ms").documentation().length() > 20);
        }
    }

    static void brokerConfigs(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            ConfigResource one = new ConfigResource(ConfigResource.Type.BROKER, "1");
            ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
            Config config = describe(admin, one);
            for (String name : List.of("log.retention.ms", "num.partitions", "auto.create.topics.enable", "node.id",
                    "message.max.bytes", "offsets.retention.minutes", "advertised.listeners")) {
                check.isTrue("has " + name, config.get(name) != null);
            }
            check.equal("node.id", config.get("node.id").value(), "1");
            check.isTrue("it is read-only", config.get("node.id").isReadOnly());
            alter(admin, one, AlterConfigOp.OpType.SET, "message.max.bytes", "1048588");
            check.until("it is set", () -> describe(admin, one).get("message.max.bytes").source()
                    == ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG);
            alter(admin, one, AlterConfigOp.OpType.DELETE, "message.max.bytes", null);
            alter(admin, all, AlterConfigOp.OpType.SET, "log.retention.ms", "604800001");
            check.until("it is set for all", () -> {
                ConfigEntry entry = describe(admin, one).get("log.retention.ms");
                return "604800001".equals(entry.value())
                        && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
            });
            String topic = Clients.createTopic(check, "topic", 1);
            check.until("a topic follows",
                    () -> describe(admin, topicResource(topic)).get("retention.ms").value().equals("604800001"));
            alter(admin, all, AlterConfigOp.OpType.DELETE, "log.retention.ms", null);
            check.until("the topic follows back",
                    () -> describe(admin, topicResource(topic)).get("retention.ms").value().equals("604800000"));
            for (String[] bad : new String[][] {{"node.id", "2"}, {"message.max.bytes", "many"}}) {
                Throwable refused = check.refused(bad[0], org.apache.kafka.common.errors.ApiException.class, () -> {
                    alter(admin, one, AlterConfigOp.OpType.SET, bad);
                    return null;
                });
                check.fact(bad[0], refused.getClass().getSimpleName());
            }
        }
    }

    static void loggerConfigs(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            Config config = describe(admin, new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1"));
            ConfigEntry root = config.get("root");
            check.fact("has a root", root != null);
            check.equal("where its level comes from", root.source(),
                    ConfigEntry.ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG);
            ConfigResource loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
            alter(admin, loggers, AlterConfigOp.OpType.SET, "root", "WARN");
            check.equal("a level that was set", describe(admin, loggers).get("root").value(), "WARN");
            check.refused("an unknown level", InvalidConfigurationException.class, () -> {
                alter(admin, loggers, AlterConfigOp.OpType.SET, "root", "LOUD");
                return null;
            });
            check.refused("an unknown logger", InvalidConfigurationException.class, () -> {
                alter(admin, loggers, AlterConfigOp.OpType.SET, "no.such.logger", "WARN");
                return null;
            });
            check.refused("a list of levels", InvalidRequestException.class, () -> {
                alter(admin, loggers, AlterConfigOp.OpType.APPEND, "root", "INFO");
                return null;
            });
            alter(admin, loggers, AlterConfigOp.OpType.SET, "root", root.value());
        }
    }

    static void configResources(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (Admin admin = Clients.admin(check)) {
            var resources = admin.listConfigResources(
                    Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                    .all().get();
            check.isTrue("the topic", resources.contains(topicResource(topic)));
            check.isTrue("the broker", resources.contains(new ConfigResource(ConfigResource.Type.BROKER, "1")));
        }
    }

    static ListOffsetsResultInfo offset(Admin admin, TopicPartition partition, OffsetSpec spec, IsolationLevel level)
            throws Exception {
        return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(level)).all().get().get(partition);
    }

    static void listOffsets(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long time = System.currentTimeMillis() - 100_000;
        try (Admin admin = Clients.admin(check);
                var producer = Clients.producer(check);
                var open = Transacting.transactional(check, "open")) {
            IsolationLevel uncommitted = IsolationLevel.READ_UNCOMMITTED;
            check.equal("empty", offset(admin, partition, OffsetSpec.maxTimestamp(), uncommitted).offset(), -1L);
            for (int number : new int[] {3, 9, 5}) {
                producer.send(new ProducerRecord<>(topic, 0, time + number, null, "value")).get();
            }
            open.beginTransaction();
            open.send(new ProducerRecord<>(topic, 0, time + 7, null, "open")).get();
            check.equal("earliest", offset(admin, partition, OffsetSpec.earliest(), uncommitted).offset(), 0L);
            check.equal("latest", offset(admin, partition, OffsetSpec.latest(), uncommitted).offset(), 4L);
            check.equal("latest committed", offset(admin, partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
                    .offset(), 3L);
            var maximum = offset(admin, partition, OffsetSpec.maxTimestamp(), uncommitted);
            check.equal("of the largest time", maximum.offset(), 1L);
            check.equal("the largest time", maximum.timestamp(), time + 9);
            check.equal("by time", offset(admin, partition, OffsetSpec.forTimestamp(time + 4), uncommitted).offset(), 1L);
            check.equal("later", offset(admin, partition, OffsetSpec.forTimestamp(time + 10), uncommitted).offset(), -1L);
            check.equal("earliest local", offset(admin, partition, OffsetSpec.earliestLocal(), uncommitted).offset(), 0L);
            check.equal("latest tiered", offset(admin, partition, OffsetSpec.latestTiered(), uncommitted).offset(), -1L);
            check.refused("an unknown partition", UnknownTopicOrPartitionException.class, () -> Admin.create(
                            Clients.settings(check, "default.api.timeout.ms", 2_000, "request.timeout.ms", 1_000))
                    .listOffsets(Map.of(new TopicPartition(check.name("unknown"), 0), OffsetSpec.latest())).all().get());
            open.abortTransaction();
        }
    }

    static void deleteRecords(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        List<TopicPartition> both = Clients.partitions(topic, 2);
        try (Admin admin = Clients.admin(check); var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, 2, 0, 20);
            var deleted = admin.deleteRecords(
                    Map.of(both.get(0), RecordsToDelete.beforeOffset(4), both.get(1), RecordsToDelete.beforeOffset(-1)));
            check.equal("first", deleted.lowWatermarks().get(both.get(0)).get().lowWatermark(), 4L);
            check.equal("second", deleted.lowWatermarks().get(both.get(1)).get().lowWatermark(), 10L);
            check.equal("earliest", offset(admin, both.get(0), OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED).offset(),
                    4L);
            check.equal("left", Clients.readAll(check, topic, 2, "read_committed"),
                    Map.of(0, Clients.numbers(8, 20, 2), 1, List.of()));
            check.equal("not back", admin.deleteRecords(Map.of(both.get(0), RecordsToDelete.beforeOffset(2))).lowWatermarks()
                    .get(both.get(0)).get().lowWatermark(), 4L);
            check.refused("beyond the end", OffsetOutOfRangeException.class, () -> admin
                    .deleteRecords(Map.of(both.get(0), RecordsToDelete.beforeOffset(11))).all().get());
            String compacted = Clients.createTopic(check, "compacted", 1, "cleanup.policy", "compact");
            check.refused("of a compacted topic", org.apache.kafka.common.errors.PolicyViolationException.class,
                    () -> admin.deleteRecords(Map.of(new TopicPartition(compacted, 0), RecordsToDelete.beforeOffset(0)))
                            .all().get());
        }
    }

    static void cluster(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            var description = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            List<String> addresses = description.nodes().get().stream().sorted(Comparator.comparing(Node::id))
                    .map(node -> node.host() + ":" + node.port()).toList();
            check.equal("nodes", String.join(",", addresses), check.bootstrap);
            check.isTrue("the controller is one of them",
                    description.nodes().get().contains(description.controller().get()));
            check.equal("the same cluster", description.clusterId().get(), admin.describeCluster().clusterId().get());
            check.fact("operations",
                    new TreeSet<>(description.authorizedOperations().get().stream().map(Enum::name).toList()));
        }
    }

    static void features(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            var metadata = admin.describeFeatures().featureMetadata().get();
            check.isTrue("an epoch", metadata.finalizedFeaturesEpoch().orElse(-1L) >= 0);
            check.equal("transactions", metadata.finalizedFeatures().get("transaction.version").maxVersionLevel(), (short) 2);
            check.equal("groups", metadata.finalizedFeatures().get("group.version").maxVersionLevel(), (short) 1);
            check.equal("the release", metadata.finalizedFeatures().get("metadata.version").maxVersionLevel(), (short) 33);
        }
    }

    /** Transactions of version 1 with a client that could do more: the feature says what is spoken. */
    static void updateFeatures(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            for (short level : new short[] {1, 2}) {
                var update = new FeatureUpdate(level, level == 1
                        ? FeatureUpdate.UpgradeType.SAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE);
                admin.updateFeatures(Map.of("transaction.version", update), new UpdateFeaturesOptions()).all().get();
                check.until("the level is known", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                        .get("transaction.version").maxVersionLevel() == level);
                String topic = Clients.createTopic(check, "level-" + level, 2);
                try (var producer = Transacting.transactional(check, "level-" + level)) {
                    short[] epochs = new short[3];
                    for (int turn = 0; turn < 3; turn++) {
                        producer.beginTransaction();
                        Clients.sendNumbers(producer, topic, 2, turn * 10, turn * 10 + 10);
                        if (turn == 1) {
                            producer.abortTransaction();
                        } else {
                            producer.commitTransaction();
                        }
                        check.until("it is over", () -> Transacting.describe(admin, check.name("level-" + level)).state()
                                .toString().startsWith("Complete"));
                        epochs[turn] = (short) Transacting.describeProducers(admin, new TopicPartition(topic, 0)).get(0)
                                .producerEpoch();
                    }
                    // Version 2 raises the epoch with every transaction, version 1 never does.
                    check.equal("epochs", Arrays.toString(epochs), level == 1 ? "[0, 0, 0]" : "[1, 2, 3]");
                }
                List<String> want = new ArrayList<>(Clients.numbers(0, 10, 2));
                want.addAll(Clients.numbers(20, 30, 2));
                check.equal("values", Clients.readAll(check, topic, 2, "read_committed").get(0), want);
            }
            Throwable refused = check.refused("a level that is not there", org.apache.kafka.common.errors.ApiException.class,
                    () -> admin.updateFeatures(Map.of("transaction.version",
                            new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions())
                            .all().get());
            check.fact("a level that is not there", refused.getClass().getSimpleName());
        }
    }

    static void quorum(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            check.isTrue("a node leads it", check.nodes().contains(quorum.leaderId()));
            check.equal("voters", quorum.voters().stream().map(voter -> voter.replicaId()).toList(),
                    List.of(quorum.leaderId()));
            check.equal("observers", quorum.observers().size(), 0);
            check.isTrue("a high watermark", quorum.highWatermark() >= 0);
        }
    }

    static void logDirectories(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (Admin admin = Clients.admin(check); var producer = Clients.producer(check)) {
            for (int number = 0; number < 20; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "x".repeat(1_000))).get();
            }
            Map<TopicPartition, ReplicaInfo> replicas = new HashMap<>();
            for (var directories : admin.describeLogDirs(check.nodes()).allDescriptions().get().values()) {
                check.equal("directories of a node", directories.size(), 1);
                var directory = directories.values().iterator().next();
                check.equal("error", directory.error(), null);
                check.isTrue("space", directory.totalBytes().orElse(-1) > 0 && directory.usableBytes().orElse(-1) > 0);
                replicas.putAll(directory.replicaInfos());
            }
            var first = replicas.get(new TopicPartition(topic, 0));
            check.isTrue("its size: " + first, first.size() >= 20_000 && first.size() < 40_000);
            check.equal("its lag", first.offsetLag(), 0L);
            check.equal("moving", first.isFuture(), false);
            check.equal("the empty one", replicas.get(new TopicPartition(topic, 1)).size(), 0L);
        }
    }

    static void electLeaders(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (Admin admin = Clients.admin(check)) {
            for (ElectionType kind : ElectionType.values()) {
                var results = admin.electLeaders(kind, Set.copyOf(Clients.partitions(topic, 2))).partitions().get();
                for (TopicPartition partition : Clients.partitions(topic, 2)) {
                    check.isTrue(kind + " is not needed: " + results.get(partition),
                            results.get(partition).orElseThrow() instanceof ElectionNotNeededException);
                }
                var unknown = admin.electLeaders(kind, Set.of(new TopicPartition(check.name("unknown"), 0))).partitions().get();
                check.isTrue("of an unknown topic: " + unknown,
                        unknown.values().iterator().next().orElseThrow() instanceof UnknownTopicOrPartitionException);
            }
            check.equal("of all", admin.electLeaders(ElectionType.PREFERRED, null).partitions().get(), Map.of());
        }
    }

    static void reassignments(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Clients.admin(check)) {
            check.equal("none", admin.listPartitionReassignments().reassignments().get(), Map.of());
            admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all()
                    .get();
            check.until("none goes on", () -> admin.listPartitionReassignments(Set.of(partition)).reassignments().get().isEmpty());
            check.refused("to an unknown node", InvalidReplicaAssignmentException.class, () -> admin
                    .alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(7)))))
                    .all().get());
            check.refused("cancelling", NoReassignmentInProgressException.class,
                    () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
            check.refused("of an unknown topic", UnknownTopicOrPartitionException.class, () -> admin
                    .alterPartitionReassignments(Map.of(new TopicPartition(check.name("unknown"), 0),
                            Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        }
    }

    static void quotas(Check check) throws Exception {
        String client = check.name("client");
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, client));
        var filter = ClientQuotaFilter.containsOnly(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, client)));
        String topic = Clients.createTopic(check, "topic", 1);
        try (Admin admin = Clients.admin(check)) {
            check.equal("none", admin.describeClientQuotas(filter).entities().get(), Map.of());
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
                            new ClientQuotaAlteration.Op("producer_byte_rate", 20_000.0),
                            new ClientQuotaAlteration.Op("consumer_byte_rate", 1e9)))))
                    .all().get();
            check.until("they are there", () -> admin.describeClientQuotas(filter).entities().get()
                    .equals(Map.of(entity, Map.of("producer_byte_rate", 20_000.0, "consumer_byte_rate", 1e9))));
            // More than a window's worth: the broker holds the client back for what is above the rate.
            try (var producer = Clients.producer(check, "client.id", client, "linger.ms", 0, "batch.size", 20_000)) {
                long started = System.nanoTime();
                for (int number = 0; number < 30; number++) {
                    producer.send(new ProducerRecord<>(topic, "x".repeat(10_000)));
                    producer.flush();
                }
                long elapsed_ms = (System.nanoTime() - started) / 1_000_000;
                check.isTrue("300 kB at 20 kB/s took " + elapsed_ms + " ms", elapsed_ms > 2_000);
                check.isTrue("the client saw the throttling", producer.metrics().entrySet().stream()
                        .filter(entry -> entry.getKey().name().equals("produce-throttle-time-max"))
                        .anyMatch(entry -> (Double) entry.getValue().metricValue() > 0));
            }
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
                            new ClientQuotaAlteration.Op("producer_byte_rate", null),
                            new ClientQuotaAlteration.Op("consumer_byte_rate", null)))))
                    .all().get();
            check.until("they are gone", () -> admin.describeClientQuotas(filter).entities().get().isEmpty());
            Throwable refused = check.refused("an unknown quota", org.apache.kafka.common.errors.ApiException.class,
                    () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                            List.of(new ClientQuotaAlteration.Op("unheard_of", 1.0))))).all().get());
            check.fact("an unknown quota", refused.getClass().getSimpleName());
        }
    }

    static void acls(Check check) throws Exception {
        try (Admin admin = Clients.admin(check)) {
            var binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "topic", PatternType.LITERAL),
                    new AccessControlEntry("User:somebody", "*", AclOperation.READ, AclPermissionType.ALLOW));
            check.refused("describing", SecurityDisabledException.class,
                    () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
            check.refused("creating", SecurityDisabledException.class, () -> admin.createAcls(List.of(binding)).all().get());
            check.refused("deleting", SecurityDisabledException.class,
                    () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        }
    }

    static void scram(Check check) throws Exception {
        String user = check.name("user");
        try (Admin admin = Clients.admin(check)) {
            check.refused("an unknown user", ResourceNotFoundException.class,
                    () -> admin.describeUserScramCredentials(List.of(user)).description(user).get());
            var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, "secret"))).all().get();
            // Each call may ask another node.
            check.until("it is there", () -> {
                var described = admin.describeUserScramCredentials().all().get().get(user);
                return described != null && described.credentialInfos().equals(List.of(info));
            });
            check.until("it is described by its name", () -> admin.describeUserScramCredentials(List.of(user)).users().get()
                    .contains(user));
            check.refused("too few iterations", org.apache.kafka.common.errors.UnacceptableCredentialException.class,
                    () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                            user, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_095), "secret"))).all().get());
            admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)))
                    .all().get();
            check.until("it is gone", () -> !admin.describeUserScramCredentials().all().get().containsKey(user));
            check.refused("deleting it again", ResourceNotFoundException.class, () -> admin.alterUserScramCredentials(
                    List.of(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512))).all().get());
        }
    }

    static void delegationTokens(Check check) {
        try (Admin admin = Clients.admin(check)) {
            for (var refused : List.of(
                    check.refused("creating", org.apache.kafka.common.errors.ApiException.class,
                            () -> admin.createDelegationToken().delegationToken().get()),
                    check.refused("describing", org.apache.kafka.common.errors.ApiException.class,
                            () -> admin.describeDelegationToken().delegationTokens().get()))) {
                check.fact(refused.getClass().getSimpleName(), true);
                check.isTrue("not without authentication: " + refused, refused instanceof DelegationTokenDisabledException
                        || refused instanceof org.apache.kafka.common.errors.UnsupportedByAuthenticationException);
            }
        }
    }

    /** Topics, their ids and configs, quotas and credentials are there after a crash. */
    static void survivesRestart(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 3, "retention.ms", "7777777");
        Map<String, Object> before;
        try (Admin admin = Clients.admin(check)) {
            alter(admin, topicResource(topic), AlterConfigOp.OpType.SET, "max.message.bytes", "54321");
            alter(admin, new ConfigResource(ConfigResource.Type.BROKER, ""), AlterConfigOp.OpType.SET,
                    "log.segment.bytes", "1073741823");
            check.until("node 1 has the config", () -> "1073741823".equals(state(admin, topic).get("segments")));
            before = state(admin, topic);
        }
        check.restart("kill");
        try (Admin admin = Clients.admin(check)) {
            check.equal("after the crash", state(admin, topic), before);
            alter(admin, new ConfigResource(ConfigResource.Type.BROKER, ""), AlterConfigOp.OpType.DELETE,
                    "log.segment.bytes", null);
        }
    }

    private static Map<String, Object> state(Admin admin, String topic) throws Exception {
        Map<String, Object> state = new HashMap<>();
        state.put("cluster", admin.describeCluster().clusterId().get());
        state.put("topic", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId());
        state.put("partitions", partitionCount(admin, topic));
        Config config = describe(admin, topicResource(topic));
        state.put("retention", config.get("retention.ms").value());
        state.put("size", config.get("max.message.bytes").value());
        Config broker = describe(admin, new ConfigResource(ConfigResource.Type.BROKER, "1"));
        state.put("segments", broker.get("log.segment.bytes").value());
        return state;
    }
}
