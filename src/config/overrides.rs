//! The options and environment variables that override the file.

use std::borrow::Cow;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches};
use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::LogSettings;
use super::Protocol;
use super::daemon::rows;
use super::input::Input;
use super::machine::IPV4_VARIABLE;
use super::reader::Reader;
use super::setting::Row;
use super::suggest::nearest;
use super::value::Value;

/// A value that overrides the value in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The setting, by its key with its section.
    pub key: String,
    /// The given strings: one, or several for a list.
    pub texts: Vec<String>,
    /// The option or variable, as errors name it: `--listen`, `SNOWBANK_LISTEN`.
    pub origin: String,
}

/// The settings that options and environment variables give. Options override variables, and
/// variables override the file.
///
/// `serve`, `check` and `fleet` flatten this into their arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(pub Vec<Override>);

/// A setting's key, its option, the name of the option's value, and the help.
type CommandOption = (&'static str, &'static str, &'static str, &'static str);

/// The options before those of the front ends.
#[rustfmt::skip]
const FIRST_OPTIONS: [CommandOption; 7] = [
    ("listen", "listen", "ADDR", "Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file's listeners (repeatable)"),
    ("layout", "layout", "NAME|SPEC", "The layout of IDs: a preset's name or a text form"),
    ("worker_ids", "worker-id", "N|A-B", "The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3). Without them the worker ID is 0, and the daemon listens on loopback and Unix sockets only"),
    ("shards", "shards", "N", "Threads that serve connections; auto is one for each core"),
    ("order", "order", "relaxed|strict", "How IDs are ordered across connections"),
    ("state_dir", "state-dir", "DIR", "The directory for what must outlast a restart, created with mode 0700; `none`: no state is kept. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank"),
    ("lock_dir", "lock-dir", "DIR", "Keep the locks of worker IDs here, shared by all daemons of the machine"),
];

/// The options after those of the front ends.
#[rustfmt::skip]
const LAST_OPTIONS: [CommandOption; 3] = [
    ("admin.listen", "admin", "ADDR", "Report the daemon's state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere"),
    ("log.format", "log-format", "FORMAT", "The form of log messages: auto, text, journald or json; auto means journald if standard error leads to the journal"),
    ("log.level", "log-level", "LEVEL", "The least severe messages to log: error, warn, info, debug or trace"),
];

/// Returns the settings that have an option.
pub(super) fn options() -> impl Iterator<Item = CommandOption> {
    let front_ends = Protocol::ALL.into_iter().filter_map(|protocol| {
        let help = protocol.option_help()?;
        Some((protocol.listen_key(), protocol.name(), "ADDR", help))
    });
    FIRST_OPTIONS.into_iter().chain(front_ends).chain(LAST_OPTIONS)
}

/// Returns the setting with this key, which includes the section.
fn row_of(key: &str) -> Option<&'static Row> {
    rows().find(|row| row.full_key(None) == key)
}

/// Returns whether a setting is a list.
fn is_list(key: &str) -> bool {
    ["fleet.endpoints", "fleet.peers"].contains(&key) || key.rsplit('.').next() == Some("listen")
}

/// Returns the help of an option with its default and its variable.
fn help(key: &str, help: &str) -> String {
    let Some(row) = row_of(key) else { return help.to_owned() };
    let default = row.default.trim_matches(['[', ']', '"']);
    let default = if default.is_empty() { String::new() } else { format!(" [default: {default}]") };
    format!("{help}{default} [env: {}]", row.variable())
}

/// Returns a warning for each name that begins with `SNOWBANK_`, but is no variable that Snowbank
/// reads.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let known: Vec<String> = rows()
        .map(Row::variable)
        .chain(["SNOWBANK_CONFIG", "SNOWBANK_ADDRESS", IPV4_VARIABLE].map(String::from))
        .collect();
    let mut warnings = Vec::new();
    for name in names {
        if !name.starts_with("SNOWBANK_") || known.contains(&name) {
            continue;
        }
        let key = |name: &str| name.trim_start_matches("SNOWBANK_").to_owned();
        let keys = known.iter().map(|known| (key(known), format!("did you mean {known}?")));
        let meant = nearest(&key(&name), keys);
        let meant =
            meant.unwrap_or_else(|| "write SNOWBANK_, the setting's section and its key, in capitals".into());
        warnings.push(format!("the environment variable {name} is unknown; {meant}"));
    }
    warnings
}

