//! Gives each test a Kafka broker of its own, which starts in milliseconds.
//!
//!     mod fencepost;
//!     use fencepost::Broker;
//!
//!     #[test]
//!     fn orders() {
//!         let broker = Broker::start();
//!         // … .set("bootstrap.servers", broker.bootstrap_servers())
//!     }
//!
//! Copy this file. It needs ureq (with its feature "json") and serde_json, and the program `fencepost` on PATH, or its
//! command in the environment variable FENCEPOST. The program is started once for all tests of a process, and ends with
//! it. The broker's view of a test that fails is printed; one that passes fails if a fault that it set has never fired.
#![allow(dead_code)]

use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const LONGEST_ANSWER_BYTES: u64 = 1 << 30;

/// A broker of a test, which is closed when it is dropped. `get` and `post` reach all operations of the control API;
/// a refusal is a panic with a sentence of advice.
pub struct Broker {
    address: String,
    bootstrap_servers: String,
}

impl Broker {
    #[track_caller]
    pub fn start() -> Broker {
        let made = call("POST", "/brokers", Some(&json!({})));
        Broker {
            address: format!("/brokers/{}", text(&made["broker"])),
            bootstrap_servers: text(&made["bootstrap_servers"]),
        }
    }

    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    #[track_caller]
    pub fn create_topic(&self, name: &str, partitions: u32) {
        self.post("topic", json!({"name": name, "partitions": partitions}));
    }

    /// Append records; creates the topic if need be.
    #[track_caller]
    pub fn produce(&self, topic: &str, values: &[&str]) {
        self.post("produce", json!({"topic": topic, "values": values}));
    }

    /// The committed values of a topic, as soon as there are at least as many; panics after ten seconds.
    #[track_caller]
    pub fn values(&self, topic: &str, count: usize) -> Vec<String> {
        let (mut values, mut next) = (Vec::new(), Some(0));
        while let Some(skip) = next {
            let (count, skip) = (count.to_string(), skip.to_string());
            let page = self.get("records", &[("topic", topic), ("count", &count), ("skip", &skip)]);
            let records = page["records"].as_array().expect("records");
            values.extend(records.iter().map(|one| text(&one["value"])));
            next = page["next_skip"].as_u64();
        }
        values
    }

    /// The state of a transaction by Kafka's names, such as CompleteCommit.
    #[track_caller]
    pub fn transaction_state(&self, transactional_id: &str) -> String {
        text(&self.get("transaction", &[("transactional_id", transactional_id)])["state"])
    }

    /// Begin a session of a transactional id, as a second instance does: its producer is a zombie from now on.
    #[track_caller]
    pub fn fence(&self, transactional_id: &str) {
        self.post("fence", json!({"transactional_id": transactional_id}));
    }

