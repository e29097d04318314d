//! Real clients of other protocols. Each client draws from two sources, is refused, and continues
//! after a restart and a kill -9. The Redis libraries also send pipelined requests. All IDs are
//! distinct, and IDs of one connection increase.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::clients::{can_run, newest, place, script};
use crate::support::drawn::Drawn;
use crate::support::machine::Machine;
use crate::support::{Ask, Daemon, Port, Setup, TWO_SOURCES, has_program, poll};

/// Two sources that always have IDs, and a source that has few IDs.
const SOURCES: &str = r#"
[[sources]]
name = "fast"
worker_ids = 1
[[sources]]
name = "second"
worker_ids = 2
[[sources]]
name = "slow"
layout = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z"
worker_ids = 1
"#;

/// A daemon that can be started again on the same port with the same state.
struct Restarted {
    machine: Machine,
    front_end: &'static str,
    port: Port,
    settings: &'static str,
    daemon: Daemon,
}

impl Restarted {
    fn start(front_end: &'static str, settings: &'static str) -> Restarted {
        let machine = Machine::new();
        let port = Port::take();
        let daemon = Self::serve(&machine, front_end, &port, settings);
        Restarted { machine, front_end, port, settings, daemon }
    }

    fn serve(machine: &Machine, front_end: &str, port: &Port, settings: &str) -> Daemon {
        let setup = machine.setup(&format!("{settings}\n{SOURCES}"));
        let option = format!("--{front_end}");
        let daemon = setup.option(&option, port.address().to_string()).listeners(2).start();
        await_far_ceilings(&daemon);
        daemon
    }

    /// Ends the daemon by a clean stop or by kill -9, and starts the daemon again.
    fn again(mut self, is_clean: bool) -> Restarted {
        if is_clean {
            self.daemon.stop();
        } else {
            self.daemon.kill();
        }
        let daemon = Self::serve(&self.machine, self.front_end, &self.port, self.settings);
        Restarted { daemon, ..self }
    }
}

/// Runs a phase of a client three times. After the first time the daemon is stopped cleanly and
/// started again. After the second time it is killed by kill -9 and started again.
fn in_phases(mut server: Restarted, mut phase: impl FnMut(&Restarted)) {
    for is_clean in [true, false] {
        phase(&server);
        server = server.again(is_clean);
    }
    phase(&server);
    server.daemon.stop();
}

/// Draws from sources 0 and 1 for a second, until their ceilings are seconds ahead. The first
/// ceilings after a start are low, and a busy machine may raise them too late for the client.
fn await_far_ceilings(daemon: &Daemon) {
    let mut wire = daemon.connect();
    let began = Instant::now();
    poll("IDs of both sources", || {
        let have_ids =
            ["fast", "slow"].map(|source| wire.next(Ask::of(1).source(source)).id_count().is_some());
        (have_ids == [true; 2] && began.elapsed() > Duration::from_secs(1)).then_some(())
    });
}

/// Runs a client's program through all phases, and checks that each phase draws this many IDs.
fn runs_through(mut command: Command, server: Restarted, ids_per_phase: usize) {
    command.arg(server.port.number().to_string()).arg(place().join("node_modules"));
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the client's program runs");
    let mut next = client.stdin.take().expect("piped");
    let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut drawn = Drawn::default();
    in_phases(server, |_| {
        let before = drawn.all.len();
        // The client waits for this line before every phase except the first.
        if before > 0 {
            writeln!(next, "go").expect("the client runs");
        }
        lines.by_ref().take_while(|line| line != "PHASE").for_each(|line| drawn.add(&line));
        assert_eq!(drawn.all.len() - before, ids_per_phase, "the number of IDs in a phase");
    });
    assert!(client.wait().expect("the process ends").success());
}

/// Runs clients of Redis through all phases, against daemons with the default settings.
fn run_through_with_redis(clients: &[(&Path, &str, usize)]) {
    for (program, client, ids_per_phase) in clients {
        let mut command = Command::new(program);
        command.arg(script(client));
        runs_through(command, Restarted::start("resp", ""), *ids_per_phase);
    }
}

