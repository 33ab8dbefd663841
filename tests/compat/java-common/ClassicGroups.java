import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** Groups whose leader assigns: eager and cooperative rebalances, static members, late members. */
final class ClassicGroups {
    private ClassicGroups() {}

    static void addTo(Checks checks) {
        checks.add("group-eager", ClassicGroups::eager)
                .add("group-cooperative", ClassicGroups::cooperative)
                .add("group-static-member", ClassicGroups::staticMember)
                .add("group-by-regular-expression", ClassicGroups::byRegularExpression)
                .add("group-late-member", ClassicGroups::lateMember)
                .add("group-members-removed", ClassicGroups::membersRemoved)
                .add("group-auto-commit", ClassicGroups::autoCommit)
                .add("group-admin", ClassicGroups::admin)
                .add("group-inconsistent-protocols", ClassicGroups::inconsistentProtocols)
                .add("group-two-hundred-clients", ClassicGroups::twoHundredClients)
                .add("group-through-kill", check -> throughRestart(check, "kill", "classic"))
                .add("group-through-termination", check -> throughRestart(check, "terminate", "classic"));
    }

    /** A consumer that remembers what was assigned to it and taken from it. */
    static final class Member implements AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<String> events = new ArrayList<>();

        Member(Check check, Collection<String> topics, Object... namesAndValues) {
            Object[] all = new Object[namesAndValues.length + 4];
            System.arraycopy(new Object[] {"group.id", check.name("group"), "metadata.max.age.ms", 500}, 0, all, 0, 4);
            System.arraycopy(namesAndValues, 0, all, 4, namesAndValues.length);
            consumer = Clients.consumer(check, all);
            consumer.subscribe(topics, new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    note("+", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    note("-", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    note("lost", partitions);
                }
            });
        }

