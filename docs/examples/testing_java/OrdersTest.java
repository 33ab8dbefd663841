import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** What no other test of a transaction can show: each test has a broker of its own, whose failures it chooses. */
@ExtendWith(FencepostExtension.class)
class OrdersTest {
    @Test
    void aZombieIsFencedAndItsRecordsStayHidden(FencepostExtension.Broker broker) {
        try (KafkaProducer<String, String> zombie = producer(broker); KafkaProducer<String, String> successor = producer(broker)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>("orders", "from the zombie"));
            zombie.flush();
            successor.initTransactions(); // the same transactional id
            assertThrows(ProducerFencedException.class, zombie::commitTransaction);
            successor.beginTransaction();
            successor.send(new ProducerRecord<>("orders", "from its successor"));
            successor.commitTransaction();
        }
        assertEquals(List.of("from its successor"), broker.values("orders", 1));
    }

    @Test
    void aCommitWhoseReplyIsLostIsCommittedOnce(FencepostExtension.Broker broker) {
        try (KafkaProducer<String, String> producer = producer(broker)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", "tea"));
            broker.disconnect("EndTxn"); // carried out, and not answered
            producer.commitTransaction(); // which asks again
        }
        assertEquals(List.of("tea"), broker.values("orders", 1));
        assertEquals("CompleteCommit", broker.transactionState("orders-1"));
    }

    @Test
    void aTransactionThatIsForgottenIsAbortedAfterSixteenMinutes(FencepostExtension.Broker broker) {
        try (KafkaProducer<String, String> producer = producer(broker)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("orders", "tea"));
            producer.flush();
            long beganNanos = System.nanoTime();
            broker.advance(Duration.ofMinutes(16)); // its time-out is fifteen
            assertEquals("CompleteAbort", broker.transactionState("orders-1"));
            System.out.printf("sixteen minutes took %d ms%n", (System.nanoTime() - beganNanos) / 1_000_000);
        }
        assertEquals(List.of(), broker.values("orders", 0));
    }

    private static KafkaProducer<String, String> producer(FencepostExtension.Broker broker) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", broker.bootstrapServers(),
            "transactional.id", "orders-1",
            "transaction.timeout.ms", 900_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
