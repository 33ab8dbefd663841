import java.sql.DriverManager;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A service that takes orders: each one is a row in PostgreSQL and a record in a topic, or neither.
 *
 * <p>{@code OrderService 127.0.0.1:9092 jdbc:postgresql://localhost/shop tea milk}. Run it again after a crash.
 */
public final class OrderService {
    private static final String INSERT = "INSERT INTO orders VALUES (?) ON CONFLICT DO NOTHING";

    private OrderService() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "transactional.id", "order-service-1");
        try (var connection = DriverManager.getConnection(arguments[1])) {
            TwoPhase.createTable(connection);
            try (var statement = connection.createStatement()) {
                statement.execute("CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)");
            }
            try (var session = TwoPhase.start(connection, settings, new StringSerializer(), new StringSerializer());
                    var insert = connection.prepareStatement(INSERT)) {
                for (String name : List.of(arguments).subList(2, arguments.length)) {
                    session.transaction(sender -> {
                        insert.setString(1, name);
                        if (insert.executeUpdate() == 1) {
                            sender.send(new ProducerRecord<>("orders", name));
                        }
                    });
                }
            }
        }
    }
}
