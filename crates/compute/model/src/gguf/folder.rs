//! From what the user points at, a file or a folder, to one model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Gguf;
use super::error::{GgufError, one_line};
use super::split::{PartName, is_byte_piece};

/// Models a message lists by name.
const LISTED: usize = 10;

/// Opens the model at `path`: a GGUF file, any part of a split one, or a folder that holds exactly one model.
pub fn open_model(path: &Path) -> Result<Gguf, GgufError> {
    Gguf::open(&find_model(path)?)
}

/// The file to open for `path`: itself, or in a folder the one model there (the first part where it is split).
///
/// # Errors
/// The folder cannot be read, or holds no model or several; the message lists them.
pub fn find_model(path: &Path) -> Result<PathBuf, GgufError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut names = file_names(path)?;
    names.sort();
    let mut models: BTreeMap<String, &str> = BTreeMap::new();
    for name in names.iter().filter(|name| is_model(name)) {
        // Sorted, so the lowest part of a set comes first and stays.
        let label = match PartName::parse(name) {
            Some(part) => format!("{}-*-of-{:05}.gguf", part.prefix, part.count),
            None => name.clone(),
        };
        models.entry(label).or_insert(name);
    }
    match models.len() {
        1 => Ok(path.join(models.into_values().next().unwrap_or_default())),
        0 => Err(GgufError::selection(path.display(), nothing_found(&names))),
        _ => Err(GgufError::selection(path.display(), several_found(&models))),
    }
}

/// A projector for images (`mmproj`) lies beside a model and is none.
fn is_model(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(".gguf") && !lower.starts_with("mmproj")
}

/// The names of the files in a folder; links count as what they lead to.
fn file_names(folder: &Path) -> Result<Vec<String>, GgufError> {
    let io = |source| GgufError::Io {
        file: one_line(&folder.display().to_string()),
        action: "list the folder",
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if let (true, Ok(name)) = (entry.path().is_file(), entry.file_name().into_string()) {
            names.push(name);
        }
    }
    Ok(names)
}

fn nothing_found(names: &[String]) -> String {
    if names.iter().any(|name| is_byte_piece(name)) {
        "no GGUF file in this folder, only pieces of one that was cut at arbitrary bytes; join them in order \
         (cat NAME.gguf.part* > NAME.gguf)"
            .to_owned()
    } else if names.iter().any(|name| name.ends_with(".safetensors")) {
        "no GGUF file in this folder; it holds safetensors, which Motet does not read yet".to_owned()
    } else {
        "no GGUF file in this folder".to_owned()
    }
}

fn several_found(models: &BTreeMap<String, &str>) -> String {
    let mut listed: Vec<String> = models.keys().take(LISTED).map(|label| one_line(label)).collect();
    if models.len() > LISTED {
        listed.push(format!("{} more", models.len() - LISTED));
    }
    format!("{} models in this folder, name one of them: {}", models.len(), listed.join(", "))
}
