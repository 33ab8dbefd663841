import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** An application with more than 200 clients: up to three for each of its threads. */
final class ManyThreads {
    private static final int INSTANCES = 3;
    private static final int THREADS = 26;
    /** There are as many tasks that read, and as many that count, as there are threads. */
    private static final int PARTITIONS = INSTANCES * THREADS;
    private static final int WORDS = 60;
    private static final int RECORDS = 1_800;

    private ManyThreads() {}

    static void addTo(Checks checks) {
        checks.add("counts-with-two-hundred-clients", check -> counts(check, "classic"))
                .add("counts-with-two-hundred-clients-streams-protocol", check -> counts(check, "streams"));
    }

    /** All of them count together, exactly once; then one instance leaves, and the others have its tasks. */
    static void counts(Check check, String protocol) throws Exception {
        List<KafkaStreams> instances = new ArrayList<>();
        try (var application = new Main.Application(check, protocol, PARTITIONS, WORDS); Admin admin = Clients.admin(check)) {
            if (protocol.equals("streams")) {
                // Many threads on few cores: a slow member must not time out.
                StreamsGroups.setConfig(admin, check.name("application"), "streams.session.timeout.ms", "30000");
                StreamsGroups.setConfig(admin, check.name("application"), "streams.heartbeat.interval.ms", "1000");
            }
            for (int number = 0; number < INSTANCES; number++) {
                instances.add(instance(check, application, protocol, number));
            }
            instances.forEach(KafkaStreams::start);
            application.send(RECORDS);
            application.awaitCounts(1);
            shared(check, instances);
            int connected = connected(instances).size();
            check.isTrue("at least 200 clients are connected, " + connected + " are", connected >= 200);
            application.send(RECORDS);
            application.awaitCounts(1);
            StreamsGroups.leave(instances.remove(INSTANCES - 1));
            application.send(RECORDS);
            application.checkCounts();
            shared(check, instances);
        } finally {
            instances.forEach(StreamsGroups::leave);
        }
    }

    private static KafkaStreams instance(Check check, Main.Application application, String protocol, int number) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", check.bootstrap);
        settings.put("application.id", check.name("application"));
        settings.put("client.id", "instance-" + number);
        settings.put("state.dir", application.state().resolve("instance-" + number).toString());
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", THREADS);
        settings.put("commit.interval.ms", 500);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("auto.offset.reset", "earliest");
        settings.put("group.protocol", protocol);
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store = Materialized.as(Stores.inMemoryKeyValueStore("counts"));
        return new KafkaStreams(CountingApplication.topology(application.source(), application.target(),
                store.withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())), settings);
    }

    /** Waits until the instances have every task once, and no thread is without one. */
    private static void shared(Check check, List<KafkaStreams> instances) throws Exception {
        check.until("all tasks are shared", () -> {
            List<String> tasks = new ArrayList<>();
            boolean allWork = true;
            for (KafkaStreams instance : instances) {
                for (ThreadMetadata thread : instance.metadataForLocalThreads()) {
                    thread.activeTasks().forEach(task -> tasks.add(task.taskId().toString()));
                    allWork &= thread.threadState().equals("RUNNING") && !thread.activeTasks().isEmpty();
                }
            }
            return allWork && tasks.size() == 2 * PARTITIONS && new TreeSet<>(tasks).size() == tasks.size();
        });
    }

    /** The names of their clients that have a connection now; a thread without a store needs none to restore from. */
    private static Set<String> connected(List<KafkaStreams> instances) {
        Set<String> clients = new HashSet<>();
        for (KafkaStreams instance : instances) {
            instance.metrics().forEach((name, metric) -> {
                if (name.name().equals("connection-count") && (Double) metric.metricValue() > 0) {
                    clients.add(name.tags().get("client-id"));
                }
            });
        }
        return clients;
    }
}
