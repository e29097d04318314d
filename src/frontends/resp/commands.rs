//! The commands: their names and arities, and the answers to those that need no IDs.

mod client;

use super::error_reply::{NO_INTEGER, Refused};
use super::parse::{self, Arguments};
use super::{Form, Reply, Resp, encode, ids};
use crate::config::Protocol;
use crate::frontends::{Conditions, Step, foreign};
use snowbank_wire::ErrorCode;

/// The commands: name in lower case, the fewest and the most arguments without the name.
const COMMANDS: [(&str, usize, usize); 27] = [
    ("incr", 1, 1),
    ("incrby", 2, 2),
    ("get", 1, 1),
    ("setnx", 2, 2),
    ("set", 2, usize::MAX),
    ("exists", 1, parse::ARGUMENTS_READ - 1),
    ("ttl", 1, 1),
    ("pttl", 1, 1),
    ("expire", 2, 3),
    ("pexpire", 2, 3),
    ("persist", 1, 1),
    ("snowbank.next", 0, 5),
    ("multi", 0, 0),
    ("exec", 0, 0),
    ("discard", 0, 0),
    ("hello", 0, usize::MAX),
    ("auth", 1, 2),
    ("client", 1, usize::MAX),
    ("select", 1, 1),
    ("info", 0, usize::MAX),
    ("command", 0, usize::MAX),
    ("config", 1, usize::MAX),
    ("ping", 0, 1),
    ("echo", 1, 1),
    ("time", 0, 0),
    ("reset", 0, 0),
    ("quit", 0, usize::MAX),
];

