import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What the tools say while 200 other clients are connected, about these and about what only they work with. */
final class ManyClientsTools {
    private static final int TRANSACTIONS = 200;

    private ManyClientsTools() {}

    static void addTo(Checks checks) {
        checks.add("two-hundred-busy-clients", ManyClientsTools::busyClients)
                .add("two-hundred-open-transactions", ManyClientsTools::openTransactions);
    }

    static void busyClients(Check check) throws Exception {
        try (var clients = new BusyClients(check)) {
            clients.start();
            check.equal("connected", clients.connected(), 200L);
            topicsWhileBusy(check, clients);
            for (String protocol : BusyClients.PROTOCOLS) {
                groupWhileBusy(check, clients, protocol);
            }
            transactionsWhileBusy(check, clients);
            recordsWhileBusy(check);
            quietGroupWhileBusy(check);
            check.equal("connected all the time", clients.connected(), 200L);
            clients.stopWriting();
            groupsWhenAllIsRead(check, clients);
            clients.stopReading();
            groupsWithoutMembers(check, clients);
        }
    }

    // About the clients, while they work

    private static void topicsWhileBusy(Check check, BusyClients clients) throws Exception {
        List<List<String>> described = Tool.words(TopicTools.topics(check, "--describe", "--topic", clients.topic()));
        check.equal("heading and partitions", described.size(), 1 + BusyClients.WRITERS);
        for (int partition = 0; partition < BusyClients.WRITERS; partition++) {
            List<String> words = described.get(1 + partition);
            check.equal("partition " + partition, words.subList(0, 5),
                    List.of("Topic:", clients.topic(), "Partition:", "" + partition, "Leader:"));
            check.isTrue("a node leads it", check.nodes().contains(Integer.valueOf(words.get(5))));
        }
        List<Long> atLeast = clients.ends();
        List<Long> found = endOffsets(check, clients.topic());
        List<Long> atMost = clients.limits();
        check.equal("partitions with offsets", found.size(), BusyClients.WRITERS);
        for (int partition = 0; partition < BusyClients.WRITERS; partition++) {
            check.isTrue("the end of partition " + partition + ", " + found.get(partition) + ", is within "
                    + atLeast.get(partition) + " and " + atMost.get(partition), atLeast.get(partition) <= found.get(partition) && found.get(partition) <= atMost.get(partition));
        }
    }

    /** Where the partitions end, in their order. */
    private static List<Long> endOffsets(Check check, String topic) throws Exception {
        Map<Integer, Long> ends = new TreeMap<>();
        Tool.output(check, "GetOffsetShell", "--bootstrap-server", "BOOTSTRAP", "--topic", topic).stream()
                .map(line -> line.split(":")).forEach(row -> ends.put(Integer.parseInt(row[1]), Long.parseLong(row[2])));
        return new ArrayList<>(ends.values());
    }

    private static void groupWhileBusy(Check check, BusyClients clients, String protocol) throws Exception {
        String group = clients.group(protocol);
        List<String> state = GroupTools.described(check, group, "--state").get(0);
        check.isTrue("stable: " + state, state.contains("Stable"));
        check.equal("size of the group", state.get(state.size() - 1), "" + BusyClients.MEMBERS);
        List<List<String>> members = GroupTools.described(check, group, "--members");
        check.equal("members of " + group, members.stream().map(row -> row.get(3)).collect(Collectors.toSet()),
                IntStream.range(0, BusyClients.MEMBERS).mapToObj(number -> protocol + "-" + number).collect(Collectors.toSet()));
        check.equal("partitions of a member", members.stream().map(row -> row.get(4)).distinct().toList(), List.of("2"));
        check.equal("different members", members.stream().map(row -> row.get(1)).distinct().count(), (long) BusyClients.MEMBERS);
        List<List<String>> offsets = GroupTools.described(check, group);
        check.equal("partitions of " + group, offsets.stream().map(row -> Integer.parseInt(row.get(2))).sorted().toList(),
                IntStream.range(0, BusyClients.WRITERS).boxed().toList());
        check.equal("a member of each", offsets.stream().map(row -> row.get(6)).collect(Collectors.toSet()),
                members.stream().map(row -> row.get(1)).collect(Collectors.toSet()));
        for (List<String> row : offsets) {
            if (!row.get(3).equals("-")) {
                check.equal("lag of " + row, Long.parseLong(row.get(5)), Long.parseLong(row.get(4)) - Long.parseLong(row.get(3)));
            }
        }
        check.isTrue("listed", Tool.words(GroupTools.groups(check, "--list", "--state")).contains(List.of(group, "Stable")));
        Tool refused = Tool.run(check, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server",
                "BOOTSTRAP", "--reset-offsets", "--group", group, "--topic", clients.topic(), "--to-earliest", "--execute");
        check.isTrue("not to be reset: " + refused.text(), refused.text().contains(
                "Assignments can only be reset if the group '" + group + "' is inactive, but the current state is Stable."));
    }

