//! The progress bar of a run: on a terminal's standard error, and nowhere else.

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::Progress;
use crate::units::count;

/// A bar that shows the current rate and p99; hidden where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:20}] {msg}");
        Self(style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> "))))
    }

    /// Shows the progress of a run behind `name`.
    pub(crate) fn show(&self, name: &str, progress: Progress<'_>) {
        if let Some(total) = progress.total {
            self.0.set_length(total.as_millis() as u64);
            self.0.set_position(progress.elapsed.min(total).as_millis() as u64);
        }
        let figures = match progress.last_second {
            None => "warming up".to_owned(),
            Some(second) => format!("{} IDs/s, p99 {:.3} ms", count(second.ids), second.p99_us / 1e3),
        };
        self.0.set_message(format!("{name}{}: {figures}", progress.loop_words));
        self.0.tick();
    }

    /// Hides the bar while `write` prints lines.
    pub(crate) fn suspend(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    /// Removes the bar, so that the table stands alone.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
