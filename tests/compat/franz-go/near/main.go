// A reader with a rack, which prints the first six bytes of each committed record of partition 0.
//
//	program BOOTSTRAP TOPIC RACK
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	from := map[string]map[int32]kgo.Offset{os.Args[2]: {0: kgo.NewOffset().AtStart()}}
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Rack(os.Args[3]),
	)
	if err != nil {
		panic(err)
	}
	for {
		fetches := kafka.PollFetches(context.Background())
		fetches.EachError(func(_ string, _ int32, err error) { fmt.Fprintln(os.Stderr, err) })
		fetches.EachRecord(func(record *kgo.Record) { fmt.Printf("%s\n", record.Value[:6]) })
	}
}
