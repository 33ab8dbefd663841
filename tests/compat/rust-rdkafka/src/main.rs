//! Checks a broker with the rdkafka crate and the librdkafka inside it.

mod checks;
mod clients;
mod secured;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{AdminOptions, NewPartitions};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use checks::Check;
use clients::*;

const COMMITTED: &str = "read_committed";
const UNCOMMITTED: &str = "read_uncommitted";
const CLASSIC: [(&str, &str); 2] = [("heartbeat.interval.ms", "200"), ("session.timeout.ms", "10000")];

fn main() {
    if std::env::var("SECURED_FILES").is_ok() {
        return checks::main(&secured::CHECKS);
    }
    checks::main(&[
        ("produce-and-consume", produce_and_consume),
        ("compression", compression),
        ("record-too-large", record_too_large),
        ("offsets-by-time", offsets_by_time),
        ("admin-topics", admin_topics),
        ("group-resumes-at-commit", group_resumes_at_commit),
        ("group-rebalances", |check| group_rebalances(check, &CLASSIC)),
        ("group-next-generation", |check| {
            group_rebalances(check, &[("group.protocol", "consumer")])
        }),
        ("transaction-commit-and-abort", transaction_commit_and_abort),
        (
            "transaction-consume-transform-produce",
            transaction_consume_transform_produce,
        ),
        ("transaction-fencing", transaction_fencing),
        ("crash-while-producing", |check| produce_through(check, "kill")),
        ("stop-while-producing", |check| produce_through(check, "terminate")),
        ("crash-in-transaction", crash_in_transaction),
        ("crash-while-consuming", crash_while_consuming),
        ("many-clients", many_clients),
    ]);
}

/// The time that timestamps count from, in milliseconds since 1970: young enough that retention deletes nothing.
fn start_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_millis() as i64
        - 60_000
}

fn error_code<T>(result: Result<T, KafkaError>) -> Option<RDKafkaErrorCode> {
    result.err().and_then(|error| error.rdkafka_error_code())
}

fn produce_and_consume(check: &Check) {
    let topic = create_topic(check, "topic", 3);
    let producer = TestProducer::new(check, &[]);
    let start = start_ms();
    for number in 0..300 {
        let (key, value) = (format!("key-{number}"), number.to_string());
        let record = BaseRecord::to(&topic)
            .partition(number % 3)
            .key(key.as_bytes())
            .payload(value.as_bytes());
        producer.send(record.timestamp(start + i64::from(number)));
    }
    let mut offsets = producer.flush().expect("acknowledgements");
    offsets.sort_unstable();
    check.equal("offsets", offsets, (0..300).map(|number| number / 3).collect());
    let consumer = new_consumer(check, &check.name("group"), &[]);
    for partition in 0..3 {
        assign(&consumer, &topic, partition, Offset::Beginning);
        for (index, record) in read(check, &consumer, 100).into_iter().enumerate() {
            let number = index as i64 * 3 + i64::from(partition);
            check.equal(
                "partition and offset",
                (record.partition, record.offset),
                (partition, index as i64),
            );
            check.equal("value", text(&record), number.to_string());
            check.equal("key", record.key, Some(format!("key-{number}").into_bytes()));
            check.equal("timestamp", record.timestamp_ms, Some(start + number));
        }
    }
}

fn compression(check: &Check) {
    let topic = create_topic(check, "topic", 1);
    let mut written = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let values: Vec<_> = (0..20)
            .map(|number| format!("{codec} {number} ").repeat(1 + number * number))
            .collect();
        TestProducer::new(check, &[("compression.type", codec)])
            .write(&topic, 0, &values)
            .expect("acknowledgements");
        written.extend(values);
    }
    check.equal("records", read_all(check, &topic, 0, COMMITTED), written);
}

