//! Runs a load test and shows what came of it.

use std::{
    fs,
    io::{self, IsTerminal},
    path::Path,
    sync::Mutex,
};

use indicatif::{ProgressBar, ProgressStyle};
use motet_loadgen::{LoadError, Progress, Report, html, run, table};
use tokio::sync::watch;

use super::serve_args::{OutputArgs, ServeBenchArgs, text_of};
use crate::{
    failure::Failure,
    output::{harmless, print, say},
    signals,
};

/// `motet bench serve`.
pub(super) async fn serve(args: &ServeBenchArgs) -> Result<(), Failure> {
    let report = if args.output.from.is_empty() { measure(args).await? } else { saved(&args.output)? };
    show(&report, &args.output)?;
    let is_empty = report.rows.iter().all(|row| row.summary.completed == 0) && report.searches.is_empty();
    if report.is_partial && args.output.from.is_empty() {
        Err(Failure::interrupted())
    } else if is_empty {
        Err(Failure::runtime("no request was completed; the notes say why"))
    } else {
        Ok(())
    }
}

/// Measures until the end or Ctrl-C; a second Ctrl-C ends the process.
async fn measure(args: &ServeBenchArgs) -> Result<Report, Failure> {
    let experiment = args.experiment()?;
    let (ask, stop) = watch::channel(false);
    let listener = tokio::spawn(async move {
        signals::shutdown_asked().await;
        say("stopping; the results so far follow");
        // Kept open: the receivers take a closed channel for nobody who could stop them.
        let _ = ask.send(true);
        ask.closed().await;
    });
    let report = run(&experiment, stop, &Bar::default()).await;
    listener.abort();
    report.map_err(failure)
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Target { .. } => Failure::runtime(harmless(&error.to_string())),
        LoadError::Option(_) | LoadError::File { .. } => Failure::usage(error),
    }
}

fn saved(output: &OutputArgs) -> Result<Report, Failure> {
    let reports = output.from.iter().map(|file| Report::parse(&text_of(file)?, &file.display().to_string()));
    let reports = reports.collect::<Result<Vec<_>, LoadError>>();
    reports.and_then(Report::merge).map_err(Failure::usage)
}

fn show(report: &Report, output: &OutputArgs) -> Result<(), Failure> {
    let is_piped = output.json.as_deref() == Some(Path::new("-"));
    if let Some(file) = output.json.as_deref().filter(|_| !is_piped) {
        write(file, &report.json())?;
    }
    if let Some(file) = &output.report {
        write(file, &html(report))?;
    }
    if is_piped { print(&report.json()) } else { print(&harmless(&table(report))) }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::runtime(format!("{}: {error}", file.display())))
}

/// Shows progress on standard error: a bar on a terminal, a line per row elsewhere.
#[derive(Default)]
struct Bar {
    shown: Mutex<(String, Option<ProgressBar>)>,
}

impl Bar {
    fn with(&self, act: impl FnOnce(&mut (String, Option<ProgressBar>))) {
        // Whoever panicked while holding it left only what is shown on a terminal.
        act(&mut self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Progress for Bar {
    fn row(&self, title: &str, requests: usize) {
        self.with(|(shown, bar)| {
            *shown = harmless(title);
            if io::stderr().is_terminal() {
                let new = ProgressBar::new(requests as u64);
                if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
                    new.set_style(style);
                }
                new.set_message(shown.clone());
                *bar = Some(new);
            }
        });
    }

    fn request(&self) {
        self.with(|(_, bar)| {
            if let Some(bar) = bar {
                bar.inc(1);
            }
        });
    }

    fn row_end(&self, result: &str) {
        self.with(|(title, bar)| {
            if let Some(bar) = bar.take() {
                bar.finish_and_clear();
            }
            say(&format!("{title}: {}", harmless(result)));
        });
    }
}
