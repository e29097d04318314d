//! Redis. All keys of a fleet are fields of one hash, so that they are evicted, restored and lost together.
//!
//! A write is a script that compares and swaps. A key's version is a hash of its text, so it stays right whatever a
//! failover restores. A master acknowledges writes before its replicas have them, so a failover may lose the last ones. A
//! write therefore counts when a replica has it, if any is connected. `rules` and `keeper` cover the remaining losses as
//! far as possible.

mod resp;
mod session;

use self::resp::Reply;
use self::session::Session;
use super::line::{Access, Fault, Line};
use super::{Cluster, Coordinator, NoAnswer, Stored, Swap, Swapped, Version};

/// Returns for each field its version and text, or nothing.
const READ: &str = "local all = {} \
    for i, field in ipairs(ARGV) do \
      local text = redis.call('HGET', KEYS[1], field) \
      all[i] = text and {string.sub(redis.sha1hex(text), 1, 15), text} \
    end \
    return all";

/// Returns for each field with the prefix its name, version and text.
const LIST: &str = "local all, found = redis.call('HGETALL', KEYS[1]), {} \
    for i = 1, #all, 2 do \
      if string.sub(all[i], 1, #ARGV[1]) == ARGV[1] then \
        found[#found + 1] = {all[i], string.sub(redis.sha1hex(all[i + 1]), 1, 15), all[i + 1]} \
      end \
    end \
    return found";

/// Takes for each field its expected version and new text. Returns the hash of the new text (all fields get the same one)
/// as a status, or the fields as they are.
const SWAP: &str = "local all, fits = {}, true \
    for i = 1, #ARGV, 3 do \
      local text = redis.call('HGET', KEYS[1], ARGV[i]) \
      local version = text and string.sub(redis.sha1hex(text), 1, 15) or '' \
      fits = fits and version == ARGV[i + 1] \
      all[#all + 1] = text and {version, text} \
    end \
    if not fits then return all end \
    for i = 1, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end \
    return {ok = redis.sha1hex(ARGV[3])}";

/// The digits of a version: 60 bits, which the scripts carry as text.
const VERSION_DIGITS: usize = 15;

/// A client of Redis. Its calls block.
pub(super) struct Redis(Line<Session>);

impl Redis {
    /// Makes a client. It connects at its first call.
    ///
    /// # Errors
    /// The system has no reactor left.
    pub(super) fn new(access: Access) -> std::io::Result<Self> {
        Line::new(access).map(Redis)
    }
}

fn evaluation<'a>(script: &'a str, hash: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["EVAL", script, "1", hash], arguments].concat()
}

/// Splits a key into the hash of its fleet, `/snowbank/NAME`, and the field.
fn split(key: &str) -> (&str, &str) {
    let end = key.match_indices('/').nth(2).map_or(key.len(), |(at, _)| at);
    (&key[..end], key.get(end + 1..).unwrap_or_default())
}

fn garbled() -> Fault {
    Fault::Endpoint(String::from("its answer is not the script's"))
}

fn items(reply: Reply) -> Result<Vec<Reply>, Fault> {
    if let Reply::List(items) = reply { Ok(items) } else { Err(garbled()) }
}

/// Reads a version and a text.
fn stored(version: &Reply, text: &Reply) -> Option<Stored> {
    let digits = version.text()?.get(..VERSION_DIGITS)?;
    let version = Version(u64::from_str_radix(digits, 16).ok()?);
    Some(Stored { version, text: text.text()?.to_owned() })
}

/// Reads the fields that a script returns.
fn values(replies: &[Reply]) -> Result<Vec<Option<Stored>>, Fault> {
    let value = |reply: &Reply| match reply {
        Reply::Nothing => Ok(None),
        Reply::List(items) => match &items[..] {
            [version, text] => stored(version, text).map(Some).ok_or_else(garbled),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    };
    replies.iter().map(value).collect()
}

fn entry(reply: &Reply) -> Option<(&str, Stored)> {
    let [field, version, text] = reply.list()? else { return None };
    Some((field.text()?, stored(version, text)?))
}

/// Reads keys of one fleet, in their order.
async fn read(session: &mut Session, keys: &[&str]) -> Result<Vec<Option<Stored>>, Fault> {
    let Some(first) = keys.first() else { return Ok(Vec::new()) };
    let fields: Vec<&str> = keys.iter().map(|key| split(key).1).collect();
    values(&items(session.ask(&evaluation(READ, split(first).0, &fields)).await?)?)
}

impl Coordinator for Redis {
    fn hurry(&mut self) {
        self.0.patience.hurry();
    }

    fn connections(&self) -> u64 {
        self.0.opened
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<Stored>>, NoAnswer> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.0.call(async |session| read(session, &keys).await)
    }

    fn read_at_each(&mut self, key: &str) -> Vec<(String, Option<Stored>)> {
        let found = self.0.call_each(async |session| read(session, &[key]).await);
        found.into_iter().map(|(endpoint, values)| (endpoint, values.into_iter().next().flatten())).collect()
    }

    fn stay_in(&mut self, cluster: Cluster) {
        self.0.stay_in(cluster);
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, Stored)>, NoAnswer> {
        let (hash, field) = split(prefix);
        let request = evaluation(LIST, hash, &[field]);
        let entries = self.0.call(async |session| items(session.ask(&request).await?))?;
        let named = |(field, stored): (&str, Stored)| (format!("{hash}/{field}"), stored);
        Ok(entries.iter().filter_map(|reply| entry(reply).map(named)).collect())
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let Some(first) = swaps.first() else { return Ok(Swapped::Refused(Vec::new())) };
        let version = |Version(version)| format!("{version:0VERSION_DIGITS$x}");
        let expected: Vec<String> =
            swaps.iter().map(|swap| swap.expected.map(version).unwrap_or_default()).collect();
        let arguments: Vec<&str> = (swaps.iter().zip(&expected))
            .flat_map(|(swap, expected)| [split(&swap.key).1, expected, &swap.text])
            .collect();
        let request = evaluation(SWAP, split(&first.key).0, &arguments);
        let swapped = self.0.call(async |session| match session.ask(&request).await? {
            Reply::List(found) => Ok(Some(Swapped::Refused(values(&found)?))),
            done => {
                let written = stored(&done, &Reply::Text(String::new())).ok_or_else(garbled)?;
                Ok(session.is_replicated().await?.then_some(Swapped::Done(written.version)))
            }
        })?;
        swapped.ok_or_else(|| NoAnswer::passing("no replica of Redis has the write yet"))
    }

    fn may_lose_writes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_fleet_are_fields_of_one_hash() {
        assert_eq!(split("/snowbank/a/space-0/5"), ("/snowbank/a", "space-0/5"));
        assert_eq!(split("/snowbank/a/space-0/"), ("/snowbank/a", "space-0/"));
        assert_eq!(split("/snowbank/a"), ("/snowbank/a", ""));
    }

    #[test]
    fn answers_of_scripts_are_read_back() {
        let text = |text: &str| Reply::Text(text.to_owned());
        let value = Reply::List(vec![text("00000000000000a"), text("x")]);
        let known = Stored { version: Version(10), text: String::from("x") };
        assert_eq!(values(&[value.clone(), Reply::Nothing]), Ok(vec![Some(known), None]));
        for garbled in
            [text("x"), Reply::Number(1), Reply::List(vec![text("1"), text("x")]), Reply::List(vec![])]
        {
            assert!(values(&[value.clone(), garbled]).is_err());
        }
    }
}