fn record_too_large(check: &Check) {
    let topic = create_topic(check, "topic", 1);
    let producer = TestProducer::new(check, &[("message.max.bytes", "8000000")]);
    let write = |size: usize| producer.write(&topic, 0, &["x".repeat(size)]);
    check.equal("error of a large one", error_code(write(1_000_000)), None);
    check.equal(
        "error above message.max.bytes",
        error_code(write(1_100_000)),
        Some(RDKafkaErrorCode::MessageSizeTooLarge),
    );
    check.equal("error afterwards", error_code(write(5)), None);
    let sizes = read_all(check, &topic, 0, COMMITTED)
        .iter()
        .map(String::len)
        .collect::<Vec<_>>();
    check.equal("sizes", sizes, vec![1_000_000, 5]);
}

fn offsets_by_time(check: &Check) {
    let topic = create_topic(check, "topic", 1);
    let producer = TestProducer::new(check, &[]);
    let start = start_ms();
    for after in [1000, 3000, 2000, 5000] {
        producer.send(
            BaseRecord::to(&topic)
                .partition(0)
                .payload(b"x".as_slice())
                .timestamp(start + after),
        );
        producer.flush().expect("an acknowledgement");
    }
    let consumer = new_consumer(check, &check.name("group"), &[]);
    let found = [1000, 1001, 3001, 5001].map(|after| {
        let mut asked = TopicPartitionList::new();
        asked
            .add_partition_offset(&topic, 0, Offset::Offset(start + after))
            .expect("a time");
        consumer.offsets_for_times(asked, TIMEOUT).expect("offsets").elements()[0].offset()
    });
    check.equal(
        "offsets by time",
        found,
        [Offset::Offset(0), Offset::Offset(1), Offset::Offset(3), Offset::End],
    );
    check.equal(
        "start and end",
        consumer.fetch_watermarks(&topic, 0, TIMEOUT).expect("watermarks"),
        (0, 4),
    );
}

fn admin_topics(check: &Check) {
    let (topic, missing) = (create_topic(check, "topic", 2), check.name("missing"));
    let (admin, options) = (new_admin(check), AdminOptions::new().request_timeout(Some(TIMEOUT)));
    check.equal(
        "create one that exists",
        try_create(check, &topic, 1, 1),
        Some(RDKafkaErrorCode::TopicAlreadyExists),
    );
    let replicas = try_create(check, &missing, 1, 1_000);
    check.equal(
        "create with too many replicas",
        replicas,
        Some(RDKafkaErrorCode::InvalidReplicationFactor),
    );
    check.equal(
        "create with a bad name",
        try_create(check, "a/b", 1, 1),
        Some(RDKafkaErrorCode::InvalidTopic),
    );
    let grow = |topic: &str, count| {
        let grown =
            wait_for(admin.create_partitions(&[NewPartitions::new(topic, count)], &options)).expect("an answer");
        grown
            .into_iter()
            .next()
            .expect("a topic in the answer")
            .err()
            .map(|(_, code)| code)
    };
    check.equal(
        "grow to as many",
        grow(&topic, 2),
        Some(RDKafkaErrorCode::InvalidPartitions),
    );
    check.equal("grow", grow(&topic, 5), None);
    check.wait("it has grown", || (partition_count(check, &topic) == 5).then_some(()));
    let delete = |topic: &str| {
        let deleted = wait_for(admin.delete_topics(&[topic], &options)).expect("an answer");
        deleted
            .into_iter()
            .next()
            .expect("a topic in the answer")
            .err()
            .map(|(_, code)| code)
    };
    check.equal("delete", delete(&topic), None);
    check.wait("it is gone", || {
        (delete(&topic) == Some(RDKafkaErrorCode::UnknownTopicOrPartition)).then_some(())
    });
}

fn group_resumes_at_commit(check: &Check) {
    let (topic, group) = (create_topic(check, "topic", 1), check.name("group"));
    TestProducer::new(check, &[])
        .write(&topic, 0, &numbers(0, 30))
        .expect("acknowledgements");
    let first = new_consumer(check, &group, &CLASSIC);
    first.subscribe(&[&topic]).expect("a subscription");
    read(check, &first, 30);
    let mut offsets = TopicPartitionList::new();
    offsets
        .add_partition_offset(&topic, 0, Offset::Offset(12))
        .expect("an offset");
    first.commit(&offsets, CommitMode::Sync).expect("a commit");
    drop(first);
    let second = new_consumer(check, &group, &CLASSIC);
    second.subscribe(&[&topic]).expect("a subscription");
    let values = read(check, &second, 18).iter().map(text).collect::<Vec<_>>();
    check.equal("records after the commit", values, numbers(12, 30));
}

