//! The files that settings name: by their paths, or as systemd's credentials.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A file that a setting names: by its path, or as a credential of systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// A path.
    Path(PathBuf),
    /// `credential:NAME`: a file of that name in `$CREDENTIALS_DIRECTORY`, where systemd puts what
    /// a unit's `LoadCredential=` names.
    Credential(String),
}

/// The prefix of a credential's name.
const CREDENTIAL: &str = "credential:";

impl FromStr for FileRef {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let Some(name) = text.strip_prefix(CREDENTIAL) else {
            return Ok(FileRef::Path(text.into()));
        };
        let fits = !name.contains('/') && !["", ".", ".."].contains(&name);
        fits.then(|| FileRef::Credential(name.to_owned())).ok_or(
            "\"credential:\" and the name of a systemd credential, which must be a file name without a slash",
        )
    }
}

impl fmt::Display for FileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileRef::Path(path) => path.display().fmt(f),
            FileRef::Credential(name) => write!(f, "{CREDENTIAL}{name}"),
        }
    }
}

impl FileRef {
    /// Returns the path of the file.
    ///
    /// # Errors
    /// The file is a credential, and this process has no directory of credentials.
    pub fn locate(&self, credentials: &Credentials) -> Result<PathBuf, NoCredentials> {
        match (self, &credentials.directory) {
            (FileRef::Path(path), _) => Ok(path.clone()),
            (FileRef::Credential(name), Some(directory)) => Ok(directory.join(name)),
            (FileRef::Credential(name), None) => Err(NoCredentials(name.clone())),
        }
    }
}

/// This process has no directory of credentials for this one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "found \"credential:{0}\" and no $CREDENTIALS_DIRECTORY, which systemd sets for a unit with LoadCredential={0}:/path; \
     run as such a unit, or name the file's path"
)]
pub struct NoCredentials(String);

/// The directory of systemd's credentials for this process.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    directory: Option<PathBuf>,
    /// True if a missing credential is only a warning in this process.
    pub(super) may_be_elsewhere: bool,
}

impl Credentials {
    /// Returns the credentials of the process whose environment `variable` reads.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let directory =
            variable("CREDENTIALS_DIRECTORY").map(PathBuf::from).filter(|path| path.is_absolute());
        Credentials { directory, may_be_elsewhere: false }
    }

    /// Makes a missing credential a warning instead of a mistake, for a process that only checks
    /// what another process will read.
    #[must_use]
    pub fn or_elsewhere(self) -> Self {
        Credentials { may_be_elsewhere: true, ..self }
    }
}
