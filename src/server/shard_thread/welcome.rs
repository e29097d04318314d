//! The WELCOME of a shard: what a client must know of the daemon.
//!
//! A shard keeps the bytes, and makes them again when a source's grant, the fleet's answer or the
//! configuration has changed.

use std::time::Duration;

use crate::server::shared::live_config::LiveConfig;
use snowbank_wire::reply::{self, WireIds};
use snowbank_wire::{VERSION, Welcome};

/// The longest time for which a client may keep an ID. IDs that are older no longer sort with the
/// time of their use.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A WELCOME frame, and what it was made from. The frame is empty before the first WELCOME.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The version of the configuration.
    version: u64,
    /// For each source, in the order of the file, whether the frame has its claims.
    claimed: Vec<bool>,
    frame: Vec<u8>,
}

impl Kept {
    /// Appends the WELCOME of this configuration, with a tag. A daemon whose fleet does not answer
    /// may have lost its worker IDs to another daemon. So `is_sure` is then false, and the WELCOME
    /// has no claims.
    pub(super) fn write(
        &mut self,
        config: &LiveConfig,
        is_sure: bool,
        instance: u64,
        tag: u16,
        out: &mut Vec<u8>,
    ) {
        let supplies = config.in_order();
        let claimed: Vec<bool> =
            supplies.map(|(_, supply)| is_sure && supply.source.grant().is_in_force()).collect();
        if self.frame.is_empty() || self.version != config.version || self.claimed != claimed {
            self.frame.clear();
            encode(&mut self.frame, config, &claimed, instance);
            self.version = config.version;
            self.claimed = claimed;
        }
        let start = out.len();
        out.extend_from_slice(&self.frame);
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
