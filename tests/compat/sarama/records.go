// Records: what is written comes back as it was, whatever carried it.
package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

func produceAndConsume(t *checks.T) {
	topic := createTopic(t, "topic", 3)
	producer := newProducer(t, config())
	defer producer.Close()
	const count = 300
	messages := numbers(topic, 3, count)
	for number, message := range messages {
		message.Timestamp = checks.Start.Add(time.Duration(number) * time.Millisecond)
		message.Key = sarama.StringEncoder(fmt.Sprint("key-", number))
		message.Headers = []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(fmt.Sprint(number))}, {Key: []byte("null")}, {Key: []byte("number"), Value: []byte("twice")}}
		if number%30 == 0 {
			message.Key = nil
		}
		if number%30 == 2 {
			message.Value = nil
		}
	}
	send(t, producer, messages...)
	for number, message := range messages {
		t.Equal("offset of the acknowledgement", message.Offset, int64(number/3))
	}
	for partition := range int32(3) {
		for index, message := range read(t, config(), topic, partition, count/3) {
			number := index*3 + int(partition)
			t.Equal("offset", message.Offset, int64(index))
			t.Equal("timestamp", message.Timestamp.UnixMilli(), checks.Start.UnixMilli()+int64(number))
			if number%30 == 0 {
				t.True("the key is null", message.Key == nil)
			} else {
				t.Equal("key", string(message.Key), fmt.Sprint("key-", number))
			}
			if number%30 == 2 {
				t.True("the value is null", message.Value == nil)
			} else {
				t.Equal("value", string(message.Value), fmt.Sprint(number))
			}
			headers := []string{}
			for _, header := range message.Headers {
				headers = append(headers, fmt.Sprintf("%s=%s", header.Key, header.Value))
			}
			t.Equal("headers", headers, []string{fmt.Sprint("number=", number), "null=", "number=twice"})
		}
	}
}

// speakVersion has a client limited to an old Kafka's requests write, read, and consume in a group.
func speakVersion(t *checks.T, version sarama.KafkaVersion) {
	topic := createTopic(t, "topic", 1)
	settings := config()
	settings.Version = version
	producer := newProducer(t, settings)
	defer producer.Close()
	send(t, producer, numbers(topic, 1, 20)...)
	for number, message := range read(t, settings, topic, 0, 20) {
		t.Equal("value", string(message.Value), fmt.Sprint(number))
	}
	member := join(t, t.Name("group"), topic, settings)
	t.Until("all is read", func() bool { return len(member.read()) == 20 })
	member.leave()
}

func compression(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	want := []string{}
	for _, codec := range codecs {
		settings := config()
		settings.Producer.Compression = codec
		producer := newProducer(t, settings)
		messages := []*sarama.ProducerMessage{}
		for number := range 20 {
			value := strings.Repeat(fmt.Sprint(codec, " ", number, " "), 1+number*number)
			want = append(want, value)
			messages = append(messages, message(topic, 0, value))
		}
		send(t, producer, messages...)
		t.Must("close", producer.Close())
	}
	for number, message := range read(t, config(), topic, 0, len(want)) {
		t.Equal("value", string(message.Value), want[number])
	}
}

func acks(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	for _, level := range []sarama.RequiredAcks{sarama.WaitForAll, sarama.WaitForLocal, sarama.NoResponse} {
		settings := config()
		settings.Producer.RequiredAcks = level
		producer := newProducer(t, settings)
		for number := range 10 {
			send(t, producer, message(topic, 0, fmt.Sprint(level, " ", number)))
		}
		t.Must("close", producer.Close())
	}
	for index, message := range read(t, config(), topic, 0, 30) {
		t.Equal("value", string(message.Value), fmt.Sprint([]int{-1, 1, 0}[index/10], " ", index%10))
	}
}

func recordTooLarge(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	settings := config()
	settings.Producer.MaxMessageBytes = 8 << 20
	producer := newProducer(t, settings)
	defer producer.Close()
	send(t, producer, message(topic, 0, strings.Repeat("x", 1_000_000)))
	_, _, err := producer.SendMessage(message(topic, 0, strings.Repeat("x", 1_100_000)))
	t.True(fmt.Sprint("a batch above message.max.bytes is refused as such: ", err), errors.Is(err, sarama.ErrMessageSizeTooLarge))
	send(t, producer, message(topic, 0, "after"))
	messages := read(t, config(), topic, 0, 2)
	t.Equal("size of the first record", len(messages[0].Value), 1_000_000)
	t.Equal("the last record", string(messages[1].Value), "after")
}

func offsetsByTime(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	producer := newProducer(t, config())
	defer producer.Close()
	for number, milliseconds := range []int64{1000, 3000, 2000, 5000} {
		one := message(topic, 0, fmt.Sprint(number))
		one.Timestamp = checks.Start.Add(time.Duration(milliseconds) * time.Millisecond)
		send(t, producer, one)
	}
	kafka, err := sarama.NewClient(t.Addresses(), config())
	t.Must("new client", err)
	defer kafka.Close()
	offsets := []int64{}
	start := checks.Start.UnixMilli()
	for _, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, start + 1000, start + 1001, start + 3001, start + 5001} {
		offset, err := kafka.GetOffset(topic, 0, at)
		t.Must("get offset", err)
		offsets = append(offsets, offset)
	}
	t.Equal("offsets", offsets, []int64{0, 4, 0, 1, 3, -1})
}

func autoCreation(t *checks.T) {
	producer := newProducer(t, config())
	defer producer.Close()
	topic := t.Name("topic")
	send(t, producer, message(topic, 0, "created"))
	t.Equal("records", readAll(t, topic, 0, sarama.ReadUncommitted), []string{"created"})
	settings := config()
	settings.Metadata.AllowAutoTopicCreation = false
	refused := newProducer(t, settings)
	defer refused.Close()
	_, _, err := refused.SendMessage(message(topic+"-x", 0, "refused"))
	t.True("a topic is not created for a client that does not want it", errors.Is(err, sarama.ErrUnknownTopicOrPartition))
}

func idempotent(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := newProducer(t, idempotentConfig())
	defer producer.Close()
	for range 5 {
		send(t, producer, numbers(topic, 2, 100)...)
	}
	for partition := range int32(2) {
		messages := read(t, config(), topic, partition, 250)
		for index, message := range messages {
			t.Equal("value", string(message.Value), fmt.Sprint(index%50*2+int(partition)))
		}
	}
}