    private static void transactionsWhileBusy(Check check, BusyClients clients) throws Exception {
        var listed = TransactionTools.table(check, "list", "--transactional-id-pattern", clients.transactionalIdPattern());
        check.equal("heading and transactional ids", listed.size(), 1 + BusyClients.TRANSACTIONAL_WRITERS);
        check.equal("different producers", listed.stream().skip(1).map(row -> row.get(2)).distinct().count(),
                (long) BusyClients.TRANSACTIONAL_WRITERS);
    }

    // About something else, while they work

    private static void recordsWhileBusy(Check check) throws Exception {
        String topic = Clients.createTopic(check, "console", 1);
        List<String> values = Clients.numbers(0, 500, 1);
        Tool.outputOf(check, String.join("\n", values) + "\n", "ConsoleProducer", "--bootstrap-server", "BOOTSTRAP",
                "--topic", topic);
        check.equal("from the console", RecordTools.consume(check, topic, 500, "--from-beginning"), values);
        List<String> produced = Tool.processOutput(check, "VerifiableProducer", "--bootstrap-server", "BOOTSTRAP", "--topic",
                topic, "--max-messages", "500", "--acks", "-1");
        check.equal("acknowledged", produced.stream().filter(line -> line.contains("producer_send_success")).count(), 500L);
        List<String> consumed = Tool.processOutput(check, "VerifiableConsumer", "--bootstrap-server", "BOOTSTRAP", "--topic",
                topic, "--group-id", check.name("verifiable"), "--max-messages", "1000", "--verbose", "--reset-policy",
                "earliest");
        check.equal("consumed", consumed.stream().filter(line -> line.contains("\"record_data\"")).count(), 1_000L);
        check.equal("committed", GroupTools.described(check, check.name("verifiable")).get(0).subList(1, 6),
                List.of(topic, "0", "1000", "1000", "0"));
    }

    private static void quietGroupWhileBusy(Check check) throws Exception {
        String topic = Clients.createTopic(check, "quiet", 2);
        String group = check.name("quiet");
        try (var producer = Clients.producer(check); var consumer = Clients.consumer(check, "group.id", group)) {
            Clients.sendNumbers(producer, topic, 2, 0, 20);
            consumer.commitSync(Map.of(
                    new TopicPartition(topic, 0), new OffsetAndMetadata(4), new TopicPartition(topic, 1), new OffsetAndMetadata(4)));
        }
        check.equal("set back", GroupTools.reset(check, group, topic, "--shift-by", "-3", "--execute"), List.of("1", "1"));
        check.equal("its lags", GroupTools.described(check, group).stream().map(row -> row.get(5)).toList(), List.of("9", "9"));
        GroupTools.groups(check, "--delete", "--group", group);
        check.isTrue("gone", !GroupTools.groups(check, "--list").contains(group));
    }

    // When they have come to an end

    private static void groupsWhenAllIsRead(Check check, BusyClients clients) throws Exception {
        // The last markers may still be on their way.
        check.until("all markers are there", () -> endOffsets(check, clients.topic()).equals(clients.limits()));
        for (String protocol : BusyClients.PROTOCOLS) {
            check.until("the " + protocol + " group has committed all",
                    () -> current(check, clients.group(protocol)).equals(clients.limits()));
            Set<String> lags = GroupTools.described(check, clients.group(protocol)).stream().map(row -> row.get(5))
                    .collect(Collectors.toSet());
            check.equal("lags", lags, Set.of("0"));
        }
    }

