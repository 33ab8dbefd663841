import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * JUnit 5: gives each test a Kafka broker of its own, which starts in milliseconds.
 *
 * <pre>
 * &#64;ExtendWith(FencepostExtension.class)
 * class OrdersTest {
 *     &#64;Test
 *     void orders(FencepostExtension.Broker broker) { new KafkaProducer&lt;&gt;(Map.of("bootstrap.servers", broker.bootstrapServers(), …
 * </pre>
 *
 * Copy this file. It needs Java 17, Jackson (jackson-databind), and the program <code>fencepost</code> on PATH, or its
 * command in the environment variable FENCEPOST or the system property "fencepost". The program is started once for
 * all tests, and ends with them. The broker's view of a test that fails is printed; one that passes fails if a fault that it
 * set has never fired.
 */
public final class FencepostExtension implements ParameterResolver, AfterEachCallback {
    private static final ExtensionContext.Namespace NAMESPACE =
        ExtensionContext.Namespace.create(FencepostExtension.class);
    private static final ObjectMapper JSON = new ObjectMapper();

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext test) {
        return parameter.getParameter().getType() == Broker.class;
    }

    /** All parameters of a test are one broker; those of its class's or its set-up methods are the same one. */
    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext test) {
        Program program = test.getRoot().getStore(NAMESPACE)
            .getOrComputeIfAbsent(Program.class, ignored -> Program.start(), Program.class);
        return test.getStore(NAMESPACE).getOrComputeIfAbsent(Broker.class, ignored -> program.broker(), Broker.class);
    }

    /** Comes after the test's own methods, whichever of them has failed. */
    @Override
    public void afterEach(ExtensionContext test) {
        Broker broker = test.getStore(NAMESPACE).get(Broker.class, Broker.class);
        if (broker != null && test.getExecutionException().isPresent()) {
            broker.hasFailed = true;
            try {
                System.err.println("the broker's view of " + test.getDisplayName() + "\n" + broker.describe());
            } catch (RuntimeException error) {
                test.getExecutionException().get().addSuppressed(error);
            }
        }
    }

    /** A broker of a test. {@link #get} and {@link #post} reach all operations of the control API. */
    @SuppressWarnings("deprecation") // JUnit before 5.13 closes no AutoCloseable
    public static final class Broker implements ExtensionContext.Store.CloseableResource, AutoCloseable {
        private final Program program;
        private final String address;
        private final String bootstrapServers;
        private boolean hasFailed;

        private Broker(Program program, JsonNode made) {
            this.program = program;
            this.address = "/brokers/" + made.get("broker").asText();
            this.bootstrapServers = made.get("bootstrap_servers").asText();
        }

        /** For <code>bootstrap.servers</code>. */
        public String bootstrapServers() {
            return bootstrapServers;
        }

        public void createTopic(String name, int partitions) {
            post("topic", Map.of("name", name, "partitions", partitions));
        }

        /** Append records; creates the topic if need be. */
        public void produce(String topic, String... values) {
            post("produce", Map.of("topic", topic, "values", values));
        }

        /** The committed values of a topic, as soon as there are at least as many. Raises a Refusal after ten seconds. */
        public List<String> values(String topic, int count) {
            List<String> found = new ArrayList<>();
            JsonNode page;
            do {
                page = get("records", Map.of("topic", topic, "count", count, "skip", found.size()));
                page.get("records")
                    .forEach(one -> found.add(one.get("value").isNull() ? null : one.get("value").asText()));
            } while (!page.get("next_skip").isNull());
            return found;
        }

        /** The state of a transaction by Kafka's names, such as CompleteCommit. */
        public String transactionState(String transactionalId) {
            return get("transaction", Map.of("transactional_id", transactionalId)).get("state").asText();
        }

        /** Begin a session of a transactional id, as a second instance does: its producer is a zombie from now on. */
        public void fence(String transactionalId) {
            post("fence", Map.of("transactional_id", transactionalId));
        }

        /** Answer the next request of an API (<code>EndTxn</code>) with an error (<code>NOT_COORDINATOR</code>). */
        public Fault fail(String api, String error) {
            return fault("fail", Map.of("api", api, "error", error));
        }

        /** Close the connection in place of the next reply of an API: the request is carried out, its reply is lost. */
        public Fault disconnect(String api) {
            return fault("disconnect", Map.of("api", api));
        }

        /** Hold the replies of an API until {@link Fault#release}. */
        public Fault hold(String api) {
            return fault("hold", Map.of("api", api));
        }

        /** End the broker at the next request of an API, before its reply leaves; see {@link #restart}. */
        public Fault crashAfter(String api) {
            return fault("crash_after", Map.of("api", api));
        }

        /** A fault with all arguments of the control API. */
        public Fault fault(String operation, Map<String, ?> arguments) {
            return new Fault(this, post(operation, arguments).get("fault").asInt());
        }

        /** Start the broker again, on the same data and address. */
        public void restart() {
            post("restart", Map.of());
        }

        /** Turn the broker's clock forward. Returns when all that became due is done. */
        public void advance(Duration time) {
            post("advance", Map.of("seconds", time.toMillis() / 1000.0));
        }

        /** The broker's view in lines of text: requests, faults, transactions, groups. */
        public String describe() {
            return get("describe", Map.of()).get("text").asText();
        }

        /** An operation of the control API that asks. Raises a Refusal. */
        public JsonNode get(String operation, Map<String, ?> arguments) {
            String query = new TreeMap<>(arguments).entrySet().stream()
                .map(one -> one.getKey() + "=" + URLEncoder.encode(String.valueOf(one.getValue()), StandardCharsets.UTF_8))
                .collect(Collectors.joining("&"));
            return program.call("GET", address + "/" + operation + (query.isEmpty() ? "" : "?" + query), null);
        }

        /** An operation of the control API that changes something. Raises a Refusal. */
        public JsonNode post(String operation, Map<String, ?> arguments) {
            return program.call("POST", address + "/" + operation, arguments);
        }

        /** Called at the end of the test. Raises an AssertionError for a fault that has never fired. */
        @Override
        public void close() {
            JsonNode closed = program.call("DELETE", address, null);
            if (!hasFailed && !closed.get("never_fired").isEmpty()) {
                List<String> sentences = new ArrayList<>();
                closed.get("never_fired").forEach(one -> sentences.add(one.asText()));
                throw new AssertionError(String.join("\n", sentences) + "\n" + closed.get("description").asText());
            }
        }
    }

    /** A fault that a test has set. */
    public static final class Fault {
        private final Broker broker;
        private final int number;

        private Fault(Broker broker, int number) {
            this.broker = broker;
            this.number = number;
        }

        /** Wait until it has met a request. Raises a Refusal after ten seconds. */
        public void waitUntilFired() {
            broker.post("faults/" + number + "/wait_until_fired", Map.of());
        }

        /** Let the requests go that it holds; returns how many. It holds later ones. */
        public int release() {
            return broker.post("faults/" + number + "/release", Map.of()).get("released").asInt();
        }

        /** End the fault. */
        public void remove() {
            broker.program.call("DELETE", broker.address + "/faults/" + number, null);
        }
    }

    /** The control API has refused an operation; the message says what to do. */
    public static final class Refusal extends RuntimeException {
        private static final long serialVersionUID = 1;

        private Refusal(String message) {
            super(message);
        }
    }

    /** The program, which serves all tests of this virtual machine. */
    @SuppressWarnings("deprecation")
    private static final class Program implements ExtensionContext.Store.CloseableResource, AutoCloseable {
        private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        private final Process process;
        private final String url;

        private Program(Process process, String url) {
            this.process = process;
            this.url = url;
        }

        private static Program start() {
            String command = System.getProperty("fencepost", System.getenv().getOrDefault("FENCEPOST", "fencepost"));
            List<String> words = new ArrayList<>(List.of(command.split(" ")));
            // It ends with its standard input, so also with a virtual machine that is killed.
            words.addAll(List.of("test-broker", "--json", "--until-stdin-closes"));
            try {
                Process process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
                String line = process.inputReader().readLine();
                if (line == null) {
                    throw new IllegalStateException(
                        String.join(" ", words) + " ended with " + process.waitFor() + "; its errors are above");
                }
                return new Program(process, JSON.readTree(line).get("url").asText());
            } catch (IOException error) {
                throw new IllegalStateException("cannot run " + String.join(" ", words) + ": install it, or name its "
                    + "command in the environment variable FENCEPOST", error);
            } catch (InterruptedException error) {
                throw interrupted(error);
            }
        }

        private Broker broker() {
            return new Broker(this, call("POST", "/brokers", Map.of()));
        }

        private JsonNode call(String method, String path, Map<String, ?> arguments) {
            try {
                HttpRequest.BodyPublisher body = arguments == null
                    ? HttpRequest.BodyPublishers.noBody()
                    : HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(new LinkedHashMap<>(arguments)));
                HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                    .header("Content-Type", "application/json").method(method, body).build();
                HttpResponse<byte[]> response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
                JsonNode answer = JSON.readTree(response.body());
                if (response.statusCode() >= 300) {
                    String view = answer.path("description").asText("");
                    throw new Refusal(answer.path("message").asText() + (view.isEmpty() ? "" : "\n" + view));
                }
                return answer;
            } catch (IOException error) {
                throw new IllegalStateException("fencepost test-broker does not answer", error);
            } catch (InterruptedException error) {
                throw interrupted(error);
            }
        }

        private static IllegalStateException interrupted(InterruptedException error) {
            Thread.currentThread().interrupt();
            return new IllegalStateException("interrupted", error);
        }

        @Override
        public void close() throws IOException {
            process.getOutputStream().close();
            try {
                if (!process.waitFor(10, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                }
            } catch (InterruptedException error) {
                throw interrupted(error);
            }
        }
    }
}
