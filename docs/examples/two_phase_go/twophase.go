package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What a session returns, wrapped; compare with errors.Is. After each of them but ErrMisuse the session is over.
var (
	// ErrNotPrepared: records were refused, or not acknowledged in time. Nothing is on either side.
	ErrNotPrepared = errors.New("not prepared")
	// ErrFenced: a later session has claimed the transactional id. Make way for it.
	ErrFenced = errors.New("fenced")
	// ErrInDoubt: nobody knows yet whether the database has committed. The next session finds out.
	ErrInDoubt = errors.New("in doubt")
	// ErrNeedsRecovery: this session cannot go on. The next one does what is left.
	ErrNeedsRecovery = errors.New("needs recovery")
	// ErrHeuristicOutcome: the transaction had been ended the other way. A person has to look.
	ErrHeuristicOutcome = errors.New("heuristic outcome")
	// ErrSuperseded: another transaction has the token's place. Nobody can tell how it ended: a person has to look.
	ErrSuperseded = errors.New("superseded")
	// ErrMisuse: the calls are not as a session needs them. Nothing was committed by it.
	ErrMisuse = errors.New("misuse")
)

const (
	createTable = "CREATE TABLE IF NOT EXISTS fencepost_prepared " +
		"(transactional_id text PRIMARY KEY, generation bigint NOT NULL, token text)"
	// durable makes the commit of its transaction durable, also in a database that is set to less.
	durable = "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') " +
		"THEN set_config('synchronous_commit', 'on', true) END"
	claim = "INSERT INTO fencepost_prepared AS prepared (transactional_id, generation) VALUES ($1, 1) " +
		"ON CONFLICT (transactional_id) DO UPDATE SET generation = prepared.generation + 1 " +
		"RETURNING generation, token, " + durable
	look = "SELECT generation, token, NULL FROM fencepost_prepared WHERE transactional_id = $1"
	hold = look + " FOR UPDATE"
	// lookAlone fails while a commit of the row is under way, on whichever connection.
	lookAlone = look + " FOR UPDATE NOWAIT"
	// begin is look, and marks the database's transaction until it ends.
	begin = "SELECT generation, token, set_config('fencepost.transaction', 'begun', true) " +
		"FROM fencepost_prepared WHERE transactional_id = $1"
	update    = "UPDATE fencepost_prepared SET token = $2 WHERE transactional_id = $1 AND generation = $3"
	marked    = " AND current_setting('fencepost.transaction', true) = 'begun'"
	returning = " RETURNING generation, token, " + durable

	patience = 60 * time.Second
	pause    = 50 * time.Millisecond
)

// Token is a prepared transaction: enough to end it, from any process. Its text is like 7:0:order-service-1.
type Token struct {
	ProducerID      int64
	Epoch           int16
	TransactionalID string
}

func (t Token) String() string {
	return fmt.Sprintf("%d:%d:%s", t.ProducerID, t.Epoch, t.TransactionalID)
}

// ParseToken reads a token's text.
func ParseToken(text string) (Token, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) == 3 && parts[2] != "" {
		id, idError := strconv.ParseInt(parts[0], 10, 64)
		epoch, epochError := strconv.ParseInt(parts[1], 10, 16)
		token := Token{id, int16(epoch), parts[2]}
		if idError == nil && epochError == nil && id >= 0 && epoch >= 0 && token.String() == text {
			return token, nil
		}
	}
	return Token{}, fmt.Errorf("expected PRODUCER_ID:EPOCH:TRANSACTIONAL_ID, got %q", text)
}

// Session is one session of a transactional id, by version 1 of the table fencepost_prepared in PostgreSQL. It and its
// transactions belong to one goroutine at a time.
//
// It owns its producer. Nobody else can end a transaction of it, and it aborts none that the database has committed, or
// may have: Close leaves such a transaction to the next session.
type Session struct {
	connection  *sql.Conn
	producer    *kgo.Client
	coordinator coordinator
	id          string
	generation  int64
	isOver      bool
	isInside    bool
}

// CreateTable creates the table unless it is there.
func CreateTable(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, createTable)
	return err
}

