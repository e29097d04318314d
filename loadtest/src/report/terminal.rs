//! The terminal: lines, a progress bar, and Ctrl-C.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::{Blame, Failure};
use crate::figure::UNKNOWN;
use crate::measure::SecondFigures;
use crate::units::{count, time};

/// The longest time until [`Terminal::unless_interrupted`] notices an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Prints lines to standard output, shows a bar if standard error is a terminal, and notices
/// Ctrl-C.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The bar is hidden until runs begin. If standard error is not a terminal, the bar is always
    /// hidden.
    bar: ProgressBar,
    /// True if the JSON goes to standard output. In this case, lines go to standard error.
    is_beside: bool,
    is_interrupted: Arc<AtomicBool>,
}

impl Terminal {
    /// Returns the terminal of a command that writes its JSON to the file `json`.
    pub(crate) fn new(json: Option<&Path>) -> Self {
        let bar = ProgressBar::hidden();
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:20}] {prefix}{msg}");
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> ")));
        Self { bar, is_beside: json.is_some_and(is_stdout), is_interrupted: Arc::default() }
    }

    /// Shows the bar and catches Ctrl-C from now on.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn begin_runs(&self) -> Result<(), ctrlc::Error> {
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        let is_interrupted = Arc::clone(&self.is_interrupted);
        ctrlc::set_handler(move || is_interrupted.store(true, Ordering::Relaxed))
    }

    /// Returns true after Ctrl-C, SIGTERM or SIGHUP.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// Returns the result of blocking work, or a failure as soon as the user interrupts it. Work
    /// that was interrupted continues on its thread, and its result is dropped.
    pub(crate) fn unless_interrupted<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let thread = std::thread::spawn(work);
        while !thread.is_finished() {
            if self.is_interrupted() {
                let reason = "interrupted before the measurement began".to_owned();
                return Err(Failure { blame: Blame::Interrupt, reason });
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Sets the name of the next run, which the bar shows.
    pub(crate) fn name_run(&self, name: String) {
        self.bar.set_prefix(name);
    }

    /// Shows the progress of a run, and its last whole second.
    pub(crate) fn show(&self, elapsed: Duration, total: Duration, last: Option<&SecondFigures>) {
        self.bar.set_length(total.as_millis() as u64);
        self.bar.set_position(elapsed.min(total).as_millis() as u64);
        self.bar.set_message(match last {
            None => "warming up".to_owned(),
            Some(second) => {
                let p99 = second.p99_us.map_or_else(|| UNKNOWN.to_owned(), time);
                format!("{} IDs/s, p99 {p99}", count(second.ids))
            }
        });
        self.bar.tick();
    }

    /// Removes the bar, so that only the table stays.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints lines in place of the bar. If the output is closed, the exit code stays the same.
    pub(crate) fn print(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        self.bar.suspend(|| {
            let mut out: Box<dyn Write> =
                if self.is_beside { Box::new(io::stderr().lock()) } else { Box::new(io::stdout().lock()) };
            let _ = write(&mut out).and_then(|()| out.flush());
        });
    }
}

/// Returns true for `-`, which is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
