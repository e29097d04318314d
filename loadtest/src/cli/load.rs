//! Options that a run and a sweep share.

// The doc comments are help texts: brackets in them are no links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use snowbank_tls::{ClientFiles, Connector};
use snowbank_wire::Address as Endpoint;

use crate::failure::Failure;
use crate::frontend::{self, Row};
use crate::judge::Latency;
use crate::scenario::{Drive, Scenario};
use crate::schedule::Arrivals;
use crate::target::Token;
use crate::units::counted;
use crate::value::Time;

/// The default number of threads: if something else uses one thread's core, the other thread can
/// send.
const OPEN_LOOP_THREADS: u32 = 2;

/// The default number of threads: a closed loop waits for its answers anyway, and a second thread
/// would take a core from the target.
const CLOSED_LOOP_THREADS: u32 = 1;

/// The target and the form of its load.
#[derive(Debug, Args)]
pub(super) struct Load {
    /// A running daemon: host:port, [IPv6]:port, tls:host:port or unix:PATH. Given several times,
    /// the load is spread over all; not given, a daemon is started for the run
    #[arg(long, value_name = "ADDR", value_parser = Endpoint::parse_remote)]
    pub(super) address: Vec<Endpoint>,
    /// The source to draw from [default: the daemon's default source]
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    #[command(flatten)]
    front_ends: FrontEnds,
    #[command(flatten)]
    tls: TlsOptions,
    /// IDs per request
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) batch: u32,
    /// Connections
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) connections: u32,
    /// Generator threads, which share the connections and the schedule. A thread also sends overdue
    /// requests of another thread that gets no core [default: 2, or 1 with one connection or
    /// --closed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) threads: Option<u32>,
    /// Send requests at random instants, as from many independent users, instead of evenly spaced
    #[arg(long)]
    pub(super) poisson: bool,
    /// Time at the same rate before the measurement; its IDs are checked, but not timed
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    pub(super) warm_up: Time,
    /// A file with the token that the daemon asks for; newlines at its end are ignored
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
}

/// The options for TLS, with the names that `snowbank next` gives them.
#[derive(Debug, Args)]
struct TlsOptions {
    /// With tls: trust the CAs in this file (PEM), not the system's
    #[arg(long, value_name = "FILE", requires = "address")]
    ca: Option<PathBuf>,
    /// With tls: the client's own certificate (PEM), for a daemon that asks for one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// With tls: the private key of --client-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// With tls: the name in the daemon's certificate, if it differs from the address
    #[arg(long, value_name = "NAME", requires = "address")]
    server_name: Option<String>,
}

/// The protocol of the target. If it is not Snowbank's own, `info` says where to ask for INFO.
#[derive(Debug, Args)]
struct FrontEnds {
    /// Use the protocol of Redis: INCR and SNOWBANK.NEXT. A Redis itself gets INCR and INCRBY of a
    /// key of the run's own
    #[arg(long, group = "front_end")]
    resp: bool,
    /// Use memcached's text protocol: a get of as many keys as IDs
    #[arg(long, group = "front_end", conflicts_with = "token_file")]
    memcached: bool,
    /// Use HTTP: GET /v1/ids
    #[arg(long, group = "front_end")]
    http: bool,
    /// Use noeqd's protocol: one byte asks for up to 255 IDs
    #[arg(long, group = "front_end")]
    noeqd: bool,
    /// Address at which the same daemon speaks its own protocol. INFO there says how to check the
    /// IDs of another protocol. Give one for each --address, in their order
    #[arg(long, value_name = "ADDR", value_parser = Endpoint::parse_remote, requires = "address", requires = "front_end")]
    info: Vec<Endpoint>,
}

/// Objectives of response time. If none is given, an open loop has the default, p99.9 within 2 ms.
#[derive(Debug, Args)]
pub(super) struct Latencies {
    /// Half of all response times may be at most this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) p50: Option<Time>,
    /// 90 % of all response times may be at most this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) p90: Option<Time>,
    /// 99 % of all response times may be at most this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) p99: Option<Time>,
    /// 99.9 % of all response times may be at most this [default: 2ms, in an open loop without
    /// other objectives]
    #[arg(long = "p99.9", value_name = "TIME", allow_hyphen_values = true)]
    pub(super) p99_9: Option<Time>,
    /// 99.99 % of all response times may be at most this
    #[arg(long = "p99.99", value_name = "TIME", allow_hyphen_values = true)]
    pub(super) p99_99: Option<Time>,
    /// All response times may be at most this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) max: Option<Time>,
}

