//! The doors: listeners for protocols that existing clients speak, each with a section of its own.
//!
//! A new door is a row of `doors!` and its section, an option in `overrides`, and its front-end in [`front`](crate::front).

use super::Settings;
use super::setting::{Change::Reload, Change::Restart, Section::Table};
use snowbank_client::address::Address;

/// The reason why a door's addresses change only at a restart.
const OPENED: &str = "listeners are opened at the start";

/// Defines the protocols: Snowbank's own, and one for each door.
macro_rules! doors {
    ($($(#[$meta:meta])* $protocol:ident in $section:ident ($($of_source:ident),*);)*) => {
        /// A protocol that clients speak.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            /// Snowbank's own.
            Native,
            $($(#[$meta])* $protocol,)*
        }

        impl Protocol {
            /// Every protocol, in the order of their numbers.
            pub const ALL: [Protocol; PROTOCOLS] = [Protocol::Native, $(Protocol::$protocol,)*];

            /// Returns its name: in metrics, of inherited sockets, and of a door's section.
            pub fn name(self) -> &'static str {
                match self {
                    Protocol::Native => "native",
                    $(Protocol::$protocol => stringify!($section),)*
                }
            }

            /// Returns the key of its addresses.
            pub fn listen_key(self) -> &'static str {
                match self {
                    Protocol::Native => "listen",
                    $(Protocol::$protocol => concat!(stringify!($section), ".listen"),)*
                }
            }
        }

        /// The number of protocols.
        pub const PROTOCOLS: usize = 1 $(+ { let _ = Protocol::$protocol; 1 })*;

        impl Settings {
            /// Returns the doors.
            pub fn doors(&self) -> [Door<'_>; PROTOCOLS - 1] {
                [$({
                    let mut door = Door { protocol: Protocol::$protocol, source: None, any_key: None };
                    $(door.$of_source = self.$section.$of_source.as_deref();)*
                    door
                },)*]
            }

            /// Returns the addresses where clients connect, by protocol.
            pub fn listeners(&self) -> [(Protocol, &[Address]); PROTOCOLS] {
                [(Protocol::Native, &self.listen), $((Protocol::$protocol, &self.$section.listen),)*]
            }

            /// Returns the addresses where clients connect, by protocol, to change them.
            pub(super) fn listeners_mut(&mut self) -> [(Protocol, &mut Vec<Address>); PROTOCOLS] {
                [(Protocol::Native, &mut self.listen), $((Protocol::$protocol, &mut self.$section.listen),)*]
            }
        }
    };
}

doors! {
    /// Redis' protocol, versions 2 and 3.
    Resp in resp (source, any_key);
    /// memcached's protocol as katsubushi speaks it.
    Memcached in memcached (source, any_key);
    /// noeqd's protocol.
    Noeqd in noeqd (source);
    /// HTTP, version 1.1.
    Http in http (source, any_key);
}

impl Settings {
    /// Returns every address where clients connect.
    pub fn client_addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners().into_iter().flat_map(|(_, addresses)| addresses)
    }
}

/// The sources that a door's clients draw from, by name.
#[derive(Clone, Copy, Debug)]
pub struct Door<'s> {
    /// Its protocol.
    pub protocol: Protocol,
    /// The source of a request that names none; `None`: the first.
    pub source: Option<&'s str>,
    /// The source of a request that names an unknown one. `None`: such requests are refused, but memcached's door answers
    /// them with IDs of `source`.
    pub any_key: Option<&'s str>,
}

/// The use of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For clients that speak this protocol.
    Clients(Protocol),
    /// HTTP, for the operator.
    Admin,
}

impl Purpose {
    /// Returns the use of a socket of this name. Any other name is that of Snowbank's own protocol, because systemd's
    /// default is the name of the socket's unit.
    pub fn of_socket(name: &str) -> Purpose {
        if name == "admin" {
            return Purpose::Admin;
        }
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        Purpose::Clients(known.unwrap_or(Protocol::Native))
    }
}

