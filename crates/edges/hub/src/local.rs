//! Models that are on this machine already.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    DEFAULT_MODEL, HubError,
    choose::{Candidate, Place, choose},
    names,
};

/// The default model's file.
pub(crate) fn default_path(models_dir: &Path) -> Result<PathBuf, HubError> {
    let path = models_dir.join(DEFAULT_MODEL.file);
    let meta = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HubError::NoDefault { name: DEFAULT_MODEL.name, dir: models_dir.to_owned() });
        }
        other => other.map_err(HubError::io(&path))?,
    };
    if meta.len() != DEFAULT_MODEL.size {
        return Err(HubError::DefaultSize { path, got: meta.len(), want: DEFAULT_MODEL.size });
    }
    Ok(path)
}

/// `path` itself, the GGUF in it when it is a folder, or the file of that name in `models_dir`.
pub(crate) fn path(path: &Path, models_dir: &Path) -> Result<PathBuf, HubError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => in_folder(path),
        Ok(_) => Ok(path.to_owned()),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory =>
        {
            by_name(path, models_dir)
                .ok_or_else(|| HubError::NoPath { path: path.to_owned(), hint: hint(path, models_dir) })
        }
        Err(error) => Err(HubError::io(path)(error)),
    }
}

fn in_folder(folder: &Path) -> Result<PathBuf, HubError> {
    let mut candidates = Vec::new();
    for entry in fs::read_dir(folder).map_err(HubError::io(folder))? {
        let entry = entry.map_err(HubError::io(folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Follows links: a cache snapshot is a folder of links.
        if let Ok(meta) = fs::metadata(entry.path())
            && meta.is_file()
        {
            candidates.push(Candidate { name, size: Some(meta.len()) });
        }
    }
    candidates.sort_by(|a, b| a.name.cmp(&b.name));
    let name = folder.display().to_string();
    let prefix = format!("{}/", name.trim_end_matches('/'));
    choose(&candidates, None, Place { name: &name, prefix: &prefix }).map(|chosen| folder.join(&chosen.name))
}

fn by_name(path: &Path, models_dir: &Path) -> Option<PathBuf> {
    let name = bare_name(path)?;
    [name.to_owned(), format!("{name}.gguf")]
        .iter()
        .map(|name| models_dir.join(name))
        .find(|path| path.is_file())
}

fn bare_name(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| names::check_file(text).is_ok() && !text.contains('/'))
}

fn hint(path: &Path, models_dir: &Path) -> String {
    let text = path.to_string_lossy();
    let is_gguf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    if text.starts_with('~') {
        return "~ is expanded by a shell only; write the whole path".to_owned();
    }
    if names::is_repo(&text) && !is_gguf {
        return format!("for a hub repository write hf:{text}");
    }
    if bare_name(path).is_some() {
        return format!(
            "no such file here or in {}; `motet model list` shows what there is, and a hub repository is hf:owner/name",
            models_dir.display()
        );
    }
    match path.ancestors().skip(1).find(|folder| folder.exists()) {
        Some(folder) if Some(folder) != path.parent() => format!("only {} exists", folder.display()),
        _ => "check the spelling".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(result: Result<PathBuf, HubError>) -> String {
        let text = result.expect_err("no such model").to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn finds_files_folders_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models");
        fs::create_dir_all(&models).unwrap();
        for name in ["a.gguf", "b.Q8_0.gguf"] {
            fs::write(models.join(name), "GGUF").unwrap();
        }
        let check =
            |text: &str, expected: &Path| assert_eq!(path(Path::new(text), &models).unwrap(), expected);
        check(models.join("a.gguf").to_str().unwrap(), &models.join("a.gguf"));
        check("a", &models.join("a.gguf"));
        check("b.Q8_0.gguf", &models.join("b.Q8_0.gguf"));
        check("b.Q8_0", &models.join("b.Q8_0.gguf"));
        check(models.to_str().unwrap(), &models.join("b.Q8_0.gguf"));
    }

    #[test]
    fn says_what_was_probably_meant() {
        let dir = tempfile::tempdir().unwrap();
        let check = |text: &str, part: &str| {
            let error = error(path(Path::new(text), dir.path()));
            assert!(error.contains(part), "{text}: {error}");
        };
        check("owner-of/some-name", "hf:owner-of/some-name");
        check("nosuch", "motet model list");
        check("~/a.gguf", "whole path");
        check(&format!("{}/no/such/a.gguf", dir.path().display()), "only ");
        check(&format!("{}/a.gguf", dir.path().display()), "check the spelling");
        check(dir.path().to_str().unwrap(), "no GGUF file");
    }

    #[test]
    fn default_model_is_whole_or_explained() {
        let dir = tempfile::tempdir().unwrap();
        assert!(error(default_path(dir.path())).contains("cargo xtask model"));
        fs::write(dir.path().join(DEFAULT_MODEL.file), "GGUF").unwrap();
        assert!(error(default_path(dir.path())).contains("98362432"));
    }
}
