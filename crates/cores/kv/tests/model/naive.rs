//! The pool's behaviour by lists and searches. A block is named by all tokens before its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use motet_kv::{GroupConfig, PoolConfig};
use motet_types::TokenId;

use crate::support::BLOCK;

/// A block of the model. Its `Rc`s are its holders; the list of idle blocks is one.
pub(crate) struct ModelBlock {
    /// Scope and all tokens up to its end, if it can be hit.
    pub(crate) name: RefCell<Option<(usize, Vec<TokenId>)>>,
    pub(crate) author: Cell<u64>,
}

pub(crate) type Block = Rc<ModelBlock>;

/// One group: idle blocks, oldest first.
pub(crate) struct ModelGroup {
    pub(crate) config: GroupConfig,
    pub(crate) idle: Vec<Block>,
}

#[derive(Clone)]
pub(crate) struct ModelTable {
    pub(crate) scope: usize,
    pub(crate) serial: u64,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) columns: Vec<Vec<Option<Block>>>,
}

pub(crate) struct Model {
    pub(crate) caching: bool,
    pub(crate) groups: Vec<ModelGroup>,
    pub(crate) tables: Vec<ModelTable>,
    pub(crate) pins: Vec<Vec<Vec<Block>>>,
    pub(crate) serial: u64,
}

/// Positions before this can't be seen by a query at `stored - 1`.
pub(crate) fn first_seen(stored: usize, window: Option<u32>) -> usize {
    window.map_or(0, |window| stored.saturating_sub(window as usize) / BLOCK as usize)
}