/// The form of IDs in replies to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// RESP integers, as Redis' own.
    Integer,
    /// Bulk strings.
    String,
}

impl Replies {
    const ALL: [Replies; 2] = [Replies::Integer, Replies::String];

    /// Returns the name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Replies::Integer => "integer",
            Replies::String => "string",
        }
    }
}

settings! {
    /// The door for clients of Redis.
    pub struct RespSettings at (resp) {
        /// The addresses where clients of Redis connect, as in listen: INCR with a source's name as key draws an ID. The
        /// rules for worker_ids, TLS, tokens and limits apply here too. Empty: none.
        listen: Vec<Address> = r#""""# in Table("resp"), Restart(OPENED), |value| value.door_addresses();

        /// The source that SNOWBANK.NEXT draws from if it names none. Empty: the first.
        source: Option<String> = r#""""# in Table("resp"), Reload, |value| value.source();

        /// The source that any other key draws from. Empty: a key that is no source's name is refused.
        ///
        /// A misspelt key should not draw from another source. Set it for tools whose key cannot be chosen, such as
        /// redis-benchmark.
        any_key: Option<String> = r#""""# in Table("resp"), Reload, |value| value.source();

        /// The form of INCR's reply: "integer", as in Redis, or "string". SNOWBANK.NEXT always replies with strings.
        ///
        /// JavaScript's clients read integers above 2^53 inexactly, so that two IDs become one: choose "string" for them.
        replies: Replies = r#""integer""# in Table("resp"), Reload,
            |value| value.choice(&Replies::ALL.map(|choice| (choice.name(), choice)));
    }
}

settings! {
    /// The door for clients of memcached.
    pub struct MemcachedSettings at (memcached) {
        /// The addresses where clients of memcached and katsubushi connect, as in listen: each key of a get draws an ID,
        /// from the source of that name, or else from any_key's or memcached.source. Empty: none.
        listen: Vec<Address> = r#""""# in Table("memcached"), Restart(OPENED), |value| value.door_addresses();

        /// The source of every key that is no source's name. Empty: the first.
        source: Option<String> = r#""""# in Table("memcached"), Reload, |value| value.source();

        /// The same as memcached.source, under the name that the other doors have for it. It applies if both are
        /// set. Empty: memcached.source, because clients of katsubushi send any key.
        any_key: Option<String> = r#""""# in Table("memcached"), Reload, |value| value.source();

        /// Requires tokens here too if auth.token_file is set. The protocol cannot carry a token, so the daemon then
        /// refuses to start with this door. With false it starts, and everyone who can connect draws IDs.
        tokens: bool = "true" in Table("memcached"), Reload, |value| value.boolean();
    }
}

settings! {
    /// The door for clients of noeqd.
    pub struct NoeqdSettings at (noeqd) {
        /// The addresses where clients of noeqd connect, as in listen. A request is one byte, the number of IDs.
        /// Empty: none.
        listen: Vec<Address> = r#""""# in Table("noeqd"), Restart(OPENED), |value| value.door_addresses();

        /// The source of all requests. Empty: the first.
        source: Option<String> = r#""""# in Table("noeqd"), Reload, |value| value.source();
    }
}

settings! {
    /// The door for clients of HTTP.
    pub struct HttpSettings at (http) {
        /// The addresses where clients of HTTP draw IDs, as in listen: GET /v1/ids, and the paths of katsubushi and Leaf.
        /// Empty: none.
        listen: Vec<Address> = r#""""# in Table("http"), Restart(OPENED), |value| value.door_addresses();

        /// The source of requests that name none. Empty: the first.
        source: Option<String> = r#""""# in Table("http"), Reload, |value| value.source();

        /// The source that every other key of Leaf's paths draws from. Empty: a key that is no source's name is refused, as
        /// it always is in /v1/ids.
        any_key: Option<String> = r#""""# in Table("http"), Reload, |value| value.source();
    }
}
