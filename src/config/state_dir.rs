//! The place of the state, which must outlast a restart.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::Settings;

/// The setting `state_dir`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDirChoice {
    /// An empty setting: the directory that the environment names.
    #[default]
    Default,
    /// No state is kept: uniqueness over restarts then depends on the clock alone.
    None,
    /// This directory.
    At(PathBuf),
}

/// The place of the state, and what named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePlace {
    /// The directory; `None` if nothing is kept.
    pub directory: Option<PathBuf>,
    /// The environment variable that named the directory; empty if none did.
    named_by: &'static str,
}

impl From<Option<PathBuf>> for StateDirChoice {
    /// Converts the path that was given, if any: `none` is a word, `./none` a directory.
    fn from(path: Option<PathBuf>) -> Self {
        match path {
            None => StateDirChoice::Default,
            Some(path) if path.as_os_str() == Self::NONE => StateDirChoice::None,
            Some(path) => StateDirChoice::At(path),
        }
    }
}

impl fmt::Display for StateDirChoice {
    /// Prints the choice as it is written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateDirChoice::Default => Ok(()),
            StateDirChoice::None => f.write_str(Self::NONE),
            StateDirChoice::At(path) => path.display().fmt(f),
        }
    }
}

/// Neither a setting nor the environment names a place for the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no place for the state: found no state_dir, and none of $STATE_DIRECTORY, $XDG_STATE_HOME and $HOME holds an absolute \
     path; name a directory (--state-dir DIR)"
)]
pub struct NoStateDir;

impl StateDirChoice {
    /// The word for [`None`](StateDirChoice::None).
    pub(super) const NONE: &str = "none";

    /// Returns the directory: by default the first of `$STATE_DIRECTORY`, which systemd sets, else
    /// `snowbank` in the XDG state directory (`$XDG_STATE_HOME`, else `~/.local/state`). `variable`
    /// reads the environment.
    ///
    /// # Errors
    /// No directory was given, and the environment names no directory.
    pub fn place(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<StatePlace, NoStateDir> {
        match self {
            StateDirChoice::None => return Ok(StatePlace { directory: None, named_by: "" }),
            StateDirChoice::At(path) => {
                return Ok(StatePlace { directory: Some(path.clone()), named_by: "" });
            }
            StateDirChoice::Default => {}
        }
        if let Some(path) = variable("STATE_DIRECTORY").as_deref().and_then(first_directory) {
            // With DynamicUser=, systemd names a link of its own. Any other link is refused.
            let directory = std::fs::canonicalize(&path).unwrap_or(path);
            return Ok(StatePlace { directory: Some(directory), named_by: "$STATE_DIRECTORY" });
        }
        for (name, named_by, below) in
            [("XDG_STATE_HOME", "$XDG_STATE_HOME", "snowbank"), ("HOME", "$HOME", ".local/state/snowbank")]
        {
            // The XDG specification ignores paths that are not absolute. An empty variable counts
            // as not set.
            let home = variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
            if let Some(home) = home {
                return Ok(StatePlace { directory: Some(home.join(below)), named_by });
            }
        }
        Err(NoStateDir)
    }
}

/// Returns the first path of a variable such as `$STATE_DIRECTORY`, in which systemd puts colons
/// between paths. Returns `None` if that path is not absolute; systemd's paths are always absolute.
pub(crate) fn first_directory(list: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(list).next().filter(|path| path.is_absolute())
}

/// Returns the options by which a command finds these directories. `--lock-dir` is left out if it is
/// the default.
pub fn directory_options(state_dir: Option<&Path>, lock_dir: &Path) -> String {
    let state = state_dir.map(|path| format!(" --state-dir {}", in_command(path))).unwrap_or_default();
    let is_usual = lock_dir == Settings::default().lock_dir;
    if is_usual { state } else { format!("{state} --lock-dir {}", in_command(lock_dir)) }
}

/// Returns a path as a command of a message has it: for a shell in any directory.
pub(crate) fn in_command(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@%=,".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

impl fmt::Display for StatePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(path) = &self.directory else {
            return f.write_str(
                "state nowhere (state_dir is none): IDs may repeat if the clock is set back before a restart, after a \
                 crash whose IDs were ahead of the clock, and if worker IDs move",
            );
        };
        write!(f, "state in {}", path.display())?;
        if self.named_by.is_empty() { Ok(()) } else { write!(f, " (by {})", self.named_by) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(choice: StateDirChoice, environment: &[(&str, &str)]) -> Result<StatePlace, NoStateDir> {
        choice.place(|name| {
            environment.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn kept(path: &str, named_by: &'static str) -> Result<StatePlace, NoStateDir> {
        Ok(StatePlace { directory: Some(path.into()), named_by })
    }

    #[test]
    fn the_state_dir_setting_beats_the_environment() {
        let all = [("STATE_DIRECTORY", "/s:/t"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(place(StateDirChoice::At("d".into()), &all), kept("d", ""));
        assert_eq!(place(StateDirChoice::None, &all), Ok(StatePlace { directory: None, named_by: "" }));
        assert_eq!(place(StateDirChoice::Default, &all), kept("/s", "$STATE_DIRECTORY"));
        assert_eq!(place(StateDirChoice::Default, &all[1..]), kept("/x/snowbank", "$XDG_STATE_HOME"));
        assert_eq!(place(StateDirChoice::Default, &all[2..]), kept("/h/.local/state/snowbank", "$HOME"));
    }

    #[test]
    fn commands_are_told_a_lock_dir_that_is_not_the_default() {
        let usual = Settings::default().lock_dir;
        let state = Some(Path::new("/s"));
        assert_eq!(directory_options(state, &usual), " --state-dir /s");
        assert_eq!(directory_options(state, Path::new("/l")), " --state-dir /s --lock-dir /l");
        assert_eq!(directory_options(None, &usual), "");
    }

    #[test]
    fn commands_have_paths_that_a_shell_reads_in_any_directory() {
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(in_command(Path::new("d/s")), format!("{}/d/s", here.display()).as_str());
        assert_eq!(in_command(Path::new("/my app/s")), "'/my app/s'");
        assert_eq!(in_command(Path::new("/it's/$x")), r"'/it'\''s/$x'");
    }

    #[test]
    fn a_link_that_systemd_names_is_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("private", &link).expect("linked");
        let private = directory.path().canonicalize().expect("there").join("private");
        std::fs::create_dir(&private).expect("made");
        let named = [("STATE_DIRECTORY", link.to_str().expect("text"))];
        assert_eq!(
            place(StateDirChoice::Default, &named),
            kept(private.to_str().expect("text"), "$STATE_DIRECTORY")
        );
    }

    #[test]
    fn a_variable_without_an_absolute_path_is_ignored() {
        let odd = [("STATE_DIRECTORY", ""), ("XDG_STATE_HOME", "x"), ("HOME", "")];
        assert_eq!(place(StateDirChoice::Default, &odd), Err(NoStateDir));
        assert_eq!(place(StateDirChoice::Default, &[]), Err(NoStateDir));
        assert_eq!(first_directory(OsStr::new("run/a:/run/b")), None);
    }
}
