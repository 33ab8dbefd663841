// The broker ends, in one way or another, and comes back: clients go on, nothing acknowledged is lost or doubled.
package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

func crashWhileProducing(t *checks.T) {
	produceThrough(t, "kill")
}

func stopWhileProducing(t *checks.T) {
	produceThrough(t, "terminate")
}

// produceThrough has an idempotent producer write while the broker is restarted; each record is there once, in order.
func produceThrough(t *checks.T, how string) {
	topic := createTopic(t, "topic", 2)
	producer := newProducer(t, patient(idempotentConfig()))
	defer producer.Close()
	var restarted atomic.Bool
	var refusal string
	go func() {
		time.Sleep(200 * time.Millisecond)
		refusal = t.TryRestart(how)
		restarted.Store(true)
	}()
	sent := 0
	for after := 0; after < 5; sent++ {
		if restarted.Load() {
			after++
		}
		send(t, producer, numbers(topic, 2, 20)...)
	}
	if refusal != "" {
		t.Skip(refusal)
	}
	for partition := range int32(2) {
		want := []string{}
		for range sent {
			for number := int(partition); number < 20; number += 2 {
				want = append(want, fmt.Sprint(number))
			}
		}
		t.Equal("records", readAll(t, topic, partition, sarama.ReadUncommitted), want)
	}
}

func crashInTransaction(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := newProducer(t, patient(transactionalConfig(t.Name("transaction"))))
	defer producer.Close()
	begin(t, producer)
	send(t, producer, message(topic, 0, "before"))
	t.Restart("kill")
	send(t, producer, message(topic, 1, "after"))
	t.Must("commit", producer.CommitTxn())
	t.Equal("records before the crash", readAll(t, topic, 0, sarama.ReadCommitted), []string{"before"})
	t.Equal("records after the crash", readAll(t, topic, 1, sarama.ReadCommitted), []string{"after"})
}

func crashWhileConsuming(t *checks.T) {
	topic, group := createTopic(t, "topic", 4), t.Name("group")
	producer := newProducer(t, patient(config()))
	defer producer.Close()
	member := join(t, group, topic, patient(config()))
	send(t, producer, numbers(topic, 4, 40)...)
	t.Until("all is read", func() bool { return len(member.read()) == 40 })
	committed(t, group, topic, 40)
	t.Restart("kill")
	send(t, producer, numbers(topic, 4, 40)...)
	// What is read while the group settles may not be committed any more, and comes again; nothing is left out.
	t.Until("the rest is read", func() bool {
		times := map[string]int{}
		for _, value := range member.read() {
			times[value]++
		}
		for _, value := range counted(0, 40) {
			if times[value] < 2 {
				return false
			}
		}
		return true
	})
	member.leave()
}

// committed waits until a group has committed this many records: what was only read is read again after a crash.
func committed(t *checks.T, group, topic string, count int64) {
	admin := newAdmin(t)
	defer admin.Close()
	t.Until("all is committed", func() bool {
		offsets, err := admin.ListConsumerGroupOffsets(group, nil)
		t.Must("list offsets", err)
		total := int64(0)
		for _, block := range offsets.Blocks[topic] {
			total += block.Offset
		}
		return total == count
	})
}
