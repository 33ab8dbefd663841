// Consumer groups, by the classic protocol and by that of KIP-848.
package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member polls in the background, commits what it was given, and knows what it holds.
type member struct {
	kafka    *kgo.Client
	mutex    sync.Mutex
	values   []string
	assigned map[int32]bool
	stop     context.CancelFunc
	stopped  chan struct{}
}

func join(t *checks.T, group, topic string, options ...kgo.Opt) *member {
	m := &member{assigned: map[int32]bool{}, stopped: make(chan struct{})}
	all := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.hold(added, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.hold(lost, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.hold(lost, false) }),
	}
	m.kafka = client(t, append(all, options...)...)
	ctx, cancel := context.WithCancel(t.Context)
	m.stop = cancel
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			polling, done := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := m.kafka.PollRecords(polling, 10)
			done()
			m.mutex.Lock()
			fetches.EachRecord(func(record *kgo.Record) { m.values = append(m.values, string(record.Value)) })
			m.mutex.Unlock()
			if records := fetches.Records(); len(records) > 0 {
				// What a member that was cut off could not commit is read again by another: that is no failure.
				_ = m.kafka.CommitRecords(t.Context, records...)
			}
			m.kafka.AllowRebalance()
		}
	}()
	return m
}

func (m *member) hold(topics map[string][]int32, held bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partitions := range topics {
		for _, partition := range partitions {
			if held {
				m.assigned[partition] = true
			} else {
				delete(m.assigned, partition)
			}
		}
	}
}

func (m *member) holds() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.assigned)
}

func (m *member) read() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.values)
}

func (m *member) leave() {
	m.stop()
	<-m.stopped
	m.kafka.CloseAllowingRebalance()
}

func sorted(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

func values(records []*kgo.Record) []string {
	all := []string{}
	for _, record := range records {
		all = append(all, string(record.Value))
	}
	return all
}

func groupResumesAtCommit(t *checks.T) {
	topic, group := createTopic(t, "topic", 1), t.Name("group")
	producer := client(t)
	defer producer.Close()
	written := numbers(topic, 1, 30)
	produce(t, producer, written...)
	options := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	first := client(t, options...)
	records := read(t, first, 30)
	t.Must("commit", first.CommitRecords(t.Context, records[:12]...))
	first.Close()
	second := client(t, options...)
	t.Equal("records after the commit", values(read(t, second, 18)), values(written[12:]))
	second.Close()
	offsets, err := kadm.NewClient(producer).FetchOffsets(t.Context, group)
	t.Must("fetch offsets", err)
	committed, _ := offsets.Lookup(topic, 0)
	t.Equal("committed offset", committed.At, int64(12))
	t.Equal("leader epoch of the committed offset", committed.LeaderEpoch, int32(0))
}

func groupRebalances(t *checks.T) {
	rebalance(t)
}

func groupNextGeneration(t *checks.T) {
	rebalance(t, kgo.ServerSideBalancer())
	kafka := client(t)
	defer kafka.Close()
	types, err := kadm.NewClient(kafka).ListGroupsByType(t.Context, []string{"consumer"})
	t.Must("list groups", err)
	_, found := types[t.Name("group")]
	t.True("the group is of the new type", found)
}

// rebalance has members come and go, and one vanish, while records are written; each record is read.
func rebalance(t *checks.T, options ...kgo.Opt) {
	topic, group := createTopic(t, "topic", 6), t.Name("group")
	producer := client(t)
	defer producer.Close()
	first := join(t, group, topic, options...)
	t.Until("the only member has all partitions", func() bool { return first.holds() == 6 })
	produce(t, producer, numbers(topic, 6, 60)...)
	t.Until("the only member has read all", func() bool { return len(first.read()) == 60 })
	second := join(t, group, topic, options...)
	t.Until("two members share", func() bool { return first.holds() == 3 && second.holds() == 3 })
	third := join(t, group, topic, options...)
	t.Until("three members share", func() bool { return first.holds() == 2 && second.holds() == 2 && third.holds() == 2 })
	for number := 60; number < 120; number++ {
		produce(t, producer, numbered(topic, 6, number))
	}
	t.Until("the members have read all", func() bool { return len(first.read())+len(second.read())+len(third.read()) == 120 })
	t.Equal("records of the third member", len(third.read()), 20)
	second.leave()
	t.Until("two members share again", func() bool { return first.holds() == 3 && third.holds() == 3 })
	first.leave()
	t.Until("the last member has all", func() bool { return third.holds() == 6 })
	for number := 120; number < 180; number++ {
		produce(t, producer, numbered(topic, 6, number))
	}
	t.Until("the last member has read all", func() bool { return len(third.read()) == 80 })
	third.leave()
	want := sorted(values(numbers(topic, 6, 180)))
	t.Equal("all that was read", sorted(first.read(), second.read(), third.read()), want)
}

func groupStaticMember(t *checks.T) {
	topic, group := createTopic(t, "topic", 2), t.Name("group")
	producer := client(t)
	defer producer.Close()
	admin := kadm.NewClient(producer)
	first := join(t, group, topic, kgo.InstanceID("first"), kgo.Balancers(kgo.RangeBalancer()))
	second := join(t, group, topic, kgo.InstanceID("second"), kgo.Balancers(kgo.RangeBalancer()))
	t.Until("two members share", func() bool { return first.holds() == 1 && second.holds() == 1 })
	before, generation := second.kafka.GroupMetadata()
	second.leave() // a static member leaves without saying so
	described, err := admin.DescribeGroups(t.Context, group)
	t.Must("describe group", err)
	t.Equal("members while one is away", len(described[group].Members), 2)
	second = join(t, group, topic, kgo.InstanceID("second"), kgo.Balancers(kgo.RangeBalancer()))
	t.Until("the member is back", func() bool { return second.holds() == 1 })
	after, same := second.kafka.GroupMetadata()
	t.True("the member has another id", before != after)
	t.Equal("the generation after the return", same, generation)
	left, err := admin.LeaveGroup(t.Context, kadm.LeaveGroup(group).InstanceIDs("first", "second"))
	t.Must("remove the members", err)
	t.Must("remove the members", left.Error())
	first.stop()
	second.stop()
	first.kafka.CloseAllowingRebalance()
	second.kafka.CloseAllowingRebalance()
}

func groupByRegularExpression(t *checks.T) {
	prefix, group := t.Name("topic"), t.Name("group")
	kafka := client(t)
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	_, err := admin.CreateTopic(t.Context, 1, 1, nil, prefix+"-a")
	t.Must("create topic", err)
	consumer := client(t,
		kgo.ConsumerGroup(group), kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+prefix+"-[a-c]$"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
	)
	defer consumer.Close()
	produce(t, kafka, &kgo.Record{Topic: prefix + "-a", Value: []byte("a")})
	t.Equal("topic that was there", values(read(t, consumer, 1)), []string{"a"})
	for _, name := range []string{"-b", "-d"} {
		_, err = admin.CreateTopic(t.Context, 1, 1, nil, prefix+name)
		t.Must("create topic", err)
		produce(t, kafka, &kgo.Record{Topic: prefix + name, Value: []byte(name)})
	}
	t.Equal("topic that came later", fmt.Sprint(values(read(t, consumer, 1))), "[-b]")
}
