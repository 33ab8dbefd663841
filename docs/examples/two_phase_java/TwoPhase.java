import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.KafkaAdminClient;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.internals.AdminApiFuture;
import org.apache.kafka.clients.admin.internals.AdminApiHandler;
import org.apache.kafka.clients.admin.internals.AdminApiLookupStrategy;
import org.apache.kafka.clients.admin.internals.ApiRequestScope;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.message.EndTxnRequestData;
import org.apache.kafka.common.message.FindCoordinatorRequestData;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.requests.FindCoordinatorResponse;
import org.apache.kafka.common.serialization.Serializer;

/**
 * One commit over a PostgreSQL database and a topic: a session of one transactional id, by version 1 of the table
 * {@code fencepost_prepared}. A session, its connection and its transactions belong to one thread at a time.
 *
 * <p>It owns its producer. Nobody else can end a transaction of it, and it aborts none that the database has committed,
 * or may have: {@code close} leaves such a transaction to the next session.
 */
public final class TwoPhase<K, V> implements AutoCloseable {
    static final String TABLE = "CREATE TABLE IF NOT EXISTS fencepost_prepared "
            + "(transactional_id text PRIMARY KEY, generation bigint NOT NULL, token text)";

    /** Makes the commit of its transaction durable, also in a database that is set to less. */
    private static final String DURABLE =
            "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') "
            + "THEN set_config('synchronous_commit', 'on', true) END";
    private static final String CLAIM = "INSERT INTO fencepost_prepared AS prepared (transactional_id, generation) "
            + "VALUES (?, 1) ON CONFLICT (transactional_id) DO UPDATE SET generation = prepared.generation + 1 "
            + "RETURNING generation, token, " + DURABLE;
    private static final String HOLD =
            "SELECT generation, token FROM fencepost_prepared WHERE transactional_id = ? FOR UPDATE";
    private static final String LOOK = "SELECT generation, token FROM fencepost_prepared WHERE transactional_id = ?";
    /** Fails while a commit of the row is under way, on whichever connection. */
    private static final String LOOK_ALONE = LOOK + " FOR UPDATE NOWAIT";
    /** As LOOK, and marks the database's transaction until it ends. */
    private static final String BEGIN = "SELECT generation, token, set_config('fencepost.transaction', 'begun', true) "
            + "FROM fencepost_prepared WHERE transactional_id = ?";
    private static final String MARKED = " AND current_setting('fencepost.transaction', true) = 'begun'";
    private static final String UPDATE =
            "UPDATE fencepost_prepared SET token = ? WHERE transactional_id = ? AND generation = ?";
    private static final String RETURNING = " RETURNING " + DURABLE;

    private final Connection connection;
    private final Coordinator coordinator;
    private final KafkaProducer<K, V> producer;
    private final String transactionalId;
    private long generation;
    /** The pair of the last transaction that was this session's. */
    private Token latest;
    private boolean isOver;
    private boolean isInside;

    /** The changes and records of one transaction. */
    @FunctionalInterface
    public interface Work<K, V> {
        void run(Sender<K, V> sender) throws Exception;
    }

    /** Sends a record in the transaction. */
    @FunctionalInterface
    public interface Sender<K, V> {
        void send(ProducerRecord<K, V> record);
    }

    /** Create the table unless it is there, and commit that. */
    public static void createTable(Connection connection) throws SQLException {
        try (var statement = connection.createStatement()) {
            statement.execute(TABLE);
        }
        if (!connection.getAutoCommit()) {
            connection.commit();
        }
    }

    /**
     * Begin the session: fence the earlier ones, commit the transaction whose token the database has, and abort any other.
     *
     * @param connection to PostgreSQL, with no transaction in progress; its autocommit is turned off
     * @param settings   of the producer, with {@code transactional.id}; the admin client takes those that it has, too
     */
    public static <K, V> TwoPhase<K, V> start(
            Connection connection, Map<String, Object> settings, Serializer<K> keys, Serializer<V> values)
            throws SQLException {
        connection.setAutoCommit(false);
        var session = new TwoPhase<>(connection, settings, keys, values);
        try {
            session.start();
            return session;
        } catch (Throwable error) {
            session.rollBack();
            session.close();
            throw error;
        }
    }

