use std::collections::VecDeque;

use crate::BlockHash;

/// Something that happened in a pool. A router that follows these knows what is cached where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvEvent {
    /// Counts from 0 without gaps; a gap in what is drained means that older events were dropped.
    pub id: u64,
    /// What happened.
    pub kind: KvEventKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvEventKind {
    /// A sequence found its first `tokens` cached.
    Hit {
        /// A multiple of the block size.
        tokens: u32,
    },
    /// A sequence did not find its last `tokens`.
    Miss {
        /// At least 1.
        tokens: u32,
    },
    /// A block can be hit from now on.
    Insert {
        /// Where.
        tier: Tier,
        /// The block's group.
        group: usize,
        /// The block.
        hash: BlockHash,
    },
    /// A block can't be hit there any more.
    Evict {
        /// Where it was.
        tier: Tier,
        /// The block's group.
        group: usize,
        /// The block.
        hash: BlockHash,
    },
}

/// Where a block is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// In the arena.
    First,
    /// Spilled.
    Second,
}

/// Events kept for a reader. A step of the largest batches makes some hundreds, so a reader may miss
/// dozens of steps; the whole is under a megabyte.
const KEPT: usize = 16_384;

/// The latest events; the oldest make room for new ones.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    next: u64,
    events: VecDeque<KvEvent>,
}

impl EventLog {
    pub(crate) fn push(&mut self, kind: KvEventKind) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(KvEvent { id: self.next, kind });
        self.next += 1;
    }

    pub(crate) fn drain(&mut self, limit: usize) -> Vec<KvEvent> {
        self.events.drain(..limit.min(self.events.len())).collect()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let first = self.next - self.events.len() as u64;
        match self.events.iter().zip(first..).find(|(event, id)| event.id != *id) {
            Some((event, id)) => Err(format!("event {} stands where {id} belongs", event.id)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_show_as_a_gap() {
        let mut log = EventLog::default();
        for tokens in 0..KEPT as u32 + 5 {
            log.push(KvEventKind::Miss { tokens });
        }
        assert_eq!(log.check(), Ok(()));
        assert_eq!(log.drain(2).iter().map(|event| event.id).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(log.drain(usize::MAX).len(), KEPT - 2);
        log.push(KvEventKind::Hit { tokens: 1 });
        assert_eq!(log.drain(9)[0].id, KEPT as u64 + 5);
    }
}
