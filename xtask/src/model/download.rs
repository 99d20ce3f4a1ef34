//! Fetches the wheel: with HTTP ranges through a short Python script, or whole through pip.

use crate::sh;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::process::Stdio;

const FETCH: &str = include_str!("fetch.py");
/// Seconds to wait after the first failure; the script doubles it after each one without progress.
const FIRST_PAUSE: &str = if cfg!(test) { "0" } else { "1" };

/// Fetches `url` into `dir` as `NAME.whl`, by way of `NAME.whl.part`, which an interrupted run leaves
/// behind and the next one goes on with. `stem` starts the names of the files that belong to it.
pub(crate) fn with_ranges(python: &Path, url: &str, dir: &Path, stem: &str) -> Result<()> {
    let name = url.rsplit('/').next().unwrap_or_default();
    if !name.starts_with(stem) || !name.ends_with(".whl") {
        bail!("{name} is not the name of the wheel");
    }
    let part = dir.join(format!("{name}.part"));
    let mut child = sh::command(python)
        .args(["-c", FETCH, url])
        .arg(&part)
        .arg(FIRST_PAUSE)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if let Some(lines) = child.stdout.take() {
        show_progress(BufReader::new(lines));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{}", why.lines().last().unwrap_or("the download script failed"));
    }
    fs::rename(&part, dir.join(name)).context("cannot name the finished download")
}

/// Fetches the wheel of `requirement` into `dir` through pip, which shows its own progress.
pub(crate) fn with_pip(python: &Path, requirement: &str, dir: &Path) -> Result<()> {
    let mut pip = sh::command(python);
    pip.args(["-m", "pip", "--no-input", "download", "--no-deps", "--only-binary", ":all:", "-d"]);
    sh::run(pip.arg(dir).arg(requirement))
}

/// Draws what the script reports: a bar on a terminal, elsewhere a line for every quarter.
fn show_progress(lines: impl BufRead) {
    let bar = ProgressBar::new(0);
    let template = "  {bar:32} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let is_plain = !std::io::stderr().is_terminal();
    let mut quarter = 0;
    for line in lines.lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("total", bytes)) => bar.set_length(bytes.parse().unwrap_or(0)),
            Some(("at", bytes)) => bar.set_position(bytes.parse().unwrap_or(0)),
            Some(("note", text)) => bar.suspend(|| println!("model: {text}")),
            _ => {}
        }
        let done = bar.position() * 4 / bar.length().unwrap_or(0).max(1);
        if is_plain && done != quarter {
            quarter = done;
            println!("  {} % of {} MB", done * 25, bar.length().unwrap_or(0) / 1_000_000);
        }
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests;