#[test]
fn debians_redis_py_draws_ids_over_restarts() {
    let python = Path::new("/usr/bin/python3");
    if can_run(Command::new(python).args(["-c", "import redis"]), "python3-redis") {
        run_through_with_redis(&[(python, "redis_py.py", 2 * 1_230)]);
    }
}

#[test]
fn newest_redis_py_ioredis_and_node_redis_draw_over_restarts() {
    if let Some(python) = newest("venv/bin/python") {
        let node = Path::new("node");
        run_through_with_redis(&[
            (&python, "redis_py.py", 2 * 1_230),
            (node, "ioredis.js", 2 * 1_222),
            (node, "node_redis.js", 2 * 1_222),
        ]);
    }
}

#[test]
fn redis_cli_draws_ids_over_restarts() {
    if !has_program("redis-cli", "redis-tools") {
        return;
    }
    let server = Restarted::start("resp", "");
    let mut drawn = Drawn::default();
    in_phases(server, |server| {
        for source in ["fast", "second"] {
            let port = server.port.number().to_string();
            let run =
                |arguments: &[&str]| output_of(Command::new("redis-cli").args(["-p", &port]).args(arguments));
            for arguments in [&["-r", "20", "INCR", source][..], &["-3", "SNOWBANK.NEXT", source, "100"]] {
                let ids = run(arguments);
                assert!(ids.lines().count() >= 20, "{ids}");
                ids.lines().for_each(|id| drawn.add(&format!("ID {source} {id}")));
            }
            let refusal = run(&["INCR", "nothing"]);
            assert!(refusal.starts_with("UNKNOWN_SOURCE "), "{refusal}");
        }
    });
}

#[test]
fn pymemcache_draws_ids_over_restarts() {
    if let Some(python) = newest("venv/bin/python") {
        let mut command = Command::new(python);
        command.arg(script("pymemcache_py.py"));
        runs_through(command, Restarted::start("memcached", "limits.max_wait = \"500ms\""), 2 * 120);
    }
}

/// Runs a script that checks a client by itself, against a daemon with two sources.
fn checks_itself(front_end: &str, program: &Path, name: &str) {
    let daemon = Setup::configured(TWO_SOURCES).front_end(front_end).start();
    let port = daemon.addresses[1].tcp().port().to_string();
    let output = Command::new("timeout")
        .args([Path::new("60"), program, &script(name)])
        .arg(port)
        .arg(place().join("node_modules"))
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{name}: {output:?}");
    daemon.stop();
}

#[test]
fn clients_of_memcached_read_on_after_refusals() {
    if let Some(python) = newest("venv/bin/python") {
        checks_itself("memcached", &python, "memcached_clients.py");
        checks_itself("memcached", Path::new("node"), "memcached_clients.js");
    }
    let php = Path::new("php");
    if can_run(Command::new(php).args(["-r", "exit(class_exists('Memcached') ? 0 : 1);"]), "php-memcached") {
        checks_itself("memcached", php, "memcached_clients.php");
    }
}

#[test]
fn clients_of_redis_get_each_id_once() {
    if let Some(python) = newest("venv/bin/python") {
        checks_itself("resp", &python, "redis_pipeline.py");
        checks_itself("resp", Path::new("node"), "valkey_glide.js");
    }
}

