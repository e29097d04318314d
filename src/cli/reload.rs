//! SIGHUP: the configuration is read again and put in force while the daemon serves.

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

/// What a daemon is configured by. At a reload it is read as at the start: options and variables stay above the file.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) config: Option<PathBuf>,
    pub(super) overrides: Overrides,
    /// Shards if nothing says how many. As it was at the start: a limit set meanwhile changes nobody's settings.
    pub(super) cores: NonZeroUsize,
    /// Where the sockets listen that take the place of configured ones.
    pub(super) inherited: InheritedAddresses,
}

/// Why inputs are no settings.
#[derive(Debug)]
pub(super) enum Unread {
    /// The file cannot be read.
    File(config::FileError),
    /// What it says is wrong.
    Mistakes(Mistakes),
    /// It does not fit the inherited sockets.
    Exposed(String),
}

impl Unread {
    /// In one line.
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
    /// Reads the file, and those that it names.
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

/// Starts the thread that reloads when it is asked to. It reads files and waits for storage, which no reactor may. Nobody
/// waits for it when the daemon stops.
///
/// `warned` is what was warned of already: it is not said again at each reload.
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

/// Where to ask for a reload.
#[derive(Debug)]
pub(super) struct Requests(SyncSender<()>);

impl Requests {
    /// Asks for a reload that reads everything after this moment. One that waits to begin does; no request is lost.
    pub(super) fn ask(&self) {
        match self.0.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => tracing::error!("cannot reload: its thread is gone"),
        }
    }
}

/// One reload and what its settings are to be warned of, or the reasons why there was none, a line each.
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

/// Tells the operator: one line of what changed, or one for each reason.
fn tell(inputs: &Inputs, outcome: Result<Reloaded, String>) {
    match outcome {
        Ok(reloaded) if inputs.config.is_none() => {
            tracing::info!(
                "reloaded without a configuration file, for none was given (--config): {reloaded}"
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
