import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer that asks for two-phase commits. kafka-clients 4.4 has all of it but the last step: its transaction manager
 * never sets the two flags of InitProducerId 6, does not negotiate that version, and sends no EndTxn for what it has kept.
 */
final class KeepingProducer extends KafkaProducer<String, String> {
    private static final long PATIENCE_S = 30;

    private final TransactionManager manager;

    KeepingProducer(Map<String, Object> settings) {
        super(settings, new StringSerializer(), new StringSerializer());
        manager = (TransactionManager) get(KafkaProducer.class, this, "transactionManager");
        set(ApiMessageType.class, ApiMessageType.INIT_PRODUCER_ID, "latestVersionUnstable", false);
    }

    /** As `initTransactions(boolean keepPreparedTransaction)` of KIP-939. */
    void initTransactions(boolean keeps) {
        var result = begin(keeps);
        call(get(KafkaProducer.class, this, "sender"), "wakeup");
        result.await(PATIENCE_S, TimeUnit.SECONDS, "InitProducerId");
        // As KafkaProducer.initTransactions: what the broker's features allow decides on the transaction version.
        call(manager, "maybeUpdateTransactionV2Enabled", true);
        if (kept().hasTransaction()) {
            set(TransactionManager.class, manager, "transactionStarted", true);
        }
    }

    private org.apache.kafka.clients.producer.internals.TransactionalRequestResult begin(boolean keeps) {
        synchronized (manager) {
            var result = manager.initializeTransactions(keeps);
            for (Object handler : (PriorityQueue<?>) get(TransactionManager.class, manager, "pendingRequests")) {
                if (handler.getClass().getSimpleName().equals("InitProducerIdHandler")) {
                    var builder = (InitProducerIdRequest.Builder) get(handler.getClass(), handler, "builder");
                    builder.data.setEnable2Pc(true).setKeepPreparedTxn(keeps);
                }
            }
            return result;
        }
    }

    /** As `prepareTransaction()` of KIP-939: everything is acknowledged; returns the pair by which it can be ended. */
    Pair prepare() {
        flush();
        manager.prepareTransaction();
        return kept();
    }

    /** The transaction that is prepared here; that of an earlier session if it was kept. */
    Pair kept() {
        var pair = manager.preparedTransactionState();
        return new Pair(pair.producerId, pair.epoch);
    }

    record Pair(long producerId, int epoch) {
        boolean hasTransaction() {
            return producerId >= 0;
        }
    }

    private static Object get(Class<?> kind, Object from, String name) {
        try {
            return accessible(kind, name).get(from);
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private static void set(Class<?> kind, Object in, String name, boolean value) {
        try {
            accessible(kind, name).setBoolean(in, value);
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private static Field accessible(Class<?> kind, String name) throws ReflectiveOperationException {
        Field field = kind.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    private static void call(Object on, String name, Object... arguments) {
        try {
            for (Method method : on.getClass().getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                    method.setAccessible(true);
                    method.invoke(on, arguments);
                    return;
                }
            }
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
        throw new AssertionError(on.getClass() + " has no " + name);
    }
}
