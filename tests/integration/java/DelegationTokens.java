import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/** Creates a delegation token as a user, and writes and reads with it. Arguments: the address, the user, its password. */
public class DelegationTokens {
    static final String SERIALIZERS = "org.apache.kafka.common.serialization.";

    static Map<String, Object> client(String bootstrap, String mechanism, String name, String password, String more) {
        String module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        return Map.ofEntries(
            Map.entry("bootstrap.servers", bootstrap),
            Map.entry("security.protocol", "SASL_PLAINTEXT"),
            Map.entry("sasl.mechanism", mechanism),
            Map.entry("sasl.jaas.config",
                module + " required username=\"" + name + "\" password=\"" + password + "\"" + more + ";"),
            Map.entry("group.id", "readers"),
            Map.entry("auto.offset.reset", "earliest"),
            Map.entry("key.serializer", SERIALIZERS + "StringSerializer"),
            Map.entry("value.serializer", SERIALIZERS + "StringSerializer"),
            Map.entry("key.deserializer", SERIALIZERS + "StringDeserializer"),
            Map.entry("value.deserializer", SERIALIZERS + "StringDeserializer"));
    }

    static void refused(String what, org.apache.kafka.common.KafkaFuture<?> future) throws Exception {
        try {
            future.get();
            System.out.println(what + ": done");
        } catch (java.util.concurrent.ExecutionException error) {
            System.out.println(what + ": " + error.getCause().getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        DelegationToken token;
        try (Admin admin = Admin.create(client(bootstrap, "SCRAM-SHA-512", arguments[1], arguments[2], ""))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
            token = admin.createDelegationToken(new CreateDelegationTokenOptions()
                .renewers(List.of(new KafkaPrincipal("User", "renewer")))).delegationToken().get();
            System.out.println("owner: " + token.tokenInfo().ownerAsString());
            admin.renewDelegationToken(token.hmac()).expiryTimestamp().get();
            List<DelegationToken> all = admin.describeDelegationToken(new DescribeDelegationTokenOptions()).delegationTokens().get();
            System.out.println("described: " + all.equals(List.of(token)) + " "
                + java.util.Arrays.equals(all.get(0).hmac(), token.hmac()));
            refused("a wrong secret", admin.renewDelegationToken(new byte[] {1}).expiryTimestamp());
        }
        String id = token.tokenInfo().tokenId(), secret = token.hmacAsBase64String(), more = " tokenauth=\"true\"";
        for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
            Map<String, Object> settings = client(bootstrap, mechanism, id, secret, more);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                producer.send(new ProducerRecord<>("orders", mechanism)).get();
            }
        }
        Map<String, Object> settings = client(bootstrap, "SCRAM-SHA-256", id, secret, more);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of("orders"));
            int count = 0;
            long end = System.nanoTime() + 30_000_000_000L;
            while (count < 2 && System.nanoTime() < end)
                count += consumer.poll(Duration.ofMillis(200)).count();
            System.out.println("read: " + count);
        }
        try (Admin admin = Admin.create(settings)) {
            refused("a token by a token", admin.createDelegationToken().delegationToken());
        }
        try (Admin admin = Admin.create(client(bootstrap, "SCRAM-SHA-512", arguments[1], arguments[2], ""))) {
            long before = System.currentTimeMillis();
            System.out.println("expired: " + (before - 60_000 < admin.expireDelegationToken(token.hmac(),
                new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get()));
            refused("again", admin.expireDelegationToken(token.hmac()).expiryTimestamp());
        }
        try (Admin admin = Admin.create(settings)) {
            refused("a log-in with an expired token", admin.describeCluster().clusterId());
        }
    }
}
