use std::time::Duration;

use motet_kv::{Scope, Table};
use motet_types::{SequenceId, TokenId};

use crate::{StepShape, UserKey};

/// A sequence's place in the order of claims, kept for life: by lane, then by arrival, samples after the
/// one they were forked from. Blocks are taken from the last first, so the first always gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) rank: u32,
    pub(crate) arrival: u64,
    pub(crate) branch: u64,
}

/// What is known of a sequence in any state.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) order: Order,
    pub(crate) lane: usize,
    pub(crate) user: UserKey,
    pub(crate) scope: Scope,
    /// Those who want its next token: several before parallel samples have drawn their first.
    pub(crate) samples: Vec<SequenceId>,
    /// Prompt and reply so far.
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) prompt: u32,
    pub(crate) max_tokens: u32,
    pub(crate) deadline: Option<Duration>,
    /// Positions below this were computed or hit once; what is computed again costs its user nothing.
    pub(crate) reached: u32,
    /// Output tokens that were charged when it was admitted and are not generated yet.
    pub(crate) prepaid: u32,
    /// How often another lane took its blocks back.
    pub(crate) reclaimed: u32,
}

/// A sequence without blocks.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) sequence: Sequence,
    /// Tokens it has to compute, as far as known.
    pub(crate) uncached: u32,
    /// Since when it waits for blocks, its turn having come.
    pub(crate) blocked: Option<Blocked>,
}

/// Why a sequence could not be admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocked {
    pub(crate) since: Duration,
    /// The group that lacked blocks.
    pub(crate) group: usize,
    /// Blocks it needed there, without those to be left spare.
    pub(crate) needed: u32,
}

/// A sequence in the batch.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) sequence: Sequence,
    pub(crate) table: Table,
    /// Number of the plan that admitted it.
    pub(crate) admitted: u64,
    /// Number of the last plan it has a chunk in.
    pub(crate) planned: u64,
    /// Tokens it was given since it was admitted, before it caught up.
    pub(crate) attained: u32,
}

impl Sequence {
    pub(crate) fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    pub(crate) fn generated(&self) -> u32 {
        self.len() - self.prompt
    }

    /// The same tokens as a sequence of its own.
    pub(crate) fn branch(&self, order: Order, id: SequenceId) -> Self {
        Self {
            order,
            lane: self.lane,
            user: self.user,
            scope: self.scope.clone(),
            samples: vec![id],
            tokens: self.tokens.clone(),
            prompt: self.prompt,
            max_tokens: self.max_tokens,
            deadline: self.deadline,
            reached: self.reached,
            prepaid: 0,
            reclaimed: self.reclaimed,
        }
    }
}

impl Waiting {
    pub(crate) fn start(self, table: Table, plan: u64) -> Running {
        let reached = self.sequence.reached.max(table.stored_tokens().min(self.sequence.len()));
        let sequence = Sequence { reached, ..self.sequence };
        Running { sequence, table, admitted: plan, planned: 0, attained: 0 }
    }
}

impl Running {
    /// Gives the blocks back; what was full can be hit when it returns.
    pub(crate) fn preempt(self) -> Waiting {
        let uncached = self.sequence.len();
        Waiting { sequence: self.sequence, uncached, blocked: None }
    }

    /// First position to be computed: one that is stored in full computes its last token again.
    pub(crate) fn start(&self) -> u32 {
        self.table.stored_tokens().min(self.sequence.len() - 1)
    }

    /// Tokens to be computed until its next token can be drawn, at least 1.
    pub(crate) fn behind(&self) -> u32 {
        self.sequence.len() - self.start()
    }

    pub(crate) fn is_decoding(&self) -> bool {
        self.behind() == 1
    }

    pub(crate) fn shape(&self, tokens: u32) -> StepShape {
        StepShape::chunk(self.start(), tokens)
    }
}