/// A member of a group that polls in a thread, commits what it was given, and knows what it holds.
struct Member {
    values: Arc<Mutex<Vec<String>>>,
    held: Arc<Mutex<HashSet<i32>>>,
    leaving: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Member {
    fn join(check: &Check, group: &str, topic: &str, more: &[(&str, &str)]) -> Self {
        let consumer = new_consumer(check, group, more);
        consumer.subscribe(&[topic]).expect("a subscription");
        let (values, held, leaving) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let shared: (Arc<Mutex<Vec<String>>>, Arc<Mutex<HashSet<i32>>>, _) =
            (Arc::clone(&values), Arc::clone(&held), Arc::clone(&leaving));
        let thread = std::thread::spawn(move || {
            while !shared.2.load(Ordering::Relaxed) {
                if let Some(Ok(record)) = poll(&consumer) {
                    shared.0.lock().unwrap().push(text(&record));
                    // What a member that was cut off could not commit is read again by another.
                    let _ = consumer.commit_consumer_state(CommitMode::Sync);
                }
                let assignment = consumer.assignment().expect("an assignment");
                *shared.1.lock().unwrap() = assignment.elements().iter().map(|each| each.partition()).collect();
            }
        });
        Self {
            values,
            held,
            leaving,
            thread,
        }
    }

    fn values(&self) -> Vec<String> {
        self.values.lock().unwrap().clone()
    }

    fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn leave(self) -> Vec<String> {
        self.leaving.store(true, Ordering::Relaxed);
        self.thread.join().expect("a member that ends well");
        Arc::into_inner(self.values)
            .expect("the last owner")
            .into_inner()
            .unwrap()
    }
}

fn write_dealt(producer: &TestProducer, topic: &str, partitions: usize, from: usize, to: usize) {
    for number in from..to {
        let value = number.to_string();
        producer.send(
            BaseRecord::to(topic)
                .partition((number % partitions) as i32)
                .payload(value.as_bytes()),
        );
    }
    producer.flush().expect("acknowledgements");
}

fn group_rebalances(check: &Check, more: &[(&str, &str)]) {
    let (topic, group) = (create_topic(check, "topic", 6), check.name("group"));
    let producer = TestProducer::new(check, &[]);
    let first = Member::join(check, &group, &topic, more);
    check.wait("the only member has all partitions", || {
        (first.held() == 6).then_some(())
    });
    write_dealt(&producer, &topic, 6, 0, 60);
    check.wait("the only member has read all", || {
        (first.values().len() == 60).then_some(())
    });
    let second = Member::join(check, &group, &topic, more);
    check.wait("two members share", || {
        (first.held() == 3 && second.held() == 3).then_some(())
    });
    write_dealt(&producer, &topic, 6, 60, 120);
    check.wait("both have read all", || {
        (first.values().len() + second.values().len() == 120).then_some(())
    });
    check.equal("records of the second member", second.values().len(), 30);
    let read_by_first = first.leave();
    check.wait("the last member has all", || (second.held() == 6).then_some(()));
    write_dealt(&producer, &topic, 6, 120, 180);
    check.wait("the last member has read all", || {
        (second.values().len() == 90).then_some(())
    });
    let mut all = [read_by_first, second.leave()].concat();
    all.sort_by_key(|value| value.parse::<usize>().expect("a number"));
    check.equal("all that was read", all, numbers(0, 180));
}

fn transactional(check: &Check) -> TestProducer {
    let producer = TestProducer::new(check, &[("transactional.id", &check.name("transaction"))]);
    producer.kafka.init_transactions(TIMEOUT).expect("a producer id");
    producer
}

fn transaction_commit_and_abort(check: &Check) {
    let topic = create_topic(check, "topic", 2);
    let producer = transactional(check);
    for number in 0..20 {
        producer.kafka.begin_transaction().expect("a transaction");
        for partition in 0..2 {
            producer
                .write(&topic, partition, &[number.to_string()])
                .expect("acknowledgements");
        }
        match number % 3 {
            0 => producer.kafka.abort_transaction(TIMEOUT).expect("an abort"),
            _ => producer.kafka.commit_transaction(TIMEOUT).expect("a commit"),
        }
    }
    let committed: Vec<_> = (0..20)
        .filter(|number| number % 3 != 0)
        .map(|number| number.to_string())
        .collect();
    for partition in 0..2 {
        check.comes_to(
            "committed records",
            || read_all(check, &topic, partition, COMMITTED),
            committed.clone(),
        );
        check.comes_to(
            "all records",
            || read_all(check, &topic, partition, UNCOMMITTED),
            numbers(0, 20),
        );
    }
    let consumer = new_consumer(check, &check.name("group"), &[]);
    let watermarks = consumer.fetch_watermarks(&topic, 0, TIMEOUT).expect("watermarks");
    check.equal("a marker for each transaction", watermarks, (0, 40));
}

fn transaction_consume_transform_produce(check: &Check) {
    let (source, sink) = (create_topic(check, "source", 1), create_topic(check, "sink", 1));
    let group = check.name("group");
    TestProducer::new(check, &[])
        .write(&source, 0, &numbers(0, 30))
        .expect("acknowledgements");
    let producer = transactional(check);
    for (count, commit) in [(10, true), (10, false), (15, true), (5, true)] {
        let consumer = new_consumer(check, &group, &CLASSIC);
        consumer.subscribe(&[&source]).expect("a subscription");
        let records = read(check, &consumer, count);
        producer.kafka.begin_transaction().expect("a transaction");
        producer
            .write(&sink, 0, &records[..count].iter().map(text).collect::<Vec<_>>())
            .expect("acknowledgements");
        let mut offsets = TopicPartitionList::new();
        let next = Offset::Offset(records[count - 1].offset + 1);
        offsets.add_partition_offset(&source, 0, next).expect("an offset");
        let metadata = consumer.group_metadata().expect("a member of a group");
        producer
            .kafka
            .send_offsets_to_transaction(&offsets, &metadata, TIMEOUT)
            .expect("offsets in the transaction");
        match commit {
            true => producer.kafka.commit_transaction(TIMEOUT).expect("a commit"),
            false => producer.kafka.abort_transaction(TIMEOUT).expect("an abort"),
        }
    }
    check.comes_to(
        "each record once",
        || read_all(check, &sink, 0, COMMITTED),
        numbers(0, 30),
    );
}

fn transaction_fencing(check: &Check) {
    let topic = create_topic(check, "topic", 1);
    let write = |producer: &TestProducer, value: &str| {
        producer.kafka.begin_transaction().expect("a transaction");
        producer
            .write(&topic, 0, &[value.to_string()])
            .expect("an acknowledgement");
    };
    let first = transactional(check);
    write(&first, "first");
    let second = transactional(check);
    write(&second, "second");
    let error = error_code(first.kafka.commit_transaction(TIMEOUT));
    check.equal("error of the fenced producer", error, Some(RDKafkaErrorCode::Fenced));
    second.kafka.commit_transaction(TIMEOUT).expect("a commit");
    check.comes_to(
        "records",
        || read_all(check, &topic, 0, COMMITTED),
        vec!["second".to_string()],
    );
}

/// An idempotent producer writes while the broker is restarted; each record is there once, in order.
fn produce_through(check: &Check, how: &str) {
    let topic = create_topic(check, "topic", 2);
    let producer = TestProducer::new(check, &[("enable.idempotence", "true")]);
    let mut count = 0;
    let mut write = |times: usize| {
        for _ in 0..times {
            write_without_waiting(&producer, &topic, count);
            count += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    write(200);
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| check.restart(how));
        while !restart.is_finished() {
            write(1);
        }
        if let Err(reason) = restart.join() {
            std::panic::resume_unwind(reason);
        }
    });
    write(200);
    check.equal("error of a record", error_code(producer.flush()), None);
    for partition in 0..2 {
        check.equal(
            "records",
            read_all(check, &topic, partition, UNCOMMITTED),
            numbers(0, count),
        );
    }
}

