// Package fencepost gives each test a Kafka broker of its own, which starts in milliseconds.
//
//	func TestOrders(t *testing.T) {
//		broker := fencepost.Start(t)
//		client, err := kgo.NewClient(kgo.SeedBrokers(broker.BootstrapServers()))
//		…
//	}
//
// Copy this file. It needs the program fencepost on PATH, or its command in the environment variable FENCEPOST. The
// program is started once for all tests of a package, and ends with them. The broker's view of a test that fails is logged;
// one that passes fails if a fault that it set has never fired.
package fencepost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Broker is a broker of a test. Get and Post reach all operations of the control API. A refusal ends the test with a
// sentence of advice, so call these methods on the test's own goroutine.
type Broker struct {
	t                testing.TB
	address          string
	bootstrapServers string
}

// Start starts an empty broker, which is closed at the end of the test.
func Start(t testing.TB) *Broker {
	t.Helper()
	var made struct {
		Broker           string `json:"broker"`
		BootstrapServers string `json:"bootstrap_servers"`
	}
	call(t, http.MethodPost, "/brokers", map[string]any{}, &made)
	broker := &Broker{t, "/brokers/" + made.Broker, made.BootstrapServers}
	t.Cleanup(broker.close)
	return broker
}

// BootstrapServers is the address for clients.
func (b *Broker) BootstrapServers() string {
	return b.bootstrapServers
}

// CreateTopic creates a topic.
func (b *Broker) CreateTopic(name string, partitions int) {
	b.t.Helper()
	b.Post("topic", map[string]any{"name": name, "partitions": partitions}, nil)
}

// Produce appends records; it creates the topic if need be.
func (b *Broker) Produce(topic string, values ...string) {
	b.t.Helper()
	b.Post("produce", map[string]any{"topic": topic, "values": values}, nil)
}

// Values returns the committed values of a topic as soon as there are at least as many; it waits ten seconds for them.
func (b *Broker) Values(topic string, count int) []string {
	b.t.Helper()
	values := []string{}
	for skip := new(int); skip != nil; { // records come in pages
		var page struct {
			Records []struct {
				Value string `json:"value"`
			} `json:"records"`
			NextSkip *int `json:"next_skip"`
		}
		arguments := map[string]string{"topic": topic, "count": strconv.Itoa(count), "skip": strconv.Itoa(*skip)}
		b.Get("records", arguments, &page)
		for _, record := range page.Records {
			values = append(values, record.Value)
		}
		skip = page.NextSkip
	}
	return values
}

// TransactionState is the state of a transaction by Kafka's names, such as CompleteCommit.
func (b *Broker) TransactionState(transactionalID string) string {
	b.t.Helper()
	var found struct {
		State string `json:"state"`
	}
	b.Get("transaction", map[string]string{"transactional_id": transactionalID}, &found)
	return found.State
}

// Fence begins a session of a transactional id, as a second instance does: its producer is a zombie from now on.
func (b *Broker) Fence(transactionalID string) {
	b.t.Helper()
	b.Post("fence", map[string]any{"transactional_id": transactionalID}, nil)
}

// Fail answers the next request of an API (EndTxn) with an error (NOT_COORDINATOR).
func (b *Broker) Fail(api, err string) *Fault {
	b.t.Helper()
	return b.Fault("fail", map[string]any{"api": api, "error": err})
}

// Disconnect closes the connection in place of the next reply of an API: the request is carried out, its reply is lost.
func (b *Broker) Disconnect(api string) *Fault {
	b.t.Helper()
	return b.Fault("disconnect", map[string]any{"api": api})
}

// Hold holds the replies of an API until Release.
func (b *Broker) Hold(api string) *Fault {
	b.t.Helper()
	return b.Fault("hold", map[string]any{"api": api})
}

// CrashAfter ends the broker at the next request of an API, before its reply leaves; see Restart.
func (b *Broker) CrashAfter(api string) *Fault {
	b.t.Helper()
	return b.Fault("crash_after", map[string]any{"api": api})
}

// Fault sets a fault with all arguments of the control API.
func (b *Broker) Fault(operation string, arguments map[string]any) *Fault {
	b.t.Helper()
	var made struct {
		Fault int `json:"fault"`
	}
	b.Post(operation, arguments, &made)
	return &Fault{b, made.Fault}
}

