import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.admin.ScramMechanism;

/** kafka-acls and kafka-configs at a secured broker, and tools that log in. */
final class SecuredTools {
    private static final String ACLS = "AclCommand";
    private static final String CONFIGS = TopicTools.CONFIGS;

    private SecuredTools() {}

    static void addTo(Checks checks) {
        checks.add("acls-of-topics", SecuredTools::aclsOfTopics)
                .add("acls-for-producer-and-consumer", SecuredTools::aclsForProducerAndConsumer)
                .add("scram-users", SecuredTools::scramUsers)
                .add("tools-without-rights", SecuredTools::withoutRights)
                .add("tools-with-wrong-password", SecuredTools::wrongPassword)
                .add("console-producer-and-consumer", SecuredTools::consoles);
    }

    /** A properties file for `--command-config`, which logs in by TLS and a user. */
    private static String login(String mechanism, String user, String password) throws Exception {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return Tool.file(String.join("\n",
                "security.protocol=SASL_SSL",
                "ssl.truststore.type=PEM",
                "ssl.truststore.location=" + System.getenv("SECURED_FILES") + "/authority.pem",
                "sasl.mechanism=" + mechanism,
                "sasl.jaas.config=org.apache.kafka.common.security." + module + " required username=\"" + user
                        + "\" password=\"" + password + "\";",
                ""));
    }

    private static String admin() throws Exception {
        return login("PLAIN", "admin", "admin-secret");
    }

    private static List<String> output(Check check, String tool, String... arguments) throws Exception {
        return Tool.output(check, tool, connected(admin(), arguments));
    }

    private static String[] connected(String config, String... arguments) {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", "BOOTSTRAP", "--command-config", config));
        all.addAll(List.of(arguments));
        return all.toArray(String[]::new);
    }

