//! Each recipe of docs/clients.md draws its IDs from two daemons. One daemon is killed meanwhile,
//! and in a second run stopped. In a third run it has no free connection. No ID is missing or
//! repeated.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::secure::write_secret;
use crate::support::clients::{can_run, newest, script};
use crate::support::{Setup, has_program};

/// The number of IDs that a recipe draws.
const DRAWN: usize = 6_000;
/// The number of IDs that the test reads before the fault of the first daemon. The recipe still
/// draws then, because a pipe cannot hold all remaining IDs.
const BEFORE_THE_FAULT: usize = 1_500;

/// What happens to the first daemon.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL.
    Killed,
    /// SIGSTOP: its connections stay, and nothing answers.
    Stopped,
    /// All its connections are in use from the start on.
    Full,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a command whose script reads this recipe from docs/clients.md and runs it. The caller
/// adds the ports of the daemons as arguments.
fn scripted(program: &Path, name: &str, recipe: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(script(name)).arg(root().join("docs/clients.md")).arg(recipe);
    command
}

/// The recipes for Python, each with its front end.
const PYTHON: [(&str, &str); 3] = [("redis-py", "resp"), ("requests", "http"), ("pymemcache", "memcached")];
/// The recipes for Node, each with its front end.
const NODE: [(&str, &str); 3] = [("ioredis", "resp"), ("node-redis", "resp"), ("fetch", "http")];

fn in_python(recipe: &str) -> Option<Command> {
    Some(scripted(&newest("venv/bin/python")?, "recipe.py", recipe))
}

fn in_node(recipe: &str) -> Option<Command> {
    let modules = newest("node_modules")?;
    let mut command = scripted(Path::new("node"), "recipe.js", recipe);
    command.arg(modules);
    Some(command)
}

/// Writes the common recipe of a language and that of a library from the page into a new folder.
/// Adds the program that runs them. Each file has its name in its language.
fn written(language: &str, library: &str, files: [&str; 2], program: &str) -> TempDir {
    let page = std::fs::read_to_string(root().join("docs/clients.md")).expect("the page");
    let folder = TempDir::new().expect("a folder");
    for (fence, file) in [(language.to_owned(), files[0]), (format!("{language} {library}"), files[1])] {
        let (_, code) = page.split_once(&format!("```{fence}\n")).expect("the recipe");
        let (code, _) = code.split_once("```").expect("its end");
        let package = if file.ends_with(".go") { "package main\n\n" } else { "" };
        std::fs::write(folder.path().join(file), format!("{package}{code}")).expect("written");
    }
    std::fs::copy(script(program), folder.path().join(program)).expect("copied");
    folder
}

fn compile(command: &mut Command) {
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a recipe against two daemons with this front end, once for each fault of the first one.
/// `make` returns the command. The ports of the daemons are added to it.
fn numbers_rows(front_end: &str, name: &str, make: impl Fn() -> Command) {
    for fault in [Fault::Killed, Fault::Stopped, Fault::Full] {
        numbers_rows_over(fault, front_end, name, make());
    }
}

fn numbers_rows_over(fault: Fault, front_end: &str, name: &str, mut command: Command) {
    let start = |settings: &str| Setup::configured(settings).front_end(front_end).start();
    let is_full = matches!(fault, Fault::Full);
    let first = if is_full { "limits.max_connections = 1" } else { "" };
    let mut daemons = vec![start(&format!("worker_ids = 1\n{first}")), start("worker_ids = 2")];
    let _holder = is_full.then(|| daemons[0].connect());
    for daemon in &daemons {
        command.arg(daemon.addresses[1].tcp().port().to_string());
    }
    let mut recipe = command.stdout(Stdio::piped()).spawn().expect("the recipe runs");
    let mut ids = HashSet::new();
    let lines = BufReader::new(recipe.stdout.take().expect("piped")).lines().map_while(Result::ok);
    for line in lines {
        let id: u64 = line.parse().expect("an ID");
        assert!(ids.insert(id), "{name}, {fault:?}: {id} came twice");
        if ids.len() == BEFORE_THE_FAULT {
            match fault {
                Fault::Killed => daemons[0].kill(),
                Fault::Stopped => daemons[0].stand_still(),
                Fault::Full => {}
            }
        }
    }
    assert!(recipe.wait().expect("the process ends").success(), "{name}, {fault:?}");
    assert_eq!(ids.len(), DRAWN, "{name}, {fault:?}");
}

/// Checks that a recipe without a token fails after one request to a daemon that requires a token.
fn is_refused_once(front_end: &str, name: &str, mut command: Command) {
    let files = TempDir::new().expect("a folder");
    let tokens = files.path().join("tokens");
    write_secret(&tokens, "correct-horse-battery-staple\n");
    let settings = format!("auth.token_file = \"{}\"", tokens.display());
    let daemon = Setup::configured(&settings).front_end(front_end).start();
    let output =
        command.arg(daemon.addresses[1].tcp().port().to_string()).output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("refused 1 times: "), "{name}: {errors}");
}

