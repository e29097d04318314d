//! The processor time and memory of a daemon on another machine, from its metrics.

use std::str::FromStr;
use std::time::Duration;

use snowbank_client::Endpoint;

use super::{Access, Conversation};
use crate::failure::Failure;
use crate::frontend;

/// The path if the URL has none.
const PATH: &str = "/metrics";

/// The names that Prometheus' own clients use, too.
const CPU: &str = "process_cpu_seconds_total";
const MEMORY: &str = "process_resident_memory_bytes";

/// A daemon's metrics, and the way to them. Written `http://host:9660/metrics`, `https://…`, or as
/// an address.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) access: Access,
    path: String,
}

/// The use of a machine by one process, or by several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    /// Processor time of all threads since its start.
    pub(crate) cpu: Option<Duration>,
    /// Resident memory in bytes.
    pub(crate) memory: Option<u64>,
}

impl FromStr for Metrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, tls, port) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, "", ":80"),
            (_, Some(rest)) => (rest, "tls:", ":443"),
            _ => {
                let endpoint = Endpoint::of_admin(text).map_err(|error| error.to_string())?;
                return Ok(Self::at(endpoint, PATH));
            }
        };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = format!("{tls}{host}{}", if has_port { "" } else { port });
        let endpoint = Endpoint::parse_remote(&host).map_err(|error| error.to_string())?;
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = if path.len() > 1 { path } else { PATH };
        is_path.then(|| Self::at(endpoint, path)).ok_or_else(|| {
            format!("{text:?} is not a URL: found a blank or another character that a URL has not")
        })
    }
}

impl Metrics {
    fn at(endpoint: Endpoint, path: &str) -> Self {
        let access = Access { endpoint, protocol: &frontend::HTTP, tls: None, token: None };
        Self { access, path: path.to_owned() }
    }

    /// Reads them once.
    ///
    /// # Errors
    /// [`Failure`] if they cannot be read, or do not have the processor time.
    pub(crate) fn read(&self, timeout: Duration) -> Result<Used, Failure> {
        let mut conversation = Conversation::begin(&self.access, timeout)?;
        let (status, body) = frontend::get(&mut conversation, &self.path)?;
        if status != 200 {
            return Err(conversation.cannot(&format!("GET {} was answered with status {status}", self.path)));
        }
        let used = used_in(&String::from_utf8_lossy(&body));
        used.cpu.map(|_| used).ok_or_else(|| {
            conversation.cannot(&format!("{} has no {CPU}: name a daemon's metrics", self.path))
        })
    }
}

/// Finds the figures in the text of an exposition.
fn used_in(text: &str) -> Used {
    let cpu = figure(CPU, text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Used { cpu, memory: figure(MEMORY, text).map(|bytes| bytes as u64) }
}

/// Finds one figure in the text of an exposition.
fn figure(name: &str, text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let figure: f64 = line.split_whitespace().next()?.parse().ok()?;
    (figure.is_finite() && figure >= 0.0).then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_address_and_a_path() {
        let of = |text: &str| {
            text.parse::<Metrics>().map(|metrics| format!("{}{}", metrics.access.endpoint, metrics.path))
        };
        for (text, found) in [
            ("http://ids-1:9660/metrics", "ids-1:9660/metrics"),
            ("http://ids-1:9660", "ids-1:9660/metrics"),
            ("https://ids-1:9660/", "tls:ids-1:9660/metrics"),
            ("http://ids-1/proxy/ids?x=1", "ids-1:80/proxy/ids?x=1"),
            ("http://[::1]:9660", "[::1]:9660/metrics"),
            ("9660", "127.0.0.1:9660/metrics"),
            ("ids-1:9660", "ids-1:9660/metrics"),
            ("unix:/run/snowbank/admin.sock", "unix:/run/snowbank/admin.sock/metrics"),
        ] {
            assert_eq!(of(text), Ok(found.to_owned()));
        }
        for wrong in ["", "http://", "ids-1", "http://ids-1:9660/a b", "ftp://ids-1/"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_found_among_others() {
        let text = "# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_totals 9\nprocess_cpu_seconds_total 12.5\n\
                    process_resident_memory_bytes 6.1e6 1700000000\n";
        let found = Used { cpu: Some(Duration::from_millis(12_500)), memory: Some(6_100_000) };
        assert_eq!(used_in(text), found);
        assert_eq!(used_in("process_cpu_seconds_total NaN\n"), Used::default());
    }
}