/// Redis' error for a client that has not sent a token.
const NOAUTH: &str = "NOAUTH Authentication required.";
const NOT_IN_TRANSACTION: &str = "ERR Command not allowed inside a transaction";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Returns true for commands that are answered at once even after MULTI.
pub(super) fn is_answered_at_once(arguments: &Arguments<'_>) -> bool {
    let at_once = ["multi", "exec", "discard", "reset", "quit"];
    let name = arguments.get().first().copied().unwrap_or_default();
    at_once.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

pub(super) fn is_exec(arguments: &Arguments<'_>) -> bool {
    arguments.get().first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec"))
}

/// Checks that a transaction can queue a request.
pub(super) fn check_queueable(arguments: &Arguments<'_>, is_authorized: bool) -> Result<(), Refused> {
    match name_of(arguments, is_authorized)? {
        _ if !is_authorized => Err(Refused::new(ErrorCode::Unauthorized, NOAUTH)),
        "hello" | "auth" => Err(Refused::malformed(NOT_IN_TRANSACTION)),
        "client" if client::leaves_out_replies(&arguments.get()[1..]) => {
            Err(Refused::malformed(NOT_IN_TRANSACTION))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a request's command, as in [`COMMANDS`].
///
/// # Errors
/// The command is unknown, or has too few or too many arguments.
fn name_of(arguments: &Arguments<'_>, is_authorized: bool) -> Result<&'static str, Refused> {
    let found = arguments.get().first().copied().unwrap_or_default();
    let mut commands = COMMANDS.iter();
    let Some((name, fewest, most)) = commands.find(|(name, ..)| found.eq_ignore_ascii_case(name.as_bytes()))
    else {
        return Err(Refused::unknown_command(arguments, is_authorized));
    };
    if !(*fewest..=*most).contains(&(arguments.count() - 1)) {
        let code = if *name == "exec" { "EXECABORT Transaction discarded because of:" } else { "ERR" };
        let text = format!("{code} wrong number of arguments for '{name}' command");
        return Err(Refused::malformed(text));
    }
    Ok(name)
}

/// Returns true if an inline command is a request of another known protocol, such as HTTP.
#[cold]
pub(super) fn is_foreign(command: &[u8]) -> bool {
    foreign::known(command, Protocol::Resp).is_some()
}

impl Resp {
    /// Answers any request.
    #[cold]
    #[inline(never)]
    pub(super) fn answer_any(
        &mut self,
        arguments: &Arguments<'_>,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Reply {
        self.try_answer(arguments, conditions, out).unwrap_or_else(|refused| refused.encode(out))
    }

    /// Answers any request, or returns its refusal.
    fn try_answer(
        &mut self,
        arguments: &Arguments<'_>,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply, Refused> {
        let [_, operands @ ..] = arguments.get() else { return Ok(Reply::Encoded(None)) };
        match name_of(arguments, conditions.session.is_authorized())? {
            "hello" => return self.hello(operands, conditions, out),
            "auth" => {
                self.show_token(operands.last().copied().unwrap_or_default(), conditions)?;
                encode::simple(out, "OK");
            }
            // The client would take the next reply for one that it has asked to leave out.
            "client" if client::leaves_out_replies(operands) => {
                let text = "CLIENT REPLY OFF and SKIP are not known here: read each reply";
                encode::error(out, &format!("ERR {text}"));
                conditions.rejection = Some(text.to_owned());
                return Ok(Reply::Last(Some(ErrorCode::Unsupported)));
            }
            "quit" => {
                encode::simple(out, "OK");
                return Ok(Reply::Last(None));
            }
            "reset" => {
                // RESET keeps the library's name, as in Redis.
                let announced = std::mem::take(&mut self.announced);
                let Resp { id, is_denied, executed_bytes, .. } = *self;
                *self = Resp { id, announced, is_denied, executed_bytes, ..Resp::default() };
                conditions.session.forget_token(&conditions.facts.access);
                encode::simple(out, "RESET");
            }
            _ if !conditions.session.is_authorized() => {
                return Err(Refused::new(ErrorCode::Unauthorized, NOAUTH));
            }
            "incr" | "incrby" | "snowbank.next" if conditions.draining => {
                return Ok(ids::refuse_stopping(out));
            }
            "incr" => {
                return ids::incr(operands[0], conditions, &mut self.announced);
            }
            "incrby" => {
                return ids::incrby(operands, conditions, &mut self.announced, out);
            }
            name @ ("get" | "setnx") => ids::get(name, operands[0], conditions, self.version, out)?,
            "set" => {
                let has =
                    |option: &[u8]| operands[2..].iter().any(|found| found.eq_ignore_ascii_case(option));
                if !has(b"nx") {
                    return Err(Refused::unknown_command(arguments, true));
                }
                let name = if has(b"get") { "get" } else { "set" };
                ids::get(name, operands[0], conditions, self.version, out)?;
            }
            // Counters of libraries ask whether a key is there, and let it expire. No source expires.
            "exists" => {
                let sources = operands.iter().filter(|key| conditions.facts.source_of_key(key).is_some());
                encode::integer(out, sources.count() as u64);
            }
            "ttl" | "pttl" => {
                let is_source = conditions.facts.source_of_key(operands[0]).is_some();
                out.extend_from_slice(if is_source { b":-1\r\n" } else { b":-2\r\n" });
            }
            name @ ("expire" | "pexpire" | "persist") => {
                if name != "persist" && parse::number(operands[1]).is_none() {
                    return Err(Refused::malformed(NO_INTEGER));
                }
                encode::integer(out, 0);
            }
            "snowbank.next" => return ids::snowbank_next(operands, conditions.facts),
            name => self.answer_about_connection(name, operands, conditions, out)?,
        }
        Ok(Reply::Encoded(None))
    }

    /// Takes the token of AUTH or HELLO. The user's name is ignored, because the token decides the
    /// identity. After a wrong token no other is looked at.
    fn show_token(&mut self, token: &[u8], conditions: &mut Conditions<'_>) -> Result<(), Refused> {
        if self.is_denied || conditions.show_token(token).is_err() {
            self.is_denied = true;
            conditions.session.forget_token(&conditions.facts.access);
            return Err(Refused::denied(WRONGPASS));
        }
        Ok(())
    }

    /// Refuses the request behind a wrong token. It is never granted, but the client awaits a reply.
    #[cold]
    pub(super) fn answer_denied(
        &mut self,
        bytes: &[u8],
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let before = out.len();
        match self.take(bytes, conditions, out) {
            Step::Answered { consumed, .. } => {
                if self.executing.take().is_some() {
                    // A reload has ended the need of a token since the wrong one.
                    out.truncate(before);
                    encode::error(out, NOAUTH);
                }
                Step::Denied { consumed }
            }
            Step::Ids { consumed, .. } => {
                // A reload has just ended the need of a token.
                encode::error(out, NOAUTH);
                Step::Denied { consumed }
            }
            step => {
                // The reason of the close is counted already.
                conditions.rejection = None;
                step
            }
        }
    }

    /// Answers requests that concern the connection or the server.
    fn answer_about_connection(
        &mut self,
        name: &str,
        operands: &[&[u8]],
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        match name {
            "multi" => self.multi(out)?,
            "exec" => self.exec(out)?,
            "discard" => self.discard(out)?,
            "client" => self.client(operands, out)?,
            // COMMAND lists no commands, because no client needs to know their arities.
            "command" => match operands.first() {
                None => encode::array(out, 0),
                Some(count) if count.eq_ignore_ascii_case(b"count") => encode::integer(out, 0),
                Some(docs) if docs.eq_ignore_ascii_case(b"docs") => encode::map(out, self.version, 0),
                Some(other) => return Err(Refused::unknown_subcommand(other)),
            },
            "config" => self.config(operands, out)?,
            "select" => match parse::number(operands[0]) {
                Some(0) => encode::simple(out, "OK"),
                Some(_) => return Err(Refused::malformed("ERR DB index is out of range")),
                None => return Err(Refused::malformed(NO_INTEGER)),
            },
            "ping" if operands.is_empty() => encode::simple(out, "PONG"),
            "ping" | "echo" => encode::bulk(out, operands[0]),
            "time" => {
                let micros = conditions.wall.0.max(0).unsigned_abs();
                encode::array(out, 2);
                encode::bulk_numbers(out, [micros / 1_000_000, micros % 1_000_000].into_iter());
            }
            // The only command that is left: INFO.
            _ => encode::verbatim(out, self.version, &conditions.facts.redis_info),
        }
        Ok(())
    }

    /// Answers CONFIG GET for the settings that redis-benchmark prints. Snowbank has no other
    /// settings of Redis.
    fn config(&mut self, operands: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Refused> {
        let names = &operands[1..];
        if !operands[0].eq_ignore_ascii_case(b"get") || names.is_empty() {
            return Err(Refused::unknown_subcommand(operands[0]));
        }
        let mut found = vec![("save", ""), ("appendonly", "no")];
        found.retain(|(key, _)| names.iter().any(|name| name.eq_ignore_ascii_case(key.as_bytes())));
        encode::map(out, self.version, found.len() as u64);
        encode::pairs(out, &found);
        Ok(())
    }
}
