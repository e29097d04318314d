//! The front end for noeqd's protocol. A request is one byte, the number of IDs. Each ID is eight
//! bytes, big-endian.
//!
//! The protocol has no errors, so a refusal closes the connection, as noeqd itself does.

use super::refusals::Words;
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, Step, foreign};
use crate::access::NO_TOKEN;
use crate::config::Protocol;
use snowbank_wire::ErrorCode;

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a noeqd client",
    listener: "a listener for clients of noeqd",
    address: "an address of [noeqd]",
    // Any byte may come first.
    recognises: |_, _| false,
    // The protocol has no message for refusals.
    refuse_connection: |_, _| {},
};

/// The log's reason for refusing a request for zero IDs.
const NO_COUNT: &str =
    "a count of 0, or a token that is not required; give the client no token, or set auth.token_file";

/// The state of the protocol on one connection.
#[derive(Debug, Default)]
pub struct Noeqd {
    /// The number of requests for IDs so far.
    requests: usize,
    /// True once a first request or a handshake has come from a client of this protocol.
    has_begun: bool,
    was_refused: bool,
}

impl Noeqd {
    /// The cost of a request apart from its byte. A request takes about as long as a request of 16
    /// bytes in Snowbank's own protocol.
    const REQUEST_COST_BYTES: usize = 15;

    /// Takes the handshake: 0, the size of the token, and the token.
    fn shake_hands(bytes: &[u8], conditions: &mut Conditions<'_>) -> Step<()> {
        let (size, rest) = match bytes {
            [] | [0] => return Step::Incomplete,
            [0, size, rest @ ..] => (usize::from(*size), rest),
            _ => {
                let reason = foreign_reason(bytes).unwrap_or_else(|| NO_TOKEN.to_owned());
                conditions.rejection = Some(reason);
                return Step::Close { error: Some(ErrorCode::Unauthorized) };
            }
        };
        let Some(token) = rest.get(..size) else { return Step::Incomplete };
        if conditions.show_token(token).is_err() {
            return Step::Close { error: Some(ErrorCode::Unauthorized) };
        }
        Step::Answered { consumed: 2 + size, error: None }
    }
}

/// Returns true for the first bytes of another protocol's client. Only words, TLS and PROXY differ
/// from counts: the latter two begin with a zero early on, and no client asks for zero IDs.
pub(super) fn is_foreign(bytes: &[u8]) -> bool {
    if let [0x16, 0x03, 0x00..=0x04, _, _, 1, 0, ..] | [b'\r', b'\n', b'\r', b'\n', 0, ..] = bytes {
        return true;
    }
    let Some(first) = bytes.first_chunk::<4>() else { return false };
    first.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b' ')
        && foreign::known(first, Protocol::Noeqd).is_some()
}

/// Returns the reason for the log if these are the first bytes of another protocol's client.
fn foreign_reason(bytes: &[u8]) -> Option<String> {
    is_foreign(bytes).then(|| foreign::describe(bytes, Protocol::Noeqd))
}

impl FrontEnd for Noeqd {
    const PROTOCOL: Protocol = Protocol::Noeqd;

    type Form = ();

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, _out: &mut Vec<u8>) -> Step<()> {
        let facts = conditions.facts;
        if self.was_refused {
            return Step::Close { error: None };
        }
        if !conditions.session.is_authorized() {
            let step = Self::shake_hands(bytes, conditions);
            self.has_begun = matches!(step, Step::Answered { .. });
            return step;
        }
        let Some(&count) = bytes.first() else { return Step::Incomplete };
        if !self.has_begun && is_foreign(bytes) {
            conditions.rejection = foreign_reason(bytes);
            return Step::Close { error: Some(ErrorCode::Malformed) };
        }
        self.has_begun = true;
        if conditions.draining {
            return Step::Close { error: Some(ErrorCode::ShuttingDown) };
        }
        if count == 0 || u32::from(count) > facts.max_count {
            conditions.rejection = (count == 0).then(|| String::from(NO_COUNT));
            return Step::Close { error: Some(ErrorCode::BadCount) };
        }
        self.requests += 1;
        Step::Ids { consumed: 1, ask: Ask::new(facts.first, count.into()), form: () }
    }

    fn has_kept_requests(&self) -> bool {
        self.was_refused
    }

    fn extra_cost_bytes(&self) -> usize {
        self.requests * Noeqd::REQUEST_COST_BYTES
    }

    fn demand(&self, bytes: &[u8], source: usize, facts: &Facts) -> u64 {
        if source == facts.first { bytes.iter().map(|&count| u64::from(count)).sum() } else { 0 }
    }

    #[inline]
    fn frame_limit(&self, _form: (), _needs_list: bool) -> FrameLimit {
        FrameLimit { runs: usize::MAX, ids: u64::MAX }
    }

    #[inline]
    fn encode_ids(&mut self, out: &mut Vec<u8>, _form: (), ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        ids.ids(rng).for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
    }

    /// Encodes nothing: the protocol has no errors.
    fn farewell(&mut self, _out: &mut Vec<u8>, _words: &Words) {}

    fn refuse(&mut self, _out: &mut Vec<u8>, _form: (), _words: &Words) {
        self.was_refused = true;
    }
}