fn write_without_waiting(producer: &TestProducer, topic: &str, number: usize) {
    let value = number.to_string();
    for partition in 0..2 {
        producer.send(BaseRecord::to(topic).partition(partition).payload(value.as_bytes()));
    }
}

fn crash_in_transaction(check: &Check) {
    let topic = create_topic(check, "topic", 2);
    let producer = transactional(check);
    producer.kafka.begin_transaction().expect("a transaction");
    producer
        .write(&topic, 0, &["before".to_string()])
        .expect("an acknowledgement");
    check.restart("kill");
    producer
        .write(&topic, 1, &["after".to_string()])
        .expect("an acknowledgement");
    producer.kafka.commit_transaction(TIMEOUT).expect("a commit");
    producer.kafka.begin_transaction().expect("a transaction");
    producer
        .write(&topic, 0, &["aborted".to_string()])
        .expect("an acknowledgement");
    check.restart("terminate");
    producer.kafka.abort_transaction(TIMEOUT).expect("an abort");
    check.comes_to(
        "from before the crash",
        || read_all(check, &topic, 0, COMMITTED),
        vec!["before".to_string()],
    );
    check.comes_to(
        "from after the crash",
        || read_all(check, &topic, 1, COMMITTED),
        vec!["after".to_string()],
    );
}

