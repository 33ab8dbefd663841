// Many clients at once, each with connections of its own.
package main

import (
	"fmt"
	"sync"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
)

// manyClients has 100 writers and the 100 members of one group work at once, a partition each.
func manyClients(t *checks.T) {
	const pairs, each = 100, 10
	topic, group := createTopic(t, "topic", pairs), t.Name("group")
	members := make([]*member, pairs)
	for number := range members {
		members[number] = join(t, group, topic, kafka.RangeGroupBalancer{})
	}
	failures := make([]error, pairs)
	var writing sync.WaitGroup
	for number := range pairs {
		writing.Go(func() {
			writer := newWriter(t, topic)
			defer writer.Close()
			for record := range each {
				value := []byte(fmt.Sprintf("%d:%d", number, record))
				failures[number] = writer.WriteMessages(t.Context, kafka.Message{Value: value, WriterData: number})
				if failures[number] != nil {
					return
				}
			}
		})
	}
	writing.Wait()
	for _, err := range failures {
		t.Must("write", err)
	}
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
	t.Until("all is committed", func() bool {
		for _, offset := range committed(t, group, topic, pairs) {
			if offset != each {
				return false
			}
		}
		return true
	})
	var leaving sync.WaitGroup
	for _, member := range members {
		leaving.Go(member.leave)
	}
	leaving.Wait()
}
