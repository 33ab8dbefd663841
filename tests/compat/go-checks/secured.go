package checks

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Login is how a client connects to a secured broker.
type Login struct {
	// Listener is SASL_SSL, SASL_PLAINTEXT, SSL, MUTUAL, EXPIRED or SHORT.
	Listener string
	// Mechanism of SASL; empty without.
	Mechanism string
	User      string
	Password  string
	// Token is the name of the file with the token of OAUTHBEARER.
	Token string
	// Authority is the name of the file with the certificate of the authority that the client trusts.
	Authority string
	// Certificate is the name of the client's own; empty without.
	Certificate string
}

func login(listener, mechanism string) Login {
	return Login{
		Listener: listener, Mechanism: mechanism, User: "alice", Password: "alice-secret", Token: "alice",
		Authority: "authority",
	}
}

// As is the same login of another user.
func (l Login) As(user string) Login {
	l.User, l.Password = user, user+"-secret"
	return l
}

// Bootstrap is the address of the listener.
func (l Login) Bootstrap() string { return os.Getenv("SECURED_" + l.Listener) }

// HasSasl is whether the listener asks for a user.
func (l Login) HasSasl() bool { return l.Mechanism != "" }

func file(name string) string { return filepath.Join(os.Getenv("SECURED_FILES"), name) }

