//! The SQL of `snowbank layout NAME --sql` in real databases. For every preset, the functions agree
//! with the library on random values and at limits.

use std::process::{Child, Command, Stdio};

use crate::support::postgres::{Postgres, lines};
use crate::support::program::snowbank;
use crate::support::{Random, directory, has_program, poll, skip};
use snowbank_id::layout::{Layout, PRESETS, UnixMicros};

/// Layouts with features that no preset has: constants, ticks of a minute and a day, an epoch in
/// 1600, the end of the calendar.
const OTHERS: &[&str] = &[
    "time:37,region:2:constant(1),worker:=100,sequence:2d,part:1d:constant(7),table:1d:random;tick=10ms;epoch=2026-01-01",
    "time:20,sequence:10;tick=60s;epoch=1600-02-29",
    "time:20,sequence:10;tick=86400s;epoch=1969-12-31T23:59:59.999Z",
    "time:41,sequence:12;tick=1s",
];

fn layouts() -> Vec<(String, Layout)> {
    let names = PRESETS.iter().map(|preset| preset.name).chain(OTHERS.iter().copied());
    names.map(|name| (name.to_owned(), Layout::resolve(name).expect("a layout"))).collect()
}

fn sql_of(layout: &str, dialect: &str) -> String {
    // If the life of a layout has ended, the command prints a warning and still succeeds.
    let said = snowbank(["layout", layout, "--sql", dialect]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.out
}

/// Returns numbers at the limits of a layout, and random numbers. Some of them are not IDs of the
/// layout.
fn ids(layout: &Layout, random: &mut Random) -> Vec<i64> {
    let last = layout.last_id();
    let weight = layout.fields()[0].weight();
    let (first, _) = layout.range(layout.first(), layout.first()).expect("the first tick");
    let mut ids =
        vec![0, first, first + 1, weight - 1, weight, weight + first, last, last - 1, last - last % weight];
    ids.extend((0..40).map(|_| random.below(last)));
    // The first IDs of random ticks, with the constants of this layout.
    ids.extend((0..20).map(|_| random.below(last / weight) * weight + first));
    let above = (last as i64).checked_add(1);
    ids.into_iter().map(|id| id as i64).chain([-1, i64::MIN]).chain(above).collect()
}

/// Returns instants that every database can write: some at the limits of a layout's life, and some
/// at random.
fn instants(layout: &Layout, step_us: i64, random: &mut Random) -> Vec<UnixMicros> {
    let first = layout.first().0;
    let last = layout.last().0;
    let tick_us = layout.tick_ms() as i64 * 1000;
    let mut instants = vec![first, first + tick_us, last, last - step_us, last + tick_us - step_us];
    instants.extend([first - step_us, first - 86_400_000_000]);
    let life = (last - first) as u64;
    instants.extend((0..40).map(|_| first + random.below(life) as i64 / step_us * step_us));
    instants.extend([last + tick_us, last + 86_400_000_000]);
    // The range of instants that RFC 3339 and every database can write.
    let writable = -62_135_000_000_000_000..253_402_207_200_000_000;
    instants.into_iter().filter(|at| writable.contains(at)).map(UnixMicros).collect()
}

/// Returns the expected time of an ID. The text is empty if the number is not an ID.
fn time_of(layout: &Layout, id: i64) -> String {
    let decoded = u64::try_from(id).ok().and_then(|id| layout.decode(id).ok());
    decoded.map_or_else(String::new, |decoded| decoded.instant.rfc3339(3))
}

/// Returns the expected first ID of an instant. The text is empty after the last tick.
fn first_id(layout: &Layout, at: UnixMicros) -> String {
    let range = layout.range(at, UnixMicros(i64::MAX));
    range.map_or_else(|_| String::new(), |(first, _)| first.to_string())
}

/// Returns the prefix of the names of a layout's functions.
fn prefix(layout: &str) -> String {
    if layout.contains(':') {
        "snowbank".to_owned()
    } else {
        format!("snowbank_{}", layout.replace('-', "_"))
    }
}

/// Compares both functions of every layout with the library. `run` gets the layout, a kind of value
/// (`id` or `at`) and the values, and returns the database's answers.
fn compare_with_the_library(step_us: i64, run: impl Fn(&str, &str, &[String]) -> Vec<String>) {
    let mut random = Random::seeded(13);
    for (name, layout) in layouts() {
        let ids = ids(&layout, &mut random).into_iter();
        let times: (Vec<_>, Vec<_>) = ids.map(|id| (id.to_string(), time_of(&layout, id))).unzip();
        let instants = instants(&layout, step_us, &mut random).into_iter();
        let first_ids: (Vec<_>, Vec<_>) = instants.map(|at| (at.rfc3339(6), first_id(&layout, at))).unzip();
        for (kind, (inputs, expected)) in [("id", times), ("at", first_ids)] {
            let found = run(&name, kind, &inputs);
            assert_eq!(found, expected, "{name}, {kind}: {inputs:?}");
        }
    }
}

#[test]
#[ignore = "needs PostgreSQL: tests/long runs it"]
fn postgresql_agrees_with_the_library() {
    let postgres = Postgres::start().expect("PostgreSQL");
    compare_with_the_library(1, |layout, kind, values| {
        let prefix = prefix(layout);
        // The result must not depend on the time zone of the session.
        let mut script = format!("SET TIME ZONE 'Asia/Kolkata';\n{}\n", sql_of(layout, "postgres"));
        for value in values {
            script += &match kind {
                "id" => format!(
                    "SELECT to_char({prefix}_time({value}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"');\n"
                ),
                _ => format!("SELECT {prefix}_first_id('{value}');\n"),
            };
        }
        postgres.rows(&script)
    });
}

#[test]
#[ignore = "needs PostgreSQL: tests/long runs it"]
fn postgresql_uses_the_primary_key_for_a_time_range() {
    let postgres = Postgres::start().expect("PostgreSQL");
    let rows = postgres.rows(&format!(
        "{}\nCREATE TABLE trades (id bigint PRIMARY KEY);\nSET enable_seqscan = off;\n\
         EXPLAIN SELECT * FROM trades WHERE id >= snowbank_clearing_first_id('2026-01-01') \
         AND id < snowbank_clearing_first_id('2026-01-02');\n\
         CREATE INDEX by_time ON trades (snowbank_clearing_time(id));",
        sql_of("clearing", "postgres")
    ));
    let plan = rows.join("\n");
    // The planner evaluates functions of constants, so the plan has numbers.
    assert!(plan.contains("Index Cond: ((id >= '1901765600000000000'"), "{plan}");
}

/// A MariaDB server on a Unix socket in a temporary directory. Dropping this value kills the
/// server.
struct MariaDb {
    server: Child,
    directory: tempfile::TempDir,
}

impl MariaDb {
    fn start() -> Option<MariaDb> {
        if !std::path::Path::new("/usr/sbin/mariadbd").is_file()
            || !has_program("mariadb", "mariadb-client-core")
        {
            skip("MariaDB is missing: install the package mariadb-server-core (tests/long does it)");
            return None;
        }
        let directory = directory();
        let data = format!("--datadir={}/data", directory.path().display());
        let mut user = vec!["--no-defaults", &data];
        user.extend(rustix::process::geteuid().is_root().then_some("--user=root"));
        let grants = ["--auth-root-authentication-method=normal", "--skip-test-db"];
        lines(Command::new("mariadb-install-db").args(&user).args(grants));
        let server = Command::new("/usr/sbin/mariadbd")
            .args(&user)
            .arg("--skip-networking")
            .arg(format!("--socket={}/socket", directory.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let maria = MariaDb { server, directory };
        poll("a MariaDB that answers", || {
            maria.client().args(["-e", "SELECT 1"]).output().ok().filter(|out| out.status.success())
        });
        lines(maria.client().args(["-e", "CREATE DATABASE test"]));
        Some(maria)
    }

    fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--skip-column-names", "--batch"]);
        client.arg(format!("--socket={}/socket", self.directory.path().display()));
        client
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
#[ignore = "needs MariaDB: tests/long runs it"]
fn mariadb_agrees_with_the_library() {
    let maria = MariaDb::start().expect("MariaDB");
    let path = maria.directory.path().join("script.sql");
    compare_with_the_library(1, |layout, kind, values| {
        let prefix = prefix(layout);
        let drop =
            format!("DROP FUNCTION IF EXISTS {prefix}_time;\nDROP FUNCTION IF EXISTS {prefix}_first_id;\n");
        let mut script = format!("USE test;\n{drop}{}\n", sql_of(layout, "mysql"));
        for value in values {
            script += &match kind {
                "id" => {
                    format!("SELECT ifnull(concat(replace({prefix}_time({value}), ' ', 'T'), 'Z'), '');\n")
                }
                _ => format!("SELECT ifnull({prefix}_first_id('{}'), '');\n", value.trim_end_matches('Z')),
            };
        }
        std::fs::write(&path, script).expect("a file");
        lines(maria.client().stdin(std::fs::File::open(&path).expect("a file")))
    });
}

#[test]
fn sqlite_agrees_with_the_library() {
    if !has_program("sqlite3", "sqlite3") {
        return;
    }
    let directory = directory();
    let path = directory.path().join("script.sql");
    compare_with_the_library(1_000, |layout, kind, values| {
        let sql = sql_of(layout, "sqlite");
        let mut statements = sql.split(';');
        let found = statements.find(|statement| {
            let parameter = format!(":{kind}");
            statement.lines().any(|line| !line.starts_with("--") && line.contains(&parameter))
        });
        let statement = found.expect("a statement");
        let rows: Vec<String> = values
            .iter()
            .map(|value| if kind == "id" { format!("({value})") } else { format!("('{value}')") })
            .collect();
        let statement = statement.replace(&format!(":{kind}"), "given.column1");
        std::fs::write(&path, format!("{statement} FROM (VALUES {}) AS given;", rows.join(",")))
            .expect("a file");
        lines(Command::new("sqlite3").arg(":memory:").stdin(std::fs::File::open(&path).expect("a file")))
    });
}