    private TwoPhase(Connection connection, Map<String, Object> settings, Serializer<K> keys, Serializer<V> values) {
        this.connection = connection;
        transactionalId = String.valueOf(settings.get(ProducerConfig.TRANSACTIONAL_ID_CONFIG));
        producer = new KafkaProducer<>(settings, keys, values); // refuses settings without an id in `initTransactions`
        coordinator = new Coordinator(settings);
    }

    private void start() throws SQLException {
        coordinator.describe(transactionalId); // a client that the brokers refuse must fence nobody
        Token found = claim();
        if (found != null) {
            coordinator.end(found, true);
            update(null, false);
            connection.commit();
        }
        hold();
        coordinator.guard(transactionalId, withNothingOpen());
        holdAgain();
        try {
            producer.initTransactions();
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            throw new Fenced("another session of " + transactionalId + " has an open transaction: end this one");
        }
        holdAgain();
        latest = Token.of(coordinator.describe(transactionalId), transactionalId);
        connection.rollback();
    }

    /** Abort what an earlier session has left open, by its pair. Returns the id's description; null if it has none. */
    private TransactionDescription withNothingOpen() throws SQLException {
        Instant giveUpAt = Instant.now().plusMillis(Coordinator.TIMEOUT_MS);
        while (true) {
            TransactionDescription described = coordinator.describe(transactionalId);
            holdAgain();
            if (!isOpen(described)) {
                return described;
            }
            if (Instant.now().isAfter(giveUpAt)) {
                throw new TimeoutException("the transaction of " + transactionalId + " stays " + described.state());
            }
            if (described.state() == TransactionState.ONGOING) {
                try {
                    coordinator.end(Token.of(described, transactionalId), false);
                } catch (HeuristicOutcome | Superseded ended) {
                    continue; // somebody else has ended it: look again
                }
            } else {
                pause();
            }
        }
    }

    private static boolean isOpen(TransactionDescription described) {
        return described != null && Set.of(TransactionState.ONGOING, TransactionState.PREPARE_ABORT,
                TransactionState.PREPARE_COMMIT).contains(described.state());
    }

    /**
     * Commit what the work changes on the connection and what it sends, both or neither. It must not commit or roll back.
     *
     * <p>An exception of the work, in preparing or in the database's commit leaves nothing on either side, and is thrown.
     * After Fenced, InDoubt, NeedsRecovery, HeuristicOutcome and Superseded this session is over.
     */
    public void transaction(Work<K, V> work) throws Exception {
        if (isOver || isInside) {
            throw new IllegalStateException(
                    isInside ? "a transaction is open already" : "the session is over: start another one");
        }
        isInside = true;
        try {
            begin();
            Token token;
            try {
                var sending = new Sending();
                try {
                    work.run(sending);
                } finally {
                    sending.isOver = true;
                }
                token = prepare(sending);
                record(token);
            } catch (Throwable error) {
                abandon();
                throw error;
            }
            commit(token);
        } finally {
            isInside = false;
        }
    }

    /** Leaves a transaction that is open: the database decides about it, and the next session does as it says. */
    @Override
    public void close() {
        isOver = true;
        producer.close(Duration.ZERO); // with more time it would abort an open transaction
        coordinator.close();
    }

    private final class Sending implements Sender<K, V> {
        private final AtomicReference<Exception> refused = new AtomicReference<>();
        private boolean hasSent;
        private volatile boolean isOver;

        @Override
        public void send(ProducerRecord<K, V> record) {
            if (isOver) {
                throw new IllegalStateException("this sender's work has returned: its records were counted");
            }
            hasSent = true;
            try {
                producer.send(record, (metadata, error) -> refused.compareAndSet(null, error));
            } catch (RuntimeException error) {
                refused.compareAndSet(null, error); // also if the work goes on
                throw error;
            }
        }
    }

    private void begin() throws SQLException {
        try {
            Row row = query(BEGIN);
            requireOurs(row);
            if (row.token != null) {
                throw over(new NeedsRecovery("the database has committed " + row.token
                        + ", and nobody knows yet whether its records are: start another session", row.token, null));
            }
        } catch (Throwable error) {
            rollBack();
            throw error;
        }
        try {
            producer.beginTransaction();
        } catch (RuntimeException error) {
            rollBack();
            throw over(new NeedsRecovery("the producer cannot begin: start another session", null, error));
        }
    }

