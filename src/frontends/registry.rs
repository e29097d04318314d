//! The registry of front ends: all that the rest of the daemon knows of a protocol follows from its
//! row in `frontends.rs`.

use super::{FrontEnd, FrontEndSettings, Protocol};

/// The parts of a front end that the daemon's log, its options and its acceptor use.
pub(crate) struct About {
    /// A client of the protocol, in the log: `a Redis client`.
    pub(crate) client: &'static str,
    /// Its listener, in the log: `a listener for clients of Redis`.
    pub(crate) listener: &'static str,
    /// The address for a client of the protocol that came to another listener.
    pub(crate) address: &'static str,
    /// The help of the option for its addresses. `None` for Snowbank's own protocol, which has
    /// `--listen`.
    pub(crate) option_help: Option<&'static str>,
    /// The exemption of a protocol that has no place for a token. Unless it is set, a configuration
    /// that requires tokens may not have listeners of the protocol. `None`: its clients show
    /// tokens.
    pub(crate) token_exemption: Option<TokenExemption>,
    /// Returns true for the first bytes of its clients, on a listener of the given protocol.
    pub(crate) recognises: fn(&[u8], Protocol) -> bool,
    /// Encodes the refusal of a connection above the daemon's limit. Encodes nothing if the
    /// protocol has no message for refusals.
    pub(crate) refuse_connection: fn(&mut Vec<u8>, &str),
}

/// The setting by which clients of a protocol need no token although others do.
pub(crate) struct TokenExemption {
    /// The setting, as an operator writes it.
    pub(crate) line: &'static str,
    /// Returns true if it is set.
    pub(crate) is_set: fn(&FrontEndSettings) -> bool,
}

/// Work that is done with the type of a front end.
pub(crate) trait WithFrontEnd {
    /// Does the work.
    fn call<F: FrontEnd + 'static>(self);
}

/// Defines the front ends, one for each row: the protocol's name and module, and its settings.
macro_rules! front_ends {
    ($($(#[$meta:meta])* $protocol:ident in $section:ident, $settings:ident;)*) => {
        pub use native::Native;
        $(pub use $section::{$protocol, $settings};)*

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

            /// Returns its name, for metrics, inherited sockets and its section.
            pub fn name(self) -> &'static str {
                match self {
                    Protocol::Native => "native",
                    $(Protocol::$protocol => stringify!($section),)*
                }
            }

            /// Returns the key of the setting with its addresses.
            pub fn listen_key(self) -> &'static str {
                match self {
                    Protocol::Native => "listen",
                    $(Protocol::$protocol => concat!(stringify!($section), ".listen"),)*
                }
            }

            /// Returns true if clients of the protocol can show a token. Clients of protocols
            /// without tokens need none.
            pub(crate) fn has_tokens(self) -> bool {
                self.about().token_exemption.is_none()
            }

            /// Returns what the daemon knows of its front end.
            pub(crate) fn about(self) -> &'static About {
                match self {
                    Protocol::Native => &native::ABOUT,
                    $(Protocol::$protocol => &$section::ABOUT,)*
                }
            }

            /// Does work with the type of its front end.
            pub(crate) fn with(self, work: impl WithFrontEnd) {
                match self {
                    Protocol::Native => work.call::<Native>(),
                    $(Protocol::$protocol => work.call::<$protocol>(),)*
                }
            }
        }

        /// The sections of the front ends.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct FrontEndSettings {
            $(
                #[doc = concat!("The section `[", stringify!($section), "]`.")]
                pub $section: $settings,
            )*
        }

        impl FrontEndSettings {
            pub(crate) const ROWS: [&'static [Row]; PROTOCOLS - 1] = [$($settings::ROWS,)*];
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

pub(crate) use front_ends;
