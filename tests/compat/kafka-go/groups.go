// Consumer groups, and a broker that ends while they are at work.
package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
)

// member reads in the background, commits what it was given, and knows which partitions that came from.
type member struct {
	reader  *kafka.Reader
	mutex   sync.Mutex
	values  []string
	latest  map[int]int
	stop    context.CancelFunc
	stopped chan struct{}
}

func join(t *checks.T, group, topic string, balancers ...kafka.GroupBalancer) *member {
	settings := kafka.ReaderConfig{GroupID: group, Topic: topic, GroupBalancers: balancers}
	m := &member{reader: newReader(t, settings), latest: map[int]int{}, stopped: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context)
	m.stop = cancel
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			message, err := m.reader.FetchMessage(ctx)
			if err != nil {
				continue
			}
			m.mutex.Lock()
			m.values = append(m.values, string(message.Value))
			m.latest[message.Partition]++
			m.mutex.Unlock()
			// What a member that was cut off could not commit is read again by another: that is no failure.
			_ = m.reader.CommitMessages(ctx, message)
		}
	}()
	return m
}

func (m *member) read() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.values)
}

func (m *member) leave() {
	m.stop()
	<-m.stopped
	_ = m.reader.Close()
}

func distinct(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

func committed(t *checks.T, group, topic string, partitions int) []int64 {
	client, done := newClient(t)
	defer done()
	asked := []int{}
	for partition := range partitions {
		asked = append(asked, partition)
	}
	fetched, err := client.OffsetFetch(t.Context, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: asked}})
	t.Must("fetch offsets", err)
	offsets := make([]int64, partitions)
	for _, of := range fetched.Topics[topic] {
		offsets[of.Partition] = of.CommittedOffset
	}
	return offsets
}

func groupResumesAtCommit(t *checks.T) {
	topic, group := createTopic(t, "topic", 1), t.Name("group")
	written := numbers(1, 0, 30)
	write(t, topic, written...)
	first := newReader(t, kafka.ReaderConfig{GroupID: group, Topic: topic})
	messages := read(t, first, 30)
	t.Must("commit", first.CommitMessages(t.Context, messages[:12]...))
	t.Must("close", first.Close())
	second := newReader(t, kafka.ReaderConfig{GroupID: group, Topic: topic})
	t.Equal("records after the commit", values(read(t, second, 18)), values(written[12:]))
	t.Must("close", second.Close())
	t.Equal("committed offset", committed(t, group, topic, 1), []int64{12})
}

func groupRebalances(t *checks.T) {
	topic, group := createTopic(t, "topic", 6), t.Name("group")
	first := join(t, group, topic, kafka.RangeGroupBalancer{})
	write(t, topic, numbers(6, 0, 60)...)
	t.Until("the only member has read all", func() bool { return len(first.read()) == 60 })
	t.Until("all is committed", func() bool { return slices.Equal(committed(t, group, topic, 6), []int64{10, 10, 10, 10, 10, 10}) })
	second := join(t, group, topic, kafka.RangeGroupBalancer{})
	next := 60
	t.Until("two members share", func() bool {
		write(t, topic, numbers(6, next, next+6)...)
		next += 6
		time.Sleep(50 * time.Millisecond)
		return len(second.read()) >= 3
	})
	t.Until("all is read", func() bool { return len(distinct(first.read(), second.read())) == next })
	before := len(second.read())
	first.leave()
	write(t, topic, numbers(6, next, next+60)...)
	next += 60
	t.Until("the last member has read all", func() bool { return len(distinct(first.read(), second.read())) == next })
	t.True("the last member has read what came last", len(second.read()) >= before+60)
	second.leave()
	for partition, offset := range committed(t, group, topic, 6) {
		t.Equal(fmt.Sprint("committed offset of partition ", partition), offset, int64(next/6))
	}
}

func crashWhileProducing(t *checks.T) {
	produceThrough(t, "kill")
}

func stopWhileProducing(t *checks.T) {
	produceThrough(t, "terminate")
}

// produceThrough has a writer, which is not idempotent, write while the broker is restarted: nothing that it
// acknowledged is missing, and what it wrote is in order, though perhaps twice.
func produceThrough(t *checks.T, how string) {
	topic := createTopic(t, "topic", 1)
	writer := newWriter(t, topic)
	defer writer.Close()
	restarted := make(chan string, 1)
	go func() {
		time.Sleep(200 * time.Millisecond)
		restarted <- t.TryRestart(how)
	}()
	count, after := 0, -1
	for after != 0 {
		t.Must("write", writer.WriteMessages(t.Context, numbers(1, count, count+10)...))
		count += 10
		if after > 0 {
			after--
		}
		select {
		case refusal := <-restarted:
			if refusal != "" {
				t.Skip(refusal)
			}
			after = 5
		default:
		}
	}
	got, want := readAll(t, topic, 0, kafka.ReadUncommitted), values(numbers(1, 0, count))
	next := 0
	for _, value := range got {
		if next < len(want) && value == want[next] {
			next++
		}
	}
	t.Equal("records that are there, in order", next, count)
	t.Equal("distinct records", len(distinct(got)), count)
}

func crashWhileConsuming(t *checks.T) {
	topic, group := createTopic(t, "topic", 2), t.Name("group")
	member := join(t, group, topic)
	count := 0
	for _, how := range []string{"kill", "terminate"} {
		write(t, topic, numbers(2, count, count+40)...)
		count += 40
		t.Until("all is read", func() bool { return len(distinct(member.read())) == count })
		half := int64(count / 2)
		t.Until("all is committed", func() bool { return slices.Equal(committed(t, group, topic, 2), []int64{half, half}) })
		t.Restart(how)
		t.Equal("committed offsets after the restart", committed(t, group, topic, 2), []int64{half, half})
	}
	write(t, topic, numbers(2, count, count+40)...)
	t.Until("all is read", func() bool { return len(distinct(member.read())) == count+40 })
	member.leave()
	t.Equal("each record once", len(member.read()), count+40)
}
