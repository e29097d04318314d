//! The parameters of a request.

use std::borrow::Cow;
use std::fmt::Display;

use super::reply::Reply;
use crate::frontends::Facts;
use snowbank_id::format::{Codec, Context, Format};
use snowbank_id::layout::UnixMicros;
use snowbank_wire::ErrorCode;

/// The parameters of a query, each at most once and with an allowed name.
#[derive(Debug)]
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Decodes a query.
    ///
    /// # Errors
    /// A refusal that names a parameter which is not in `allowed`, or occurs twice.
    pub(super) fn parse(text: &'a str, allowed: &[&str]) -> Result<Self, Reply> {
        let mut query = Query(Vec::new());
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !allowed.contains(&&*name) {
                let all = if allowed.is_empty() { String::from("none") } else { allowed.join(", ") };
                return Err(malformed(format_args!("found the parameter {name:?}, allowed: {all}")));
            }
            if query.get(&name).is_some() {
                return Err(malformed(format_args!("found the parameter {name} twice, allowed: once")));
            }
            query.0.push((name, value));
        }
        Ok(query)
    }

    /// Decodes a query as katsubushi and Leaf do: unknown parameters are ignored, and the first of
    /// several with the same name counts.
    pub(super) fn lenient(text: &'a str) -> Self {
        Query(form_urlencoded::parse(text.as_bytes()).collect())
    }

    /// Returns the value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a parameter that must be there.
    pub(super) fn require(&self, name: &str) -> Result<&str, Reply> {
        self.get(name).ok_or_else(|| malformed(format_args!("missing required parameter {name}")))
    }

    /// Returns the instant that a parameter names. The parameter must be there.
    pub(super) fn instant(&self, name: &str) -> Result<UnixMicros, Reply> {
        // The `+` of an offset from UTC means a blank in a query.
        let text = self.require(name)?;
        let text = if text.contains('T') { text.replace(' ', "+") } else { text.to_owned() };
        UnixMicros::read(&text).map_err(|error| malformed(format_args!("{name}: {error}")))
    }

    /// Returns the count of IDs that a parameter asks for; 1 if the parameter is not there.
    pub(super) fn count(&self, name: &str, max_count: u32) -> Result<u64, Reply> {
        let Some(text) = self.get(name) else { return Ok(1) };
        let count = number(text).filter(|count| (1..=u64::from(max_count)).contains(count));
        count.ok_or_else(|| {
            let text = format!("found {name}={text}, allowed: 1 to {max_count}");
            Reply::refusal(ErrorCode::BadCount, 400, text, None)
        })
    }

    /// Returns how long a request may wait, in ms. The parameter `wait` has the unit `ms`, `s`, or
    /// none, which means milliseconds.
    pub(super) fn wait_ms(&self) -> Result<Option<u32>, Reply> {
        let Some(text) = self.get("wait") else { return Ok(None) };
        let wait_ms = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (None, Some(digits)) => number::<u32>(digits).map(|seconds| seconds.saturating_mul(1000)),
            (digits, _) => number(digits.unwrap_or(text)),
        };
        let allowed = "allowed: a time, as 250 (milliseconds), 250ms or 2s";
        wait_ms.map(Some).ok_or_else(|| malformed(format_args!("found wait={text}, {allowed}")))
    }

    /// Returns the value of a parameter that is true or false; false if the parameter is not there.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Reply> {
        match self.get(name) {
            None => Ok(false),
            Some(found) if found == "0" || found.eq_ignore_ascii_case("false") => Ok(false),
            Some(found) if found == "1" || found.eq_ignore_ascii_case("true") => Ok(true),
            Some(found) => Err(malformed(format_args!("found {name}={found}, allowed: true or false"))),
        }
    }
}

/// Parses a number of digits alone.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the refusal of a request that has a mistake in it.
pub(super) fn malformed(text: impl Display) -> Reply {
    Reply::refusal(ErrorCode::Malformed, 400, text, None)
}

/// Refuses a valid request that its source cannot fulfil.
pub(super) fn unfit(text: impl Display) -> Reply {
    Reply::refusal(ErrorCode::Unsupported, 409, text, None)
}

/// Returns the source with this name, or the first source if no name is given. An unknown name is a
/// mistake, even if `any_key` is set.
pub(super) fn source_of(name: Option<&str>, facts: &Facts) -> Result<usize, Reply> {
    let Some(name) = name else { return Ok(facts.first) };
    known(facts.source_named(name.as_bytes()), name, facts)
}

/// Returns the source that was `found`, or the refusal of `name`.
pub(super) fn known(found: Option<usize>, name: &str, facts: &Facts) -> Result<usize, Reply> {
    found.ok_or_else(|| {
        let text = format!("found source {name:?}, allowed: {}", facts.names_in_words());
        Reply::refusal(ErrorCode::UnknownSource, 404, text, None)
    })
}

/// Returns the codec that writes a source's IDs in a format. Decimal digits need no codec.
pub(super) fn codec_of(format: Option<&str>, source: usize, facts: &Facts) -> Result<Option<Codec>, Reply> {
    let Some(format) = format else { return Ok(None) };
    let format: Format = format.parse().map_err(|error| malformed(format_args!("format: {error}")))?;
    if format == Format::Decimal {
        return Ok(None);
    }
    let codec = format.codec(Context::new(&facts.sources[source], facts.layout(source)));
    codec.map(Some).map_err(|error| unfit(format_args!("format: {error}")))
}
