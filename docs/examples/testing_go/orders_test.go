// What no other test of a transaction can show: each test has a broker of its own, whose failures it chooses.
package orders

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"example/orders/fencepost"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOrders(t *testing.T) {
	t.Run("a zombie is fenced and its records stay hidden", func(t *testing.T) {
		broker := fencepost.Start(t)
		zombie, successor := producer(t, broker), producer(t, broker)
		begin(t, zombie, "from the zombie")
		begin(t, successor, "from its successor") // the same transactional id
		err := zombie.EndTransaction(t.Context(), kgo.TryCommit)
		if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("the zombie's commit: %v", err)
		}
		commit(t, successor)
		equal(t, broker.Values("orders", 1), []string{"from its successor"})
	})

	t.Run("a commit whose reply is lost is committed once", func(t *testing.T) {
		broker := fencepost.Start(t)
		client := producer(t, broker)
		begin(t, client, "tea")
		broker.Disconnect("EndTxn") // carried out, and not answered
		commit(t, client)           // which asks again
		equal(t, broker.Values("orders", 1), []string{"tea"})
		equal(t, broker.TransactionState("orders-1"), "CompleteCommit")
	})

	t.Run("a transaction that is forgotten is aborted after sixteen minutes", func(t *testing.T) {
		broker := fencepost.Start(t)
		begin(t, producer(t, broker), "tea")
		began := time.Now()
		broker.Advance(16 * time.Minute) // its time-out is fifteen
		equal(t, broker.TransactionState("orders-1"), "CompleteAbort")
		fmt.Printf("sixteen minutes took %d ms\n", time.Since(began).Milliseconds())
		equal(t, broker.Values("orders", 0), []string{})
	})
}

func producer(t *testing.T, broker *fencepost.Broker) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker.BootstrapServers()),
		kgo.TransactionalID("orders-1"),
		kgo.TransactionTimeout(15*time.Minute),
		kgo.DefaultProduceTopic("orders"),
		kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func begin(t *testing.T, client *kgo.Client, value string) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, client *kgo.Client) {
	t.Helper()
	if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t *testing.T, found, expected T) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Errorf("found %v, expected %v", found, expected)
	}
}