    /** Returns the token of what was sent; null if nothing was. */
    private Token prepare(Sending sending) throws SQLException {
        producer.flush();
        if (sending.refused.get() != null) {
            throw new NotPrepared("a record was refused", sending.refused.get());
        }
        if (!sending.hasSent) {
            return null;
        }
        TransactionDescription described = coordinator.describe(transactionalId);
        if (described != null && described.state() == TransactionState.ONGOING) {
            Token token = Token.of(described, transactionalId);
            if (token.follows(latest)) {
                latest = token;
                return token;
            }
        }
        requireOurs(query(LOOK));
        throw new NotPrepared("the transaction was ended meanwhile, or its id is another producer's, too", null);
    }

    private void record(Token token) throws SQLException {
        if (update(token, true)) {
            return;
        }
        requireOurs(query(LOOK));
        throw new IllegalStateException("the work has ended the database's transaction: leave that to the session");
    }

    private void commit(Token token) throws SQLException {
        try {
            connection.commit();
        } catch (Throwable error) {
            if (token != null && !isRolledBack()) {
                throw over(new InDoubt("the database did not say whether it has committed " + token
                        + ": nothing was ended; start another session", token, error));
            }
            abandon();
            throw error;
        }
        try {
            producer.commitTransaction();
        } catch (RuntimeException error) {
            throw over(token == null
                    ? new NeedsRecovery("the producer cannot go on: start another session", null, error)
                    : ended(token, error));
        }
        if (token != null) {
            try {
                requireOurs(update(null, false));
                connection.commit();
            } catch (SQLException | Fenced error) {
                rollBack();
                throw over(new NeedsRecovery(token + " is committed on both sides, but the database did not note that "
                        + "it is done: start another session", token, error));
            }
        }
    }

    /** Commit what the producer could not: returns what to throw. */
    private Failure ended(Token token, RuntimeException error) {
        try {
            coordinator.end(token, true);
        } catch (Superseded left) {
            return hasSuccessor()
                    ? new NeedsRecovery("the database has committed " + token + ", and a later session, which has claimed "
                            + "its id, was to commit its records", token, left)
                    : left;
        } catch (HeuristicOutcome differs) {
            return differs;
        } catch (KafkaException left) {
            return new NeedsRecovery("the database has committed " + token + ", but its records wait for a coordinator: "
                    + "start another session, which commits them", token, left);
        }
        return new NeedsRecovery(
                token + " is committed on both sides, but its producer cannot go on: start another session", token, error);
    }

    private void abandon() {
        rollBack();
        try {
            producer.abortTransaction();
            latest = Token.of(coordinator.describe(transactionalId), transactionalId);
        } catch (RuntimeException error) {
            isOver = true; // the next session aborts it
        }
    }

    private <T extends Failure> T over(T failure) {
        isOver = true;
        return failure;
    }

    // The database

    private record Row(long generation, Token token) {
        static Row of(ResultSet found) throws SQLException {
            String text = found.getString(2);
            return new Row(found.getLong(1), text == null ? null : Token.parse(text));
        }
    }

    private Token claim() throws SQLException {
        Row claimed = query(CLAIM);
        generation = claimed.generation;
        connection.commit(); // from now on no earlier session can write a token
        return claimed.token;
    }

    private void hold() throws SQLException {
        requireOurs(query(HOLD));
    }

    /** Check that the database has not ended the hold, and that nobody has claimed the id since. */
    private void holdAgain() throws SQLException {
        connection.rollback();
        hold();
    }

