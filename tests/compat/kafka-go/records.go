// Records: what is written comes back as it was, whatever carried it.
package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
)

func produceAndConsume(t *checks.T) {
	topic := createTopic(t, "topic", 3)
	messages := numbers(3, 0, 300)
	for number := range messages {
		message := &messages[number]
		message.Key = []byte(fmt.Sprint("key-", number))
		message.Time = checks.Start.Add(time.Duration(number) * time.Millisecond)
		message.Headers = []kafka.Header{{Key: "number", Value: []byte(fmt.Sprint(number))}, {Key: "number", Value: []byte("twice")}}
		switch number % 30 {
		case 0:
			message.Key = nil
		case 2:
			message.Value = nil
		}
	}
	write(t, topic, messages...)
	for partition := range 3 {
		reader := newReader(t, kafka.ReaderConfig{Topic: topic, Partition: partition})
		for index, message := range read(t, reader, 100) {
			written := messages[index*3+partition]
			t.Equal("offset", message.Offset, int64(index))
			t.Equal("key", string(message.Key), string(written.Key))
			t.Equal("the key is null", message.Key == nil, written.Key == nil)
			t.Equal("value", string(message.Value), string(written.Value))
			t.Equal("the value is null", message.Value == nil, written.Value == nil)
			t.Equal("timestamp", message.Time.UnixMilli(), written.Time.UnixMilli())
			t.Equal("headers", message.Headers, written.Headers)
		}
		t.Must("close", reader.Close())
	}
}

func compression(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	want := []string{}
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer := newWriter(t, topic)
		writer.Compression = codec
		messages := []kafka.Message{}
		for number := range 20 {
			value := strings.Repeat(fmt.Sprint(codec, " ", number, " "), 1+number*number)
			want = append(want, value)
			messages = append(messages, kafka.Message{Value: []byte(value), WriterData: 0})
		}
		t.Must("write", writer.WriteMessages(t.Context, messages...))
		t.Must("close", writer.Close())
	}
	t.Equal("records", readAll(t, topic, 0, kafka.ReadUncommitted), want)
}

func acks(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	want := []string{}
	for _, level := range []kafka.RequiredAcks{kafka.RequireAll, kafka.RequireOne, kafka.RequireNone} {
		writer := newWriter(t, topic)
		writer.RequiredAcks = level
		for number := range 10 {
			value := fmt.Sprint(level, " ", number)
			want = append(want, value)
			t.Must("write", writer.WriteMessages(t.Context, kafka.Message{Value: []byte(value), WriterData: 0}))
		}
		t.Must("close", writer.Close())
	}
	reader := newReader(t, kafka.ReaderConfig{Topic: topic})
	defer reader.Close()
	t.Equal("records", values(read(t, reader, len(want))), want)
}

func recordTooLarge(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	writer := newWriter(t, topic)
	defer writer.Close()
	writer.BatchBytes = 8 << 20
	writer.MaxAttempts = 1
	send := func(size int) error {
		return writer.WriteMessages(t.Context, kafka.Message{Value: make([]byte, size), WriterData: 0})
	}
	t.Must("write", send(1_000_000))
	var refused kafka.WriteErrors
	err := send(1_100_000)
	t.True(fmt.Sprint("the error is about single messages: ", err), errors.As(err, &refused))
	t.True(fmt.Sprint("a batch above message.max.bytes is refused as such: ", err), errors.Is(refused[0], kafka.MessageSizeTooLarge))
	t.Must("write", send(5))
	reader := newReader(t, kafka.ReaderConfig{Topic: topic})
	defer reader.Close()
	messages := read(t, reader, 2)
	t.Equal("sizes", fmt.Sprint(len(messages[0].Value), len(messages[1].Value)), "1000000 5")
}

