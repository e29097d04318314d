//! The inputs of a start and of each reload: the configuration file, options, and this process's
//! environment.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::admin::ADMIN_CONNECTIONS_MAX;
use crate::config::{
    self, Address, Credentials, NoStateDir, Overrides, Secrets, Settings, StateDirChoice, StatePlace, Unread,
    Warning,
};
use crate::os_clock;
use crate::server::{Reloaded, StartError};
use snowbank_id::layout::UnixMicros;
use snowbank_state::system_error::may_pass;
use snowbank_state::{lock_dir_is_a_containers, socket_is_replaceable};

/// The inputs of a configuration. A reload reads them as the start does: options and variables
/// override the file.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) config: Option<PathBuf>,
    pub(super) overrides: Overrides,
    /// The default number of shards at the start. A CPU limit that is set later does not change
    /// this number.
    pub(super) cores: NonZeroUsize,
}

impl From<Unread> for StartError {
    fn from(unread: Unread) -> Self {
        let reason = unread.first_line();
        match unread {
            Unread::File(file) => StartError::from_system(may_pass(&file.error), reason),
            Unread::Mistakes(mistakes) if mistakes.are_all_of_the_clock() => StartError::ClockBehind(reason),
            Unread::Mistakes(_) | Unread::StateDir(_) => StartError::WrongSetting(reason),
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
        loaded.map_err(Unread::Mistakes)
    }

    /// Reads all again, for a reload.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(super) fn read_again(&self) -> Result<Reloaded, Unread> {
        let now = os_clock::read().wall;
        let (mut settings, secrets) = self.read(now)?;
        let level = settings.log.level;
        settle_state_dir(&mut settings).map_err(Unread::StateDir)?;
        let mut warnings = warnings(&settings, &secrets, now);
        warnings.extend(allow_open_files(&mut settings));
        // At a start, options and variables override the file on purpose. But an operator who
        // reloads expects the file's values.
        warnings.extend_from_slice(&settings.origins.overridden);
        Ok(Reloaded { settings, secrets, warnings, level, has_file: self.config.is_some() })
    }
}

/// Returns the warnings of the settings, and of the files that they name.
pub(super) fn warnings(settings: &Settings, secrets: &Secrets, now: UnixMicros) -> Vec<String> {
    settings.warnings(now).iter().chain(&secrets.warnings).map(Warning::to_string).collect()
}

/// Returns a warning for each misspelt environment variable, and for each Unix socket that every
/// user can replace. Also warns if only this container sees the locks.
pub(super) fn warnings_of_environment(settings: &Settings) -> Vec<String> {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let misspelt = config::unknown_variables(variables);
    let containers = lock_dir_is_a_containers(&settings.lock_dir).filter(|_| !settings.has_fleet_for_all());
    let addresses = settings.client_addresses().chain(&settings.admin.listen);
    let replaceable = addresses.filter_map(|address| match address {
        Address::Unix(path) => socket_is_replaceable(path),
        Address::Tcp { .. } | Address::Tls { .. } => None,
    });
    misspelt.into_iter().chain(containers).chain(replaceable).collect()
}

/// Returns the place of the state, and writes it into the settings. So a reload compares the places
/// themselves, whether a setting or the environment names them.
pub(super) fn settle_state_dir(settings: &mut Settings) -> Result<StatePlace, NoStateDir> {
    let place = settings.state_dir.place(|name| std::env::var_os(name))?;
    settings.state_dir = place.directory.clone().map_or(StateDirChoice::None, StateDirChoice::At);
    Ok(place)
}

/// The state directory of the packaged service snowbank. The state of snowbank@NAME is in its
/// subdirectory NAME.
const SERVICE_STATE_DIR: &str = "/var/lib/snowbank";
/// The variable by which systemd names a service's state directory.
pub(super) const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Returns an environment variable of this process. If `STATE_DIRECTORY` is asked for and not set,
/// returns the state directory of the packaged service of this name.
pub(super) fn environment_of_service(unit: Option<&str>, name: &str) -> Option<OsString> {
    let own = std::env::var_os(name);
    if name != STATE_DIRECTORY || own.is_some() {
        return own;
    }
    match unit? {
        "snowbank" => Some(SERVICE_STATE_DIR.into()),
        instance => Some(format!("{SERVICE_STATE_DIR}/{instance}").into()),
    }
}

/// Returns an environment variable of this process. For root, the default of `STATE_DIRECTORY` is
/// the packaged service's state directory, if that exists.
pub(super) fn environment_of_operator(name: &str) -> Option<OsString> {
    let own = std::env::var_os(name);
    if own.is_some() || name != STATE_DIRECTORY || !rustix::process::getuid().is_root() {
        return own;
    }
    Path::new(SERVICE_STATE_DIR).is_dir().then(|| SERVICE_STATE_DIR.into())
}

/// Turns core dumps of this process off: its memory has tokens that clients send, and keys. A limit
/// of one byte also keeps the kernel from piping the memory to a program, which a limit of zero does
/// not.
pub(super) fn forbid_cores() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // Fails only if the limit was 0 already.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
}

/// Raises the soft limit of open files to the hard limit, because each connection is an open file.
/// Lowers `max_connections` to the number that fits, so that the daemon refuses further connections
/// instead of letting them wait. Returns a warning about that.
pub(super) fn allow_open_files(settings: &mut Settings) -> Option<String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the system refuses, the soft limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current?;
    let worker_ids: usize =
        settings.sources.iter().map(|source| source.worker_ids.set.len().max(source.picks())).sum();
    let own = FILES_OF_ITS_OWN
        + FILES_PER_SHARD * settings.shards.get()
        + settings.client_addresses().count()
        + worker_ids
        + settings.admin.listen.len() * (1 + ADMIN_CONNECTIONS_MAX);
    let fit = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(own).max(1);
    let wanted = settings.limits.max_connections;
    if wanted <= fit {
        return None;
    }
    settings.limits.max_connections = fit;
    settings.connections_wanted = Some(wanted);
    Some(format!(
        "found a limit of {files} open files, which allows {fit} connections and not max_connections = {wanted}; \
         raise the limit (ulimit -n, LimitNOFILE), or lower the setting"
    ))
}

/// The daemon's own files: standard streams, the state and its directory, logs and resolvers, with
/// a reserve.
const FILES_OF_ITS_OWN: usize = 32;
/// The files of a shard's reactor: its epoll, its waker, and those that its runtime keeps.
const FILES_PER_SHARD: usize = 4;
