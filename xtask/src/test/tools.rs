//! Brings up what the clients need and the machine lacks.

use super::{Outcome, Session, aarch64};
use crate::sh;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The names that Chromium goes by.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The browser for the browser tests.
pub(crate) fn browser() -> Option<PathBuf> {
    BROWSERS.iter().find_map(|name| sh::which(name))
}

/// Where Debian keeps the programs of PostgreSQL, outside of `PATH`.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// Installs what the Rust tests use.
pub(crate) fn install_for_rust(_: &mut Session) -> Result<Outcome> {
    let has_postgres = sh::which("initdb").is_some() || Path::new(DEBIAN_POSTGRES).exists();
    let has_redis = sh::which("redis-server").is_some();
    install(&[("postgresql", has_postgres), ("redis-server", has_redis)])
}

/// Installs what the clients use.
pub(crate) fn install_for_clients(_: &mut Session) -> Result<Outcome> {
    install(&[("chromium", browser().is_some()), ("curl", sh::which("curl").is_some())])
}

/// Installs what links and runs the kernels' tests for aarch64.
pub(crate) fn install_for_aarch64(_: &mut Session) -> Result<Outcome> {
    install(&[
        ("qemu-user", sh::which(aarch64::EMULATOR).is_some()),
        ("gcc-aarch64-linux-gnu", sh::which(aarch64::LINKER).is_some()),
        ("libc6-dev-arm64-cross", Path::new(aarch64::C_LIBRARY).exists()),
    ])
}

/// Installs Debian packages for what is missing, where this user can; otherwise says what to install.
/// The step that needs a tool decides what its absence means.
fn install(tools: &[(&'static str, bool)]) -> Result<Outcome> {
    let missing: Vec<&str> = tools.iter().filter(|(_, is_there)| !is_there).map(|&(name, _)| name).collect();
    if missing.is_empty() {
        println!("nothing is missing");
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
