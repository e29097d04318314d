//! Compares the outcome of a step with what the case expects.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::Error;
use serde_json::Value;

/// The IDs that a case has drawn so far. No ID may come twice.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashSet<u64>>);

impl Seen {
    pub(crate) fn add(&self, ids: &[u64]) -> Result<(), String> {
        let mut seen = self.0.lock().expect("no panic");
        match ids.iter().find(|id| !seen.insert(**id)) {
            Some(id) => Err(format!("{id} came twice")),
            None => Ok(()),
        }
    }
}

/// Returns the name that README.md gives to the kind of this error.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Refused(_) => error.code().map_or("refused", |code| code.name()),
        Error::Timeout { .. } => "timeout",
        Error::Collision(_) => "collision",
        Error::BadOption(_) => "bad_argument",
        Error::Forked => "forked",
        Error::Closed => "closed",
        _ => "unknown",
    }
}

/// Checks that a call's outcome is the one that the step expects.
pub(crate) fn check(
    step: &Value,
    outcome: &Result<Vec<u64>, Error>,
    endpoints: &[String],
) -> Result<(), String> {
    let expected = &step["error"];
    let ids = match outcome {
        Err(error) => {
            let kind = kind(error);
            let fits = expected == kind
                || expected.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind));
            return if fits { check_error(step, error, endpoints) } else { Err(format!("{kind}: {error}")) };
        }
        Ok(ids) => ids,
    };
    if !expected.is_null() {
        return Err(format!("expected the error {expected}, found {} IDs", ids.len()));
    }
    if let Some(wanted) = step["ids"].as_array() {
        let found: Vec<String> = ids.iter().map(u64::to_string).collect();
        if *wanted != found {
            return Err(format!("expected the IDs {wanted:?}, found {found:?}"));
        }
    }
    if step["length"].as_u64().is_some_and(|length| ids.len() as u64 != length) {
        return Err(format!("expected {} IDs, found {}", step["length"], ids.len()));
    }
    let above = step["above"].as_str().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(low) = above.and_then(|above| ids.iter().find(|id| **id <= above)) {
        return Err(format!("expected IDs above {}, found {low}", step["above"]));
    }
    if (step["increasing"] == true || step["do"] == "batch") && !ids.is_sorted_by(|one, next| one < next) {
        return Err("the IDs do not increase".to_owned());
    }
    Ok(())
}

fn check_error(step: &Value, error: &Error, endpoints: &[String]) -> Result<(), String> {
    let text = error.to_string();
    for part in step["mentions"].as_array().into_iter().flatten() {
        let part = named(part.as_str().expect("a text"), endpoints);
        if !text.contains(&part) {
            return Err(format!("expected {part:?} in the message {text:?}"));
        }
    }
    let found_ms = error.retry_after().map_or(0, |wait| wait.as_millis() as u64);
    match step["retry_after_ms"].as_u64() {
        Some(wanted_ms) if wanted_ms != found_ms => Err(format!("retry_after_ms is {found_ms}")),
        _ => Ok(()),
    }
}

/// Replaces `$0` by the address of endpoint 0, and so on.
pub(crate) fn named(text: &str, endpoints: &[String]) -> String {
    endpoints.iter().enumerate().fold(text.to_owned(), |text, (index, endpoint)| {
        let bare = endpoint.trim_start_matches("tls:").trim_start_matches("unix:");
        text.replace(&format!("${index}"), bare)
    })
}
