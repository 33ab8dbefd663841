// Administration.
package main

import (
	"errors"
	"fmt"
	"slices"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

// name is the Kafka error in an error, as a number, or its text.
func name(err error) string {
	var known sarama.KError
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &known):
		return fmt.Sprint(int16(known))
	default:
		return err.Error()
	}
}

func adminTopics(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	topic := createTopic(t, "topic", 2)
	create := func(topic string, detail sarama.TopicDetail) string {
		return name(admin.CreateTopic(topic, &detail, false))
	}
	nonsense := "nonsense"
	t.Equal("exists", create(topic, sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}), "36")
	t.Equal("no partitions", create(topic+"-x", sarama.TopicDetail{NumPartitions: 0, ReplicationFactor: 1}), "37")
	t.Equal("too many replicas", create(topic+"-x", sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1000}), "38")
	t.Equal("config", create(topic+"-x", sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"cleanup.policy": &nonsense}}), "40")
	t.Equal("replicas named", create(topic+"-r", sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: map[int32][]int32{0: {1}, 1: {1}}}), "none")
	t.Equal("only validated", name(admin.CreateTopic(topic+"-x", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true)), "none")
	t.Equal("grow", name(admin.CreatePartitions(topic, 5, nil, false)), "none")
	t.Equal("shrink", name(admin.CreatePartitions(topic, 1, nil, false)), "37")
	t.Until("the topic has grown", func() bool {
		described, err := admin.DescribeTopics([]string{topic})
		t.Must("describe topics", err)
		return len(described[0].Partitions) == 5
	})
	t.Until("all topics are listed", func() bool {
		topics, err := admin.ListTopics()
		t.Must("list topics", err)
		_, validated := topics[topic+"-x"]
		return topics[topic].NumPartitions == 5 && topics[topic+"-r"].NumPartitions == 2 && !validated
	})
	t.Equal("delete", name(admin.DeleteTopic(topic)), "none")
	t.Until("the topic is gone", func() bool { return name(admin.DeleteTopic(topic)) == "3" })
}

func adminConfigs(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	topic := createTopic(t, "topic", 1)
	value := func(key string) string {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key}})
		t.Must("describe config", err)
		t.Equal("entries", len(entries), 1)
		return fmt.Sprint(entries[0].Value, " ", entries[0].Source, " ", entries[0].Default)
	}
	t.Equal("default", value("retention.ms"), "604800000 Default true")
	set := "2000000"
	t.Must("alter", admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &set}}, false))
	t.Until("the config is set", func() bool { return value("retention.ms") == "2000000 Topic false" })
	t.Must("replace", admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"segment.bytes": &set}, false))
	t.Until("the config is dropped", func() bool { return value("retention.ms") == "604800000 Default true" })
	t.Equal("set by replacing all", value("segment.bytes"), "2000000 Topic false")
	small := "1048575"
	t.Equal("too small a segment", name(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"segment.bytes": &small}, false)), "40")
	bad := "soon"
	t.Equal("invalid", name(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &bad}, false)), "40")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1", ConfigNames: []string{"num.partitions"}})
	t.Must("describe broker config", err)
	t.Equal("broker configs", len(entries), 1)
}

func adminGroups(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	topic, group := createTopic(t, "topic", 2), t.Name("group")
	producer := newProducer(t, config())
	defer producer.Close()
	send(t, producer, numbers(topic, 2, 10)...)
	member := join(t, group, topic, config())
	t.Until("all is read", func() bool { return len(member.read()) == 10 })
	groups, err := admin.ListConsumerGroups()
	t.Must("list groups", err)
	t.Equal("type", groups[group], "consumer")
	describe := func() *sarama.GroupDescription {
		described, err := admin.DescribeConsumerGroups([]string{group})
		t.Must("describe group", err)
		return described[0]
	}
	of := describe()
	t.Equal("described", fmt.Sprint(of.State, " ", of.ProtocolType, " ", of.Protocol, " ", len(of.Members)), "Stable consumer range 1")
	for _, one := range of.Members {
		assignment, err := one.GetMemberAssignment()
		t.Must("assignment", err)
		t.Equal("assignment", assignment.Topics, map[string][]int32{topic: {0, 1}})
	}
	t.Equal("delete a group with members", name(admin.DeleteConsumerGroup(group)), "68")
	t.Equal("delete an offset that is consumed", name(admin.DeleteConsumerGroupOffset(group, topic, 0)), "86")
	member.leave()
	t.Until("the group is empty", func() bool { return describe().State == "Empty" })
	t.Equal("delete an offset", name(admin.DeleteConsumerGroupOffset(group, topic, 0)), "none")
	offsets, err := admin.ListConsumerGroupOffsets(group, nil)
	t.Must("list offsets", err)
	left := []string{}
	for partition, block := range offsets.Blocks[topic] {
		left = append(left, fmt.Sprint(partition, ":", block.Offset))
	}
	t.Equal("offsets that are left", left, []string{"1:5"})
	t.Equal("delete the group", name(admin.DeleteConsumerGroup(group)), "none")
	t.Equal("delete it again", name(admin.DeleteConsumerGroup(group)), "69")
	gone := describe()
	t.Fact("describe a group that is gone", fmt.Sprint(gone.State, " ", int16(gone.Err)))
}

func adminDeleteRecords(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	topic := createTopic(t, "topic", 1)
	producer := newProducer(t, config())
	defer producer.Close()
	send(t, producer, numbers(topic, 1, 20)...)
	t.Must("delete records", admin.DeleteRecords(topic, map[int32]int64{0: 7}))
	t.Equal("first record", read(t, config(), topic, 0, 1)[0].Offset, int64(7))
	t.True("beyond the end", admin.DeleteRecords(topic, map[int32]int64{0: 21}) != nil)
}

func adminCluster(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	brokers, controller, err := admin.DescribeCluster()
	t.Must("describe cluster", err)
	t.Equal("brokers", len(brokers), t.Nodes())
	t.True("the controller is one of them", slices.ContainsFunc(brokers, func(broker *sarama.Broker) bool {
		return broker.ID() == controller
	}))
}

func adminLogDirectories(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	brokers, _, err := admin.DescribeCluster()
	t.Must("describe cluster", err)
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	topic := createTopic(t, "topic", 1)
	producer := newProducer(t, config())
	defer producer.Close()
	send(t, producer, numbers(topic, 1, 10)...)
	directories, err := admin.DescribeLogDirs(ids)
	t.Must("describe log directories", err)
	found := false
	for _, id := range ids {
		for _, described := range directories[id][0].Topics {
			found = found || described.Topic == topic && described.Partitions[0].Size > 0
		}
	}
	t.True("the topic has a size", found)
}

func adminAccess(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	_, err := admin.ListAcls(sarama.AclFilter{
		ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	})
	t.Fact("access control lists without an authorizer", name(err))
	users, err := admin.DescribeUserScramCredentials(nil)
	t.Must("describe SCRAM users", err)
	t.Equal("users", len(users), 0)
}

func adminQuotas(t *checks.T) {
	admin := newAdmin(t)
	defer admin.Close()
	quotas, err := admin.DescribeClientQuotas(nil, false)
	t.Must("describe quotas", err)
	t.Equal("quotas", len(quotas), 0)
}
