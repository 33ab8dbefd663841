// Administration, with kadm.
package main

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// name is the name of a Kafka error, "none", or the text of another error.
func name(err error) string {
	var typed *kerr.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &typed):
		return typed.Message
	default:
		return err.Error()
	}
}

func adminTopics(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic := t.Name("topic")
	compact := "compact"
	created, err := admin.CreateTopic(t.Context, 2, 1, map[string]*string{"cleanup.policy": &compact}, topic)
	t.Must("create topic", err)
	t.True("the topic has an id", created.ID != kadm.TopicID{})
	t.Equal("partitions of the reply", created.NumPartitions, int32(2))
	t.Equal("replication factor of the reply", created.ReplicationFactor, int16(1))
	policy := created.Configs["cleanup.policy"]
	t.Equal("config of the reply", policy.MaybeValue(), "compact")
	refusals := map[string]string{}
	invalid := "nonsense"
	for _, attempt := range []struct {
		what string
		try  func() error
	}{
		{"exists", func() error { _, err := admin.CreateTopic(t.Context, 1, 1, nil, topic); return err }},
		{"no partitions", func() error { _, err := admin.CreateTopic(t.Context, 0, 1, nil, topic+"-x"); return err }},
		{"too many replicas", func() error { _, err := admin.CreateTopic(t.Context, 1, 1000, nil, topic+"-x"); return err }},
		{"name", func() error { _, err := admin.CreateTopic(t.Context, 1, 1, nil, "a/b"); return err }},
		{"config value", func() error {
			_, err := admin.CreateTopic(t.Context, 1, 1, map[string]*string{"cleanup.policy": &invalid}, topic+"-x")
			return err
		}},
		{"config name", func() error {
			_, err := admin.CreateTopic(t.Context, 1, 1, map[string]*string{"no.such": &invalid}, topic+"-x")
			return err
		}},
		{"delete a missing", func() error { _, err := admin.DeleteTopic(t.Context, topic+"-x"); return err }},
		{"grow to fewer", func() error { return updated(t, admin, 1, topic) }},
		{"grow to as many", func() error { return updated(t, admin, 2, topic) }},
		{"grow a missing", func() error { return updated(t, admin, 4, topic+"-x") }},
		{"grow", func() error { return updated(t, admin, 5, topic) }},
		{"only validated", func() error { _, err := admin.ValidateCreateTopics(t.Context, 1, 1, nil, topic+"-x"); return err }},
		{"validated and there", func() error { return validated(t, admin, topic) }},
	} {
		refusals[attempt.what] = name(attempt.try())
	}
	t.Equal("answers", refusals, map[string]string{
		"exists": "TOPIC_ALREADY_EXISTS", "no partitions": "INVALID_PARTITIONS", "too many replicas": "INVALID_REPLICATION_FACTOR",
		"name": "INVALID_TOPIC_EXCEPTION", "config value": "INVALID_CONFIG", "config name": "INVALID_CONFIG",
		"delete a missing": "UNKNOWN_TOPIC_OR_PARTITION", "grow to fewer": "INVALID_PARTITIONS", "grow to as many": "INVALID_PARTITIONS",
		"grow a missing": "UNKNOWN_TOPIC_OR_PARTITION", "grow": "none", "only validated": "none", "validated and there": "TOPIC_ALREADY_EXISTS",
	})
	var details kadm.TopicDetail
	t.Until("the topic has grown", func() bool {
		listed, err := admin.ListTopics(t.Context, topic)
		t.Must("list topics", err)
		details = listed[topic]
		return len(details.Partitions) == 5
	})
	t.Equal("id after growing", details.ID, created.ID)
	for _, partition := range details.Partitions.Sorted() {
		t.Equal("replicas", partition.Replicas, []int32{partition.Leader})
		t.Equal("replicas in sync", partition.ISR, []int32{partition.Leader})
		t.Equal("replicas offline", len(partition.OfflineReplicas), 0)
	}
	listed, err := admin.ListTopics(t.Context, topic+"-x")
	t.Must("list topics", err)
	t.Equal("a topic that was only validated", name(listed[topic+"-x"].Err), "UNKNOWN_TOPIC_OR_PARTITION")
	_, err = admin.DeleteTopic(t.Context, topic)
	t.Must("delete topic", err)
	again, err := admin.CreateTopic(t.Context, -1, -1, nil, topic)
	t.Must("create the topic again", err)
	t.True("the new topic has a new id", again.ID != created.ID)
	t.Equal("partitions by default", again.NumPartitions, int32(1))
	t.Until("the new topic is known", func() bool {
		ends, err := admin.ListEndOffsets(t.Context, topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == 1
	})
	t.Equal("records of the new topic", readAll(t, topic, 0, kgo.ReadUncommitted()), []string{})
}

func updated(t *checks.T, admin *kadm.Client, partitions int, topic string) error {
	responses, err := admin.UpdatePartitions(t.Context, partitions, topic)
	t.Must("update partitions", err)
	return responses[topic].Err
}

func validated(t *checks.T, admin *kadm.Client, topic string) error {
	responses, err := admin.ValidateCreateTopics(t.Context, 1, 1, nil, topic)
	t.Must("validate", err)
	return responses[topic].Err
}

func adminConfigs(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic := createTopic(t, "topic", 1)
	// What was changed may take a moment to be known.
	comes := func(what, key, want string) {
		t.Until(what+" is "+want, func() bool { return configured(t, admin, topic, key) == want })
	}
	described, err := admin.DescribeTopicConfigs(t.Context, topic)
	t.Must("describe configs", err)
	keys := []string{}
	for _, config := range described[0].Configs {
		// Apache Kafka leaves flushing to the operating system; here every batch is flushed.
		if config.Key != "flush.messages" {
			keys = append(keys, config.Key+"="+config.MaybeValue())
		}
	}
	sort.Strings(keys)
	t.Fact("topic configs", keys)
	comes("default", "retention.ms", "604800000 DEFAULT_CONFIG")
	text := func(s string) *string { return &s }
	alter := func(configs ...kadm.AlterConfig) string {
		responses, err := admin.AlterTopicConfigs(t.Context, configs, topic)
		t.Must("alter configs", err)
		return name(responses[0].Err)
	}
	t.Equal("set", alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: text("1000000")}), "none")
	comes("after set", "retention.ms", "1000000 DYNAMIC_TOPIC_CONFIG")
	t.Equal("append", alter(kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: text("compact")}), "none")
	comes("after append", "cleanup.policy", "delete,compact DYNAMIC_TOPIC_CONFIG")
	t.Equal("subtract", alter(kadm.AlterConfig{Op: kadm.SubtractConfig, Name: "cleanup.policy", Value: text("delete")}), "none")
	comes("after subtract", "cleanup.policy", "compact DYNAMIC_TOPIC_CONFIG")
	t.Equal("delete", alter(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"}), "none")
	comes("after delete", "retention.ms", "604800000 DEFAULT_CONFIG")
	t.Equal("invalid", alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: text("soon")}), "INVALID_CONFIG")
	t.Equal("unknown", alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "no.such", Value: text("1")}), "INVALID_CONFIG")
	t.Equal("limit", alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: text("2000")}), "none")
	plain := client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer plain.Close()
	large := &kgo.Record{Topic: topic, Key: []byte("key"), Value: make([]byte, 3000)}
	t.Until("a record above the topic's limit is refused", func() bool {
		return name(plain.ProduceSync(t.Context, large).FirstErr()) == "MESSAGE_TOO_LARGE"
	})
	state, err := admin.AlterTopicConfigsState(t.Context, []kadm.AlterConfig{{Name: "segment.bytes", Value: text("2000000")}}, topic)
	t.Must("replace all configs", err)
	t.Must("replace all configs", state[0].Err)
	comes("set by replacing all", "segment.bytes", "2000000 DYNAMIC_TOPIC_CONFIG")
	comes("dropped by replacing all", "max.message.bytes", "1048588 DEFAULT_CONFIG")
}

