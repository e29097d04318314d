//! What the command line and the environment say in place of the file.

use std::borrow::Cow;

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::daemon::DAEMON;
use super::findings::Input;
use super::log::{LogFormat, LogLevel, LogSettings};
use super::reader::Reader;
use super::source::SOURCE;
use super::value::Value;

/// A value that takes the place of the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The texts given: one, but for options that may be repeated.
    pub texts: Vec<String>,
    /// What gave it, as errors name it: `--listen`, `SNOWBANK_LISTEN`.
    pub origin: &'static str,
}

/// The settings that options and environment variables can give. Options beat variables, and these beat the file.
///
/// As [`clap::Args`] it is flattened into every command that reads a configuration, so that all read it alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// In place of all of the file's listeners.
    pub listen: Option<Override>,
    /// The layout of the only source.
    pub layout: Option<Override>,
    /// The worker IDs of the only source.
    pub worker_ids: Option<Override>,
    /// The number of shards.
    pub shards: Option<Override>,
    /// The order of IDs.
    pub order: Option<Override>,
    /// The directory of what outlasts a restart.
    pub state_dir: Option<Override>,
    /// The directory of locks.
    pub lock_dir: Option<Override>,
    /// In place of all of the file's admin listeners.
    pub admin: Option<Override>,
    /// How events are written.
    pub log_format: Option<Override>,
    /// The least of the events that are written.
    pub log_level: Option<Override>,
}

/// One option and its variable.
struct OptionRow {
    /// The setting, by its full key.
    key: &'static str,
    /// With its dashes, as errors name it.
    option: &'static str,
    variable: &'static str,
    value_name: &'static str,
    help: &'static str,
}

const OPTIONS: [OptionRow; 10] = [
    OptionRow {
        key: "listen",
        option: "--listen",
        variable: "SNOWBANK_LISTEN",
        value_name: "ADDR",
        help: "Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file's listeners (repeatable) [default: 127.0.0.1:7660]",
    },
    OptionRow {
        key: "layout",
        option: "--layout",
        variable: "SNOWBANK_LAYOUT",
        value_name: "NAME|SPEC",
        help: "The layout of IDs: a preset's name or a text form [default: twitter]",
    },
    OptionRow {
        key: "worker_ids",
        option: "--worker-id",
        variable: "SNOWBANK_WORKER_ID",
        value_name: "N|A-B",
        help: "The worker IDs that this daemon alone uses [default: 0, on loopback and Unix sockets only]",
    },
    OptionRow {
        key: "shards",
        option: "--shards",
        variable: "SNOWBANK_SHARDS",
        value_name: "N",
        help: "Threads that serve connections [default: one for each core]",
    },
    OptionRow {
        key: "order",
        option: "--order",
        variable: "SNOWBANK_ORDER",
        value_name: "relaxed|strict",
        help: "How IDs are ordered over connections [default: relaxed]",
    },
    OptionRow {
        key: "state_dir",
        option: "--state-dir",
        variable: "SNOWBANK_STATE_DIR",
        value_name: "DIR",
        help: "Keep what must outlast a restart here, created with mode 0700; `none`: nowhere [default: $STATE_DIRECTORY, \
               else ~/.local/state/snowbank]",
    },
    OptionRow {
        key: "lock_dir",
        option: "--lock-dir",
        variable: "SNOWBANK_LOCK_DIR",
        value_name: "DIR",
        help: "Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank]",
    },
    OptionRow {
        key: "admin.listen",
        option: "--admin",
        variable: "SNOWBANK_ADMIN",
        value_name: "ADDR",
        help: "Tell how the daemon is over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, \
               tls:HOST:PORT or unix:PATH [default: nowhere]",
    },
    OptionRow {
        key: "log.format",
        option: "--log-format",
        variable: "SNOWBANK_LOG_FORMAT",
        value_name: "FORMAT",
        help: "How events are written: auto, text, journald or json [default: auto, the journal where standard error leads \
               there]",
    },
    OptionRow {
        key: "log.level",
        option: "--log-level",
        variable: "SNOWBANK_LOG",
        value_name: "LEVEL",
        help: "The least that is said: error, warn, info, debug or trace [default: info]",
    },
];

