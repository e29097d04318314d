//! What every listener that browsers can reach checks in a request: the admin listener, and the HTTP
//! front end.
//!
//! - `accepted_types`: the media types that a client accepts.
//! - `same_site`: detects requests that come from web pages of other sites.

mod accepted_types;
mod same_site;

use std::borrow::Cow;

pub(crate) use accepted_types::AcceptedType;
pub(crate) use same_site::{BadHeader, MISDIRECTED, SiteHeaders, in_line, is_local_name};

/// The largest head of a request. Browsers send the cookies of all of a machine's ports, which may
/// have 16 KiB.
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most headers of a request. Behind two proxies, a browser's request has some 40.
pub(crate) const HEADERS_MAX: usize = 100;

/// Returns the reason why a request's head is refused.
pub(crate) fn head_too_long() -> String {
    format!(
        "found a request's head of more than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers, allowed: less; send fewer \
         cookies, or a shorter address"
    )
}

/// Decodes a path. In a path, a plus sign stands for itself and not for a blank.
pub(crate) fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return path.into();
    }
    let value = format!("={}", path.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(value.as_bytes()).map(|(_, value)| value.into_owned()).collect::<String>().into()
}