impl Model {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let groups =
            config.groups.iter().map(|config| ModelGroup { config: *config, idle: Vec::new() }).collect();
        Self { caching: config.caching, groups, tables: Vec::new(), pins: Vec::new(), serial: 0 }
    }

    /// Held blocks of a group, each once.
    pub(crate) fn held(&self, group: usize) -> Vec<Block> {
        let by_tables = self.tables.iter().flat_map(|table| table.columns[group].iter().flatten());
        let mut held: Vec<Block> = Vec::new();
        for block in by_tables.chain(self.pins.iter().flat_map(|pin| &pin[group])) {
            if !held.iter().any(|other| Rc::ptr_eq(other, block)) {
                held.push(block.clone());
            }
        }
        held
    }

    pub(crate) fn used(&self, group: usize) -> u32 {
        self.held(group).len() as u32
    }

    pub(crate) fn available(&self, group: usize) -> u32 {
        self.groups[group].config.blocks - self.used(group)
    }

    pub(crate) fn find(&self, group: usize, name: &(usize, Vec<TokenId>)) -> Option<Block> {
        let has_name = |block: &Block| block.name.borrow().as_ref() == Some(name);
        self.held(group).into_iter().chain(self.groups[group].idle.iter().cloned()).find(has_name)
    }

    pub(crate) fn prefix(&self, scope: usize, tokens: &[TokenId]) -> usize {
        let end = if self.caching { tokens.len() / BLOCK as usize } else { 0 };
        let is_there = |group: usize, at: usize| {
            self.find(group, &(scope, tokens[..(at + 1) * BLOCK as usize].to_vec())).is_some()
        };
        let is_hit = |blocks: &usize| {
            self.groups.iter().enumerate().all(|(index, group)| {
                let first = first_seen(blocks * BLOCK as usize, group.config.window);
                (first..*blocks).all(|at| is_there(index, at))
            })
        };
        (0..=end).rev().find(is_hit).unwrap_or(0)
    }

    /// Handles to a prefix in every group; its blocks are idle no more.
    pub(crate) fn hold(&mut self, scope: usize, tokens: &[TokenId]) -> Vec<Vec<Option<Block>>> {
        let blocks = self.prefix(scope, tokens);
        let mut columns = Vec::new();
        for group in 0..self.groups.len() {
            let first = first_seen(blocks * BLOCK as usize, self.groups[group].config.window);
            let mut column = vec![None; first];
            for at in first..blocks {
                let name = (scope, tokens[..(at + 1) * BLOCK as usize].to_vec());
                let block = self.find(group, &name).expect("it is a hit");
                self.groups[group].idle.retain(|idle| !Rc::ptr_eq(idle, &block));
                column.push(Some(block));
            }
            columns.push(column);
        }
        columns
    }

    pub(crate) fn open(&mut self, scope: usize, tokens: &[TokenId]) {
        let columns = self.hold(scope, tokens);
        self.serial += 1;
        let tokens = tokens[..columns[0].len() * BLOCK as usize].to_vec();
        self.tables.push(ModelTable { scope, serial: self.serial, tokens, columns });
    }

    pub(crate) fn reserve(&mut self, table: usize, tokens: usize) -> bool {
        let missing = tokens.div_ceil(BLOCK as usize).saturating_sub(self.tables[table].columns[0].len());
        if (0..self.groups.len()).any(|group| missing as u32 > self.available(group)) {
            return false;
        }
        for group in 0..self.groups.len() {
            for _ in 0..missing {
                let is_full = self.available(group) as usize == self.groups[group].idle.len();
                if is_full {
                    self.groups[group].idle.remove(0);
                }
                let block = ModelBlock { name: RefCell::new(None), author: 0.into() };
                self.tables[table].columns[group].push(Some(Rc::new(block)));
            }
        }
        true
    }

    /// One handle less.
    pub(crate) fn release(&mut self, group: usize, block: Block) {
        if Rc::strong_count(&block) == 1 && block.name.borrow().is_some() {
            self.groups[group].idle.push(block);
        }
    }

    pub(crate) fn append(&mut self, table: usize, tokens: &[TokenId]) {
        for &token in tokens {
            self.tables[table].tokens.push(token);
            let ModelTable { scope, serial, tokens, .. } = &self.tables[table];
            if tokens.len() % BLOCK as usize == 0 && self.caching {
                let (name, at, serial) =
                    ((*scope, tokens.clone()), tokens.len() / BLOCK as usize - 1, *serial);
                for group in 0..self.groups.len() {
                    let equal = self.find(group, &name);
                    let own = &mut self.tables[table].columns[group][at];
                    match equal {
                        None => {
                            let own = own.as_ref().expect("it is being filled");
                            *own.name.borrow_mut() = Some(name.clone());
                            own.author.set(serial);
                        }
                        Some(equal) => {
                            *own = Some(equal.clone());
                            self.groups[group].idle.retain(|idle| !Rc::ptr_eq(idle, &equal));
                        }
                    }
                }
            }
        }
        for group in 0..self.groups.len() {
            let first = first_seen(self.tables[table].tokens.len(), self.groups[group].config.window);
            for at in 0..first {
                if let Some(block) = self.tables[table].columns[group][at].take() {
                    self.release(group, block);
                }
            }
        }
    }

    pub(crate) fn fork(&mut self, table: usize) -> bool {
        let (tokens, parent) = (self.tables[table].tokens.len(), self.tables[table].clone());
        let needs_copy = !tokens.is_multiple_of(BLOCK as usize);
        if needs_copy && (0..self.groups.len()).any(|group| self.available(group) == 0) {
            return false;
        }
        self.serial += 1;
        let full = |column: &Vec<Option<Block>>| column[..tokens / BLOCK as usize].to_vec();
        let columns = parent.columns.iter().map(full).collect();
        self.tables.push(ModelTable { serial: self.serial, columns, ..parent });
        self.reserve(self.tables.len() - 1, tokens)
    }

    pub(crate) fn close(&mut self, table: usize) {
        let table = self.tables.remove(table);
        for (group, column) in table.columns.into_iter().enumerate() {
            column.into_iter().rev().flatten().for_each(|block| self.release(group, block));
        }
    }

    pub(crate) fn discard(&mut self, table: usize) {
        let serial = self.tables[table].serial;
        for group in 0..self.groups.len() {
            self.groups[group].idle.retain(|block| block.author.get() != serial);
            for block in self.held(group).iter().filter(|block| block.author.get() == serial) {
                *block.name.borrow_mut() = None;
            }
        }
        self.close(table);
    }

    pub(crate) fn unpin(&mut self, pin: usize) {
        for (group, held) in self.pins.remove(pin).into_iter().enumerate() {
            held.into_iter().rev().for_each(|block| self.release(group, block));
        }
    }
}
