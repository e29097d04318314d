//! `snowbank check`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::inputs::{environment_of_service, warnings_of_environment};
use super::{Failure, Outcome, cores, service_user};
use crate::ceiling::{Cause, store};
use crate::clock;
use crate::config::{self, Credentials, Machine, Mistakes, Overrides, StatePlace, Unpicked};
use crate::server::check_records;

/// The text of `--help` below the options.
const HELP: &str = "\
Takes the same options and variables as `serve`. Also reads the state, and the files of tokens, certificates and keys \
that the configuration names. Run as root, it lists those that the packaged service's user cannot read.

Exit codes:
  0  `serve` accepts this configuration and this state; a summary is printed
  1  there are mistakes, each on a line of standard output
  2  the file cannot be read as text";

/// Options of `snowbank check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The configuration, in TOML
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// FILE, as an option
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE", required_unless_present = "file")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Box<Overrides>,
}

impl Arguments {
    /// Returns the file's path. A positional one overrides the variable.
    fn path(&self) -> Result<&Path, Failure> {
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
            (Some(path), _) | (None, Some(path)) => Ok(path),
            (None, None) => {
                Err(Failure::usage("found no configuration to check; name it: snowbank check FILE"))
            }
        }
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let path = arguments.path()?;
    let text = config::read_file(path).map_err(Failure::usage)?;
    let now = clock::os::read().wall;
    let credentials = Credentials::of(|name| std::env::var_os(name)).or_elsewhere();
    let loaded =
        config::load_with_secrets(Some((path, &text)), &arguments.overrides, cores(), now, &credentials);
    let (mut settings, secrets) = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => return refuse(path, &mistakes, out),
    };
    let picked = match settings.pick_worker_ids(&Machine::here()) {
        Err(Unpicked::Mistakes(mistakes)) => return refuse(path, &mistakes, out),
        Ok(lines) => lines.iter().map(|line| format!("on this machine, {line}")).collect(),
        Err(Unpicked::NoNumber { reason, .. }) => {
            vec![format!("warning: `serve` would not start on this machine: {reason}")]
        }
    };
    let place = settings.state_dir.place(|name| environment_of_service(path, name));
    // Read as `serve` does. Nothing is written.
    let mut unread = None;
    if let Some(directory) = place.as_ref().ok().and_then(StatePlace::path) {
        let refusal = match store::read(directory) {
            Ok(records) => check_records(&records, directory, &settings, now).err().map(|it| it.to_string()),
            Err(error) if matches!(error.cause(), Cause::System { .. }) => {
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
    writeln!(out, "{}: no mistakes", path.display())?;
    for line in settings.summary().into_iter().chain(picked) {
        writeln!(out, "{line}")?;
    }
    match place {
        Ok(place) => writeln!(out, "{place}")?,
        Err(error) => writeln!(out, "warning: {error}")?,
    }
    let warnings = settings.warnings(now).into_iter().chain(secrets.warnings);
    let warnings = warnings.chain(unread.map(|error| error.to_string()));
    let unreadable = service_user::warnings(path, &settings);
    for warning in warnings.chain(warnings_of_environment(&settings)).chain(unreadable) {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

fn refuse(path: &Path, mistakes: &Mistakes, out: &mut impl Write) -> Outcome {
    writeln!(out, "{mistakes}")?;
    let plural = if mistakes.len() == 1 { "mistake" } else { "mistakes" };
    Err(Failure::no(format_args!("{}: {} {plural}", path.display(), mistakes.len())))
}
