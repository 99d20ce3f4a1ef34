//! Checks of the Rust code.

use super::counts::Runner;
use super::{Outcome, Session, count};
use crate::{model, paths, sh, tidy};
use anyhow::Result;
use std::process::Command;

pub(crate) fn format(_: &mut Session) -> Result<Outcome> {
    passed(sh::cargo().args(["fmt", "--all", "--check"]))
}

pub(crate) fn clippy(_: &mut Session) -> Result<Outcome> {
    passed(sh::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

pub(crate) fn tidy(_: &mut Session) -> Result<Outcome> {
    tidy::run().map(|()| Outcome::Passed)
}

/// Licences, banned crates and sources. Building cargo-deny takes longer than all other checks
/// together, so it is used where it is installed and never asked for, not even in CI.
pub(crate) fn deny(_: &mut Session) -> Result<Outcome> {
    if sh::which("cargo-deny").is_none() {
        let advice = "cargo-deny is not installed (cargo install cargo-deny --locked)";
        return Ok(Outcome::Skipped(advice.to_owned()));
    }
    // Advisories are left out: their database has to be fetched, and may be out of reach.
    passed(sh::cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

/// Tests that run the real model skip without it, so it comes first.
pub(crate) fn model(session: &mut Session) -> Result<Outcome> {
    if !paths::root().join("../shared/reference").is_dir() {
        println!("note: ../shared/reference is absent, so tests that compare with it say so and do nothing");
    }
    match model::ensure() {
        Ok(_) => Ok(Outcome::Passed),
        Err(error) => session.without(&format!("{error:#}")),
    }
}

/// Unit, property and integration tests. The binaries are built in the same command, so that the server the
/// clients talk to shares every crate with the tests and costs no second build.
pub(crate) fn tests(session: &mut Session) -> Result<Outcome> {
    sh::run(sh::cargo().args(["build", "--workspace", "--bins", "--tests"]))?;
    if sh::which("cargo-nextest").is_none() {
        println!("cargo-nextest is not installed; cargo test runs the same tests");
        return count(Runner::Cargo, sh::cargo().args(["test", "--workspace", "--bins", "--lib", "--tests"]));
    }
    let profile = if session.is_ci { "ci" } else { "default" };
    count(Runner::Nextest, sh::cargo().args(["nextest", "run", "--workspace", "--profile", profile]))
}

/// nextest does not run documentation tests.
pub(crate) fn doc_tests(_: &mut Session) -> Result<Outcome> {
    count(Runner::Cargo, sh::cargo().args(["test", "--workspace", "--doc"]))
}

fn passed(command: &mut Command) -> Result<Outcome> {
    sh::run(command).map(|()| Outcome::Passed)
}
