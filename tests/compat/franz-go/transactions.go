// Transactions: whole or absent, for readers that ask for it; one producer at a time.
package main

import (
	"errors"
	"fmt"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// end ends a transaction and waits until all partitions know of it: EndTxn is answered when that is decided.
func end(t *checks.T, producer *kgo.Client, transactional string, how kgo.TransactionEndTry) {
	t.Must("end the transaction", producer.EndTransaction(t.Context, how))
	complete(t, producer, transactional)
}

func complete(t *checks.T, kafka *kgo.Client, transactional string) {
	t.Until("the transaction is complete", func() bool {
		described, err := kadm.NewClient(kafka).DescribeTransactions(t.Context, transactional)
		t.Must("describe transactions", err)
		state := described[transactional].State
		return state == "CompleteCommit" || state == "CompleteAbort"
	})
}

func transactionCommitAndAbort(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := client(t, kgo.TransactionalID(t.Name("transaction")))
	defer producer.Close()
	want := map[kgo.IsolationLevel][][]string{kgo.ReadCommitted(): {{}, {}}, kgo.ReadUncommitted(): {{}, {}}}
	for number := range 20 {
		t.Must("begin", producer.BeginTransaction())
		commit := number%3 != 0
		for partition := range int32(2) {
			value := fmt.Sprint(number, " ", commit)
			produce(t, producer, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)})
			want[kgo.ReadUncommitted()][partition] = append(want[kgo.ReadUncommitted()][partition], value)
			if commit {
				want[kgo.ReadCommitted()][partition] = append(want[kgo.ReadCommitted()][partition], value)
			}
		}
		end(t, producer, t.Name("transaction"), kgo.TransactionEndTry(commit))
	}
	for level, byPartition := range want {
		for partition, values := range byPartition {
			t.Equal("records", readAll(t, topic, int32(partition), level), values)
		}
	}
	ends, err := kadm.NewClient(producer).ListEndOffsets(t.Context, topic)
	t.Must("list end offsets", err)
	end, _ := ends.Lookup(topic, 0)
	t.Equal("a marker for each transaction", end.Offset, int64(40))
}

func transactionIsolation(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	plain := client(t)
	defer plain.Close()
	producer := client(t, kgo.TransactionalID(t.Name("transaction")))
	defer producer.Close()
	produce(t, plain, &kgo.Record{Topic: topic, Value: []byte("before")})
	t.Must("begin", producer.BeginTransaction())
	produce(t, producer, &kgo.Record{Topic: topic, Value: []byte("within")})
	produce(t, plain, &kgo.Record{Topic: topic, Value: []byte("after")})
	t.Equal("committed while open", readAll(t, topic, 0, kgo.ReadCommitted()), []string{"before"})
	t.Equal("all while open", readAll(t, topic, 0, kgo.ReadUncommitted()), []string{"before", "within", "after"})
	consumer := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer consumer.Close()
	t.Equal("first record", values(read(t, consumer, 1)), []string{"before"})
	end(t, producer, t.Name("transaction"), kgo.TryAbort)
	t.Equal("what comes after the abort", values(read(t, consumer, 1)), []string{"after"})
	t.Equal("committed after the abort", readAll(t, topic, 0, kgo.ReadCommitted()), []string{"before", "after"})
}

func transactionConsumeTransformProduce(t *checks.T) {
	source, sink, group := createTopic(t, "source", 2), createTopic(t, "sink", 1), t.Name("group")
	producer := client(t)
	defer producer.Close()
	produce(t, producer, numbers(source, 2, 60)...)
	session := func() *kgo.GroupTransactSession {
		made, err := kgo.NewGroupTransactSession(
			kgo.SeedBrokers(t.Addresses()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.TransactionalID(t.Name("transaction")), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second),
		)
		t.Must("new session", err)
		return made
	}
	transform := func(session *kgo.GroupTransactSession, count int, end kgo.TransactionEndTry) {
		fetches := session.PollRecords(t.Context, count)
		t.Must("poll", fetches.Err())
		t.Must("begin", session.Begin())
		for _, record := range fetches.Records() {
			t.Must("produce", session.ProduceSync(t.Context, &kgo.Record{Topic: sink, Value: record.Value}).FirstErr())
		}
		committed, err := session.End(t.Context, end)
		t.Must("end", err)
		t.Equal("committed", committed, bool(end))
		complete(t, producer, t.Name("transaction"))
	}
	read := func() int { return len(readAll(t, sink, 0, kgo.ReadCommitted())) }
	first := session()
	transform(first, 10, kgo.TryCommit)
	before := read()
	transform(first, 10, kgo.TryAbort)
	t.Equal("records after an abort", read(), before)
	transform(first, 10, kgo.TryCommit)
	first.Close()
	second := session()
	for read() < 60 {
		transform(second, 7, kgo.TryCommit)
	}
	second.Close()
	t.Equal("each record once", sorted(readAll(t, sink, 0, kgo.ReadCommitted())), sorted(values(numbers(source, 2, 60))))
	offsets, err := kadm.NewClient(producer).FetchOffsets(t.Context, group)
	t.Must("fetch offsets", err)
	for partition := range int32(2) {
		offset, _ := offsets.Lookup(source, partition)
		t.Equal("committed offset", offset.At, int64(30))
	}
}

func transactionFencing(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	transactional := t.Name("transaction")
	first := client(t, kgo.TransactionalID(transactional))
	defer first.Close()
	t.Must("begin", first.BeginTransaction())
	produce(t, first, &kgo.Record{Topic: topic, Value: []byte("first")})
	second := client(t, kgo.TransactionalID(transactional))
	defer second.Close()
	t.Must("begin", second.BeginTransaction())
	produce(t, second, &kgo.Record{Topic: topic, Value: []byte("second")})
	err := first.EndTransaction(t.Context, kgo.TryCommit)
	t.True(fmt.Sprint("the first producer is fenced: ", err), errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced))
	t.Fact("error of the fenced producer", name(err))
	end(t, second, transactional, kgo.TryCommit)
	t.Equal("records", readAll(t, topic, 0, kgo.ReadCommitted()), []string{"second"})
	t.Equal("all records", readAll(t, topic, 0, kgo.ReadUncommitted()), []string{"first", "second"})
}

func transactionZombie(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	zombie := client(t, kgo.TransactionalID(t.Name("transaction")), kgo.TransactionTimeout(time.Second))
	defer zombie.Close()
	t.Must("begin", zombie.BeginTransaction())
	produce(t, zombie, &kgo.Record{Topic: topic, Value: []byte("left behind")})
	complete(t, zombie, t.Name("transaction"))
	err := zombie.EndTransaction(t.Context, kgo.TryCommit)
	t.True("the zombie cannot commit", err != nil)
	t.Fact("error of the zombie", name(err))
	t.Equal("records", readAll(t, topic, 0, kgo.ReadCommitted()), []string{})
}
