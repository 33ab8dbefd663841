// Many clients at once, each with connections of its own.
package main

import (
	"fmt"
	"sync"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

// manyClients has 100 idempotent producers and the 100 members of one group work at once, a partition each.
func manyClients(t *checks.T) {
	const pairs, each = 100, 10
	topic, group := createTopic(t, "topic", pairs), t.Name("group")
	members := make([]*member, pairs)
	for number := range members {
		members[number] = join(t, group, topic, config())
	}
	failures := make([]error, pairs)
	var producing sync.WaitGroup
	for number := range pairs {
		producing.Go(func() { failures[number] = produceAlone(t, topic, int32(number), each) })
	}
	producing.Wait()
	for _, err := range failures {
		t.Must("produce", err)
	}
	t.Until("every member holds one partition", func() bool {
		for _, member := range members {
			if member.holds() != 1 {
				return false
			}
		}
		return true
	})
	// A record that was read just before its partition went to another member may be read twice; none is left out.
	t.Until("all is read", func() bool {
		seen := map[string]bool{}
		for _, member := range members {
			for _, value := range member.read() {
				seen[value] = true
			}
		}
		return len(seen) == pairs*each
	})
	var leaving sync.WaitGroup
	for _, member := range members {
		leaving.Go(member.leave)
	}
	leaving.Wait()
}

// produceAlone is one of many producers: it fills a partition, one record after the other.
func produceAlone(t *checks.T, topic string, partition int32, count int) error {
	producer, err := sarama.NewSyncProducer(t.Addresses(), idempotentConfig())
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range count {
		_, offset, err := producer.SendMessage(message(topic, partition, fmt.Sprintf("%d:%d", partition, number)))
		if err != nil {
			return err
		}
		if offset != int64(number) {
			return fmt.Errorf("record %d of partition %d has the offset %d", number, partition, offset)
		}
	}
	return nil
}
