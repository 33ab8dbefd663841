//! Clients of the check's broker, and what the checks do with them.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::checks::Check;

pub const TIMEOUT: Duration = Duration::from_secs(30);

/// librdkafka's defaults, but for the pace at which it comes back, and silent.
pub fn settings(check: &Check, more: &[(&str, &str)]) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", &check.bootstrap);
    settings
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "200")
        .set("retry.backoff.ms", "50");
    for (name, value) in more {
        settings.set(*name, *value);
    }
    settings.set_log_level(RDKafkaLogLevel::Emerg);
    settings
}

/// Keeps what became of each record: its partition and offset, or its error.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<Mutex<Vec<Result<(i32, i64), KafkaError>>>>);

impl ClientContext for Deliveries {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let outcome = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.clone()),
        };
        self.0.lock().unwrap().push(outcome);
    }
}

pub struct TestProducer {
    pub kafka: ThreadedProducer<Deliveries>,
    deliveries: Deliveries,
}

impl TestProducer {
    pub fn new(check: &Check, more: &[(&str, &str)]) -> Self {
        let deliveries = Deliveries::default();
        let kafka = settings(check, more)
            .create_with_context(deliveries.clone())
            .expect("a producer");
        Self { kafka, deliveries }
    }

    pub fn send(&self, record: BaseRecord<'_, [u8], [u8]>) {
        self.kafka
            .send(record)
            .map_err(|(error, _)| error)
            .expect("room in the producer's queue");
    }

    /// Waits for all records. Returns their offsets, in the order of their acknowledgements, or the first error.
    pub fn flush(&self) -> Result<Vec<i64>, KafkaError> {
        self.kafka.flush(TIMEOUT)?;
        let outcomes: Vec<_> = self.deliveries.0.lock().unwrap().drain(..).collect();
        outcomes
            .into_iter()
            .map(|outcome| outcome.map(|(_, offset)| offset))
            .collect()
    }

    /// Writes values to a partition and waits.
    pub fn write(&self, topic: &str, partition: i32, values: &[String]) -> Result<Vec<i64>, KafkaError> {
        for value in values {
            self.send(BaseRecord::to(topic).partition(partition).payload(value.as_bytes()));
        }
        self.flush()
    }
}

pub fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| number.to_string()).collect()
}

/// A consumer that starts at the beginning and commits only explicitly.
pub fn new_consumer(check: &Check, group: &str, more: &[(&str, &str)]) -> BaseConsumer {
    let usual = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    settings(check, &[&usual, more].concat()).create().expect("a consumer")
}

pub fn assign(consumer: &BaseConsumer, topic: &str, partition: i32, offset: Offset) {
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset(topic, partition, offset)
        .expect("an offset");
    consumer.assign(&partitions).expect("an assignment");
}

pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub value: Vec<u8>,
    pub key: Option<Vec<u8>>,
    pub timestamp_ms: Option<i64>,
}

/// The next record, or none when none came within a moment; errors that pass by themselves are passed over.
pub fn poll(consumer: &BaseConsumer) -> Option<Result<Record, KafkaError>> {
    match consumer.poll(Duration::from_millis(100))? {
        Ok(message) => Some(Ok(Record {
            partition: message.partition(),
            offset: message.offset(),
            value: message.payload().unwrap_or_default().to_vec(),
            key: message.key().map(<[u8]>::to_vec),
            timestamp_ms: message.timestamp().to_millis(),
        })),
        Err(error @ KafkaError::PartitionEOF(_)) => Some(Err(error)),
        Err(error) => match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::BrokerTransportFailure) => None,
            _ => Some(Err(error)),
        },
    }
}

/// The next records, exactly as many as asked for.
pub fn read(check: &Check, consumer: &BaseConsumer, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    check.ask_until(&format!("reading {count} records"), || {
        records.extend(poll(consumer).map(|polled| polled.expect("a record")));
        (records.len() >= count).then_some(())
    });
    records
}

/// The values in a partition from its start to its end, as this isolation level sees both.
pub fn read_all(check: &Check, topic: &str, partition: i32, isolation: &str) -> Vec<String> {
    let more = [("isolation.level", isolation), ("enable.partition.eof", "true")];
    let consumer = new_consumer(check, &check.name("reader"), &more);
    assign(&consumer, topic, partition, Offset::Beginning);
    let mut values = Vec::new();
    check.ask_until("reading a partition", || match poll(&consumer) {
        Some(Err(KafkaError::PartitionEOF(_))) => Some(()),
        Some(polled) => {
            values.push(text(&polled.expect("a record")));
            None
        }
        None => None,
    });
    values
}

pub fn text(record: &Record) -> String {
    String::from_utf8(record.value.clone()).expect("text")
}

pub fn new_admin(check: &Check) -> AdminClient<DefaultClientContext> {
    settings(check, &[]).create().expect("an admin client")
}

/// Creates a topic; the error of that topic, if there is one.
pub fn try_create(check: &Check, topic: &str, partitions: i32, replicas: i32) -> Option<RDKafkaErrorCode> {
    let wanted = [NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas))];
    let options = AdminOptions::new().request_timeout(Some(TIMEOUT));
    let created = wait_for(new_admin(check).create_topics(&wanted, &options)).expect("an answer");
    created
        .into_iter()
        .next()
        .expect("a topic in the answer")
        .err()
        .map(|(_, code)| code)
}

/// A topic of the check's own, once it is known.
pub fn create_topic(check: &Check, kind: &str, partitions: i32) -> String {
    let topic = check.name(kind);
    check.equal(
        "error of creating the topic",
        try_create(check, &topic, partitions, 1),
        None,
    );
    check.wait("the topic is known", || {
        (partition_count(check, &topic) == partitions as usize).then_some(())
    });
    topic
}

pub fn partition_count(check: &Check, topic: &str) -> usize {
    let metadata = new_admin(check)
        .inner()
        .fetch_metadata(Some(topic), TIMEOUT)
        .expect("metadata");
    metadata.topics()[0].partitions().len()
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
