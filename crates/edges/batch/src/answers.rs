//! The answers of a batch: two files that only grow, one of what succeeded, one of what did not.
//!
//! An answer is one line, written with one call. Whatever ends the process, what is in the file is a number of whole
//! lines and at most one that was cut. [`Answers::open`] drops that one and tells which lines are answered, so that the
//! others can be asked; an answer that was cut was never given.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::disk::open_log;
use crate::input::Names;

/// Answers that may be lost by a power cut, and are then asked again: so many, or those of the time between two looks.
const UNSYNCED: usize = 64;

/// One of the files.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Arc<File>,
    lines: u64,
    bytes: u64,
    unsynced: usize,
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Success,
    Failure,
}

/// The answers so far.
#[derive(Debug)]
pub(crate) struct Answers {
    succeeded: Log,
    failed: Log,
}

#[derive(Deserialize)]
struct Named {
    custom_id: String,
}

impl Answers {
    /// Opens both files, and makes them where they are not there. Adds the names of the lines that are answered.
    pub(crate) fn open(
        succeeded: &Path,
        failed: &Path,
        names: &Names,
        answered: &mut HashSet<u128>,
    ) -> io::Result<Self> {
        let succeeded = Log::open(succeeded, names, answered)?;
        Ok(Self { failed: Log::open(failed, names, answered)?, succeeded })
    }

    /// Adds an answer: a line without its end.
    pub(crate) fn add(&mut self, kind: Kind, line: Vec<u8>) -> io::Result<()> {
        match kind {
            Kind::Success => self.succeeded.add(line),
            Kind::Failure => self.failed.add(line),
        }
    }

    /// How many answers there are: of success, of failure.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.succeeded.lines, self.failed.lines)
    }

    /// How many bytes they have.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.succeeded.bytes, self.failed.bytes)
    }

    /// Whether so much is not known to be on the disk that it should be brought there now.
    pub(crate) fn is_due(&self) -> bool {
        self.succeeded.unsynced + self.failed.unsynced >= UNSYNCED
    }

    /// Makes sure that all of it is on the disk, on a thread that may wait for it.
    pub(crate) async fn sync(&mut self) -> io::Result<()> {
        for log in [&mut self.succeeded, &mut self.failed] {
            if std::mem::take(&mut log.unsynced) > 0 {
                let file = Arc::clone(&log.file);
                tokio::task::spawn_blocking(move || file.sync_data()).await??;
            }
        }
        Ok(())
    }

    /// Closes the files, which are on the disk; one without answers goes.
    pub(crate) fn close(self) -> io::Result<()> {
        for log in [self.succeeded, self.failed] {
            if log.bytes == 0 {
                std::fs::remove_file(&log.path)?;
            }
        }
        Ok(())
    }
}

impl Log {
    fn open(path: &Path, names: &Names, answered: &mut HashSet<u128>) -> io::Result<Self> {
        let file = open_log(path)?;
        let mut reader = BufReader::new(&file);
        reader.seek(SeekFrom::Start(0))?;
        let (mut lines, mut bytes, mut line) = (0, 0, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            let Some(named) = whole(&line) else { break };
            answered.insert(names.number(&named.custom_id));
            (lines, bytes) = (lines + 1, bytes + read as u64);
        }
        if file.metadata()?.len() > bytes {
            tracing::info!(file = %path.display(), lines, "a batch's last answer was cut and is asked again");
            file.set_len(bytes)?;
        }
        Ok(Self { path: path.to_owned(), file: Arc::new(file), lines, bytes, unsynced: 0 })
    }

    fn add(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        (&*self.file).write_all(&line)?;
        self.lines += 1;
        self.bytes += line.len() as u64;
        self.unsynced += 1;
        Ok(())
    }
}

/// An answer, if the line is all of one.
fn whole(line: &[u8]) -> Option<Named> {
    serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn open(folder: &Path) -> (Answers, HashSet<u128>, Names) {
        let (names, mut answered) = (Names::default(), HashSet::new());
        let answers = Answers::open(&folder.join("o"), &folder.join("e"), &names, &mut answered).unwrap();
        (answers, answered, names)
    }

    fn line(id: usize) -> Vec<u8> {
        format!(r#"{{"id":"r","custom_id":"{id}","response":{{"body":"é{}"}}}}"#, "x".repeat(id)).into()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Wherever the file is cut, and whatever is there instead of its end, the whole lines before stay.
        #[test]
        fn a_cut_costs_the_last_line_only(lines in 0usize..6, cut in 0usize..400, junk in "[ -~]{0,9}\n?") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("o");
            let whole: Vec<u8> = (0..lines).flat_map(|id| [line(id), b"\n".to_vec()].concat()).collect();
            let cut = cut.min(whole.len());
            let kept = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            fs::write(&path, [&whole[..cut], junk.as_bytes()].concat()).unwrap();
            // The rest of a line as it was is no junk.
            let grown = fs::read(&path).unwrap();
            let kept = if whole.starts_with(&grown) { grown.iter().filter(|&&b| b == b'\n').count() } else { kept };
            let (mut answers, answered, names) = open(folder.path());
            let expected: HashSet<u128> = (0..kept).map(|id| names.number(&id.to_string())).collect();
            prop_assert_eq!(answered, expected);
            prop_assert_eq!(answers.counts(), (kept as u64, 0));
            answers.add(Kind::Success, line(kept)).unwrap();
            answers.add(Kind::Failure, line(99)).unwrap();
            answers.close().unwrap();
            let (answers, answered, _) = open(folder.path());
            prop_assert_eq!((answered.len(), answers.counts()), (kept + 2, (kept as u64 + 1, 1)));
            prop_assert_eq!(answers.bytes().0, fs::metadata(&path).unwrap().len());
        }
    }

    #[test]
    fn files_without_answers_go() {
        let folder = tempfile::tempdir().unwrap();
        let (mut answers, ..) = open(folder.path());
        answers.add(Kind::Failure, line(1)).unwrap();
        answers.close().unwrap();
        assert!(!folder.path().join("o").exists() && folder.path().join("e").exists());
    }
}
