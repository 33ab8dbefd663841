//! Runs named checks and speaks with the harness around the program, as README.md of the folder above says.

use std::io::{BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

/// How long one wait of a check may take, a restarting broker and a busy machine included.
pub const LIMIT: Duration = Duration::from_secs(90);

/// One check while it runs.
pub struct Check {
    pub bootstrap: String,
    name: String,
    run: String,
}

/// Ends a check that cannot be made here.
struct Skipped(String);

impl Check {
    /// A name that no other check and no other run uses.
    pub fn name(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.name, self.run)
    }

    /// Ends the check unless both are equal.
    pub fn equal<T: PartialEq + std::fmt::Debug>(&self, what: &str, got: T, want: T) {
        if got != want {
            panic!("{what}: got {got:?}, want {want:?}");
        }
    }

    /// Asks again until the answer is the one that is wanted; ends the check when that takes too long.
    pub fn comes_to<T: PartialEq + std::fmt::Debug>(&self, what: &str, mut get: impl FnMut() -> T, want: T) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let got = get();
            if got == want || Instant::now() > deadline {
                return self.equal(what, got, want);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks again until there is a value; ends the check when that takes too long.
    pub fn wait<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        self.ask_until(what, || {
            let answer = ask();
            if answer.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer
        })
    }

    /// `wait` for something that takes its own time to answer.
    pub fn ask_until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(value) = ask() {
                return value;
            }
            if Instant::now() > deadline {
                panic!("{what}: did not come about");
            }
        }
    }

    /// Ends the broker ("kill" or "terminate") and starts it again on its data.
    pub fn restart(&self, how: &str) {
        let answer = answer_to(how);
        if answer != "done" {
            std::panic::panic_any(Skipped(answer));
        }
    }

    /// Has the harness make a topic or change a right; README.md has the words.
    pub fn ask(&self, what: &str) {
        self.equal(what, answer_to(what), "done".to_string());
    }
}

fn answer_to(what: &str) -> String {
    say(json!({ "ask": what }));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .expect("an answer of the harness");
    answer.trim().into()
}

fn say(line: Value) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").expect("an open standard output");
    output.flush().expect("an open standard output");
}

/// The program: BOOTSTRAP RUN [CHECK...].
pub fn main(checks: &[(&str, fn(&Check))]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let unknown = arguments
        .iter()
        .skip(2)
        .any(|name| !checks.iter().any(|(known, _)| known == name));
    if arguments.len() < 2 || unknown {
        eprintln!("usage: program BOOTSTRAP RUN [CHECK...]");
        std::process::exit(2);
    }
    // What a check panics with is its report.
    std::panic::set_hook(Box::new(|_| {}));
    for (name, run) in checks {
        if arguments.len() > 2 && !arguments[2..].iter().any(|wanted| wanted == name) {
            continue;
        }
        let check = Check {
            bootstrap: arguments[0].clone(),
            name: name.to_string(),
            run: arguments[1].clone(),
        };
        let started = Instant::now();
        let (outcome, detail) = match catch_unwind(AssertUnwindSafe(|| run(&check))) {
            Ok(()) => ("passed", String::new()),
            Err(reason) => match reason.downcast::<Skipped>() {
                Ok(skipped) => ("skipped", skipped.0),
                Err(reason) => ("failed", describe(reason)),
            },
        };
        let seconds = started.elapsed().as_secs_f64();
        say(json!({ "check": name, "outcome": outcome, "seconds": seconds, "detail": detail }));
    }
    // Threads that a failed check left behind do not keep the program.
    std::process::exit(0);
}

fn describe(reason: Box<dyn std::any::Any + Send>) -> String {
    match reason.downcast::<String>() {
        Ok(text) => *text,
        Err(reason) => reason
            .downcast::<&str>()
            .map_or("a panic".into(), |text| text.to_string()),
    }
}
