//! Reads the journal in the order it was written.
//!
//! A batch is read, then written to the database, then taken: one that the database did not get is read again. After a
//! restart reading begins with the oldest segment, and what the database has already counts once all the same.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    sync::Arc,
};

use crate::usage::{
    UsageEvent,
    journal::{Journal, Segment},
};

/// Where the events of a batch are.
#[derive(Debug)]
enum Place {
    /// In the current segment, up to here.
    Segment {
        number: u64,
        end: u64,
    },
    Memory,
}

/// Events to write.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<UsageEvent>,
    /// Lines that are no events.
    pub(crate) rejected: Vec<u8>,
    place: Place,
}

#[derive(Debug)]
pub(crate) struct Reader {
    journal: Arc<Journal>,
    /// The current segment, or the next one where there is none: all below are read.
    number: u64,
    /// Bytes of the current segment that are taken.
    offset: u64,
}

impl Reader {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, number: 0, offset: 0 }
    }

    /// The next events, at most `most`; `None` when all are taken.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<Option<Batch>> {
        while let Some(segment) = self.journal.segment_from(self.number) {
            if segment.number != self.number {
                (self.number, self.offset) = (segment.number, 0);
            }
            if self.offset < segment.len {
                return self.read_segment(segment, most).map(Some);
            }
            if !segment.is_closed {
                break;
            }
            (self.number, self.offset) = (segment.number + 1, 0);
        }
        let events = self.journal.peek_memory(most);
        let is_empty = events.is_empty();
        Ok((!is_empty).then_some(Batch { events, rejected: Vec::new(), place: Place::Memory }))
    }

    fn read_segment(&self, segment: Segment, most: usize) -> io::Result<Batch> {
        let mut batch = Batch {
            events: Vec::new(),
            rejected: Vec::new(),
            place: Place::Segment { number: segment.number, end: segment.len },
        };
        let mut file = match File::open(self.journal.path_of(segment.number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::error!(
                    segment = segment.number,
                    "a segment of the usage journal was removed by somebody else"
                );
                return Ok(batch);
            }
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = BufReader::new(file.take(segment.len - self.offset));
        let (mut line, mut end) = (Vec::new(), self.offset);
        while batch.events.len() < most {
            line.clear();
            let length = lines.read_until(b'\n', &mut line)?;
            if length == 0 {
                // The file is shorter than it was: nothing more can come of it.
                end = segment.len;
                break;
            }
            end += length as u64;
            match serde_json::from_slice::<UsageEvent>(&line) {
                Ok(event) => batch.events.push(event),
                Err(_) => batch.rejected.extend_from_slice(&line),
            }
        }
        batch.place = Place::Segment { number: segment.number, end };
        Ok(batch)
    }

    /// Goes past a batch that the database has.
    pub(crate) fn take(&mut self, batch: &Batch) -> io::Result<()> {
        if !batch.rejected.is_empty() {
            tracing::error!(
                bytes = batch.rejected.len(),
                "lines of the usage journal are no events; see usage.rejected"
            );
            self.journal.keep_rejected(&batch.rejected)?;
        }
        match batch.place {
            Place::Segment { number, end } => (self.number, self.offset) = (number, end),
            Place::Memory => self.journal.drop_memory(batch.events.len()),
        }
        Ok(())
    }

    /// Whether there are segments that are read to their end.
    pub(crate) fn has_finished(&self) -> bool {
        self.journal.segment_from(0).is_some_and(|segment| segment.number < self.number)
    }

    /// Removes the segments that are read to their end.
    pub(crate) fn remove_finished(&self) -> io::Result<()> {
        self.journal.remove_below(self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;

    use super::*;
    use crate::usage::{JournalError, Recorded, event::sample, journal::Limits};

    const LIMITS: Limits = Limits { segment: 1_000, journal: 1_000_000 };

    fn open(folder: &Path, limits: Limits) -> (Arc<Journal>, Reader) {
        let journal = Arc::new(Journal::open(folder, limits).unwrap());
        (Arc::clone(&journal), Reader::new(journal))
    }

    /// Reads and takes all there is.
    fn drain(reader: &mut Reader) -> Vec<i64> {
        let mut seen = Vec::new();
        while let Some(batch) = reader.read(3).unwrap() {
            seen.extend(batch.events.iter().map(|event| event.at));
            reader.take(&batch).unwrap();
        }
        seen
    }

    #[test]
    fn another_process_is_refused_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), LIMITS);
        let second = Journal::open(folder.path(), LIMITS);
        assert!(matches!(second, Err(JournalError::Locked { .. })));
        drop(first);
        Journal::open(folder.path(), LIMITS).unwrap();
    }

    #[test]
    fn a_torn_line_costs_itself_only_and_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        {
            let (journal, _) = open(folder.path(), LIMITS);
            for at in 0..3 {
                journal.append(sample("e", at)).unwrap();
            }
        }
        let segment = folder.path().join("usage-000000000000.jsonl");
        let whole = fs::read(&segment).unwrap();
        fs::write(&segment, &whole[..whole.len() - 40]).unwrap();
        let (journal, mut reader) = open(folder.path(), LIMITS);
        journal.append(sample("e", 9)).unwrap();
        assert_eq!(drain(&mut reader), [0, 1, 9]);
        let rejected = fs::read(folder.path().join("usage.rejected")).unwrap();
        assert!(whole.windows(rejected.len()).any(|part| part == rejected));
    }

    #[test]
    fn a_full_journal_spills_into_memory_and_then_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, mut reader) = open(folder.path(), Limits { segment: 1_000, journal: 1_000 });
        let recorded: Vec<_> = (0..5).map(|at| journal.append(sample("e", at)).unwrap()).collect();
        assert_eq!((recorded[0], recorded[4]), (Recorded::InJournal, Recorded::InMemory));
        for at in 5..20_000 {
            if journal.append(sample("e", at)).is_err() {
                break;
            }
        }
        assert!(matches!(journal.append(sample("e", 0)), Err(JournalError::Full)));
        let seen = drain(&mut reader);
        assert!(seen.len() > 10_000 && seen.is_sorted());
        journal.close_segment();
        assert_eq!(drain(&mut reader), [0_i64; 0]);
        reader.remove_finished().unwrap();
        assert_eq!(journal.size(), (0, 0));
        assert_eq!(journal.append(sample("e", 0)).unwrap(), Recorded::InJournal);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append(u8),
        /// A batch is read and its write fails.
        ReadInVain,
        Drain,
        Sync,
        CloseSegment,
        Remove,
        /// The process is killed and started again.
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u8..8).prop_map(Step::Append),
            1 => Just(Step::ReadInVain),
            2 => Just(Step::Drain),
            1 => Just(Step::Sync),
            1 => Just(Step::CloseSegment),
            1 => Just(Step::Remove),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever happens, each event is read; in order; and twice only after a restart.
        #[test]
        fn nothing_is_lost(steps in prop::collection::vec(step(), 1..30)) {
            let folder = tempfile::tempdir().unwrap();
            let (mut journal, mut reader) = open(folder.path(), LIMITS);
            let (mut next, mut taken) = (0_i64, std::collections::BTreeSet::new());
            let note = |taken: &mut std::collections::BTreeSet<i64>, seen: Vec<i64>| {
                assert!(seen.is_sorted_by(|a, b| a < b));
                taken.extend(seen);
            };
            for step in steps {
                match step {
                    Step::Append(count) => for _ in 0..count {
                        prop_assert_eq!(journal.append(sample("e", next)).unwrap(), Recorded::InJournal);
                        next += 1;
                    },
                    Step::ReadInVain => drop(reader.read(3).unwrap()),
                    Step::Drain => note(&mut taken, drain(&mut reader)),
                    Step::Sync => journal.sync().unwrap(),
                    Step::CloseSegment => journal.close_segment(),
                    Step::Remove => reader.remove_finished().unwrap(),
                    Step::Restart => {
                        drop((journal, reader));
                        (journal, reader) = open(folder.path(), LIMITS);
                    }
                }
                let on_disk: u64 = fs::read_dir(folder.path()).unwrap()
                    .map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
                prop_assert_eq!(journal.size().0, on_disk);
            }
            note(&mut taken, drain(&mut reader));
            prop_assert!(taken.into_iter().eq(0..next));
            journal.close_segment();
            drain(&mut reader);
            reader.remove_finished().unwrap();
            prop_assert!(!reader.has_finished());
            prop_assert_eq!(journal.size(), (0, 0));
        }
    }
}