        private void note(String what, Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                events.add(what + new TreeSet<>(partitions.stream().map(TopicPartition::partition).toList()));
            }
        }

        List<Integer> assignment() {
            return consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
        }

        @Override
        public void close() {
            consumer.close(Duration.ofSeconds(5));
        }
    }

    /** Polls all members until the condition holds. */
    static void settle(Check check, String what, Collection<Member> members, Callable<Boolean> holds) throws Exception {
        check.until(what, () -> {
            members.forEach(member -> member.consumer.poll(Duration.ofMillis(20)));
            return holds.call();
        });
    }

    static ConsumerGroupDescription describe(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    static void eager(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 4);
        Object[] settings = {"partition.assignment.strategy", RangeAssignor.class.getName()};
        try (var first = new Member(check, List.of(topic), settings); var producer = Clients.producer(check)) {
            settle(check, "the first has all", List.of(first), () -> first.assignment().size() == 4);
            Clients.sendNumbers(producer, topic, 4, 0, 40);
            check.equal("all records", Clients.read(check, first.consumer, 40).size(), 40);
            first.consumer.commitSync();
            try (var second = new Member(check, List.of(topic), settings)) {
                List<Member> both = List.of(first, second);
                settle(check, "each has two", both,
                        () -> first.assignment().size() == 2 && second.assignment().size() == 2);
                Set<Integer> together = new TreeSet<>(first.assignment());
                together.addAll(second.assignment());
                check.equal("together", together, Set.of(0, 1, 2, 3));
                check.equal("events", first.events.subList(0, 2), List.of("+[0, 1, 2, 3]", "-[0, 1, 2, 3]"));
                // The member that takes over does not read committed records again.
                Clients.sendNumbers(producer, topic, 4, 40, 80);
                List<Integer> values = new ArrayList<>();
                settle(check, "the rest is read", List.of(), () -> {
                    for (Member member : both) {
                        member.consumer.poll(Duration.ofMillis(20))
                                .forEach(record -> values.add(Integer.parseInt(record.value())));
                    }
                    return values.size() >= 40;
                });
                values.sort(null);
                check.equal("values", values.stream().map(String::valueOf).toList(), Clients.numbers(40, 80, 1));
                both.forEach(member -> member.consumer.commitSync());
            }
            settle(check, "the first has all again", List.of(first), () -> first.assignment().size() == 4);
        }
    }

    static void cooperative(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 6);
        Object[] settings = {"partition.assignment.strategy", CooperativeStickyAssignor.class.getName()};
        try (var first = new Member(check, List.of(topic), settings)) {
            settle(check, "the first has all", List.of(first), () -> first.assignment().size() == 6);
            try (var second = new Member(check, List.of(topic), settings)) {
                settle(check, "each has three", List.of(first, second),
                        () -> first.assignment().size() == 3 && second.assignment().size() == 3);
                // The first never gave up what it keeps.
                check.equal("first", first.events.size(), 2);
                check.equal("first, revoked", first.events.get(1), "-" + new TreeSet<>(second.assignment()));
                check.equal("second", second.events, List.of("+" + new TreeSet<>(second.assignment())));
            }
            settle(check, "the first has all again", List.of(first), () -> first.assignment().size() == 6);
            check.equal("never lost", first.events.stream().filter(event -> event.startsWith("lost")).count(), 0L);
        }
    }

    static void staticMember(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 4);
        Object[] one = {"group.instance.id", "one", "session.timeout.ms", 30_000};
        Object[] two = {"group.instance.id", "two", "session.timeout.ms", 30_000};
        try (Admin admin = Clients.admin(check); var first = new Member(check, List.of(topic), one)) {
            var second = new Member(check, List.of(topic), two);
            settle(check, "each has two", List.of(first, second),
                    () -> first.assignment().size() == 2 && second.assignment().size() == 2);
            List<Integer> assigned = second.assignment();
            int generation = first.consumer.groupMetadata().generationId();
            second.close();
            // A static member that comes back gets its old assignment, without a rebalance of the others.
            try (var back = new Member(check, List.of(topic), two)) {
                settle(check, "it is back", List.of(first, back), () -> back.assignment().equals(assigned));
                check.equal("generation", first.consumer.groupMetadata().generationId(), generation);
                var instances = new TreeSet<String>();
                describe(admin, check.name("group")).members()
                        .forEach(member -> instances.add(member.groupInstanceId().orElse("none")));
                check.equal("instances", instances, new TreeSet<>(Set.of("one", "two")));
                // Another with its name takes its place and fences it.
                try (var usurper = new Member(check, List.of(topic), two)) {
                    check.refused("the one before", FencedInstanceIdException.class, () -> {
                        settle(check, "it is fenced", List.of(first, usurper, back), () -> false);
                        return null;
                    });
                    settle(check, "the usurper has it", List.of(first, usurper), () -> usurper.assignment().equals(assigned));
                }
            }
            admin.removeMembersFromConsumerGroup(check.name("group"),
                    new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("two")))).all().get();
            settle(check, "the first has all", List.of(first), () -> first.assignment().size() == 4);
        }
    }

    static void byRegularExpression(Check check) throws Exception {
        String first = Clients.createTopic(check, "matches-a", 1);
        Clients.createTopic(check, "differs", 1);
        try (var consumer = Clients.consumer(check, "group.id", check.name("group"), "metadata.max.age.ms", 300)) {
            consumer.subscribe(Pattern.compile("matches-.-" + check.name("").substring(1) + "|nothing"));
            check.until("the one", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().equals(Set.of(new TopicPartition(first, 0)));
            });
            String second = Clients.createTopic(check, "matches-b", 2);
            check.until("the new one too", () -> {
                consumer.poll(Clients.POLL);
                return consumer.assignment().equals(Set.of(new TopicPartition(first, 0), new TopicPartition(second, 0),
                        new TopicPartition(second, 1)));
            });
        }
    }

    /** A member that does not poll in time loses its place, and its commit is refused. */
    static void lateMember(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var late = new Member(check, List.of(topic), "max.poll.interval.ms", 1_000, "heartbeat.interval.ms", 200)) {
            settle(check, "it has both", List.of(late), () -> late.assignment().size() == 2);
            try (var other = new Member(check, List.of(topic))) {
                settle(check, "the other has both", List.of(other), () -> other.assignment().size() == 2);
                var refused = check.refused("the late commit", RuntimeException.class, () -> {
                    late.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                    return null;
                });
                check.isTrue("refused: " + refused,
                        refused instanceof CommitFailedException || refused instanceof RebalanceInProgressException);
                settle(check, "they share", List.of(late, other),
                        () -> late.assignment().size() == 1 && other.assignment().size() == 1);
                check.isTrue("what was lost", late.events.contains("lost[0, 1]"));
            }
        }
    }

    /** An administrator removes all members: those that are alive join again. */
    static void membersRemoved(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (Admin admin = Clients.admin(check);
                var stays = new Member(check, List.of(topic), "heartbeat.interval.ms", 200);
                var idle = new Member(check, List.of(topic), "heartbeat.interval.ms", 200)) {
            settle(check, "each has one", List.of(stays, idle),
                    () -> stays.assignment().size() == 1 && idle.assignment().size() == 1);
            check.equal("members", describe(admin, check.name("group")).members().size(), 2);
            admin.removeMembersFromConsumerGroup(check.name("group"), new RemoveMembersFromConsumerGroupOptions())
                    .all().get();
            check.equal("no members", describe(admin, check.name("group")).members().size(), 0);
            settle(check, "who polls comes back for all", List.of(stays), () -> stays.assignment().size() == 2);
            check.isTrue("what was lost", stays.events.stream().anyMatch(event -> event.startsWith("lost")));
        }
    }

    static void autoCommit(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 1);
        Object[] settings = {"enable.auto.commit", true, "auto.commit.interval.ms", 100};
        try (var producer = Clients.producer(check); var member = new Member(check, List.of(topic), settings)) {
            Clients.sendNumbers(producer, topic, 1, 0, 10);
            Clients.read(check, member.consumer, 10);
            Set<TopicPartition> partition = Set.of(new TopicPartition(topic, 0));
            check.until("it is committed", () -> {
                member.consumer.poll(Clients.POLL);
                var committed = member.consumer.committed(partition).get(new TopicPartition(topic, 0));
                return committed != null && committed.offset() == 10;
            });
            Clients.sendNumbers(producer, topic, 1, 10, 15);
            Clients.read(check, member.consumer, 5);
        }
        // Closing committed the rest.
        try (var producer = Clients.producer(check); var member = new Member(check, List.of(topic), settings)) {
            Clients.sendNumbers(producer, topic, 1, 15, 17);
            check.equal("from there on", Clients.values(Clients.read(check, member.consumer, 2)), List.of("15", "16"));
        }
    }

    static void admin(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        String group = check.name("group");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Clients.admin(check)) {
            check.isTrue("a group that was never there is gone", isGone(admin, check.name("nothing")));
            try (var member = new Member(check, List.of(topic), "client.id", "somebody")) {
                settle(check, "it has both", List.of(member), () -> member.assignment().size() == 2);
                ConsumerGroupDescription description = describe(admin, group);
                check.equal("state", description.state().toString(), "Stable");
                check.equal("assignor", description.partitionAssignor(), "range");
                check.equal("type", description.type().toString(), "Classic");
                check.isTrue("a node coordinates it", check.nodes().contains(description.coordinator().id()));
                var described = description.members().iterator().next();
                check.equal("client", described.clientId(), "somebody");
                check.equal("assignment", described.assignment().topicPartitions(), Set.copyOf(Clients.partitions(topic, 2)));
                check.fact("host", described.host());
                member.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0)));
                check.refused("deleting it", GroupNotEmptyException.class,
                        () -> admin.deleteConsumerGroups(List.of(group)).all().get());
                check.refused("deleting offsets", GroupSubscribedToTopicException.class,
                        () -> admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get());
                var refused = check.refused("altering offsets", Exception.class, () -> admin.alterConsumerGroupOffsets(
                        group, Map.of(partition, new OffsetAndMetadata(1))).all().get());
                check.fact("altering offsets", refused.getClass().getSimpleName());
            }
            check.until("it is empty", () -> describe(admin, group).state().toString().equals("Empty"));
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(5, "moved"))).all().get();
            check.equal("altered", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(),
                    Map.of(partition, new OffsetAndMetadata(5, "moved")));
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            check.equal("deleted", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), Map.of());
            admin.deleteConsumerGroups(List.of(group)).all().get();
            check.isTrue("the deleted group is gone", isGone(admin, group));
            check.refused("deleting it again", GroupIdNotFoundException.class,
                    () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        }
    }

    /** Clients of version 3 see a dead group where those of version 4 see an error. */
    static boolean isGone(Admin admin, String group) throws Exception {
        try {
            return describe(admin, group).state().toString().equals("Dead");
        } catch (ExecutionException refused) {
            return refused.getCause() instanceof GroupIdNotFoundException;
        }
    }

    static void inconsistentProtocols(Check check) throws Exception {
        String topic = Clients.createTopic(check, "topic", 2);
        try (var range = new Member(check, List.of(topic), "partition.assignment.strategy", RangeAssignor.class.getName())) {
            settle(check, "it has both", List.of(range), () -> range.assignment().size() == 2);
            try (var other = new Member(
                    check, List.of(topic), "partition.assignment.strategy", RoundRobinAssignor.class.getName())) {
                check.refused("another assignor", InconsistentGroupProtocolException.class, () -> {
                    settle(check, "it is refused", List.of(other), () -> false);
                    return null;
                });
            }
        }
    }

    /** Two hundred clients at once: each its own connections, all in one group, with one partition each. */
    static void twoHundredClients(Check check) throws Exception {
        int count = 200;
        String topic = Clients.createTopic(check, "topic", count);
        List<Member> members = new ArrayList<>();
        try (var producer = Clients.producer(check)) {
            Clients.sendNumbers(producer, topic, count, 0, count);
            for (int number = 0; number < count; number++) {
                // As heavy as 200 in one process must be: small buffers, few threads' worth of timers.
                members.add(new Member(check, List.of(topic), "session.timeout.ms", 45_000, "receive.buffer.bytes", 8_192,
                        "client.id", "member-" + number, "metadata.max.age.ms", 60_000));
            }
            Set<Integer> read = new HashSet<>();
            settle(check, "each has its own", List.of(), () -> {
                for (Member member : members) {
                    member.consumer.poll(Duration.ofMillis(1)).forEach(record -> read.add(record.partition()));
                }
                return read.size() == count && members.stream().allMatch(member -> member.assignment().size() == 1);
            });
            Set<Integer> assigned = new HashSet<>();
            members.forEach(member -> assigned.addAll(member.assignment()));
            check.equal("assigned", assigned.size(), count);
            members.forEach(member -> member.consumer.commitAsync());
        } finally {
            members.forEach(member -> member.consumer.close(Duration.ZERO));
        }
    }

    /** Three members go on through the end of the broker: every record comes at least once, commits are not lost. */
    static void throughRestart(Check check, String how, String protocol) throws Exception {
        String topic = Clients.createTopic(check, "topic", 6);
        Object[] settings = {"group.protocol", protocol, "reconnect.backoff.max.ms", 200, "retry.backoff.max.ms", 200};
        Map<Integer, Integer> seen = new TreeMap<>();
        List<Member> members = new ArrayList<>();
        try (var producer = Clients.producer(check, "reconnect.backoff.max.ms", 200)) {
            for (int number = 0; number < 3; number++) {
                members.add(new Member(check, List.of(topic), settings));
            }
            settle(check, "each has two", members,
                    () -> members.stream().allMatch(member -> member.assignment().size() == 2));
            for (int round = 0; round < 4; round++) {
                Clients.sendNumbers(producer, topic, 6, round * 600, round * 600 + 600);
                if (round % 2 == 1) {
                    check.restart(how);
                }
                int end = round * 600 + 600;
                settle(check, "round " + round + " is read", List.of(), () -> {
                    for (Member member : members) {
                        var records = member.consumer.poll(Duration.ofMillis(50));
                        records.forEach(record -> seen.merge(Integer.parseInt(record.value()), 1, Integer::sum));
                        if (!records.isEmpty()) {
                            try {
                                member.consumer.commitSync();
                            } catch (CommitFailedException | RebalanceInProgressException again) {
                                // The next assignment starts where the last commit was.
                            }
                        }
                    }
                    return seen.size() == end;
                });
            }
            settle(check, "each has two again", members,
                    () -> members.stream().allMatch(member -> member.assignment().size() == 2));
            members.forEach(member -> member.consumer.commitSync());
            try (Admin admin = Clients.admin(check)) {
                var committed = admin.listConsumerGroupOffsets(check.name("group")).partitionsToOffsetAndMetadata().get();
                for (TopicPartition partition : Clients.partitions(topic, 6)) {
                    check.equal("committed in " + partition, committed.get(partition).offset(), 400L);
                }
            }
        } finally {
            members.forEach(Member::close);
        }
    }
}
