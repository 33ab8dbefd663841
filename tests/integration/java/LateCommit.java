// What Kafka's own Java client reports if its commit comes after the coordinator has aborted the transaction at its time-out.
// Run as a single source file: java -cp 'JARS/*' LateCommit.java BOOTSTRAP_SERVERS TOPIC. The transactional id is that of the topic; it commits once it reads a line.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class LateCommit {
    static KafkaProducer<String, String> producer(String bootstrapServers, String transactionalId) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrapServers, "transactional.id", transactionalId, "transaction.timeout.ms", 1000);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void attempt(String name, Runnable step) {
        try {
            step.run();
            System.out.println(name + ": done");
        } catch (KafkaException error) {
            System.out.println(name + ": " + error.getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        var late = producer(arguments[0], arguments[1]);
        late.beginTransaction();
        late.send(new ProducerRecord<>(arguments[1], "late"));
        late.flush();
        System.out.println("open");
        System.in.read();
        attempt("commit", late::commitTransaction);
        attempt("abort", late::abortTransaction);
        attempt("close", late::close);
        var next = producer(arguments[0], arguments[1]);
        next.beginTransaction();
        next.send(new ProducerRecord<>(arguments[1], "late, written again"));
        attempt("commit of a new producer", next::commitTransaction);
        System.exit(0);
    }
}
