import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.errors.UnsupportedAssignorException;

/** Groups of the consumer protocol (KIP-848): the broker assigns, and members move towards it one by one. */
final class ConsumerGroups {
    private ConsumerGroups() {}

    static void addTo(Checks checks) {
        checks.add("consumer-protocol-uniform", check -> sharedFairly(check, "uniform"))
                .add("consumer-protocol-range", ConsumerGroups::range)
                .add("consumer-protocol-static-member", ConsumerGroups::staticMember)
                .add("consumer-protocol-topic-grows", ConsumerGroups::topicGrows)
                .add("consumer-protocol-admin", ConsumerGroups::admin)
                .add("consumer-protocol-unknown-assignor", ConsumerGroups::unknownAssignor)
                .add("consumer-protocol-from-classic", ConsumerGroups::fromClassic)
                .add("consumer-protocol-through-kill", check -> ClassicGroups.throughRestart(check, "kill", "consumer"))
                .add("consumer-protocol-through-termination",
                        check -> ClassicGroups.throughRestart(check, "terminate", "consumer"));
    }

    static ClassicGroups.Member member(Check check, String topic, Object... namesAndValues) {
        Object[] all = new Object[namesAndValues.length + 2];
        all[0] = "group.protocol";
        all[1] = "consumer";
        System.arraycopy(namesAndValues, 0, all, 2, namesAndValues.length);
        return new ClassicGroups.Member(check, List.of(topic), all);
    }

    static void sharedFairly(Check check, String assignor) throws Exception {
        String topic = Clients.createTopic(check, "topic", 6);
        try (var first = member(check, topic, "group.remote.assignor", assignor); var producer = Clients.producer(check)) {
            ClassicGroups.settle(check, "the first has all", List.of(first), () -> first.assignment().size() == 6);
            Clients.sendNumbers(producer, topic, 6, 0, 60);
            check.equal("all records", Clients.read(check, first.consumer, 60).size(), 60);
            first.consumer.commitSync();
            try (var second = member(check, topic, "group.remote.assignor", assignor);
                    var third = member(check, topic, "group.remote.assignor", assignor)) {
                List<ClassicGroups.Member> all = List.of(first, second, third);
                ClassicGroups.settle(check, "each has two", all,
                        () -> all.stream().allMatch(member -> member.assignment().size() == 2));
                Set<Integer> together = new TreeSet<>();
                all.forEach(member -> together.addAll(member.assignment()));
                check.equal("together", together, Set.of(0, 1, 2, 3, 4, 5));
                check.isTrue("the first kept what it has",
                        first.events.stream().noneMatch(event -> event.equals("-[0, 1, 2, 3, 4, 5]")));
                Clients.sendNumbers(producer, topic, 6, 60, 120);
                List<Integer> values = new ArrayList<>();
                ClassicGroups.settle(check, "the rest is read", List.of(), () -> {
                    for (ClassicGroups.Member member : all) {
                        member.consumer.poll(Clients.POLL).forEach(record -> values.add(Integer.parseInt(record.value())));
                    }
                    return values.size() >= 60;
                });
                values.sort(null);
                check.equal("values", values.stream().map(String::valueOf).toList(), Clients.numbers(60, 120, 1));
            }
            ClassicGroups.settle(check, "the first has all again", List.of(first), () -> first.assignment().size() == 6);
        }
    }

    /** Partitions of the same number in both topics go to the same member. */
    static void range(Check check) throws Exception {
        String left = Clients.createTopic(check, "left", 4);
        String right = Clients.createTopic(check, "right", 4);
        Object[] settings = {"group.protocol", "consumer", "group.remote.assignor", "range"};
        try (var first = new ClassicGroups.Member(check, List.of(left, right), settings);
                var second = new ClassicGroups.Member(check, List.of(left, right), settings)) {
            ClassicGroups.settle(check, "each has four", List.of(first, second),
                    () -> first.consumer.assignment().size() == 4 && second.consumer.assignment().size() == 4);
            for (ClassicGroups.Member member : List.of(first, second)) {
                List<Integer> numbers = member.assignment();
                check.equal("pairs", numbers.get(0), numbers.get(1));
                check.equal("more pairs", numbers.get(2), numbers.get(3));
                check.equal("neighbours", numbers.get(2) - numbers.get(1), 1);
            }
        }
    }

