//! The rdkafka crate at a secured broker.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use crate::checks::Check;
use crate::clients::{numbers, TIMEOUT};

/// How a client connects; `certificate` is the name of its own, empty without.
#[derive(Clone, Copy)]
struct Login {
    listener: &'static str,
    mechanism: &'static str,
    user: &'static str,
    password: &'static str,
    token: &'static str,
    authority: &'static str,
    certificate: &'static str,
}

const PLAIN: Login = Login {
    listener: "SASL_SSL",
    mechanism: "PLAIN",
    user: "alice",
    password: "alice-secret",
    token: "alice",
    authority: "authority",
    certificate: "",
};
const ADMIN: Login = Login {
    user: "admin",
    password: "admin-secret",
    ..PLAIN
};

fn file(name: &str) -> String {
    let folder = PathBuf::from(std::env::var("SECURED_FILES").expect("a folder of files"));
    folder.join(name).to_str().expect("a name in UTF-8").to_string()
}

impl Login {
    fn settings(&self, more: &[(&str, &str)]) -> ClientConfig {
        let protocol = match self.listener {
            "MUTUAL" | "EXPIRED" => "SSL",
            "SHORT" => "SASL_PLAINTEXT",
            other => other,
        };
        let bootstrap = std::env::var(format!("SECURED_{}", self.listener)).expect("an address");
        let mut settings = ClientConfig::new();
        settings
            .set("bootstrap.servers", bootstrap)
            .set("security.protocol", protocol)
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "200")
            .set("retry.backoff.ms", "50");
        if protocol.ends_with("SSL") {
            settings.set("ssl.ca.location", file(&format!("{}.pem", self.authority)));
        }
        if !self.certificate.is_empty() {
            settings
                .set("ssl.certificate.location", file(&format!("{}.crt", self.certificate)))
                .set("ssl.key.location", file(&format!("{}.key", self.certificate)));
        }
        if !self.mechanism.is_empty() {
            settings.set("sasl.mechanism", self.mechanism);
        }
        if !["", "OAUTHBEARER"].contains(&self.mechanism) {
            settings
                .set("sasl.username", self.user)
                .set("sasl.password", self.password);
        }
        for (name, value) in more {
            settings.set(*name, *value);
        }
        settings.set_log_level(RDKafkaLogLevel::Emerg);
        settings
    }

    fn writer(&self, more: &[(&str, &str)]) -> Writer {
        let seen = Seen::of(self);
        let kafka = self
            .settings(more)
            .create_with_context(seen.clone())
            .expect("a producer");
        Writer { kafka, seen }
    }

    fn reader(&self, topic: &str, group: &str) -> BaseConsumer<Seen> {
        let usual = [
            ("group.id", if group.is_empty() { "unused" } else { group }),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ];
        let reader: BaseConsumer<Seen> = self
            .settings(&usual)
            .create_with_context(Seen::of(self))
            .expect("a consumer");
        if group.is_empty() {
            let mut partitions = TopicPartitionList::new();
            partitions
                .add_partition_offset(topic, 0, Offset::Beginning)
                .expect("an offset");
            reader.assign(&partitions).expect("an assignment");
        } else {
            reader.subscribe(&[topic]).expect("a subscription");
        }
        reader
    }
}

/// What a client tells while it works: errors of its connections, and what became of its records.
#[derive(Clone)]
struct Seen {
    token: String,
    user: String,
    errors: Arc<Mutex<Vec<(RDKafkaErrorCode, String)>>>,
    deliveries: Arc<Mutex<Vec<Option<KafkaError>>>>,
}

impl Seen {
    fn of(login: &Login) -> Self {
        Self {
            token: login.token.into(),
            user: login.user.into(),
            errors: Arc::default(),
            deliveries: Arc::default(),
        }
    }
}

impl ClientContext for Seen {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        self.errors
            .lock()
            .unwrap()
            .extend(code.map(|code| (code, reason.to_string())));
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        Ok(OAuthToken {
            token: std::fs::read_to_string(file(&format!("{}.jwt", self.token)))?,
            principal_name: self.user.clone(),
            // The client does not look into it: it is to be valid for an hour, even if it is not.
            lifetime_ms: now.as_millis() as i64 + 3_600_000,
        })
    }
}

impl ConsumerContext for Seen {}

impl ProducerContext for Seen {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        self.deliveries.lock().unwrap().push(error);
    }
}

