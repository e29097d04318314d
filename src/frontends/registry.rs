//! The registry of front ends: what the rest of the daemon knows of every protocol follows from its
//! row in `frontends.rs`.

use super::{FrontEnd, FrontEndSettings, Protocol};

/// The parts of a front end that the rest of the daemon uses.
pub(crate) struct About {
    /// A client of the protocol, in messages: `a Redis client`.
    pub(crate) client: &'static str,
    /// A listener of the protocol, in messages: `a listener for clients of Redis`.
    pub(crate) listener: &'static str,
    /// The address that a client of the protocol should have, if it came to another listener.
    pub(crate) address: &'static str,
    /// The help text of the command-line option for the protocol's addresses. `None` for Snowbank's
    /// own protocol, whose option is `--listen`.
    pub(crate) option_help: Option<&'static str>,
    /// The exemption of a protocol that has no place for a token. Unless the exemption is set, a
    /// configuration that requires tokens may not have listeners of the protocol. `None`: clients
    /// of the protocol can show tokens.
    pub(crate) token_exemption: Option<TokenExemption>,
    /// Returns true if a client that sends these first bytes to a listener of the given protocol
    /// speaks this protocol.
    pub(crate) recognises: fn(&[u8], Protocol) -> bool,
    /// Encodes the refusal of a connection above the daemon's connection limit. Encodes nothing if
    /// the protocol has no message for refusals.
    pub(crate) refuse_connection: fn(&mut Vec<u8>, &str),
}

/// The setting by which clients of a protocol need no token although others do.
pub(crate) struct TokenExemption {
    /// The setting, as an operator writes it.
    pub(crate) line: &'static str,
    /// Returns true if these settings have the exemption.
    pub(crate) is_set: fn(&FrontEndSettings) -> bool,
}

/// Work that needs the type of a front end.
pub(crate) trait WithFrontEnd {
    /// Does the work.
    fn call<F: FrontEnd + 'static>(self);
}

/// Defines the front ends. Each row has a protocol, its module and the type of its settings.
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

            /// Returns true if clients of the protocol can show a token. Clients of protocols
            /// without tokens need none.
            pub(crate) fn has_tokens(self) -> bool {
                self.about().token_exemption.is_none()
            }

            /// Returns what the daemon knows of the protocol.
            pub(crate) fn about(self) -> &'static About {
                match self {
                    Protocol::Native => &native::ABOUT,
                    $(Protocol::$protocol => &$section::ABOUT,)*
                }
            }

            /// Does work with the type of the protocol's front end.
            pub(crate) fn with(self, work: impl WithFrontEnd) {
                match self {
                    Protocol::Native => work.call::<Native>(),
                    $(Protocol::$protocol => work.call::<$protocol>(),)*
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
