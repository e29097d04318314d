//! `snowbank layout NAME --sql DIALECT`: the functions of a layout for a database. One leads from
//! an ID to its instant, one from an instant to its first ID.

use super::chosen::Chosen;
use snowbank_id::layout::{Layout, Role};

/// A database's SQL.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Dialect {
    /// PostgreSQL 14 or later
    Postgres,
    /// MySQL 8 or MariaDB 10
    Mysql,
    /// SQLite 3.38 or later, which has no user-defined functions in SQL: expressions
    Sqlite,
}

/// The seconds from 0000-01-01 to 1970, a multiple of a minute. With these seconds added, no
/// instant is negative.
const YEAR_0_S: i64 = 62_167_219_200;

pub(super) fn functions(chosen: &Chosen, dialect: Dialect) -> String {
    let terms = Terms::of(chosen);
    match dialect {
        Dialect::Postgres => terms.postgres(),
        Dialect::Mysql => terms.mysql(),
        Dialect::Sqlite => terms.sqlite(),
    }
}

/// The numbers of a layout, and the terms that all dialects share.
struct Terms {
    label: String,
    /// The start of the functions' names.
    name: String,
    /// The difference that one tick makes in an ID.
    weight: u64,
    tick_ms: u64,
    epoch_ms: i64,
    /// The part of every ID that the constant fields make.
    constants: u64,
    last_id: u64,
    last_tick: u64,
    layout: Layout,
}

impl Terms {
    fn of(chosen: &Chosen) -> Terms {
        let layout = chosen.layout.clone();
        let label = chosen.label();
        let is_preset = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let name =
            if is_preset { format!("snowbank_{}", label.replace('-', "_")) } else { "snowbank".to_owned() };
        let weight = layout.fields()[0].weight();
        let constants = layout.fields().iter().map(|field| match field.role() {
            Role::Constant(value) => value * field.weight(),
            _ => 0,
        });
        Terms {
            weight,
            tick_ms: layout.tick_ms(),
            epoch_ms: layout.epoch_unix_ms(),
            constants: constants.sum(),
            last_id: layout.last_id(),
            last_tick: layout.last_id() / weight,
            label,
            name,
            layout,
        }
    }

    /// Returns the condition that a number is an ID of the layout. `div` and `rem` are the
    /// operators of integer division and its remainder.
    fn is_an_id(&self, id: &str, div: &str, rem: &str) -> String {
        let mut condition = format!("{id} BETWEEN 0 AND {}", self.last_id);
        for field in self.layout.fields() {
            if let Role::Constant(value) = field.role() {
                let weight = field.weight();
                let values = field.values();
                condition += &format!(" AND {id} {div} {weight} {rem} {values} = {value}");
            }
        }
        condition
    }

    /// Returns the expression for the Unix ms of an ID.
    fn unix_ms(&self, id: &str, div: &str) -> String {
        format!("({id} {div} {}{} + ({}))", self.weight, self.times_tick("*"), self.epoch_ms)
    }

    /// Returns an operator and the tick in ms, or nothing for a tick of 1 ms.
    fn times_tick(&self, operator: &str) -> String {
        if self.tick_ms == 1 { String::new() } else { format!(" {operator} {}", self.tick_ms) }
    }

    /// Returns the expression for the first ID of a tick.
    fn first_id(&self, tick: &str) -> String {
        let Terms { weight, constants, .. } = self;
        if *constants == 0 {
            format!("{tick} * {weight}")
        } else {
            format!("{tick} * {weight} + {constants}")
        }
    }

    fn heading(&self) -> String {
        format!(
            "-- The layout {}: the instant of an ID, NULL for other numbers;\n\
             -- and the first ID of an instant's tick, NULL after the last one.\n",
            self.label
        )
    }

    fn postgres(&self) -> String {
        let Terms { name, epoch_ms, last_tick, .. } = self;
        let is_an_id = self.is_an_id("id", "/", "%");
        let ms = self.unix_ms("id", "/");
        let unix_ms = "floor(extract(epoch FROM at AT TIME ZONE 'UTC') * 1000)::bigint";
        let tick = format!("(greatest({unix_ms} - ({epoch_ms}), 0){})", self.times_tick("/"));
        format!(
            "{heading}\
             CREATE OR REPLACE FUNCTION {name}_time(id bigint) RETURNS timestamptz\n\
             LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$\n  \
               SELECT CASE WHEN {is_an_id} THEN\n    \
                 (timestamp '1970-01-01' + {ms} / 3600000 * interval '1 hour'\n      \
                  + {ms} % 3600000 * interval '1 millisecond') AT TIME ZONE 'UTC'\n  \
               END\n\
             $$;\n\
             CREATE OR REPLACE FUNCTION {name}_first_id(at timestamptz) RETURNS bigint\n\
             LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$\n  \
               SELECT CASE WHEN {tick} <= {last_tick} THEN\n    \
                 {first_id}\n  \
               END\n\
             $$;\n",
            heading = self.heading(),
            first_id = self.first_id(&tick),
        )
    }

    fn mysql(&self) -> String {
        let Terms { name, tick_ms, epoch_ms, last_tick, .. } = self;
        let is_an_id = self.is_an_id("id", "DIV", "MOD");
        let ms = self.unix_ms("id", "DIV");
        let tick = format!(
            "(GREATEST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) - ({epoch_ms} * 1000), 0) DIV ({tick_ms} * 1000))"
        );
        format!(
            "{heading}-- Times are in UTC.\n\
             CREATE FUNCTION {name}_time(id BIGINT) RETURNS DATETIME(3) DETERMINISTIC NO SQL\n\
             RETURN IF({is_an_id},\n  \
               TIMESTAMPADD(MICROSECOND, {ms} * 1000, TIMESTAMP '1970-01-01 00:00:00'), NULL);\n\
             CREATE FUNCTION {name}_first_id(at DATETIME(6)) RETURNS BIGINT DETERMINISTIC NO SQL\n\
             RETURN IF({tick} <= {last_tick},\n  \
               {first_id}, NULL);\n",
            heading = self.heading(),
            first_id = self.first_id(&tick),
        )
    }

    fn sqlite(&self) -> String {
        let Terms { epoch_ms, last_tick, .. } = self;
        let is_an_id = self.is_an_id(":id", "/", "%");
        // Integer division cuts towards zero, so instants are made positive first.
        let since_year_0_ms = format!("({} + {})", self.unix_ms(":id", "/"), YEAR_0_S * 1000);
        let unix_ms = "CAST(round((julianday(:at) - 2440587.5) * 86400000) AS INTEGER)";
        let tick = format!("(max({unix_ms} - ({epoch_ms}), 0){})", self.times_tick("/"));
        format!(
            "{heading}\
             -- SQLite has no functions of one's own: put a column or a value in place of :id, or of :at.\n\
             -- Times are texts in UTC, to the millisecond.\n\
             SELECT CASE WHEN {is_an_id} THEN\n  \
               strftime('%Y-%m-%dT%H:%M:%S', {since_year_0_ms} / 1000 - {YEAR_0_S}, 'unixepoch')\n  \
               || printf('.%03dZ', {since_year_0_ms} % 1000)\n\
             END;\n\
             SELECT CASE WHEN {tick} <= {last_tick} THEN\n  \
               {first_id}\n\
             END;\n",
            heading = self.heading(),
            first_id = self.first_id(&tick),
        )
    }
}
