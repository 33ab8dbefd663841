// A producer, a transactional producer and a member of a group that never stop, with franz-go's defaults.
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

	"github.com/twmb/franz-go/pkg/kgo"
)

var brokers = kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
var topic, feed = os.Args[2], os.Args[4]
var partitions, _ = strconv.Atoi(os.Args[3])
var lines = make(chan string)

func now() []byte { return fmt.Append(nil, time.Now().UnixMilli()) }

func complain(part string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, part, err)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		panic(err)
	}
	return made
}

func send(kafka *kgo.Client, number int, done func(*kgo.Record, error)) {
	kafka.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(number), Value: now()}, done)
}

func produce() {
	kafka := client()
	for ; ; time.Sleep(250 * time.Millisecond) {
		for number := range partitions {
			send(kafka, number, func(record *kgo.Record, err error) {
				complain("produce", err)
				if err == nil {
					lines <- fmt.Sprintf("produce %d %s", record.Partition, record.Value)
				}
			})
		}
	}
}

func transact() {
	kafka := client(kgo.TransactionalID(topic))
	for ; ; time.Sleep(250 * time.Millisecond) {
		began := now()
		if err := kafka.BeginTransaction(); err != nil {
			complain("transact", err)
			continue
		}
		for number := range partitions {
			send(kafka, number, func(*kgo.Record, error) {})
		}
		err := kafka.Flush(context.Background())
		if err == nil {
			err = kafka.EndTransaction(context.Background(), kgo.TryCommit)
		}
		if err == nil {
			lines <- fmt.Sprintf("transact -1 %s", began)
			continue
		}
		complain("transact", err)
		complain("transact", kafka.AbortBufferedRecords(context.Background()))
		complain("transact", kafka.EndTransaction(context.Background(), kgo.TryAbort))
	}
}

func consume() {
	kafka := client(kgo.ConsumerGroup(topic), kgo.ConsumeTopics(feed))
	for {
		kafka.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			lines <- fmt.Sprintf("consume %d %s", record.Partition, record.Value)
		})
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