// oneConnection is the client's older interface, with its own requests and versions.
func oneConnection(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	connection, err := kafka.DialLeader(t.Context, "tcp", t.Addresses()[0], topic, 0)
	t.Must("dial", err)
	defer connection.Close()
	t.Must("deadline", connection.SetDeadline(time.Now().Add(30*time.Second)))
	written := numbers(1, 0, 50)
	for number := range written {
		written[number].WriterData = nil
		written[number].Time = checks.Start
	}
	_, err = connection.WriteCompressedMessages(kafka.Snappy.Codec(), written...)
	t.Must("write", err)
	first, last, err := connection.ReadOffsets()
	t.Must("offsets", err)
	t.Equal("offsets", fmt.Sprint(first, last), "0 50")
	at, err := connection.ReadOffset(checks.Start.Add(-time.Second))
	t.Must("offset by time", err)
	t.Equal("offset by time", at, int64(0))
	_, err = connection.Seek(40, kafka.SeekAbsolute)
	t.Must("seek", err)
	batch := connection.ReadBatch(1, 1<<20)
	got := []kafka.Message{}
	for {
		message, err := batch.ReadMessage()
		if errors.Is(err, io.EOF) {
			break
		}
		t.Must("read", err)
		got = append(got, message)
	}
	t.Must("close batch", batch.Close())
	t.Equal("records", values(got), values(written[40:]))
	brokers, err := connection.Brokers()
	t.Must("brokers", err)
	controller, err := connection.Controller()
	t.Must("controller", err)
	t.Equal("brokers", len(brokers), t.Nodes())
	t.True("the controller is one of them", slices.Contains(brokers, controller))
	t.Must("create topic", connection.CreateTopics(kafka.TopicConfig{Topic: topic + "-2", NumPartitions: 2, ReplicationFactor: 1}))
	partitions, err := connection.ReadPartitions(topic + "-2")
	t.Must("partitions", err)
	t.Equal("partitions", len(partitions), 2)
	t.Must("delete topic", connection.DeleteTopics(topic+"-2"))
}

func offsetsByTime(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	for number, milliseconds := range []int64{1000, 3000, 2000, 5000} {
		moment := checks.Start.Add(time.Duration(milliseconds) * time.Millisecond)
		write(t, topic, kafka.Message{Value: []byte(fmt.Sprint(number)), Time: moment, WriterData: 0})
	}
	client, done := newClient(t)
	defer done()
	found := []int64{}
	for _, asked := range []kafka.OffsetRequest{
		kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0),
		kafka.TimeOffsetOf(0, checks.Start.Add(time.Second)),
		kafka.TimeOffsetOf(0, checks.Start.Add(1001*time.Millisecond)),
		kafka.TimeOffsetOf(0, checks.Start.Add(3001*time.Millisecond)),
	} {
		listed, err := client.ListOffsets(t.Context, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {asked}}})
		t.Must("list offsets", err)
		of := listed.Topics[topic][0]
		t.Must("list offsets", of.Error)
		switch {
		case asked.Timestamp == kafka.FirstOffset:
			found = append(found, of.FirstOffset)
		case asked.Timestamp == kafka.LastOffset:
			found = append(found, of.LastOffset)
		default:
			for offset := range of.Offsets {
				found = append(found, offset)
			}
		}
	}
	t.Equal("offsets", found, []int64{0, 4, 0, 1, 3})
}

func autoCreation(t *checks.T) {
	topic := t.Name("topic")
	refused := newWriter(t, topic)
	refused.MaxAttempts = 1
	err := refused.WriteMessages(t.Context, kafka.Message{Value: []byte("refused"), WriterData: 0})
	t.Must("close", refused.Close())
	t.True(fmt.Sprint("a topic is not created for a client that does not want it: ", err), errors.Is(err, kafka.UnknownTopicOrPartition))
	writer := newWriter(t, topic)
	defer writer.Close()
	writer.AllowAutoTopicCreation = true
	// The first answer about a topic that is being made is that it is unknown, and the writer hands that on.
	t.Until("the topic is created", func() bool {
		return writer.WriteMessages(t.Context, kafka.Message{Value: []byte("created"), WriterData: 0}) == nil
	})
	t.Equal("records", readAll(t, topic, 0, kafka.ReadUncommitted), []string{"created"})
}
