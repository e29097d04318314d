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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeFrom {
    version: u64,
    /// A bit for each source whose claims the frame has. A daemon has at most 64 sources.
    claimed: u64,
}

impl MadeFrom {
    fn read(thread: &ThreadState, config: &LiveConfig) -> MadeFrom {
        // A daemon whose fleet does not answer may have lost its worker IDs to another daemon.
        let is_sure = thread.common.metrics.fleet_answers.load(Ordering::Relaxed);
        let supplies = config.in_order();
        let in_force = supplies.filter(|(_, supply)| is_sure && supply.source.grant().is_in_force());
        let claimed = in_force.map(|(index, _)| 1 << index).sum();
        MadeFrom { version: config.version, claimed }
    }
}

impl Greets for ThreadState {
    fn welcome(&self, tag: u16, out: &mut Vec<u8>) {
        let config = &*self.live_config.borrow();
        let mut kept = self.welcome.borrow_mut();
        let made_from = MadeFrom::read(self, config);
        if kept.made_from != Some(made_from) {
            kept.made_from = Some(made_from);
            kept.frame.clear();
            encode(&mut kept.frame, config, made_from.claimed, self.common.metrics.instance.0);
        }
        let start = out.len();
        out.extend_from_slice(&kept.frame);
        out[start + 6..start + 8].copy_from_slice(&tag.to_le_bytes());
    }
}

/// Encodes a WELCOME with the claims of these sources and tag 0.
fn encode(out: &mut Vec<u8>, config: &LiveConfig, claimed: u64, instance: u64) {
    let supplies = config.in_order().filter(|(index, _)| claimed >> index & 1 == 1);
    let mut claims: Vec<u64> = supplies.flat_map(|(_, supply)| supply.claims.iter().copied()).collect();
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