    static void staticMember(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 4);
        try (var first = member(check, topic, "group.instance.id", "one"); Admin admin = Clients.admin(check)) {
            var second = member(check, topic, "group.instance.id", "two");
            ClassicGroups.settle(check, "each has two", List.of(first, second),
                    () -> first.assignment().size() == 2 && second.assignment().size() == 2);
            List<Integer> assigned = second.assignment();
            // Its instance id is in use: another member with it is refused.
            try (var other = member(check, topic, "group.instance.id", "two")) {
                check.refused("the name that is in use", UnreleasedInstanceIdException.class, () -> {
                    ClassicGroups.settle(check, "it is refused", List.of(first, second, other), () -> false);
                    return null;
                });
            }
            int events = first.events.size();
            second.close();
            try (var back = member(check, topic, "group.instance.id", "two")) {
                ClassicGroups.settle(check, "it has what it had", List.of(first, back),
                        () -> back.assignment().equals(assigned));
                check.equal("the other heard nothing", first.events.size(), events);
                check.equal("members", ClassicGroups.describe(admin, check.name("group")).members().size(), 2);
            }
        }
    }

    static void topicGrows(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var first = member(check, topic); var second = member(check, topic); Admin admin = Clients.admin(check)) {
            ClassicGroups.settle(check, "each has one", List.of(first, second),
                    () -> first.assignment().size() == 1 && second.assignment().size() == 1);
            admin.createPartitions(Map.of(topic, org.apache.kafka.clients.admin.NewPartitions.increaseTo(6))).all().get();
            ClassicGroups.settle(check, "each has three", List.of(first, second),
                    () -> first.assignment().size() == 3 && second.assignment().size() == 3);
        }
    }

    static void admin(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String group = check.name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Clients.admin(check)) {
            try (var member = member(check, topic, "client.id", "somebody", "client.rack", "here")) {
                ClassicGroups.settle(check, "it has both", List.of(member), () -> member.assignment().size() == 2);
                check.until("it is stable", () -> {
                    member.consumer.poll(Clients.POLL);
                    return ClassicGroups.describe(admin, group).state().toString().equals("Stable");
                });
                var description = ClassicGroups.describe(admin, group);
                check.equal("type", description.type().toString(), "Consumer");
                check.equal("assignor", description.partitionAssignor(), "uniform");
                var described = description.members().iterator().next();
                check.equal("client", described.clientId(), "somebody");
                check.equal("assignment", described.assignment().topicPartitions(), Set.copyOf(Clients.partitions(topic, 2)));
                check.equal("target", described.targetAssignment().isPresent(), true);
                member.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0, "here")));
                check.equal("committed", member.consumer.committed(Set.of(partition)).get(partition),
                        new OffsetAndMetadata(0, java.util.Optional.empty(), "here"));
                check.refused("deleting it", GroupNotEmptyException.class,
                        () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            }
            check.until("it is empty", () -> ClassicGroups.describe(admin, group).state().toString().equals("Empty"));
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(5))).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            check.isTrue("it is gone", ClassicGroups.isGone(admin, group));
        }
    }

    static void unknownAssignor(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        try (var member = member(check, topic, "group.remote.assignor", "unheard-of")) {
            check.refused("the assignor", UnsupportedAssignorException.class, () -> {
                ClassicGroups.settle(check, "it is refused", List.of(member), () -> false);
                return null;
            });
        }
    }

    /** A group moves from the classic to the consumer protocol while it works, and back. */
    static void fromClassic(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 4);
        String group = check.name("group");
        try (var classic = new ClassicGroups.Member(check, List.of(topic)); Admin admin = Clients.admin(check)) {
            ClassicGroups.settle(check, "the classic one has all", List.of(classic), () -> classic.assignment().size() == 4);
            var partition = new TopicPartition(topic, 0);
            classic.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(3)));
            try (var modern = member(check, topic)) {
                ClassicGroups.settle(check, "they share", List.of(classic, modern),
                        () -> classic.assignment().size() == 2 && modern.assignment().size() == 2);
                check.equal("type", ClassicGroups.describe(admin, group).type().toString(), "Consumer");
                check.equal("committed", modern.consumer.committed(Set.of(partition)).get(partition).offset(), 3L);
            }
            ClassicGroups.settle(check, "the classic one has all again", List.of(classic),
                    () -> classic.assignment().size() == 4);
            check.equal("type at the end", ClassicGroups.describe(admin, group).type().toString(), "Classic");
        }
    }
}