// Start begins a session: it fences the earlier ones, commits the transaction whose token the database has, and aborts any
// other. The options are for the producer and for the client that asks the coordinator: addresses, TLS and SASL.
func Start(ctx context.Context, db *sql.DB, transactionalID string, options ...kgo.Opt) (*Session, error) {
	s := &Session{id: transactionalID}
	if err := s.start(ctx, db, options); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) start(ctx context.Context, db *sql.DB, options []kgo.Opt) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Version 5 of EndTxn is for clients of transaction version 2 alone; 4 ends transactions of either.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 4)
	versions.SetMaxKeyVersion(kmsg.InitProducerID.Int16(), 5)
	var err error
	s.coordinator.client, err = kgo.NewClient(append(slices.Clip(options), kgo.MaxVersions(versions))...)
	if err != nil {
		return err
	}
	s.producer, err = kgo.NewClient(append(slices.Clip(options), kgo.TransactionalID(s.id))...)
	if err != nil {
		return err
	}
	if s.connection, err = db.Conn(ctx); err != nil {
		return err
	}
	if _, err = s.coordinator.describe(ctx, s.id); err != nil {
		return err // a client that the brokers refuse must fence nobody
	}
	found, err := s.claim(ctx)
	if err != nil {
		return err
	}
	if found != nil {
		if err = s.coordinator.end(ctx, *found, true); err != nil {
			return err
		}
		if err = s.clear(ctx); err != nil {
			return err
		}
	}
	return s.initialize(ctx)
}

// initialize aborts what is open under the id, and initializes the producer, while the database holds the id's row.
func (s *Session) initialize(ctx context.Context) error {
	held := &holding{session: s}
	defer held.end()
	if err := held.again(ctx); err != nil {
		return err
	}
	var described description
	for {
		var err error
		if described, err = s.coordinator.describe(ctx, s.id); err != nil {
			return err
		}
		if err = held.again(ctx); err != nil {
			return err
		}
		if described.state == "Ongoing" {
			err = s.coordinator.end(ctx, described.token(s.id), false)
			if err != nil && !errors.Is(err, ErrHeuristicOutcome) && !errors.Is(err, ErrSuperseded) {
				return err
			}
		} else if strings.HasPrefix(described.state, "Prepare") {
			time.Sleep(pause)
		} else {
			break
		}
	}
	if err := s.coordinator.guard(ctx, s.id, described); err != nil {
		return err
	}
	if err := held.again(ctx); err != nil {
		return err
	}
	if _, _, err := s.producer.ProducerID(ctx); err != nil { // the client's InitProducerId
		if isNotCurrent(err) {
			return fmt.Errorf("%w: another session of %s has an open transaction: %w", ErrFenced, s.id, err)
		}
		return err
	}
	return held.again(ctx)
}

// Transaction commits what the work changes in the database and what it produces, both or neither. The work must not commit
// or roll back.
//
// An error of the work, in preparing or in the database's commit leaves nothing on either side, and is returned.
func (s *Session) Transaction(ctx context.Context, work func(tx *sql.Tx, produce func(*kgo.Record)) error) (err error) {
	if s.isOver || s.isInside {
		return fmt.Errorf("%w: the session is over, or a transaction is open", ErrMisuse)
	}
	s.isInside = true
	defer func() { s.isInside = false }()
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	sent := &sending{session: s, ctx: ctx}
	isReturned := false
	defer func() {
		if !isReturned { // the work panics
			sent.end()
			s.abandon(tx, sent)
		}
	}()
	err = work(tx, sent.produce)
	isReturned = true
	sent.end()
	var token *Token
	if err == nil {
		token, err = sent.prepare()
	}
	if err == nil {
		err = s.record(ctx, tx, token)
	}
	if err != nil {
		s.abandon(tx, sent)
		return err
	}
	return s.commit(context.WithoutCancel(ctx), tx, token, sent)
}

// Close leaves a transaction that is open: the database decides about it, and the next session does as it says.
func (s *Session) Close() {
	s.isOver = true
	if s.producer != nil {
		s.producer.Close() // ends no transaction
	}
	if s.coordinator.client != nil {
		s.coordinator.client.Close()
	}
	if s.connection != nil {
		_ = s.connection.Close()
	}
}

