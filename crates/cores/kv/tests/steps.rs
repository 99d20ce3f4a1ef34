//! Steps over pools with a second tier, on an executor whose "keys and values" name all tokens before them:
//! whatever is hit, evicted, spilled, filled, forked, preempted or lost, a query sees what it should.

#![allow(clippy::expect_used, reason = "test code outside of test functions")]

mod support;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use motet_kv::{
    Admission, BlockCopy, BlockHash, BlockId, Fill, NO_BLOCK, Pin, Pool, PoolConfig, Scope, SecondTier,
    Spill, Table, Tier, Tiers,
};
use motet_types::TokenId;
use proptest::prelude::*;
use support::{BLOCK, Follower, at, config, tenant};

type Bytes = [u64; BLOCK as usize];

/// What is stored where nothing right is.
const GARBAGE: u64 = 0;

/// What a position's keys and values depend on.
fn value(scope: usize, group: usize, tokens: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope, group, tokens).hash(&mut hasher);
    hasher.finish().max(1)
}

/// The arenas of all groups, and the slots of the second tier.
struct Memory {
    windows: Vec<Option<u32>>,
    arenas: Vec<Vec<Bytes>>,
    slots: HashMap<u32, (BlockHash, Bytes)>,
    /// What a spill that failed should have stored.
    lost: HashSet<(u32, BlockHash)>,
}

struct Sequence {
    id: usize,
    scope: usize,
    tokens: Vec<TokenId>,
    /// None while it is preempted.
    table: Option<Table>,
}

struct Chunk {
    sequence: usize,
    scope: usize,
    /// All tokens up to the chunk's end.
    tokens: Vec<TokenId>,
    start: u32,
    stored: u32,
    ids: Vec<Vec<BlockId>>,
}

#[derive(Default)]
struct Plan {
    spills: Vec<Spill>,
    copies: Vec<BlockCopy>,
    fills: Vec<Fill>,
    chunks: Vec<Chunk>,
}

impl Memory {
    fn new(config: &PoolConfig) -> Self {
        let arena = |blocks: u32| vec![[GARBAGE; BLOCK as usize]; blocks as usize];
        Self {
            windows: config.groups.iter().map(|group| group.window).collect(),
            arenas: config.groups.iter().map(|group| arena(group.blocks)).collect(),
            slots: HashMap::new(),
            lost: HashSet::new(),
        }
    }

    fn spill(&mut self, spill: &Spill) {
        let bytes = self.arenas[spill.group][spill.block as usize];
        assert!(!bytes.contains(&GARBAGE), "{spill:?} reads what was never stored");
        self.slots.insert(spill.slot, (spill.hash, bytes));
        self.lost.remove(&(spill.slot, spill.hash));
    }

    /// False when the slot does not hold it, which only a failed spill explains.
    fn fill(&mut self, fill: &Fill) -> bool {
        match self.slots.get(&fill.slot) {
            Some((hash, bytes)) if *hash == fill.hash => {
                self.arenas[fill.group][fill.block as usize] = *bytes;
                true
            }
            _ => {
                assert!(self.lost.contains(&(fill.slot, fill.hash)), "{fill:?} reads an overwritten slot");
                false
            }
        }
    }

    fn copy(&mut self, copy: &BlockCopy) {
        self.arenas[copy.group][copy.to as usize] = self.arenas[copy.group][copy.from as usize];
    }

    /// Stores the chunk's positions; true if its queries saw nothing but what they should.
    fn compute(&mut self, chunk: &Chunk) -> bool {
        let mut is_right = true;
        for group in 0..self.arenas.len() {
            for query in chunk.start as usize..chunk.tokens.len() {
                if query >= chunk.stored as usize {
                    let new = value(chunk.scope, group, &chunk.tokens[..=query]);
                    let id = chunk.ids[group][query / BLOCK as usize];
                    self.arenas[group][id as usize][query % BLOCK as usize] =
                        if is_right { new } else { GARBAGE };
                }
                let first =
                    self.windows[group].map_or(0, |window| (query + 1).saturating_sub(window as usize));
                is_right &= (first..=query).all(|seen| {
                    let id = chunk.ids[group][seen / BLOCK as usize];
                    assert_ne!(id, NO_BLOCK, "position {seen} is seen from {query} in group {group}");
                    let stored = self.arenas[group][id as usize][seen % BLOCK as usize];
                    stored == value(chunk.scope, group, &chunk.tokens[..=seen])
                });
            }
        }
        is_right
    }
}

