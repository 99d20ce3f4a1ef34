use std::path::{Path, PathBuf};

use crate::{HubConfig, cache::RepoCache, names, split::PartName};

/// A model that needs no network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// What to write to name it.
    pub name: String,
    /// The GGUF file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub size: u64,
}

/// Models in the models folder and in the hub cache, sorted by name within each. A model in
/// parts is listed by its first part.
pub fn installed(config: &HubConfig) -> Vec<Installed> {
    let mut all = in_models_dir(&config.models_dir);
    all.extend(in_cache(&config.cache));
    all
}

fn in_models_dir(folder: &Path) -> Vec<Installed> {
    let mut found: Vec<Installed> = file_names(folder)
        .into_iter()
        .filter_map(|name| {
            let path = folder.join(&name);
            let size = std::fs::metadata(&path).ok().filter(|meta| meta.is_file())?.len();
            let stem = Path::new(&name).file_stem()?.to_str()?.to_owned();
            is_gguf(&name).then_some(Installed { name: stem, path, size })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn in_cache(cache: &Path) -> Vec<Installed> {
    let mut found = Vec::new();
    for folder in file_names(cache) {
        let Some(repo) = folder.strip_prefix("models--").and_then(|rest| rest.split_once("--")) else {
            continue;
        };
        let repo = format!("{}/{}", repo.0, repo.1);
        if !names::is_repo(&repo) {
            continue;
        }
        let files = RepoCache::new(cache, &repo);
        for file in files.files().into_iter().filter(|file| is_gguf(&file.name)) {
            if let (Some(path), Some(size)) = (files.file(&file.name), file.size) {
                found.push(Installed { name: format!("hf:{repo}:{}", file.name), path, size });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn is_gguf(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
        && PartName::parse(name).is_none_or(|part| part.number == 1)
}
