//! MULTI, EXEC and DISCARD: the client sends requests one by one, and EXEC answers all of them.
//!
//! Transactions are not isolated from other clients. IDs need no isolation, because each request
//! draws its own IDs.

use super::error_reply::Refused;
use super::parse::{self, Arguments};
use super::{Form, Reply, Resp, commands, encode, step_of};
use crate::frontends::{Conditions, MESSAGE_BYTES_MAX, Step};

/// The most bytes of queued requests. Equal requests in a row count once. So there is room for
/// billions of INCRs of one source.
const QUEUED_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Requests that are queued until EXEC, and then answered one by one.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The requests, as they arrived. Equal requests in a row are stored once.
    bytes: Vec<u8>,
    /// The size of each request in `bytes`, and how often it is still to be answered.
    repeats: Vec<(u32, u32)>,
    /// The next request of an EXEC: its index in `repeats`, and its start in `bytes`.
    index: usize,
    at: usize,
    /// True if a request was refused. EXEC is then refused, too.
    has_failed: bool,
}

impl Transaction {
    /// Queues a request. Returns false if there is no room.
    fn push(&mut self, request: &[u8]) -> bool {
        if let Some((size, times)) = self.repeats.last_mut()
            && self.bytes[self.bytes.len() - *size as usize..] == *request
        {
            *times = times.saturating_add(1);
            return *times < u32::MAX;
        }
        let has_room = self.kept_bytes() + request.len() + size_of::<(u32, u32)>() <= QUEUED_BYTES_MAX;
        if has_room {
            self.bytes.extend_from_slice(request);
            self.repeats.push((request.len() as u32, 1));
        }
        has_room
    }

    /// Returns the bytes that the queued requests take.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.len() + self.repeats.len() * size_of::<(u32, u32)>()
    }

    /// Returns the number of queued requests.
    fn count(&self) -> u64 {
        self.repeats.iter().map(|&(_, times)| u64::from(times)).sum()
    }

    /// Takes the next request. Returns `None` after the last one.
    fn next(&mut self) -> Option<&[u8]> {
        let (size, times) = self.repeats.get_mut(self.index)?;
        let request = self.at..self.at + *size as usize;
        *times -= 1;
        if *times == 0 {
            self.at = request.end;
            self.index += 1;
        }
        Some(&self.bytes[request])
    }

    /// Returns whether every request was taken.
    fn is_over(&self) -> bool {
        self.index == self.repeats.len()
    }
}

impl Resp {
    /// Answers the next request of an EXEC.
    pub(super) fn execute(&mut self, conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        // `executing` is `None` once the last request is taken.
        let Some(mut executing) = self.executing.take() else { return Step::Incomplete };
        let mut arguments = Arguments::NONE;
        let reply = match executing.next().map(|request| parse::parse(request, &mut arguments)) {
            Some(Ok(size)) => {
                self.executed_bytes += size;
                self.answer(&arguments, conditions, out)
            }
            _ => unreachable!("only whole requests are queued, and the last one ends the execution"),
        };
        let reply = match reply {
            // The connection closes only after the transaction's other requests have their replies.
            Reply::Last(error) if !executing.is_over() => Reply::Encoded(error),
            reply => reply,
        };
        if !executing.is_over() {
            self.executing = Some(executing);
        }
        step_of(reply, 0)
    }

    /// Queues a request that follows MULTI, or answers a request that is not queued, such as EXEC.
    #[cold]
    pub(super) fn queue(
        &mut self,
        arguments: &Arguments<'_>,
        request: &[u8],
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Reply {
        if arguments.count() == 0 || commands::is_answered_at_once(arguments) {
            let reply = self.answer_any(arguments, conditions, out);
            // A wrong number of arguments fails the transaction, as in Redis, and that of EXEC ends it.
            // A nested MULTI is refused, but the transaction continues.
            if let (Reply::Encoded(Some(_)), Some(transaction)) = (&reply, &mut self.transaction)
                && arguments.count() > 1
            {
                transaction.has_failed = true;
                self.transaction.take_if(|_| commands::is_exec(arguments));
            }
            return reply;
        }
        let Some(transaction) = self.transaction.as_mut() else {
            unreachable!("there is a transaction");
        };
        let refused = match commands::check_queueable(arguments, conditions.session.is_authorized()) {
            Ok(()) if transaction.push(request) => {
                encode::simple(out, "QUEUED");
                return Reply::Encoded(None);
            }
            Ok(()) => Refused::malformed(format!(
                "ERR the requests since MULTI have more than {QUEUED_BYTES_MAX} bytes; send them in several transactions, \
                 or in none"
            )),
            Err(refused) => refused,
        };
        transaction.has_failed = true;
        refused.encode(out)
    }

    pub(super) fn multi(&mut self, out: &mut Vec<u8>) -> Result<(), Refused> {
        if self.transaction.is_some() {
            return Err(Refused::malformed("ERR MULTI calls can not be nested"));
        }
        self.transaction = Some(Box::default());
        encode::simple(out, "OK");
        Ok(())
    }

    pub(super) fn exec(&mut self, out: &mut Vec<u8>) -> Result<(), Refused> {
        let transaction =
            self.transaction.take().ok_or_else(|| Refused::malformed("ERR EXEC without MULTI"))?;
        if transaction.has_failed {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return Err(Refused::malformed(text));
        }
        let count = transaction.count();
        encode::array(out, count);
        if count > 0 {
            self.executing = Some(transaction);
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, out: &mut Vec<u8>) -> Result<(), Refused> {
        if self.transaction.take().is_none() {
            return Err(Refused::malformed("ERR DISCARD without MULTI"));
        }
        encode::simple(out, "OK");
        Ok(())
    }
}