#[derive(Debug, Clone)]
enum Op {
    Open { scope: usize, branch: usize, len: usize, token: TokenId, tiers: bool },
    Fork(usize),
    Close(usize),
    Preempt(usize),
    Discard(usize),
    Pin(usize),
    Unpin,
}

/// A step: what happens while it is planned, who leaves before it runs, and what goes wrong in it.
#[derive(Debug, Clone)]
struct Round {
    ops: Vec<Op>,
    chunks: Vec<u32>,
    late: Vec<Op>,
    failing: u16,
    seconds: u64,
}

fn operations() -> impl Strategy<Value = Op> {
    let open = (0usize..2, 0usize..20, 1usize..40, 1u32..3, any::<bool>());
    prop_oneof![
        4 => open.prop_map(|(scope, branch, len, token, tiers)| Op::Open { scope, branch, len, token, tiers }),
        1 => any::<usize>().prop_map(Op::Fork),
        1 => leaving(),
        1 => any::<usize>().prop_map(Op::Pin),
        1 => Just(Op::Unpin),
    ]
}

fn leaving() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<usize>().prop_map(Op::Close),
        2 => any::<usize>().prop_map(Op::Preempt),
        1 => any::<usize>().prop_map(Op::Discard),
    ]
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let failing = prop_oneof![3 => Just(0), 1 => any::<u16>()];
    let late = proptest::collection::vec(leaving(), 0..2);
    let chunks = proptest::collection::vec(0u32..12, 1..4);
    let round = (proptest::collection::vec(operations(), 0..4), chunks, late, failing, 0u64..30);
    let round =
        round.prop_map(|(ops, chunks, late, failing, seconds)| Round { ops, chunks, late, failing, seconds });
    proptest::collection::vec(round, 1..40)
}

struct World {
    pool: Pool,
    memory: Memory,
    scopes: [Scope; 2],
    sequences: Vec<Sequence>,
    pins: Vec<Pin>,
    copies: Vec<BlockCopy>,
    follower: Follower,
    seconds: u64,
    ids: usize,
}

impl World {
    fn new(config: PoolConfig) -> Self {
        Self {
            memory: Memory::new(&config),
            pool: Pool::new(config),
            scopes: [tenant("a"), tenant("b")],
            sequences: Vec::new(),
            pins: Vec::new(),
            copies: Vec::new(),
            follower: Follower::default(),
            seconds: 0,
            ids: 0,
        }
    }

    fn add(&mut self, scope: usize, tokens: Vec<TokenId>, table: Option<Table>) {
        self.ids += 1;
        self.sequences.push(Sequence { id: self.ids, scope, tokens, table });
    }

    fn apply(&mut self, op: &Op) {
        let count = self.sequences.len();
        match *op {
            Op::Open { scope, branch, len, token, tiers } => {
                let tokens: Vec<_> = (0..len).map(|at| if at < branch { 0 } else { token }).collect();
                let table = tiers.then(|| self.pool.open(&self.scopes[scope], &tokens, at(self.seconds)));
                self.add(scope, tokens, table);
            }
            Op::Fork(index) if count > 0 => {
                let Sequence { scope, tokens, table, .. } = &self.sequences[index % count];
                let Some(Ok((child, copies))) = table.as_ref().map(Table::fork) else { return };
                let mut tokens = tokens.clone();
                // The child goes on with a token of its own.
                if let Some(last) = tokens.get_mut(child.stored_tokens() as usize) {
                    *last = 9;
                }
                self.copies.extend(copies);
                self.add(*scope, tokens, Some(child));
            }
            Op::Close(index) if count > 0 => drop(self.sequences.remove(index % count)),
            Op::Preempt(index) if count > 0 => self.sequences[index % count].table = None,
            Op::Discard(index) if count > 0 => {
                if let Some(table) = self.sequences.remove(index % count).table {
                    table.discard();
                }
            }
            Op::Pin(index) if count > 0 && self.pins.len() < 2 => {
                let sequence = &self.sequences[index % count];
                self.pins.push(self.pool.pin(&self.scopes[sequence.scope], &sequence.tokens));
            }
            Op::Unpin => drop(self.pins.pop()),
            _ => {}
        }
    }