    /** The committed offsets in the order of the partitions, -1 where there is none. */
    private static List<Long> current(Check check, String group) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        GroupTools.described(check, group).forEach(row -> offsets.put(
                Integer.parseInt(row.get(2)), row.get(3).equals("-") ? -1 : Long.parseLong(row.get(3))));
        return new ArrayList<>(offsets.values());
    }

    private static void groupsWithoutMembers(Check check, BusyClients clients) throws Exception {
        for (String protocol : BusyClients.PROTOCOLS) {
            String group = clients.group(protocol);
            check.until(group + " is empty", () -> GroupTools.described(check, group, "--state").get(0).contains("Empty"));
            List<String> again = GroupTools.reset(check, group, clients.topic(), "--to-earliest", "--execute");
            check.equal("set to the beginning", again, java.util.Collections.nCopies(BusyClients.WRITERS, "0"));
            check.equal("as it was set", current(check, group), java.util.Collections.nCopies(BusyClients.WRITERS, 0L));
            check.equal("deleted", GroupTools.groups(check, "--delete", "--group", group),
                    List.of("Deletion of requested consumer groups ('" + group + "') was successful."));
        }
    }

    // Transactions

    /** 200 producers have a transaction open at once; then one half commits, the other aborts. */
    static void openTransactions(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", TRANSACTIONS);
        String id = check.name("producer");
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(20);
        try {
            for (int number = 0; number < TRANSACTIONS; number++) {
                producers.add(Clients.producer(check, "transactional.id", id + "-" + number));
            }
            forEach(threads, number -> {
                producers.get(number).initTransactions();
                producers.get(number).beginTransaction();
                return producers.get(number).send(new ProducerRecord<>(topic, number, null, "" + number)).get();
            });
            check.equal("all are open", states(check, id), Map.of("Ongoing", TRANSACTIONS));
            check.equal("nothing is committed", lastStable(check, topic), Set.of(0L));
            check.equal("all is written", new HashSet<>(endOffsets(check, topic)), Set.of(1L));
            // They are open, but their coordinator knows of them.
            check.equal("hanging", TransactionTools.table(check, "find-hanging", "--broker-id", "1",
                    "--max-transaction-timeout", "0").size(), 1);
            for (int number : List.of(0, 77, TRANSACTIONS - 1)) {
                List<String> described = TransactionTools.table(check, "describe", "--transactional-id", id + "-" + number).get(1);
                check.equal("state of " + number, described.get(4), "Ongoing");
                check.equal("partition of " + number, described.get(described.size() - 1), topic + "-" + number);
                List<List<String>> open = TransactionTools.table(check, "describe-producers", "--topic", topic, "--partition", "" + number);
                check.equal("producers of " + number, open.size(), 2);
                check.equal("same producer", open.get(1).get(0), described.get(2));
                check.equal("starts at", open.get(1).get(5), "0");
            }
            forEach(threads, number -> {
                if (number % 2 == 0) {
                    producers.get(number).commitTransaction();
                } else {
                    producers.get(number).abortTransaction();
                }
                return null;
            });
            check.until("all are complete", () -> states(check, id).equals(
                    Map.of("CompleteCommit", TRANSACTIONS / 2, "CompleteAbort", TRANSACTIONS / 2)));
            check.equal("all can be read", lastStable(check, topic), Set.of(2L));
            List<String> committed = RecordTools.consume(
                    check, topic, TRANSACTIONS / 2, "--from-beginning", "--isolation-level", "read_committed");
            check.equal("values", new TreeSet<>(committed), new TreeSet<>(Clients.numbers(0, TRANSACTIONS, 2)));
        } finally {
            forEach(threads, number -> {
                producers.get(number).close();
                return null;
            });
            threads.shutdown();
        }
    }

    private interface Step {
        Object make(int number) throws Exception;
    }

    /** Makes a step for each of the transactions, some of them at once, and waits for all. */
    private static void forEach(ExecutorService threads, Step step) throws Exception {
        List<Callable<Object>> steps = new ArrayList<>();
        for (int number = 0; number < TRANSACTIONS; number++) {
            int one = number;
            steps.add(() -> step.make(one));
        }
        for (Future<Object> made : threads.invokeAll(steps)) {
            made.get();
        }
    }

    /** How many of the check's transactions are in which state. */
    private static Map<String, Integer> states(Check check, String id) throws Exception {
        Map<String, Integer> states = new TreeMap<>();
        TransactionTools.table(check, "list", "--transactional-id-pattern", id + "-.*").stream().skip(1)
                .forEach(row -> states.merge(row.get(3), 1, Integer::sum));
        return states;
    }

    /** Up to where readers of committed records get, of all partitions. */
    private static Set<Long> lastStable(Check check, String topic) {
        try (var consumer = Clients.consumer(check, "isolation.level", "read_committed")) {
            return new HashSet<>(consumer.endOffsets(Clients.partitions(topic, TRANSACTIONS)).values());
        }
    }
}