/// Runs a program that checks a client of Redis by itself: pipelines of 80,000 requests, integers of
/// 64 bits, keys with a colon, a ticket source, a wrong token and a daemon that stands still.
fn checks_redis(name: &str, program: &Path, arguments: &[&str]) {
    let tickets = "[[sources]]\nname = \"tickets\"\nkind = \"ticket\"\n";
    let setup = Setup::configured(&format!("{TWO_SOURCES}\n{tickets}")).resp();
    setup.run(&["ticket", "set", "tickets", "1000"]).printed();
    let daemon = setup.start();
    let asks_token = Setup::configured(&format!("auth.token_file = \"tokens\"\n{TWO_SOURCES}")).resp();
    std::fs::write(asks_token.path("tokens"), "secret\n").expect("written");
    let asks_token = asks_token.start();
    let ports = [&daemon, &asks_token].map(|daemon| daemon.addresses[1].tcp().port().to_string());
    let mut command = Command::new("timeout");
    command.args([Path::new("120"), program]).args(arguments).args(ports);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
    let lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "READY"), "{name}");
    daemon.stand_still();
    let _ = client.stdin.take().expect("piped").write_all(b"\n");
    assert!(client.wait().expect("the process ends").success(), "{name}");
}

#[test]
fn redis_rs_reads_every_reply() {
    if let Some(program) = newest("redis_rs/debug/redis_rs") {
        checks_redis("redis-rs", &program, &[]);
    }
}

/// The library comes from Go's module proxy, and wants a newer Go than Debian's.
#[test]
fn go_redis_reads_every_reply() {
    let Some(go) = newest("golang/bin/go") else { return };
    let folder = TempDir::new().expect("a folder");
    std::fs::copy(script("redis_clients.go"), folder.path().join("main.go")).expect("copied");
    for step in [&["mod", "init", "clients"][..], &["get", GO_REDIS], &["build", "-o", "clients", "."]] {
        output_of(Command::new("timeout").arg("300").arg(&go).args(step).current_dir(folder.path()));
    }
    checks_redis("go-redis", &folder.path().join("clients"), &[]);
}

const GO_REDIS: &str = "github.com/redis/go-redis/v9@v9.23.0";

/// Also Spring's RedisAtomicLong, above Lettuce.
#[test]
fn jedis_and_lettuce_read_every_reply() {
    if !has_program("javac", "openjdk-17-jdk-headless") {
        return;
    }
    let Some(jars) = newest("jars") else { return };
    let folder = TempDir::new().expect("a folder");
    let classes = format!("{}/*:{}", jars.display(), folder.path().display());
    let mut build = Command::new("javac");
    build.args(["-cp", &classes, "-d"]).arg(folder.path()).arg(script("RedisClients.java"));
    output_of(&mut build);
    for library in ["jedis", "lettuce"] {
        checks_redis(library, Path::new("java"), &["-cp", &classes, "RedisClients", library]);
    }
}

#[test]
fn libmemcached_draws_ids_over_restarts() {
    if !has_program("memccat", "libmemcached-tools") {
        return;
    }
    let server = Restarted::start("memcached", "limits.max_wait = \"500ms\"");
    let mut drawn = Drawn::default();
    in_phases(server, |server| {
        let servers = format!("--servers={}", server.port.address());
        for form in [&[][..], &["--binary"]] {
            let keys = ["fast", "second"].repeat(20);
            let ids = output_of(Command::new("memccat").arg(&servers).args(form).args(&keys));
            assert_eq!(ids.lines().count(), keys.len(), "{ids}");
            keys.iter().zip(ids.lines()).for_each(|(key, id)| drawn.add(&format!("ID {key} {id}")));
        }
        let mut refused = Command::new("memccat");
        let refused = refused.arg(&servers).args(["slow"; 200]).output().expect("the program runs");
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains("exhausted retry_after_ms="), "{error}");
    });
}