func (s *Session) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.connection.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	found, err := s.row(ctx, tx, begin)
	if err == nil {
		err = s.requireOurs(found)
	}
	if err == nil && found.token != nil {
		err = s.over(ErrNeedsRecovery, "the database has committed %s, and nobody knows yet whether its records are", *found.token)
	}
	if err == nil {
		if failed := s.producer.BeginTransaction(); failed != nil {
			err = s.over(ErrNeedsRecovery, "the producer cannot begin: %w", failed)
		}
	}
	if err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// sending is what one transaction has produced.
type sending struct {
	session *Session
	ctx     context.Context
	pending sync.WaitGroup
	lock    sync.Mutex
	count   int
	refused error
	isOver  bool
}

func (s *sending) produce(record *kgo.Record) {
	s.lock.Lock()
	if s.isOver {
		s.lock.Unlock()
		panic("twophase: produce is called after its work has returned, which has counted its records")
	}
	s.pending.Add(1)
	s.count++
	s.lock.Unlock()
	s.session.producer.Produce(s.ctx, record, func(_ *kgo.Record, err error) {
		defer s.pending.Done()
		s.lock.Lock()
		defer s.lock.Unlock()
		if s.refused == nil {
			s.refused = err
		}
	})
}

func (s *sending) end() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.isOver = true
}

// prepare returns the token of what was produced; nil if nothing was.
func (s *sending) prepare() (*Token, error) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := s.session.producer.Flush(ctx); err != nil {
		return nil, s.session.over(ErrNotPrepared, "records were not acknowledged: %w", err)
	}
	s.pending.Wait()
	if s.refused != nil {
		return nil, s.session.over(ErrNotPrepared, "a record was refused: %w", s.refused)
	}
	if s.count == 0 {
		return nil, nil
	}
	id, epoch, err := s.session.producer.ProducerID(ctx)
	if err != nil {
		return nil, s.session.over(ErrNotPrepared, "the producer has failed: %w", err)
	}
	return &Token{id, epoch, s.session.id}, nil
}

func (s *Session) record(ctx context.Context, tx *sql.Tx, token *Token) error {
	isOurs, err := s.update(ctx, tx, token, update+marked+returning)
	if err != nil || isOurs {
		return err
	}
	found, err := s.row(ctx, tx, look)
	if err == nil {
		err = s.requireOurs(found)
	}
	if err == nil {
		err = fmt.Errorf("%w: the work has ended the database's transaction: leave that to the session", ErrMisuse)
	}
	return err
}

// commit commits the database, and then the records. Without a token there are none.
func (s *Session) commit(ctx context.Context, tx *sql.Tx, token *Token, sent *sending) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := tx.Commit(); err != nil {
		if token != nil && !s.isRolledBack(ctx) {
			return s.over(ErrInDoubt, "the database did not say whether it has committed %s: %w", *token, err)
		}
		s.abandon(tx, sent)
		return err
	}
	if err := s.producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		if token == nil {
			return s.over(ErrNeedsRecovery, "the producer cannot go on: %w", err)
		}
		return s.ended(*token, err)
	}
	if token != nil {
		if err := s.clear(ctx); err != nil {
			return s.over(ErrNeedsRecovery, "%s is committed on both sides, but not noted as done: %w", *token, err)
		}
	}
	return nil
}

// ended commits what the producer could not, and returns why the session is over. The producer is not used again: its next
// call would initialize it anew, which aborts.
func (s *Session) ended(token Token, reason error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.coordinator.end(ctx, token, true)
	switch {
	case err == nil:
		return s.over(ErrNeedsRecovery, "%s is committed on both sides, but its producer cannot go on: %w", token, reason)
	case errors.Is(err, ErrHeuristicOutcome), errors.Is(err, ErrSuperseded) && !s.hasSuccessor(ctx):
		s.isOver = true
		return err
	case errors.Is(err, ErrSuperseded):
		return s.over(ErrNeedsRecovery, "%s is committed in the database, and the later session of its id was to commit it: %w", token, err)
	default:
		return s.over(ErrNeedsRecovery, "%s is committed in the database, and its records wait for a coordinator: %w", token, err)
	}
}

