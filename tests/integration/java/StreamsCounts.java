// Counts equal values exactly once, as a member of a streams group with two threads, while brokers may be killed.
// Run as a single source file: java -cp 'JARS/*' StreamsCounts.java BOOTSTRAP_SERVERS APPLICATION SOURCE TARGET FOLDER
// Writes each count that a value reaches to the target, under the value. It runs until it is killed.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public class StreamsCounts {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", 2);
        settings.put("commit.interval.ms", 100);
        // Every count goes out, not only the last of a commit interval: so each can be checked.
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("auto.offset.reset", "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        // A broker that is away for long ends a thread's transaction; the thread is replaced, as applications do it.
        streams.setUncaughtExceptionHandler(failure -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
    }
}