struct Writer {
    kafka: ThreadedProducer<Seen>,
    seen: Seen,
}

impl Writer {
    /// Writes values to the only partition of a topic and waits; the first error.
    fn write(&self, topic: &str, values: &[String]) -> Option<RDKafkaErrorCode> {
        for value in values {
            let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).partition(0).payload(value.as_bytes());
            if let Err((error, _)) = self.kafka.send(record) {
                return error.rdkafka_error_code();
            }
        }
        if let Err(error) = self.kafka.flush(TIMEOUT) {
            return error.rdkafka_error_code();
        }
        let outcomes: Vec<_> = self.seen.deliveries.lock().unwrap().drain(..).collect();
        outcomes
            .into_iter()
            .flatten()
            .next()
            .and_then(|error| error.rdkafka_error_code())
    }

    fn one(&self, topic: &str, value: &str) -> Option<RDKafkaErrorCode> {
        self.write(topic, &[value.to_string()])
    }
}

/// What came within a moment, or the error that the consumer shows.
fn poll(reader: &BaseConsumer<Seen>) -> Result<Option<String>, RDKafkaErrorCode> {
    match reader.poll(Duration::from_millis(100)) {
        None => Ok(None),
        Some(Ok(message)) => Ok(Some(
            String::from_utf8(message.payload().unwrap_or_default().to_vec()).expect("text"),
        )),
        Some(Err(error)) => match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure) => Ok(None),
            code => Err(code.expect("a code")),
        },
    }
}

fn read(check: &Check, reader: &BaseConsumer<Seen>, count: usize) -> Vec<String> {
    let mut values = Vec::new();
    check.ask_until(&format!("reading {count} records"), || {
        values.extend(poll(reader).expect("a record"));
        (values.len() >= count).then_some(())
    });
    values
}

/// The error that a consumer shows; it must not get a record.
fn refusal(check: &Check, reader: &BaseConsumer<Seen>) -> RDKafkaErrorCode {
    check.ask_until("the consumer shows an error", || match poll(reader) {
        Ok(value) => {
            check.equal("records", value, None);
            None
        }
        Err(code) => Some(code),
    })
}

fn topic(check: &Check, user: &str, operations: &[&str]) -> String {
    let topic = check.name("topic");
    check.ask(&format!("topic {topic}"));
    for operation in operations {
        check.ask(&format!("allow User:{user} {operation} topic {topic}"));
    }
    topic
}

fn group(check: &Check, user: &str) -> String {
    let group = check.name("group");
    check.ask(&format!("allow User:{user} READ group {group}"));
    group
}

fn works(check: &Check, login: Login, user: &str) {
    let (topic, group) = (topic(check, user, &["READ", "WRITE"]), group(check, user));
    check.equal("writing", login.writer(&[]).write(&topic, &numbers(0, 100)), None);
    let reader = login.reader(&topic, &group);
    check.equal("values", read(check, &reader, 100), numbers(0, 100));
    reader.commit_consumer_state(CommitMode::Sync).expect("a commit");
}

/// Why a client cannot connect.
fn connection_error(check: &Check, login: Login) -> RDKafkaErrorCode {
    connection_failure(check, login).0
}

/// The same with its reason.
fn connection_failure(check: &Check, login: Login) -> (RDKafkaErrorCode, String) {
    let writer = login.writer(&[]);
    check.wait("the client shows why it does not connect", || {
        let errors = writer.seen.errors.lock().unwrap();
        errors
            .iter()
            .find(|(code, _)| *code != RDKafkaErrorCode::AllBrokersDown)
            .cloned()
    })
}

/// A client does not connect because of the broker's certificate. librdkafka has two codes for that: the certificate is
/// there when the handshake begins, or later. The reason is the same.
fn distrusts(check: &Check, login: Login) {
    let (code, reason) = connection_failure(check, login);
    let codes = [RDKafkaErrorCode::SSL, RDKafkaErrorCode::BrokerTransportFailure];
    let is_expected = codes.contains(&code) && reason.contains("certificate verify failed");
    check.equal(&format!("{code:?}, {reason}"), is_expected, true);
}

fn mutual_tls(check: &Check) {
    let without = Login {
        listener: "MUTUAL",
        mechanism: "",
        ..PLAIN
    };
    let with = Login {
        certificate: "alice",
        ..without
    };
    works(check, with, "alice");
    let error = connection_error(check, without);
    check.equal("without a certificate", error, RDKafkaErrorCode::BrokerTransportFailure);
}