    fn plan(&mut self, chunks: &[u32]) -> Plan {
        let mut plan = Plan { copies: std::mem::take(&mut self.copies), ..Plan::default() };
        for (index, sequence) in self.sequences.iter_mut().enumerate() {
            let take = chunks[index % chunks.len()];
            let Sequence { id, scope, tokens, table } = sequence;
            let tiers = if take.is_multiple_of(3) { Tiers::First } else { Tiers::Both };
            let scope_key = &self.scopes[*scope];
            let admission =
                Admission { scope: scope_key, tokens, tiers, reserve_tokens: 0, spare_blocks: take / 4 };
            if table.is_none() {
                *table = self.pool.admit(&admission, at(self.seconds)).ok();
            }
            let Some(open) = table else { continue };
            let stored = open.stored_tokens();
            let end = tokens.len().min((stored + take) as usize);
            if take == 0 || end == 0 || open.reserve(end as u32).is_err() {
                continue;
            }
            plan.fills.extend(open.take_fills());
            plan.chunks.push(Chunk {
                sequence: *id,
                scope: *scope,
                tokens: tokens[..end].to_vec(),
                start: stored.min(end as u32 - 1),
                stored,
                ids: (0..self.memory.arenas.len()).map(|group| open.ids(group).to_vec()).collect(),
            });
        }
        plan.spills = self.pool.take_spills();
        plan
    }

    /// Carries the plan out; bits of `failing` choose what fails.
    fn execute(&mut self, plan: &Plan, failing: u16) -> (Vec<Spill>, Vec<Fill>, Vec<bool>) {
        let fails = |at: usize| failing >> (at % 16) & 1 == 1;
        let (mut lost, mut failed) = (Vec::new(), Vec::new());
        for (index, spill) in plan.spills.iter().enumerate() {
            if fails(index) {
                self.memory.slots.remove(&spill.slot);
                self.memory.lost.insert((spill.slot, spill.hash));
                lost.push(*spill);
            } else {
                self.memory.spill(spill);
            }
        }
        plan.copies.iter().for_each(|copy| self.memory.copy(copy));
        for (index, fill) in plan.fills.iter().enumerate() {
            if fails(index + 5) || !self.memory.fill(fill) {
                self.memory.arenas[fill.group][fill.block as usize] = [GARBAGE; BLOCK as usize];
                failed.push(*fill);
            }
        }
        let computed = plan.chunks.iter().map(|chunk| self.memory.compute(chunk)).collect();
        (lost, failed, computed)
    }

    fn commit(&mut self, plan: &Plan, (lost, failed, computed): (Vec<Spill>, Vec<Fill>, Vec<bool>)) {
        failed.iter().for_each(|fill| self.pool.fill_failed(fill));
        lost.iter().for_each(|spill| self.pool.spill_failed(spill));
        for (chunk, is_right) in plan.chunks.iter().zip(computed) {
            let Some(sequence) = self.sequences.iter_mut().find(|s| s.id == chunk.sequence) else { continue };
            let Some(table) = &mut sequence.table else { continue };
            if table.is_broken() {
                sequence.table = None;
                continue;
            }
            assert!(is_right, "a query of {} saw something else", chunk.sequence);
            table.append(&chunk.tokens[chunk.stored as usize..], at(self.seconds));
            if table.stored_tokens() as usize == sequence.tokens.len() {
                sequence.tokens.push(1 + chunk.sequence as u32 % 2);
            }
        }
        self.sequences.retain(|sequence| sequence.tokens.len() < 48);
    }

    fn check(&mut self) {
        let tables = self.sequences.iter().filter_map(|sequence| sequence.table.as_ref());
        self.pool.audit(tables, &self.pins).expect("the invariants hold");
        self.follower.follow(&self.pool);
        assert_eq!(self.follower.count(Tier::Second), self.pool.counts().spilled as usize);
    }

    fn round(&mut self, round: &Round) {
        self.seconds += round.seconds;
        for op in &round.ops {
            self.apply(op);
            self.check();
        }
        let plan = self.plan(&round.chunks);
        self.check();
        round.late.iter().for_each(|op| self.apply(op));
        let outcome = self.execute(&plan, round.failing);
        self.commit(&plan, outcome);
        self.check();
    }
}

fn check(groups: &[(u32, Option<u32>)], max_blocks: u32, rounds: &[Round]) {
    let second_tier = Some(SecondTier { max_blocks, max_age: at(60) });
    let mut world = World::new(PoolConfig { second_tier, ..config(groups) });
    rounds.iter().for_each(|round| world.round(round));
    world.sequences.clear();
    world.pins.clear();
    world.check();
    assert_eq!(world.pool.counts().all.used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn one_group(rounds in rounds(), max_blocks in 0u32..24) {
        check(&[(18, None)], max_blocks, &rounds);
    }

    #[test]
    fn groups_with_windows(rounds in rounds(), max_blocks in 0u32..40, window in 1u32..20) {
        check(&[(24, None), (18, Some(window))], max_blocks, &rounds);
    }
}
