// Tests that fail, each in another way, and a pair that would fail if it shared a broker.
package orders

import (
	"runtime"
	"testing"

	"example/orders/fencepost"
)

func TestFailing(t *testing.T) {
	t.Run("wrong", func(t *testing.T) {
		broker := fencepost.Start(t)
		broker.Produce("orders", "tea")
		equal(t, broker.Values("orders", 1), []string{"coffee"})
	})
	t.Run("neverFired", func(t *testing.T) {
		fencepost.Start(t).Fail("EndTxn", "NOT_COORDINATOR")
	})
	t.Run("refused", func(t *testing.T) {
		fencepost.Start(t).Fault("fail", map[string]any{"api": "EndTransaction", "error": "NOT_COORDINATOR"})
	})
	t.Run("waited", func(t *testing.T) {
		arguments := map[string]string{"topic": "orders", "count": "1", "timeout": "0.1"}
		fencepost.Start(t).Get("records", arguments, nil)
	})
	t.Run("many", func(t *testing.T) {
		broker := fencepost.Start(t)
		for range 100 { // the program does not end with a pipe that nobody refers to
			runtime.GC()
			broker.Describe()
		}
		broker.Produce("orders", make([]string, 2001)...)
		if values := broker.Values("orders", 2001); len(values) != 2001 {
			t.Errorf("%d values", len(values))
		}
	})
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			broker := fencepost.Start(t)
			broker.Produce("orders", "tea")
			equal(t, broker.Values("orders", 1), []string{"tea"})
			if broker.Describe() == "" {
				t.Error("nothing is described")
			}
		})
	}
}
