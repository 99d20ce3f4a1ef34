use std::{fs, path::PathBuf};

use crate::{
    HubConfig, HubError, ModelRef, Progress,
    cache::{RepoCache, make_parent},
    choose::{Place, choose},
    client::{Client, FileInfo, Patience},
    download::Download,
    local, split,
};

/// Turns model references into files, fetching what is not here yet.
#[derive(Debug)]
pub struct Hub {
    config: HubConfig,
}

impl Hub {
    /// A hub as `config` describes it; nothing is opened or asked yet.
    pub fn new(config: HubConfig) -> Self {
        Self { config }
    }

    /// The path of the one GGUF file that `model` names. Fetches a hub file that the cache lacks, and
    /// only then; with the hub out of reach, a cached copy serves.
    pub async fn resolve(&self, model: &ModelRef, progress: &dyn Progress) -> Result<PathBuf, HubError> {
        match model {
            ModelRef::Default => local::default_path(&self.config.models_dir),
            ModelRef::Path(path) => local::path(path, &self.config.models_dir),
            ModelRef::Hub { repo, file } => self.hub_file(repo, file.as_deref(), progress).await,
        }
    }

    async fn hub_file(
        &self,
        repo: &str,
        file: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let cache = RepoCache::new(&self.config.cache, repo);
        let cached = cached(&cache, repo, file);
        if self.config.is_offline {
            return cached.ok_or_else(|| HubError::Offline {
                what: file.map_or_else(|| repo.to_owned(), |file| format!("{repo}:{file}")),
                cache: self.config.cache.clone(),
            });
        }
        let patience = if cached.is_some() { Patience::Brief } else { Patience::Full };
        let fetched = match Client::new(self.config.clone()) {
            Ok(client) => Fetch { client, cache, repo, patience, progress }.run(file).await,
            Err(error) => Err(error),
        };
        match (fetched, cached) {
            (Err(error), Some(path)) if error.is_unreachable() => {
                progress.note(&format!("using the copy in the cache: {error}"));
                Ok(path)
            }
            (result, _) => result,
        }
    }
}

/// What the cache alone would answer.
fn cached(cache: &RepoCache, repo: &str, file: Option<&str>) -> Option<PathBuf> {
    let prefix = format!("hf:{repo}:");
    let files = cache.files();
    let chosen = choose(&files, file, Place { name: repo, prefix: &prefix }).ok()?;
    let paths: Option<Vec<PathBuf>> =
        split::parts(&chosen.name).iter().map(|part| cache.file(part)).collect();
    paths?.into_iter().next()
}

/// One model on its way from the hub into the cache.
struct Fetch<'a> {
    client: Client,
    cache: RepoCache,
    repo: &'a str,
    patience: Patience,
    progress: &'a dyn Progress,
}

impl Fetch<'_> {
    async fn run(&self, wanted: Option<&str>) -> Result<PathBuf, HubError> {
        let (name, info) = self.find(wanted).await?;
        let parts = split::parts(&name);
        let first = self.place(&name, &info).await?;
        for part in parts.iter().skip(1) {
            let info = self.metadata(part).await?;
            self.place(part, &info).await?;
        }
        Ok(first)
    }

    /// Brings one file into the cache, when it is not there, and links it into the snapshot.
    async fn place(&self, file: &str, info: &FileInfo) -> Result<PathBuf, HubError> {
        let blob = self.cache.blob(&info.etag);
        let is_here = || fs::metadata(&blob).is_ok_and(|meta| meta.len() == info.size);
        if !is_here() {
            make_parent(&blob)?;
            let _lock = self.cache.lock(&info.etag, self.progress).await?;
            // Whoever held the lock before may have fetched it.
            if !is_here() {
                let (client, repo, progress) = (&self.client, self.repo, self.progress);
                Download { client, repo, file, info, progress }.run(&blob).await?;
            }
        }
        self.cache.publish(&info.commit, file, &info.etag)
    }

    /// The file's name and metadata. A name that ends in `.gguf` is asked for directly; the list of
    /// files is fetched when something has to be chosen.
    async fn find(&self, wanted: Option<&str>) -> Result<(String, FileInfo), HubError> {
        if let Some(file) = wanted.filter(|name| name.ends_with(".gguf")) {
            let first = split::parts(file).swap_remove(0);
            match self.metadata(&first).await {
                Err(HubError::NotFound { .. }) => {}
                result => return result.map(|info| (first, info)),
            }
        }
        let files = self.client.list(self.repo, self.patience, self.progress).await?;
        let prefix = format!("hf:{}:", self.repo);
        let chosen = choose(&files, wanted, Place { name: self.repo, prefix: &prefix })?;
        Ok((chosen.name.clone(), self.metadata(&chosen.name).await?))
    }

    async fn metadata(&self, file: &str) -> Result<FileInfo, HubError> {
        self.client.metadata(self.repo, file, self.patience, self.progress).await
    }
}