    private Row query(String statement) throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            prepared.setString(1, transactionalId);
            try (ResultSet found = prepared.executeQuery()) {
                if (!found.next()) {
                    throw new IllegalStateException(transactionalId + " was never claimed in this database");
                }
                return Row.of(found);
            }
        }
    }

    /** Write the token, or remove it; false if another session has claimed the id, or the mark is gone. */
    private boolean update(Token token, boolean isMarked) throws SQLException {
        try (PreparedStatement prepared =
                connection.prepareStatement(UPDATE + (isMarked ? MARKED : "") + RETURNING)) {
            prepared.setString(1, token == null ? null : token.toString());
            prepared.setString(2, transactionalId);
            prepared.setLong(3, generation);
            try (ResultSet found = prepared.executeQuery()) {
                return found.next();
            }
        }
    }

    private void requireOurs(Row row) {
        requireOurs(row.generation == generation);
    }

    private void requireOurs(boolean isOurs) {
        if (!isOurs) {
            throw over(new Fenced("another session has claimed " + transactionalId + ": end this one"));
        }
    }

    /** After a commit that failed: whether the database answers, and has no token. */
    private boolean isRolledBack() {
        try {
            connection.rollback();
            Row row = query(LOOK_ALONE);
            return row.generation == generation && row.token == null;
        } catch (SQLException | RuntimeException noAnswer) {
            return false;
        } finally {
            rollBack();
        }
    }

    private boolean hasSuccessor() {
        try {
            return query(LOOK).generation != generation;
        } catch (SQLException | RuntimeException noAnswer) {
            return false;
        } finally {
            rollBack();
        }
    }

    private void rollBack() {
        try {
            connection.rollback();
        } catch (SQLException lost) {
            // the database rolls back for a connection that is lost
        }
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new InterruptException(error);
        }
    }

    /** A prepared transaction: enough to end it, from any process. As text {@code 7:0:order-service-1}. */
    public record Token(long producerId, int epoch, String transactionalId) {
        public Token {
            if (producerId < 0 || epoch < 0 || epoch > Short.MAX_VALUE || transactionalId.isEmpty()) {
                throw new IllegalArgumentException("no token: " + producerId + ":" + epoch + ":" + transactionalId);
            }
        }

        public static Token parse(String text) {
            String[] parts = text.split(":", 3);
            try {
                var token = new Token(Long.parseLong(parts[0]), Integer.parseInt(parts[1]), parts[2]);
                if (token.toString().equals(text)) {
                    return token;
                }
            } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException other) {
                // as below
            }
            throw new IllegalArgumentException("expected PRODUCER_ID:EPOCH:TRANSACTIONAL_ID, got " + text);
        }

        static Token of(TransactionDescription described, String transactionalId) {
            return new Token(described.producerId(), described.producerEpoch(), transactionalId);
        }

        /**
         * Whether this is the pair of the next transaction of a session: the same, or in transaction version 2 the next
         * epoch, or a new producer id behind the last epoch. Another producer's epoch is higher by two or more: to begin
         * it has aborted our open transaction, and been initialised.
         */
        boolean follows(Token before) {
            return before.producerId == producerId
                    ? epoch == before.epoch || epoch == before.epoch + 1
                    : before.epoch >= Short.MAX_VALUE - 2;
        }

        @Override
        public String toString() {
            return producerId + ":" + epoch + ":" + transactionalId;
        }
    }

    /**
     * The transaction coordinators of a cluster. kafka-clients has no public way to end a transaction of another process,
     * so this sends requests of its own through the admin client, which finds the coordinator, retries and logs in.
     */
    static final class Coordinator implements AutoCloseable {
        private static final int TIMEOUT_MS = 60_000;
        private static final int GUARD_TIMEOUT_MS = 10_000;
        private static final int GUARD_TAG = 10_000;
        private static final Set<Errors> NOT_CURRENT = Set.of(
                Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_ID_MAPPING, Errors.PRODUCER_FENCED);

        private final Admin admin;

        Coordinator(Map<String, Object> ofProducer) {
            var settings = new HashMap<>(ofProducer);
            settings.keySet().retainAll(AdminClientConfig.configNames());
            admin = Admin.create(settings);
        }

        /** Returns null for an id that is not known. */
        TransactionDescription describe(String transactionalId) {
            try {
                return admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
            } catch (ExecutionException error) {
                if (error.getCause() instanceof TransactionalIdNotFoundException) {
                    return null;
                }
                throw cause(error);
            } catch (InterruptedException error) {
                throw interrupted(error);
            }
        }

        /** End the transaction of a token, and return when its outcome is certain. May be repeated. */
        void end(Token token, boolean commits) {
            var data = new EndTxnRequestData().setTransactionalId(token.transactionalId)
                    .setProducerId(token.producerId).setProducerEpoch((short) token.epoch).setCommitted(commits);
            // Version 5 is for clients of transaction version 2 alone; 4 ends transactions of either.
            Errors error = send(token.transactionalId, ApiKeys.END_TXN, 1, 4, data);
            if (error == Errors.NONE) {
                return;
            }
            if (error != Errors.INVALID_TXN_STATE && !NOT_CURRENT.contains(error)) {
                throw error.exception("the coordinator refused to end " + token);
            }
            TransactionDescription described = describe(token.transactionalId);
            Optional<Boolean> isCommitted = outcome(described, token);
            boolean hadNoRecords = described != null && described.state() == TransactionState.EMPTY
                    && Token.of(described, token.transactionalId).equals(token);
            if (hadNoRecords || isCommitted.equals(Optional.of(commits))) {
                return;
            }
            if (isCommitted.isEmpty() && error != Errors.INVALID_TXN_STATE) {
                throw new Superseded(token + " is not the current transaction of its id (" + error
                        + "), and nobody can tell its outcome any more: compare both sides", token);
            }
            throw new HeuristicOutcome(token + " should be " + (commits ? "committed" : "aborted")
                    + ", but its coordinator has ended it the other way: compare both sides, and mend one", token);
        }

        /** Whether a token's transaction was committed; empty if it is open, or if nobody can tell any more. */
        private static Optional<Boolean> outcome(TransactionDescription described, Token token) {
            if (described == null || described.producerId() != token.producerId) {
                return Optional.empty();
            }
            int later = described.producerEpoch() - token.epoch; // version 2 raises the epoch with the end
            return switch (described.state()) {
                case PREPARE_COMMIT, COMPLETE_COMMIT -> later == 0 || later == 1 ? Optional.of(true) : Optional.empty();
                case PREPARE_ABORT, COMPLETE_ABORT -> later == 0 || later == 1 ? Optional.of(false) : Optional.empty();
                default -> Optional.empty();
            };
        }

        /**
         * Begin a session of an id that has no open transaction, under its current pair. From then on a Fencepost refuses
         * any InitProducerId without the current pair that would abort a transaction; other brokers do not know that
         * part of the request.
         */
        void guard(String transactionalId, TransactionDescription described) {
            var data = new InitProducerIdRequestData().setTransactionalId(transactionalId)
                    .setTransactionTimeoutMs(GUARD_TIMEOUT_MS)
                    .setProducerId(described == null ? -1 : described.producerId())
                    .setProducerEpoch(described == null ? -1 : (short) described.producerEpoch());
            data.unknownTaggedFields().add(new RawTaggedField(GUARD_TAG, new byte[] {1}));
            Errors error = send(transactionalId, ApiKeys.INIT_PRODUCER_ID, 3, 5, data);
            if (NOT_CURRENT.contains(error)) {
                throw new Fenced("another session of " + transactionalId + " has begun meanwhile: end this one");
            }
            if (error != Errors.NONE) {
                throw error.exception("the coordinator refused to begin a session of " + transactionalId);
            }
        }

        @Override
        public void close() {
            admin.close(Duration.ZERO);
        }

        /** Send a request to the coordinator of an id, and again while its error passes by itself. Returns the error. */
        private Errors send(String transactionalId, ApiKeys key, int oldest, int latest, ApiMessage data) {
            var asked = Set.of(transactionalId);
            var answer = AdminApiFuture.<String, Errors>forKeys(asked);
            try {
                // The one step that is not public.
                Method invoke = KafkaAdminClient.class.getDeclaredMethod(
                        "invokeDriver", AdminApiHandler.class, AdminApiFuture.class, Integer.class);
                invoke.setAccessible(true);
                invoke.invoke(admin, new Asked(key, (short) oldest, (short) latest, data), answer, TIMEOUT_MS);
                return answer.get(transactionalId).get();
            } catch (ExecutionException error) {
                throw cause(error);
            } catch (InterruptedException error) {
                throw interrupted(error);
            } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException error) {
                throw new IllegalStateException("this kafka-clients has another admin client", error);
            }
        }

        private static RuntimeException cause(ExecutionException error) {
            return error.getCause() instanceof RuntimeException cause ? cause : new KafkaException(error.getCause());
        }

        private static RuntimeException interrupted(InterruptedException error) {
            Thread.currentThread().interrupt();
            return new InterruptException(error);
        }
    }

    /** One request to a transaction coordinator, whose answer is an error code. */
    private record Asked(ApiKeys key, short oldest, short latest, ApiMessage data)
            implements AdminApiHandler<String, Errors> {
        @Override
        public String apiName() {
            return key.name;
        }

        @Override
        public Collection<RequestAndKeys<String>> buildRequest(int broker, Set<String> ids) {
            var builder = new AbstractRequest.Builder<AbstractRequest>(key, oldest, latest) {
                @Override
                public AbstractRequest build(short version) {
                    return new Plain(key, version, data);
                }
            };
            return List.of(new RequestAndKeys<>(builder, ids));
        }

        @Override
        public ApiResult<String, Errors> handleResponse(Node broker, Set<String> ids, AbstractResponse response) {
            Errors error = response.errorCounts().keySet().iterator().next();
            return switch (error) {
                case COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS -> ApiResult.empty();
                case NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE -> ApiResult.unmapped(List.copyOf(ids));
                default -> ApiResult.completed(ids.iterator().next(), error);
            };
        }

        @Override
        public AdminApiLookupStrategy<String> lookupStrategy() {
            return new CoordinatorOfId();
        }
    }

    /** A request as it is, which all versions of kafka-clients can build. */
    private static final class Plain extends AbstractRequest {
        private final ApiMessage data;

        Plain(ApiKeys key, short version, ApiMessage data) {
            super(key, version);
            this.data = data;
        }

        @Override
        public ApiMessage data() {
            return data;
        }

        @Override
        public AbstractResponse getErrorResponse(int throttleTimeMs, Throwable error) {
            throw new UnsupportedOperationException("for brokers alone");
        }
    }

    private static final class CoordinatorOfId implements AdminApiLookupStrategy<String> {
        private static final ApiRequestScope SCOPE = new ApiRequestScope() {};

        @Override
        public ApiRequestScope lookupScope(String id) {
            return SCOPE;
        }

        @Override
        public AbstractRequest.Builder<?> buildRequest(Set<String> ids) {
            return new FindCoordinatorRequest.Builder(new FindCoordinatorRequestData()
                    .setKeyType(FindCoordinatorRequest.CoordinatorType.TRANSACTION.id())
                    .setCoordinatorKeys(List.copyOf(ids)));
        }

        @Override
        public LookupResult<String> handleResponse(Set<String> ids, AbstractResponse response) {
            String id = ids.iterator().next();
            var found = ((FindCoordinatorResponse) response).coordinators().get(0);
            Errors error = Errors.forCode(found.errorCode());
            return switch (error) {
                case NONE -> new LookupResult<>(Map.of(), Map.of(id, found.nodeId()));
                case COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS -> new LookupResult<>(Map.of(), Map.of());
                default -> new LookupResult<>(Map.of(id, error.exception()), Map.of());
            };
        }
    }

    /** What a session throws; with the token of the transaction that it is about, if one is known. */
    public abstract static class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final transient Token token;

        Failure(String message, Token token, Throwable cause) {
            super(message, cause);
            this.token = token;
        }

        public Optional<Token> token() {
            return Optional.ofNullable(token);
        }
    }

    /** Records were refused, or are not acknowledged: nothing is on either side. */
    public static final class NotPrepared extends Failure {
        private static final long serialVersionUID = 1;

        NotPrepared(String message, Throwable cause) {
            super(message, null, cause);
        }
    }

    /** A later session has claimed the transactional id: make way for it. */
    public static final class Fenced extends Failure {
        private static final long serialVersionUID = 1;

        Fenced(String message) {
            super(message, null, null);
        }
    }

    /** Nobody knows yet whether the database has committed: the next session finds out. */
    public static final class InDoubt extends Failure {
        private static final long serialVersionUID = 1;

        InDoubt(String message, Token token, Throwable cause) {
            super(message, token, cause);
        }
    }

    /** This session cannot go on, and the next one does what is left. With a token, the database has committed it. */
    public static final class NeedsRecovery extends Failure {
        private static final long serialVersionUID = 1;

        NeedsRecovery(String message, Token token, Throwable cause) {
            super(message, token, cause);
        }
    }

    /** The transaction had been ended the other way: the two sides differ, and a person has to look. */
    public static final class HeuristicOutcome extends Failure {
        private static final long serialVersionUID = 1;

        HeuristicOutcome(String message, Token token) {
            super(message, token, null);
        }
    }

    /** A later transaction or session has taken the token's place, and nobody can tell how it ended. */
    public static final class Superseded extends Failure {
        private static final long serialVersionUID = 1;

        Superseded(String message, Token token) {
            super(message, token, null);
        }
    }
}
