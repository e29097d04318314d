//! Random layouts. The size of a field is given in bits, in decimal digits or as a number of
//! values. Node, sequence and constant have any order, and ticks last from 1 ms to a day.

use snowbank_id::layout::{Layout, UnixMicros};

/// The lengths of ticks, in milliseconds.
const TICKS_MS: [u64; 9] = [1, 2, 5, 10, 100, 1_000, 60_000, 3_600_000, 86_400_000];

/// Sizes of the node field: each holds worker IDs 0 to 5.
const NODES: [&str; 5] = ["3", "10", "1d", "3d", "=6"];

/// Sizes of the sequence with few IDs in a tick, for layouts with short ticks only.
const SCARCE: [&str; 4] = ["2", "8", "1d", "=7"];
/// Sizes of the sequence for ticks of any length.
const PLENTY: [&str; 4] = ["12", "3d", "=1000", "=5000"];
/// The longest tick with a scarce sequence, in milliseconds.
const SCARCE_TICK_MAX_MS: u64 = 10;

/// Constant fields that a layout may also have, in any place.
const OTHERS: [&str; 3] = ["region:3:constant(5)", "zone:1d:constant(7)", "spare:1:constant(0)"];

/// The least age of a layout's epoch: 400 days.
const LEAST_AGE_MS: i64 = 400 * 86_400_000;

/// Draws a layout whose epoch is before `now`, and whose life ends more than a minute after `now`.
pub(crate) fn random(rng: &mut fastrand::Rng, now: UnixMicros) -> Layout {
    loop {
        let text = text(rng, now);
        if let Ok(layout) = Layout::resolve(&text)
            && layout.end().0 > now.0 + 60_000_000
        {
            return layout;
        }
    }
}

fn text(rng: &mut fastrand::Rng, now: UnixMicros) -> String {
    let one_of = |rng: &mut fastrand::Rng, sizes: &[&'static str]| sizes[rng.usize(..sizes.len())];
    let tick_ms = TICKS_MS[rng.usize(..TICKS_MS.len())];
    let is_scarce = tick_ms <= SCARCE_TICK_MAX_MS && rng.bool();
    let sequence = one_of(rng, if is_scarce { &SCARCE } else { &PLENTY });
    let mut fields = vec![format!("worker:{}", one_of(rng, &NODES)), format!("sequence:{sequence}")];
    if rng.u8(..3) == 0 {
        fields.push(one_of(rng, &OTHERS).to_owned());
    }
    rng.shuffle(&mut fields);
    // A random field must be below the sequence and the node, or order would break.
    if rng.u8(..4) == 0 {
        fields.push(one_of(rng, &["table:2d:random", "suffix:5:random"]).to_owned());
    }
    let time = if rng.bool() { rng.u8(10..=45).to_string() } else { format!("{}d", rng.u8(4..=14)) };
    // The epoch is so old that no step back reaches it.
    let epoch_ms = rng.i64(0..now.0 / 1_000 - LEAST_AGE_MS);
    format!("time:{time},{};tick={tick_ms}ms;epoch={epoch_ms}", fields.join(","))
}
