// The broker ends, in one way or another, and comes back: clients go on, nothing acknowledged is lost or doubled.
package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func crashWhileProducing(t *checks.T) {
	produceThrough(t, "kill")
}

func stopWhileProducing(t *checks.T) {
	produceThrough(t, "terminate")
}

// produceThrough has an idempotent producer write while the broker is restarted; each record is there once, in order.
func produceThrough(t *checks.T, how string) {
	topic := createTopic(t, "topic", 3)
	producer := client(t, kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(500))
	defer producer.Close()
	var restarted atomic.Bool
	var refusal string
	var failure atomic.Value
	var waiting sync.WaitGroup
	go func() {
		time.Sleep(300 * time.Millisecond)
		refusal = t.TryRestart(how)
		restarted.Store(true)
	}()
	count := 0
	for after := 0; after < 300; count++ {
		if restarted.Load() {
			after++
		}
		waiting.Add(1)
		producer.Produce(t.Context, numbered(topic, 3, count), func(_ *kgo.Record, err error) {
			if err != nil {
				failure.Store(err)
			}
			waiting.Done()
		})
		time.Sleep(200 * time.Microsecond)
	}
	if refusal != "" {
		t.Skip(refusal)
	}
	t.Must("flush", producer.Flush(t.Context))
	waiting.Wait()
	if err, failed := failure.Load().(error); failed {
		t.Must("produce", err)
	}
	for partition := range int32(3) {
		want := []string{}
		for number := int(partition); number < count; number += 3 {
			want = append(want, fmt.Sprint(number))
		}
		t.Equal("records", readAll(t, topic, partition, kgo.ReadUncommitted()), want)
	}
}

func crashInTransaction(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := client(t, kgo.TransactionalID(t.Name("transaction")))
	defer producer.Close()
	t.Must("begin", producer.BeginTransaction())
	produce(t, producer, &kgo.Record{Topic: topic, Partition: 0, Value: []byte("before")})
	t.Restart("kill")
	produce(t, producer, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("after")})
	end(t, producer, t.Name("transaction"), kgo.TryCommit)
	t.Must("begin", producer.BeginTransaction())
	produce(t, producer, &kgo.Record{Topic: topic, Partition: 0, Value: []byte("aborted")})
	t.Restart("terminate")
	end(t, producer, t.Name("transaction"), kgo.TryAbort)
	t.Equal("records before the crash", readAll(t, topic, 0, kgo.ReadCommitted()), []string{"before"})
	t.Equal("records after the crash", readAll(t, topic, 1, kgo.ReadCommitted()), []string{"after"})
}

func crashWhileConsuming(t *checks.T) {
	topic, group := createTopic(t, "topic", 4), t.Name("group")
	producer := client(t)
	defer producer.Close()
	first, second := join(t, group, topic), join(t, group, topic)
	t.Until("two members share", func() bool { return first.holds() == 2 && second.holds() == 2 })
	produce(t, producer, numbers(topic, 4, 40)...)
	t.Until("all is read", func() bool { return len(first.read())+len(second.read()) == 40 })
	committed(t, group, 40)
	t.Restart("kill")
	for number := 40; number < 80; number++ {
		produce(t, producer, numbered(topic, 4, number))
	}
	t.Until("all is read", func() bool { return len(first.read())+len(second.read()) >= 80 })
	first.leave()
	t.Until("the other member has all", func() bool { return second.holds() == 4 })
	second.leave()
	t.Equal("each record once", sorted(first.read(), second.read()), sorted(values(numbers(topic, 4, 80))))
}

// committed waits until a group has committed this many records: what was only read is read again after a crash.
func committed(t *checks.T, group string, count int64) {
	kafka := client(t)
	defer kafka.Close()
	t.Until("all is committed", func() bool {
		offsets, err := kadm.NewClient(kafka).FetchOffsets(t.Context, group)
		t.Must("fetch offsets", err)
		total := int64(0)
		offsets.Each(func(offset kadm.OffsetResponse) { total += offset.At })
		return total == count
	})
}
