//! Scripted daemons that test every client of Snowbank. README.md says how to use this program.
//!
//! ```text
//!   cases.json ─▶ play ─▶ daemons ◀─ connections ─ the client under test
//!                  ▲ │
//! the test's lines │ ▼   JSON lines, exit code
//!                the client's own test
//! ```

mod against_daemons;
mod case;
mod certificates;
mod daemon;
mod play;
mod report;

use std::error::Error;
use std::process::ExitCode;

/// A result. The error is a text for a person to read.
type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: snowbank-conformance list | CASE | against_daemons --daemon PATH --seconds N";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => {
            for case in case::all()? {
                println!("{}", case.name);
            }
            Ok(())
        }
        ["against_daemons", "--daemon", program, "--seconds", seconds] => {
            runtime.block_on(against_daemons::run(program, seconds))
        }
        [name] if !name.starts_with('-') => runtime.block_on(play::play(case::find(name)?)),
        _ => Err(USAGE.into()),
    };
    // A thread may still be blocked on a read of standard input. The program must not wait for it.
    runtime.shutdown_background();
    result
}