impl FrontEnds {
    fn chosen(&self) -> &'static Row {
        let given: [bool; frontend::ALL.len()] = [self.resp, self.memcached, self.http, self.noeqd];
        let mut rows = given.into_iter().zip(frontend::ALL);
        rows.find(|(is_given, _)| *is_given).map_or(&frontend::NATIVE, |(_, row)| row)
    }
}

impl Load {
    /// Returns the scenario of these options.
    pub(super) fn scenario(&self, drive: Drive, length: Duration) -> Result<Scenario, Failure> {
        let usual = match drive {
            Drive::Open { .. } => OPEN_LOOP_THREADS,
            Drive::Closed { .. } => CLOSED_LOOP_THREADS,
        };
        let threads = self.threads.unwrap_or(usual.min(self.connections)) as usize;
        let connections = self.connections as usize;
        let needed = threads * self.address.len().max(1);
        if connections < needed {
            return Err(Failure::usage(format_args!(
                "found --connections {connections}, allowed: {needed} or more: each of {threads} threads needs one to each \
                 --address"
            )));
        }
        let info = &self.front_ends.info;
        if !info.is_empty() && info.len() != self.address.len() {
            return Err(Failure::usage(format_args!(
                "found {} --info and {}, allowed: one --info for each --address, in their order",
                info.len(),
                counted(self.address.len() as u64, "--address")
            )));
        }
        Ok(Scenario {
            addresses: self.address.clone(),
            token: self.token_file.as_deref().map(Token::read).transpose()?,
            source: self.source.clone(),
            protocol: self.front_ends.chosen(),
            tls: self.tls.connector(self.address.iter().chain(info))?,
            info: info.clone(),
            drive,
            batch: self.batch,
            connections,
            threads,
            warm_up: self.warm_up.0,
            length,
            outage: None,
            keeps_interval_log: false,
        })
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        if self.poisson { Arrivals::Poisson } else { Arrivals::Even }
    }
}

impl TlsOptions {
    /// Reads the TLS files if one of the addresses uses TLS. Otherwise, options of TLS are an
    /// error.
    fn connector<'a>(
        &self,
        mut addresses: impl Iterator<Item = &'a Endpoint>,
    ) -> Result<Option<Connector>, Failure> {
        if !addresses.any(Endpoint::is_tls) {
            let Self { ca, client_cert, server_name, .. } = self;
            if ca.is_none() && client_cert.is_none() && server_name.is_none() {
                return Ok(None);
            }
            return Err(Failure::usage(
                "found options of TLS (--ca, --client-cert, --server-name) without a TLS address, allowed: with one, as in \
                 tls:host:port",
            ));
        }
        let mut files = self.ca.iter().fold(ClientFiles::new(), |files, ca| files.ca(ca));
        if let Some((certificate, key)) = self.client_cert.as_ref().zip(self.client_key.as_ref()) {
            files = files.certificate(certificate, key);
        }
        if let Some(name) = &self.server_name {
            files = files.server_name(name);
        }
        files.read().map(Some).map_err(Failure::usage)
    }
}

impl Latencies {
    /// Returns the objectives that the user gave, or the default of an open loop if the user gave
    /// none.
    pub(super) fn open_loop(&self) -> Vec<Latency> {
        let mut latencies = self.given();
        if latencies.is_empty() {
            latencies.push(Latency { quantile: 0.999, limit: Duration::from_millis(2) });
        }
        latencies
    }

    pub(super) fn given(&self) -> Vec<Latency> {
        let Self { p50, p90, p99, p99_9, p99_99, max } = *self;
        let given = [(0.5, p50), (0.9, p90), (0.99, p99), (0.999, p99_9), (0.9999, p99_99), (1.0, max)];
        let named = given.into_iter().filter_map(|(quantile, limit)| Some((quantile, limit?.0)));
        named.map(|(quantile, limit)| Latency { quantile, limit }).collect()
    }
}
