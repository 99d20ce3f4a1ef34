use std::{
    io::{self, IsTerminal},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use motet_hub::Progress;

use crate::{
    config::human_bytes,
    output::{harmless, say},
};

/// Shows a download on standard error: a bar on a terminal, a line per tenth elsewhere.
#[derive(Default)]
pub(crate) struct DownloadProgress {
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    file: String,
    total: u64,
    /// Tenths told so far.
    tenths: u64,
}

impl DownloadProgress {
    fn with(&self, act: impl FnOnce(&mut Shown)) {
        // Whoever panicked while holding it left only what is shown on a terminal.
        act(&mut self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Progress for DownloadProgress {
    fn start(&self, file: &str, done: u64, total: u64) {
        self.with(|shown| {
            let file = harmless(file);
            *shown = Shown { bar: None, file: file.clone(), total, tenths: tenths(done, total) };
            if io::stderr().is_terminal() {
                let bar = ProgressBar::new(total);
                let template =
                    "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_message(file);
                bar.enable_steady_tick(Duration::from_millis(250));
                // The speed is that of this run, without what an earlier one fetched.
                bar.set_position(done);
                bar.reset_eta();
                shown.bar = Some(bar);
            } else {
                let kept = if done > 0 { format!(", {} are here", human_bytes(done)) } else { String::new() };
                say(&format!("fetching {file} ({}{kept})", human_bytes(total)));
            }
        });
    }

    fn advance(&self, done: u64) {
        self.with(|shown| match &shown.bar {
            Some(bar) => bar.set_position(done),
            None if tenths(done, shown.total) > shown.tenths => {
                shown.tenths = tenths(done, shown.total);
                say(&format!("fetching {}: {}0 %", shown.file, shown.tenths));
            }
            None => {}
        });
    }

    fn note(&self, message: &str) {
        let message = harmless(message);
        self.with(|shown| match &shown.bar {
            Some(bar) => bar.suspend(|| say(&message)),
            None => say(&message),
        });
    }

    fn finish(&self) {
        self.with(|shown| {
            if let Some(bar) = shown.bar.take() {
                bar.finish_and_clear();
            }
            say(&format!("fetched {} ({})", shown.file, human_bytes(shown.total)));
        });
    }
}

fn tenths(done: u64, total: u64) -> u64 {
    done.saturating_mul(10).checked_div(total).unwrap_or(0)
}
