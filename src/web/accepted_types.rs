//! Media types that a client accepts: the Accept header (RFC 9110, section 12.5.1).

/// How much a client wants a type of media, as its Accept headers say. A higher value is wanted more.
/// Among types of the same weight, the one that is named more exactly is wanted more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preference {
    /// The weight in thousandths; 0: not at all.
    weight: u16,
    exactness: Exactness,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Exactness {
    #[default]
    Unnamed,
    AnyType,
    AnySubtype,
    Named,
}

impl Preference {
    /// Returns whether the client names the type itself, and accepts it.
    pub(crate) fn is_named(self) -> bool {
        self.weight > 0 && self.exactness == Exactness::Named
    }

    /// Returns whether the client wants this type at least as much as the other, however exactly it
    /// names them.
    pub(crate) fn is_at_least(self, other: Preference) -> bool {
        self.weight >= other.weight
    }
}

/// What a request's Accept headers say about one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedType {
    wanted: &'static str,
    /// True if a header names any type.
    has_any: bool,
    found: Preference,
}

impl AcceptedType {
    /// Begins without a header. `wanted` is a type in lower case.
    pub(crate) fn new(wanted: &'static str) -> Self {
        AcceptedType { wanted, has_any: false, found: Preference::default() }
    }

    /// Reads one Accept header. Ranges that do not follow the grammar are ignored.
    pub(crate) fn read(&mut self, header: &[u8]) {
        let Ok(header) = std::str::from_utf8(header) else { return };
        for range in split(header, ',') {
            let mut parts = split(range, ';').map(str::trim);
            let Some((kind, subtype)) = parts.next().and_then(|range| range.split_once('/')) else {
                continue;
            };
            let Some(weight) = weight_of(parts) else { continue };
            self.has_any = true;
            let (wanted_kind, wanted_subtype) = self.wanted.split_once('/').unwrap_or_default();
            let exactness = match (kind, subtype) {
                ("*", "*") => Exactness::AnyType,
                (kind, _) if !kind.eq_ignore_ascii_case(wanted_kind) => continue,
                (_, "*") => Exactness::AnySubtype,
                (_, subtype) if subtype.eq_ignore_ascii_case(wanted_subtype) => Exactness::Named,
                _ => continue,
            };
            // The most exact range decides. A type may be named several times, with parameters.
            if (exactness, weight) > (self.found.exactness, self.found.weight) {
                self.found = Preference { weight, exactness };
            }
        }
    }

    /// Returns how much the client wants the type. Without any header, it wants every type.
    pub(crate) fn preference(self) -> Preference {
        match self.found {
            _ if !self.has_any => Preference { weight: 1_000, ..Preference::default() },
            // A type that is not accepted is as good as one that is not named.
            Preference { weight: 0, .. } => Preference::default(),
            found => found,
        }
    }
}

/// Splits a text at a separator that is not in quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    text.split(move |found| {
        if is_escaped {
            is_escaped = false;
        } else if found == '"' {
            is_quoted = !is_quoted;
        } else if found == '\\' && is_quoted {
            is_escaped = true;
        }
        found == separator && !is_quoted
    })
}

/// Returns the weight among a range's parameters, in thousandths: 1,000 if none is there, `None` if it
/// does not follow the grammar.
fn weight_of<'p>(parameters: impl Iterator<Item = &'p str>) -> Option<u16> {
    for parameter in parameters {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if name.eq_ignore_ascii_case("q") {
            let (whole, part) = value.split_once('.').unwrap_or((value, ""));
            let is_valid = part.len() <= 3 && part.bytes().all(|digit| digit.is_ascii_digit());
            let part = format!("{part:0<3}").parse::<u16>().ok().filter(|_| is_valid)?;
            return match (whole, part) {
                ("0", part) => Some(part),
                ("1", 0) => Some(1_000),
                _ => None,
            };
        }
    }
    Some(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the weight of plain text, and whether it is named.
    fn text(headers: &[&str]) -> (u16, bool) {
        let mut accept = AcceptedType::new("text/plain");
        headers.iter().for_each(|header| accept.read(header.as_bytes()));
        (accept.preference().weight, accept.preference().is_named())
    }

    #[test]
    fn the_most_exact_range_decides() {
        for (headers, expected) in [
            (&[][..], (1_000, false)),
            (&[""], (1_000, false)),
            (&["nonsense"], (1_000, false)),
            (&["*/*"], (1_000, false)),
            (&["*/*;q=0.2, text/*;q=0.5"], (500, false)),
            (&["text/plain;q=0.25, */*"], (250, true)),
            (&["TEXT/Plain ; version=0.0.4; Q=0.125"], (125, true)),
            (&["text/plain;q=0", "*/*"], (0, false)),
            (&["application/json", "text/plain;q=0.7"], (700, true)),
            (&["application/x+text/plain"], (0, false)),
            (&["application/json;note=\"a, text/plain;q=1\""], (0, false)),
            (&["text/plain;q=2, text/plain;q=0.1234, */*;q=0.1"], (100, false)),
            (&["text/plain;q=1.000"], (1_000, true)),
            (&["text/plain-x"], (0, false)),
        ] {
            assert_eq!(text(headers), expected, "{headers:?}");
        }
    }
}
