//! `snowbank check`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::inputs::{environment_of_service, warnings, warnings_of_environment};
use super::{Failure, Outcome, cores, service_user};
use crate::config::{self, Address, Credentials, Machine, Mistakes, Overrides, Settings, Unpicked};
use crate::os_clock;
use crate::server::{StartError, check_place, check_records};
use snowbank_id::layout::UnixMicros;
use snowbank_state::{Cause, StateError, check_lock_dir, store};

/// The text of `--help` below the options.
const HELP: &str = "\
Takes the same options and variables as `serve`, and without a file checks these alone. Also reads the files of tokens, certificates and keys that the \
configuration names. For root, it also lists the files that the packaged service's user cannot read. A configuration in \
/etc/snowbank is checked as its unit starts it, with the settings of /etc/default.

Also compares the state, as it is now, with the configuration and the machine's marks. Only a start can see: ports \
in use, worker IDs that it gets, what a fleet's coordinator or peers answer, what another daemon holds, marks of other layouts, and a clock \
that is too far behind. While a daemon runs, its marks are not compared.

Exit codes:
  0  no mistake found in configuration and state; a summary is printed
  1  there are mistakes, each on a line of standard output
  2  the file cannot be read as text";

/// The most attempts to read a state that a running daemon changes meanwhile. On a slow disk each
/// attempt may coincide with a raise.
const READINGS_MAX: usize = 10;

/// What is checked if there is no file, in words.
const NO_FILE: &str = "the options and variables";

/// Options of `snowbank check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The configuration, in TOML
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// FILE, as an option
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Box<Overrides>,
    /// Check a start with --adopt-state: another machine's state, and an older copy, are then no
    /// mistakes
    #[arg(long)]
    adopt_state: bool,
}

