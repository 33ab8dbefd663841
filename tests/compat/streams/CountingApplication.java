import java.io.IOException;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts equal values exactly once, in a RocksDB store, and writes every count that a value reaches.
 *
 * <p>It is its own process, so that it can be killed: BOOTSTRAP APPLICATION SOURCE TARGET STATE-FOLDER PROTOCOL STOPS
 * TIMEOUT. STOPS is the folder of its StoppingProducers, TIMEOUT that of its transactions in ms.
 */
final class CountingApplication {
    private CountingApplication() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", 2);
        settings.put("commit.interval.ms", 100);
        // Every count goes out, not only the last of a commit interval: so each can be checked.
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("group.protocol", arguments[5]);
        if (arguments[5].equals("classic")) {
            // A killed member is noticed soon. Streams groups have their own settings for that.
            settings.put("session.timeout.ms", 4_000);
            settings.put("heartbeat.interval.ms", 500);
        }
        settings.put("producer.transaction.timeout.ms", Integer.parseInt(arguments[7]));
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("metadata.max.age.ms", 1_000);

        CountDownLatch closed = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(topology(arguments[2], arguments[3], Materialized.as("counts")), settings,
                new StoppingProducers(Path.of(arguments[6])));
        // A broker that is away for long ends a thread's transaction; the thread is replaced, as applications do it.
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.countDown();
        }));
        streams.start();
        endWithParent();
        closed.await();
    }

    /** Counts the values of `source` in a store and writes each count that a value reaches to `target`, under the value. */
    static Topology topology(
            String source, String target, Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
                .count(store)
                .toStream()
                .mapValues(String::valueOf)
                .to(target, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    /** The parent process holds the other end of standard input; this process ends with it. */
    private static void endWithParent() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Nothing is ever said, only that it is over.
                }
            } catch (IOException over) {
                // That, too, is the end.
            }
            Runtime.getRuntime().halt(1);
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
