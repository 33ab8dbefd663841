import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupAuthorizationException;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients at a secured broker: certificates, passwords and tokens, and rights that come and go while they run. */
final class Secured {
    private static final String MODULES = "org.apache.kafka.common.security.";

    private Secured() {}

    static void addTo(Checks checks) {
        checks.add("ssl", check -> works(check, Login.of("SSL", ""), "ANONYMOUS"))
                .add("mutual-tls", Secured::mutualTls)
                .add("plain", check -> works(check, PLAIN, "alice"))
                .add("scram-sha-256", check -> works(check, Login.of("SASL_SSL", "SCRAM-SHA-256"), "alice"))
                .add("scram-sha-512", check -> works(check, Login.of("SASL_SSL", "SCRAM-SHA-512"), "alice"))
                .add("oauthbearer", Secured::oauthbearer)
                .add("without-tls", check -> works(check, Login.of("SASL_PLAINTEXT", "SCRAM-SHA-256"), "alice"))
                .add("wrong-passwords", Secured::wrongPasswords)
                .add("wrong-authority", Secured::wrongAuthority)
                .add("expired-certificate", Secured::expiredCertificate)
                .add("no-right", Secured::noRight)
                .add("right-revoked-while-producing", Secured::rightRevokedWhileProducing)
                .add("right-revoked-while-consuming", Secured::rightRevokedWhileConsuming)
                .add("right-revoked-in-transaction", Secured::rightRevokedInTransaction)
                .add("reauthentication-under-load", Secured::reauthenticationUnderLoad);
    }

    /** How a client connects. `certificate` is the name of its own; empty without. */
    record Login(String listener, String mechanism, String user, String password, String token, String authority,
            String certificate) {
        static Login of(String listener, String mechanism) {
            return new Login(listener, mechanism, "alice", "alice-secret", "alice", "authority", "");
        }

        Login as(String otherUser, String otherPassword) {
            return new Login(listener, mechanism, otherUser, otherPassword, token, authority, certificate);
        }

        Login withToken(String other) {
            return new Login(listener, mechanism, user, password, other, authority, certificate);
        }

        Login withAuthority(String other) {
            return new Login(listener, mechanism, user, password, token, other, certificate);
        }

        Login withCertificate(String other) {
            return new Login(listener, mechanism, user, password, token, authority, other);
        }

        Map<String, Object> settings(Object... more) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", System.getenv("SECURED_" + listener));
            String protocol = switch (listener) {
                case "MUTUAL", "EXPIRED" -> "SSL";
                case "SHORT" -> "SASL_PLAINTEXT";
                default -> listener;
            };
            settings.put("security.protocol", protocol);
            settings.put("reconnect.backoff.max.ms", 200);
            settings.put("default.api.timeout.ms", 20_000);
            settings.put("request.timeout.ms", 15_000);
            if (protocol.endsWith("SSL")) {
                settings.put("ssl.truststore.type", "PEM");
                settings.put("ssl.truststore.location", file(authority + ".pem").toString());
            }
            if (!certificate.isEmpty()) {
                settings.put("ssl.keystore.type", "PEM");
                settings.put("ssl.keystore.location", file(certificate + ".pem").toString());
            }
            if (!mechanism.isEmpty()) {
                settings.put("sasl.mechanism", mechanism);
                settings.put("sasl.jaas.config", jaas());
            }
            if (mechanism.equals("OAUTHBEARER")) {
                settings.put("sasl.login.callback.handler.class", TokenFromFile.class.getName());
            }
            for (int index = 0; index < more.length; index += 2) {
                settings.put((String) more[index], more[index + 1]);
            }
            return settings;
        }

        private String jaas() {
            if (mechanism.equals("OAUTHBEARER")) {
                return MODULES + "oauthbearer.OAuthBearerLoginModule required file=\"" + file(token + ".jwt") + "\";";
            }
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            return MODULES + module + " required username=\"" + user + "\" password=\"" + password + "\";";
        }

        Admin admin() {
            return Admin.create(settings());
        }

        KafkaProducer<String, String> producer(Object... more) {
            return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
        }

