import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests that fail, each in another way, and a pair that would fail if it shared a broker. */
@ExtendWith(FencepostExtension.class)
class FailingTest {
    private String inSetUp;

    @BeforeEach
    void setUp(FencepostExtension.Broker broker, TestInfo test) {
        inSetUp = broker.bootstrapServers();
        broker.createTopic("of-" + test.getTestMethod().orElseThrow().getName(), 1);
    }

    @Test
    void wrong(FencepostExtension.Broker broker) {
        broker.produce("orders", "tea");
        assertEquals(List.of("coffee"), broker.values("orders", 1));
    }

    @Test
    void neverFired(FencepostExtension.Broker broker) {
        broker.fail("EndTxn", "NOT_COORDINATOR");
    }

    @Test
    void refused(FencepostExtension.Broker broker) {
        broker.fault("fail", Map.of("api", "EndTransaction", "error", "NOT_COORDINATOR"));
    }

    @Test
    void waited(FencepostExtension.Broker broker) {
        broker.get("records", Map.of("topic", "orders", "count", 1, "timeout", 0.1));
    }

    @Test
    void many(FencepostExtension.Broker broker) {
        broker.produce("orders", Collections.nCopies(2001, "tea").toArray(String[]::new));
        assertEquals(2001, broker.values("orders", 2001).size());
    }

    @Test
    void first(FencepostExtension.Broker broker) {
        alone(broker);
    }

    @Test
    void second(FencepostExtension.Broker broker) {
        alone(broker);
    }

    private void alone(FencepostExtension.Broker broker) {
        assertEquals(inSetUp, broker.bootstrapServers());
        broker.produce("orders", "tea");
        assertEquals(List.of("tea"), broker.values("orders", 1));
        assertNotEquals("", broker.describe());
    }
}
