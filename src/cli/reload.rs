//! SIGHUP: reads the configuration again and applies it while the daemon serves.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;

use super::serve;
use crate::clock;
use crate::config::{
    self, Credentials, FileError, InheritedAddresses, Mistakes, Overrides, Secrets, Settings,
};
use crate::server::{Reloaded, Reloader, StartError};
use crate::service::{Logs, Notifier};
use crate::system_error::Attempt;
use snowbank_client::layout::UnixMicros;

/// The inputs of a configuration. A reload reads them as the start does: options and variables override the file.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) config: Option<PathBuf>,
    pub(super) overrides: Overrides,
    /// The default number of shards, as it was at the start: a limit set later changes no settings.
    pub(super) cores: NonZeroUsize,
    /// The addresses of inherited sockets, which replace the configured ones.
    pub(super) inherited: InheritedAddresses,
}

/// The reason why inputs are refused.
#[derive(Debug)]
pub(super) enum Unread {
    /// The file cannot be read.
    File(config::FileError),
    /// It has mistakes.
    Mistakes(Mistakes),
    /// It does not fit the inherited sockets.
    Exposed(String),
}

impl Unread {
    /// Returns the reason in one line.
    pub(super) fn first_line(&self) -> String {
        match self {
            Unread::File(error) => error.to_string(),
            Unread::Mistakes(mistakes) => mistakes.first_line(),
            Unread::Exposed(reason) => reason.clone(),
        }
    }
}

impl From<Unread> for StartError {
    fn from(unread: Unread) -> Self {
        let reason = unread.first_line();
        match unread {
            Unread::File(FileError::Unreadable { error, .. }) => {
                StartError::of_system(Attempt::UseFile, &error, reason)
            }
            Unread::Mistakes(mistakes) if mistakes.are_all_of_the_clock() => StartError::ClockBehind(reason),
            Unread::File(_) | Unread::Mistakes(_) | Unread::Exposed(_) => StartError::WrongSetting(reason),
        }
    }
}

impl Inputs {
    /// Reads the file, and the files that it names.
    pub(super) fn read(&self, now: UnixMicros) -> Result<(Settings, Secrets), Unread> {
        let text = self.config.as_deref().map(config::read_file).transpose().map_err(Unread::File)?;
        let file = self.config.as_deref().zip(text.as_deref());
        let credentials = Credentials::of(|name| std::env::var_os(name));
        let loaded = config::load_with_secrets(file, &self.overrides, self.cores, now, &credentials);
        let (mut settings, secrets) = loaded.map_err(Unread::Mistakes)?;
        settings.listen_at(&self.inherited).map_err(Unread::Exposed)?;
        Ok((settings, secrets))
    }
}

/// Starts the thread that reloads. It reads files and waits for storage, which no reactor may. A stop does not wait for it.
///
/// `warned` are the warnings that were logged already: a reload does not repeat them.
pub(super) fn start(
    inputs: Inputs,
    mut reloader: Reloader,
    warned: Vec<String>,
    notifier: Notifier,
    mut logs: Logs,
) -> io::Result<Requests> {
    let (sender, requests) = mpsc::sync_channel(1);
    let mut warned = warned;
    thread::Builder::new().name(String::from("reload")).spawn(move || {
        while let Ok(()) = requests.recv() {
            notifier.reloading();
            let outcome = reload(&inputs, &mut reloader, &mut logs).map(|(reloaded, warnings)| {
                let before = std::mem::replace(&mut warned, warnings);
                let new = warned.iter().filter(|warning| !before.contains(warning));
                Reloaded { notes: reloaded.notes.into_iter().chain(new.cloned()).collect(), ..reloaded }
            });
            tell(&inputs, outcome);
            logs.settle_level();
            notifier.reloaded();
        }
    })?;
    Ok(Requests(sender))
}

/// The channel on which a reload is requested.
#[derive(Debug)]
pub(super) struct Requests(SyncSender<()>);

impl Requests {
    /// Requests a reload that reads everything after this moment. If one is waiting to begin, that one serves.
    pub(super) fn ask(&self) {
        match self.0.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => tracing::error!("cannot reload: its thread is gone"),
        }
    }
}

/// Reloads. Returns the changes and the warnings of the new settings, or the reasons for a refusal, one per line.
fn reload(
    inputs: &Inputs,
    reloader: &mut Reloader,
    logs: &mut Logs,
) -> Result<(Reloaded, Vec<String>), String> {
    let now = clock::os::read().wall;
    let (mut settings, mut secrets) = inputs.read(now).map_err(|unread| match unread {
        Unread::Mistakes(mistakes) => mistakes.to_string(),
        other => other.first_line(),
    })?;
    let level = settings.log.level;
    serve::settle_state_dir(&mut settings).map_err(|error| error.to_string())?;
    let too_few_files = serve::allow_open_files(&mut settings);
    let of_secrets = std::mem::take(&mut secrets.warnings);
    let warnings = settings.warnings(now).into_iter().chain(of_secrets).chain(too_few_files).collect();
    let reloaded = reloader.reload(settings, secrets).map_err(|error| error.to_string())?;
    logs.set_level(level);
    Ok((reloaded, warnings))
}

/// Logs the changes in one line, or each reason in a line of its own.
fn tell(inputs: &Inputs, outcome: Result<Reloaded, String>) {
    match outcome {
        Ok(reloaded) if inputs.config.is_none() => {
            tracing::info!(
                "reloaded without a configuration file, because none was given (--config): {reloaded}"
            );
        }
        Ok(reloaded) => {
            tracing::info!("reloaded: {reloaded}");
            reloaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
        }
        Err(reasons) => {
            for reason in reasons.lines() {
                tracing::error!("reload refused: {reason}");
            }
            tracing::error!("nothing was reloaded: the daemon goes on with the configuration that it has");
        }
    }
}
