//! A model in another language, in a process of its own: `tests/oracle/drive.py` of the crate that is tested. A line of JSON goes in,
//! and one comes out.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The model.
pub(crate) struct Model {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Model {
    /// One that is made with these settings.
    pub(crate) fn new(settings: &Value) -> Model {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle");
        let mut child = Command::new("python3")
            .args(["-B", "drive.py"])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs the model; ./test.sh installs it");
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut model = Model { child, to, from };
        model.ask(&json!({"new": settings}));
        model
    }

    pub(crate) fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.to, "{command}").unwrap();
        self.to.flush().unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
