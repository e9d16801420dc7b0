//! What checking everything came to: every finding, then one line that says whether it is sound and how much was looked at.

use serde_json::Value;

use crate::exit::{Done, Fail};
use crate::session::Session;

/// In words. `counts` is what was looked at.
pub(crate) fn words(findings: &[String], counts: &[String]) -> String {
    let mut text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let state = if findings.is_empty() { "sound" } else { "NOT SOUND" };
    text.push_str(&format!("{state}: {}\n", counts.join(", ")));
    text
}

/// Tells it, and fails if anything is wrong: then everything was said already.
pub(crate) fn tell(
    session: &mut Session<'_>,
    facts: &Value,
    findings: &[String],
    counts: &[String],
) -> Done {
    let told = session.tell(facts, || words(findings, counts));
    match findings.is_empty() {
        true => told,
        // Whether anybody has read it or not.
        false => Err(Fail::silent(1)),
    }
}
