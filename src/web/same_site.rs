//! Detects requests that a web page of another site makes a browser send. Such a page cannot read
//! the answers, but each of its requests to the HTTP front end draws IDs.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::LazyLock;

use crate::config::read_bounded;

/// The answer to a request that reaches a loopback address under another name.
pub(crate) const MISDIRECTED: &str = "this connection came to a loopback address: allowed as its host name are localhost, 127.0.0.1, [::1] \
     and the names that /etc/hosts gave to such an address when it was first asked; a proxy can connect to a Unix \
     socket instead, or send such a name (nginx: proxy_set_header Host localhost)";

/// The names that this machine gives to its loopback addresses. Often its own name is one of them.
/// No web page has such a name: only root can write it into this file.
static NAMES_OF_LOOPBACK: LazyLock<HashSet<String>> = LazyLock::new(|| {
    names_of_loopback(&String::from_utf8_lossy(&read_bounded(Path::new("/etc/hosts")).unwrap_or_default()))
});

/// Returns the names, in small letters, in those lines of a hosts file that begin with a loopback
/// address.
fn names_of_loopback(hosts: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    for line in hosts.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if words.next().and_then(|address| address.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_loopback())
        {
            names.extend(words.map(str::to_ascii_lowercase));
        }
    }
    names
}

/// The reason why the headers of a request are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHeader {
    #[error("found {count} {name} headers, allowed: 1")]
    Count { name: &'static str, count: usize },
    #[error("found the host \"{0}\", allowed: a name or an IP address, perhaps with a port")]
    Host(String),
}

/// The headers of a request that show where it comes from and where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiteHeaders<'h> {
    /// The name by which the client calls the daemon: the host of an absolute target, else the Host
    /// header.
    pub(crate) host: Option<&'h [u8]>,
    hosts: usize,
    /// True if the host is of an absolute target.
    is_of_target: bool,
    origin: Option<&'h [u8]>,
    origins: usize,
    /// The `Sec-Fetch-Site` header: how the site of the sending page relates to this site.
    fetch_site: Option<&'h [u8]>,
    fetch_sites: usize,
}

impl<'h> SiteHeaders<'h> {
    /// Keeps the header if it is one of those in this struct.
    pub(crate) fn read(&mut self, name: &str, value: &'h [u8]) {
        let (kept, count) = if name.eq_ignore_ascii_case("host") {
            (&mut self.host, &mut self.hosts)
        } else if name.eq_ignore_ascii_case("origin") {
            (&mut self.origin, &mut self.origins)
        } else if name.eq_ignore_ascii_case("sec-fetch-site") {
            (&mut self.fetch_site, &mut self.fetch_sites)
        } else {
            return;
        };
        *kept = Some(value);
        *count += 1;
    }

    /// Takes the host of an absolute target. It replaces the header.
    pub(crate) fn read_target(&mut self, host: &'h [u8]) {
        self.host = Some(host);
        self.is_of_target = true;
    }

