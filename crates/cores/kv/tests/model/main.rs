//! The pool against a naive model, operation by operation.

#![allow(clippy::expect_used, reason = "test code outside of test functions")]

mod naive;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::rc::Rc;

use motet_kv::{Admission, NO_BLOCK, Pin, Pool, PoolConfig, Scope, Table, Tier, Tiers};
use motet_types::TokenId;
use naive::{Model, ModelBlock};
use proptest::prelude::*;
use support::{BLOCK, Follower, at, config, tenant};

/// What is done to both. Indices are taken modulo what is there.
#[derive(Debug, Clone)]
enum Op {
    Open(Prompt),
    Admit { prompt: Prompt, more: usize, spare: u32 },
    Reserve { table: usize, more: usize },
    Append { table: usize, tokens: Vec<TokenId> },
    Fork(usize),
    Close(usize),
    Discard(usize),
    Pin(Prompt),
    Unpin(usize),
}

/// Prompts agree up to where they branch.
#[derive(Debug, Clone, Copy)]
struct Prompt {
    scope: usize,
    branch: usize,
    len: usize,
    token: TokenId,
}

impl Prompt {
    fn tokens(self) -> Vec<TokenId> {
        (0..self.len).map(|at| if at < self.branch { 0 } else { self.token }).collect()
    }
}

fn prompts() -> impl Strategy<Value = Prompt> {
    let parts = (0usize..2, 0usize..20, 0usize..40, 0u32..3);
    parts.prop_map(|(scope, branch, len, token)| Prompt { scope, branch, len, token })
}

fn operations() -> impl Strategy<Value = Op> {
    let tokens = || proptest::collection::vec(0u32..3, 0..12);
    prop_oneof![
        3 => prompts().prop_map(Op::Open),
        3 => (prompts(), 0usize..8, 0u32..4).prop_map(|(prompt, more, spare)| Op::Admit { prompt, more, spare }),
        4 => (any::<usize>(), 0usize..24).prop_map(|(table, more)| Op::Reserve { table, more }),
        8 => (any::<usize>(), tokens()).prop_map(|(table, tokens)| Op::Append { table, tokens }),
        2 => any::<usize>().prop_map(Op::Fork),
        3 => any::<usize>().prop_map(Op::Close),
        1 => any::<usize>().prop_map(Op::Discard),
        1 => prompts().prop_map(Op::Pin),
        1 => any::<usize>().prop_map(Op::Unpin),
    ]
}

/// The pool and the model side by side.
struct Pair {
    pool: Pool,
    model: Model,
    scopes: [Scope; 2],
    tables: Vec<Table>,
    pins: Vec<Pin>,
    follower: Follower,
}

impl Pair {
    fn new(config: PoolConfig) -> Self {
        let (model, pool) = (Model::new(&config), Pool::new(config));
        let scopes = [tenant("a"), tenant("b")];
        Self { pool, model, scopes, tables: Vec::new(), pins: Vec::new(), follower: Follower::default() }
    }

    fn apply(&mut self, op: &Op) {
        let (tables, pins) = (self.tables.len(), self.pins.len());
        match op {
            Op::Open(prompt) => {
                self.tables.push(self.pool.open(&self.scopes[prompt.scope], &prompt.tokens(), at(0)));
                self.model.open(prompt.scope, &prompt.tokens());
            }
            Op::Admit { prompt, more, spare } => self.admit(*prompt, *more, *spare),
            Op::Pin(prompt) => {
                let held = self.model.hold(prompt.scope, &prompt.tokens());
                let pin = self.pool.pin(&self.scopes[prompt.scope], &prompt.tokens());
                assert_eq!(pin.tokens(), held[0].len() as u32 * BLOCK);
                self.pins.push(pin);
                self.model
                    .pins
                    .push(held.into_iter().map(|column| column.into_iter().flatten().collect()).collect());
            }
            Op::Unpin(pin) if pins > 0 => {
                drop(self.pins.remove(pin % pins));
                self.model.unpin(pin % pins);
            }
            Op::Reserve { table, more } if tables > 0 => {
                let table = table % tables;
                let tokens = self.tables[table].stored_tokens() + *more as u32;
                let is_reserved = self.tables[table].reserve(tokens).is_ok();
                assert_eq!(is_reserved, self.model.reserve(table, tokens as usize));
            }
            Op::Append { table, tokens } if tables > 0 => {
                let table = table % tables;
                let room = self.tables[table].capacity_tokens() - self.tables[table].stored_tokens();
                let tokens = &tokens[..tokens.len().min(room as usize)];
                self.tables[table].append(tokens, at(0));
                self.model.append(table, tokens);
            }
            Op::Fork(table) if tables > 0 => self.fork(table % tables),
            Op::Close(table) if tables > 0 => {
                drop(self.tables.remove(table % tables));
                self.model.close(table % tables);
            }
            Op::Discard(table) if tables > 0 => {
                self.tables.remove(table % tables).discard();
                self.model.discard(table % tables);
            }
            _ => {}
        }
    }

