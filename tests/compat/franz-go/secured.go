package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"fencepost/checks"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var securedClients = checks.Clients{
	Writer: func(t *checks.T, login checks.Login) (checks.Writer, error) {
		return securedWriter{t, securedClient(t, login)}, nil
	},
	TransactionalWriter: func(t *checks.T, login checks.Login, transactional string) (checks.TransactionalWriter, error) {
		kafka := securedClient(t, login, kgo.TransactionalID(transactional))
		// It asks for its producer id before the first record: what is refused is refused here.
		if _, _, err := kafka.ProducerID(t.Context); err != nil {
			kafka.Close()
			return nil, err
		}
		return securedWriter{t, kafka}, nil
	},
	Reader: func(t *checks.T, login checks.Login, topic, group string) (checks.Reader, error) {
		options := []kgo.Opt{
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.FetchMaxWait(100 * time.Millisecond),
			kgo.ConsumeTopics(topic),
		}
		if group != "" {
			options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
		}
		return securedReader{t, securedClient(t, login, options...)}, nil
	},
	Connect: func(t *checks.T, login checks.Login) error {
		kafka := securedClient(t, login, kgo.RequestRetries(2))
		defer kafka.Close()
		return kafka.Ping(t.Context)
	},
	Name: func(err error) string {
		var known *kerr.Error
		switch {
		case err == nil:
			return "none"
		case errors.As(err, &known):
			return known.Message
		case checks.CertificateName(err) != "":
			return checks.CertificateName(err)
		}
		return err.Error()
	},
	HasOAuth:             true,
	WrongPassword:        kerr.SaslAuthenticationFailed.Message,
	WrongToken:           kerr.SaslAuthenticationFailed.Message,
	WrongCertificate:     "unknown authority",
	NoCertificate:        "alert",
	WrongTopic:           kerr.TopicAuthorizationFailed.Message,
	WrongGroup:           kerr.GroupAuthorizationFailed.Message,
	WrongTransactionalID: kerr.TransactionalIDAuthorizationFailed.Message,
}

func securedClient(t *checks.T, login checks.Login, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(login.Bootstrap()),
		kgo.RetryTimeout(5 * time.Second),
	}
	if config := login.TLS(t); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if login.HasSasl() {
		options = append(options, kgo.SASL(mechanism(login)))
	}
	return client(t, append(options, more...)...)
}

func mechanism(login checks.Login) sasl.Mechanism {
	switch login.Mechanism {
	case "PLAIN":
		return plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha512Mechanism()
	}
	return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
		token, err := login.TokenText()
		return oauth.Auth{Token: token}, err
	})
}

type securedWriter struct {
	t     *checks.T
	kafka *kgo.Client
}

func (w securedWriter) Write(topic string, values ...string) error {
	records := []*kgo.Record{}
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	return w.kafka.ProduceSync(w.t.Context, records...).FirstErr()
}

func (w securedWriter) Begin() error { return w.kafka.BeginTransaction() }

func (w securedWriter) Commit() error { return w.kafka.EndTransaction(w.t.Context, kgo.TryCommit) }

func (w securedWriter) Close() { w.kafka.Close() }

type securedReader struct {
	t     *checks.T
	kafka *kgo.Client
}

func (r securedReader) Poll() ([]string, error) {
	moment, cancel := context.WithTimeout(r.t.Context, 100*time.Millisecond)
	defer cancel()
	fetches := r.kafka.PollFetches(moment)
	values := []string{}
	fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return values, err
	}
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return values, failed.Err
		}
	}
	return values, nil
}

func (r securedReader) Commit() error { return r.kafka.CommitUncommittedOffsets(r.t.Context) }

func (r securedReader) Close() { r.kafka.Close() }

// reauthentication shows that sessions that end do so under load without a new connection (KIP-368).
func reauthentication(t *checks.T) {
	topic := t.Name("topic")
	t.Ask("topic %s", topic)
	t.Ask("allow User:alice WRITE topic %s", topic)
	t.Ask("allow User:alice READ topic %s", topic)
	connections := &connectionCount{}
	login := checks.Login{Listener: "SHORT", Mechanism: "PLAIN", User: "alice", Password: "alice-secret"}
	kafka := securedClient(t, login, kgo.WithHooks(connections))
	defer kafka.Close()
	var acknowledged, opened int64
	count := 0
	for started := time.Now(); time.Since(started) < 7*time.Second; count++ {
		kafka.Produce(t.Context, numbered(topic, 1, count), func(_ *kgo.Record, err error) {
			if err == nil {
				atomic.AddInt64(&acknowledged, 1)
			}
		})
		if count == 100 {
			t.Must("flush", kafka.Flush(t.Context))
			opened = connections.opened.Load()
		}
		time.Sleep(time.Millisecond)
	}
	t.Must("flush", kafka.Flush(t.Context))
	t.Equal("acknowledged records", atomic.LoadInt64(&acknowledged), int64(count))
	t.Equal("connections", connections.opened.Load(), opened)
	values := readSecured(t, login, topic, count)
	for number, value := range values {
		t.Equal("value", value, string(numbered(topic, 1, number).Value))
	}
}

func readSecured(t *checks.T, login checks.Login, topic string, count int) []string {
	reader, err := securedClients.Reader(t, login, topic, "")
	t.Must("new reader", err)
	defer reader.Close()
	values := []string{}
	for len(values) < count {
		more, err := reader.Poll()
		t.Must("poll", err)
		values = append(values, more...)
	}
	return values
}

type connectionCount struct{ opened atomic.Int64 }

func (c *connectionCount) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		c.opened.Add(1)
	}
}
