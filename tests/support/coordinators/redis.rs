//! A real Redis, alone or with a replica and a sentinel that watches both.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::Signal;

use super::{Coordinator, FIRST_ANSWER, Server, Tls};
use crate::support::{self, has_program, poll};

/// A Redis that has each write on its disk before it answers.
pub(crate) struct Redis {
    server: Server,
}

impl Redis {
    /// Starts a Redis; `None` if it is not installed.
    pub(crate) fn start() -> Option<Redis> {
        if !has_program("redis-server", "redis-server") {
            return None;
        }
        let mut redis = Redis { server: Server::new("redis") };
        redis.run();
        Some(redis)
    }

    /// Makes one request, and returns the raw reply; `None` if there is none.
    pub(crate) fn try_ask(&self, words: &[&str]) -> Option<String> {
        try_ask(self.address(), words, support::DEADLINE)
    }

    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let reply = self.try_ask(words).expect("redis answers");
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        reply
    }

    /// Pauses it, or lets it continue.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.server.child.as_ref().expect("it runs"), signal);
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// Makes one request, and returns the raw reply; `None` if there is none.
fn try_ask(address: SocketAddr, words: &[&str], timeout: Duration) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    let mut request = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    stream.write_all(request.as_bytes()).ok()?;
    // Sentinels do not know QUIT.
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

    fn server(&self) -> &Server {
        &self.server
    }

    fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    fn run(&mut self) {
        std::fs::create_dir_all(self.server.data()).expect("a directory");
        let port = self.server.port.number().to_string();
        let mut command = Command::new("redis-server");
        match &self.server.tls {
            None => command.args(["--port", &port]),
            Some(Tls { ca, certificate, key }) => {
                command.args(["--port", "0", "--tls-port", &port, "--tls-cert-file"]).arg(certificate);
                command.arg("--tls-key-file").arg(key).arg("--tls-ca-cert-file").arg(ca)
            }
        };
        command
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(self.server.data());
        let probe = |address| (try_ask(address, &["PING"], FIRST_ANSWER)? == "+PONG\r\n").then_some(());
        self.server.run(&mut command, probe);
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

/// A master, its replicas, and a sentinel that promotes a replica when the master is away for three seconds.
pub(crate) struct Watched {
    pub(crate) master: Redis,
    pub(crate) replicas: Vec<Redis>,
    sentinel: Server,
}

impl Watched {
    /// Starts all of them; `None` if Redis is not installed.
    pub(crate) fn start(replicas: usize) -> Option<Watched> {
        if !has_program("redis-sentinel", "redis-sentinel") {
            return None;
        }
        let master = Redis::start()?;
        let master_port = master.server.port.number().to_string();
        let replicas: Vec<Redis> = (0..replicas).map_while(|_| Redis::start()).collect();
        for replica in &replicas {
            replica.ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
            replica.ask(&["REPLICAOF", "127.0.0.1", &master_port]);
        }
        poll("the replicas have the data", || {
            let is_up = |replica: &Redis| replica.ask(&["INFO", "replication"]).contains("link_status:up");
            replicas.iter().all(is_up).then_some(())
        });
        let mut sentinel = Server::new("redis-sentinel");
        let path = sentinel.path("sentinel.conf");
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master_port} 1\n\
             sentinel down-after-milliseconds main 3000\nsentinel failover-timeout main 2000\n",
            sentinel.port.number(),
            sentinel.directory.path().display()
        );
        std::fs::write(&path, text).expect("written");
        sentinel.run(Command::new("redis-sentinel").arg(&path), |address| {
            let reply = try_ask(address, &["SENTINEL", "REPLICAS", "main"], FIRST_ANSWER)?;
            (reply.matches("role-reported-time").count() == replicas.len()).then_some(())
        });
        Some(Watched { master, replicas, sentinel })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.sentinel.address())
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
