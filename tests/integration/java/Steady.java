// A producer, a transactional producer and a member of a group that never stop, with the defaults of Kafka's own client.
//     java -cp ... Steady.java BOOTSTRAP TOPIC PARTITIONS FEED
// Each line is the part ("produce", "transact", "consume"), a partition and when what has arrived was sent, in
// milliseconds of Unix time. A transaction writes to all partitions, and its line has the partition -1.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Steady {
    static String bootstrap;
    static String topic;
    static int partitions;
    static String feed;

    interface Part {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        feed = arguments[3];
        start("produce", Steady::produce);
        start("transact", Steady::transact);
        start("consume", Steady::consume);
    }

    static void start(String name, Part part) {
        new Thread(() -> {
            try {
                part.run();
            } catch (Exception error) {
                complain(name, error);
                System.exit(1);
            }
        }, name).start();
    }

    static KafkaProducer<String, String> producer(Map<String, Object> settings) {
        var all = new HashMap<String, Object>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    static ProducerRecord<String, String> record(int partition, long now) {
        return new ProducerRecord<>(topic, partition, null, Long.toString(now));
    }

    static void produce() throws Exception {
        var producer = producer(Map.of());
        while (true) {
            for (int number = 0; number < partitions; number++) {
                int partition = number;
                long now = System.currentTimeMillis();
                producer.send(record(partition, now), (metadata, error) -> {
                    if (error == null) {
                        say("produce", partition, now);
                    } else {
                        complain("produce", error);
                    }
                });
            }
            Thread.sleep(250);
        }
    }

    static void transact() throws Exception {
        var producer = transactional();
        while (true) {
            long began = System.currentTimeMillis();
            try {
                producer.beginTransaction();
                for (int number = 0; number < partitions; number++) {
                    producer.send(record(number, began));
                }
                commit(producer);
                say("transact", -1, began);
            } catch (KafkaException error) {
                complain("transact", error);
                try {
                    producer.abortTransaction();
                } catch (KafkaException fatal) {
                    complain("transact", fatal);
                    producer.close(Duration.ZERO);
                    producer = transactional();
                }
            }
            Thread.sleep(250);
        }
    }

    static KafkaProducer<String, String> transactional() {
        while (true) {
            var producer = producer(Map.of("transactional.id", topic));
            try {
                producer.initTransactions();
                return producer;
            } catch (KafkaException error) {
                complain("transact", error);
                producer.close(Duration.ZERO);
            }
        }
    }

    static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                complain("transact", error); // whether it is committed is not known: the same call says it
            }
        }
    }

    static void consume() {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "group.id", topic);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(feed));
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    say("consume", record.partition(), Long.parseLong(record.value()));
                }
            }
        }
    }

    static void say(String part, int partition, long sentMs) {
        System.out.println(part + " " + partition + " " + sentMs);
    }

    static void complain(String part, Exception error) {
        System.err.println(part + " " + error);
    }
}
