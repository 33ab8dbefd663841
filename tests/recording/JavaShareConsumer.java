// What the Java client's share consumer is made to do while the proxy records: explicit acknowledgements, and administration.
// Run as a single source file: java -cp 'JARS/*' JavaShareConsumer.java BOOTSTRAP_SERVERS

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaShareConsumer {
    static final int RECORDS = 12;

    public static void main(String[] arguments) throws Exception {
        String topic = "java-lent";
        String group = "java-share";
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            try (var producer = new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
                for (int index = 0; index < RECORDS; index++) {
                    producer.send(new ProducerRecord<>(topic, "key" + index, "value"));
                }
            }
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
            Map<String, Object> settings = new HashMap<>(common);
            settings.put("group.id", group);
            settings.put("share.acknowledgement.mode", "explicit");
            try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                int accepted = 0;
                while (accepted < RECORDS) {
                    for (var record : consumer.poll(Duration.ofMillis(500))) {
                        boolean isFirst = record.deliveryCount().orElse((short) 0) == 1;
                        boolean comesBack = isFirst && record.offset() % 5 == 0;
                        consumer.acknowledge(record, comesBack ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                        accepted += comesBack ? 0 : 1;
                    }
                    consumer.commitSync();
                }
                admin.describeShareGroups(List.of(group)).all().get();
            }
            admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all().get();
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 1L)).all().get();
            admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
            admin.deleteShareGroups(List.of(group)).all().get();
        }
    }
}
