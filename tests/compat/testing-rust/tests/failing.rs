//! Tests that fail, each in another way, and a pair that would fail if it shared a broker.

mod fencepost;

use fencepost::Broker;
use serde_json::json;

#[test]
fn wrong() {
    let broker = Broker::start();
    broker.produce("orders", &["tea"]);
    assert_eq!(broker.values("orders", 1), ["coffee"]);
}

#[test]
#[allow(non_snake_case)]
fn neverFired() {
    Broker::start().fail("EndTxn", "NOT_COORDINATOR");
}

#[test]
fn refused() {
    Broker::start().fault("fail", json!({"api": "EndTransaction", "error": "NOT_COORDINATOR"}));
}

#[test]
fn waited() {
    Broker::start().get("records", &[("topic", "orders"), ("count", "1"), ("timeout", "0.1")]);
}

#[test]
fn many() {
    let broker = Broker::start();
    broker.produce("orders", &["tea"; 2001]);
    assert_eq!(broker.values("orders", 2001).len(), 2001);
}

#[test]
fn first() {
    alone();
}

#[test]
fn second() {
    alone();
}

fn alone() {
    let broker = Broker::start();
    broker.produce("orders", &["tea"]);
    assert_eq!(broker.values("orders", 1), ["tea"]);
    assert_ne!(broker.describe(), "");
}
