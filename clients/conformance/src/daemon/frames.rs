//! The bytes of a script's replies, which may break the protocol.

use snowbank_client::protocol::ErrorCode;
use snowbank_testkit::wire::{bytes_of_hex, frame};

use crate::case::{Code, ErrorSpec, FrameSpec};

const RUNS: u8 = 0x81;
const LIST: u8 = 0x82;
const ERROR: u8 = 0xFF;

/// The test vectors of docs/protocol.md for replies.
const VECTORS: &str = include_str!("../../../../tests/vectors/replies.txt");

/// A tag that no client of the suite uses: clients count tags up from a small number.
const STRANGE_TAG: u16 = 0xEEEE;

fn error(tag: u16, code: u16, retry_after_ms: u32, message: &str) -> Vec<u8> {
    let mut body = code.to_le_bytes().to_vec();
    body.extend([0; 2]);
    body.extend(retry_after_ms.to_le_bytes());
    body.extend(message.as_bytes());
    frame(ERROR, 0, tag, &body)
}

fn list(tag: u16, more: bool, ids: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    frame(LIST, u8::from(more), tag, &body)
}

fn runs(tag: u16, more: bool, runs: &[[u64; 3]]) -> Vec<u8> {
    let mut body = Vec::new();
    for [first, count, stride] in runs {
        body.extend(first.to_le_bytes());
        body.extend((*count as u32).to_le_bytes());
        body.extend((*stride as u32).to_le_bytes());
    }
    frame(RUNS, u8::from(more), tag, &body)
}

/// Returns the bytes of a script's frame.
pub(super) fn scripted(spec: &FrameSpec, tag: u16) -> Result<Vec<u8>, String> {
    Ok(match spec {
        FrameSpec::Runs(specs) => runs(tag, false, specs),
        FrameSpec::RunsMore(specs) => runs(tag, true, specs),
        FrameSpec::List(ids) => list(tag, false, ids),
        FrameSpec::ListMore(ids) => list(tag, true, ids),
        FrameSpec::Error(ErrorSpec { code, retry_after_ms, message }) => {
            error(tag, number(code)?, *retry_after_ms, message)
        }
        FrameSpec::Vector(name) => vector(name, tag)?,
        FrameSpec::WrongTag(inside) => scripted(inside, STRANGE_TAG)?,
        FrameSpec::Untagged(inside) => scripted(inside, 0)?,
        FrameSpec::Bytes(hex) => bytes_of_hex(hex),
    })
}

fn number(code: &Code) -> Result<u16, String> {
    match code {
        Code::Number(number) => Ok(*number),
        Code::Name(name) => ErrorCode::ALL
            .into_iter()
            .find(|code| code.name() == name)
            .map(ErrorCode::to_u16)
            .ok_or_else(|| format!("there is no error {name}")),
    }
}

/// Returns the reply that has this name in [`VECTORS`], with this tag.
fn vector(name: &str, tag: u16) -> Result<Vec<u8>, String> {
    let line = VECTORS.lines().find(|line| line.split(" | ").next() == Some(name));
    let hex = line.and_then(|line| line.split(" | ").nth(2)).ok_or(format!("there is no vector {name}"))?;
    let mut bytes = bytes_of_hex(hex);
    bytes[6..8].copy_from_slice(&tag.to_le_bytes());
    Ok(bytes)
}
