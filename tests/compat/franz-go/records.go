// Records: what is written comes back as it was, whatever carried it.
package main

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func produceAndConsume(t *checks.T) {
	topic := createTopic(t, "topic", 3)
	producer := client(t)
	defer producer.Close()
	const count = 300
	var records []*kgo.Record
	for number := range count {
		record := numbered(topic, 3, number)
		record.Key = []byte(fmt.Sprint("key-", number))
		record.Timestamp = checks.Start.Add(time.Duration(number) * time.Millisecond)
		record.Headers = []kgo.RecordHeader{{Key: "number", Value: []byte(fmt.Sprint(number))}, {Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "number", Value: []byte("twice")}}
		switch number % 30 {
		case 0:
			record.Key = nil
		case 1:
			record.Key = []byte{}
		case 2:
			record.Value = nil
		}
		records = append(records, record)
	}
	produce(t, producer, records...)
	for number, record := range records {
		t.Equal("offset of the acknowledgement", record.Offset, int64(number/3))
	}
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	next := map[int32]int64{}
	for _, record := range read(t, consumer, count) {
		t.Equal("offset", record.Offset, next[record.Partition])
		next[record.Partition]++
		written := records[int(record.Offset)*3+int(record.Partition)]
		t.Equal("key", record.Key, written.Key)
		t.Equal("value", record.Value, written.Value)
		t.Equal("timestamp", record.Timestamp.UnixMilli(), written.Timestamp.UnixMilli())
		t.Equal("headers", record.Headers, written.Headers)
		t.Equal("timestamp type", record.Attrs.TimestampType(), int8(0))
	}
	t.Equal("records by partition", next, map[int32]int64{0: 100, 1: 100, 2: 100})
}

func compression(t *checks.T) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	types := map[string]uint8{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
	topic := createTopic(t, "topic", 1)
	random := rand.New(rand.NewSource(1))
	var written []string
	var order []uint8
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		producer := client(t, kgo.ProducerBatchCompression(codecs[name]))
		for range 20 {
			value := strings.Repeat(fmt.Sprintf("%s %d ", name, random.Int()), 1+random.Intn(200))
			written = append(written, value)
			order = append(order, types[name])
			producer.Produce(t.Context, &kgo.Record{Topic: topic, Value: []byte(value)}, nil)
		}
		t.Must("flush", producer.Flush(t.Context))
		producer.Close()
	}
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	for number, record := range read(t, consumer, len(written)) {
		t.Equal("value", string(record.Value), written[number])
		t.Equal("compression of the batch", record.Attrs.CompressionType(), order[number])
	}
}

func acks(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	levels := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	for _, name := range []string{"all", "1", "0"} {
		producer := client(t, kgo.RequiredAcks(levels[name]), kgo.DisableIdempotentWrite())
		for number := range 10 {
			produce(t, producer, &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(name, number))})
		}
		producer.Close()
	}
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	records := read(t, consumer, 30)
	for number, record := range records {
		t.Equal("value", string(record.Value), fmt.Sprint([]string{"all", "1", "0"}[number/10], number%10))
	}
}

func recordTooLarge(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	producer := client(t, kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	produce(t, producer, &kgo.Record{Topic: topic, Value: make([]byte, 1_000_000)})
	err := producer.ProduceSync(t.Context, &kgo.Record{Topic: topic, Value: make([]byte, 1_100_000)}).FirstErr()
	t.True("a batch above message.max.bytes is refused as such", errors.Is(err, kerr.MessageTooLarge))
	produce(t, producer, &kgo.Record{Topic: topic, Value: []byte("after")})
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(1000))
	defer consumer.Close()
	records := read(t, consumer, 2)
	t.Equal("size of the first record", len(records[0].Value), 1_000_000)
	t.Equal("the last record", string(records[1].Value), "after")
}

func fetchFromOffsets(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	producer := client(t)
	defer producer.Close()
	produce(t, producer, numbers(topic, 1, 50)...)
	first := func(offset kgo.Offset) string {
		consumer := client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}}))
		defer consumer.Close()
		return string(read(t, consumer, 1)[0].Value)
	}
	t.Equal("in the middle", first(kgo.NewOffset().At(17)), "17")
	t.Equal("relative to the end", first(kgo.NewOffset().AtEnd().Relative(-5)), "45")
	consumer := client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtEnd()}}))
	defer consumer.Close()
	read := make(chan string)
	go func() {
		fetches := consumer.PollFetches(t.Context)
		for _, record := range fetches.Records() {
			read <- string(record.Value)
		}
	}()
	for number := 50; ; number++ {
		produce(t, producer, &kgo.Record{Topic: topic, Value: []byte("later")})
		select {
		case value := <-read:
			t.Equal("at the end", value, "later")
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func offsetsByTime(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := client(t)
	defer producer.Close()
	for number, milliseconds := range []int64{1000, 3000, 2000, 5000} {
		produce(t, producer, &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(number)), Timestamp: checks.Start.Add(time.Duration(milliseconds) * time.Millisecond)})
	}
	admin, zero := kadm.NewClient(producer), checks.Start.UnixMilli()
	at := func(milliseconds int64) [2]int64 {
		listed, err := admin.ListOffsetsAfterMilli(t.Context, zero+milliseconds, topic)
		t.Must("list offsets", err)
		t.Must("list offsets", listed.Error())
		offset, _ := listed.Lookup(topic, 0)
		if offset.Timestamp < 0 {
			return [2]int64{offset.Offset, offset.Timestamp}
		}
		return [2]int64{offset.Offset, offset.Timestamp - zero}
	}
	t.Equal("at the first", at(1000), [2]int64{0, 1000})
	t.Equal("between", at(1001), [2]int64{1, 3000})
	t.Equal("only one that late", at(3001), [2]int64{3, 5000})
	after := at(5001)
	t.Fact("after the last", after)
	t.Equal("after the last", after[0], int64(4))
	start, err := admin.ListStartOffsets(t.Context, topic)
	t.Must("list start offsets", err)
	end, err := admin.ListEndOffsets(t.Context, topic)
	t.Must("list end offsets", err)
	latest, err := admin.ListMaxTimestampOffsets(t.Context, topic)
	t.Must("list offsets of the latest timestamps", err)
	for partition, want := range [][4]int64{{0, 4, 3, zero + 5000}, {0, 0, -1, -1}} {
		from, _ := start.Lookup(topic, int32(partition))
		to, _ := end.Lookup(topic, int32(partition))
		last, _ := latest.Lookup(topic, int32(partition))
		t.Equal("start, end, offset and time of the latest timestamp", [4]int64{from.Offset, to.Offset, last.Offset, last.Timestamp}, want)
	}
	_, err = admin.ListEndOffsets(t.Context, t.Name("missing"))
	t.Fact("missing topic", fmt.Sprint(err))
}

func autoCreation(t *checks.T) {
	topic := t.Name("topic")
	refused := client(t, kgo.UnknownTopicRetries(0), kgo.RecordRetries(1))
	err := refused.ProduceSync(t.Context, &kgo.Record{Topic: topic, Value: []byte("refused")}).FirstErr()
	refused.Close()
	t.True("a topic is not created for a client that does not want it", errors.Is(err, kerr.UnknownTopicOrPartition))
	producer := client(t, kgo.AllowAutoTopicCreation())
	defer producer.Close()
	produce(t, producer, &kgo.Record{Topic: topic, Value: []byte("created")})
	t.Equal("records", readAll(t, topic, 0, kgo.ReadUncommitted()), []string{"created"})
}
