// What an application of Kafka Streams is made to do while the proxy records: two processes' worth of threads that count
// by the streams rebalance protocol, and administration of their group.
// Run as a single source file: java -cp 'JARS/*' JavaStreams.java BOOTSTRAP_SERVERS

import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;

public class JavaStreams {
    static final String APPLICATION = "java-streams";

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic("java-words", 2, (short) 1))).all().get();
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, APPLICATION);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                    set("streams.initial.rebalance.delay.ms", "500"), set("streams.num.standby.replicas", "1")))).all().get();
            try (var producer = new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
                for (int index = 0; index < 20; index++) {
                    producer.send(new ProducerRecord<>("java-words", "key" + index, "word" + index % 5));
                }
            }
            StreamsBuilder builder = new StreamsBuilder();
            builder.<String, String>stream("java-words").groupBy((key, word) -> word).count(Materialized.as("counts"));
            try (KafkaStreams one = start(builder, arguments[0], 8081); KafkaStreams two = start(builder, arguments[0], 8082)) {
                awaitRunning(one);
                awaitRunning(two);
                Thread.sleep(6_000);
                admin.describeStreamsGroups(List.of(APPLICATION)).all().get();
                admin.listGroups().all().get();
                two.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
                Thread.sleep(6_000);
                one.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
            }
            admin.listStreamsGroupOffsets(Map.of(APPLICATION, new ListStreamsGroupOffsetsSpec())).all().get();
            admin.deleteStreamsGroups(List.of(APPLICATION)).all().get();
        }
    }

    static KafkaStreams start(StreamsBuilder builder, String bootstrapServers, int port) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrapServers);
        settings.put("application.id", APPLICATION);
        settings.put("application.server", "localhost:" + port);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", 1);
        settings.put("state.dir", Files.createTempDirectory("java-streams").toString());
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        return streams;
    }

    static void awaitRunning(KafkaStreams streams) throws InterruptedException {
        while (streams.state() != KafkaStreams.State.RUNNING) {
            Thread.sleep(100);
        }
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
