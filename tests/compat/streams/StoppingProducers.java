import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;

/**
 * Producers of an application that stop, when they are asked to, with all records and offsets sent and the transaction not
 * yet committed. Two processes speak of it by the files of a folder.
 */
final class StoppingProducers extends DefaultKafkaClientSupplier {
    private final Path folder;

    StoppingProducers(Path folder) {
        this.folder = folder;
    }

    /** The next commit stops. */
    static void stopNext(Path folder) throws IOException {
        for (String left : new String[] {"stopped", "go", "committed"}) {
            Files.deleteIfExists(folder.resolve(left));
        }
        Files.createFile(folder.resolve("stop"));
    }

    static boolean isStopped(Path folder) {
        return Files.exists(folder.resolve("stopped"));
    }

    static void goOn(Path folder) throws IOException {
        Files.createFile(folder.resolve("go"));
    }

    /** Whether the commit that had stopped has succeeded. */
    static boolean isCommitted(Path folder) {
        return Files.exists(folder.resolve("committed"));
    }

    @Override
    public Producer<byte[], byte[]> getProducer(Map<String, Object> settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()) {
            @Override
            public void commitTransaction() {
                try {
                    boolean isAsked = Files.deleteIfExists(folder.resolve("stop"));
                    if (isAsked) {
                        Files.createFile(folder.resolve("stopped"));
                        while (!Files.exists(folder.resolve("go"))) {
                            Thread.sleep(5);
                        }
                    }
                    super.commitTransaction();
                    if (isAsked) {
                        Files.createFile(folder.resolve("committed"));
                    }
                } catch (IOException failed) {
                    throw new UncheckedIOException(failed);
                } catch (InterruptedException ended) {
                    throw new IllegalStateException(ended);
                }
            }
        };
    }
}
