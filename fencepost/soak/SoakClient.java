// One Java client process of the soak, with transactions of version 2: the roles of roles.py, with Kafka's own client.
// java -cp 'CLASSES:JARS/*' SoakClient NAME KIND ROLE TRANSACTIONAL_ID BOOTSTRAP_SERVERS HISTORY_PATH KINDS RATE_OF_EACH SEED TIMES
// TIMES: transaction time-out, session time-out (ms), as in plan.py. Reports and exit codes are those of client.py.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class SoakClient {
    static final int STOPPED = 0, FAILED = 1, FENCED = 3, SESSION_LOST = 4;
    static final List<String> ENDS = List.of("STOPPED", "FAILED", "", "FENCED", "SESSION_LOST");
    static final int INPUT_PARTITIONS = 3, OUTPUT_PARTITIONS = 4, RECORDS_PER_TRANSACTION = 5, POLL_RECORDS = 20, REREAD = 500;
    static final double COMMIT_SHARE = 0.8, TRANSFORMER_COMMIT_SHARE = 0.9, DAWDLING_SHARE = 0.02;
    static final long DAWDLING_MS = 1_500, REPORT_INTERVAL_MS = 500, RETRY_TIMEOUT_MS = 45_000;
    static final Duration POLL_TIMEOUT = Duration.ofMillis(200);

    /** The client must abort the transaction. */
    static class MustAbort extends RuntimeException {
        MustAbort(Throwable cause) {
            super(cause.toString(), cause);
        }
    }

    static class Fenced extends RuntimeException {
        Fenced(Throwable cause) {
            super(cause.toString(), cause);
        }
    }

    /** The producer cannot be used any more. */
    static class SessionLost extends RuntimeException {
        SessionLost(Throwable cause) {
            super(cause.toString(), cause);
        }
    }

    final String name, kind, role, transactionalId, bootstrapServers;
    final List<TopicPartition> inputs = new ArrayList<>();
    final double rate;
    final String transactionTimeoutMs, sessionTimeoutMs;
    final Random chance;
    final FileChannel history;
    final AtomicLong calls = new AtomicLong();
    final AtomicLong sent = new AtomicLong(), committed = new AtomicLong(), aborted = new AtomicLong();
    final AtomicLong unknown = new AtomicLong(), read = new AtomicLong(), steps = new AtomicLong();
    volatile boolean stop;
    KafkaProducer<String, String> producer;
    long valueNumber;
    double nextMs;

    public static void main(String[] arguments) throws Exception {
        SoakClient client = new SoakClient(arguments);
        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.stop = true;
            try {
                worker.join();
            } catch (InterruptedException error) {
                // The process ends anyway.
            }
        }));
        Thread reporting = new Thread(client::report);
        reporting.setDaemon(true);
        reporting.start();
        int exitCode = STOPPED;
        String reason = "";
        try {
            client.run();
        } catch (Fenced error) {
            exitCode = FENCED;
            reason = error.getMessage();
        } catch (SessionLost error) {
            exitCode = SESSION_LOST;
            reason = error.getMessage();
        } catch (Throwable error) {
            exitCode = FAILED;
            reason = error.toString();
            error.printStackTrace();
        }
        client.say(",\"ended\":\"" + ENDS.get(exitCode) + "\",\"reason\":" + quoted(reason));
        Runtime.getRuntime().halt(exitCode);
    }

    SoakClient(String[] arguments) throws IOException {
        name = arguments[0];
        kind = arguments[1];
        role = arguments[2];
        transactionalId = arguments[3];
        bootstrapServers = arguments[4];
        history = FileChannel.open(Path.of(arguments[5]), StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        for (String one : arguments[6].split(",")) {
            for (int partition = 0; partition < INPUT_PARTITIONS; partition++) {
                inputs.add(new TopicPartition("inputs-" + one, partition));
            }
        }
        rate = Double.parseDouble(arguments[7]);
        chance = new Random((arguments[8] + " " + name).hashCode());
        transactionTimeoutMs = arguments[9];
        sessionTimeoutMs = arguments[10];
    }

    void run() throws InterruptedException {
        String described = role.equals("verifier") ? "" : ",\"transactional_id\":" + quoted(transactionalId);
        String group = role.equals("transformer") ? ",\"group_id\":" + quoted(group()) : "";
        record("start", "ok", ",\"isolation_level\":\"read_committed\"" + described + group);
        if (role.equals("verifier")) {
            verify();
            return;
        }
        Map<String, Object> settings = common();
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", transactionTimeoutMs);
        settings.put("delivery.timeout.ms", "30000");
        settings.put("max.block.ms", "10000");
        settings.put("linger.ms", "1");
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        repeat(producer::initTransactions, true);
        if (role.equals("producer")) {
            produce();
        } else {
            transform();
        }
        producer.close(Duration.ofSeconds(5));
    }

    String group() {
        return kind + "-transformers";
    }

    Map<String, Object> common() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrapServers);
        settings.put("request.timeout.ms", "15000");
        settings.put("reconnect.backoff.max.ms", "1000");
        return settings;
    }

    void produce() throws InterruptedException {
        while (!stop) {
            pace();
            try {
                begin();
                int count = 1 + chance.nextInt(RECORDS_PER_TRANSACTION);
                for (int index = 0; index < count; index++) {
                    send(inputs.get(chance.nextInt(inputs.size())), null);
                    dawdle();
                }
                if (chance.nextDouble() < COMMIT_SHARE) {
                    commit();
                    continue;
                }
                // Without the flush an abort drops unsent records, and the log has no aborted records to hide from readers.
                producer.flush();
            } catch (MustAbort error) {
                // the abort follows
            }
            abort();
        }
    }

    void transform() throws InterruptedException {
        Map<String, Object> settings = common();
        settings.put("group.id", group());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("session.timeout.ms", sessionTimeoutMs);
        settings.put("heartbeat.interval.ms", "1000");
        settings.put("max.poll.records", String.valueOf(POLL_RECORDS));
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("inputs-" + kind), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                List<String> assigned = partitions.stream().map(one -> position(one, null)).collect(Collectors.toList());
                record("assign", "ok", ",\"partitions\":[" + String.join(",", assigned) + "]");
            }
        });
        while (!stop) {
            List<ConsumerRecord<String, String>> records = poll(consumer);
            if (records.isEmpty()) {
                continue;
            }
            pace();
            Map<TopicPartition, Long> first = new LinkedHashMap<>();
            Map<TopicPartition, OffsetAndMetadata> following = new LinkedHashMap<>();
            for (var one : records) {
                TopicPartition partition = new TopicPartition(one.topic(), one.partition());
                first.putIfAbsent(partition, one.offset());
                following.put(partition, new OffsetAndMetadata(one.offset() + 1));
            }
            try {
                begin();
                for (var one : records) {
                    send(new TopicPartition("outputs", chance.nextInt(OUTPUT_PARTITIONS)), one.value());
                }
                dawdle();
                sendOffsets(following, consumer);
                if (chance.nextDouble() < TRANSFORMER_COMMIT_SHARE) {
                    commit();
                    continue;
                }
                // Without the flush an abort drops unsent records, and the log has no aborted records to hide from readers.
                producer.flush();
            } catch (MustAbort error) {
                // the abort follows
            }
            abort();
            first.keySet().retainAll(consumer.assignment());
            if (!first.isEmpty()) {
                List<String> positions = new ArrayList<>();
                first.forEach((partition, offset) -> {
                    consumer.seek(partition, offset);
                    positions.add(position(partition, offset));
                });
                record("seek", "ok", ",\"partitions\":[" + String.join(",", positions) + "]");
            }
        }
        consumer.close();
    }

    void verify() {
        Map<String, Object> settings = common();
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", String.valueOf(POLL_RECORDS));
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        List<TopicPartition> chosen = new ArrayList<>(inputs);
        for (int partition = 0; partition < OUTPUT_PARTITIONS; partition++) {
            chosen.add(new TopicPartition("outputs", partition));
        }
        Collections.shuffle(chosen, chance);
        List<TopicPartition> partitions = chosen.subList(0, chosen.size() / 2);
        Map<TopicPartition, Long> ends = new HashMap<>();
        repeat(() -> ends.putAll(consumer.endOffsets(partitions)), true);
        List<String> positions = new ArrayList<>();
        consumer.assign(partitions);
        ends.forEach((partition, end) -> {
            long offset = Math.max(0, end - chance.nextInt(REREAD + 1));
            consumer.seek(partition, offset);
            positions.add(position(partition, offset));
        });
        record("assign", "ok", ",\"partitions\":[" + String.join(",", positions) + "]");
        while (!stop) {
            poll(consumer);
        }
        consumer.close();
    }

    List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(POLL_TIMEOUT).forEach(records::add);
        steps.incrementAndGet();
        if (!records.isEmpty()) {
            read.addAndGet(records.size());
            record("poll", "ok", records.stream()
                    .map(one -> "[" + quoted(one.topic()) + "," + one.partition() + "," + one.offset() + "," + quoted(one.value()) + "]")
                    .collect(Collectors.joining(",", ",\"records\":[", "]")));
        }
        return records;
    }

    // The producer's calls, written to the history

    void begin() {
        try {
            producer.beginTransaction();
        } catch (ProducerFencedException error) {
            throw new Fenced(error);
        } catch (KafkaException | IllegalStateException error) {
            throw isFenced(error) ? new Fenced(error) : new SessionLost(error);
        }
        record("begin", "ok", "");
    }

    void send(TopicPartition partition, String input) {
        String value = name + ":" + valueNumber++;
        String inputs = input == null ? "" : ",\"inputs\":[" + quoted(input) + "]";
        long call = invoke("send", ",\"topic\":" + quoted(partition.topic()) + ",\"value\":" + quoted(value)
                + ",\"partition\":" + partition.partition() + inputs);
        // The producer may throw for a record that it has accepted, and then call the callback for it as well.
        AtomicBoolean isKnown = new AtomicBoolean();
        try {
            producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), null, value), (metadata, error) -> {
                if (isKnown.getAndSet(true)) {
                    return;
                }
                if (error == null) {
                    record("send", "ok", ",\"call\":" + call + ",\"offset\":" + metadata.offset());
                } else {
                    // The log may have the record of a failed delivery; an abort then hides it.
                    unknown("send", call, error);
                }
            });
        } catch (KafkaException | IllegalStateException error) {
            throw isKnown.getAndSet(true) ? meaning("send", error) : sorted("send", call, error);
        }
        sent.incrementAndGet();
    }

    void sendOffsets(Map<TopicPartition, OffsetAndMetadata> offsets, KafkaConsumer<String, String> consumer) {
        List<String> positions = new ArrayList<>();
        offsets.forEach((partition, offset) -> positions.add(position(partition, offset.offset())));
        long call = invoke("send_offsets", ",\"group_id\":" + quoted(group()) + ",\"offsets\":[" + String.join(",", positions) + "]");
        try {
            repeat(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()), false);
        } catch (KafkaException | IllegalStateException error) {
            throw sorted("send_offsets", call, error);
        }
        record("send_offsets", "ok", ",\"call\":" + call);
    }

    void commit() {
        long call = invoke("commit", "");
        try {
            repeat(producer::commitTransaction, false);
        } catch (KafkaException | IllegalStateException error) {
            RuntimeException meaning = sorted("commit", call, error);
            if (!(meaning instanceof MustAbort)) {
                unknown.incrementAndGet();
            }
            throw meaning;
        }
        record("commit", "ok", ",\"call\":" + call);
        committed.incrementAndGet();
    }

    void abort() {
        long call = invoke("abort", "");
        try {
            repeat(producer::abortTransaction, false);
        } catch (KafkaException | IllegalStateException error) {
            unknown.incrementAndGet();
            RuntimeException meaning = sorted("abort", call, error);
            throw meaning instanceof MustAbort ? new SessionLost(error) : meaning;
        }
        record("abort", "ok", ",\"call\":" + call);
        aborted.incrementAndGet();
    }

    /** Repeats a call until its outcome is known. Throws SessionLost after RETRY_TIMEOUT_MS, and for every error if isStart. */
    void repeat(Runnable call, boolean isStart) {
        long deadlineMs = System.currentTimeMillis() + RETRY_TIMEOUT_MS;
        while (true) {
            try {
                call.run();
                steps.incrementAndGet();
                return;
            } catch (TimeoutException error) {
                steps.incrementAndGet();
                if (System.currentTimeMillis() > deadlineMs || (isStart && stop)) {
                    throw new SessionLost(error);
                }
            } catch (KafkaException | IllegalStateException error) {
                if (isStart) {
                    throw isFenced(error) ? new Fenced(error) : new SessionLost(error);
                }
                throw error;
            }
        }
    }

    RuntimeException sorted(String operation, long call, RuntimeException error) {
        unknown(operation, call, error);
        return meaning(operation, error);
    }

    static RuntimeException meaning(String operation, RuntimeException error) {
        if (isFenced(error)) {
            return new Fenced(error);
        }
        // The broker refused a batch for its epoch: the abort shows whether the session is lost.
        boolean isRefused = error instanceof InvalidProducerEpochException && !operation.equals("abort");
        boolean isLost = !isRefused && (error instanceof IllegalStateException || error instanceof ApplicationRecoverableException);
        return isLost ? new SessionLost(error) : new MustAbort(error);
    }

    static boolean isFenced(Throwable error) {
        for (Throwable one = error; one != null; one = one.getCause()) {
            if (one instanceof ProducerFencedException) {
                return true;
            }
        }
        return false;
    }

    void pace() throws InterruptedException {
        double nowMs = System.nanoTime() / 1e6, intervalMs = 1000 / rate;
        nextMs = Math.max(nextMs, nowMs - intervalMs) + intervalMs * (0.5 + chance.nextDouble());
        pause((long) Math.max(0, nextMs - nowMs));
    }

    void dawdle() throws InterruptedException {
        if (chance.nextDouble() < DAWDLING_SHARE) {
            pause((long) (chance.nextDouble() * DAWDLING_MS));
        }
    }

    void pause(long durationMs) throws InterruptedException {
        if (!stop) {
            Thread.sleep(durationMs);
        }
    }

    // The history and the reports

    long invoke(String operation, String fields) {
        long call = calls.incrementAndGet();
        record(operation, "invoke", ",\"call\":" + call + fields);
        return call;
    }

    void unknown(String operation, long call, Exception error) {
        record(operation, "unknown", ",\"call\":" + call + ",\"error\":" + quoted(String.valueOf(error)));
    }

    synchronized void record(String operation, String type, String fields) {
        String line = "{\"time_ms\":" + System.currentTimeMillis() + ",\"client\":" + quoted(name) + ",\"operation\":\"" + operation
                + "\",\"type\":\"" + type + "\"" + fields + "}\n";
        ByteBuffer bytes = ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8));
        try {
            while (bytes.hasRemaining()) {
                history.write(bytes);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static String position(TopicPartition partition, Long offset) {
        return "[" + quoted(partition.topic()) + "," + partition.partition() + "," + offset + "]";
    }

    static String quoted(String text) {
        StringBuilder result = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                result.append('\\').append(one);
            } else if (one < ' ') {
                result.append(String.format("\\u%04x", (int) one));
            } else {
                result.append(one);
            }
        }
        return result.append('"').toString();
    }

    void report() {
        try {
            while (!stop) {
                Thread.sleep(REPORT_INTERVAL_MS);
                say("");
            }
        } catch (InterruptedException error) {
            // The process ends.
        }
    }

    synchronized void say(String more) {
        System.out.println("{\"sent\":" + sent + ",\"committed\":" + committed + ",\"aborted\":" + aborted + ",\"unknown\":" + unknown
                + ",\"read\":" + read + ",\"steps\":" + steps + more + "}");
        System.out.flush();
    }
}
