//! Whether a file is the expected one, and a note of it beside the file.
//!
//! Hashing 98 MB takes a moment, so a good outcome is remembered in `NAME.verified` together with the
//! file's size and change time; a file that has changed since is hashed again.

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What the file has to be.
pub(crate) struct Expected {
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub(crate) sha256: &'static str,
}

/// Compares size and SHA-256; the error says which of them differs.
pub(crate) fn check(path: &Path, expected: &Expected) -> Result<()> {
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata()?.len();
    if bytes != expected.bytes {
        bail!("{} has {bytes} bytes instead of {}", path.display(), expected.bytes);
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("cannot read {}", path.display()))?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    let sha256 = format!("{:x}", hash.finalize());
    if sha256 != expected.sha256 {
        bail!("{} has the sha256 {sha256} instead of {}", path.display(), expected.sha256);
    }
    Ok(())
}

/// Whether [`check`] passed before and the file has not changed since.
pub(crate) fn is_known_good(path: &Path, expected: &Expected) -> bool {
    let note = fs::read_to_string(note_path(path)).ok();
    note.is_some() && note == note_for(path, expected).ok()
}

/// Notes that [`check`] passed.
pub(crate) fn remember(path: &Path, expected: &Expected) -> Result<()> {
    let note = note_path(path);
    fs::write(&note, note_for(path, expected)?).with_context(|| format!("cannot write {}", note.display()))
}

fn note_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".verified");
    PathBuf::from(name)
}

fn note_for(path: &Path, expected: &Expected) -> Result<String> {
    let metadata = fs::metadata(path)?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
    if metadata.len() != expected.bytes {
        bail!("the size differs");
    }
    Ok(format!("sha256 {}\nbytes {}\nmodified {changed}\n", expected.sha256, expected.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    const HELLO: Expected =
        Expected { bytes: 5, sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" };

    #[test]
    fn size_and_hash_are_checked_and_the_outcome_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        assert!(check(&path, &HELLO).is_err(), "no file");
        assert!(!is_known_good(&path, &HELLO));

        fs::write(&path, "hell").unwrap();
        assert!(check(&path, &HELLO).unwrap_err().to_string().contains("4 bytes instead of 5"));
        fs::write(&path, "jello").unwrap();
        assert!(check(&path, &HELLO).unwrap_err().to_string().contains("sha256"));

        fs::write(&path, "hello").unwrap();
        check(&path, &HELLO).unwrap();
        assert!(!is_known_good(&path, &HELLO), "nothing is remembered yet");
        remember(&path, &HELLO).unwrap();
        assert!(is_known_good(&path, &HELLO));

        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(!is_known_good(&path, &HELLO), "the file has changed since");
    }
}
