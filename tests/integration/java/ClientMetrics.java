// Metrics that Kafka's own clients push of themselves: subscribes to them, prints the instance ids of a producer and a
// consumer, and waits for a line before it closes them.
//     java -cp ... ClientMetrics.java BOOTSTRAP NAME TOPIC

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ClientMetrics {
    static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], name = arguments[1], topic = arguments[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "enable.metrics.push", "false"))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name);
            List<AlterConfigOp> changes = new ArrayList<>();
            changes.add(set("metrics", "*"));
            changes.add(set("interval.ms", "500"));
            changes.add(set("match", "client_software_name=apache-kafka-java,client_id=" + name + "-.*"));
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
            // Older clients have this method only.
            admin.listClientMetricsResources().all().get()
                .forEach(found -> System.out.println("listed " + found.name()));
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .map(entry -> "config " + entry.name() + "=" + entry.value() + " " + entry.source())
                .sorted().forEach(System.out::println);
        }
        Map<String, Object> producing = Map.of("bootstrap.servers", bootstrap, "client.id", name + "-producer");
        Map<String, Object> consuming =
            Map.of("bootstrap.servers", bootstrap, "client.id", name + "-consumer", "group.id", name);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
            KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            producer.send(new ProducerRecord<>(topic, "value")).get();
            consumer.subscribe(List.of(topic));
            consumer.poll(Duration.ofSeconds(1));
            System.out.println("producer " + producer.clientInstanceId(PATIENCE));
            System.out.println("consumer " + consumer.clientInstanceId(PATIENCE));
            System.out.flush();
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(200));
            }
        }
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
