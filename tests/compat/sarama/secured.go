package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"strings"
	"time"

	"fencepost/checks"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var securedClients = checks.Clients{
	Writer: func(t *checks.T, login checks.Login) (checks.Writer, error) {
		producer, err := sarama.NewSyncProducer([]string{login.Bootstrap()}, securedConfig(t, login, config()))
		return securedWriter{producer}, err
	},
	TransactionalWriter: func(t *checks.T, login checks.Login, transactional string) (checks.TransactionalWriter, error) {
		settings := securedConfig(t, login, transactionalConfig(transactional))
		settings.Producer.Transaction.Retry.Max = 3
		producer, err := sarama.NewSyncProducer([]string{login.Bootstrap()}, settings)
		return securedWriter{producer}, err
	},
	Reader: newSecuredReader,
	Connect: func(t *checks.T, login checks.Login) error {
		settings := securedConfig(t, login, config())
		settings.Metadata.Retry.Max = 0
		client, err := sarama.NewClient([]string{login.Bootstrap()}, settings)
		if err == nil {
			client.Close()
		}
		return err
	},
	Name: func(err error) string {
		if several := (sarama.ProducerErrors)(nil); errors.As(err, &several) {
			err = several[0].Err
		}
		switch text := fmt.Sprint(err); {
		case err == nil:
			return "none"
		case checks.CertificateName(err) != "":
			return checks.CertificateName(err)
		default:
			for _, code := range []sarama.KError{
				sarama.ErrSASLAuthenticationFailed, sarama.ErrTopicAuthorizationFailed,
				sarama.ErrGroupAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed,
			} {
				if strings.Contains(text, fmt.Sprint(code)) {
					return fmt.Sprint(code)
				}
			}
			return text
		}
	},
	HasOAuth:             true,
	WrongPassword:        fmt.Sprint(sarama.ErrSASLAuthenticationFailed),
	WrongToken:           fmt.Sprint(sarama.ErrSASLAuthenticationFailed),
	WrongCertificate:     "unknown authority",
	NoCertificate:        "alert",
	WrongTopic:           fmt.Sprint(sarama.ErrTopicAuthorizationFailed),
	WrongGroup:           fmt.Sprint(sarama.ErrGroupAuthorizationFailed),
	WrongTransactionalID: fmt.Sprint(sarama.ErrTransactionalIDAuthorizationFailed),
}

// The same checks with the handshake of Kafka 0.10, after which tokens have no header.
var oldHandshake = func() []checks.Check {
	clients := securedClients
	clients.Writer = func(t *checks.T, login checks.Login) (checks.Writer, error) {
		settings := securedConfig(t, login, config())
		settings.Net.SASL.Version, settings.ApiVersionsRequest = sarama.SASLHandshakeV0, false
		producer, err := sarama.NewSyncProducer([]string{login.Bootstrap()}, settings)
		return securedWriter{producer}, err
	}
	for _, check := range checks.Secured(clients) {
		if check.Name == "plain" {
			return []checks.Check{{Name: "plain-with-old-handshake", Run: check.Run}}
		}
	}
	return nil
}()

func securedConfig(t *checks.T, login checks.Login, settings *sarama.Config) *sarama.Config {
	settings.Metadata.Retry.Max = 1
	settings.Metadata.Retry.Backoff = 100 * time.Millisecond
	settings.Producer.Retry.Max = 3
	settings.Consumer.Return.Errors = true
	if config := login.TLS(t); config != nil {
		settings.Net.TLS.Enable, settings.Net.TLS.Config = true, config
	}
	if !login.HasSasl() {
		return settings
	}
	settings.Net.SASL.Enable = true
	settings.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
	settings.Net.SASL.User, settings.Net.SASL.Password = login.User, login.Password
	switch login.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		settings.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case sarama.SASLTypeSCRAMSHA512:
		settings.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case sarama.SASLTypeOAuth:
		settings.Net.SASL.TokenProvider = tokenProvider{login}
	}
	return settings
}

type tokenProvider struct{ login checks.Login }

func (p tokenProvider) Token() (*sarama.AccessToken, error) {
	token, err := p.login.TokenText()
	return &sarama.AccessToken{Token: token}, err
}

// scramClient is what sarama leaves to its users.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }

type securedWriter struct{ producer sarama.SyncProducer }

func (w securedWriter) Write(topic string, values ...string) error {
	messages := []*sarama.ProducerMessage{}
	for _, value := range values {
		messages = append(messages, message(topic, 0, value))
	}
	return w.producer.SendMessages(messages)
}

func (w securedWriter) Begin() error { return w.producer.BeginTxn() }

func (w securedWriter) Commit() error { return w.producer.CommitTxn() }

func (w securedWriter) Close() { w.producer.Close() }

// securedReader reads one partition; with a group it commits offsets for it, as a member that assigns partitions itself.
type securedReader struct {
	client    sarama.Client
	consumer  sarama.Consumer
	partition sarama.PartitionConsumer
	offsets   sarama.OffsetManager
	managed   sarama.PartitionOffsetManager
}

func newSecuredReader(t *checks.T, login checks.Login, topic, group string) (checks.Reader, error) {
	settings := securedConfig(t, login, config())
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient([]string{login.Bootstrap()}, settings)
	if err != nil {
		return nil, err
	}
	reader := &securedReader{client: client}
	if group != "" {
		if reader.offsets, err = sarama.NewOffsetManagerFromClient(group, client); err == nil {
			reader.managed, err = reader.offsets.ManagePartition(topic, 0)
		}
	}
	if err == nil {
		if reader.consumer, err = sarama.NewConsumerFromClient(client); err == nil {
			reader.partition, err = reader.consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		}
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return reader, nil
}

func (r *securedReader) Poll() ([]string, error) {
	values := []string{}
	for wait := 100 * time.Millisecond; ; wait = 0 {
		select {
		case message := <-r.partition.Messages():
			values = append(values, string(message.Value))
			if r.managed != nil {
				r.managed.MarkOffset(message.Offset+1, "")
			}
		case failed := <-r.partition.Errors():
			return values, failed
		case <-time.After(wait):
			return values, nil
		}
	}
}

func (r *securedReader) Commit() error {
	r.offsets.Commit()
	select {
	case failed := <-r.managed.Errors():
		return failed
	default:
		return nil
	}
}

func (r *securedReader) Close() {
	r.partition.AsyncClose()
	if r.managed != nil {
		r.managed.AsyncClose()
		r.offsets.Close()
	}
	r.consumer.Close()
	r.client.Close()
}