fn oauthbearer(check: &Check) {
    let login = Login {
        mechanism: "OAUTHBEARER",
        ..PLAIN
    };
    works(check, login, "alice");
    for token in ["expired", "forged"] {
        let error = connection_error(check, Login { token, ..login });
        check.equal(
            &format!("with a token that is {token}"),
            error,
            RDKafkaErrorCode::Authentication,
        );
    }
}

fn wrong_passwords(check: &Check) {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let login = Login { mechanism, ..PLAIN };
        for (user, password) in [("alice", "wrong"), ("bob", "alice-secret"), ("nobody", "alice-secret")] {
            let error = connection_error(
                check,
                Login {
                    user,
                    password,
                    ..login
                },
            );
            let what = format!("{mechanism}, {user} with {password}");
            check.equal(&what, error, RDKafkaErrorCode::Authentication);
        }
    }
    works(check, PLAIN, "alice");
}

fn wrong_authority(check: &Check) {
    let other = Login {
        authority: "other-authority",
        ..PLAIN
    };
    distrusts(check, other);
}

fn expired_certificate(check: &Check) {
    let expired = Login {
        listener: "EXPIRED",
        mechanism: "",
        ..PLAIN
    };
    distrusts(check, expired);
}

const WRONG_TOPIC: RDKafkaErrorCode = RDKafkaErrorCode::TopicAuthorizationFailed;
const WRONG_GROUP: RDKafkaErrorCode = RDKafkaErrorCode::GroupAuthorizationFailed;

fn no_right(check: &Check) {
    let (topic, group) = (topic(check, "bob", &["READ", "WRITE"]), check.name("group"));
    check.equal("writing", PLAIN.writer(&[]).one(&topic, "x"), Some(WRONG_TOPIC));
    check.ask(&format!("allow User:alice READ group {group}"));
    check.equal("reading", refusal(check, &PLAIN.reader(&topic, &group)), WRONG_TOPIC);
    check.ask(&format!("forbid User:alice READ group {group}"));
    check.ask(&format!("allow User:alice READ topic {topic}"));
    check.equal("joining", refusal(check, &PLAIN.reader(&topic, &group)), WRONG_GROUP);
    check.equal("an administrator", ADMIN.writer(&[]).one(&topic, "only this"), None);
    let values = read(check, &ADMIN.reader(&topic, ""), 1);
    check.equal("what was written", values, vec!["only this".to_string()]);
}

fn right_revoked_while_producing(check: &Check) {
    let topic = topic(check, "alice", &["WRITE"]);
    let writer = PLAIN.writer(&[]);
    let mut want = numbers(0, 20);
    for value in &want {
        check.equal("writing", writer.one(&topic, value), None); // the broker knows the same request by the end
    }
    for turn in 0..3 {
        check.ask(&format!("forbid User:alice WRITE topic {topic}"));
        check.equal("without the right", writer.one(&topic, "refused"), Some(WRONG_TOPIC));
        check.ask(&format!("allow User:alice WRITE topic {topic}"));
        let again = format!("again {turn}");
        check.comes_to("with it again", || writer.one(&topic, &again), None);
        want.push(again);
    }
    let values = read(check, &ADMIN.reader(&topic, ""), want.len());
    check.equal("what was written", values, want);
}

fn right_revoked_while_consuming(check: &Check) {
    let (topic, group) = (topic(check, "alice", &["READ"]), group(check, "alice"));
    let (admin, reader) = (ADMIN.writer(&[]), PLAIN.reader(&topic, &group));
    check.equal("writing", admin.write(&topic, &numbers(0, 10)), None);
    check.equal("values", read(check, &reader, 10), numbers(0, 10));
    reader.commit_consumer_state(CommitMode::Sync).expect("a commit");
    check.ask(&format!("forbid User:alice READ topic {topic}"));
    check.equal("reading", refusal(check, &reader), WRONG_TOPIC);
    check.equal("writing", admin.one(&topic, "hidden"), None);
    for _ in 0..10 {
        // The same error may be shown once only.
        let shown = poll(&reader);
        check.equal("what comes", [Ok(None), Err(WRONG_TOPIC)].contains(&shown), true);
    }
    check.ask(&format!("allow User:alice READ topic {topic}"));
    let value = check.ask_until("the right is back", || poll(&reader).unwrap_or(None));
    check.equal("value", value, "hidden".to_string());
    check.ask(&format!("forbid User:alice READ group {group}"));
    let refused = reader.commit_consumer_state(CommitMode::Sync).expect_err("a refusal");
    check.equal("committing", refused.rdkafka_error_code(), Some(WRONG_GROUP));
}

