//! Encodes requests in the protocol of a target.

use std::sync::Arc;

use snowbank_client::protocol::request::{self, Next, Wait};

use crate::frontend::FrontEnd;

/// The protocol of a target.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// Snowbank's own protocol.
    Native,
    /// Another one.
    FrontEnd(Arc<dyn FrontEnd>),
    /// The same bytes as Snowbank's; each comes back.
    Echo,
}

/// The size of a request, and of its echo.
pub(super) const ECHO_SIZE: usize = 16;

impl Wire {
    /// Appends a request.
    pub(super) fn encode(&self, out: &mut Vec<u8>, tag: u16, source: u16, count: u32) {
        match self {
            Self::Native | Self::Echo => {
                let next = Next { count, source, wait: Wait::DEFAULT, explicit: false, partial: false };
                request::encode_next(out, tag, &next);
            }
            Self::FrontEnd(front_end) => front_end.ask(out, count),
        }
    }
}
