//! Progress bars: on standard error, if that is a terminal, and not if the user wants quiet.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvb::Progress;

use crate::interrupt;

/// A bar that shows bytes, rate and time left.
pub(crate) struct Bar {
    bar: ProgressBar,
    stage: &'static str,
}

impl Bar {
    /// A bar for so many bytes; `None` if nobody knows.
    pub(crate) fn bytes(stage: &'static str, total: Option<u64>, is_quiet: bool) -> Bar {
        let known = "{msg:18} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec}, {eta} left";
        let unknown = "{msg:18} {spinner} {bytes} {binary_bytes_per_sec}, {elapsed}";
        Bar::with(stage, total, if total.is_some() { known } else { unknown }, is_quiet)
    }

    /// A bar for so many things.
    pub(crate) fn count(stage: &'static str, total: u64, is_quiet: bool) -> Bar {
        let style = "{msg:18} {wide_bar} {human_pos}/{human_len} {per_sec}, {eta} left";
        Bar::with(stage, Some(total), style, is_quiet)
    }

    /// True if somebody sees bars.
    pub(crate) fn is_seen(is_quiet: bool) -> bool {
        !is_quiet && stderr().is_terminal()
    }

    fn with(stage: &'static str, total: Option<u64>, style: &str, is_quiet: bool) -> Bar {
        let target = match Bar::is_seen(is_quiet) {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(total, target);
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(stage);
        bar.enable_steady_tick(Duration::from_millis(250));
        Bar { bar, stage }
    }

    /// So much is done.
    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// So much is done, of so much.
    pub(crate) fn set_of(&self, done: u64, total: u64) {
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
    }

    /// Shows what the engine tells, and stops it if the user asks for it.
    pub(crate) fn watch(&mut self) -> impl FnMut(Progress<'_>) {
        |progress| {
            if interrupt::is_asked() {
                progress.stop();
            }
            if self.stage != progress.stage {
                self.stage = progress.stage;
                self.bar.set_message(progress.stage);
                self.bar.reset();
            }
            self.set_of(progress.done, progress.total);
        }
    }

    /// Takes it off the screen.
    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