    fn admit(&mut self, prompt: Prompt, more: usize, spare: u32) {
        let tokens = prompt.tokens();
        let reserve_tokens = (tokens.len() + more) as u32;
        let scope = &self.scopes[prompt.scope];
        let admission =
            Admission { scope, tokens: &tokens, tiers: Tiers::Both, reserve_tokens, spare_blocks: spare };
        let before = self.pool.counts();
        match self.pool.admit(&admission, at(0)) {
            Ok(table) => {
                self.tables.push(table);
                self.model.open(prompt.scope, &tokens);
                let last = self.model.tables.len() - 1;
                assert!(self.model.reserve(last, reserve_tokens as usize));
                assert!((0..self.model.groups.len()).all(|group| self.model.available(group) >= spare));
            }
            Err(shortage) => {
                assert_eq!(self.pool.counts(), before);
                assert!(shortage.needed > shortage.available);
                // The model has no way back, so the refusal is checked on numbers alone.
                let blocks = self.model.prefix(prompt.scope, &tokens) as u32;
                let fresh = reserve_tokens.div_ceil(BLOCK).saturating_sub(blocks);
                assert!(
                    (0..self.model.groups.len())
                        .any(|group| { fresh + spare + blocks > self.model.available(group) })
                );
            }
        }
    }

    fn fork(&mut self, table: usize) {
        let forked = self.tables[table].fork();
        assert_eq!(forked.is_ok(), self.model.fork(table));
        let Ok((child, copies)) = forked else { return };
        let parent = &self.tables[table];
        let filling = (parent.stored_tokens() / BLOCK) as usize;
        let is_partial = !parent.stored_tokens().is_multiple_of(BLOCK);
        assert_eq!(copies.len(), if is_partial { self.model.groups.len() } else { 0 });
        for copy in copies {
            assert_eq!(copy.from, parent.ids(copy.group)[filling]);
            assert_eq!(copy.to, child.ids(copy.group)[filling]);
        }
        self.tables.push(child);
    }

    fn compare(&mut self) {
        self.pool.audit(&self.tables, &self.pins).expect("the invariants hold");
        self.follower.follow(&self.pool);
        let counts = self.pool.counts();
        let mut named = 0;
        for (group, counted) in counts.groups.iter().enumerate() {
            let held = self.model.held(group);
            let idle = self.model.groups[group].idle.len() as u32;
            assert_eq!((counted.used, counted.cached), (held.len() as u32, idle), "group {group}");
            assert_eq!(counted.used + counted.cached + counted.free, counted.total);
            named += idle as usize + held.iter().filter(|block| block.name.borrow().is_some()).count();
        }
        assert_eq!(self.follower.count(Tier::First), named);
        for (table, model) in self.tables.iter().zip(&self.model.tables) {
            assert_eq!(table.stored_tokens() as usize, model.tokens.len());
            for (group, column) in model.columns.iter().enumerate() {
                let seen: Vec<_> = table.ids(group).iter().map(|id| *id != NO_BLOCK).collect();
                assert_eq!(seen, column.iter().map(Option::is_some).collect::<Vec<_>>());
            }
        }
        for (scope, branch, token) in [(0, 0, 1), (0, 8, 1), (0, 9, 2), (1, 40, 0), (0, 40, 0)] {
            let tokens = Prompt { scope, branch, len: 40, token }.tokens();
            let expected = self.model.prefix(scope, &tokens) as u32 * BLOCK;
            assert_eq!(self.pool.probe(&self.scopes[scope], &tokens), expected);
        }
    }

    /// Equal places in two tables hold one block exactly when they do in the model.
    fn compare_sharing(&self) {
        for group in 0..self.model.groups.len() {
            let mut pairs = HashSet::new();
            let mut blocks: HashSet<*const ModelBlock> = HashSet::new();
            for (table, model) in self.tables.iter().zip(&self.model.tables) {
                for (id, block) in table.ids(group).iter().zip(&model.columns[group]) {
                    let Some(block) = block else { continue };
                    pairs.insert((*id, Rc::as_ptr(block)));
                    blocks.insert(Rc::as_ptr(block));
                }
            }
            let ids: HashSet<_> = pairs.iter().map(|(id, _)| *id).collect();
            assert_eq!((pairs.len(), pairs.len()), (ids.len(), blocks.len()), "group {group}");
        }
    }
}

fn check(config: PoolConfig, operations: &[Op]) {
    let mut pair = Pair::new(config);
    for op in operations {
        pair.apply(op);
        pair.compare();
        pair.compare_sharing();
    }
    pair.tables.clear();
    pair.pins.clear();
    pair.pool.audit([], []).expect("the invariants hold");
    assert_eq!(pair.pool.counts().all.used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_group(operations in proptest::collection::vec(operations(), 1..80)) {
        check(config(&[(16, None)]), &operations);
    }

    #[test]
    fn groups_with_windows(
        operations in proptest::collection::vec(operations(), 1..80),
        windows in (1u32..24, 1u32..10),
    ) {
        check(config(&[(20, None), (14, Some(windows.0)), (12, Some(windows.1))]), &operations);
    }

    #[test]
    fn windows_alone(operations in proptest::collection::vec(operations(), 1..80), window in 1u32..16) {
        check(config(&[(14, Some(window))]), &operations);
    }

    #[test]
    fn without_caching(operations in proptest::collection::vec(operations(), 1..60)) {
        check(PoolConfig { caching: false, ..config(&[(16, None), (12, Some(5))]) }, &operations);
    }
}
