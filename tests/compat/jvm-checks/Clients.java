import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The clients that checks use, and what nearly all of them do with them. */
final class Clients {
    static final Duration POLL = Duration.ofMillis(100);

    private Clients() {}

    static Map<String, Object> settings(Check check, Object... namesAndValues) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", check.bootstrap));
        for (int index = 0; index < namesAndValues.length; index += 2) {
            settings.put((String) namesAndValues[index], namesAndValues[index + 1]);
        }
        return settings;
    }

    static Admin admin(Check check) {
        return Admin.create(settings(check, "default.api.timeout.ms", 30_000, "request.timeout.ms", 15_000));
    }

    static KafkaProducer<String, String> producer(Check check, Object... namesAndValues) {
        Map<String, Object> settings = settings(check, namesAndValues);
        settings.putIfAbsent("max.block.ms", 30_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** A consumer that starts at the beginning and commits only explicitly, unless the settings say otherwise. */
    static KafkaConsumer<String, String> consumer(Check check, Object... namesAndValues) {
        Map<String, Object> settings = settings(check, namesAndValues);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", false);
        settings.putIfAbsent("default.api.timeout.ms", 30_000);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Makes a topic of the check's own; returns its name. */
    static String createTopic(Check check, String kind, int partitions, String... configs) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int index = 0; index < configs.length; index += 2) {
            settings.put(configs[index], configs[index + 1]);
        }
        String topic = check.name(kind);
        try (Admin admin = admin(check)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(settings))).all().get();
            check.until("the topic is known", () -> admin.listTopics().names().get().contains(topic));
        }
        check.known(topic);
        return topic;
    }

    /** Sends the texts `first` to `end` (exclusive) as values, dealt to the partitions in turn, and waits for all. */
    static List<RecordMetadata> sendNumbers(
            KafkaProducer<String, String> producer, String topic, int partitions, int first, int end) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = first; number < end; number++) {
            sent.add(producer.send(new ProducerRecord<>(topic, number % partitions, null, String.valueOf(number))));
        }
        List<RecordMetadata> metadata = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            metadata.add(one.get());
        }
        return metadata;
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < count; partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        return partitions;
    }

    /** Polls until `count` records have come, and no more than that; returns them in the order in which they came. */
    static List<ConsumerRecord<String, String>> read(Check check, KafkaConsumer<String, String> consumer, int count)
            throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        check.until(count + " records have come", () -> {
            consumer.poll(POLL).forEach(records::add);
            return records.size() >= count;
        });
        check.equal("records that came", records.size(), count);
        return records;
    }

    /**
     * The values of every partition from its start to its end, as this isolation level sees them.
     *
     * <p>A committing producer does not wait for the markers, but they come: with nothing left open, a committed reader
     * gets to the end as well.
     */
    static Map<Integer, List<String>> readAll(Check check, String topic, int partitions, String isolation)
            throws Exception {
        try (var consumer = consumer(check, "isolation.level", isolation)) {
            List<TopicPartition> all = partitions(topic, partitions);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = endOffsets(check, all);
            Map<Integer, List<String>> values = new TreeMap<>();
            all.forEach(partition -> values.put(partition.partition(), new ArrayList<>()));
            check.until("all is read", () -> {
                consumer.poll(POLL).forEach(record -> values.get(record.partition()).add(record.value()));
                for (TopicPartition partition : all) {
                    if (consumer.position(partition) < ends.get(partition)) {
                        return false;
                    }
                }
                return true;
            });
            return values;
        }
    }

    /** Where the partitions end, open transactions included. */
    static Map<TopicPartition, Long> endOffsets(Check check, List<TopicPartition> partitions) {
        try (var consumer = consumer(check, "isolation.level", "read_uncommitted")) {
            return consumer.endOffsets(partitions);
        }
    }

    static List<String> numbers(int first, int end, int step) {
        List<String> numbers = new ArrayList<>();
        for (int number = first; number < end; number += step) {
            numbers.add(String.valueOf(number));
        }
        return numbers;
    }

    static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }
}
