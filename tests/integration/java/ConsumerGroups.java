// Groups of the consumer protocol with Kafka's own client: what happens, line by line, for a test to compare.
//     java -cp ... ConsumerGroups.java BOOTSTRAP PREFIX

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ConsumerGroups {
    static final long PATIENCE_MS = 60_000;

    static String bootstrap;
    static String prefix;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        try (Admin opened = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin = opened;
            share("uniform");
            share("range");
            patterns();
            staticMembers();
            commits();
            slowMember();
            transactions();
            administration();
            migration("org.apache.kafka.clients.consumer.RangeAssignor");
            migration("org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
    }

    static void share(String assignor) throws Exception {
        String topic = topic("share-" + assignor, 4);
        Map<String, Object> settings = Map.of("group.remote.assignor", assignor);
        var first = member(topic, settings);
        until(List.of(first), () -> first.assignment().size() == 4);
        var second = member(topic, settings);
        var both = List.of(first, second);
        until(both, () -> sizes(both).equals(List.of(2, 2)));
        Set<String> shares = new TreeSet<>(Set.of(partitions(first).toString(), partitions(second).toString()));
        print(assignor, assignor.equals("range") ? shares : sizes(both));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6))).all().get();
        until(both, () -> sizes(both).equals(List.of(3, 3)));
        print(assignor, "grown", sizes(both));
        second.unsubscribe();
        until(both, () -> sizes(both).equals(List.of(6, 0)));
        print(assignor, "unsubscribed", sizes(both));
        second.subscribe(List.of(topic));
        until(both, () -> sizes(both).equals(List.of(3, 3)));
        first.close();
        until(List.of(second), () -> second.assignment().size() == 6);
        print(assignor, "left", partitions(second));
        second.close();
    }

    static void patterns() throws Exception {
        String one = topic("pattern-one", 2);
        var consumer = open("pattern", Map.of());
        consumer.subscribe(new SubscriptionPattern(prefix + "-pattern-.*"));
        until(List.of(consumer), () -> consumer.assignment().size() == 2);
        topic("pattern-two", 3);
        until(List.of(consumer), () -> consumer.assignment().size() == 5);
        print("pattern", consumer.assignment().size());
        consumer.subscribe(new SubscriptionPattern(one));
        until(List.of(consumer), () -> consumer.assignment().size() == 2);
        print("pattern", "narrowed", consumer.assignment().size());
        consumer.close();
        var wrong = open("pattern", Map.of());
        wrong.subscribe(new SubscriptionPattern("(unbalanced"));
        print("pattern", "wrong", refusal(() -> until(List.of(wrong), () -> false)));
        wrong.close();
    }

    static void staticMembers() throws Exception {
        String topic = topic("static", 4);
        var staying = member(topic, Map.of("group.instance.id", "staying"));
        var leaving = member(topic, Map.of("group.instance.id", "leaving"));
        var both = List.of(staying, leaving);
        until(both, () -> sizes(both).equals(List.of(2, 2)));
        until(both, () -> describe(topic).groupState().toString().equals("Stable"));
        Set<TopicPartition> before = new HashSet<>(leaving.assignment());
        int epoch = describe(topic).groupEpoch().get();
        leaving.close();
        var returned = member(topic, Map.of("group.instance.id", "leaving"));
        until(List.of(staying, returned), () -> returned.assignment().size() == 2);
        print("static", "same partitions", returned.assignment().equals(before));
        print("static", "same epoch", describe(topic).groupEpoch().get() == epoch);
        var thief = member(topic, Map.of("group.instance.id", "staying"));
        print("static", "thief", refusal(() -> until(List.of(thief), () -> false)));
        thief.close();
        staying.close();
        print("static", "away", describe(topic).members().size());
        admin.removeMembersFromConsumerGroup(
            topic, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("staying")))).all().get();
        until(List.of(returned), () -> returned.assignment().size() == 4);
        print("static", "removed", describe(topic).members().size());
        returned.close();
    }

    static void commits() throws Exception {
        String topic = topic("commits", 2);
        var zero = new TopicPartition(topic, 0);
        var first = member(topic, Map.of());
        until(List.of(first), () -> first.assignment().size() == 2);
        first.commitSync(Map.of(zero, new OffsetAndMetadata(5, "note")));
        print("commits", first.committed(Set.of(zero)).get(zero).offset(), first.committed(Set.of(zero)).get(zero).metadata());
        var stranger = open(topic, Map.of());
        stranger.assign(List.of(zero));
        print("commits", "stranger", refusal(() -> stranger.commitSync(Map.of(zero, new OffsetAndMetadata(6)))));
        print("commits", "stranger reads", stranger.committed(Set.of(zero)).get(zero).offset());
        first.close();
        stranger.commitSync(Map.of(zero, new OffsetAndMetadata(7)));
        print("commits", "of an empty group", stranger.committed(Set.of(zero)).get(zero).offset());
        stranger.close();
    }

    static void slowMember() throws Exception {
        String topic = topic("slow", 4);
        var slow = member(topic, Map.of("max.poll.interval.ms", 2_000));
        var other = member(topic, Map.of());
        var both = List.of(slow, other);
        until(both, () -> sizes(both).equals(List.of(2, 2)));
        until(List.of(other), () -> other.assignment().size() == 4);
        print("slow", describe(topic).members().size());
        until(both, () -> sizes(both).equals(List.of(2, 2)));
        print("slow", "again", sizes(both));
        slow.close();
        other.close();
    }

    static void transactions() throws Exception {
        String topic = topic("transactions", 2);
        var zero = new TopicPartition(topic, 0);
        var consumer = member(topic, Map.of());
        until(List.of(consumer), () -> consumer.assignment().size() == 2);
        ConsumerGroupMetadata early = consumer.groupMetadata();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", topic);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "key", "value"));
            producer.sendOffsetsToTransaction(Map.of(zero, new OffsetAndMetadata(3)), early);
            producer.commitTransaction();
            print("transactions", consumer.committed(Set.of(zero)).get(zero).offset());
            var second = member(topic, Map.of());
            var both = List.of(consumer, second);
            until(both, () -> sizes(both).equals(List.of(1, 1)));
            producer.beginTransaction();
            var kept = consumer.assignment().iterator().next();
            producer.sendOffsetsToTransaction(Map.of(kept, new OffsetAndMetadata(4)), early);
            producer.commitTransaction();
            print("transactions", "kept since", consumer.committed(Set.of(kept)).get(kept).offset());
            var moved = second.assignment().iterator().next();
            producer.beginTransaction();
            print("transactions", "moved", refusal(() -> {
                producer.sendOffsetsToTransaction(Map.of(moved, new OffsetAndMetadata(9)), early);
                producer.commitTransaction();
            }));
            producer.abortTransaction();
            second.close();
        }
        consumer.close();
    }

    static void administration() throws Exception {
        String topic = topic("administration", 2);
        var zero = new TopicPartition(topic, 0);
        var consumer = member(topic, Map.of("client.id", "seen", "client.rack", "rack"));
        until(List.of(consumer), () -> consumer.assignment().size() == 2);
        consumer.commitSync(Map.of(zero, new OffsetAndMetadata(1)));
        var description = describe(topic);
        print("described", description.groupState(), description.type(), description.partitionAssignor(),
            description.isSimpleConsumerGroup(), description.groupEpoch().get(), description.targetAssignmentEpoch().get());
        var shown = description.members().iterator().next();
        print("member", shown.clientId(), shown.host(), shown.memberEpoch().get(), shown.upgraded(),
            shown.groupInstanceId(), shown.assignment().topicPartitions().size(),
            shown.targetAssignment().get().topicPartitions().size());
        for (GroupType type : List.of(GroupType.CONSUMER, GroupType.CLASSIC)) {
            var listed = admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all().get();
            print("listed", type, listed.stream().anyMatch(group -> group.groupId().equals(topic)));
        }
        print("missing", refusal(() -> get(() -> admin.describeConsumerGroups(List.of(prefix + "-missing")).all().get())));
        print("not empty", refusal(() -> get(() -> admin.deleteConsumerGroups(List.of(topic)).all().get())));
        print("subscribed", refusal(() -> get(() -> admin.deleteConsumerGroupOffsets(topic, Set.of(zero)).all().get())));
        print("altered", refusal(() -> get(
            () -> admin.alterConsumerGroupOffsets(topic, Map.of(zero, new OffsetAndMetadata(9))).all().get())));
        consumer.close();
        admin.alterConsumerGroupOffsets(topic, Map.of(zero, new OffsetAndMetadata(9))).all().get();
        var offsets = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
        print("offsets", offsets.get(zero).offset());
        admin.deleteConsumerGroupOffsets(topic, Set.of(zero)).all().get();
        admin.deleteConsumerGroups(List.of(topic)).all().get();
        print("deleted", refusal(() -> get(() -> admin.describeConsumerGroups(List.of(topic)).all().get())));
    }

    static void migration(String assignor) throws Exception {
        String name = assignor.substring(assignor.lastIndexOf('.') + 1);
        String topic = topic("migration-" + name, 4);
        Map<String, Object> classic = Map.of(
            "group.protocol", "classic", "partition.assignment.strategy", assignor, "heartbeat.interval.ms", 300);
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        members.add(member(topic, classic));
        members.add(member(topic, classic));
        until(members, () -> sizes(members).equals(List.of(2, 2)));
        print(name, describe(topic).type(), sizes(members));
        members.add(member(topic, Map.of()));
        settle(topic, members);
        print(name, describe(topic).type(), members.size());
        members.remove(0).close();
        settle(topic, members);
        print(name, describe(topic).type(), members.size());
        members.remove(1).close();
        settle(topic, members);
        print(name, describe(topic).type(), members.size());
        members.remove(0).close();
    }

    /**
     * Waits until the broker and all members agree, and a while longer: a classic member that has just got its assignment
     * when the group begins another generation comes back under another id, and the others wait for the old one.
     */
    static void settle(String topic, List<KafkaConsumer<String, String>> members) {
        until(members, () -> shared(members, 4) && describe(topic).groupState().toString().equals("Stable"));
        long settledAtMs = System.currentTimeMillis();
        until(members, () -> System.currentTimeMillis() > settledAtMs + 1_000);
    }

    // What the scenes consist of

    static String topic(String name, int partitions) throws Exception {
        String topic = prefix + "-" + name;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    /** A member of the group that is named like its topic. */
    static KafkaConsumer<String, String> member(String topic, Map<String, Object> settings) {
        var consumer = open(topic, settings);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static KafkaConsumer<String, String> open(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "enable.auto.commit", false, "metadata.max.age.ms", 1_000));
        if (!settings.containsKey("group.protocol")) {
            all.put("group.protocol", "consumer");
        }
        all.putAll(settings);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** Lets members poll in turn until something is so. */
    static void until(List<KafkaConsumer<String, String>> members, BooleanSupplier condition) {
        long deadlineMs = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadlineMs) {
                throw new IllegalStateException("never: " + sizes(members));
            }
            for (var member : members) {
                try {
                    member.poll(Duration.ofMillis(50));
                } catch (IllegalStateException unsubscribed) {
                    continue;
                }
            }
        }
    }

    static boolean shared(List<KafkaConsumer<String, String>> members, int partitions) {
        Set<TopicPartition> all = new HashSet<>();
        members.forEach(member -> all.addAll(member.assignment()));
        var counts = sizes(members).stream().mapToInt(Integer::intValue).summaryStatistics();
        return all.size() == partitions && counts.getSum() == partitions && counts.getMax() - counts.getMin() <= 1;
    }

    static List<Integer> sizes(List<KafkaConsumer<String, String>> members) {
        return members.stream().map(member -> member.assignment().size()).toList();
    }

    static Set<Integer> partitions(KafkaConsumer<String, String> member) {
        Set<Integer> found = new TreeSet<>();
        member.assignment().forEach(owned -> found.add(owned.partition()));
        return found;
    }

    static ConsumerGroupDescription describe(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    interface Asked {
        void get() throws Exception;
    }

    static void get(Asked asked) {
        try {
            asked.get();
        } catch (ExecutionException failure) {
            throw (RuntimeException) failure.getCause();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    static String refusal(Runnable action) {
        try {
            action.run();
            return "none";
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName();
        }
    }

    static void print(Object... words) {
        List<String> line = new ArrayList<>();
        for (Object word : words) {
            line.add(String.valueOf(word).replace(prefix + "-", ""));
        }
        System.out.println(String.join(" ", line));
    }
}
