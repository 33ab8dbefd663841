// Transactions of version 2 (KIP-890) as Kafka's own Java client makes them; the test around it reads what comes of them.
// Run as a single source file: java -cp 'JARS/*' VersionTwoTransactions.java BOOTSTRAP_SERVERS TOPIC

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class VersionTwoTransactions {
    static KafkaProducer<String, String> producer(String bootstrapServers) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrapServers, "transactional.id", "java");
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        var first = producer(arguments[0]);
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "committed"));
        first.send(new ProducerRecord<>(topic, 1, null, "committed"));
        first.commitTransaction();

        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "aborted"));
        first.flush();
        first.abortTransaction();

        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "before the crash"));
        first.flush();
        System.out.println("open");
        System.in.read();
        first.send(new ProducerRecord<>(topic, 1, null, "after the crash"));
        first.commitTransaction();

        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "zombie"));
        first.flush();
        var second = producer(arguments[0]);
        try {
            first.commitTransaction();
            System.out.println("the zombie committed");
        } catch (KafkaException fenced) {
            System.out.println("fenced");
        }
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 1, null, "successor"));
        second.commitTransaction();
        second.close();
        System.out.println("done");
        System.exit(0); // closing the fenced producer would wait for what it can never send
    }
}
