// Many clients at once, each with connections of its own.
package main

import (
	"fmt"
	"sync"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kgo"
)

// manyClients has 100 idempotent producers and the 100 members of one group work at once, a partition each.
func manyClients(t *checks.T) {
	const pairs, each = 100, 20
	topic, group := createTopic(t, "topic", pairs), t.Name("group")
	members := make([]*member, pairs)
	for number := range members {
		members[number] = join(t, group, topic, kgo.Balancers(kgo.RangeBalancer()))
	}
	failures := make([]error, pairs)
	var producing sync.WaitGroup
	for number := range pairs {
		producing.Go(func() {
			producer := client(t)
			defer producer.Close()
			for record := range each {
				value := fmt.Sprintf("%d:%d", number, record)
				written := &kgo.Record{Topic: topic, Partition: int32(number), Value: []byte(value)}
				if err := producer.ProduceSync(t.Context, written).FirstErr(); err != nil {
					failures[number] = err
					return
				}
			}
		})
	}
	producing.Wait()
	for _, err := range failures {
		t.Must("produce", err)
	}
	for number := range int32(pairs) {
		want := []string{}
		for record := range each {
			want = append(want, fmt.Sprintf("%d:%d", number, record))
		}
		t.Equal("records", readAll(t, topic, number, kgo.ReadUncommitted()), want)
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