    /// Checks that the request has exactly one Host header, and no other of these headers twice.
    /// Only a request of HTTP/1.0 may have no Host header. The name must follow the grammar, and that
    /// of a target must not be empty.
    ///
    /// # Errors
    /// The request must be refused with 400 (RFC 9112, section 3.2).
    pub(crate) fn check(&self, is_http_1_0: bool) -> Result<(), BadHeader> {
        for (name, count) in
            [("Host", self.hosts), ("Origin", self.origins), ("Sec-Fetch-Site", self.fetch_sites)]
        {
            if count > 1 {
                return Err(BadHeader::Count { name, count });
            }
        }
        match self.host {
            _ if self.hosts == 0 && !is_http_1_0 => Err(BadHeader::Count { name: "Host", count: 0 }),
            Some(host)
                if match Name::parse(host) {
                    Some(Name::Domain("")) => self.is_of_target,
                    name => name.is_none(),
                } =>
            {
                Err(BadHeader::Host(in_line(host)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the header that shows that a page of another site sent the request, if there is one.
    ///
    /// A `Sec-Fetch-Site` of another site decides, and `same-origin`, too. Else `Origin` is compared
    /// with the host. This is less reliable, because a proxy may have replaced the Host header. The
    /// value `same-site` counts as another site, because all ports of localhost are the same site.
    pub(crate) fn foreign_site(&self) -> Option<(&'static str, &'h [u8])> {
        match self.fetch_site {
            Some(b"same-origin") => return None,
            Some(b"none") | None => {}
            Some(site) => return Some(("sec-fetch-site", site)),
        }
        let origin = self.origin?;
        let page = origin.windows(3).position(|part| part == b"://").map(|at| &origin[at + 3..]);
        let is_same = page.zip(self.host).is_some_and(|(page, host)| host.eq_ignore_ascii_case(page));
        (!is_same).then_some(("origin", origin))
    }
}

/// Returns the start of a header's value for a line of text. Leaves out the user and the password of
/// an address.
pub(crate) fn in_line(value: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 128;
    let host = value.rsplit(|&byte| byte == b'@').next().unwrap_or_default();
    let user = if host.len() < value.len() { "…@" } else { "" };
    format!("{user}{}", host[..host.len().min(SHOWN_BYTES_MAX)].escape_ascii())
}

/// The name in a Host header, without its port.
enum Name<'h> {
    /// An IP address. `is_local` is true for 127.0.0.0/8 and ::1, and for no other address of this
    /// machine. Browsers say where a request comes from only if it goes to one of these.
    Address { is_local: bool },
    /// A DNS name, which may be empty.
    Domain(&'h str),
}

impl<'h> Name<'h> {
    /// Parses a Host header, or returns `None` if it does not follow the grammar (RFC 3986, section
    /// 3.2, without a user).
    fn parse(host: &'h [u8]) -> Option<Self> {
        let host = std::str::from_utf8(host).ok()?;
        let (name, rest) = match host.strip_prefix('[') {
            Some(inner) => {
                let (address, rest) = inner.split_once(']')?;
                // Some clients send the zone of a link-local address.
                let (address, zone) = address.split_once('%').unwrap_or((address, "zone"));
                let is_zone = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
                let address: Ipv6Addr = address.parse().ok()?;
                if zone.is_empty() || !zone.bytes().all(is_zone) {
                    return None;
                }
                (Name::Address { is_local: address.is_loopback() }, rest)
            }
            None => {
                let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
                if !name.bytes().all(is_name) {
                    return None;
                }
                let address = name.parse::<Ipv4Addr>();
                let address = address.map(|address| Name::Address { is_local: address.is_loopback() });
                (address.unwrap_or(Name::Domain(name)), rest)
            }
        };
        let is_port = match rest.strip_prefix(':') {
            Some(port) => {
                port.is_empty()
                    || port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
            }
            None => rest.is_empty(),
        };
        is_port.then_some(name)
    }
}

/// Returns true if a Host header has a loopback address, a `localhost` name, or a name that
/// /etc/hosts gives to a loopback address.
///
/// A request to a loopback address may have any other name. Then a web page may have pointed its
/// own DNS name at this machine, so that its script can read the answers (DNS rebinding). If it has
/// another address, such as 0.0.0.0, a browser does not say which page sent it.
pub(crate) fn is_local_name(host: &[u8]) -> bool {
    match Name::parse(host) {
        None => false,
        Some(Name::Address { is_local }) => is_local,
        Some(Name::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost") || NAMES_OF_LOOPBACK.contains(&name)
        }
    }
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
            let found = headers(lines).check(is_http_1_0);
            let count = lines.len();
            let expected = if is_allowed { Ok(()) } else { Err(BadHeader::Count { name: "Host", count }) };
            assert_eq!(found, expected, "{is_http_1_0} {lines:?}");
        }
    }

    #[test]
    fn no_header_that_shows_the_site_may_come_twice() {
        for name in ["host", "origin", "sec-fetch-site"] {
            let mut headers = headers(&[("host", "ids"), (name, "ids")]);
            headers.read(name, b"ids");
            assert!(headers.check(false).is_err(), "{name}");
        }
    }

    #[test]
    fn a_host_follows_the_grammar() {
        let is_valid = |host: &str| headers(&[("host", host)]).check(false).is_ok();
        for host in [
            "ids",
            "ids:80",
            "ids:",
            "",
            "a_b.example.",
            "10.0.0.1:65535",
            "[::1]",
            "[2001:db8::1]:7663",
            "%41",
            "[fe80::1%eth0]:80",
            "[fe80::1%25eth0]",
        ] {
            assert!(is_valid(host), "{host}");
        }
        for host in [
            "[::1].evil.com",
            "[8.8.8.8",
            "[8.8.8.8]",
            "localhost:evil.com",
            "localhost:1@evil.com",
            "a b",
            "::1",
            "[::1",
            "[::1]80",
            "[fe80::1%]",
            "[fe80::1%a/b]",
            "a:65536",
            "a:-1",
            "a/b",
            "a:1:2",
            "a?b",
            "\u{e9}",
        ] {
            assert!(!is_valid(host), "{host}");
            assert!(!is_local_name(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn requests_from_pages_of_other_sites_are_detected() {
        for (lines, is_foreign) in [
            (vec![], false),
            (vec![("sec-fetch-site", "none")], false),
            (vec![("sec-fetch-site", "same-origin"), ("origin", "https://outside.example")], false),
            (vec![("sec-fetch-site", "none"), ("origin", "https://outside.example")], true),
            (vec![("sec-fetch-site", "none"), ("origin", "http://localhost:7663")], false),
            (vec![("sec-fetch-site", "same-origin, cross-site")], true),
            (vec![("sec-fetch-site", "")], true),
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
    fn names_of_loopback_addresses_in_a_hosts_file_are_local() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1\tIDs-1.example.net ids-1 # ours\n::1 ip6-loopback\n\
                     10.0.0.7 ids-7\n0.0.0.0 blocked.example\n#127.0.0.1 old\n127.0.0.1\nnonsense x";
        let mut names: Vec<String> = names_of_loopback(hosts).into_iter().collect();
        names.sort();
        assert_eq!(names, ["ids-1", "ids-1.example.net", "ip6-loopback", "localhost"]);
    }

    #[test]
    fn local_names_are_addresses_and_localhost() {
        let is_local = |host: &str| is_local_name(host.as_bytes());
        for host in
            "localhost LOCALHOST:9660 localhost.:1 127.0.0.1:9660 127.8.0.1 [::1]:9660 [::1] a.localhost"
                .split(' ')
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            " example.com example.com:9660 localhost.example.com:9660 :9660 127.0.0.1.example.com 0.0.0.0:9660 \
             8.8.8.8 [::] [::ffff:127.0.0.1]:9660 [::ffff:0:0] [fe80::1%eth0]"
                .split(' ')
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
