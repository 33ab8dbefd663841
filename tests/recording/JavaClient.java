// What the Java client is made to do while the proxy records: transactions of version 2, a group, and administration.
// Run as a single source file: java -cp 'JARS/*' JavaClient.java BOOTSTRAP_SERVERS

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaClient {
    static final int RECORDS = 12;

    public static void main(String[] arguments) throws Exception {
        String topic = "java";
        String copies = "java-copies";
        String group = "java-group";
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1), new NewTopic(copies, 2, (short) 1))).all().get();
            for (String codec : List.of("none", "lz4", "zstd")) {
                Map<String, Object> settings = new HashMap<>(common);
                settings.put("compression.type", codec);
                settings.put("linger.ms", 20);
                try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                    for (int index = 0; index < RECORDS; index++) {
                        producer.send(new ProducerRecord<>(topic, "key" + index, "value ".repeat(20)));
                    }
                }
            }
            copy(common, topic, copies, group);
            share(common, admin, topic);

            admin.listTransactions().all().get();
            admin.describeTransactions(List.of("java-transactions")).all().get();
            admin.describeProducers(List.of(new TopicPartition(copies, 0))).all().get();
            admin.describeCluster().clusterId().get();
            admin.describeTopics(List.of(topic)).allTopicNames().get();
            admin.listTopics().names().get();
            admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, topic))).all().get();
            admin.listOffsets(Map.of(new TopicPartition(topic, 0), OffsetSpec.maxTimestamp())).all().get();
            admin.listOffsets(Map.of(new TopicPartition(topic, 0), OffsetSpec.latest())).all().get();
            admin.listGroups().all().get();
            admin.describeClassicGroups(List.of(group)).all().get();
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1))).all().get();
            admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0))).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            abortFromOutside(admin, common, copies);
            admin.fenceProducers(List.of("java-transactions")).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            admin.deleteTopics(List.of(copies)).all().get();
        }
    }

    /** Consume, transform, produce: exactly once, and one aborted transaction at the end. */
    static void copy(Map<String, Object> common, String topic, String copies, String group) {
        Map<String, Object> producing = new HashMap<>(common);
        producing.put("transactional.id", "java-transactions");
        Map<String, Object> consuming = new HashMap<>(common);
        consuming.put("group.id", group);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", false);
        consuming.put("isolation.level", "read_committed");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            int read = 0;
            while (read < 3 * RECORDS) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(copies, record.key(), record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                read += records.count();
            }
            consumer.commitSync();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(copies, "never", "to be seen"));
            producer.flush();
            producer.abortTransaction();
        }
    }

    /** Leaves a transaction open and aborts it through the partition's leader, as kafka-transactions.sh does. */
    static void abortFromOutside(Admin admin, Map<String, Object> common, String copies) throws Exception {
        Map<String, Object> producing = new HashMap<>(common);
        producing.put("transactional.id", "java-hanging");
        TopicPartition partition = new TopicPartition(copies, 0);
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(copies, 0, "hanging", "open")).get();
            for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
                if (state.currentTransactionStartOffset().isPresent()) {
                    admin.abortTransaction(
                                    new AbortTransactionSpec(
                                            partition, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0)))
                            .all()
                            .get();
                }
            }
            producer.abortTransaction();
        }
    }

    /** A static member of the consumer protocol with a pattern, which leaves and comes back. */
    static void share(Map<String, Object> common, Admin admin, String topic) throws Exception {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("group.id", "java-members");
        settings.put("group.protocol", "consumer");
        settings.put("group.remote.assignor", "range");
        settings.put("group.instance.id", "first");
        settings.put("enable.auto.commit", false);
        for (int turn = 0; turn < 2; turn++) {
            try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(new SubscriptionPattern(topic + ".*"));
                while (consumer.assignment().isEmpty()) {
                    consumer.poll(Duration.ofMillis(200));
                }
                consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                admin.describeConsumerGroups(List.of("java-members")).all().get();
            }
        }
    }
}