    private static void aclsOfTopics(Check check) throws Exception {
        String topic = check.name("topic");
        String current = "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=" + topic
                + ", patternType=LITERAL)`: ";
        String alice = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)";
        String bob = "(principal=User:bob, host=127.0.0.1, operation=ALL, permissionType=DENY)";
        output(check, ACLS, "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", topic);
        output(check, ACLS, "--add", "--deny-principal", "User:bob", "--deny-host", "127.0.0.1", "--operation", "All",
                "--topic", topic);
        check.until("both are listed", () -> {
            List<String> listed = output(check, ACLS, "--list", "--topic", topic).stream().map(String::strip).toList();
            return listed.contains(current.strip()) && listed.contains(alice) && listed.contains(bob);
        });
        output(check, ACLS, "--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", "--topic",
                topic);
        check.until("one is left", () -> {
            List<String> left = output(check, ACLS, "--list", "--topic", topic).stream().map(String::strip).toList();
            return !left.contains(alice) && left.contains(bob);
        });
        output(check, ACLS, "--remove", "--force", "--topic", topic);
        check.until("none is left", () -> output(check, ACLS, "--list", "--topic", topic).stream().allMatch(String::isBlank));
    }

    /** `--producer` and `--consumer` add what a producer and a consumer need, and no more. */
    private static void aclsForProducerAndConsumer(Check check) throws Exception {
        String topic = check.name("topic");
        String group = check.name("group");
        check.ask("topic " + topic);
        String alice = login("SCRAM-SHA-256", "alice", "alice-secret");
        output(check, ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", topic);
        check.ask("allowed User:alice WRITE topic " + topic);
        check.ask("allowed User:alice DESCRIBE topic " + topic);
        produce(check, alice, topic, "a\nb\n");
        Tool refused = Tool.run(check, "ConsumerPerformance", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--num-records", "1", "--group", group, "--command-config", alice, "--timeout", "2000");
        check.isTrue("reading: " + refused.text(), refused.text().contains("GroupAuthorizationException"));
        output(check, ACLS, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", topic, "--group", group);
        check.ask("allowed User:alice READ topic " + topic);
        check.ask("allowed User:alice READ group " + group);
        check.equal("records", consume(check, alice, topic, group, 2), List.of("a", "b"));
    }

    private static void produce(Check check, String config, String topic, String lines) throws Exception {
        Tool.outputOf(check, lines, "ConsoleProducer", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--command-config", config);
    }

    private static List<String> consume(Check check, String config, String topic, String group, int count)
            throws Exception {
        return Tool.processOutput(check, "consumer.ConsoleConsumer", "--bootstrap-server", "BOOTSTRAP", "--topic", topic,
                "--group", group, "--from-beginning", "--max-messages", String.valueOf(count), "--timeout-ms", "30000",
                "--command-config", config);
    }

    private static void scramUsers(Check check) throws Exception {
        String user = check.name("user");
        // Apache Kafka takes one credential of a user in a request.
        for (String one : List.of("SCRAM-SHA-256=[iterations=4096,password=first]", "SCRAM-SHA-512=[password=first]")) {
            output(check, CONFIGS, "--alter", "--add-config", one, "--entity-type", "users", "--entity-name", user);
        }
        check.until("the user is described", () -> output(check, CONFIGS, "--describe", "--entity-type", "users",
                "--entity-name", user).contains("SCRAM credential configs for user-principal '" + user
                        + "' are SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096"));
        for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
            check.until(mechanism.mechanismName(), () -> logIn(check, mechanism, user, "first").exitCode() == 0);
        }
        output(check, CONFIGS, "--alter", "--add-config", "SCRAM-SHA-256=[password=second]", "--entity-type", "users",
                "--entity-name", user);
        check.until("the second password holds", () ->
                logIn(check, ScramMechanism.SCRAM_SHA_256, user, "second").exitCode() == 0);
        check.until("the first password no longer does", () ->
                logIn(check, ScramMechanism.SCRAM_SHA_256, user, "first").text().contains("Authentication failed"));
        for (String one : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
            output(check, CONFIGS, "--alter", "--delete-config", one, "--entity-type", "users", "--entity-name", user);
        }
        check.until("the user is gone", () ->
                logIn(check, ScramMechanism.SCRAM_SHA_256, user, "second").text().contains("Authentication failed"));
    }

    private static Tool logIn(Check check, ScramMechanism mechanism, String user, String password) throws Exception {
        return Tool.run(check, "TopicCommand",
                connected(login(mechanism.mechanismName(), user, password), "--list"));
    }

    private static void withoutRights(Check check) throws Exception {
        String topic = check.name("topic");
        check.ask("topic " + topic);
        String alice = login("SCRAM-SHA-512", "alice", "alice-secret");
        Tool topics = Tool.run(check, "TopicCommand", connected(alice, "--list"));
        check.isTrue("a hidden topic: " + topics.text(), topics.exitCode() == 0 && !topics.lines().contains(topic));
        Tool created = Tool.run(check, "TopicCommand", connected(alice, "--create", "--topic", check.name("other")));
        check.isTrue("creating: " + created.text(), created.text().contains("Authorization failed"));
        Tool acls = Tool.run(check, ACLS, connected(alice, "--list"));
        check.isTrue("ACLs: " + acls.text(), acls.text().contains("ClusterAuthorizationException"));
        Tool users = Tool.run(check, CONFIGS, connected(alice, "--describe", "--entity-type", "users"));
        check.isTrue("users: " + users.text(), users.text().contains("ClusterAuthorizationException"));
        Tool deleted = Tool.run(check, "TopicCommand", connected(admin(), "--delete", "--topic", topic));
        check.equal("an administrator: " + deleted.text(), deleted.exitCode(), 0);
    }

    private static void wrongPassword(Check check) throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-512")) {
            Tool refused = Tool.run(check, "TopicCommand", connected(login(mechanism, "admin", "wrong"), "--list"));
            check.isTrue(mechanism + ": " + refused.text(), refused.exitCode() != 0
                    && refused.text().contains("Authentication failed"));
        }
    }

    private static void consoles(Check check) throws Exception {
        String topic = check.name("topic");
        String group = check.name("group");
        check.ask("topic " + topic);
        produce(check, admin(), topic, "x\ny\nz\n");
        check.equal("records", consume(check, admin(), topic, group, 3), List.of("x", "y", "z"));
    }
}
