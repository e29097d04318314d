//! A real etcd.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{Coordinator, FIRST_ANSWER, Server, Tls};
use crate::{Port, has_program};

/// A single-member etcd.
pub struct Etcd {
    server: Server,
    peer: Port,
    /// The address for other members. The cluster's identity is a hash of this address.
    advertised: String,
}

impl Etcd {
    /// Starts an etcd and waits until it answers. Returns `None` if etcd is not installed.
    pub fn start() -> Option<Etcd> {
        if !has_program("etcd", "etcd-server") {
            return None;
        }
        let peer = Port::take();
        let advertised = format!("http://{}", peer.address());
        let mut etcd = Etcd { server: Server::new("etcd"), peer, advertised };
        etcd.run();
        Some(etcd)
    }

    /// Turns the stopped etcd into another cluster at the same client address.
    pub fn become_another(&mut self) {
        self.lose_data();
        self.peer = Port::take();
        self.advertised = format!("http://{}", self.peer.address());
    }

    /// Posts JSON to etcd's gateway. Returns `None` if the gateway does not answer.
    pub fn post(&self, path: &str, json: &str) -> Option<String> {
        post(self.address(), path, json, "", crate::DEADLINE)
    }

    /// Gives the user of `require_password` another password.
    pub fn change_password(&self, after: &str) {
        let answer = self.ask("/v3/auth/authenticate", r#"{"name":"root","password":"of-root"}"#);
        let token = answer.split_once(r#""token":""#).and_then(|(_, rest)| rest.split('"').next());
        let headers = format!("Authorization: {}\r\n", token.expect("a token"));
        let change = format!(r#"{{"name":"snowbank","password":"{after}"}}"#);
        let answer = post(self.address(), "/v3/auth/user/changepw", &change, &headers, crate::DEADLINE);
        let answer = answer.expect("etcd answers");
        assert!(!answer.contains("\"error\""), "{answer}");
    }

    #[track_caller]
    fn ask(&self, path: &str, json: &str) -> String {
        let answer = self.post(path, json).expect("etcd answers");
        assert!(!answer.contains("\"error\""), "{path} {json}: {answer}");
        answer
    }
}

fn post(to: SocketAddr, path: &str, json: &str, headers: &str, timeout: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    let length = json.len();
    write!(stream, "POST {path} HTTP/1.0\r\nHost: etcd\r\n{headers}Content-Length: {length}\r\n\r\n{json}")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// Encodes a text for etcd's gateway.
fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

impl Coordinator for Etcd {
    fn scheme(&self) -> &'static str {
        "http"
    }

    fn server(&self) -> &Server {
        &self.server
    }

    fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    fn run(&mut self) {
        let client = if self.server.tls.is_some() { self.tls_url() } else { self.url() };
        let peer = format!("http://{}", self.peer.address());
        let files = self.server.tls.iter().flat_map(|Tls { ca, certificate, key }| {
            [("--cert-file", certificate), ("--key-file", key), ("--trusted-ca-file", ca)]
        });
        let files = files.flat_map(|(name, path)| [OsStr::new(name), path.as_os_str()]);
        let mut command = Command::new("etcd");
        command
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &self.advertised])
            .args(["--initial-cluster", &format!("default={}", self.advertised), "--log-level", "error"])
            .args(files)
            .arg(format!("--client-cert-auth={}", self.server.tls.is_some()))
            .arg("--data-dir")
            .arg(self.server.data());
        self.server.run(&mut command, |address| {
            let answer = post(address, "/v3/kv/range", r#"{"key":"YQ=="}"#, "", FIRST_ANSWER)?;
            answer.contains("header").then_some(())
        });
    }

    fn get(&self, key: &str) -> String {
        let answer = self.ask("/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, base64(key)));
        answer.split_once("\"kvs\"").map(|(_, kvs)| kvs.to_owned()).unwrap_or_default()
    }

    fn put(&self, key: &str, value: &str) {
        let key = base64(key);
        let value = base64(value);
        self.ask("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#));
    }

    fn delete(&self, key: &str) {
        self.ask("/v3/kv/deleterange", &format!(r#"{{"key":"{}"}}"#, base64(key)));
    }

    /// The user has the rights that docs/fleet.md names, and no others.
    fn require_password(&self, password: &str) -> &'static str {
        for (user, password) in [("root", "of-root"), ("snowbank", password)] {
            self.ask("/v3/auth/user/add", &format!(r#"{{"name":"{user}","password":"{password}"}}"#));
            self.ask("/v3/auth/role/add", &format!(r#"{{"name":"{user}"}}"#));
            self.ask("/v3/auth/user/grant", &format!(r#"{{"user":"{user}","role":"{user}"}}"#));
        }
        // A prefix is a range that ends before the next higher text.
        let [from, to] = ["/snowbank/default/", "/snowbank/default0"].map(base64);
        let grant = format!(r#"{{"permType":"READWRITE","key":"{from}","range_end":"{to}"}}"#);
        self.ask("/v3/auth/role/grant", &format!(r#"{{"name":"snowbank","perm":{grant}}}"#));
        self.ask("/v3/auth/enable", "{}");
        "snowbank"
    }

    fn wrong_password(&self) -> &'static str {
        "authentication failed"
    }
}