#[test]
fn recipes_do_not_retry_refused_requests() {
    // The protocol of memcached has no tokens.
    for (name, front_end) in PYTHON.into_iter().filter(|(_, front_end)| *front_end != "memcached") {
        if let Some(command) = in_python(name) {
            is_refused_once(front_end, name, command);
        }
    }
    for (name, front_end) in NODE {
        if let Some(command) = in_node(name) {
            is_refused_once(front_end, name, command);
        }
    }
}

#[test]
fn recipes_for_python_draw_all_ids_over_faults() {
    for (name, front_end) in PYTHON {
        if in_python(name).is_some() {
            numbers_rows(front_end, name, || in_python(name).expect("it is there"));
        }
    }
    if in_python("redis-py").is_some() {
        numbers_rows("resp", "redis-py without hiredis", || {
            let mut command = in_python("redis-py").expect("it is there");
            command.env("WITHOUT_HIREDIS", "");
            command
        });
    }
}

#[test]
fn recipes_for_node_draw_all_ids_over_faults() {
    for (name, front_end) in NODE {
        if in_node(name).is_some() {
            numbers_rows(front_end, name, || in_node(name).expect("it is there"));
        }
    }
}

/// The libraries come from Debian's packages.
#[test]
fn recipes_for_php_and_ruby_draw_all_ids_over_faults() {
    for (program, check, script, name) in [
        ("php", ["-r", "exit(extension_loaded('redis') ? 0 : 1);"], "recipe.php", "phpredis"),
        ("ruby", ["-e", "require 'redis'"], "recipe.rb", "redis-rb"),
    ] {
        if can_run(Command::new(program).args(check), &format!("Debian's package for {program}")) {
            numbers_rows("resp", name, || scripted(Path::new(program), script, name));
        }
    }
}

/// The clients of Redis that the recipes for Go use. They come from Go's module proxy, and want a
/// newer Go than Debian's.
const GO: [(&str, &str); 2] =
    [("go-redis", "github.com/redis/go-redis/v9@v9.23.0"), ("redigo", "github.com/gomodule/redigo@v1.9.2")];

#[test]
fn recipes_for_go_draw_all_ids_over_faults() {
    let Some(go) = newest("golang/bin/go") else { return };
    for (name, module) in GO {
        let folder = written("go", name, ["ids.go", "connect.go"], "recipe.go");
        for step in [&["mod", "init", "recipe"][..], &["get", module], &["build", "-o", "recipe", "."]] {
            compile(Command::new("timeout").arg("300").arg(&go).args(step).current_dir(folder.path()));
        }
        numbers_rows("resp", name, || Command::new(folder.path().join("recipe")));
    }
}

/// `tests/clients/install` brings the libraries.
#[test]
fn recipes_for_java_draw_all_ids_over_faults() {
    if !has_program("javac", "openjdk-17-jdk-headless") {
        return;
    }
    let Some(jars) = newest("jars") else { return };
    for (front_end, name) in [("memcached", "spymemcached"), ("resp", "jedis"), ("resp", "lettuce")] {
        numbers_rows_in_java(front_end, name, &format!("{}/*", jars.display()));
    }
}

fn numbers_rows_in_java(front_end: &str, name: &str, jars: &str) {
    let folder = written("java", name, ["Ids.java", "Daemon.java"], "Recipe.java");
    let classes = format!("{jars}:.");
    let mut build = Command::new("javac");
    compile(
        build.args(["-cp", &classes, "Ids.java", "Daemon.java", "Recipe.java"]).current_dir(folder.path()),
    );
    numbers_rows(front_end, name, || {
        let mut command = Command::new("java");
        command.args(["-cp", &classes, "Recipe"]).current_dir(folder.path());
        command
    });
}