// abandon rolls the database back, and aborts the records. A producer that has failed would initialize itself anew instead,
// which aborts whatever its id has open: so that is left to the next session.
func (s *Session) abandon(tx *sql.Tx, sent *sending) {
	_ = tx.Rollback()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.producer.Flush(ctx) == nil {
		sent.pending.Wait()
		if sent.refused == nil && s.producer.EndTransaction(ctx, kgo.TryAbort) == nil {
			return
		}
	}
	s.isOver = true
}

func (s *Session) over(kind error, format string, about ...any) error {
	s.isOver = true
	return fmt.Errorf("%w: %w: start another session", kind, fmt.Errorf(format, about...))
}

// The database

type row struct {
	generation int64
	token      *Token
}

func (s *Session) row(ctx context.Context, tx *sql.Tx, statement string, more ...any) (row, error) {
	var found row
	var text, ignored sql.NullString
	err := tx.QueryRowContext(ctx, statement, append([]any{s.id}, more...)...).Scan(&found.generation, &text, &ignored)
	if err != nil {
		return found, err
	}
	if text.Valid {
		token, err := ParseToken(text.String)
		if err != nil {
			return found, err
		}
		found.token = &token
	}
	return found, nil
}

func (s *Session) claim(ctx context.Context) (*Token, error) {
	var claimed row
	err := s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		claimed, err = s.row(ctx, tx, claim)
		return err
	})
	s.generation = claimed.generation // from now on no earlier session can write a token
	return claimed.token, err
}

// clear removes the token of a transaction that has ended.
func (s *Session) clear(ctx context.Context) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		isOurs, err := s.update(ctx, tx, nil, update+returning)
		if err == nil && !isOurs {
			err = s.fenced()
		}
		return err
	})
}

// update writes a token, or removes it; false if another session has claimed the id, or the mark is gone.
func (s *Session) update(ctx context.Context, tx *sql.Tx, token *Token, statement string) (bool, error) {
	var text sql.NullString
	if token != nil {
		text = sql.NullString{String: token.String(), Valid: true}
	}
	_, err := s.row(ctx, tx, statement, text, s.generation)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (s *Session) requireOurs(found row) error {
	if found.generation != s.generation {
		return s.fenced()
	}
	return nil
}

func (s *Session) fenced() error {
	s.isOver = true
	return fmt.Errorf("%w: another session has claimed %s: end this one", ErrFenced, s.id)
}

func (s *Session) inTransaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.connection.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// now is the row as a new transaction sees it.
func (s *Session) now(ctx context.Context, statement string) (found row, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		found, err = s.row(ctx, tx, statement)
		return err
	})
	return found, err
}

// isRolledBack is whether, after a commit that failed, the database answers and has no token.
func (s *Session) isRolledBack(ctx context.Context) bool {
	found, err := s.now(ctx, lookAlone)
	return err == nil && found.generation == s.generation && found.token == nil
}

func (s *Session) hasSuccessor(ctx context.Context) bool {
	found, err := s.now(ctx, look)
	return err == nil && found.generation != s.generation
}

// holding is a transaction that holds the id's row, so that no later session can claim the id.
type holding struct {
	session *Session
	tx      *sql.Tx
}

// again checks that the database has not ended the hold, and that nobody has claimed the id since.
func (h *holding) again(ctx context.Context) error {
	if h.tx != nil {
		if err := h.tx.Rollback(); err != nil {
			return err
		}
	}
	tx, err := h.session.connection.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	h.tx = tx
	found, err := h.session.row(ctx, tx, hold)
	if err != nil {
		return err
	}
	return h.session.requireOurs(found)
}

func (h *holding) end() {
	if h.tx != nil {
		_ = h.tx.Rollback()
	}
}

// The brokers

// coordinator asks the transaction coordinators, by a client of its own that has no transactions.
type coordinator struct {
	client *kgo.Client
}

type description struct {
	producerID int64
	epoch      int16
	state      string
}

func (d description) token(transactionalID string) Token {
	return Token{d.producerID, d.epoch, transactionalID}
}

