//! Handles SIGHUP: reads the configuration again and applies it while the daemon serves.

use std::io;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;

use tokio::signal::unix::Signal;

use super::inputs::{self, Inputs, Unread};
use crate::clock;
use crate::server::Reloader;
use crate::service::{self, Logs, Notifier};

/// Starts the thread that reloads at each request. Reactors must not read files, so the reload has
/// a thread of its own. A stop does not wait for this thread.
///
/// `warned` are the warnings that the start has logged: a reload does not repeat them.
pub(super) fn start(
    inputs: Inputs,
    mut reloader: Reloader,
    warned: Vec<String>,
    notifier: Notifier,
    mut logs: Logs,
) -> io::Result<SyncSender<()>> {
    let (sender, requests) = mpsc::sync_channel(1);
    let mut warned = warned;
    thread::Builder::new().name(String::from("reload")).spawn(move || {
        while let Ok(()) = requests.recv() {
            notifier.reloading();
            service::reload_begins();
            let outcome = reload(&inputs, &mut reloader, &mut logs);
            let result = outcome.as_ref().map(drop).map_err(String::as_str);
            reloader.record(result);
            service::reload_ended(result);
            match outcome {
                Ok((reloaded, warnings)) => {
                    let without_file = if inputs.config.is_none() {
                        " without a configuration file, because none was given (--config)"
                    } else {
                        ""
                    };
                    tracing::info!("reloaded{without_file}: {reloaded}");
                    for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
                        tracing::warn!("{warning}");
                    }
                    warned = warnings;
                }
                Err(reasons) => {
                    for reason in reasons.lines() {
                        tracing::error!("reload refused: {reason}");
                    }
                    tracing::error!("nothing was reloaded: the daemon keeps its configuration");
                }
            }
            logs.settle_level();
            notifier.reloaded();
        }
    })?;
    Ok(sender)
}

/// Requests a reload at each SIGHUP. If a requested reload has not begun, it serves this signal
/// too, because it has read nothing yet. Never completes.
pub(super) async fn at_hangups(mut hangups: Signal, requests: &SyncSender<()>) {
    while hangups.recv().await.is_some() {
        if let Err(TrySendError::Disconnected(())) = requests.try_send(()) {
            tracing::error!("cannot reload: its thread is gone");
        }
    }
    std::future::pending().await
}

/// Reloads. Returns the changes and the warnings of the new settings, or the reasons for a refusal,
/// one per line.
fn reload(
    inputs: &Inputs,
    reloader: &mut Reloader,
    logs: &mut Logs,
) -> Result<(String, Vec<String>), String> {
    let now = clock::os::read().wall;
    let (mut settings, mut secrets) = inputs.read(now).map_err(|unread| match unread {
        Unread::Mistakes(mistakes) => mistakes.to_string(),
        other => other.first_line(),
    })?;
    let level = settings.log.level;
    inputs::settle_state_dir(&mut settings).map_err(|error| error.to_string())?;
    let mut warnings = settings.warnings(now);
    warnings.append(&mut secrets.warnings);
    warnings.extend(inputs::allow_open_files(&mut settings));
    // At a start, options and variables override the file on purpose. But an operator who reloads
    // expects the file's values.
    warnings.extend_from_slice(&settings.origins.overridden);
    let reloaded = reloader.reload(settings, secrets)?;
    logs.set_level(level);
    Ok((reloaded, warnings))
}
