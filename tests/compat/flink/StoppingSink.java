import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaWriterState;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.connector.sink2.CommittableMessage;
import org.apache.flink.streaming.api.connector.sink2.SupportsPostCommitTopology;
import org.apache.flink.streaming.api.datastream.DataStream;

/** Flink's Kafka sink, which does all the work, with a stop after each pre-commit and one before each commit. */
final class StoppingSink
        implements Sink<Long>,
                SupportsCommitter<KafkaCommittable>,
                SupportsWriterState<Long, KafkaWriterState>,
                SupportsPostCommitTopology<KafkaCommittable> {
    private static final long serialVersionUID = 1;

    private final KafkaSink<Long> sink;
    private final String prefix;

    /** prefix: of the sink's transactional ids. */
    StoppingSink(KafkaSink<Long> sink, String prefix) {
        this.sink = sink;
        this.prefix = prefix;
    }

    @Override
    public Writer createWriter(WriterInitContext context) throws IOException {
        return new Writer(sink.createWriter(context), prefix);
    }

    @Override
    public Writer restoreWriter(WriterInitContext context, Collection<KafkaWriterState> states) throws IOException {
        return new Writer(sink.restoreWriter(context, states), prefix);
    }

    @Override
    public SimpleVersionedSerializer<KafkaWriterState> getWriterStateSerializer() {
        return sink.getWriterStateSerializer();
    }

    @Override
    public SimpleVersionedSerializer<KafkaCommittable> getCommittableSerializer() {
        return sink.getCommittableSerializer();
    }

    @Override
    public void addPostCommitTopology(DataStream<CommittableMessage<KafkaCommittable>> committables) {
        sink.addPostCommitTopology(committables);
    }

    @Override
    @SuppressWarnings("try")
    public Committer<KafkaCommittable> createCommitter(CommitterInitContext context) {
        Committer<KafkaCommittable> committer = sink.createCommitter(context);
        return new Committer<>() {
            @Override
            public void commit(Collection<CommitRequest<KafkaCommittable>> requests) throws IOException, InterruptedException {
                StoppingPoints.of(prefix).committing(requests.stream().map(CommitRequest::getCommittable).toList());
                List<CommitRequest<KafkaCommittable>> watched = new ArrayList<>();
                requests.forEach(request -> watched.add(watched(request)));
                committer.commit(watched);
            }

            @Override
            public void close() throws Exception {
                committer.close();
            }
        };
    }

    /** The same request, of which is written down when its records are given up; other failures have the job start again. */
    @SuppressWarnings("unchecked")
    private Committer.CommitRequest<KafkaCommittable> watched(Committer.CommitRequest<KafkaCommittable> request) {
        return (Committer.CommitRequest<KafkaCommittable>) Proxy.newProxyInstance(
                StoppingSink.class.getClassLoader(), new Class<?>[] {Committer.CommitRequest.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("signalFailedWithKnownReason")) {
                        StoppingPoints.of(prefix).givenUp.add((Throwable) arguments[0]);
                    }
                    try {
                        return method.invoke(request, arguments);
                    } catch (InvocationTargetException failed) {
                        throw failed.getCause();
                    }
                });
    }

    @SuppressWarnings("try")
    static final class Writer implements StatefulSinkWriter<Long, KafkaWriterState>, CommittingSinkWriter<Long, KafkaCommittable> {
        private final StatefulSinkWriter<Long, KafkaWriterState> writer;
        private final String prefix;

        Writer(StatefulSinkWriter<Long, KafkaWriterState> writer, String prefix) {
            this.writer = writer;
            this.prefix = prefix;
        }

        @Override
        public void write(Long number, Context context) throws IOException, InterruptedException {
            StoppingPoints.of(prefix).beforeRecord(number);
            writer.write(number, context);
        }

        @Override
        public void flush(boolean isEnd) throws IOException, InterruptedException {
            writer.flush(isEnd);
        }

        @Override
        public void writeWatermark(Watermark watermark) throws IOException, InterruptedException {
            writer.writeWatermark(watermark);
        }

        @Override
        @SuppressWarnings("unchecked")
        public Collection<KafkaCommittable> prepareCommit() throws IOException, InterruptedException {
            Collection<KafkaCommittable> committables = ((CommittingSinkWriter<Long, KafkaCommittable>) writer).prepareCommit();
            StoppingPoints.of(prefix).prepared(committables);
            return committables;
        }

        @Override
        public List<KafkaWriterState> snapshotState(long checkpoint) throws IOException {
            return writer.snapshotState(checkpoint);
        }

        @Override
        public void close() throws Exception {
            writer.close();
        }
    }
}