// configured is the value and the source of a topic's config.
func configured(t *checks.T, admin *kadm.Client, topic, key string) string {
	described, err := admin.DescribeTopicConfigs(t.Context, topic)
	t.Must("describe configs", err)
	resource, err := described.On(topic, nil)
	t.Must("describe configs", err)
	for _, config := range resource.Configs {
		if config.Key == key {
			return fmt.Sprint(config.MaybeValue(), " ", config.Source)
		}
	}
	return "none"
}

func adminGroups(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic, group := createTopic(t, "topic", 2), t.Name("group")
	produce(t, kafka, numbers(topic, 2, 10)...)
	consumer := join(t, group, topic, kgo.Balancers(kgo.RangeBalancer()))
	t.Until("all is read", func() bool { return len(consumer.read()) == 10 })
	t.Until("all is committed", func() bool {
		lag, err := admin.Lag(t.Context, group)
		t.Must("lag", err)
		of := lag[group]
		return of.Error() == nil && of.Lag.Total() == 0
	})
	listed, err := admin.ListGroups(t.Context)
	t.Must("list groups", err)
	t.Equal("listed", fmt.Sprint(listed[group].ProtocolType, " ", listed[group].State), "consumer Stable")
	stable, err := admin.ListGroups(t.Context, "Empty")
	t.Must("list groups", err)
	_, found := stable[group]
	t.True("a stable group is not among the empty ones", !found)
	described, err := admin.DescribeGroups(t.Context, group)
	t.Must("describe group", err)
	of := described[group]
	t.Equal("described", fmt.Sprint(of.State, " ", of.ProtocolType, " ", of.Protocol, " ", len(of.Members)), "Stable consumer range 1")
	partitions := of.AssignedPartitions()
	t.Equal("assignment", fmt.Sprint(partitions.Sorted()), fmt.Sprintf("[{%s [0 1]}]", topic))
	_, err = admin.DeleteGroup(t.Context, group)
	t.Equal("delete a group with members", name(err), "NON_EMPTY_GROUP")
	deleted, err := admin.DeleteOffsets(t.Context, group, kadm.TopicsSet{topic: {0: {}}})
	t.Must("delete offsets", err)
	t.Equal("delete offsets of a topic that is consumed", name(deleted.Error()), "GROUP_SUBSCRIBED_TO_TOPIC")
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	committed, err := admin.CommitOffsets(t.Context, group, offsets)
	t.Must("commit from outside", err)
	t.Equal("commit from outside while there are members", name(committed.Error()), "UNKNOWN_MEMBER_ID")
	consumer.leave()
	t.Until("the group is empty", func() bool {
		described, err := admin.DescribeGroups(t.Context, group)
		t.Must("describe group", err)
		return described[group].State == "Empty"
	})
	committed, err = admin.CommitOffsets(t.Context, group, offsets)
	t.Must("commit from outside", err)
	t.Must("commit to an empty group", committed.Error())
	deleted, err = admin.DeleteOffsets(t.Context, group, kadm.TopicsSet{topic: {1: {}}})
	t.Must("delete offsets", err)
	t.Must("delete offsets of an empty group", deleted.Error())
	fetched, err := admin.FetchOffsets(t.Context, group)
	t.Must("fetch offsets", err)
	left := []string{}
	fetched.Each(func(offset kadm.OffsetResponse) { left = append(left, fmt.Sprint(offset.Partition, ":", offset.At)) })
	t.Equal("offsets that are left", left, []string{"0:1"})
	_, err = admin.DeleteGroup(t.Context, group)
	t.Must("delete group", err)
	_, err = admin.DeleteGroup(t.Context, group)
	t.Equal("delete a group that is gone", name(err), "GROUP_ID_NOT_FOUND")
	described, err = admin.DescribeGroups(t.Context, group)
	t.Must("describe group", err)
	t.Fact("describe a group that is gone", fmt.Sprint(described[group].State, " ", name(described[group].Err)))
}

