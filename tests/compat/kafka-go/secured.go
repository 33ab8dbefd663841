package main

import (
	"context"
	"errors"
	"time"

	"fencepost/checks"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

var securedClients = checks.Clients{
	Writer: func(t *checks.T, login checks.Login) (checks.Writer, error) {
		writer := &kafka.Writer{
			Addr: kafka.TCP(login.Bootstrap()), RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
			MaxAttempts: 3, WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: 100 * time.Millisecond,
			Transport: &kafka.Transport{TLS: login.TLS(t), SASL: mechanism(t, login)},
		}
		return securedWriter{t, writer}, nil
	},
	Reader: func(t *checks.T, login checks.Login, topic, group string) (checks.Reader, error) {
		settings := kafka.ReaderConfig{
			Brokers: []string{login.Bootstrap()}, Topic: topic, GroupID: group, StartOffset: kafka.FirstOffset,
			MaxWait: 100 * time.Millisecond, ReadBackoffMin: 20 * time.Millisecond, ReadBackoffMax: 100 * time.Millisecond,
			JoinGroupBackoff: 200 * time.Millisecond, IsolationLevel: kafka.ReadCommitted, MaxAttempts: 1,
			Dialer: &kafka.Dialer{Timeout: 10 * time.Second, TLS: login.TLS(t), SASLMechanism: mechanism(t, login)},
		}
		return &securedReader{t: t, reader: kafka.NewReader(settings)}, nil
	},
	Connect: func(t *checks.T, login checks.Login) error {
		dialer := &kafka.Dialer{Timeout: 10 * time.Second, TLS: login.TLS(t), SASLMechanism: mechanism(t, login)}
		connection, err := dialer.DialContext(t.Context, "tcp", login.Bootstrap())
		if err != nil {
			return err
		}
		defer connection.Close()
		_, err = connection.Brokers()
		return err
	},
	Name: func(err error) string {
		if several := (kafka.WriteErrors)(nil); errors.As(err, &several) {
			for _, one := range several {
				if one != nil {
					return name(one)
				}
			}
		}
		if shown := checks.CertificateName(err); err != nil && shown != "" {
			return shown
		}
		return name(err)
	},
	LosesSessions:    true,
	WrongPassword:    "58",
	WrongCertificate: "unknown authority",
	NoCertificate:    "alert",
	WrongTopic:       "29",
	HiddenTopic:      "3", // to its writer, a topic that it may not see is not there
	WrongGroup:       "30",
}

func mechanism(t *checks.T, login checks.Login) sasl.Mechanism {
	switch login.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: login.User, Password: login.Password}
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		algorithm := scram.SHA256
		if login.Mechanism == "SCRAM-SHA-512" {
			algorithm = scram.SHA512
		}
		made, err := scram.Mechanism(algorithm, login.User, login.Password)
		t.Must("new mechanism", err)
		return made
	}
	return nil
}

type securedWriter struct {
	t      *checks.T
	writer *kafka.Writer
}

func (w securedWriter) Write(topic string, values ...string) error {
	messages := []kafka.Message{}
	for _, value := range values {
		messages = append(messages, kafka.Message{Topic: topic, Value: []byte(value)})
	}
	return w.writer.WriteMessages(w.t.Context, messages...)
}

func (w securedWriter) Close() { w.writer.Close() }

type securedReader struct {
	t      *checks.T
	reader *kafka.Reader
	last   *kafka.Message
}

func (r *securedReader) Poll() ([]string, error) {
	moment, cancel := context.WithTimeout(r.t.Context, 200*time.Millisecond)
	defer cancel()
	values := []string{}
	for {
		message, err := r.reader.FetchMessage(moment)
		// Of several nodes, another may come to coordinate the group: the reader shows that, and joins again.
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kafka.NotCoordinatorForGroup) {
			return values, nil
		}
		if err != nil {
			return values, err
		}
		r.last, values = &message, append(values, string(message.Value))
	}
}

func (r *securedReader) Commit() error { return r.reader.CommitMessages(r.t.Context, *r.last) }

func (r *securedReader) Close() { r.reader.Close() }
