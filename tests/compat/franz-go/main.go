// Command franz-go checks a broker with franz-go and its admin client kadm, both as they come.
package main

import (
	"fmt"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	checks.Main([]checks.Check{
		{Name: "produce-and-consume", Run: produceAndConsume},
		{Name: "compression", Run: compression},
		{Name: "acks", Run: acks},
		{Name: "record-too-large", Run: recordTooLarge},
		{Name: "fetch-from-offsets", Run: fetchFromOffsets},
		{Name: "offsets-by-time", Run: offsetsByTime},
		{Name: "auto-creation", Run: autoCreation},
		{Name: "group-resumes-at-commit", Run: groupResumesAtCommit},
		{Name: "group-rebalances", Run: groupRebalances},
		{Name: "group-static-member", Run: groupStaticMember},
		{Name: "group-next-generation", Run: groupNextGeneration},
		{Name: "group-by-regular-expression", Run: groupByRegularExpression},
		{Name: "admin-topics", Run: adminTopics},
		{Name: "admin-configs", Run: adminConfigs},
		{Name: "admin-groups", Run: adminGroups},
		{Name: "admin-delete-records", Run: adminDeleteRecords},
		{Name: "admin-cluster", Run: adminCluster},
		{Name: "admin-log-directories", Run: adminLogDirectories},
		{Name: "admin-access", Run: adminAccess},
		{Name: "admin-quotas", Run: adminQuotas},
		{Name: "admin-replicas", Run: adminReplicas},
		{Name: "admin-transactions", Run: adminTransactions},
		{Name: "transaction-commit-and-abort", Run: transactionCommitAndAbort},
		{Name: "transaction-isolation", Run: transactionIsolation},
		{Name: "transaction-consume-transform-produce", Run: transactionConsumeTransformProduce},
		{Name: "transaction-fencing", Run: transactionFencing},
		{Name: "transaction-zombie", Run: transactionZombie},
		{Name: "crash-while-producing", Run: crashWhileProducing},
		{Name: "crash-in-transaction", Run: crashInTransaction},
		{Name: "crash-while-consuming", Run: crashWhileConsuming},
		{Name: "stop-while-producing", Run: stopWhileProducing},
		{Name: "many-clients", Run: manyClients},
	}, append(checks.Secured(securedClients), checks.Check{Name: "reauthentication-under-load", Run: reauthentication})...)
}

// client is a client of the check's broker that is closed with the function returned.
func client(t *checks.T, options ...kgo.Opt) *kgo.Client {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(t.Addresses()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// Nothing but the pace differs from what a client does by itself.
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, options...)
	made, err := kgo.NewClient(all...)
	t.Must("new client", err)
	return made
}

// createTopic makes a topic of the check's own and returns its name.
func createTopic(t *checks.T, kind string, partitions int32) string {
	kafka := client(t)
	defer kafka.Close()
	topic := t.Name(kind)
	admin := kadm.NewClient(kafka)
	_, err := admin.CreateTopic(t.Context, partitions, 1, nil, topic)
	t.Must("create topic", err)
	t.Until("the topic is known", func() bool {
		listed, err := admin.ListTopics(t.Context, topic)
		t.Must("list topics", err)
		return len(listed[topic].Partitions) == int(partitions)
	})
	t.Known(topic)
	return topic
}

// read returns the next records, exactly as many as asked for, in the order in which they came.
func read(t *checks.T, kafka *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := kafka.PollRecords(t.Context, count-len(records))
		t.Must(fmt.Sprintf("poll after %d of %d records", len(records), count), fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

// readAll returns the values in one partition from its start to its end, as this isolation level sees both.
func readAll(t *checks.T, topic string, partition int32, level kgo.IsolationLevel) []string {
	kafka := client(t,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords(),
	)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	ends, err := admin.ListEndOffsets(t.Context, topic)
	if level == kgo.ReadCommitted() {
		ends, err = admin.ListCommittedOffsets(t.Context, topic)
	}
	t.Must("list end offsets", err)
	end, found := ends.Lookup(topic, partition)
	t.True("the partition has an end", found && end.Err == nil)
	values := []string{}
	for next := int64(0); next < end.Offset; {
		fetches := kafka.PollFetches(t.Context)
		t.Must("poll", fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			if !record.Attrs.IsControl() {
				values = append(values, string(record.Value))
			}
		})
		// No reader gets records of aborted transactions; the position passes the marker after them.
	}
	return values
}

func produce(t *checks.T, kafka *kgo.Client, records ...*kgo.Record) {
	t.Must("produce", kafka.ProduceSync(t.Context, records...).FirstErr())
}

// numbers are records with the values 0, 1, 2 …, dealt to the partitions in turn.
func numbers(topic string, partitions int32, count int) []*kgo.Record {
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = numbered(topic, partitions, number)
	}
	return records
}

func numbered(topic string, partitions int32, number int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: int32(number) % partitions, Value: []byte(fmt.Sprint(number))}
}
