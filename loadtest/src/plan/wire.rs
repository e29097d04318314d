//! Bytes on the wire of a request and its reply, from docs/protocol.md and the headers of Ethernet, IP and
//! TCP.

use snowbank_client::layout::Numbering;

/// A NEXT request: length, kind, flags and tag, then count, source and wait.
const REQUEST_BYTES: f64 = 8.0 + 8.0;

/// The bytes of a reply's frame before its runs.
const FRAME_BYTES: f64 = 8.0;

/// A run: first, count, stride.
const RUN_BYTES: f64 = 16.0;

/// An ID where each goes over the wire.
const ID_BYTES: f64 = 8.0;

/// The largest reply frame, its length field not counted.
const MAX_FRAME_BYTES: f64 = 65_536.0;

/// The bytes that each packet adds: Ethernet with preamble, checksum and gap 38, IPv6 40, TCP with timestamps
/// 32.
const PACKET_OVERHEAD_BYTES: f64 = 38.0 + 40.0 + 32.0;

/// The bytes of a stream in a packet, with the usual 1,500 bytes to a frame.
const SEGMENT_BYTES: f64 = 1_500.0 - 40.0 - 32.0;

/// A request and its reply on the wire, each in packets of its own: the cost of a lone request. Several
/// requests in flight on a connection share packets and cost less.
#[derive(Debug)]
pub(super) struct Wire {
    /// To the daemon: the request, and the acknowledgement of its reply.
    pub(super) in_bytes: f64,
    /// From the daemon: the reply, which acknowledges the request.
    pub(super) out_bytes: f64,
}

impl Wire {
    /// Returns the bytes of a request for `batch` IDs.
    pub(super) fn of(numbering: Option<&Numbering>, batch: f64) -> Self {
        // A request begins somewhere in a tick, and a run lies in one.
        let per_tick = numbering.map(|numbering| numbering.layout().ids_per_tick() as f64);
        let runs = 1.0 + per_tick.map_or(0.0, |per_tick| ((batch - 1.0) / per_tick).ceil());
        let needs_list = numbering.is_some_and(Numbering::needs_list);
        let body = if needs_list { batch * ID_BYTES } else { runs * RUN_BYTES };
        let reply_bytes = body + (body / MAX_FRAME_BYTES).ceil().max(1.0) * FRAME_BYTES;
        let packets = (reply_bytes / SEGMENT_BYTES).ceil();
        Self {
            in_bytes: REQUEST_BYTES + 2.0 * PACKET_OVERHEAD_BYTES,
            out_bytes: reply_bytes + packets * PACKET_OVERHEAD_BYTES,
        }
    }

    /// Returns the bytes of the direction that carries more; a network carries both at once.
    pub(super) fn busier_bytes(&self) -> f64 {
        self.in_bytes.max(self.out_bytes)
    }
}

#[cfg(test)]
mod tests {
    use snowbank_client::layout::{Layout, WorkerSet};

    use super::*;

    fn out_bytes(layout: Option<&str>, batch: f64) -> f64 {
        let numbering = layout.map(|text| {
            let layout = Layout::resolve(text).expect("a layout");
            Numbering::new(layout, WorkerSet::single(0)).expect("worker 0")
        });
        Wire::of(numbering.as_ref(), batch).out_bytes
    }

    #[test]
    fn a_reply_has_a_run_for_each_tick_that_it_may_touch() {
        let of_runs = |runs: f64| 8.0 + 16.0 * runs + 110.0;
        assert_eq!(out_bytes(Some("twitter"), 1.0), of_runs(1.0));
        assert_eq!(out_bytes(Some("twitter"), 100.0), of_runs(2.0));
        assert_eq!(out_bytes(Some("twitter"), 10_000.0), of_runs(4.0));
        assert_eq!(out_bytes(None, 1_000.0), of_runs(1.0), "a counter has no ticks");
    }

    #[test]
    fn where_each_id_goes_over_the_wire_it_is_8_bytes() {
        let layout = "time:41,worker:10,sequence:8,tail:4:random";
        assert_eq!(out_bytes(Some(layout), 1_000.0), 8_008.0 + 6.0 * 110.0);
    }
}
