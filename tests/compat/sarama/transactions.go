// Transactions.
package main

import (
	"fmt"
	"time"

	"fencepost/checks"

	"github.com/IBM/sarama"
)

func begin(t *checks.T, producer sarama.SyncProducer) {
	t.Must("begin", producer.BeginTxn())
}

func transactionCommitAndAbort(t *checks.T) {
	topic := createTopic(t, "topic", 2)
	producer := newProducer(t, transactionalConfig(t.Name("transaction")))
	defer producer.Close()
	committed, all := []string{}, []string{}
	for number := range 20 {
		begin(t, producer)
		value := fmt.Sprint(number)
		send(t, producer, message(topic, 0, value), message(topic, 1, value))
		all = append(all, value)
		if number%3 == 0 {
			t.Must("abort", producer.AbortTxn())
		} else {
			committed = append(committed, value)
			t.Must("commit", producer.CommitTxn())
		}
	}
	for partition := range int32(2) {
		t.Equal("committed records", readAll(t, topic, partition, sarama.ReadCommitted), committed)
	}
	others := append(all, "the end")
	t.Equal("all records", readAllAfterEnd(t, topic), others)
}

// readAllAfterEnd is readAll of partition 0 after an earlier readAll has left its own record there.
func readAllAfterEnd(t *checks.T, topic string) []string {
	values := []string{}
	kafka, err := sarama.NewClient(t.Addresses(), config())
	t.Must("new client", err)
	defer kafka.Close()
	// 20 records and markers of transactions, and the one at the end.
	end, err := kafka.GetOffset(topic, 0, sarama.OffsetNewest)
	t.Must("end offset", err)
	t.Equal("a marker for each transaction", end, int64(41))
	for _, one := range read(t, config(), topic, 0, 21) {
		values = append(values, string(one.Value))
	}
	return values
}

func transactionConsumeTransformProduce(t *checks.T) {
	source, sink, group := createTopic(t, "source", 1), createTopic(t, "sink", 1), t.Name("group")
	plain := newProducer(t, config())
	defer plain.Close()
	send(t, plain, numbers(source, 1, 30)...)
	messages := read(t, config(), source, 0, 30)
	producer := newProducer(t, transactionalConfig(t.Name("transaction")))
	defer producer.Close()
	transform := func(from, to int) {
		begin(t, producer)
		for _, one := range messages[from:to] {
			send(t, producer, message(sink, 0, string(one.Value)))
			t.Must("add offset", producer.AddMessageToTxn(one, group, nil))
		}
	}
	admin := newAdmin(t)
	defer admin.Close()
	offset := func() int64 {
		offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{source: {0}})
		t.Must("list offsets", err)
		return offsets.GetBlock(source, 0).Offset
	}
	transform(0, 10)
	t.Equal("offset while the transaction is open", offset(), int64(-1))
	t.Must("commit", producer.CommitTxn())
	t.Until("the offset is committed", func() bool { return offset() == 10 })
	transform(10, 20)
	t.Must("abort", producer.AbortTxn())
	transform(10, 30)
	t.Equal("offset after an abort", offset(), int64(10))
	t.Must("commit", producer.CommitTxn())
	t.Until("the offset is committed", func() bool { return offset() == 30 })
	t.Equal("each record once", readAll(t, sink, 0, sarama.ReadCommitted), counted(0, 30))
}

func transactionFencing(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	first := newProducer(t, transactionalConfig(t.Name("transaction")))
	defer first.Close()
	begin(t, first)
	send(t, first, message(topic, 0, "first"))
	second := newProducer(t, transactionalConfig(t.Name("transaction")))
	defer second.Close()
	begin(t, second)
	send(t, second, message(topic, 0, "second"))
	err := first.CommitTxn()
	t.True("the first producer cannot commit", err != nil)
	t.Fact("error of the fenced producer", name(err))
	t.Must("commit", second.CommitTxn())
	t.Equal("records", readAll(t, topic, 0, sarama.ReadCommitted), []string{"second"})
}

func transactionZombie(t *checks.T) {
	topic := createTopic(t, "topic", 1)
	settings := transactionalConfig(t.Name("transaction"))
	settings.Producer.Transaction.Timeout = time.Second
	settings.Producer.Transaction.Retry.Max = 3
	zombie := newProducer(t, settings)
	defer zombie.Close()
	begin(t, zombie)
	send(t, zombie, message(topic, 0, "left behind"))
	// A read_committed reader comes to the end only when the broker has aborted the transaction.
	t.Equal("records", readAll(t, topic, 0, sarama.ReadCommitted), []string{})
	err := zombie.CommitTxn()
	t.True("the zombie cannot commit", err != nil)
	t.Fact("error of the zombie", name(err))
}
