import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/** What a broker has stored about a transactional id, read by Kafka's own classes. */
final class StoredTransactions {
    private static final String TOPIC = "__transaction_state";

    private StoredTransactions() {}

    /**
     * One record: its state, pairs and partitions. A pair is `id:epoch`, with the id relative to `producerId`: 0 is that id,
     * and -1 none.
     */
    record Row(int state, String pair, String previous, String next, int timeoutMs, List<String> partitions) {}

    /** The records about an id, oldest first. The check fails if Kafka's class does not read one whole, or writes it otherwise. */
    static List<Row> of(Check check, String id, long producerId) {
        Map<String, Object> settings = Clients.settings(check, "exclude.internal.topics", false);
        List<Row> rows = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = consumer.partitionsFor(TOPIC).stream()
                    .map(one -> new TopicPartition(one.topic(), one.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(Clients.POLL).forEach(record -> {
                    if (record.value() != null && idOf(record).equals(id)) {
                        rows.add(row(check, record.value(), producerId));
                    }
                });
            }
        }
        return rows;
    }

    private static String idOf(ConsumerRecord<byte[], byte[]> record) {
        ByteBuffer key = ByteBuffer.wrap(record.key());
        return new TransactionLogKey(new ByteBufferAccessor(key), key.getShort()).transactionalId();
    }

    private static Row row(Check check, byte[] stored, long producerId) {
        ByteBuffer buffer = ByteBuffer.wrap(stored);
        short version = buffer.getShort();
        var value = new TransactionLogValue(new ByteBufferAccessor(buffer), version);
        check.equal("bytes that are left of a record", buffer.remaining(), 0);
        check.equal("fields that Kafka does not know", value.unknownTaggedFields(), List.of());
        check.isTrue("Kafka writes the same bytes: " + hexadecimal(stored),
                Arrays.equals(MessageUtil.toVersionPrefixedBytes(version, value), stored));
        List<String> partitions = new ArrayList<>();
        if (value.transactionPartitions() != null) {
            for (var topic : value.transactionPartitions()) {
                topic.partitionIds().forEach(partition -> partitions.add(topic.topic() + "-" + partition));
            }
        }
        return new Row(value.transactionStatus(), pair(value.producerId(), value.producerEpoch(), producerId),
                String.valueOf(relative(value.previousProducerId(), producerId)),
                pair(value.nextProducerId(), value.nextProducerEpoch(), producerId), value.transactionTimeoutMs(), partitions);
    }

    private static String pair(long id, int epoch, long producerId) {
        return relative(id, producerId) + ":" + epoch;
    }

    private static long relative(long id, long producerId) {
        return id < 0 ? id : id - producerId;
    }

    private static String hexadecimal(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