impl Overrides {
    /// What they say of logs, for when the rest of a configuration is refused. A value that is refused counts as not given.
    pub fn log(&self) -> LogSettings {
        fn chosen<T: Copy + Default>(given: &Option<Override>, names: &[(&str, T)]) -> T {
            let text = given.as_ref().and_then(|given| given.texts.last());
            names
                .iter()
                .find(|(name, _)| text.is_some_and(|text| text == name))
                .map_or_else(T::default, |of| of.1)
        }
        LogSettings {
            format: chosen(&self.log_format, &LogFormat::NAMES),
            level: chosen(&self.log_level, &LogLevel::NAMES),
        }
    }

    fn slots(&mut self) -> [&mut Option<Override>; OPTIONS.len()] {
        let Self {
            listen,
            layout,
            worker_ids,
            shards,
            order,
            state_dir,
            lock_dir,
            admin,
            log_format,
            log_level,
        } = self;
        [listen, layout, worker_ids, shards, order, state_dir, lock_dir, admin, log_format, log_level]
    }

    /// Each override that was given, with the setting's key.
    fn given(&self) -> impl Iterator<Item = (&'static str, &Override)> {
        let Self {
            listen,
            layout,
            worker_ids,
            shards,
            order,
            state_dir,
            lock_dir,
            admin,
            log_format,
            log_level,
        } = self;
        let slots =
            [listen, layout, worker_ids, shards, order, state_dir, lock_dir, admin, log_format, log_level];
        OPTIONS.iter().zip(slots).filter_map(|(row, slot)| Some((row.key, slot.as_ref()?)))
    }
}

/// Of these environment variables, those that nothing reads though they are called as if: misspelt ones.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let known = |name: &str| {
        ["SNOWBANK_CONFIG", "SNOWBANK_ADDRESS"].contains(&name)
            || OPTIONS.iter().any(|row| row.variable == name)
    };
    names.into_iter().filter(|name| name.starts_with("SNOWBANK_") && !known(name)).collect()
}

impl clap::Args for Overrides {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(OPTIONS.iter().map(|row| {
            let arg = Arg::new(row.key)
                .long(row.option.trim_start_matches('-'))
                .env(row.variable)
                .value_name(row.value_name)
                .value_parser(ValueParser::string())
                .allow_hyphen_values(true)
                .help(row.help);
            match row.key {
                "listen" => arg.action(ArgAction::Append).value_delimiter(','),
                _ => arg,
            }
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
        for (row, slot) in OPTIONS.iter().zip(self.slots()) {
            let from_variable = matches.value_source(row.key) == Some(ValueSource::EnvVariable);
            let origin = if from_variable { row.variable } else { row.option };
            let texts: Vec<String> = matches.get_many(row.key).into_iter().flatten().cloned().collect();
            // An empty variable is one that was not set: many tools cannot unset one.
            let is_unset = texts.is_empty() || from_variable && texts.iter().all(String::is_empty);
            if !is_unset {
                *slot = Some(Override { texts, origin });
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Reads the overrides in place of what the document said.
    pub(super) fn read_overrides(&mut self, overrides: &Overrides) {
        for (key, given) in overrides.given() {
            let input = Input::Override(given.origin);
            let text = |text: &String| Spanned::new(0..0, DeValue::String(Cow::Owned(text.clone())));
            let value = match &given.texts[..] {
                [only] => text(only),
                texts => Spanned::new(0..0, DeValue::Array(texts.iter().map(text).collect::<DeArray<'_>>())),
            };
            if let Some(setting) = DAEMON.iter().find(|setting| setting.full_key(None) == key) {
                self.findings.read(setting, None, &input, Value(&value), &mut self.daemon);
            } else if let Some(setting) = SOURCE.iter().find(|setting| setting.key == key) {
                match &mut self.sources[..] {
                    [source] => self.findings.read(setting, Some(0), &input, Value(&value), source),
                    sources => {
                        let text = format!(
                            "found {} [[sources]] in the file, allowed: one, for it would not be clear which is meant; \
                             set {key} in each of them instead",
                            sources.len()
                        );
                        self.findings.mistake(input.origin(&(0..0)), key, text);
                    }
                }
            }
        }
    }
}
