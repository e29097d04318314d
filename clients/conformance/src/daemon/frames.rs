//! The bytes of replies, which may break the protocol.

use snowbank_testkit::wire::{bytes_of_hex, frame};

use crate::case::{Code, ErrorSpec, FrameSpec, WelcomeSpec};

const RUNS: u8 = 0x81;
const LIST: u8 = 0x82;
const INFO: u8 = 0x83;
const PONG: u8 = 0x84;
const WELCOME: u8 = 0x85;
const ERROR: u8 = 0xFF;

/// The actions of errors.
const TELL: u8 = 0;
const STAY: u8 = 1;
const LEAVE: u8 = 2;

/// The names of codes from 1 on, with the action that the page gives to each.
const CODES: [(&str, u8); 10] = [
    ("malformed", TELL),
    ("unsupported", TELL),
    ("bad_count", TELL),
    ("unknown_source", TELL),
    ("unauthorized", TELL),
    ("exhausted", STAY),
    ("clock_behind", LEAVE),
    ("no_ceiling", LEAVE),
    ("shutting_down", LEAVE),
    ("too_busy", LEAVE),
];

/// A tag that no client of the suite uses: clients count tags up from a small number.
const STRANGE_TAG: u16 = 0xEEEE;

pub(super) fn error(tag: u16, name: &str, message: &str) -> Vec<u8> {
    let spec = ErrorSpec {
        code: Code::Name(name.to_owned()),
        action: None,
        retry_after_ms: 0,
        message: message.to_owned(),
    };
    scripted_error(tag, &spec).expect("a known name")
}

fn scripted_error(tag: u16, spec: &ErrorSpec) -> Result<Vec<u8>, String> {
    let (code, action) = match &spec.code {
        Code::Number(number) => (*number, TELL),
        Code::Name(name) => {
            let at = CODES.iter().position(|(one, _)| one == name);
            let at = at.ok_or_else(|| format!("there is no error {name}"))?;
            (at as u16 + 1, CODES[at].1)
        }
    };
    let mut body = code.to_le_bytes().to_vec();
    body.extend([spec.action.unwrap_or(action), 0]);
    body.extend(spec.retry_after_ms.to_le_bytes());
    body.extend(spec.message.as_bytes());
    Ok(frame(ERROR, 0, tag, &body))
}

/// Returns a WELCOME. `instance` and `claim` are those of an ordinary daemon.
pub(super) fn welcome(tag: u16, spec: &WelcomeSpec, instance: u64, claim: u64) -> Vec<u8> {
    let mut body = vec![spec.version.unwrap_or(1), 0];
    body.extend(spec.good_for_ms.unwrap_or(60_000).to_le_bytes());
    body.extend(spec.max_count.unwrap_or(1_000_000).to_le_bytes());
    body.extend(spec.instance.unwrap_or(instance).to_le_bytes());
    let claims = match spec.claim_count {
        Some(count) => (1..=count).collect(),
        None => spec.claims.clone().unwrap_or_else(|| vec![claim]),
    };
    body.extend(claims.iter().flat_map(|claim| claim.to_le_bytes()));
    frame(WELCOME, 0, tag, &body)
}

pub(super) fn pong(tag: u16, body: &[u8]) -> Vec<u8> {
    frame(PONG, 0, tag, body)
}

pub(super) fn info(tag: u16, body: &[u8]) -> Vec<u8> {
    frame(INFO, 0, tag, body)
}

pub(super) fn list(tag: u16, more: bool, ids: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    frame(LIST, u8::from(more), tag, &body)
}

pub(super) fn runs(tag: u16, more: bool, runs: &[[u64; 3]]) -> Vec<u8> {
    let mut body = Vec::new();
    for [first, count, stride] in runs {
        body.extend(first.to_le_bytes());
        body.extend((*count as u32).to_le_bytes());
        body.extend((*stride as u32).to_le_bytes());
    }
    frame(RUNS, u8::from(more), tag, &body)
}

/// Returns the bytes of a script's frame. `ordinary` encodes a WELCOME with the members that the
/// script leaves out.
pub(super) fn scripted(
    spec: &FrameSpec,
    tag: u16,
    ordinary: &dyn Fn(u16, &WelcomeSpec) -> Vec<u8>,
) -> Result<Vec<u8>, String> {
    Ok(match spec {
        FrameSpec::Runs(specs) => runs(tag, false, specs),
        FrameSpec::RunsMore(specs) => runs(tag, true, specs),
        FrameSpec::List(ids) => list(tag, false, ids),
        FrameSpec::ListMore(ids) => list(tag, true, ids),
        FrameSpec::Error(spec) => scripted_error(tag, spec)?,
        FrameSpec::Welcome(spec) => ordinary(tag, spec),
        FrameSpec::WrongTag(inside) => scripted(inside, STRANGE_TAG, ordinary)?,
        FrameSpec::Untagged(inside) => scripted(inside, 0, ordinary)?,
        FrameSpec::Bytes(hex) => {
            let [low, high] = tag.to_le_bytes();
            bytes_of_hex(&hex.replace("TTTT", &format!("{low:02x}{high:02x}")))
        }
    })
}
