//! Detects requests that a web page of another site makes a browser send. Such a page cannot read
//! the answers, but each of its requests to the HTTP front end draws IDs.

use std::net::IpAddr;

/// The headers of a request that show where it comes from and where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiteHeaders<'h> {
    /// The last Host header.
    pub(crate) host: Option<&'h [u8]>,
    hosts: usize,
    origin: Option<&'h [u8]>,
    /// The `Sec-Fetch-Site` header: how the site of the sending page relates to this site.
    fetch_site: Option<&'h [u8]>,
}

impl<'h> SiteHeaders<'h> {
    /// Keeps the header if it is one of those in this struct.
    pub(crate) fn read(&mut self, name: &str, value: &'h [u8]) {
        if name.eq_ignore_ascii_case("host") {
            self.host = Some(value);
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case("origin") {
            self.origin = self.origin.or(Some(value));
        } else if name.eq_ignore_ascii_case("sec-fetch-site") {
            self.fetch_site = self.fetch_site.or(Some(value));
        }
    }

    /// Checks that the request has exactly one Host header. Only a request of HTTP/1.0 may have
    /// none.
    ///
    /// # Errors
    /// The header is missing, or there are several. The error is the reason to refuse the request
    /// with 400 (RFC 9112, section 3.2).
    pub(crate) fn check_host(&self, is_http_1_0: bool) -> Result<(), String> {
        let count = self.hosts;
        if count == 1 || (count == 0 && is_http_1_0) {
            return Ok(());
        }
        Err(format!("found {count} Host headers, allowed: 1"))
    }

    /// Returns the header that shows that a page of another site sent the request, if there is one.
    ///
    /// If the browser sends `Sec-Fetch-Site`, that header decides. Without `Sec-Fetch-Site`,
    /// `Origin` is compared with the Host header. This is less reliable, because a proxy may have
    /// replaced the Host header. The value `same-site` counts as another site, because all ports of
    /// localhost are the same site.
    pub(crate) fn foreign_site(&self) -> Option<(&'static str, &'h [u8])> {
        if let Some(site) = self.fetch_site {
            return (site != b"same-origin" && site != b"none").then_some(("sec-fetch-site", site));
        }
        let origin = self.origin?;
        let page = origin.windows(3).position(|part| part == b"://").map(|at| &origin[at + 3..]);
        let is_same = page.zip(self.host).is_some_and(|(page, host)| host.eq_ignore_ascii_case(page));
        (!is_same).then_some(("origin", origin))
    }
}

/// Returns true if a Host header has an IP address or a `localhost` name.
///
/// If a request to a loopback address has any other name, a web page may have pointed its own DNS
/// name at this machine, so that its script can read the answers (DNS rebinding).
pub(crate) fn is_local_name(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
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

    fn headers<'h>(lines: &[(&str, &'h str)]) -> SiteHeaders<'h> {
        let mut headers = SiteHeaders::default();
        lines.iter().for_each(|(name, value)| headers.read(name, value.as_bytes()));
        headers
    }

    #[test]
    fn one_host_header_is_required_except_by_http_1_0() {
        let none = &[][..];
        let one = &[("Host", "ids")][..];
        let two = &[("host", "ids"), ("host", "ids")][..];
        for (is_http_1_0, lines, is_allowed) in [
            (false, one, true),
            (false, none, false),
            (false, two, false),
            (true, one, true),
            (true, none, true),
            (true, two, false),
        ] {
            assert_eq!(headers(lines).check_host(is_http_1_0).is_ok(), is_allowed, "{is_http_1_0} {lines:?}");
        }
    }

    #[test]
    fn requests_from_pages_of_other_sites_are_detected() {
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
            let mut headers = headers(&lines);
            headers.read("host", b"localhost:7663");
            assert_eq!(headers.foreign_site().is_some(), is_foreign, "{lines:?}");
        }
    }

    #[test]
    fn local_names_are_addresses_and_localhost() {
        let is_local = |host: &str| is_local_name(host.as_bytes());
        for host in
            "localhost LOCALHOST:9660 localhost.:1 127.0.0.1:9660 127.0.0.1 [::1]:9660 [::1] a.localhost"
                .split(' ')
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            " example.com example.com:9660 localhost.example.com:9660 :9660 127.0.0.1.example.com".split(' ')
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
