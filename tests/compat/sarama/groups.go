// Consumer groups.
package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

// member consumes in the background, commits what it was given, and knows what it holds.
type member struct {
	group    sarama.ConsumerGroup
	mutex    sync.Mutex
	values   []string
	assigned int
	stop     context.CancelFunc
	stopped  chan struct{}
}

func join(t *checks.T, group, topic string, settings *sarama.Config) *member {
	joined, err := sarama.NewConsumerGroup(t.Addresses(), group, settings)
	t.Must("new consumer group", err)
	ctx, cancel := context.WithCancel(t.Context)
	m := &member{group: joined, stop: cancel, stopped: make(chan struct{})}
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			// It returns when the group is rebalanced and when its broker is gone; either way it is called again.
			_ = joined.Consume(ctx, []string{topic}, m)
		}
	}()
	return m
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partitions := range session.Claims() {
		m.assigned = len(partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.assigned = 0
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.mutex.Lock()
			m.values = append(m.values, string(message.Value))
			m.mutex.Unlock()
			session.MarkMessage(message, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) holds() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.assigned
}

func (m *member) read() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.values)
}

func (m *member) leave() {
	m.stop()
	<-m.stopped
	_ = m.group.Close()
}

func groupResumesAtCommit(t *checks.T) {
	topic, group := createTopic(t, "topic", 1), t.Name("group")
	producer := newProducer(t, config())
	defer producer.Close()
	send(t, producer, numbers(topic, 1, 12)...)
	first := join(t, group, topic, config())
	t.Until("all is read", func() bool { return len(first.read()) == 12 })
	first.leave()
	send(t, producer, numbers(topic, 1, 18)...)
	second := join(t, group, topic, config())
	t.Until("the rest is read", func() bool { return len(second.read()) == 18 })
	second.leave()
	t.Equal("what the second member read", second.read(), counted(0, 18))
	admin := newAdmin(t)
	defer admin.Close()
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	t.Must("list offsets", err)
	t.Equal("committed offset", offsets.GetBlock(topic, 0).Offset, int64(30))
}

func groupRebalances(t *checks.T) {
	for _, strategy := range []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategySticky()} {
		rebalance(t, strategy)
	}
}

func rebalance(t *checks.T, strategy sarama.BalanceStrategy) {
	topic, group := createTopic(t, "topic-"+strategy.Name(), 6), t.Name("group-"+strategy.Name())
	settings := config()
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	producer := newProducer(t, config())
	defer producer.Close()
	first := join(t, group, topic, settings)
	t.Until("the only member has all partitions", func() bool { return first.holds() == 6 })
	second := join(t, group, topic, settings)
	t.Until("two members share", func() bool { return first.holds() == 3 && second.holds() == 3 })
	send(t, producer, numbers(topic, 6, 60)...)
	t.Until("all is read", func() bool { return len(first.read())+len(second.read()) == 60 })
	t.Equal("each its half", fmt.Sprint(len(first.read()), len(second.read())), "30 30")
	first.leave()
	t.Until("the last member has all", func() bool { return second.holds() == 6 })
	send(t, producer, numbers(topic, 6, 60)...)
	t.Until("all is read", func() bool { return len(second.read()) == 90 })
	second.leave()
	t.Equal("each record once", sorted(first.read(), second.read()), sorted(counted(0, 60), counted(0, 60)))
}
