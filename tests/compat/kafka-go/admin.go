// Administration, and a transaction put together from single requests.
package main

import (
	"fmt"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
)

func adminTopics(t *checks.T) {
	client, done := newClient(t)
	defer done()
	topic := createTopic(t, "topic", 2)
	create := func(config kafka.TopicConfig) string {
		created, err := client.CreateTopics(t.Context, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
		t.Must("create topic", err)
		return name(created.Errors[config.Topic])
	}
	t.Equal("create one that exists", create(kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}), "36")
	t.Equal("create with too many replicas", create(kafka.TopicConfig{Topic: topic + "-x", NumPartitions: 1, ReplicationFactor: 1000}), "38")
	t.Equal("create without partitions", create(kafka.TopicConfig{Topic: topic + "-x", NumPartitions: 0, ReplicationFactor: 1}), "37")
	t.Equal("create with a bad config", create(kafka.TopicConfig{
		Topic: topic + "-x", NumPartitions: 1, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "cleanup.policy", ConfigValue: "nonsense"}},
	}), "40")
	grown, err := client.CreatePartitions(t.Context, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}},
	})
	t.Must("create partitions", err)
	t.Equal("grow", name(grown.Errors[topic]), "none")
	t.Until("the topic has grown", func() bool { return len(partitionsOf(t, client, topic)) == 5 })
	deleted, err := client.DeleteTopics(t.Context, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	t.Must("delete topic", err)
	t.Equal("delete", name(deleted.Errors[topic]), "none")
	t.Until("the topic is gone", func() bool { return len(partitionsOf(t, client, topic)) == 0 })
}

func adminConfigs(t *checks.T) {
	client, done := newClient(t)
	defer done()
	topic := createTopic(t, "topic", 1)
	value := func(key string) string {
		described, err := client.DescribeConfigs(t.Context, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{key}},
		}})
		t.Must("describe configs", err)
		t.Equal("entries", len(described.Resources[0].ConfigEntries), 1)
		return described.Resources[0].ConfigEntries[0].ConfigValue
	}
	alter := func(key, text string) string {
		altered, err := client.IncrementalAlterConfigs(t.Context, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: key, Value: text, ConfigOperation: kafka.ConfigOperationSet}},
			}},
		})
		t.Must("alter configs", err)
		return name(altered.Resources[0].Error)
	}
	t.Equal("default", value("retention.ms"), "604800000")
	t.Equal("set", alter("retention.ms", "1000000"), "none")
	t.Until("the config is set", func() bool { return value("retention.ms") == "1000000" })
	t.Equal("a bad value", alter("retention.ms", "soon"), "40")
}

func adminGroups(t *checks.T) {
	client, done := newClient(t)
	defer done()
	topic, group := createTopic(t, "topic", 2), t.Name("group")
	write(t, topic, numbers(2, 0, 10)...)
	member := join(t, group, topic, kafka.RangeGroupBalancer{})
	t.Until("all is read", func() bool { return len(member.read()) == 10 })
	described, err := client.DescribeGroups(t.Context, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	t.Must("describe group", err)
	of := described.Groups[0]
	t.Equal("described", fmt.Sprint(of.GroupState, " ", len(of.Members)), "Stable 1")
	t.Equal("assignment", fmt.Sprint(of.Members[0].MemberAssignments.Topics), fmt.Sprintf("[{%s [0 1]}]", topic))
	listed, err := client.ListGroups(t.Context, &kafka.ListGroupsRequest{})
	t.Must("list groups", err)
	found := ""
	for _, one := range listed.Groups {
		if one.GroupID == group {
			found = one.ProtocolType
		}
	}
	t.Equal("listed", found, "consumer")
	remove := func() string {
		deleted, err := client.DeleteGroups(t.Context, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		t.Must("delete group", err)
		return name(deleted.Errors[group])
	}
	t.Equal("delete a group with members", remove(), "68")
	member.leave()
	t.Until("the group is deleted once it is empty", func() bool { return remove() == "none" })
	t.Equal("delete a group that is gone", remove(), "69")
}

func transactionByHand(t *checks.T) {
	client, done := newClient(t)
	defer done()
	topic, transactional := createTopic(t, "topic", 1), t.Name("transaction")
	// There may be no coordinator yet, or one that still ends the transaction before.
	begin := func() *kafka.ProducerSession {
		var begun *kafka.InitProducerIDResponse
		t.Until("there is a producer id", func() bool {
			var err error
			begun, err = client.InitProducerID(t.Context, &kafka.InitProducerIDRequest{
				TransactionalID: transactional, TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1,
			})
			return err == nil && begun.Error == nil
		})
		return begun.Producer
	}
	begun := begin()
	t.Equal("first epoch", begun.ProducerEpoch, 0)
	end := func(epoch int, commit bool) string {
		ended, err := client.EndTxn(t.Context, &kafka.EndTxnRequest{
			TransactionalID: transactional, ProducerID: begun.ProducerID, ProducerEpoch: epoch, Committed: commit,
		})
		t.Must("end transaction", err)
		return name(ended.Error)
	}
	add := func(epoch int) string {
		added, err := client.AddPartitionsToTxn(t.Context, &kafka.AddPartitionsToTxnRequest{
			TransactionalID: transactional, ProducerID: begun.ProducerID, ProducerEpoch: epoch,
			Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}},
		})
		t.Must("add partitions", err)
		return name(added.Topics[topic][0].Error)
	}
	t.Equal("end before there is anything", end(0, true), "48")
	t.Equal("add a partition", add(0), "none")
	t.Equal("end", end(0, false), "none")
	again := begin()
	t.Equal("the same producer id", again.ProducerID, begun.ProducerID)
	t.Equal("the next epoch", again.ProducerEpoch, 1)
	t.Equal("add a partition with the epoch before", add(0), "90")
	listed, err := client.ListOffsets(t.Context, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}}})
	t.Must("list offsets", err)
	t.Equal("list offsets", name(listed.Topics[topic][0].Error), "none")
	t.Equal("the marker of the abort", listed.Topics[topic][0].LastOffset, int64(1))
}