    /// Answer the next request of an API (`EndTxn`) with an error (`NOT_COORDINATOR`).
    #[track_caller]
    pub fn fail(&self, api: &str, error: &str) -> Fault<'_> {
        self.fault("fail", json!({"api": api, "error": error}))
    }

    /// Close the connection in place of the next reply of an API: the request is carried out, its reply is lost.
    #[track_caller]
    pub fn disconnect(&self, api: &str) -> Fault<'_> {
        self.fault("disconnect", json!({"api": api}))
    }

    /// Hold the replies of an API until `Fault::release`.
    #[track_caller]
    pub fn hold(&self, api: &str) -> Fault<'_> {
        self.fault("hold", json!({"api": api}))
    }

    /// End the broker at the next request of an API, before its reply leaves; see `restart`.
    #[track_caller]
    pub fn crash_after(&self, api: &str) -> Fault<'_> {
        self.fault("crash_after", json!({"api": api}))
    }

    /// A fault with all arguments of the control API.
    #[track_caller]
    pub fn fault(&self, operation: &str, arguments: Value) -> Fault<'_> {
        let number = self.post(operation, arguments)["fault"].as_u64().expect("a number");
        Fault { broker: self, number }
    }

    /// Start the broker again, on the same data and address.
    #[track_caller]
    pub fn restart(&self) {
        self.post("restart", json!({}));
    }

    /// Turn the broker's clock forward. Returns when all that became due is done.
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        self.post("advance", json!({"seconds": time.as_secs_f64()}));
    }

    /// The broker's view in lines of text: requests, faults, transactions, groups.
    #[track_caller]
    pub fn describe(&self) -> String {
        text(&self.get("describe", &[])["text"])
    }

    /// An operation of the control API that asks.
    #[track_caller]
    pub fn get(&self, operation: &str, arguments: &[(&str, &str)]) -> Value {
        let query: Vec<String> = arguments
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        call(
            "GET",
            &format!("{}/{operation}?{}", self.address, query.join("&")),
            None,
        )
    }

    /// An operation of the control API that changes something.
    #[track_caller]
    pub fn post(&self, operation: &str, arguments: Value) -> Value {
        call("POST", &format!("{}/{operation}", self.address), Some(&arguments))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would end the process.
            if let Ok(answer) = ask("GET", &format!("{}/describe", self.address), None) {
                eprintln!("{}", text(&answer["text"]));
            }
            let _ = ask("DELETE", &self.address, None);
            return;
        }
        let closed = call("DELETE", &self.address, None);
        let never_fired = closed["never_fired"].as_array().expect("a list");
        if !never_fired.is_empty() {
            let sentences: Vec<String> = never_fired.iter().map(text).collect();
            panic!("{}\n{}", sentences.join("\n"), text(&closed["description"]));
        }
    }
}

/// A fault that a test has set.
pub struct Fault<'a> {
    broker: &'a Broker,
    number: u64,
}

impl Fault<'_> {
    /// Wait until it has met a request; panics after ten seconds.
    #[track_caller]
    pub fn wait_until_fired(&self) {
        self.broker
            .post(&format!("faults/{}/wait_until_fired", self.number), json!({}));
    }

    /// Let the requests go that it holds; returns how many. It holds later ones.
    #[track_caller]
    pub fn release(&self) -> u64 {
        self.broker.post(&format!("faults/{}/release", self.number), json!({}))["released"]
            .as_u64()
            .expect("a number")
    }

    /// End the fault.
    #[track_caller]
    pub fn remove(&self) {
        call(
            "DELETE",
            &format!("{}/faults/{}", self.broker.address, self.number),
            None,
        );
    }
}

/// The program, which serves all tests of this process. It ends with its standard input, so also after a kill -9.
struct Program {
    url: String,
    agent: ureq::Agent,
    _child: Child,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

fn program() -> &'static Program {
    PROGRAM.get_or_init(|| {
        let command = std::env::var("FENCEPOST").unwrap_or_else(|_| "fencepost".to_string());
        let mut words = command.split_whitespace();
        let mut child = Command::new(words.next().expect("a command in FENCEPOST"))
            .args(words)
            .args(["test-broker", "--json", "--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {command}: {error}; install it, or name its command in the environment variable FENCEPOST")
            });
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("its first line");
        let ready: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{command} test-broker ended: {:?}; its errors are above", child.wait()));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
        Program { url: text(&ready["url"]), agent, _child: child }
    })
}

#[track_caller]
fn call(method: &str, path: &str, arguments: Option<&Value>) -> Value {
    ask(method, path, arguments).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn ask(method: &str, path: &str, arguments: Option<&Value>) -> Result<Value, String> {
    let program = program();
    let url = format!("{}{path}", program.url);
    let response = match method {
        "GET" => program.agent.get(&url).call(),
        "DELETE" => program.agent.delete(&url).call(),
        _ => program.agent.post(&url).send_json(arguments.unwrap_or(&Value::Null)),
    };
    let mut response = response.map_err(|error| format!("fencepost test-broker does not answer: {error}"))?;
    let answer: Value = response
        .body_mut()
        .with_config()
        .limit(LONGEST_ANSWER_BYTES)
        .read_json()
        .map_err(|error| format!("no answer in JSON: {error}"))?;
    if response.status().is_success() {
        return Ok(answer);
    }
    Err(format!(
        "{}\n{}",
        text(&answer["message"]),
        answer["description"].as_str().unwrap_or("")
    )
    .trim_end()
    .to_string())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_string()
}

fn encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
