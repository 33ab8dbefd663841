// Package checks runs the named checks of a client program and reports them, one line of JSON each, to the harness
// around it (tests/compat/harness.py describes the lines in both directions).
package checks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limit is how long one check may take, a restarting broker and a busy machine included.
const Limit = 180 * time.Second

// Start is the time that timestamps of records count from: young enough that retention deletes nothing.
var Start = time.UnixMilli(time.Now().UnixMilli()).Add(-time.Minute)

// Check is one named expectation of the client about the broker.
type Check struct {
	Name string
	Run  func(*T)
}

// T is what a check works with. Its methods that end a check may only be called from the check's own goroutine.
type T struct {
	// Context ends when the check's time is up.
	Context context.Context
	// Bootstrap is the broker's HOST:PORT, or those of all its nodes with commas between.
	Bootstrap string
	check     string
	run       string
	facts     map[string]any
}

// Addresses are HOST:PORT of each of the broker's nodes.
func (t *T) Addresses() []string {
	return strings.Split(t.Bootstrap, ",")
}

// Nodes is how many nodes the broker has.
func (t *T) Nodes() int {
	return len(t.Addresses())
}

type failed struct{ reason string }

type skipped struct{ reason string }

type report struct {
	Check   string         `json:"check"`
	Outcome string         `json:"outcome"`
	Seconds float64        `json:"seconds"`
	Detail  string         `json:"detail,omitempty"`
	Facts   map[string]any `json:"facts,omitempty"`
}

var (
	output = json.NewEncoder(os.Stdout)
	input  = bufio.NewReader(os.Stdin)
)

// Main runs the program: BOOTSTRAP RUN [CHECK...]. RUN makes names unique; without checks named, all are run.
// If there is a secured broker, the secured checks are run in place of the others.
func Main(all []Check, secured ...Check) {
	if os.Getenv("SECURED_FILES") != "" {
		all = secured
	}
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: program BOOTSTRAP RUN [CHECK...]")
		os.Exit(2)
	}
	wanted := os.Args[3:]
	for _, name := range wanted {
		if !slices.ContainsFunc(all, func(check Check) bool { return check.Name == name }) {
			fmt.Fprintln(os.Stderr, "no such check:", name)
			os.Exit(2)
		}
	}
	for _, check := range all {
		if len(wanted) == 0 || slices.Contains(wanted, check.Name) {
			say(run(check, os.Args[1], os.Args[2]))
		}
	}
}

func say(line any) {
	if err := output.Encode(line); err != nil {
		os.Exit(1)
	}
}

func run(check Check, bootstrap, name string) report {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	t := &T{Context: ctx, Bootstrap: bootstrap, check: check.Name, run: name, facts: map[string]any{}}
	started := time.Now()
	ended := make(chan report, 1)
	go func() {
		result := report{Check: check.Name, Outcome: "passed"}
		defer func() {
			switch reason := recover().(type) {
			case nil:
			case failed:
				result.Outcome, result.Detail = "failed", reason.reason
			case skipped:
				result.Outcome, result.Detail = "skipped", reason.reason
			default:
				result.Outcome, result.Detail = "failed", fmt.Sprintf("panic: %v\n%s", reason, debug.Stack())
			}
			result.Facts = t.facts
			ended <- result
		}()
		check.Run(t)
	}()
	var result report
	select {
	case result = <-ended:
	case <-time.After(Limit + 5*time.Second):
		result = report{Check: check.Name, Outcome: "failed", Detail: "the check did not end in time"}
	}
	result.Seconds = time.Since(started).Round(time.Millisecond).Seconds()
	return result
}

// Name is a name that no other check and no other run uses.
func (t *T) Name(kind string) string {
	return strings.Join([]string{kind, t.check, t.run}, "-")
}

// Fail ends the check.
func (t *T) Fail(format string, arguments ...any) {
	panic(failed{fmt.Sprintf(format, arguments...)})
}

// Skip ends the check, which could not be made here.
func (t *T) Skip(reason string) {
	panic(skipped{reason})
}

// Must ends the check when err is not nil.
func (t *T) Must(what string, err error) {
	if err != nil {
		t.Fail("%s: %v", what, err)
	}
}

// Equal ends the check unless both are deeply equal.
func (t *T) Equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		t.Fail("%s: got %v, want %v", what, got, want)
	}
}

// True ends the check unless the condition holds.
func (t *T) True(what string, holds bool) {
	if !holds {
		t.Fail("%s: does not hold", what)
	}
}

// Until asks again until the condition holds; it ends the check when that takes too long.
func (t *T) Until(what string, holds func() bool) {
	deadline := time.Now().Add(Limit / 3)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fail("%s: never came to hold", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Fact records what was seen, to be compared with what the same check sees of another broker.
func (t *T) Fact(name string, value any) {
	t.facts[name] = value
}

// Known waits until every node knows a topic, which they learn one after the other.
func (t *T) Known(topic string) {
	if t.Nodes() > 1 {
		t.Ask("known %s", topic)
	}
}

// Ask has the harness make a topic or change a right, and waits for it; README.md has the words.
func (t *T) Ask(format string, arguments ...any) {
	what := fmt.Sprintf(format, arguments...)
	if refusal := t.TryRestart(what); refusal != "" {
		t.Fail("%s: %s", what, refusal)
	}
}

var asking sync.Mutex

// Restart has the harness end the broker, with SIGKILL ("kill") or SIGTERM ("terminate"), and start it again on its
// data; it returns when the broker is ready. The check is skipped when the broker is not the harness's own.
func (t *T) Restart(how string) {
	if refusal := t.TryRestart(how); refusal != "" {
		t.Skip(refusal)
	}
}

// TryRestart is Restart for any goroutine: it returns why the harness did not do it, or "".
func (t *T) TryRestart(how string) string {
	asking.Lock()
	defer asking.Unlock()
	say(map[string]string{"ask": how})
	answer, err := input.ReadString('\n')
	if err != nil {
		return "nobody restarts brokers here"
	}
	if answer = strings.TrimSpace(answer); answer != "done" {
		return answer
	}
	return ""
}
