//! Requests that a web page of another site makes a browser send. Such a page reads no answer, but each request draws.

use std::net::IpAddr;

use hyper::Version;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The header by which a browser names the relation to the page that sent a request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the request's Host header. Only HTTP/1.0 may leave it out.
///
/// # Errors
/// The header is missing, or there are several (RFC 9112, section 3.2): the request must be refused with 400.
pub(crate) fn host_of(version: Version, headers: &HeaderMap) -> Result<Option<&HeaderValue>, String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    let count = usize::from(host.is_some()) + hosts.count();
    if count > 1 || (count == 0 && version >= Version::HTTP_11) {
        return Err(format!("found {count} Host headers, allowed: 1"));
    }
    Ok(host)
}

/// Returns the header by which a browser says that a page of another site sent the request, if one does.
///
/// `Sec-Fetch-Site` decides where a browser sends it: a proxy may have replaced the host that `Origin` is compared with.
/// `same-site` is another site too, since all ports of localhost are one site.
pub(crate) fn foreign_site<'a>(
    host: Option<&HeaderValue>,
    headers: &'a HeaderMap,
) -> Option<(HeaderName, &'a HeaderValue)> {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return (site != "same-origin" && site != "none").then_some((SEC_FETCH_SITE, site));
    }
    let origin = headers.get(header::ORIGIN)?;
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, page)| page);
    let is_same =
        page.zip(host).is_some_and(|(page, host)| host.as_bytes().eq_ignore_ascii_case(page.as_bytes()));
    (!is_same).then_some((header::ORIGIN, origin))
}

/// Returns true if a Host header names this machine by an address or as `localhost`.
///
/// On a loopback address, any other name belongs to a web page whose DNS name was pointed here, so that its script could
/// read the answers (DNS rebinding).
pub(crate) fn is_local_name(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(ipv6) => ipv6.split(']').next().unwrap_or(ipv6),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn one_host_is_needed_and_http_1_0_may_leave_it_out() {
        let (one, none) = (headers(&[("host", "ids")]), HeaderMap::new());
        let mut two = one.clone();
        two.append(header::HOST, HeaderValue::from_static("ids"));
        for (version, headers, is_allowed) in [
            (Version::HTTP_11, &one, true),
            (Version::HTTP_11, &none, false),
            (Version::HTTP_11, &two, false),
            (Version::HTTP_10, &one, true),
            (Version::HTTP_10, &none, true),
            (Version::HTTP_10, &two, false),
        ] {
            assert_eq!(host_of(version, headers).is_ok(), is_allowed, "{version:?} {headers:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_foreign() {
        for (lines, is_foreign) in [
            (vec![], false),
            (vec![("sec-fetch-site", "none")], false),
            (vec![("sec-fetch-site", "same-origin"), ("origin", "https://outside.example")], false),
            (vec![("sec-fetch-site", "cross-site")], true),
            (vec![("sec-fetch-site", "same-site")], true),
            (vec![("origin", "http://localhost:7663")], false),
            (vec![("origin", "http://LOCALHOST:7663")], false),
            (vec![("origin", "http://localhost:3000")], true),
            (vec![("origin", "https://attacker.example")], true),
            (vec![("origin", "null")], true),
        ] {
            let host = HeaderValue::from_static("localhost:7663");
            assert_eq!(foreign_site(Some(&host), &headers(&lines)).is_some(), is_foreign, "{lines:?}");
        }
    }

    #[test]
    fn local_names_are_addresses_and_localhost() {
        let is_local = |host: &str| is_local_name(&HeaderValue::from_str(host).expect("a header's value"));
        for host in [
            "localhost",
            "LOCALHOST:9660",
            "localhost.:1",
            "127.0.0.1:9660",
            "127.0.0.1",
            "[::1]:9660",
            "[::1]",
            "a.localhost",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "example.com",
            "example.com:9660",
            "localhost.example.com:9660",
            "",
            ":9660",
            "127.0.0.1.example.com",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
