//! The WELCOME of a shard: what a client must know of the daemon.
//!
//! A shard keeps the bytes, and makes them again when a source's grant, the fleet's answer or the
//! configuration has changed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::thread_state::ThreadState;
use crate::frontends::Greets;
use crate::server::shared::live_config::LiveConfig;
use snowbank_wire::reply::{self, WireIds};
use snowbank_wire::{VERSION, Welcome};

/// The longest time for which a client may keep an ID. IDs that are older no longer sort with the
/// time of their use.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A WELCOME frame, and what it was made from.
#[derive(Debug, Default)]
pub(super) struct Kept {
    made_from: Option<MadeFrom>,
    frame: Vec<u8>,
}

/// Everything that decides the bytes of a WELCOME.
#[derive(Debug, PartialEq, Eq)]
struct MadeFrom {
    version: u64,
    /// For each source, in the order of the file, whether the frame has its claims.
    claimed: Vec<bool>,
}

impl MadeFrom {
    fn read(thread: &ThreadState, config: &LiveConfig) -> MadeFrom {
        // A daemon whose fleet does not answer may have lost its worker IDs to another daemon.
        let is_sure = thread.common.metrics.fleet_answers.load(Ordering::Relaxed);
        let supplies = config.in_order();
        let claimed = supplies.map(|(_, supply)| is_sure && supply.source.grant().is_in_force()).collect();
        MadeFrom { version: config.version, claimed }
    }
}

impl Greets for ThreadState {
    fn welcome(&self, tag: u16, out: &mut Vec<u8>) {
        let config = &*self.live_config.borrow();
        let mut kept = self.welcome.borrow_mut();
        let made_from = MadeFrom::read(self, config);
        if kept.made_from.as_ref() != Some(&made_from) {
            kept.frame.clear();
            encode(&mut kept.frame, config, &made_from.claimed, self.common.metrics.instance.0);
            kept.made_from = Some(made_from);
        }
        let start = out.len();
        out.extend_from_slice(&kept.frame);
        out[start + 6..start + 8].copy_from_slice(&tag.to_le_bytes());
    }
}

/// Encodes a WELCOME with the claims of these sources and tag 0.
fn encode(out: &mut Vec<u8>, config: &LiveConfig, claimed: &[bool], instance: u64) {
    let supplies = config.in_order().zip(claimed).filter(|(_, claimed)| **claimed);
    let mut claims: Vec<u64> = supplies.flat_map(|((_, supply), _)| supply.claims.iter().copied()).collect();
    claims.sort_unstable();
    claims.dedup();
    let bytes: Vec<[u8; 8]> = claims.iter().map(|claim| claim.to_le_bytes()).collect();
    let max_count = config.facts.max_count;
    let claims = WireIds::new(&bytes);
    reply::encode_welcome(
        out,
        0,
        &Welcome { version: VERSION, good_for: GOOD_FOR, max_count, instance, claims },
    );
}
