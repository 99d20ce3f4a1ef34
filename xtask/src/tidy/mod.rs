//! `cargo xtask tidy`: what the compiler does not check about the source tree.
//!
//! Each module checks one thing and returns findings; this one gathers the input and prints the outcome.

mod closure;
mod docs;
mod functions;
mod layers;
mod lexer;
mod machine;
mod npm;
mod sizes;
mod words;

use crate::{paths, sh};
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;

/// A text file of the project.
pub(crate) struct SourceFile {
    /// Its path from the project's root, with forward slashes.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

impl SourceFile {
    /// Whether the file's name ends in one of these.
    fn has_extension(&self, extensions: &[&str]) -> bool {
        Path::new(&self.path).extension().is_some_and(|ext| extensions.iter().any(|wanted| ext == *wanted))
    }
}

/// Something a check found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where: a path, with `:line` where there is one.
    pub(crate) place: String,
    /// What is wrong and what to do.
    pub(crate) what: String,
    /// Whether it fails the check or is only worth knowing.
    pub(crate) severity: Severity,
}

/// How much a finding matters.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Severity {
    /// Fails the check.
    Error,
    /// Is shown.
    Note,
}

impl Finding {
    fn error(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), severity: Severity::Error }
    }

    fn note(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), severity: Severity::Note }
    }
}

/// Runs every check and fails when one of them finds an error.
pub(crate) fn run() -> Result<()> {
    let crates = closure::count()?;
    let findings = find_all(crates)?;
    for finding in &findings {
        let label = if finding.severity == Severity::Error { "error" } else { "note" };
        println!("{label}: {}: {}", finding.place, finding.what);
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    if errors > 0 {
        bail!("tidy found {errors} error(s)");
    }
    println!("tidy: no errors; motet has {crates} crates, at most {} are allowed", closure::LIMIT);
    Ok(())
}

fn find_all(crates: usize) -> Result<Vec<Finding>> {
    let files = project_files()?;
    let packages = layers::packages()?;
    let folders = machine::folders();
    let mut findings = layers::check(&packages);
    findings.extend(docs::check(&packages, &files));
    findings.extend(docs::check_settings(&files));
    findings.extend(files.iter().flat_map(sizes::check));
    findings.extend(files.iter().flat_map(functions::check));
    findings.extend(files.iter().flat_map(words::check));
    findings.extend(files.iter().flat_map(npm::check));
    findings.extend(files.iter().flat_map(|file| machine::check(file, &folders)));
    findings.extend(closure::check(crates));
    Ok(findings)
}

/// Every text file that git tracks or would track.
fn project_files() -> Result<Vec<SourceFile>> {
    let list = sh::capture(sh::command("git").args(["ls-files", "-co", "--exclude-standard", "-z"]))?;
    let paths = list.split('\0').filter(|path| !path.is_empty());
    // A file that is deleted but still tracked cannot be read, and one that is not text has no lines to check.
    let read = |path: &str| {
        let text = fs::read_to_string(paths::root().join(path)).ok()?;
        Some(SourceFile { path: path.to_owned(), text })
    };
    Ok(paths.filter_map(read).collect())
}
