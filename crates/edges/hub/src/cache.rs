//! The folder layout that hub clients share.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{HubError, Progress, choose::Candidate, names};

/// The only revision Motet asks for.
pub(crate) const REVISION: &str = "main";

/// How long to wait before asking for a lock again.
const LOCK_POLL: Duration = Duration::from_millis(200);

/// Most files looked at in a snapshot: a bound on what an odd cache can cost.
const MOST_FILES: usize = 10_000;

/// The cache of one repository.
#[derive(Debug, Clone)]
pub(crate) struct RepoCache {
    /// `models--owner--name`.
    folder: PathBuf,
    /// Lock files of the repository; beside the repositories, as other hub clients have it.
    locks: PathBuf,
}

impl RepoCache {
    /// The folder of `repo` below `cache`. `repo` has passed [`names::is_repo`].
    pub(crate) fn new(cache: &Path, repo: &str) -> Self {
        let name = format!("models--{}", repo.replace('/', "--"));
        Self { locks: cache.join(".locks").join(&name), folder: cache.join(name) }
    }

    /// Where the blob with `etag` is or will be.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// The commit that `refs/main` names, when it is one.
    fn commit(&self) -> Option<String> {
        let text = fs::read_to_string(self.folder.join("refs").join(REVISION)).ok()?;
        let commit = text.trim();
        names::is_component(commit).then(|| commit.to_owned())
    }

    /// The snapshot that `refs/main` names, when it is there.
    fn snapshot(&self) -> Option<PathBuf> {
        Some(self.folder.join("snapshots").join(self.commit()?)).filter(|path| path.is_dir())
    }

    /// Files of the current snapshot.
    pub(crate) fn files(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        if let Some(snapshot) = self.snapshot() {
            collect(&snapshot, "", &mut found);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The path of `file` in the current snapshot, when its blob is there.
    pub(crate) fn file(&self, file: &str) -> Option<PathBuf> {
        Some(self.snapshot()?.join(file)).filter(|path| path.is_file())
    }

    /// Makes `snapshots/<commit>/<file>` link to the blob and `refs/main` name the commit.
    pub(crate) fn publish(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf, HubError> {
        let link = self.folder.join("snapshots").join(commit).join(file);
        let depth = file.split('/').count() + 1;
        let target = PathBuf::from("../".repeat(depth)).join("blobs").join(etag);
        make_parent(&link)?;
        if fs::read_link(&link).ok().as_ref() != Some(&target) {
            let fresh = beside(&link);
            link_file(&target, &self.blob(etag), &fresh).map_err(HubError::io(&fresh))?;
            fs::rename(&fresh, &link).map_err(HubError::io(&link))?;
        }
        let reference = self.folder.join("refs").join(REVISION);
        if self.commit().as_deref() != Some(commit) {
            make_parent(&reference)?;
            let fresh = beside(&reference);
            fs::write(&fresh, commit).map_err(HubError::io(&fresh))?;
            fs::rename(&fresh, &reference).map_err(HubError::io(&reference))?;
        }
        Ok(link)
    }

    /// Waits until this process alone may write the blob with `etag`; the lock ends with the value.
    /// `None` where the file system has no locks.
    pub(crate) async fn lock(&self, etag: &str, progress: &dyn Progress) -> Result<Option<File>, HubError> {
        let path = self.locks.join(format!("{etag}.lock"));
        make_parent(&path)?;
        let file = File::options().create(true).append(true).open(&path).map_err(HubError::io(&path))?;
        let mut is_first = true;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) => {
                    if is_first {
                        progress.note("another process is fetching this file; waiting for it");
                    }
                    is_first = false;
                    tokio::time::sleep(LOCK_POLL).await;
                }
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(HubError::io(path)(e)),
            }
        }
    }
}

/// Creates the folder that `path` will be in.
pub(crate) fn make_parent(path: &Path) -> Result<(), HubError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(HubError::io(parent))
}

/// A name in the same folder that no other process uses, to be renamed into place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    // Left by a process with the same id that was killed between creating and renaming.
    let _ = fs::remove_file(&fresh);
    fresh
}

#[cfg(unix)]
fn link_file(target: &Path, _blob: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn link_file(_target: &Path, blob: &Path, link: &Path) -> io::Result<()> {
    // Symbolic links need a privilege on Windows.
    fs::hard_link(blob, link).or_else(|_| fs::copy(blob, link).map(|_| ()))
}

fn collect(folder: &Path, prefix: &str, found: &mut Vec<Candidate>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
        if found.len() >= MOST_FILES {
            return;
        }
        if kind.is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), found);
        } else if let Ok(meta) = fs::metadata(entry.path()) {
            found.push(Candidate { name: format!("{prefix}{name}"), size: Some(meta.len()) });
        }
    }
}
