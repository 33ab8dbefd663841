// Command kafka-go checks a broker with kafka-go as it comes: its Writer, Reader, Conn and Client.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
)

func main() {
	checks.Main([]checks.Check{
		{Name: "produce-and-consume", Run: produceAndConsume},
		{Name: "compression", Run: compression},
		{Name: "acks", Run: acks},
		{Name: "record-too-large", Run: recordTooLarge},
		{Name: "one-connection", Run: oneConnection},
		{Name: "offsets-by-time", Run: offsetsByTime},
		{Name: "auto-creation", Run: autoCreation},
		{Name: "group-resumes-at-commit", Run: groupResumesAtCommit},
		{Name: "group-rebalances", Run: groupRebalances},
		{Name: "admin-topics", Run: adminTopics},
		{Name: "admin-configs", Run: adminConfigs},
		{Name: "admin-groups", Run: adminGroups},
		{Name: "transaction-by-hand", Run: transactionByHand},
		{Name: "crash-while-producing", Run: crashWhileProducing},
		{Name: "stop-while-producing", Run: stopWhileProducing},
		{Name: "many-clients", Run: manyClients},
		{Name: "crash-while-consuming", Run: crashWhileConsuming},
	}, checks.Secured(securedClients)...)
}

// newClient has connections of its own, which are closed with the function returned.
func newClient(t *checks.T) (*kafka.Client, func()) {
	transport := &kafka.Transport{}
	return &kafka.Client{Addr: kafka.TCP(t.Addresses()...), Timeout: 20 * time.Second, Transport: transport}, transport.CloseIdleConnections
}

// createTopic makes a topic of the check's own, waits until it is known and returns its name.
func createTopic(t *checks.T, kind string, partitions int) string {
	client, done := newClient(t)
	defer done()
	topic := t.Name(kind)
	created, err := client.CreateTopics(t.Context, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	t.Must("create topic", err)
	t.Must("create topic", created.Errors[topic])
	t.Until("the topic is known", func() bool { return len(partitionsOf(t, client, topic)) == partitions })
	t.Known(topic)
	return topic
}

func partitionsOf(t *checks.T, client *kafka.Client, topic string) []kafka.Partition {
	metadata, err := client.Metadata(t.Context, &kafka.MetadataRequest{Topics: []string{topic}})
	t.Must("metadata", err)
	t.Equal("topics of the reply", len(metadata.Topics), 1)
	return metadata.Topics[0].Partitions
}

// newWriter sends each message to the partition that its WriterData holds.
func newWriter(t *checks.T, topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(t.Addresses()...), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
		MaxAttempts: 1000, WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: 200 * time.Millisecond,
		Balancer:  kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return message.WriterData.(int) }),
		Transport: &kafka.Transport{},
	}
}

func write(t *checks.T, topic string, messages ...kafka.Message) {
	writer := newWriter(t, topic)
	defer writer.Close()
	t.Must("write", writer.WriteMessages(t.Context, messages...))
}

// numbers are messages with the values 0, 1, 2 …, dealt to the partitions in turn.
func numbers(partitions, from, to int) []kafka.Message {
	messages := []kafka.Message{}
	for number := from; number < to; number++ {
		messages = append(messages, kafka.Message{Value: []byte(fmt.Sprint(number)), WriterData: number % partitions})
	}
	return messages
}

func newReader(t *checks.T, settings kafka.ReaderConfig) *kafka.Reader {
	settings.Brokers = t.Addresses()
	settings.StartOffset = kafka.FirstOffset
	settings.MaxWait = 100 * time.Millisecond
	settings.ReadBackoffMin, settings.ReadBackoffMax = 20*time.Millisecond, 100*time.Millisecond
	// A member that lost its connection joins as another one, and the group waits until the first has timed out.
	settings.SessionTimeout = 6 * time.Second
	settings.HeartbeatInterval, settings.JoinGroupBackoff = 200*time.Millisecond, 200*time.Millisecond
	return kafka.NewReader(settings)
}

// read returns the next messages, exactly as many as asked for.
func read(t *checks.T, reader *kafka.Reader, count int) []kafka.Message {
	messages := []kafka.Message{}
	for len(messages) < count {
		message, err := reader.FetchMessage(t.Context)
		if known := kafka.Error(0); errors.As(err, &known) && known.Temporary() {
			continue // the group's coordinator may not be there yet
		}
		t.Must(fmt.Sprintf("read after %d of %d messages", len(messages), count), err)
		messages = append(messages, message)
	}
	return messages
}

// readAll returns the values of a partition that a reader of this isolation level sees before a message that is written
// for the purpose.
func readAll(t *checks.T, topic string, partition int, level kafka.IsolationLevel) []string {
	write(t, topic, kafka.Message{Value: []byte("the end"), WriterData: partition})
	reader := newReader(t, kafka.ReaderConfig{Topic: topic, Partition: partition, IsolationLevel: level})
	defer reader.Close()
	values := []string{}
	for {
		message, err := reader.FetchMessage(t.Context)
		t.Must("read", err)
		if string(message.Value) == "the end" {
			return values
		}
		values = append(values, string(message.Value))
	}
}

func values(messages []kafka.Message) []string {
	all := []string{}
	for _, message := range messages {
		all = append(all, string(message.Value))
	}
	return all
}

// name is the number of a Kafka error, or the text of another error.
func name(err error) string {
	var known kafka.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &known):
		return fmt.Sprint(int(known))
	case errors.Is(err, context.DeadlineExceeded):
		return "time-out"
	default:
		return err.Error()
	}
}