// Restart starts the broker again, on the same data and address.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Post("restart", map[string]any{}, nil)
}

// Advance turns the broker's clock forward. It returns when all that became due is done.
func (b *Broker) Advance(duration time.Duration) {
	b.t.Helper()
	b.Post("advance", map[string]any{"seconds": duration.Seconds()}, nil)
}

// Describe returns the broker's view in lines of text: requests, faults, transactions, groups.
func (b *Broker) Describe() string {
	b.t.Helper()
	var found struct {
		Text string `json:"text"`
	}
	b.Get("describe", nil, &found)
	return found.Text
}

// Get is an operation of the control API that asks; answer may be nil.
func (b *Broker) Get(operation string, arguments map[string]string, answer any) {
	b.t.Helper()
	query := url.Values{}
	for name, value := range arguments {
		query.Set(name, value)
	}
	call(b.t, http.MethodGet, b.address+"/"+operation+"?"+query.Encode(), nil, answer)
}

// Post is an operation of the control API that changes something; answer may be nil.
func (b *Broker) Post(operation string, arguments map[string]any, answer any) {
	b.t.Helper()
	call(b.t, http.MethodPost, b.address+"/"+operation, arguments, answer)
}

func (b *Broker) close() {
	b.t.Helper()
	if b.t.Failed() {
		b.t.Log(b.Describe())
	}
	var closed struct {
		NeverFired  []string `json:"never_fired"`
		Description string   `json:"description"`
	}
	call(b.t, http.MethodDelete, b.address, nil, &closed)
	if len(closed.NeverFired) > 0 && !b.t.Failed() {
		b.t.Errorf("%s\n%s", strings.Join(closed.NeverFired, "\n"), closed.Description)
	}
}

// Fault is a fault that a test has set.
type Fault struct {
	broker *Broker
	number int
}

// WaitUntilFired waits until it has met a request, for ten seconds.
func (f *Fault) WaitUntilFired() {
	f.broker.t.Helper()
	f.broker.Post(fmt.Sprintf("faults/%d/wait_until_fired", f.number), map[string]any{}, nil)
}

// Release lets the requests go that it holds; it holds later ones. It returns how many.
func (f *Fault) Release() int {
	f.broker.t.Helper()
	var answer struct {
		Released int `json:"released"`
	}
	f.broker.Post(fmt.Sprintf("faults/%d/release", f.number), map[string]any{}, &answer)
	return answer.Released
}

// Remove ends the fault.
func (f *Fault) Remove() {
	f.broker.t.Helper()
	call(f.broker.t, http.MethodDelete, fmt.Sprintf("%s/faults/%d", f.broker.address, f.number), nil, nil)
}

// input is the program's standard input. Without a reference to it, it would be closed when garbage is collected, and the
// program would end.
var input io.WriteCloser

// program starts the program, which serves all tests of this process, and returns its URL. It ends with its standard
// input, so also if this process is killed.
var program = sync.OnceValues(func() (string, error) {
	command := os.Getenv("FENCEPOST")
	if command == "" {
		command = "fencepost"
	}
	words := append(strings.Fields(command), "test-broker", "--json", "--until-stdin-closes")
	process := exec.Command(words[0], words[1:]...)
	process.Stderr = os.Stderr
	var err error
	if input, err = process.StdinPipe(); err != nil {
		return "", err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := process.Start(); err != nil {
		return "", fmt.Errorf("%w: install it, or name its command in the environment variable FENCEPOST", err)
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended: %w; its errors are above", strings.Join(words, " "), process.Wait())
	}
	var ready struct {
		URL string `json:"url"`
	}
	err = json.Unmarshal(line, &ready)
	return ready.URL, err
})

func call(t testing.TB, method, path string, arguments map[string]any, answer any) {
	t.Helper()
	address, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if arguments != nil {
		if err := json.NewEncoder(&body).Encode(arguments); err != nil {
			t.Fatal(err)
		}
	}
	request, err := http.NewRequest(method, address+path, &body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		var refusal struct {
			Message     string `json:"message"`
			Description string `json:"description"`
		}
		if err := json.NewDecoder(response.Body).Decode(&refusal); err != nil {
			t.Fatal(err)
		}
		t.Fatal(strings.TrimSpace(refusal.Message + "\n" + refusal.Description))
	}
	if answer == nil {
		answer = &map[string]any{}
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}
