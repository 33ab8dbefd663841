import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job that writes the numbers from 0 to `count` (exclusive) to a topic, each once: a source that goes back with its checkpoints, and Flink's
 * Kafka sink with DeliveryGuarantee.EXACTLY_ONCE. Each start of it is a Flink cluster in this process.
 *
 * <p>source: the topic that the numbers come from; null if they are generated. login: settings with which the sink's clients
 * connect, beside the address.
 */
record NumbersJob(
        String bootstrap,
        String topic,
        String prefix,
        TransactionNamingStrategy naming,
        Path checkpoints,
        int transactionTimeoutMs,
        int count,
        String source,
        Map<String, String> login) {
    /** Ten checkpoints of a job. */
    static final int COUNT = 1_200;
    private static final int EACH_CHECKPOINT = 120;

    /** Starts it, or goes on from a checkpoint or savepoint if `from` is not null. Its StoppingPoints are set before. */
    JobClient start(int parallelism, Path from) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "150 ms");
        configuration.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "3");
        configuration.setString("restart-strategy.fixed-delay.delay", "50 ms");
        configuration.setString("rest.bind-port", "0");
        if (from != null) {
            configuration.setString("execution.state-recovery.path", from.toUri().toString());
        }
        var environment = StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        numbers(environment)
                .rebalance()
                .sinkTo(new StoppingSink(sink(), prefix)).name("sink").uid("sink");
        return environment.executeAsync();
    }

    private DataStream<Long> numbers(StreamExecutionEnvironment environment) {
        if (source != null) {
            String jobs = prefix;
            return environment.fromSource(topicSource(), WatermarkStrategy.noWatermarks(), "topic").uid("topic")
                    .map(text -> {
                        StoppingPoints.of(jobs).afterSource();
                        return Long.valueOf(text);
                    }).uid("numbers");
        }
        // It waits for the next checkpoint after some numbers: each checkpoint has something to commit.
        var generated = new DataGeneratorSource<Long>(
                number -> number, count, RateLimiterStrategy.perCheckpoint(EACH_CHECKPOINT), Types.LONG);
        return environment.fromSource(generated, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers");
    }

    /** The committed records of the source, up to the end that it has when the job starts. */
    private KafkaSource<String> topicSource() {
        return KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(source)
                .setGroupId(prefix)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
    }

    private KafkaSink<Long> sink() {
        SerializationSchema<Long> asText = number -> String.valueOf(number).getBytes(StandardCharsets.UTF_8);
        Properties properties = new Properties();
        properties.putAll(login);
        return KafkaSink.<Long>builder()
                .setKafkaProducerConfig(properties)
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(prefix)
                .setTransactionNamingStrategy(naming)
                .setProperty("transaction.timeout.ms", String.valueOf(transactionTimeoutMs))
                .setProperty("reconnect.backoff.max.ms", "200")
                .setRecordSerializer(KafkaRecordSerializationSchema.<Long>builder()
                        .setTopic(topic).setValueSerializationSchema(asText).build())
                .build();
    }

    /** The same with more numbers. */
    NumbersJob withCount(int more) {
        return new NumbersJob(bootstrap, topic, prefix, naming, checkpoints, transactionTimeoutMs, more, source, login);
    }

    /** The same with numbers that come from a topic. */
    NumbersJob withSource(String other) {
        return new NumbersJob(bootstrap, topic, prefix, naming, checkpoints, transactionTimeoutMs, count, other, login);
    }

    /** The latest checkpoint that is complete and was kept; null if there is none. */
    Path latestCheckpoint() throws IOException {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.getFileName().toString().equals("_metadata")).map(Path::getParent)
                    .filter(folder -> folder.getFileName().toString().startsWith("chk-"))
                    .max(Comparator.comparing(folder -> folder.toFile().lastModified())).orElse(null);
        }
    }
}
