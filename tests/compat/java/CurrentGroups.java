import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidRegularExpression;

/** What only version 4 of the client can do with groups. */
final class CurrentGroups {
    private CurrentGroups() {}

    static void addTo(Checks checks) {
        checks.add("consumer-protocol-pattern", CurrentGroups::pattern)
                .add("group-listing", CurrentGroups::listing);
    }

    /** The broker matches the expression (RE2) against topics, also those that are made later. */
    static void pattern(Check check) throws Exception {
        String first = Clients.createTopic(check, "matches-a", 1);
        Clients.createTopic(check, "differs", 1);
        String expression = "matches-[a-z]-" + check.name("").substring(1);
        try (var consumer = Clients.consumer(check, "group.id", check.name("group"), "group.protocol", "consumer")) {
            consumer.subscribe(new SubscriptionPattern(expression));
            check.until("the one", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().equals(Set.of(new TopicPartition(first, 0)));
            });
            String second = Clients.createTopic(check, "matches-b", 1);
            check.until("the new one too", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().equals(Set.of(new TopicPartition(first, 0), new TopicPartition(second, 0)));
            });
            try (Admin admin = Clients.admin(check)) {
                admin.deleteTopics(List.of(second)).all().get();
            }
            check.until("without the deleted one", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().equals(Set.of(new TopicPartition(first, 0)));
            });
        }
        try (var consumer = Clients.consumer(check, "group.id", check.name("bad"), "group.protocol", "consumer")) {
            consumer.subscribe(new SubscriptionPattern("(unclosed"));
            check.refused("a bad expression", InvalidRegularExpression.class, () -> {
                check.until("it is refused", () -> !consumer.poll(Clients.POLL).isEmpty());
                return null;
            });
        }
    }

    static void listing(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (Admin admin = Clients.admin(check);
                var classic = Clients.consumer(check, "group.id", check.name("classic"));
                var modern = Clients.consumer(check, "group.id", check.name("modern"), "group.protocol", "consumer");
                var simple = Clients.consumer(check, "group.id", check.name("simple"))) {
            simple.assign(Clients.partitions(topic, 1));
            simple.commitSync(java.util.Map.of(new TopicPartition(topic, 0),
                    new org.apache.kafka.clients.consumer.OffsetAndMetadata(0)));
            for (var consumer : List.of(classic, modern)) {
                consumer.subscribe(List.of(topic));
                check.until("the partition is assigned", () -> {
                    consumer.poll(Clients.POLL);
                    return consumer.assignment().size() == 1;
                });
            }
            check.until("both are stable", () -> {
                classic.poll(Clients.POLL);
                modern.poll(Clients.POLL);
                return mine(check, admin, new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE)))
                        .equals(List.of("classic Classic consumer Stable", "modern Consumer consumer Stable"));
            });
            check.equal("all", mine(check, admin, new ListGroupsOptions()), List.of(
                    "classic Classic consumer Stable", "modern Consumer consumer Stable", "simple Classic  Empty"));
            check.equal("of the type", mine(check, admin, new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))),
                    List.of("modern Consumer consumer Stable"));
            check.equal("empty ones", mine(check, admin, new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))),
                    List.of("simple Classic  Empty"));
            check.refused("a modern group as a classic one", GroupIdNotFoundException.class,
                    () -> admin.describeClassicGroups(List.of(check.name("modern"))).all().get());
            check.refused("a group that is not there", GroupIdNotFoundException.class,
                    () -> admin.describeConsumerGroups(List.of(check.name("nothing"))).all().get());
        }
    }

    private static List<String> mine(Check check, Admin admin, ListGroupsOptions options) throws Exception {
        return admin.listGroups(options).all().get().stream()
                .filter(group -> group.groupId().endsWith(check.name("").substring(1)))
                .map(group -> group.groupId().split("-")[0] + " " + group.type().orElseThrow() + " " + group.protocol() + " "
                        + group.groupState().orElseThrow())
                .sorted().toList();
    }
}