        KafkaConsumer<String, String> consumer(Object... more) {
            Map<String, Object> settings = settings(more);
            settings.putIfAbsent("auto.offset.reset", "earliest");
            settings.putIfAbsent("enable.auto.commit", false);
            settings.putIfAbsent("fetch.max.wait.ms", 100);
            settings.putIfAbsent("isolation.level", "read_committed");
            return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }
    }

    private static final Login PLAIN = Login.of("SASL_SSL", "PLAIN");
    private static final Login ADMIN = PLAIN.as("admin", "admin-secret");

    private static Path file(String name) {
        return Path.of(System.getenv("SECURED_FILES"), name);
    }

    /** A topic of the check's own with what a user may do with it. */
    private static String topic(Check check, String user, String... operations) throws Exception {
        String topic = check.name("topic");
        check.ask("topic " + topic);
        for (String operation : operations) {
            check.ask("allow User:" + user + " " + operation + " topic " + topic);
        }
        return topic;
    }

    private static String group(Check check, String user) throws Exception {
        String group = check.name("group");
        check.ask("allow User:" + user + " READ group " + group);
        return group;
    }

    private static void write(KafkaProducer<String, String> producer, String topic, List<String> values)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** What is in a topic, as an administrator reads it. */
    private static List<String> contents(Check check, String topic, int count) throws Exception {
        try (var consumer = ADMIN.consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return Clients.values(Clients.read(check, consumer, count));
        }
    }

    private static void works(Check check, Login login, String user) throws Exception {
        String topic = topic(check, user, "READ", "WRITE");
        String group = group(check, user);
        List<String> values = Clients.numbers(0, 100, 1);
        // An idempotent producer needs no further right: it may write to a topic.
        try (var producer = login.producer()) {
            write(producer, topic, values);
        }
        try (var consumer = login.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            check.equal("values", Clients.values(Clients.read(check, consumer, 100)), values);
            consumer.commitSync();
        }
    }

    /** Why an administrator cannot connect. */
    private static <E extends Exception> void refused(Check check, String what, Class<E> kind, Login login) {
        check.refused(what, kind, () -> {
            try (Admin admin = login.admin()) {
                return admin.describeCluster().nodes().get();
            }
        });
    }

    private static void mutualTls(Check check) throws Exception {
        works(check, Login.of("MUTUAL", "").withCertificate("alice"), "alice");
        refused(check, "without a certificate", SslAuthenticationException.class, Login.of("MUTUAL", ""));
    }

    private static void oauthbearer(Check check) throws Exception {
        Login login = Login.of("SASL_SSL", "OAUTHBEARER");
        works(check, login, "alice");
        for (String token : List.of("expired", "forged")) {
            refused(check, "with a token that is " + token, SaslAuthenticationException.class, login.withToken(token));
        }
    }

    private static void wrongPasswords(Check check) throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            Login login = Login.of("SASL_SSL", mechanism);
            refused(check, mechanism + " with a wrong password", SaslAuthenticationException.class,
                    login.as("alice", "wrong"));
            refused(check, mechanism + " with another's password", SaslAuthenticationException.class,
                    login.as("bob", "alice-secret"));
            refused(check, mechanism + " with an unknown user", SaslAuthenticationException.class,
                    login.as("nobody", "alice-secret"));
        }
        works(check, PLAIN, "alice");
    }

    private static void wrongAuthority(Check check) {
        refused(check, "another authority", SslAuthenticationException.class, PLAIN.withAuthority("other-authority"));
    }

    private static void expiredCertificate(Check check) {
        refused(check, "a certificate that is over", SslAuthenticationException.class, Login.of("EXPIRED", ""));
    }

    private static void noRight(Check check) throws Exception {
        String topic = topic(check, "bob", "READ", "WRITE");
        String group = check.name("group");
        try (var producer = PLAIN.producer()) {
            check.refused("writing", TopicAuthorizationException.class, () -> {
                write(producer, topic, List.of("x"));
                return null;
            });
        }
        check.ask("allow User:alice READ group " + group);
        shown(check, TopicAuthorizationException.class, topic, group);
        check.ask("forbid User:alice READ group " + group);
        check.ask("allow User:alice READ topic " + topic);
        shown(check, GroupAuthorizationException.class, topic, group);
        try (var producer = ADMIN.producer()) {
            write(producer, topic, List.of("only this"));
        }
        check.equal("what was written", contents(check, topic, 1), List.of("only this"));
    }

    /** A consumer shows an exception, and no record. */
    private static <E extends Exception> void shown(Check check, Class<E> kind, String topic, String group) {
        check.refused("what a consumer shows", kind, () -> {
            try (var consumer = PLAIN.consumer("group.id", group)) {
                consumer.subscribe(List.of(topic));
                check.until("the consumer shows an exception", () -> {
                    check.equal("records", consumer.poll(Clients.POLL).count(), 0);
                    return false;
                });
            }
            return null;
        });
    }

    private static void rightRevokedWhileProducing(Check check) throws Exception {
        String topic = topic(check, "alice", "WRITE");
        List<String> want = Clients.numbers(0, 20, 1);
        List<String> all = new ArrayList<>(want);
        try (var producer = PLAIN.producer()) {
            for (String value : want) { // the broker knows the same request by then
                write(producer, topic, List.of(value));
            }
            for (int turn = 0; turn < 3; turn++) {
                check.ask("forbid User:alice WRITE topic " + topic);
                check.refused("without the right", TopicAuthorizationException.class, () -> {
                    write(producer, topic, List.of("refused"));
                    return null;
                });
                check.ask("allow User:alice WRITE topic " + topic);
                String again = "again " + turn;
                write(producer, topic, List.of(again));
                all.add(again);
            }
        }
        check.equal("what was written", contents(check, topic, all.size()), all);
    }

    private static void rightRevokedWhileConsuming(Check check) throws Exception {
        String topic = topic(check, "alice", "READ");
        String group = group(check, "alice");
        try (var admin = ADMIN.producer(); var consumer = PLAIN.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            write(admin, topic, Clients.numbers(0, 10, 1));
            check.equal("values", Clients.values(Clients.read(check, consumer, 10)), Clients.numbers(0, 10, 1));
            consumer.commitSync();
            check.ask("forbid User:alice READ topic " + topic);
            pollUntilRefused(check, consumer);
            write(admin, topic, List.of("hidden"));
            pollUntilRefused(check, consumer);
            check.ask("allow User:alice READ topic " + topic);
            List<String> values = new ArrayList<>();
            check.until("the right is back", () -> {
                try {
                    consumer.poll(Clients.POLL).forEach(record -> values.add(record.value()));
                } catch (TopicAuthorizationException left) {
                    return false; // from a fetch before
                }
                return !values.isEmpty();
            });
            check.equal("values", values, List.of("hidden"));
            check.ask("forbid User:alice READ group " + group);
            check.refused("committing", GroupAuthorizationException.class, () -> {
                consumer.commitSync();
                return null;
            });
            // It cannot leave its group without the right.
            consumer.close(Duration.ZERO);
        }
    }

    /** A fetch that waited may still end well; what comes after it is refused. */
    private static void pollUntilRefused(Check check, KafkaConsumer<String, String> consumer) {
        check.refused("polling", TopicAuthorizationException.class, () -> {
            check.until("the consumer shows an exception", () -> {
                check.equal("records", consumer.poll(Clients.POLL).count(), 0);
                return false;
            });
            return null;
        });
    }

    private static void rightRevokedInTransaction(Check check) throws Exception {
        String topic = topic(check, "alice", "WRITE");
        String transactional = check.name("transaction");
        String right = "User:alice WRITE transactional-id " + transactional;
        List<String> want = new ArrayList<>();
        try (var producer = PLAIN.producer("transactional.id", transactional)) {
            check.refused("initializing", TransactionalIdAuthorizationException.class, () -> {
                producer.initTransactions();
                return null;
            });
        }
        check.ask("allow " + right);
        try (var producer = PLAIN.producer("transactional.id", transactional)) {
            producer.initTransactions();
            for (int number = 0; number < 3; number++) {
                commit(producer, topic, "committed " + number, want);
            }
            producer.beginTransaction();
            write(producer, topic, List.of("never committed"));
            check.ask("forbid " + right);
            check.refused("committing", TransactionalIdAuthorizationException.class, () -> {
                producer.commitTransaction();
                return null;
            });
            producer.close(Duration.ZERO);
        }
        check.ask("allow " + right);
        try (var producer = PLAIN.producer("transactional.id", transactional)) {
            producer.initTransactions(); // ends what the first left open
            commit(producer, topic, "the last", want);
        }
        check.equal("what was committed", contents(check, topic, want.size()), want);
    }

    private static void commit(KafkaProducer<String, String> producer, String topic, String value, List<String> want)
            throws Exception {
        producer.beginTransaction();
        write(producer, topic, List.of(value));
        producer.commitTransaction();
        want.add(value);
    }

    /** Sessions of two seconds are renewed on the connections that are open, beneath a load (KIP-368). */
    private static void reauthenticationUnderLoad(Check check) throws Exception {
        String topic = topic(check, "alice", "READ", "WRITE");
        String group = group(check, "alice");
        Login login = Login.of("SHORT", "SCRAM-SHA-512");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> got = new ArrayList<>();
        try (var producer = login.producer("linger.ms", 0); var consumer = login.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            long started = System.nanoTime();
            double connections = 0;
            while (System.nanoTime() - started < TimeUnit.SECONDS.toNanos(7)) {
                for (int number = 0; number < 10; number++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, 0, null, String.valueOf(sent.size()))));
                }
                consumer.poll(Duration.ofMillis(5)).forEach(record -> got.add(record.value()));
                if (sent.size() == 200) {
                    connections = metric(producer, "connection-creation-total");
                }
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                acknowledged(check, one);
            }
            check.until("all is read", () -> {
                consumer.poll(Clients.POLL).forEach(record -> got.add(record.value()));
                return got.size() >= sent.size();
            });
            consumer.commitSync();
            double renewed = metric(producer, "successful-reauthentication-total");
            check.isTrue("renewed sessions of the producer: " + renewed, renewed >= 2);
            check.equal("failed ones", metric(producer, "failed-reauthentication-total"), 0.0);
            check.equal("connections of the producer", metric(producer, "connection-creation-total"), connections);
        }
        check.equal("what was read", got, Clients.numbers(0, sent.size(), 1));
    }

    private static void acknowledged(Check check, Future<RecordMetadata> record) throws InterruptedException {
        try {
            record.get();
        } catch (ExecutionException refused) {
            throw check.failed("a record was not acknowledged: " + refused.getCause());
        }
    }

    private static double metric(KafkaProducer<String, String> producer, String name) {
        return producer.metrics().entrySet().stream()
                .filter(one -> one.getKey().name().equals(name) && one.getKey().group().equals("producer-metrics"))
                .mapToDouble(one -> (double) one.getValue().metricValue())
                .sum();
    }
}
