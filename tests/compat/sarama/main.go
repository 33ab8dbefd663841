// Command sarama checks a broker with sarama as it comes.
package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

func main() {
	checks.Main([]checks.Check{
		{Name: "produce-and-consume", Run: produceAndConsume},
		{Name: "oldest-version", Run: func(t *checks.T) { speakVersion(t, sarama.V1_0_0_0) }},
		{Name: "default-version", Run: func(t *checks.T) { speakVersion(t, sarama.DefaultVersion) }},
		{Name: "compression", Run: compression},
		{Name: "acks", Run: acks},
		{Name: "record-too-large", Run: recordTooLarge},
		{Name: "offsets-by-time", Run: offsetsByTime},
		{Name: "auto-creation", Run: autoCreation},
		{Name: "idempotent", Run: idempotent},
		{Name: "group-resumes-at-commit", Run: groupResumesAtCommit},
		{Name: "group-rebalances", Run: groupRebalances},
		{Name: "admin-topics", Run: adminTopics},
		{Name: "admin-configs", Run: adminConfigs},
		{Name: "admin-groups", Run: adminGroups},
		{Name: "admin-delete-records", Run: adminDeleteRecords},
		{Name: "admin-cluster", Run: adminCluster},
		{Name: "admin-log-directories", Run: adminLogDirectories},
		{Name: "admin-access", Run: adminAccess},
		{Name: "admin-quotas", Run: adminQuotas},
		{Name: "transaction-commit-and-abort", Run: transactionCommitAndAbort},
		{Name: "transaction-consume-transform-produce", Run: transactionConsumeTransformProduce},
		{Name: "transaction-fencing", Run: transactionFencing},
		{Name: "transaction-zombie", Run: transactionZombie},
		{Name: "crash-while-producing", Run: crashWhileProducing},
		{Name: "crash-in-transaction", Run: crashInTransaction},
		{Name: "crash-while-consuming", Run: crashWhileConsuming},
		{Name: "stop-while-producing", Run: stopWhileProducing},
		{Name: "many-clients", Run: manyClients},
	}, append(checks.Secured(securedClients), oldHandshake...)...)
}

func config() *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.Producer.Return.Successes = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Retry.Max = 600
	settings.Producer.Retry.Backoff = 100 * time.Millisecond
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	settings.Consumer.Retry.Backoff = 200 * time.Millisecond
	// Commits share the connection with fetches and wait for them.
	settings.Consumer.MaxWaitTime = 50 * time.Millisecond
	return settings
}

// patient is a configuration that goes on looking for a broker that is away: by itself sarama gives up after a second.
func patient(settings *sarama.Config) *sarama.Config {
	settings.Metadata.Retry.Max = 600
	settings.Metadata.Retry.Backoff = 100 * time.Millisecond
	settings.Producer.Transaction.Retry.Backoff = 200 * time.Millisecond
	return settings
}

func idempotentConfig() *sarama.Config {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	return settings
}

func transactionalConfig(transactional string) *sarama.Config {
	settings := idempotentConfig()
	settings.Producer.Transaction.ID = transactional
	settings.Producer.Transaction.Retry.Backoff = 20 * time.Millisecond
	return settings
}

func newProducer(t *checks.T, settings *sarama.Config) sarama.SyncProducer {
	producer, err := sarama.NewSyncProducer(t.Addresses(), settings)
	t.Must("new producer", err)
	return producer
}

func newAdmin(t *checks.T) sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin(t.Addresses(), config())
	t.Must("new admin", err)
	return admin
}

// createTopic makes a topic of the check's own, waits until it is known and returns its name.
func createTopic(t *checks.T, kind string, partitions int32) string {
	admin := newAdmin(t)
	defer admin.Close()
	topic := t.Name(kind)
	t.Must("create topic", admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	t.Until("the topic is known", func() bool {
		described, err := admin.DescribeTopics([]string{topic})
		return err == nil && described[0].Err == sarama.ErrNoError && len(described[0].Partitions) == int(partitions)
	})
	t.Known(topic)
	return topic
}

func send(t *checks.T, producer sarama.SyncProducer, messages ...*sarama.ProducerMessage) {
	err := producer.SendMessages(messages)
	var failures sarama.ProducerErrors
	if errors.As(err, &failures) {
		err = fmt.Errorf("%w, the first for: %w", err, failures[0].Err)
	}
	t.Must("send", err)
}

func message(topic string, partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

// numbers are messages with the values 0, 1, 2 …, dealt to the partitions in turn.
func numbers(topic string, partitions int32, count int) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = message(topic, int32(number)%partitions, fmt.Sprint(number))
	}
	return messages
}

// read returns the messages of a partition from its start, exactly as many as asked for.
func read(t *checks.T, settings *sarama.Config, topic string, partition int32, count int) []*sarama.ConsumerMessage {
	settings.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(t.Addresses(), settings)
	t.Must("new consumer", err)
	defer consumer.Close()
	of, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	t.Must("consume partition", err)
	defer of.Close()
	messages := []*sarama.ConsumerMessage{}
	for len(messages) < count {
		select {
		case message, open := <-of.Messages():
			if !open {
				t.Fail("the consumer ended by itself after %d of %d messages", len(messages), count)
			}
			messages = append(messages, message)
		case err := <-of.Errors():
			t.Must(fmt.Sprintf("consume, after %d of %d messages", len(messages), count), err)
		case <-time.After(20 * time.Second):
			t.Fail("only %d of %d messages came", len(messages), count)
		}
	}
	return messages
}

// readAll returns the values of a partition that a reader of this isolation level sees before a message that is written
// for the purpose.
func readAll(t *checks.T, topic string, partition int32, level sarama.IsolationLevel) []string {
	producer := newProducer(t, config())
	send(t, producer, message(topic, partition, "the end"))
	t.Must("close producer", producer.Close())
	settings := config()
	settings.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer(t.Addresses(), settings)
	t.Must("new consumer", err)
	defer consumer.Close()
	of, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	t.Must("consume partition", err)
	defer of.Close()
	values := []string{}
	for {
		select {
		case message := <-of.Messages():
			if string(message.Value) == "the end" {
				return values
			}
			values = append(values, string(message.Value))
		case <-time.After(20 * time.Second):
			t.Fail("the end of the partition never came; before it: %v", values)
		}
	}
}

func sorted(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

// counted are the values of numbers.
func counted(from, to int) []string {
	values := []string{}
	for number := from; number < to; number++ {
		values = append(values, fmt.Sprint(number))
	}
	return values
}
