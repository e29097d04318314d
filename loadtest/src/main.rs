//! The load-test harness; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    snowbank_loadtest::cli::main()
}
