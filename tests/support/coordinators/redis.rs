//! A real Redis, alone or with a replica and a sentinel that watches both.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Coordinator, FIRST_ANSWER, Tls, await_answer, listens, spawn};
use crate::support::{self, Port, has_program, poll};

/// A Redis that has each write on its disk before it answers.
pub(crate) struct Redis {
    directory: TempDir,
    port: Port,
    child: Option<Child>,
    tls: Option<Tls>,
}

impl Redis {
    /// Starts a Redis; `None` if it is not installed.
    pub(crate) fn start() -> Option<Redis> {
        if !has_program("redis-server", "redis-server") {
            return None;
        }
        let mut redis = Redis { directory: support::directory(), port: Port::take(), child: None, tls: None };
        redis.run();
        Some(redis)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Makes one request, and returns the reply as it is; `None` if there is none.
    pub(crate) fn try_ask(&self, words: &[&str]) -> Option<String> {
        try_ask(self.address(), words, support::DEADLINE)
    }

    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let reply = self.try_ask(words).expect("redis answers");
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        reply
    }

    /// Pauses it or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.as_ref().expect("it runs"), signal);
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// Makes one request, and returns the reply as it is; `None` if there is none.
fn try_ask(address: SocketAddr, words: &[&str], timeout: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    let mut request = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    stream.write_all(request.as_bytes()).ok()?;
    // Sentinels know no QUIT.
    stream.shutdown(Shutdown::Write).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns the hash of a fleet and the field of a key.
fn split(key: &str) -> (String, &str) {
    let mut parts = key.splitn(4, '/').skip(2);
    let name = parts.next().expect("/snowbank/NAME/…");
    (format!("/snowbank/{name}"), parts.next().expect("a key of the fleet"))
}

impl Coordinator for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn address(&self) -> SocketAddr {
        self.port.address()
    }

    fn child(&mut self) -> &mut Option<Child> {
        &mut self.child
    }

    fn tls(&mut self) -> &mut Option<Tls> {
        &mut self.tls
    }

    fn run(&mut self) {
        std::fs::create_dir_all(self.data()).expect("a directory");
        let port = self.port.number().to_string();
        let mut command = Command::new("redis-server");
        match &self.tls {
            None => command.args(["--port", &port]),
            Some(Tls { ca, certificate, key }) => {
                command.args(["--port", "0", "--tls-port", &port, "--tls-cert-file"]).arg(certificate);
                command.arg("--tls-key-file").arg(key).arg("--tls-ca-cert-file").arg(ca)
            }
        };
        command
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(self.data());
        let (address, uses_tls, log) =
            (self.address(), self.tls.is_some(), self.directory.path().join("log"));
        let child = self.child.insert(spawn(&mut command, &log));
        await_answer("redis", child, &log, || {
            if uses_tls {
                return listens(address);
            }
            (try_ask(address, &["PING"], FIRST_ANSWER)? == "+PONG\r\n").then_some(())
        });
    }

    fn lose_data(&mut self) {
        assert!(self.child.is_none(), "it runs");
        std::fs::remove_dir_all(self.data()).expect("its data can be removed");
    }

    fn get(&self, key: &str) -> String {
        let (hash, field) = split(key);
        self.ask(&["HGET", &hash, field])
    }

    fn put(&self, key: &str, value: &str) {
        let (hash, field) = split(key);
        self.ask(&["HSET", &hash, field, value]);
    }

    fn delete(&self, key: &str) {
        let (hash, field) = split(key);
        self.ask(&["HDEL", &hash, field]);
    }

    fn require_password(&self, password: &str) -> &'static str {
        self.ask(&["CONFIG", "SET", "requirepass", password]);
        "default"
    }

    fn wrong_password(&self) -> &'static str {
        "WRONGPASS"
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A master, its replicas, and a sentinel that makes one of them master when the master is away for three seconds.
pub(crate) struct Watched {
    pub(crate) master: Redis,
    pub(crate) replicas: Vec<Redis>,
    sentinel: Child,
    port: Port,
    _directory: TempDir,
}

impl Watched {
    /// Starts all of them; `None` if Redis is not installed.
    pub(crate) fn start(replicas: usize) -> Option<Watched> {
        if !has_program("redis-sentinel", "redis-sentinel") {
            return None;
        }
        let master = Redis::start()?;
        let master_port = master.port.number().to_string();
        let replicas: Vec<Redis> = (0..replicas).map_while(|_| Redis::start()).collect();
        for replica in &replicas {
            replica.ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
            replica.ask(&["REPLICAOF", "127.0.0.1", &master_port]);
        }
        let (directory, port) = (support::directory(), Port::take());
        let path = directory.path().join("sentinel.conf");
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master_port} 1\n\
             sentinel down-after-milliseconds main 3000\nsentinel failover-timeout main 2000\n",
            port.number(),
            directory.path().display()
        );
        std::fs::write(&path, text).expect("written");
        let sentinel = spawn(Command::new("redis-sentinel").arg(&path), &directory.path().join("log"));
        let watched = Watched { master, replicas, sentinel, port, _directory: directory };
        poll("the replicas have the data", || {
            let is_up = |replica: &Redis| replica.ask(&["INFO", "replication"]).contains("link_status:up");
            watched.replicas.iter().all(is_up).then_some(())
        });
        poll("the sentinel knows the replicas", || {
            let reply = try_ask(watched.port.address(), &["SENTINEL", "REPLICAS", "main"], FIRST_ANSWER)?;
            (reply.matches("role-reported-time").count() == watched.replicas.len()).then_some(())
        });
        Some(watched)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// Returns the replica that became master, once one has.
    pub(crate) fn promoted(&self) -> &Redis {
        poll("a new master", || {
            self.replicas
                .iter()
                .find(|redis| redis.try_ask(&["ROLE"]).is_some_and(|it| it.contains("master")))
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.sentinel.kill();
        let _ = self.sentinel.wait();
    }
}
