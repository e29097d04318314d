//! A real ZooKeeper, and a client of its protocol with the four operations that tests need.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use super::{Coordinator, FIRST_ANSWER, Server, Tls};
use crate::{has_program, skip};

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;

/// The jar of Debian's package, which names most other jars that ZooKeeper needs, and the jar of
/// the logger.
const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";
/// All jars of the folder, because TLS needs more jars. A start with all jars takes twice the CPU
/// time.
const JARS_WITH_TLS: &str = "/usr/share/java/*";

/// A single ZooKeeper. It answers a write only after the write is on its disk.
pub struct ZooKeeper {
    server: Server,
}

impl ZooKeeper {
    /// Starts a ZooKeeper and waits until it answers. Returns `None` if ZooKeeper is not installed.
    pub fn start() -> Option<ZooKeeper> {
        if !has_program("java", "default-jre-headless") {
            return None;
        }
        if !Path::new("/usr/share/java/zookeeper.jar").exists() {
            skip("ZooKeeper is missing: install the package zookeeper (tests/run does it)");
            return None;
        }
        let mut zookeeper = ZooKeeper { server: Server::new("zookeeper") };
        zookeeper.run();
        Some(zookeeper)
    }

    /// Returns the configuration of a TLS listener. The key stores are PEM files. ZooKeeper
    /// recognizes them by their extensions.
    fn tls_listener(&self, Tls { ca, certificate, key }: &Tls) -> String {
        let own = self.server.path("own.pem");
        let trusted = self.server.path("ca.pem");
        let read = |path| std::fs::read(path).expect("a file");
        std::fs::write(&own, [read(key), read(certificate)].concat()).expect("written");
        std::fs::copy(ca, &trusted).expect("copied");
        format!(
            "secureClientPortAddress=127.0.0.1\nsecureClientPort={}\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.trustStore.location={}\nssl.clientAuth=need\n\
             ssl.protocol=TLSv1.3\nssl.enabledProtocols=TLSv1.3\nssl.ciphersuites=TLS_AES_128_GCM_SHA256\n",
            self.server.port.number(),
            own.display(),
            trusted.display()
        )
    }

    /// Makes one request on a new session. Returns the error and the answer's body.
    fn ask(&self, operation: i32, body: &[u8]) -> (i32, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address()).expect("ZooKeeper listens");
        stream.set_read_timeout(Some(crate::DEADLINE)).expect("a time limit");
        let mut exchange = |frame: Vec<u8>| {
            stream.write_all(&buffer(&frame)).expect("ZooKeeper reads");
            let mut size = [0; 4];
            stream.read_exact(&mut size).expect("ZooKeeper answers");
            let mut answer = vec![0; u32::from_be_bytes(size) as usize];
            stream.read_exact(&mut answer).expect("ZooKeeper answers");
            answer
        };
        exchange([&[0; 12][..], &10_000_i32.to_be_bytes(), &[0; 8], &buffer(&[0; 16])].concat());
        let answer = exchange([&1_i32.to_be_bytes(), &operation.to_be_bytes(), body].concat());
        let error = i32::from_be_bytes(answer[12..16].try_into().expect("four bytes"));
        (error, answer[16..].to_vec())
    }
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

impl Coordinator for ZooKeeper {
    fn server(&self) -> &Server {
        &self.server
    }

    fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    fn run(&mut self) {
        let configuration = self.server.path("zoo.cfg");
        let data = self.server.data();
        let port = self.server.port.number();
        let listener = match &self.server.tls {
            None => format!("clientPortAddress=127.0.0.1\nclientPort={port}\n4lw.commands.whitelist=srvr\n"),
            Some(tls) => self.tls_listener(tls),
        };
        let data = data.display();
        let text = format!("tickTime=500\ndataDir={data}\nadmin.enableServer=false\n{listener}");
        std::fs::write(&configuration, text).expect("written");
        let jars = if self.server.tls.is_some() { JARS_WITH_TLS } else { JARS };
        let mut command = Command::new("java");
        command
            .args([
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                "-cp",
                jars,
            ])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&configuration);
        self.server.run(&mut command, |address| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(FIRST_ANSWER)).ok()?;
            stream.write_all(b"srvr").ok()?;
            let mut answer = [0; 17];
            stream.read_exact(&mut answer).ok().filter(|()| answer == *b"Zookeeper version")
        });
    }

    fn get(&self, key: &str) -> String {
        let (error, body) = self.ask(GET_DATA, &[&buffer(key.as_bytes())[..], &[0]].concat());
        assert_eq!(error, 0, "{key}");
        String::from_utf8_lossy(&body).into_owned()
    }

    fn put(&self, key: &str, value: &str) {
        let named = [buffer(key.as_bytes()), buffer(value.as_bytes())].concat();
        let (error, _) = self.ask(SET_DATA, &[&named[..], &(-1_i32).to_be_bytes()].concat());
        if error == 0 {
            return;
        }
        // The nodes that the loop creates are persistent, and their access list lets anyone do
        // everything.
        let mut parents: Vec<&str> = key.match_indices('/').skip(1).map(|(end, _)| &key[..end]).collect();
        parents.push(key);
        for path in parents {
            let value = if path == key { value } else { "" };
            let anyone =
                [&1_u32.to_be_bytes()[..], &31_u32.to_be_bytes(), &buffer(b"world"), &buffer(b"anyone")];
            let named = [buffer(path.as_bytes()), buffer(value.as_bytes()), anyone.concat()].concat();
            self.ask(CREATE, &[&named[..], &[0; 4]].concat());
        }
    }

    fn delete(&self, key: &str) {
        let (error, _) = self.ask(DELETE, &[&buffer(key.as_bytes())[..], &(-1_i32).to_be_bytes()].concat());
        assert_eq!(error, 0, "{key}");
    }

    /// Sets no password. In ZooKeeper, the user who creates a node owns that node. So the password
    /// with which the fleet is prepared becomes the right password.
    fn require_password(&self, _password: &str) -> &'static str {
        "snowbank"
    }

    fn wrong_password(&self) -> &'static str {
        "NoAuth"
    }
}
