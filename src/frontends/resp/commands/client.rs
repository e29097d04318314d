//! HELLO and CLIENT: the version, the identity and the name of a connection.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::frontends::Conditions;
use crate::frontends::redis_info::REDIS_VERSION;
use crate::frontends::resp::encode::{self, Version};
use crate::frontends::resp::error_reply::{Refused, shown};
use crate::frontends::resp::{Reply, Resp, parse};
use snowbank_wire::ErrorCode;

const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
     AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

/// The number that the next connection gets when it asks for its number.
static NEXT_CLIENT_ID: AtomicU64 = AtomicU64::new(1);

/// The most bytes of a connection's name. Clients send their program's name.
const NAME_OF_CLIENT_BYTES_MAX: usize = 256;

/// Returns true for CLIENT REPLY OFF and CLIENT REPLY SKIP.
pub(super) fn leaves_out_replies(operands: &[&[u8]]) -> bool {
    let [reply, mode, ..] = operands else { return false };
    reply.eq_ignore_ascii_case(b"reply") && !mode.eq_ignore_ascii_case(b"on")
}

impl Resp {
    /// Answers HELLO [version [AUTH user token] [SETNAME name]].
    pub(super) fn hello(
        &mut self,
        operands: &[&[u8]],
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply, Refused> {
        let mut version = self.version;
        let mut rest = operands;
        if let [wanted, options @ ..] = operands {
            version = match parse::number(wanted) {
                Some(2) => Version::Two,
                Some(3) => Version::Three,
                Some(_) => return Err(Refused::malformed("NOPROTO unsupported protocol version")),
                None => {
                    let text = "ERR Protocol version is not an integer or out of range";
                    return Err(Refused::malformed(text));
                }
            };
            rest = options;
        }
        let mut name = None;
        let mut shown_token = None;
        while let [option, options @ ..] = rest {
            rest = match options {
                [_user, token, options @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    shown_token = Some(*token);
                    options
                }
                [wanted, options @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    name = Some(*wanted);
                    options
                }
                _ => {
                    let text = format!("ERR Syntax error in HELLO option '{}'", shown(option));
                    return Err(Refused::malformed(text));
                }
            };
        }
        if shown_token.is_none() && !conditions.session.is_authorized() {
            return Err(Refused::new(ErrorCode::Unauthorized, HELLO_NOAUTH));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        if let Some(token) = shown_token {
            self.show_token(token, conditions)?;
        }
        self.version = version;
        self.greet(out);
        Ok(Reply::Encoded(None))
    }

    /// Encodes the reply to HELLO.
    fn greet(&mut self, out: &mut Vec<u8>) {
        encode::map(out, self.version, 7);
        encode::pairs(out, &[("server", "redis"), ("version", REDIS_VERSION)]);
        encode::bulk(out, b"proto");
        encode::integer(out, self.version as u64);
        encode::bulk(out, b"id");
        encode::integer(out, self.client_id());
        encode::pairs(out, &[("mode", "standalone"), ("role", "master")]);
        encode::bulk(out, b"modules");
        encode::array(out, 0);
    }

    /// Answers CLIENT SETINFO, SETNAME, GETNAME and ID.
    pub(super) fn client(&mut self, operands: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Refused> {
        let known = ["id", "getname", "setname", "setinfo"];
        let name = known.into_iter().find(|name| operands[0].eq_ignore_ascii_case(name.as_bytes()));
        match (name, &operands[1..]) {
            (Some("id"), []) => encode::integer(out, self.client_id()),
            (Some("getname"), []) => match &self.name {
                Some(name) => encode::bulk(out, name),
                None => encode::null(out, self.version),
            },
            (Some("setname"), [name]) => {
                self.set_name(name)?;
                encode::simple(out, "OK");
            }
            (Some("setinfo"), [attribute, value]) => {
                let is_name = attribute.eq_ignore_ascii_case(b"lib-name");
                if !is_name && !attribute.eq_ignore_ascii_case(b"lib-ver") {
                    let text = format!("ERR Unrecognized option '{}'", shown(attribute));
                    return Err(Refused::malformed(text));
                }
                check_text(value, if is_name { "lib-name" } else { "lib-ver" })?;
                if is_name {
                    self.announced.set_library(value);
                }
                encode::simple(out, "OK");
            }
            (Some(name), _) => {
                let text = format!("ERR wrong number of arguments for 'client|{name}' command");
                return Err(Refused::malformed(text));
            }
            (None, _) => return Err(Refused::unknown_subcommand(operands[0])),
        }
        Ok(())
    }

    /// Gives the connection a name.
    fn set_name(&mut self, name: &[u8]) -> Result<(), Refused> {
        if name.len() > NAME_OF_CLIENT_BYTES_MAX {
            let found = name.len();
            let text =
                format!("ERR found a client name of {found} bytes, allowed: {NAME_OF_CLIENT_BYTES_MAX}");
            return Err(Refused::malformed(text));
        }
        check_text(name, "Client names")?;
        self.name = (!name.is_empty()).then(|| name.into());
        Ok(())
    }

    fn client_id(&mut self) -> u64 {
        *self.id.get_or_insert_with(|| NEXT_CLIENT_ID.fetch_add(1, Ordering::Relaxed))
    }
}

/// Checks that a text is one word of printable ASCII, as in Redis. `what` names it in the refusal.
fn check_text(text: &[u8], what: &str) -> Result<(), Refused> {
    if text.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
    Err(Refused::malformed(text))
}