func adminDeleteRecords(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic := createTopic(t, "topic", 1)
	produce(t, kafka, numbers(topic, 1, 20)...)
	upTo := func(offset int64) kadm.DeleteRecordsResponse {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, offset, -1)
		responses, err := admin.DeleteRecords(t.Context, offsets)
		t.Must("delete records", err)
		response, _ := responses.Lookup(topic, 0)
		return response
	}
	deleted := upTo(7)
	t.Must("delete records", deleted.Err)
	t.Equal("low watermark", deleted.LowWatermark, int64(7))
	t.Equal("beyond the end", name(upTo(21).Err), "OFFSET_OUT_OF_RANGE")
	starts, err := admin.ListStartOffsets(t.Context, topic)
	t.Must("list start offsets", err)
	start, _ := starts.Lookup(topic, 0)
	t.Equal("start offset", start.Offset, int64(7))
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	t.Equal("first record", read(t, consumer, 1)[0].Offset, int64(7))
	t.Equal("up to the end", upTo(-1).LowWatermark, int64(20))
}

func adminCluster(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	metadata, err := admin.BrokerMetadata(t.Context)
	t.Must("metadata", err)
	t.Equal("brokers", len(metadata.Brokers), t.Nodes())
	t.True("the controller is one of them", slices.Contains(metadata.Brokers.NodeIDs(), metadata.Controller))
	t.True("the cluster has an id", metadata.Cluster != "")
	versions, err := admin.ApiVersions(t.Context)
	t.Must("versions", err)
	t.Equal("brokers with versions", len(versions), t.Nodes())
	resources, err := admin.ListConfigResources(t.Context)
	t.Must("list config resources", err)
	t.True("there are resources", len(resources.Resources) > 0)
}