// TLS is nil without it.
func (l Login) TLS(t *T) *tls.Config {
	if l.Listener == "SASL_PLAINTEXT" || l.Listener == "SHORT" {
		return nil
	}
	authority, err := os.ReadFile(file(l.Authority + ".pem"))
	t.Must("read the authority's certificate", err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	t.True("an authority's certificate", config.RootCAs.AppendCertsFromPEM(authority))
	if l.Certificate != "" {
		own, err := tls.LoadX509KeyPair(file(l.Certificate+".crt"), file(l.Certificate+".key"))
		t.Must("read the client's certificate", err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

// TokenText is the token of OAUTHBEARER.
func (l Login) TokenText() (string, error) {
	text, err := os.ReadFile(file(l.Token + ".jwt"))
	return string(text), err
}

// Writer writes to the only partition of topics. Write waits, and returns what the broker refuses with.
type Writer interface {
	Write(topic string, values ...string) error
	Close()
}

// TransactionalWriter has initialized its transactions.
type TransactionalWriter interface {
	Writer
	Begin() error
	Commit() error
}

// Reader is a consumer from the beginning. Poll returns what came within a moment.
type Reader interface {
	Poll() ([]string, error)
	Commit() error
	Close()
}

// Clients is how one library does what the secured checks ask for, and the names that it has for refusals.
type Clients struct {
	Writer func(*T, Login) (Writer, error)
	// TransactionalWriter is nil for a library without.
	TransactionalWriter func(t *T, login Login, transactional string) (TransactionalWriter, error)
	// Reader reads in a group, or without one.
	Reader func(t *T, login Login, topic, group string) (Reader, error)
	// Connect returns why a client cannot connect.
	Connect func(*T, Login) error
	// Name is a name of an error.
	Name func(error) string
	// HasOAuth is whether the library has OAUTHBEARER.
	HasOAuth bool
	// LosesSessions is whether a member of a group may fail when its session ends.
	LosesSessions bool

	WrongPassword, WrongToken, WrongCertificate, NoCertificate string
	WrongTopic, WrongGroup, WrongTransactionalID               string
	// HiddenTopic is what writing to a topic without any right to it is refused with, if not WrongTopic.
	HiddenTopic string
}

// CertificateName tells failures of TLS apart: a certificate that the client refuses, an alert of the broker.
func CertificateName(err error) string {
	switch text := fmt.Sprint(err); {
	case strings.Contains(text, "unknown authority"):
		return "unknown authority"
	case strings.Contains(text, "expired"):
		return "expired"
	case strings.Contains(text, "remote error: tls:"):
		return "alert"
	}
	return ""
}

type secured struct{ Clients }

// Secured are the checks that every client makes of a secured broker.
func Secured(clients Clients) []Check {
	s := secured{clients}
	if s.HiddenTopic == "" {
		s.HiddenTopic = s.WrongTopic
	}
	all := []Check{
		{"ssl", func(t *T) { s.works(t, login("SSL", ""), "ANONYMOUS") }},
		{"mutual-tls", s.mutualTLS},
		{"plain", func(t *T) { s.works(t, login("SASL_SSL", "PLAIN"), "alice") }},
		{"scram-sha-256", func(t *T) { s.works(t, login("SASL_SSL", "SCRAM-SHA-256"), "alice") }},
		{"scram-sha-512", func(t *T) { s.works(t, login("SASL_SSL", "SCRAM-SHA-512"), "alice") }},
		{"without-tls", func(t *T) { s.works(t, login("SASL_PLAINTEXT", "SCRAM-SHA-256"), "alice") }},
		{"wrong-passwords", s.wrongPasswords},
		{"wrong-authority", s.wrongAuthority},
		{"expired-certificate", s.expiredCertificate},
		{"no-right", s.noRight},
		{"right-revoked-while-producing", s.rightRevokedWhileProducing},
		{"right-revoked-while-consuming", s.rightRevokedWhileConsuming},
	}
	if !clients.LosesSessions {
		all = append(all, Check{"sessions-that-end", s.sessionsThatEnd})
	}
	if clients.HasOAuth {
		all = append(all, Check{"oauthbearer", s.oauthbearer})
	}
	if clients.TransactionalWriter != nil {
		all = append(all, Check{"right-revoked-in-transaction", s.rightRevokedInTransaction})
	}
	return all
}

func (s secured) refused(t *T, what string, err error, want string) {
	if name := s.Name(err); name != want {
		t.Fail("%s: got %s (%v), want %s", what, name, err, want)
	}
}

func (s secured) writer(t *T, login Login) Writer {
	writer, err := s.Writer(t, login)
	t.Must("new writer", err)
	return writer
}

func (s secured) reader(t *T, login Login, topic, group string) Reader {
	reader, err := s.Reader(t, login, topic, group)
	t.Must("new reader", err)
	return reader
}

// topic makes a topic of the check's own with what a user may do with it.
func topic(t *T, user string, operations ...string) string {
	name := t.Name("topic")
	t.Ask("topic %s", name)
	for _, operation := range operations {
		t.Ask("allow User:%s %s topic %s", user, operation, name)
	}
	return name
}

func group(t *T, user string) string {
	name := t.Name("group")
	t.Ask("allow User:%s READ group %s", user, name)
	return name
}

// read returns the next values; errors end the check.
func read(t *T, reader Reader, count int) []string {
	values := []string{}
	for len(values) < count {
		t.Must(fmt.Sprintf("the time for reading %d records, after %d", count, len(values)), t.Context.Err())
		more, err := reader.Poll()
		t.Must("poll", err)
		values = append(values, more...)
	}
	return values
}

func counted(count int) []string {
	values := []string{}
	for number := range count {
		values = append(values, fmt.Sprint(number))
	}
	return values
}

func (s secured) works(t *T, login Login, user string) {
	topic, group, values := topic(t, user, "READ", "WRITE"), group(t, user), counted(100)
	writer := s.writer(t, login)
	defer writer.Close()
	t.Must("write", writer.Write(topic, values...))
	reader := s.reader(t, login, topic, group)
	defer reader.Close()
	t.Equal("values", read(t, reader, 100), values)
	t.Must("commit", reader.Commit())
}

func (s secured) mutualTLS(t *T) {
	own := login("MUTUAL", "")
	own.Certificate = "alice"
	s.works(t, own, "alice")
	s.refused(t, "without a certificate", s.Connect(t, login("MUTUAL", "")), s.NoCertificate)
}

func (s secured) oauthbearer(t *T) {
	right := login("SASL_SSL", "OAUTHBEARER")
	s.works(t, right, "alice")
	for _, token := range []string{"expired", "forged"} {
		wrong := right
		wrong.Token = token
		s.refused(t, "with a token that is "+token, s.Connect(t, wrong), s.WrongToken)
	}
}

func (s secured) wrongPasswords(t *T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		wrong := login("SASL_SSL", mechanism)
		wrong.Password = "wrong"
		s.refused(t, mechanism+" with a wrong password", s.Connect(t, wrong), s.WrongPassword)
		wrong = login("SASL_SSL", mechanism)
		wrong.User = "bob"
		s.refused(t, mechanism+" with another's password", s.Connect(t, wrong), s.WrongPassword)
		wrong.User = "nobody"
		s.refused(t, mechanism+" with an unknown user", s.Connect(t, wrong), s.WrongPassword)
	}
	s.works(t, login("SASL_SSL", "PLAIN"), "alice")
}

func (s secured) wrongAuthority(t *T) {
	other := login("SASL_SSL", "PLAIN")
	other.Authority = "other-authority"
	s.refused(t, "error", s.Connect(t, other), s.WrongCertificate)
}

func (s secured) expiredCertificate(t *T) {
	s.refused(t, "error", s.Connect(t, login("EXPIRED", "")), "expired")
}

var plain = login("SASL_SSL", "PLAIN")

func (s secured) noRight(t *T) {
	topic, group := topic(t, "bob", "READ", "WRITE"), t.Name("group")
	writer := s.writer(t, plain)
	defer writer.Close()
	s.refused(t, "writing", writer.Write(topic, "x"), s.HiddenTopic)
	t.Ask("allow User:alice READ group %s", group)
	s.shown(t, topic, group, s.WrongTopic)
	t.Ask("forbid User:alice READ group %s", group)
	t.Ask("allow User:alice READ topic %s", topic)
	s.shown(t, topic, group, s.WrongGroup)
	admin := s.writer(t, plain.As("admin"))
	defer admin.Close()
	t.Must("write", admin.Write(topic, "only this"))
	reader := s.reader(t, plain.As("admin"), topic, "")
	defer reader.Close()
	t.Equal("what was written", read(t, reader, 1), []string{"only this"})
}

// shown looks for the error that a consumer shows, before any record.
func (s secured) shown(t *T, topic, group, want string) {
	reader, err := s.Reader(t, plain, topic, group)
	if err == nil {
		defer reader.Close()
		err = pollUntilRefused(t, reader)
	}
	s.refused(t, "what a consumer shows", err, want)
}

// pollUntilRefused returns the error. A fetch that waited may still end well; what comes after it is refused.
func pollUntilRefused(t *T, reader Reader) error {
	for {
		values, err := reader.Poll()
		t.Equal("records", len(values), 0)
		if err != nil {
			return err
		}
		t.Must("the time for the consumer to show an error", t.Context.Err())
	}
}

func (s secured) rightRevokedWhileProducing(t *T) {
	topic := topic(t, "alice", "WRITE")
	writer := s.writer(t, plain)
	defer writer.Close()
	want := counted(20)
	for _, value := range want { // the broker knows the same request by then
		t.Must("write", writer.Write(topic, value))
	}
	for turn := range 3 {
		t.Ask("forbid User:alice WRITE topic %s", topic)
		s.refused(t, "without the right", writer.Write(topic, "refused"), s.WrongTopic)
		t.Ask("allow User:alice WRITE topic %s", topic)
		again := fmt.Sprintf("again %d", turn)
		t.Until("writing with the right again", func() bool { return writer.Write(topic, again) == nil })
		want = append(want, again)
	}
	reader := s.reader(t, plain.As("admin"), topic, "")
	defer reader.Close()
	t.Equal("what was written", read(t, reader, len(want)), want)
}

func (s secured) rightRevokedWhileConsuming(t *T) {
	topic, group := topic(t, "alice", "READ"), group(t, "alice")
	admin := s.writer(t, plain.As("admin"))
	defer admin.Close()
	reader := s.reader(t, plain, topic, group)
	defer reader.Close()
	t.Must("write", admin.Write(topic, counted(10)...))
	t.Equal("values", read(t, reader, 10), counted(10))
	t.Must("commit", reader.Commit())
	t.Ask("forbid User:alice READ topic %s", topic)
	s.refused(t, "what the consumer shows", pollUntilRefused(t, reader), s.WrongTopic)
	t.Must("write", admin.Write(topic, "hidden"))
	for range 10 { // a client may show the same error once only
		values, err := reader.Poll()
		t.Equal("records", len(values), 0)
		t.True("what the consumer shows then", err == nil || s.Name(err) == s.WrongTopic)
	}
	t.Ask("allow User:alice READ topic %s", topic)
	values := []string{}
	t.Until("the right is back", func() bool {
		more, err := reader.Poll()
		t.True("what is left", err == nil || s.Name(err) == s.WrongTopic)
		values = append(values, more...)
		return len(values) > 0
	})
	t.Equal("values", values, []string{"hidden"})
	t.Ask("forbid User:alice READ group %s", group)
	s.refused(t, "committing", reader.Commit(), s.WrongGroup)
}

func (s secured) rightRevokedInTransaction(t *T) {
	topic, transactional := topic(t, "alice", "WRITE"), t.Name("transaction")
	right := "User:alice WRITE transactional-id " + transactional
	_, err := s.TransactionalWriter(t, plain, transactional)
	s.refused(t, "initializing", err, s.WrongTransactionalID)
	t.Ask("allow %s", right)
	writer, err := s.TransactionalWriter(t, plain, transactional)
	t.Must("new writer", err)
	want := []string{}
	commit := func(writer TransactionalWriter, value string) {
		t.Must("begin", writer.Begin())
		t.Must("write", writer.Write(topic, value))
		t.Must("commit", writer.Commit())
		want = append(want, value)
	}
	for number := range 3 {
		commit(writer, fmt.Sprintf("committed %d", number))
	}
	t.Must("begin", writer.Begin())
	t.Must("write", writer.Write(topic, "never committed"))
	t.Ask("forbid %s", right)
	s.refused(t, "committing", writer.Commit(), s.WrongTransactionalID)
	writer.Close()
	t.Ask("allow %s", right)
	writer, err = s.TransactionalWriter(t, plain, transactional) // ends what the first left open
	t.Must("new writer", err)
	defer writer.Close()
	commit(writer, "the last")
	reader := s.reader(t, plain.As("admin"), topic, "")
	defer reader.Close()
	t.Equal("what was committed", read(t, reader, len(want)), want)
}

// sessionsThatEnd shows that a client authenticates again, or connects again, when its session ends, and that nothing
// is lost or repeated.
func (s secured) sessionsThatEnd(t *T) {
	topic, group, short := topic(t, "alice", "READ", "WRITE"), group(t, "alice"), login("SHORT", "SCRAM-SHA-256")
	writer := s.writer(t, short)
	defer writer.Close()
	reader := s.reader(t, short, topic, group)
	defer reader.Close()
	want, got := []string{}, []string{}
	for started := time.Now(); time.Since(started) < 5*time.Second; {
		value := fmt.Sprint(len(want))
		t.Must("write", writer.Write(topic, value))
		want = append(want, value)
		more, err := reader.Poll()
		t.Must("poll", err)
		got = slices.Concat(got, more)
		if len(more) > 0 { // a member that joins again begins at what was committed
			t.Must("commit", reader.Commit())
		}
	}
	got = slices.Concat(got, read(t, reader, len(want)-len(got)))
	t.Equal("what was read", got, want)
	t.Must("commit", reader.Commit())
}
