//! The protocols that clients speak, and the settings of their front ends. The front ends themselves
//! are in [`frontends`](crate::frontends).

use super::Settings;
use super::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Row, Section::Table};
use super::units::{Written, quoted, word};
use snowbank_wire::address::Address;

/// Defines the protocols. Each row has a protocol, its section, the type of its settings, and the
/// help text of the command-line option for its addresses.
macro_rules! protocols {
    ($($(#[$meta:meta])* $protocol:ident in $section:ident, $settings:ident, $help:literal;)*) => {
        /// A protocol that clients speak.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            /// Snowbank's own.
            Native,
            $($(#[$meta])* $protocol,)*
        }

        /// The number of protocols.
        pub const PROTOCOLS: usize = 1 $(+ { let _ = Protocol::$protocol; 1 })*;

        impl Protocol {
            /// Every protocol, in the order of their numbers.
            pub const ALL: [Protocol; PROTOCOLS] = [Protocol::Native, $(Protocol::$protocol,)*];

            /// Returns the protocol's name in metrics, inherited sockets and the configuration.
            pub fn name(self) -> &'static str {
                match self {
                    Protocol::Native => "native",
                    $(Protocol::$protocol => stringify!($section),)*
                }
            }

            /// Returns the key of the setting with the protocol's addresses.
            pub fn listen_key(self) -> &'static str {
                match self {
                    Protocol::Native => "listen",
                    $(Protocol::$protocol => concat!(stringify!($section), ".listen"),)*
                }
            }

            /// Returns the help text of the option for the addresses of a front end. `None` for
            /// Snowbank's own protocol, whose option is `--listen`.
            pub(super) fn option_help(self) -> Option<&'static str> {
                match self {
                    Protocol::Native => None,
                    $(Protocol::$protocol => Some($help),)*
                }
            }
        }

        /// The settings of the front ends, by section.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct FrontEndSettings {
            $(
                #[doc = concat!("The section `[", stringify!($section), "]`.")]
                pub $section: $settings,
            )*
        }

        impl FrontEndSettings {
            pub(super) const ROWS: [&'static [Row]; PROTOCOLS - 1] = [$($settings::ROWS,)*];
        }

        impl Settings {
            /// Returns the addresses where clients connect, by protocol.
            pub fn listeners(&self) -> [(Protocol, &[Address]); PROTOCOLS] {
                [
                    (Protocol::Native, &self.listen),
                    $((Protocol::$protocol, &self.front_ends.$section.listen),)*
                ]
            }
        }
    };
}

protocols! {
    /// Redis' protocol, versions 2 and 3.
    Resp in resp, RespSettings,
        "Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere";
    /// memcached's protocol as katsubushi speaks it.
    Memcached in memcached, MemcachedSettings,
        "Listen for clients of memcached and katsubushi (addresses as for Redis); by default nowhere";
    /// noeqd's protocol.
    Noeqd in noeqd, NoeqdSettings,
        "Listen for clients of noeqd (addresses as for Redis); by default nowhere";
    /// HTTP, version 1.1.
    Http in http, HttpSettings,
        "Listen for clients of HTTP (addresses as for Redis); by default nowhere";
}

impl Protocol {
    /// Returns the setting that exempts a protocol without a place for a token. Unless the exemption
    /// is set, a configuration that requires tokens may not have listeners of the protocol.
    pub(super) fn token_exemption(self) -> Option<&'static str> {
        (self == Protocol::Memcached).then_some("memcached.tokens = false")
    }

    /// Returns true if clients of the protocol can show a token. Clients of protocols without
    /// tokens need none.
    pub(crate) fn has_tokens(self) -> bool {
        self.token_exemption().is_none()
    }
}

impl FrontEndSettings {
    /// Returns true if these settings have the exemption of this protocol.
    pub(super) fn exempt(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Memcached && !self.memcached.tokens
    }
}

/// The form of IDs in replies to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Replies {
    /// RESP integers for clients that are known to read all 64 bits, bulk strings for all others.
    Auto,
    /// RESP integers, as Redis' own.
    Integer,
    /// Bulk strings.
    String,
}

impl Written for Replies {
    fn written(&self) -> String {
        quoted(word(*self))
    }
}

settings! {
    /// The front end for clients of Redis.
    pub struct RespSettings in Table("resp"), at |settings, _index| (settings.front_ends.resp) {
        /// The addresses where clients of Redis connect, as in listen: INCR with a source's name as
        /// key draws an ID. The rules for worker_ids, TLS, tokens and limits apply here too. Empty:
        /// none.
        listen: Vec<Address> = r#""""#, Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// The form of INCR's reply: "integer", as in Redis, "string", or "auto". SNOWBANK.NEXT
        /// always replies with strings.
        ///
        /// JavaScript and Lua read integers above 2^53 inexactly, so that two IDs become one. With
        /// "auto", clients get integers if they announce a library that is known to read all 64
        /// bits, or send inline commands. All others get strings. If a client without a name can
        /// read only integers, choose "integer", unless others read them inexactly.
        replies: Replies = r#""auto""#, Reload, |value| value.variant();
    }
}

settings! {
    /// The front end for clients of memcached.
    pub struct MemcachedSettings in Table("memcached"), at |settings, _index| (settings.front_ends.memcached) {
        /// The addresses where clients of memcached and katsubushi connect, as in listen: each key
        /// of a get draws an ID, from the source of that name, or of the name before a colon, or
        /// else from any_key, or the first. Empty: none.
        listen: Vec<Address> = r#""""#, Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// Requires tokens here too if auth.token_file is set. The protocol cannot carry a token,
        /// so the daemon then refuses to start with this front end. With false it starts, and
        /// everyone who can connect draws IDs.
        tokens: bool = "true", Reload, |value| value.boolean();
    }
}

settings! {
    /// The front end for clients of noeqd.
    pub struct NoeqdSettings in Table("noeqd"), at |settings, _index| (settings.front_ends.noeqd) {
        /// The addresses where clients of noeqd connect, as in listen. A request is one byte, the
        /// number of IDs, which are from the first source. Empty: none.
        listen: Vec<Address> = r#""""#, Restart(LISTENERS_OPENED), |value| value.front_end_addresses();
    }
}

settings! {
    /// The front end for clients of HTTP.
    pub struct HttpSettings in Table("http"), at |settings, _index| (settings.front_ends.http) {
        /// The addresses where clients of HTTP draw IDs, as in listen: GET /v1/ids, and the paths
        /// of katsubushi and Leaf. A request that names no source draws from the first. Empty:
        /// none.
        listen: Vec<Address> = r#""""#, Restart(LISTENERS_OPENED), |value| value.front_end_addresses();
    }
}