/// Starts a server that ends with the returned value.
fn start(program: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    Ended(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"))
}

/// A process that is ended when this value is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// HAProxy's plain `option httpchk` sends OPTIONS without a Host header.
#[test]
fn haproxy_finds_the_http_front_end_up() {
    if !has_program("haproxy", "haproxy") || !has_program("curl", "curl") {
        return;
    }
    let daemon = Setup::configured(TWO_SOURCES).front_end("http").start();
    let (socket, config) = (daemon.path("haproxy.sock"), daemon.path("haproxy.cfg"));
    let port = Port::take();
    let text = format!(
        "global\n  stats socket {}\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n\
         listen ids\n  bind {}\n  option httpchk\n  server one {} check inter 100ms\n",
        socket.display(),
        port.address(),
        daemon.addresses[1]
    );
    std::fs::write(&config, text).expect("written");
    let _haproxy = start("haproxy", &["-f", config.to_str().expect("UTF-8")]);
    poll("a server that is up", || {
        let mut stats = UnixStream::connect(&socket).ok()?;
        stats.write_all(b"show stat\n").ok()?;
        let mut shown = String::new();
        stats.read_to_string(&mut shown).ok()?;
        let line = shown.lines().find(|line| line.starts_with("ids,one,"))?;
        (line.contains(",UP,") && line.contains("L7OK")).then_some(())
    });
    let id = output_of(Command::new("curl").args(["-sS", &format!("http://{}/id", port.address())]));
    assert!(id.parse::<u64>().is_ok(), "{id}");
}

/// The two cures that the refusal of a foreign name offers.
#[test]
fn nginx_passes_foreign_names_by_a_unix_socket_or_as_localhost() {
    if !has_program("nginx", "nginx-light") || !has_program("curl", "curl") {
        return;
    }
    let setup = Setup::configured(TWO_SOURCES).front_end("http");
    let socket = setup.path("http.sock");
    let daemon = setup.option("--http", format!("unix:{}", socket.display())).listeners(3).start();
    let port = Port::take();
    let (at, config) = (daemon.addresses[1].to_string(), daemon.path("nginx.conf"));
    let text = format!(
        "daemon off; master_process off; pid {0}/nginx.pid; error_log {0}/nginx.log;\nevents {{}}\nhttp {{ access_log off;\n\
         server {{ listen {1}; proxy_set_header Host $host;\n\
         location /socket/ {{ proxy_pass http://unix:{2}:/; }}\n\
         location /named/ {{ proxy_pass http://{at}/; proxy_set_header Host localhost; }}\n\
         location /plain/ {{ proxy_pass http://{at}/; }} }} }}\n",
        daemon.path("").display(),
        port.address(),
        socket.display(),
    );
    std::fs::write(&config, text).expect("written");
    let _nginx = start("nginx", &["-c", config.to_str().expect("UTF-8"), "-e", "/dev/null"]);
    let ask = |path: &str| {
        let url = format!("http://{}/{path}/id", port.address());
        let output = Command::new("curl").args(["-s", "-H", "Host: ids.example", &url]).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("text")
    };
    poll("an ID by the Unix socket", || ask("socket").parse::<u64>().ok());
    assert!(ask("named").parse::<u64>().is_ok(), "{}", ask("named"));
    assert!(ask("plain").contains("proxy_set_header Host localhost"), "{}", ask("plain"));
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn curl_draws_ids_over_restarts() {
    if !has_program("curl", "curl") {
        return;
    }
    let server = Restarted::start("http", "");
    let mut drawn = Drawn::default();
    in_phases(server, |server| {
        let root = format!("http://{}", server.port.address());
        for source in ["fast", "second"] {
            // curl sends all these requests on one connection.
            let one = format!("{root}/v1/ids?source={source}&count=[1-20]");
            let ids = output_of(Command::new("curl").args(["-sS", "-H", "Accept: text/plain", &one]));
            assert_eq!(ids.lines().count(), 210, "{ids}");
            ids.lines().for_each(|id| drawn.add(&format!("ID {source} {id}")));
            let leaf = format!("{root}/api/snowflake/get/{source}");
            let id = output_of(Command::new("curl").args(["-sS", "-X", "GET", &leaf]));
            drawn.add(&format!("ID {source} {}", id.trim()));
        }
        let refused = output_of(Command::new("curl").args(["-sS", &format!("{root}/v1/ids?source=nothing")]));
        assert!(refused.contains("\"error\":\"unknown_source\""), "{refused}");
    });
}
