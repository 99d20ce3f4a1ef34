//! Where things are: the project's root, its build folder, and the user's cache.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The project's root folder.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The folder cargo builds into.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Motet's part of the user's cache: `$XDG_CACHE_HOME/motet`, or `~/.cache/motet`.
///
/// A relative `XDG_CACHE_HOME` does not count, as the specification of these folders says.
pub(crate) fn cache() -> Result<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    if let Some(dir) = named.filter(|dir| dir.is_absolute()) {
        return Ok(dir.join("motet"));
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.context("HOME is not set: set it, or set XDG_CACHE_HOME to a folder for the model")?;
    Ok(PathBuf::from(home).join(".cache/motet"))
}