impl Overrides {
    /// Returns the log settings that the overrides give, for use when the configuration is refused.
    /// A refused value counts as not given.
    pub fn log(&self) -> LogSettings {
        let mut reader = Reader::new();
        reader.read_overrides(self);
        reader.settings.log
    }

    /// Returns the settings that environment variables give, for a command without these options.
    ///
    /// # Errors
    /// A variable is not UTF-8.
    pub fn from_variables() -> Result<Overrides, clap::Error> {
        let mut overrides = Overrides::default();
        rows().try_for_each(|row| overrides.add_variable(row))?;
        Ok(overrides)
    }

    /// Adds the settings of other variables, such as those of a unit, where none is given yet. An
    /// empty variable counts as not set.
    #[must_use]
    pub fn or_of(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Overrides {
        for (origin, text) in variables {
            let row = rows().find(|row| row.variable() == origin);
            let key = row.map(|row| row.full_key(None)).unwrap_or_default();
            if row.is_some() && !text.is_empty() && !self.0.iter().any(|given| given.key == key) {
                self.0.push(Override { texts: texts_of(&key, text), key, origin });
            }
        }
        self
    }

    /// Adds an override if the variable of this setting is set. An empty variable counts as not
    /// set, because many tools cannot unset one.
    fn add_variable(&mut self, row: &Row) -> Result<(), clap::Error> {
        let key = row.full_key(None);
        let origin = row.variable();
        let Some(text) = std::env::var_os(&origin).filter(|text| !text.is_empty()) else { return Ok(()) };
        let text = text.into_string().map_err(|_| {
            clap::Error::raw(ErrorKind::InvalidUtf8, format!("{origin}: found text that is not UTF-8\n"))
        })?;
        self.0.push(Override { texts: texts_of(&key, text), key, origin });
        Ok(())
    }
}

fn texts_of(key: &str, text: String) -> Vec<String> {
    if is_list(key) { text.split(',').map(String::from).collect() } else { vec![text] }
}

impl clap::Args for Overrides {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(options().map(|(key, option, value_name, text)| {
            let arg = Arg::new(key)
                .long(option)
                .value_name(value_name)
                .value_parser(ValueParser::string())
                .allow_hyphen_values(true)
                .help(help(key, text));
            if is_list(key) { arg.action(ArgAction::Append).value_delimiter(',') } else { arg }
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Overrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut overrides = Overrides::default();
        overrides.update_from_arg_matches(matches)?;
        Ok(overrides)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.clear();
        for row in rows() {
            let key = row.full_key(None);
            let option = options().find(|(of, ..)| *of == key);
            let texts = option.and_then(|_| matches.get_many::<String>(&key));
            match option.zip(texts) {
                Some(((_, option, ..), texts)) => {
                    let texts = texts.cloned().collect();
                    let origin = format!("--{option}");
                    self.0.push(Override { key, texts, origin });
                }
                None => self.add_variable(row)?,
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Reads the overrides, which replace the document's values.
    pub(super) fn read_overrides(&mut self, overrides: &Overrides) {
        for Override { key, texts, origin } in &overrides.0 {
            let input = Input::Override(origin);
            let Some(row) = row_of(key) else { continue };
            // People write a blank behind a comma.
            let trimmed = |text: &String| if is_list(key) { text.trim().to_owned() } else { text.clone() };
            let mut texts = texts.iter().map(|text| DeValue::String(Cow::Owned(trimmed(text))));
            let value = match texts.len() {
                1 => texts.next().expect("there is one"),
                _ => DeValue::Array(texts.map(|text| Spanned::new(0..0, text)).collect::<DeArray<'_>>()),
            };
            let value = Spanned::new(0..0, value);
            let sources = self.settings.sources.len();
            if row.is_of_source() && sources > 1 {
                let text = format!(
                    "found {sources} [[sources]] in the file, allowed: one, because the source that {key} is meant for is not \
                     clear; set {key} in each of them instead"
                );
                self.findings.mistake(input.origin(&(0..0)), key, text);
                continue;
            }
            let source = row.is_of_source().then_some(0);
            self.findings.read(row, source, &input, Value::without_directory(&value), &mut self.settings);
        }
    }
}
