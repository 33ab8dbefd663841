// A producer, a transactional producer and a member of a group that never stop, with sarama's defaults.
//
//	program BOOTSTRAP TOPIC PARTITIONS FEED
//
// Each line is the part ("produce", "transact", "consume"), a partition and when what has arrived was sent, in
// milliseconds of Unix time. A transaction writes to all partitions, and its line has the partition -1.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var brokers = strings.Split(os.Args[1], ",")
var topic, feed = os.Args[2], os.Args[4]
var partitions, _ = strconv.Atoi(os.Args[3])
var lines = make(chan string)

func now() string { return fmt.Sprint(time.Now().UnixMilli()) }

func complain(part string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, part, err)
	}
}

func settings() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Return.Successes = true
	return made
}

func records() []*sarama.ProducerMessage {
	made := []*sarama.ProducerMessage{}
	for number := range partitions {
		made = append(made, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(number), Value: sarama.StringEncoder(now()),
		})
	}
	return made
}

func produce() {
	producer, err := sarama.NewAsyncProducer(brokers, settings())
	if err != nil {
		panic(err)
	}
	go func() {
		for failed := range producer.Errors() {
			complain("produce", failed.Err)
		}
	}()
	go func() {
		for done := range producer.Successes() {
			lines <- fmt.Sprintf("produce %d %s", done.Partition, done.Value)
		}
	}()
	for ; ; time.Sleep(250 * time.Millisecond) {
		for _, record := range records() {
			producer.Input() <- record
		}
	}
}

func transactional() sarama.SyncProducer {
	for ; ; time.Sleep(time.Second) {
		made := settings()
		made.Producer.Idempotent = true
		made.Producer.Transaction.ID = topic
		made.Net.MaxOpenRequests = 1
		producer, err := sarama.NewSyncProducer(brokers, made)
		if err == nil {
			return producer
		}
		complain("transact", err)
	}
}

func transact() {
	producer := transactional()
	for ; ; time.Sleep(250 * time.Millisecond) {
		began := now()
		err := producer.BeginTxn()
		if err == nil {
			err = producer.SendMessages(records())
		}
		if err == nil {
			err = producer.CommitTxn()
		}
		if err == nil {
			lines <- fmt.Sprintf("transact -1 %s", began)
			continue
		}
		complain("transact", err)
		if producer.TxnStatus()&sarama.ProducerTxnFlagFatalError == 0 {
			err = producer.AbortTxn()
			complain("transact", err)
		}
		if err != nil || producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			complain("transact", producer.Close())
			producer = transactional()
		}
	}
}

type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		lines <- fmt.Sprintf("consume %d %s", record.Partition, record.Value)
		session.MarkMessage(record, "")
	}
	return nil
}

func consume() {
	group, err := sarama.NewConsumerGroup(brokers, topic, settings())
	if err != nil {
		panic(err)
	}
	for ; ; time.Sleep(100 * time.Millisecond) {
		complain("consume", group.Consume(context.Background(), []string{feed}, member{}))
	}
}

func main() {
	go produce()
	go transact()
	go consume()
	for line := range lines {
		fmt.Println(line)
	}
}
