//! What no other test of a transaction can show: each test has a broker of its own, whose failures it chooses.

mod fencepost;

use fencepost::Broker;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_zombie_is_fenced_and_its_records_stay_hidden() {
    let broker = Broker::start();
    let (zombie, successor) = (producer(&broker), producer(&broker));
    zombie.init_transactions(LONG).unwrap();
    zombie.begin_transaction().unwrap();
    send(&zombie, "from the zombie");
    successor.init_transactions(LONG).unwrap(); // the same transactional id
    match zombie.commit_transaction(LONG) {
        Err(KafkaError::Transaction(error)) => {
            assert!(error.is_fatal());
            assert_eq!(error.code(), RDKafkaErrorCode::Fenced);
        }
        other => panic!("{other:?}"),
    }
    successor.begin_transaction().unwrap();
    send(&successor, "from its successor");
    successor.commit_transaction(LONG).unwrap();
    assert_eq!(broker.values("orders", 1), ["from its successor"]);
}

#[test]
fn a_commit_whose_reply_is_lost_is_committed_once() {
    let broker = Broker::start();
    let producer = producer(&broker);
    producer.init_transactions(LONG).unwrap();
    producer.begin_transaction().unwrap();
    send(&producer, "tea");
    broker.disconnect("EndTxn"); // carried out, and not answered
    producer.commit_transaction(LONG).unwrap(); // which asks again
    assert_eq!(broker.values("orders", 1), ["tea"]);
    assert_eq!(broker.transaction_state("orders-1"), "CompleteCommit");
}

#[test]
fn a_transaction_that_is_forgotten_is_aborted_after_sixteen_minutes() {
    let broker = Broker::start();
    let producer = producer(&broker);
    producer.init_transactions(LONG).unwrap();
    producer.begin_transaction().unwrap();
    send(&producer, "tea");
    let began = Instant::now();
    broker.advance(Duration::from_secs(16 * 60)); // its time-out is fifteen
    assert_eq!(broker.transaction_state("orders-1"), "CompleteAbort");
    println!("sixteen minutes took {} ms", began.elapsed().as_millis());
    assert!(broker.values("orders", 0).is_empty());
}

fn producer(broker: &Broker) -> BaseProducer {
    ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap_servers())
        .set("transactional.id", "orders-1")
        .set("transaction.timeout.ms", "900000")
        .create()
        .unwrap()
}

fn send(producer: &BaseProducer, value: &str) {
    producer
        .send(BaseRecord::<(), str>::to("orders").payload(value))
        .map_err(|(error, _)| error)
        .unwrap();
    producer.flush(LONG).unwrap();
}
