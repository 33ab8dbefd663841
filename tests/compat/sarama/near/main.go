// A reader with a rack, which prints the first six bytes of each committed record of partition 0.
//
//	program BOOTSTRAP TOPIC RACK
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.RackID = os.Args[3]
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(strings.Split(os.Args[1], ","), settings)
	if err != nil {
		panic(err)
	}
	records, err := consumer.ConsumePartition(os.Args[2], 0, sarama.OffsetOldest)
	if err != nil {
		panic(err)
	}
	go func() {
		for err := range records.Errors() {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	for record := range records.Messages() {
		fmt.Printf("%s\n", record.Value[:6])
	}
}
