//! Bytes on the wire of a request and its reply, from docs/protocol.md and the headers of Ethernet, IP and
//! TCP.

use serde::Serialize;

use super::form::Form;

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
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Wire {
    /// Runs of a reply, at most.
    pub(crate) runs: f64,
    /// Bytes of the reply itself.
    pub(crate) reply_bytes: f64,
    /// To the daemon: the request, and the acknowledgement of its reply.
    pub(crate) in_bytes: f64,
    /// From the daemon: the reply, which acknowledges the request.
    pub(crate) out_bytes: f64,
}

impl Wire {
    /// Returns the bytes of a request for `batch` IDs.
    pub(super) fn of(form: &Form, batch: f64) -> Self {
        // A request begins somewhere in a tick, and a run lies in one.
        let runs = 1.0 + form.ids_per_tick().map_or(0.0, |per_tick| ((batch - 1.0) / per_tick as f64).ceil());
        let body = if form.needs_list { batch * ID_BYTES } else { runs * RUN_BYTES };
        let frames = (body / MAX_FRAME_BYTES).ceil().max(1.0);
        let reply_bytes = body + frames * FRAME_BYTES;
        let packets = (reply_bytes / SEGMENT_BYTES).ceil();
        Self {
            runs,
            reply_bytes,
            in_bytes: REQUEST_BYTES + 2.0 * PACKET_OVERHEAD_BYTES,
            out_bytes: reply_bytes + packets * PACKET_OVERHEAD_BYTES,
        }
    }

    /// Returns the bytes of the direction that carries more; a network carries both at once.
    pub(crate) fn busier_bytes(&self) -> f64 {
        self.in_bytes.max(self.out_bytes)
    }
}

#[cfg(test)]
mod tests {
    use snowbank_client::layout::{Layout, Numbering, WorkerSet};

    use super::*;

    fn wire(layout: Option<&str>, batch: f64) -> Wire {
        let numbering = layout.map(|text| {
            let layout = Layout::resolve(text).expect("a layout");
            Numbering::new(layout, WorkerSet::single(0)).expect("worker 0")
        });
        let needs_list = numbering.as_ref().is_some_and(Numbering::needs_list);
        let form =
            Form { numbering, worker_ids_each: 1, largest_request: 1, other_layout: false, needs_list };
        Wire::of(&form, batch)
    }

    #[test]
    fn a_lone_id_is_one_run_of_24_bytes() {
        let wire = wire(Some("twitter"), 1.0);
        assert_eq!((wire.runs, wire.reply_bytes), (1.0, 24.0));
        assert_eq!((wire.in_bytes, wire.out_bytes), (236.0, 134.0));
    }

    #[test]
    fn a_batch_may_straddle_ticks() {
        assert_eq!(wire(Some("twitter"), 100.0).runs, 2.0);
        assert_eq!(wire(Some("twitter"), 10_000.0).runs, 4.0);
        assert_eq!(wire(None, 1_000.0).runs, 1.0, "a counter has no ticks");
    }

    #[test]
    fn where_each_id_goes_over_the_wire_it_is_8_bytes() {
        let layout = "time:41,worker:10,sequence:8,tail:4:random";
        let wire = wire(Some(layout), 1_000.0);
        assert_eq!(wire.reply_bytes, 8_008.0);
        assert_eq!(wire.out_bytes, 8_008.0 + 6.0 * 110.0);
    }
}
