//! The web app: `web/dist`, which the server embeds, built when its sources are newer.

use crate::{paths, sh};
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Builds `web/dist` when it is absent or older than its sources. Without npm it says so and goes on:
/// the server then shows a page that tells how to build the app.
pub(crate) fn build_if_stale() -> Result<()> {
    let web = paths::root().join("web");
    if !web.join("package.json").is_file() {
        println!("web: there is no web/package.json; the server starts without the app");
        return Ok(());
    }
    if !is_stale(&web) {
        println!("web: web/dist is up to date");
        return Ok(());
    }
    if sh::which("npm").is_none() {
        println!("web: npm is not installed, so the app is not built (Node 20 or newer brings it)");
        return Ok(());
    }
    install(&web)?;
    println!("web: building web/dist");
    sh::run(npm(&web).args(["run", "build"]))
}

/// Installs the packages of the lock file unless that very lock file is installed already.
pub(crate) fn install(dir: &Path) -> Result<()> {
    let lock = fs::read(dir.join("package-lock.json"))?;
    let stamp = dir.join("node_modules/.motet-lock");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    println!("npm: installing the packages of {}", dir.strip_prefix(paths::root()).unwrap_or(dir).display());
    sh::run(npm(dir).args(["ci", "--no-audit", "--no-fund"]))?;
    fs::write(stamp, lock)?;
    Ok(())
}

/// npm, in a folder of the project.
pub(crate) fn npm(dir: &Path) -> Command {
    let mut npm = sh::command("npm");
    npm.current_dir(dir);
    npm
}

fn is_stale(web: &Path) -> bool {
    let Some(built) = modified(&web.join("dist/index.html")) else { return true };
    newest_source(web).is_none_or(|source| source > built)
}

/// When the newest file below `dir` was changed, outputs and packages aside.
fn newest_source(dir: &Path) -> Option<SystemTime> {
    let skipped =
        |path: &Path| path.ends_with("node_modules") || path.ends_with("dist") || path.ends_with("e2e");
    let entries = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    entries
        .filter(|path| !skipped(path))
        .filter_map(|path| if path.is_dir() { newest_source(&path) } else { modified(&path) })
        .max()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_source_newer_than_the_output_makes_it_stale() {
        let dir = tempfile::tempdir().unwrap();
        let web = dir.path();
        fs::create_dir_all(web.join("src")).unwrap();
        fs::create_dir_all(web.join("dist")).unwrap();
        fs::write(web.join("src/app.tsx"), "").unwrap();
        assert!(is_stale(web), "nothing is built yet");

        fs::write(web.join("dist/index.html"), "").unwrap();
        let at = |path: &str, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().write(true).open(web.join(path)).unwrap().set_modified(time).unwrap();
        };
        at("src/app.tsx", 1_000);
        at("dist/index.html", 2_000);
        assert!(!is_stale(web));
        at("src/app.tsx", 3_000);
        assert!(is_stale(web));
    }
}