fn right_revoked_in_transaction(check: &Check) {
    let (topic, id) = (topic(check, "alice", &["WRITE"]), check.name("transaction"));
    let right = format!("User:alice WRITE transactional-id {id}");
    let wrong = Some(RDKafkaErrorCode::TransactionalIdAuthorizationFailed);
    let new = || PLAIN.writer(&[("transactional.id", &id)]);
    let refused = new().kafka.init_transactions(TIMEOUT).expect_err("a refusal");
    check.equal("initializing", refused.rdkafka_error_code(), wrong);
    check.ask(&format!("allow {right}"));
    let mut want = Vec::new();
    let mut commit = |writer: &Writer, value: String| {
        writer.kafka.begin_transaction().expect("a transaction");
        check.equal("writing", writer.one(&topic, &value), None);
        writer.kafka.commit_transaction(TIMEOUT).expect("a commit");
        want.push(value);
    };
    let writer = new();
    writer.kafka.init_transactions(TIMEOUT).expect("transactions");
    for number in 0..3 {
        commit(&writer, format!("committed {number}"));
    }
    writer.kafka.begin_transaction().expect("a transaction");
    check.equal("writing", writer.one(&topic, "never committed"), None);
    check.ask(&format!("forbid {right}"));
    let refused = writer.kafka.commit_transaction(TIMEOUT).expect_err("a refusal");
    check.equal("committing", refused.rdkafka_error_code(), wrong);
    check.ask(&format!("allow {right}"));
    let next = new();
    next.kafka.init_transactions(TIMEOUT).expect("transactions"); // ends what the first left open
    commit(&next, "the last".to_string());
    let values = read(check, &ADMIN.reader(&topic, ""), want.len());
    check.equal("what was committed", values, want);
}

/// Clients authenticate again when their session ends; they lose and repeat nothing.
fn sessions_that_end(check: &Check) {
    let (topic, group) = (topic(check, "alice", &["READ", "WRITE"]), group(check, "alice"));
    let login = Login {
        listener: "SHORT",
        mechanism: "SCRAM-SHA-256",
        ..PLAIN
    };
    let (writer, reader) = (login.writer(&[]), login.reader(&topic, &group));
    let (mut count, mut got) = (0, Vec::new());
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        check.equal("writing", writer.one(&topic, &count.to_string()), None);
        count += 1;
        got.extend(poll(&reader).expect("a record"));
    }
    got.extend(read(check, &reader, count - got.len()));
    check.equal("what was read", got, numbers(0, count));
    reader.commit_consumer_state(CommitMode::Sync).expect("a commit");
}

pub const CHECKS: [(&str, fn(&Check)); 15] = [
    ("ssl", |check| {
        let login = Login {
            listener: "SSL",
            mechanism: "",
            ..PLAIN
        };
        works(check, login, "ANONYMOUS");
    }),
    ("mutual-tls", mutual_tls),
    ("plain", |check| works(check, PLAIN, "alice")),
    ("scram-sha-256", |check| {
        let mechanism = "SCRAM-SHA-256";
        works(check, Login { mechanism, ..PLAIN }, "alice");
    }),
    ("scram-sha-512", |check| {
        let mechanism = "SCRAM-SHA-512";
        works(check, Login { mechanism, ..PLAIN }, "alice");
    }),
    ("oauthbearer", oauthbearer),
    ("without-tls", |check| {
        let login = Login {
            listener: "SASL_PLAINTEXT",
            mechanism: "SCRAM-SHA-256",
            ..PLAIN
        };
        works(check, login, "alice");
    }),
    ("wrong-passwords", wrong_passwords),
    ("wrong-authority", wrong_authority),
    ("expired-certificate", expired_certificate),
    ("no-right", no_right),
    ("right-revoked-while-producing", right_revoked_while_producing),
    ("right-revoked-while-consuming", right_revoked_while_consuming),
    ("right-revoked-in-transaction", right_revoked_in_transaction),
    ("sessions-that-end", sessions_that_end),
];
