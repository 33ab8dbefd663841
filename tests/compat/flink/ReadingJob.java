import java.nio.file.Path;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job without an end that prints the values of a topic: `ReadingJob BOOTSTRAP TOPIC CHECKPOINTS [CHECKPOINT]`. */
final class ReadingJob {
    private ReadingJob() {}

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "200 ms");
        configuration.setString("execution.checkpointing.dir", Path.of(arguments[2]).toUri().toString());
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("rest.bind-port", "0");
        if (arguments.length > 3) {
            configuration.setString("execution.state-recovery.path", Path.of(arguments[3]).toUri().toString());
        }
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        var source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments[0])
                .setTopics(arguments[1])
                .setGroupId("of-flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "topic").uid("topic").print().uid("printed");
        environment.execute();
    }
}
