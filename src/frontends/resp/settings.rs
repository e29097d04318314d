//! The settings of the front end.

use crate::config::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_client::address::Address;

/// The form of IDs in replies to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Replies {
    /// Bulk strings for clients that announce themselves as a library for JavaScript, integers for
    /// all others.
    Auto,
    /// RESP integers, as Redis' own.
    Integer,
    /// Bulk strings.
    String,
}

settings! {
    /// The front end for clients of Redis.
    pub struct RespSettings at |settings, _index| (settings.front_ends.resp) {
        /// The addresses where clients of Redis connect, as in listen: INCR with a source's name as
        /// key draws an ID. The rules for worker_ids, TLS, tokens and limits apply here too. Empty:
        /// none.
        listen: Vec<Address> = r#""""# in Table("resp"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// The form of INCR's reply: "integer", as in Redis, "string", or "auto". SNOWBANK.NEXT
        /// always replies with strings.
        ///
        /// JavaScript reads integers above 2^53 inexactly, so that two IDs become one. With "auto",
        /// clients that announce themselves as ioredis or node-redis get strings, and all others
        /// integers. ioredis before 5.8 and node-redis before 4.6.11 do not announce themselves:
        /// choose "string" for them.
        replies: Replies = r#""auto""# in Table("resp"), Reload, |value| value.variant();
    }
}
