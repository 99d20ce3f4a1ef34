//! Brings up what the clients need and the machine lacks.

use super::{Outcome, Session};
use crate::sh;
use anyhow::Result;
use std::path::PathBuf;

/// The names that Chromium goes by.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The browser for the browser tests.
pub(crate) fn browser() -> Option<PathBuf> {
    BROWSERS.iter().find_map(|name| sh::which(name))
}

/// Installs Debian packages for what is missing, where this user can; otherwise says what to install.
/// The step that needs a tool decides what its absence means.
pub(crate) fn install(_: &mut Session) -> Result<Outcome> {
    let mut missing = Vec::new();
    if browser().is_none() {
        missing.push("chromium");
    }
    if sh::which("curl").is_none() {
        missing.push("curl");
    }
    if missing.is_empty() {
        println!("chromium and curl are there");
        return Ok(Outcome::Passed);
    }
    if !is_root() || sh::which("apt-get").is_none() {
        println!("please install: {}", missing.join(", "));
        return Ok(Outcome::Passed);
    }
    println!("installing {}", missing.join(", "));
    sh::run(apt().arg("update"))?;
    sh::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing))?;
    Ok(Outcome::Passed)
}

fn apt() -> std::process::Command {
    let mut apt = sh::command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
    apt
}

fn is_root() -> bool {
    sh::capture(sh::command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
