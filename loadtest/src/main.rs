//! The load-test harness: not built yet. `cargo bench --bench server` measures meanwhile.

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("snowbank-loadtest: not built yet; `cargo bench --bench server` measures meanwhile");
    ExitCode::from(2)
}
