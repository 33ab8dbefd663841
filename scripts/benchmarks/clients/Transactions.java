// Transactions of a record to each of some partitions, one after another, by some producers at once, each in a thread
// of its own. Kafka's Java client speaks version 2 of transactions to a broker that has it.
//
//     Transactions BOOTSTRAP TOPIC PARTITIONS PER_TRANSACTION PRODUCERS DURATION_MS WARM_UP_MS
//
// Prints `ready` when everything is warm, waits for `go`, prints one line of JSON: how long it took in seconds, and the
// milliseconds of each commit.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Transactions {
    private static final byte[] VALUE = new byte[100];

    private final String topic;
    private final int partitions;
    private final int perTransaction;
    private final List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();

    private Transactions(String bootstrap, String topic, int partitions, int perTransaction, int producers) {
        this.topic = topic;
        this.partitions = partitions;
        this.perTransaction = perTransaction;
        for (int number = 0; number < producers; number++) {
            Properties properties = new Properties();
            properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "bench-" + topic + "-" + number);
            properties.put(ProducerConfig.LINGER_MS_CONFIG, 0);
            properties.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 4 * 1024 * 1024);
            KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
            producer.initTransactions();
            this.producers.add(producer);
        }
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1); // the threads of the others would keep it alive
        }
    }

    private static void run(String[] arguments) throws Exception {
        Transactions transactions = new Transactions(
                arguments[0],
                arguments[1],
                Integer.parseInt(arguments[2]),
                Integer.parseInt(arguments[3]),
                Integer.parseInt(arguments[4]));
        transactions.work(Long.parseLong(arguments[6]));
        System.out.println("ready");
        System.out.flush();
        if ("go".equals(new BufferedReader(new InputStreamReader(System.in)).readLine())) {
            long begin = System.nanoTime();
            List<Double> commits = transactions.work(Long.parseLong(arguments[5]));
            double seconds = (System.nanoTime() - begin) / 1e9;
            System.out.println("{\"duration_s\": " + seconds + ", \"commits_ms\": " + commits + "}");
            System.out.flush();
        }
        for (KafkaProducer<byte[], byte[]> producer : transactions.producers) {
            producer.close();
        }
    }

    private List<Double> work(long durationMs) throws Exception {
        long deadline = System.nanoTime() + durationMs * 1_000_000;
        ExecutorService threads = Executors.newFixedThreadPool(producers.size());
        List<Future<List<Double>>> working = new ArrayList<>();
        for (int number = 0; number < producers.size(); number++) {
            int mine = number;
            Callable<List<Double>> task = () -> workOf(mine, deadline);
            working.add(threads.submit(task));
        }
        List<Double> commits = new ArrayList<>();
        for (Future<List<Double>> one : working) {
            commits.addAll(one.get());
        }
        threads.shutdown();
        return commits;
    }

    private List<Double> workOf(int number, long deadline) {
        KafkaProducer<byte[], byte[]> producer = producers.get(number);
        List<Double> commits = new ArrayList<>();
        while (System.nanoTime() < deadline) {
            producer.beginTransaction();
            for (int index = 0; index < perTransaction; index++) {
                producer.send(new ProducerRecord<>(topic, (number * perTransaction + index) % partitions, null, VALUE));
            }
            long begin = System.nanoTime();
            // The sender may take the end of the transaction for all there is to send, if it comes while it looks: the
            // broker then has nothing to commit. What is flushed before cannot be overtaken.
            producer.flush();
            producer.commitTransaction();
            commits.add((System.nanoTime() - begin) / 1e6);
        }
        return commits;
    }
}