fn crash_while_consuming(check: &Check) {
    let (topic, group) = (create_topic(check, "topic", 2), check.name("group"));
    let producer = TestProducer::new(check, &[]);
    let member = Member::join(check, &group, &topic, &CLASSIC);
    let distinct = || member.values().into_iter().collect::<HashSet<_>>().len();
    for (round, how) in ["kill", "terminate"].into_iter().enumerate() {
        write_dealt(&producer, &topic, 2, round * 40, round * 40 + 40);
        check.wait("all is read", || (distinct() == round * 40 + 40).then_some(()));
        check.restart(how);
    }
    write_dealt(&producer, &topic, 2, 80, 120);
    // What was read but not yet committed when the broker went may come again; nothing is left out.
    check.wait("all is read", || (distinct() == 120).then_some(()));
    member.leave();
}

/// 100 idempotent producers and the 100 members of one group work at once, a partition each.
fn many_clients(check: &Check) {
    const PAIRS: usize = 100;
    const EACH: usize = 10;
    let (topic, group) = (create_topic(check, "topic", PAIRS as i32), check.name("group"));
    let members: Vec<_> = (0..PAIRS)
        .map(|_| Member::join(check, &group, &topic, &CLASSIC))
        .collect();
    let values = |partition: usize| (0..EACH).map(move |number| format!("{partition}:{number}"));
    std::thread::scope(|scope| {
        let producing: Vec<_> = (0..PAIRS)
            .map(|partition| {
                let topic = &topic;
                scope.spawn(move || {
                    let producer = TestProducer::new(check, &[("enable.idempotence", "true")]);
                    let offsets = producer
                        .write(topic, partition as i32, &values(partition).collect::<Vec<_>>())
                        .expect("acknowledgements");
                    check.equal("offsets", offsets, (0..EACH as i64).collect());
                })
            })
            .collect();
        for producer in producing {
            if let Err(reason) = producer.join() {
                std::panic::resume_unwind(reason);
            }
        }
    });
    check.wait("every member holds one partition", || {
        members.iter().all(|member| member.held() == 1).then_some(())
    });
    let written: HashSet<_> = (0..PAIRS).flat_map(values).collect();
    // A record that was read just before its partition went to another member may be read twice; none is left out.
    check.wait("all is read", || {
        let read: HashSet<_> = members.iter().flat_map(Member::values).collect();
        (read == written).then_some(())
    });
    for member in &members {
        member.leaving.store(true, Ordering::Relaxed);
    }
    for member in members {
        member.leave();
    }
}
