//! Where the contents of files lie: `FOLDER/t-TENANT/FILE`, and `FOLDER/tmp` for what is not whole yet.
//!
//! A file appears under its name when all of it is on the disk. Everything is readable for its owner only.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use motet_store::{DataOwner, FileId};

const TEMP: &str = "tmp";
const HOME: &str = "home";
const RUN_LOCK: &str = "run.lock";
/// What lies in the folder without being known is left alone for so long: it may be an upload that is about to be
/// known.
const YOUNG: Duration = Duration::from_secs(24 * 3600);

/// The folder of files.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    root: PathBuf,
}

/// A file that is not whole yet; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Temp {
    pub(crate) path: PathBuf,
}

impl Disk {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Whether a file was ever kept here.
    pub(crate) fn exists(&self) -> bool {
        self.root.is_dir()
    }

    /// Makes the folder and gives its name: random, and the same for as long as it exists.
    pub(crate) fn home(&self, fresh: &FileId) -> io::Result<String> {
        make_folder(&self.root)?;
        let lock = private().write(true).create(true).open(self.root.join("home.lock"))?;
        lock.lock()?;
        let path = self.root.join(HOME);
        match fs::read_to_string(&path) {
            Ok(name) if !name.is_empty() => return Ok(name),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let temp = self.root.join("home.new");
        let mut file = private().write(true).create(true).truncate(true).open(&temp)?;
        file.write_all(fresh.as_str().as_bytes())?;
        file.sync_all()?;
        fs::rename(temp, path)?;
        sync_folder(&self.root)?;
        Ok(fresh.as_str().to_owned())
    }

    /// The right to run the folder's batches, while the file is open; `None` while another process has it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        make_folder(&self.root)?;
        let file = private().write(true).create(true).open(self.root.join(RUN_LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// A place for a file that is being written.
    pub(crate) fn temp(&self, id: &FileId) -> io::Result<(Temp, File)> {
        let folder = self.root.join(TEMP);
        make_folder(&folder)?;
        let path = folder.join(safe(id.as_str()));
        let file = private().write(true).create_new(true).open(&path)?;
        Ok((Temp { path }, file))
    }

    /// Gives a whole file, which is on the disk already, its name.
    pub(crate) fn keep(&self, temp: Temp, owner: &DataOwner, id: &FileId) -> io::Result<()> {
        let path = self.place(owner, id)?;
        fs::rename(&temp.path, &path)?;
        path.parent().map_or(Ok(()), sync_folder)
    }

    /// The path of a file.
    pub(crate) fn path(&self, owner: &DataOwner, id: &FileId) -> PathBuf {
        self.folder(owner).join(safe(id.as_str()))
    }

    /// The path of a file that may be about to be made.
    pub(crate) fn place(&self, owner: &DataOwner, id: &FileId) -> io::Result<PathBuf> {
        make_folder(&self.folder(owner))?;
        Ok(self.path(owner, id))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, owner: &DataOwner, id: &FileId) -> io::Result<()> {
        match fs::remove_file(self.path(owner, id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Files that were written more than a day ago, and the ids they are named after. What is in `tmp` has none.
    pub(crate) fn old(&self, now: SystemTime) -> io::Result<Vec<(PathBuf, Option<FileId>)>> {
        let mut found = Vec::new();
        for folder in fs::read_dir(&self.root)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            let is_temp = folder.file_name() == TEMP;
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                let age = file.metadata()?.modified().ok().and_then(|then| now.duration_since(then).ok());
                if age.is_none_or(|age| age < YOUNG) {
                    continue;
                }
                let id = file.file_name().to_str().map(FileId::new).filter(|_| !is_temp);
                found.push((file.path(), id));
            }
        }
        Ok(found)
    }

    fn folder(&self, owner: &DataOwner) -> PathBuf {
        // The start keeps a tenant's folder apart from the others here.
        self.root.join(format!("t-{}", safe(owner.org.as_str())))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        // It is not there when it was kept.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens a file to append to it, and makes it where there is none.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    private().read(true).append(true).create(true).open(path)
}

/// `length` bytes of a file from `offset`.
pub(crate) fn read_at(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A name of an id: ids are letters, digits, `-` and `_`; anything else is written as its number.
fn safe(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the names in a folder outlive a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use motet_store::{OrgId, UserId};

    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        let disk = Disk::new("/data".into());
        for (org, file, path) in [
            ("org_a", "file-b", "/data/t-org_a/file-b"),
            ("", "file-b", "/data/t-/file-b"),
            ("../..", "../x", "/data/t-%2e%2e%2f%2e%2e/%2e%2e%2fx"),
            ("mp", "é", "/data/t-mp/%c3%a9"),
        ] {
            let owner = DataOwner { org: OrgId::new(org), user: UserId::new("u") };
            assert_eq!(disk.path(&owner, &FileId::new(file)), Path::new(path));
        }
    }

    #[test]
    fn a_folder_keeps_its_name_and_one_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().join("files"));
        assert!(!disk.exists());
        assert_eq!(disk.home(&FileId::new("a")).unwrap(), "a");
        assert_eq!(disk.home(&FileId::new("b")).unwrap(), "a");
        let held = disk.try_lock().unwrap();
        assert!(held.is_some() && disk.try_lock().unwrap().is_none());
        drop(held);
        assert!(disk.try_lock().unwrap().is_some());
    }

    #[test]
    fn what_is_not_kept_goes() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path().join("files"));
        let owner = DataOwner::nobody();
        let (one, two) = (FileId::new("one"), FileId::new("two"));
        let (temp, mut file) = disk.temp(&one).unwrap();
        file.write_all(b"abc").unwrap();
        disk.keep(temp, &owner, &one).unwrap();
        drop(disk.temp(&two).unwrap());
        assert_eq!(read_at(&disk.path(&owner, &one), 1, 2).unwrap(), b"bc");
        assert_eq!(fs::read_dir(folder.path().join("files/tmp")).unwrap().count(), 0);
        assert!(disk.old(SystemTime::now()).unwrap().is_empty());
        let old = disk.old(SystemTime::now() + 2 * YOUNG).unwrap();
        assert_eq!(old, [(disk.path(&owner, &one), Some(one.clone()))]);
        disk.remove(&owner, &one).unwrap();
        disk.remove(&owner, &one).unwrap();
    }
}
