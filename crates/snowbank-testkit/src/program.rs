//! The commands of the daemon's program.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a command.
#[derive(Debug)]
pub struct Said {
    /// The exit code. `None`: a signal ended the command.
    pub code: Option<i32>,
    /// All of the command's standard output.
    pub out: String,
    /// All of the command's standard error.
    pub err: String,
}

/// Returns the folder in which cargo puts the programs of this build. The test programs are one
/// folder below.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a program has a path");
    let folder = test.ancestors().nth(2).expect("cargo puts test programs into deps");
    folder.to_owned()
}

/// Returns the path of the daemon's program, or `None` if it was not built. `cargo test` of the
/// daemon's package or of the whole workspace builds it. `cargo test` of another package does not
/// build it: the tests then use an earlier build, which may be older than the sources.
pub fn path() -> Option<PathBuf> {
    Some(built().join("snowbank")).filter(|path| path.is_file())
}

/// Returns the program as a command, without standard input and without Snowbank's environment
/// variables.
pub fn program() -> Command {
    let path = path().unwrap_or_else(|| {
        let release = if built().ends_with("release") { " --release" } else { "" };
        panic!("{} has no snowbank: run cargo build --bin snowbank{release}", built().display())
    });
    command(&path)
}

/// Does the same as [`program`] for the program at this path.
pub fn command(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SNOWBANK_") {
            command.env_remove(name);
        }
    }
    command.env_remove("CREDENTIALS_DIRECTORY").stdin(Stdio::null());
    command
}

/// Runs the program with the state and the locks of this directory.
pub fn run_in(directory: &Path, arguments: &[&str]) -> Said {
    let mut command = program();
    command.args(arguments).env("SNOWBANK_STATE_DIR", directory.join("state"));
    Said::by(command.env("SNOWBANK_LOCK_DIR", directory.join("locks")))
}

/// Runs the program with these arguments.
pub fn snowbank<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Said {
    Said::by(program().args(arguments))
}

/// Runs the program with these arguments and a configuration, on an empty state. Returns the exit
/// code, and standard output followed by standard error.
pub fn run_configured(toml: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let directory = super::directory();
    let config = directory.path().join("snowbank.toml");
    std::fs::write(&config, toml).expect("the configuration is written");
    let arguments = [arguments, &["--config", config.to_str().expect("its path is text")]].concat();
    let Said { code, out, err } = run_in(directory.path(), &arguments);
    (code, out + &err)
}

/// Runs a command to its end, with this on its standard input. The caller chooses its
/// outputs.
pub fn run_with_input(command: &mut Command, input: &str) -> Said {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        // A refusal ends the program before it has read everything.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("the program ends")
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

impl Said {
    /// Runs a command to its end.
    pub fn by(command: &mut Command) -> Said {
        let output = command.output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Returns the output of a command. Checks that the command succeeded without a warning.
    #[track_caller]
    pub fn printed(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Returns the line on standard error of a command that failed with this code. Checks that the
    /// command wrote nothing else.
    #[track_caller]
    pub fn refusal(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err
    }
}