impl Arguments {
    /// Returns the path of the configuration, if there is one. FILE overrides the environment
    /// variable.
    fn path(&self) -> Result<Option<&Path>, Failure> {
        match (&self.file, &self.config) {
            (Some(file), Some(config))
                if std::env::var_os("SNOWBANK_CONFIG").as_deref() != Some(config.as_os_str()) =>
            {
                Err(Failure::usage(format_args!(
                    "found two configurations, {} and --config {}, allowed: one; check them one after the other",
                    file.display(),
                    config.display()
                )))
            }
            (file, config) => Ok(file.as_deref().or(config.as_deref())),
        }
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let file = arguments.path()?;
    // The path in messages.
    let path = file.unwrap_or(Path::new(NO_FILE));
    let text = file.map(config::read_file).transpose().map_err(Failure::usage)?;
    let now = os_clock::read().wall;
    let unit = file.and_then(service_user::unit_of);
    let unit = unit.as_deref();
    let overrides = arguments.overrides.clone().or_of(service_user::unit_variables(unit));
    let credentials = Credentials::of(|name| std::env::var_os(name)).or_elsewhere();
    let loaded = config::load_with_secrets(file.zip(text.as_deref()), &overrides, cores(), now, &credentials);
    let (mut settings, secrets) = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => return refuse(path, &mistakes, out),
    };
    let place = settings.state_dir.place(|name| environment_of_service(unit, name));
    let state = place.as_ref().ok().and_then(|place| place.directory.as_deref());
    let mut not_now: Vec<String> = unavailable(unit, &settings, state);
    let picked: Vec<_> = match settings.pick_worker_ids(&Machine::here()) {
        Err(Unpicked::Mistakes(mistakes)) => return refuse(path, &mistakes, out),
        Ok(lines) => lines.iter().map(|line| format!("on this machine, {line}")).collect(),
        Err(Unpicked::NoNumber { reason, may_pass: false }) => {
            writeln!(out, "{reason}")?;
            return Err(Failure::no(format_args!(
                "{}: `serve` would not start on this machine",
                path.display()
            )));
        }
        Err(Unpicked::NoNumber { reason, may_pass: true }) => {
            not_now.push(reason.to_string());
            Vec::new()
        }
    };
    let mut unread = None;
    if let Some(directory) = state {
        let refusal = match refusal_of_state(directory, arguments.adopt_state, &settings, now) {
            Ok(refusal) => refusal.map(|refusal| refusal.to_string()),
            Err(error) if matches!(error.cause(), Cause::Full | Cause::System { .. }) => {
                unread = Some(error);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(refusal) = refusal {
            writeln!(out, "{refusal}")?;
            return Err(Failure::no(format_args!("{}: `serve` refuses the state", path.display())));
        }
    }
    let mut warnings = warnings(&settings, &secrets, now);
    warnings.extend(state.into_iter().flat_map(|directory| ended_counters(directory, &settings)));
    let not_now = not_now.iter();
    warnings.extend(not_now.map(|reason| format!("`serve` would not start on this machine now: {reason}")));
    warnings.extend(settings.doubts(now));
    warnings.extend(place.as_ref().err().map(ToString::to_string));
    warnings.extend(unread.map(|error| error.to_string()));
    warnings.extend(warnings_of_environment(&settings));
    warnings.append(&mut service_user::warnings(file, &settings));
    warnings.append(&mut service_user::unusable(unit, &settings, state));
    let counted = match warnings.len() {
        0 => String::new(),
        1 => String::from(", 1 warning"),
        more => format!(", {more} warnings"),
    };
    writeln!(out, "{}: no mistakes{counted}", path.display())?;
    for line in settings.summary().into_iter().chain(picked) {
        writeln!(out, "{line}")?;
    }
    if let Ok(place) = &place {
        writeln!(out, "{place}")?;
    }
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// Returns the reasons why a start on this machine could not use its addresses or its directories.
/// The directories of the packaged unit are there once it starts.
fn unavailable(unit: Option<&str>, settings: &Settings, state: Option<&Path>) -> Vec<String> {
    let addresses = settings.client_addresses().chain(&settings.admin.listen);
    let addresses = addresses
        .filter(|address| !matches!(address, Address::Unix(socket) if service_user::makes(unit, socket)));
    let mut refusals: Vec<_> =
        addresses.filter_map(|address| Some(check_place(address).err()?.to_string())).collect();
    let own = |directory: &&Path| !service_user::makes(unit, directory);
    let state = state.filter(own).map(store::check_usable);
    let locks = Some(&*settings.lock_dir).filter(own).map(check_lock_dir);
    refusals
        .extend([state, locks].into_iter().flatten().filter_map(|checked| Some(checked.err()?.to_string())));
    refusals
}

/// Returns the error of a start that would refuse this state. Locks and writes nothing.
///
/// A daemon may start, stop or be killed while the state is read. So a refusal counts only if the
/// state is still the same after the check, or if all [`READINGS_MAX`] attempts end with a refusal.
///
/// # Errors
/// The state cannot be read.
fn refusal_of_state(
    directory: &Path,
    adopt: bool,
    settings: &Settings,
    now: UnixMicros,
) -> Result<Option<StartError>, StateError> {
    let mut refused = None;
    for _ in 0..READINGS_MAX {
        let records = store::read_to_write(directory)?;
        let Err(refusal) = check_records(&records, directory, adopt, settings, now) else { return Ok(None) };
        refused = Some(refusal);
        if store::read_to_write(directory)? == records {
            break;
        }
    }
    Ok(refused)
}

/// Returns a warning for each counter whose record has reached its maximum.
fn ended_counters(directory: &Path, settings: &Settings) -> Vec<String> {
    let records = store::read_to_write(directory).unwrap_or_default();
    let mut warnings = Vec::new();
    for source in &settings.sources {
        let Ok(numbering) = source.numbering() else { continue };
        let next = numbering.position_from(store::above_records(&records, &numbering));
        if numbering.ticket().is_some() && next >= numbering.end() {
            warnings.push(format!(
                "source {:?}: all numbers up to its maximum {} are handed out or reserved; raise `maximum`, if one is set, or \
                 move its table to a source with a layout",
                source.name,
                numbering.id_bound(numbering.end()) - 1
            ));
        }
    }
    warnings
}

fn refuse(path: &Path, mistakes: &Mistakes, out: &mut impl Write) -> Outcome {
    writeln!(out, "{mistakes}")?;
    let plural = if mistakes.len() == 1 { "mistake" } else { "mistakes" };
    Err(Failure::no(format_args!("{}: {} {plural}", path.display(), mistakes.len())))
}
