//! The bar while a run lasts: on a terminal's standard error, and nowhere else.

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::Progress;

/// A bar that shows the current rate and p99.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar {
    /// An empty bar; hidden where standard error is no terminal.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {msg}");
        Self(style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> "))))
    }

    /// Shows how far the run is.
    pub fn show(&self, progress: Progress<'_>) {
        if let Some(total) = progress.total {
            self.0.set_length(total.as_millis() as u64);
            self.0.set_position(progress.elapsed.min(total).as_millis() as u64);
        }
        let figures = match progress.last_second {
            None => "warming up".to_owned(),
            Some(second) => format!("{} IDs/s, p99 {:.3} ms", second.ids, second.p99_us / 1e3),
        };
        self.0.set_message(format!("{}: {figures}", progress.loop_words));
        self.0.tick();
    }

    /// Takes the bar away, so that the table stands alone.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