// describe returns the pair of an id's last transaction and its state, which is empty for an id that is not known.
func (c coordinator) describe(ctx context.Context, transactionalID string) (description, error) {
	found := description{producerID: -1, epoch: -1}
	err := c.until(ctx, func() (int16, error) {
		request := kmsg.NewPtrDescribeTransactionsRequest()
		request.TransactionalIDs = []string{transactionalID}
		reply, err := request.RequestWith(ctx, c.client)
		if err != nil {
			return 0, err
		}
		if len(reply.TransactionStates) != 1 {
			return 0, errors.New("the coordinator did not describe the transactional id")
		}
		one := reply.TransactionStates[0]
		if one.ErrorCode == kerr.TransactionalIDNotFound.Code {
			return 0, nil
		}
		if one.ErrorCode == 0 {
			found = description{one.ProducerID, one.ProducerEpoch, one.State}
		}
		return one.ErrorCode, nil
	})
	return found, err
}

// end ends the transaction of a token, and returns when its outcome is certain. It may be repeated.
func (c coordinator) end(ctx context.Context, token Token, commits bool) error {
	reason := c.until(ctx, func() (int16, error) {
		request := kmsg.NewPtrEndTxnRequest()
		request.TransactionalID = token.TransactionalID
		request.ProducerID, request.ProducerEpoch = token.ProducerID, token.Epoch
		request.Commit = commits
		reply, err := request.RequestWith(ctx, c.client)
		if err != nil {
			return 0, err
		}
		return reply.ErrorCode, nil
	})
	isOfState := errors.Is(reason, kerr.InvalidTxnState)
	if reason == nil || !isOfState && !isNotCurrent(reason) {
		return reason
	}
	found, err := c.describe(ctx, token.TransactionalID)
	if err != nil {
		return err
	}
	later := int(found.epoch) - int(token.Epoch) // version 2 raises the epoch with the end
	isTokens := found.producerID == token.ProducerID && (later == 0 || later == 1)
	isCommitted := isTokens && (found.state == "PrepareCommit" || found.state == "CompleteCommit")
	isAborted := isTokens && (found.state == "PrepareAbort" || found.state == "CompleteAbort")
	hadNoRecords := isTokens && later == 0 && found.state == "Empty"
	switch {
	case hadNoRecords, commits && isCommitted, !commits && isAborted:
		return nil
	case !isCommitted && !isAborted && !isOfState:
		return fmt.Errorf("%w: %s is not the current transaction of its id: compare both sides: %w", ErrSuperseded, token, reason)
	default:
		return fmt.Errorf("%w: %s was ended the other way: compare both sides, and mend one: %w", ErrHeuristicOutcome, token, reason)
	}
}

// guard begins a session of an id that has no open transaction, under its current pair. From then on a Fencepost refuses any
// InitProducerId without the current pair that would abort a transaction; other brokers do not know that part of the request.
func (c coordinator) guard(ctx context.Context, transactionalID string, found description) error {
	err := c.until(ctx, func() (int16, error) {
		request := kmsg.NewPtrInitProducerIDRequest()
		request.TransactionalID = &transactionalID
		request.TransactionTimeoutMillis = 10_000
		request.ProducerID, request.ProducerEpoch = found.producerID, found.epoch
		request.UnknownTags.Set(10_000, []byte{1})
		reply, err := request.RequestWith(ctx, c.client)
		if err != nil {
			return 0, err
		}
		return reply.ErrorCode, nil
	})
	if err != nil && isNotCurrent(err) {
		return fmt.Errorf("%w: another session of %s has begun meanwhile: %w", ErrFenced, transactionalID, err)
	}
	return err
}

// until asks again while the error passes by itself.
func (c coordinator) until(ctx context.Context, ask func() (int16, error)) error {
	for {
		code, err := ask()
		if err == nil {
			err = kerr.ErrorForCode(code)
		}
		isPassing := kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions) || kgo.IsRetryableBrokerErr(err)
		if err == nil || !isPassing {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no coordinator has answered in time: %w", err)
		case <-time.After(pause):
		}
	}
}

func isNotCurrent(err error) bool {
	for _, one := range []error{kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.ProducerFenced} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