func adminLogDirectories(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic := createTopic(t, "topic", 1)
	produce(t, kafka, numbers(topic, 1, 10)...)
	directories, err := admin.DescribeAllLogDirs(t.Context, kadm.TopicsSet{topic: {0: {}}})
	t.Must("describe log directories", err)
	sizes := []bool{}
	directories.Each(func(directory kadm.DescribedLogDir) {
		directory.Topics.Each(func(partition kadm.DescribedLogDirPartition) { sizes = append(sizes, partition.Size > 0) })
	})
	t.Equal("partitions with a size", sizes, []bool{true})
}

func adminAccess(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	acls, err := admin.DescribeACLs(t.Context, kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations().ResourcePatternType(kadm.ACLPatternAny))
	outcome := name(err)
	for _, found := range acls {
		outcome = name(found.Err)
	}
	t.Equal("access control lists without an authorizer", outcome, "SECURITY_DISABLED")
	users, err := admin.DescribeUserSCRAMs(t.Context)
	t.Must("describe SCRAM users", err)
	t.Equal("users", len(users), 0)
}

func adminQuotas(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	quotas, err := kadm.NewClient(kafka).DescribeClientQuotas(t.Context, false, nil)
	t.Must("describe quotas", err)
	t.Equal("quotas", len(quotas), 0)
}

func adminReplicas(t *checks.T) {
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	topic := createTopic(t, "topic", 1)
	reassignments, err := admin.ListPartitionReassignments(t.Context, nil)
	t.Must("list reassignments", err)
	t.Equal("reassignments", len(reassignments), 0)
	elected, err := admin.ElectLeaders(t.Context, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}})
	t.Must("elect leaders", err)
	t.Equal("election", name(elected[topic][0].Err), "ELECTION_NOT_NEEDED")
}

func adminTransactions(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	transactional := t.Name("transaction")
	kafka := client(t, kgo.TransactionalID(transactional))
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	t.Must("begin", kafka.BeginTransaction())
	produce(t, kafka, numbers(topic, 1, 3)...)
	described, err := admin.DescribeTransactions(t.Context, transactional)
	t.Must("describe transactions", err)
	of := described[transactional]
	t.Equal("open", fmt.Sprint(of.State, " ", of.Topics.Sorted()), fmt.Sprint("Ongoing ", []kadm.TopicPartitions{{Topic: topic, Partitions: []int32{0}}}))
	producers, err := admin.DescribeProducers(t.Context, kadm.TopicsSet{topic: {0: {}}})
	t.Must("describe producers", err)
	ids := []int64{}
	producers.EachProducer(func(producer kadm.DescribedProducer) {
		ids = append(ids, producer.ProducerID)
		t.Equal("first offset of the transaction", producer.CurrentTxnStartOffset, int64(0))
		t.Equal("last sequence", producer.LastSequence, int32(2))
	})
	t.Equal("producers", ids, []int64{of.ProducerID})
	listed, err := admin.ListTransactions(t.Context, nil, []string{"Ongoing"})
	t.Must("list transactions", err)
	t.True("the transaction is listed", slices.Contains(listed.TransactionalIDs(), transactional))
	t.Must("commit", kafka.EndTransaction(t.Context, kgo.TryCommit))
	t.Until("the transaction is complete", func() bool {
		described, err := admin.DescribeTransactions(t.Context, transactional)
		t.Must("describe transactions", err)
		return described[transactional].State == "CompleteCommit"
	})
	missing, err := admin.DescribeTransactions(t.Context, transactional+"-missing")
	t.Must("describe a missing transaction", err)
	t.Equal("a missing transaction", name(missing[transactional+"-missing"].Err), "TRANSACTIONAL_ID_NOT_FOUND")
}
