//! One behaviour each, by example. C02, C03 and X02 are public reports on other servers' prefix caches.

#![allow(clippy::expect_used, reason = "test code outside of test functions")]

mod support;

use motet_kv::{
    Admission, CacheKey, GroupConfig, NO_BLOCK, OutOfBlocks, Pool, PoolConfig, Scope, ScopeParts, SecondTier,
    Table, Tiers,
};
use motet_types::TokenId;
use support::{BLOCK, PARTS, at, config, pool, scope, tenant, two_tiers};

fn prompt(len: u32) -> Vec<TokenId> {
    (0..len).collect()
}

/// A table whose `tokens` are computed, as a sequence alone would.
fn computed(pool: &Pool, scope: &Scope, tokens: &[TokenId]) -> Table {
    let mut table = pool.open(scope, tokens, at(0));
    table.reserve(tokens.len() as u32).expect("there is room");
    table.take_fills();
    table.append(&tokens[table.stored_tokens() as usize..], at(0));
    table
}

/// Evicts everything without a holder.
fn fill_up(pool: &Pool) {
    let mut table = pool.open(&tenant("other"), &[], at(0));
    table.reserve(pool.available(0) * BLOCK).expect("it is available");
}

#[test]
fn only_equal_scopes_share() {
    let used = ScopeParts { adapter: Some("legal-de build 1"), namespace: Some("chat"), ..PARTS };
    let others = [
        ("C03: another tenant", ScopeParts { tenant: "b", ..used }),
        (
            "C03: another tenant with the victim's name as salt",
            ScopeParts { tenant: "b", namespace: Some("a"), ..used },
        ),
        ("C02: other weights under one alias", ScopeParts { model: "weights-2", ..used }),
        ("another tokenizer", ScopeParts { tokenizer: "v2", ..used }),
        ("C02: an adapter loaded anew", ScopeParts { adapter: Some("legal-de build 2"), ..used }),
        ("no adapter", ScopeParts { adapter: None, ..used }),
        ("an empty name is not no adapter", ScopeParts { adapter: Some(""), ..used }),
        ("another namespace", ScopeParts { namespace: Some("batch"), ..used }),
        ("no namespace", ScopeParts { namespace: None, ..used }),
        ("parts cut elsewhere", ScopeParts { tenant: "aw", model: "eights-1", ..used }),
        ("parts swapped", ScopeParts { adapter: used.namespace, namespace: used.adapter, ..used }),
    ];
    let pool = pool(64);
    drop(computed(&pool, &scope(&used), &prompt(20)));
    assert_eq!(pool.probe(&scope(&used), &prompt(20)), 20, "its own repeat hits");
    for (name, parts) in others {
        assert_eq!(pool.probe(&scope(&parts), &prompt(20)), 0, "{name}");
        assert_eq!(pool.open(&scope(&parts), &prompt(20), at(0)).cached_tokens(), 0, "{name}");
    }
    let rebooted = Scope::new(&CacheKey::new([8; 32]), &used);
    assert_eq!(pool.probe(&rebooted, &prompt(20)), 0, "another boot's key");
}

/// C03: what a tenant can see of a guess does not depend on what others cached.
#[test]
fn a_guess_looks_the_same_whether_right_or_wrong() {
    let look = |guess: &[TokenId]| {
        let pool = pool(64);
        drop(computed(&pool, &tenant("a"), &prompt(40)));
        let table = pool.open(&tenant("b"), guess, at(0));
        (table.cached_tokens(), pool.probe(&tenant("b"), guess), pool.counts())
    };
    let near_miss: Vec<_> =
        prompt(40).into_iter().map(|token| if token == 37 { 99 } else { token }).collect();
    assert_eq!(look(&prompt(40)), look(&near_miss));
}

/// X02: sums hold through shared prefixes, lengths at block borders, aborts and forks.
#[test]
fn two_thousand_requests_leave_nothing() {
    let pool = Pool::new(PoolConfig::single(500, 16));
    let mut random = 1u64;
    let mut below = |n: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % u64::from(n)) as u32
    };
    let mut tables: Vec<Table> = Vec::new();
    for _ in 0..2_000 {
        let (family, shared, len) = (below(8), 16 * below(20), 16 * (1 + below(30)) + below(3) - 1);
        let tokens: Vec<_> = (0..len).map(|at| if at < shared { family } else { below(4) }).collect();
        let mut table = pool.open(&tenant("a"), &tokens, at(0));
        while table.reserve(len).is_err() {
            drop(tables.swap_remove(below(tables.len() as u32) as usize));
        }
        // Some are aborted half-way.
        let rest = &tokens[table.stored_tokens() as usize..];
        let done = if below(4) == 0 { rest.len() / 2 } else { rest.len() };
        table.append(&rest[..done], at(0));
        if below(5) == 0 {
            tables.extend(table.fork().map(|(child, _)| child));
        }
        tables.push(table);
        if tables.len() > 40 {
            drop(tables.swap_remove(below(40) as usize));
        }
        pool.audit(&tables, []).expect("the invariants hold");
    }
    tables.clear();
    let counts = pool.counts();
    assert_eq!((counts.all.used, counts.all.cached + counts.all.free), (0, 500));
    assert!(counts.totals.hit_tokens > 0 && counts.totals.evicted > 0);
}

#[test]
fn a_full_hit_covers_the_whole_prompt() {
    let pool = pool(8);
    drop(computed(&pool, &tenant("a"), &prompt(8)));
    let table = pool.open(&tenant("a"), &prompt(8), at(0));
    assert_eq!((table.cached_tokens(), table.stored_tokens(), table.capacity_tokens()), (8, 8, 8));
    assert_eq!(pool.open(&tenant("a"), &prompt(7), at(0)).cached_tokens(), 4, "whole blocks only");
}

#[test]
fn the_next_turn_finds_the_reply() {
    let pool = pool(16);
    let mut table = computed(&pool, &tenant("a"), &prompt(10));
    for token in 10..23 {
        table.reserve(token + 1).expect("there is room");
        table.append(&[token], at(0));
    }
    drop(table);
    assert_eq!(pool.probe(&tenant("a"), &prompt(30)), 20, "all but the block that was being filled");
}

#[test]
fn a_tail_is_evicted_before_its_head_and_what_is_unhashed_before_both() {
    let pool = pool(6);
    drop(computed(&pool, &tenant("a"), &prompt(18)));
    let counts = pool.counts().all;
    assert_eq!((counts.cached, counts.free), (4, 2));
    let mut other = pool.open(&tenant("b"), &[], at(0));
    for (blocks, cached) in [(1, 16), (2, 16), (3, 12), (4, 8), (5, 4), (6, 0)] {
        other.reserve(blocks * BLOCK).expect("there is room");
        assert_eq!(pool.probe(&tenant("a"), &prompt(18)), cached, "with {blocks} blocks taken");
    }
    let refused = OutOfBlocks { group: 0, needed: 1, available: 0 };
    assert_eq!(other.reserve(25), Err(refused));
    assert_eq!(refused.to_string(), "group 0 can give 0 KV blocks and 1 are needed");
}

#[test]
fn the_least_recently_used_prefix_goes_first() {
    let pool = pool(4);
    drop(computed(&pool, &tenant("a"), &prompt(8)));
    drop(computed(&pool, &tenant("b"), &prompt(8)));
    drop(pool.open(&tenant("a"), &prompt(8), at(0)));
    let mut table = pool.open(&tenant("c"), &[], at(0));
    table.reserve(8).expect("there is room");
    assert_eq!([pool.probe(&tenant("a"), &prompt(8)), pool.probe(&tenant("b"), &prompt(8))], [8, 0]);
}

#[test]
fn sequences_that_compute_the_same_end_up_with_the_same_blocks() {
    let pool = pool(8);
    let mut tables = [(); 2].map(|()| pool.open(&tenant("a"), &prompt(8), at(0)));
    for table in &mut tables {
        table.reserve(9).expect("there is room");
        table.append(&prompt(8), at(0));
    }
    assert_eq!(tables[0].ids(0)[..2], tables[1].ids(0)[..2]);
    assert_eq!(pool.counts().all.used, 4, "two shared and one being filled each");
    pool.audit(&tables, []).expect("the invariants hold");
}

#[test]
fn a_fork_shares_full_blocks_and_copies_the_one_being_filled() {
    let pool = pool(4);
    let parent = computed(&pool, &tenant("a"), &prompt(10));
    let (mut child, copies) = parent.fork().expect("there is room");
    assert_eq!(child.ids(0)[..2], parent.ids(0)[..2]);
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].from, copies[0].to), (parent.ids(0)[2], child.ids(0)[2]));
    assert_eq!(parent.fork().err(), Some(OutOfBlocks { group: 0, needed: 1, available: 0 }));
    child.append(&[77, 78], at(0));
    drop((parent, child));
    let branch: Vec<_> = (0..10).chain([77, 78]).collect();
    assert_eq!([pool.probe(&tenant("a"), &branch), pool.probe(&tenant("a"), &prompt(12))], [12, 8]);
}

#[test]
fn a_discarded_sequence_leaves_only_what_it_found() {
    let pool = two_tiers(8, 8);
    drop(computed(&pool, &tenant("a"), &prompt(8)));
    let table = computed(&pool, &tenant("a"), &prompt(16));
    assert_eq!(pool.probe(&tenant("a"), &prompt(16)), 16);
    table.discard();
    assert_eq!(pool.probe(&tenant("a"), &prompt(16)), 8);
    assert_eq!(pool.counts().all.cached, 2);
}

#[test]
fn a_pinned_prefix_is_not_evicted() {
    let pool = pool(6);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    let pin = pool.pin(&tenant("a"), &prompt(10));
    assert_eq!((pin.tokens(), pool.counts().all.pinned, pool.available(0)), (8, 2, 4));
    fill_up(&pool);
    assert_eq!(pool.probe(&tenant("a"), &prompt(16)), 8);
    pool.audit([], [&pin]).expect("the invariants hold");
    drop(pin);
    fill_up(&pool);
    assert_eq!((pool.probe(&tenant("a"), &prompt(16)), pool.counts().all.pinned), (0, 0));
}

#[test]
fn a_windowed_group_holds_its_window() {
    let pool = Pool::new(config(&[(32, None), (5, Some(8))]));
    let mut table = pool.open(&tenant("a"), &prompt(100), at(0));
    for start in (0..100).step_by(4) {
        table.reserve(start + 4).expect("a window and a block fit");
        table.append(&prompt(100)[start as usize..start as usize + 4], at(0));
    }
    let seen = |group| table.ids(group).iter().filter(|id| **id != NO_BLOCK).count();
    assert_eq!((seen(0), seen(1)), (25, 2));
    assert_eq!(table.ids(1)[22], NO_BLOCK);
    drop(table);
    assert_eq!(pool.probe(&tenant("a"), &prompt(100)), 100);
    // In the windowed group the middle is long evicted, so no prefix ends there.
    assert_eq!(pool.probe(&tenant("a"), &prompt(60)), 0);
}

#[test]
fn a_sequence_alone_may_have() {
    let check = |groups: &[(u32, Option<u32>)], tokens: u32| {
        assert_eq!(config(groups).sequence_tokens(8), tokens, "{groups:?}");
    };
    check(&[(10, None)], 40);
    check(&[(10, None), (6, None)], 24);
    check(&[(100, None), (10, Some(24))], 400);
    check(&[(100, None), (9, Some(24))], 36);
}

#[test]
fn admission_leaves_the_reserve_alone() {
    let pool = pool(10);
    drop(computed(&pool, &tenant("a"), &prompt(8)));
    let scope = tenant("a");
    let tokens = prompt(12);
    let admit = |reserve_tokens, spare_blocks| {
        let admission =
            Admission { scope: &scope, tokens: &tokens, tiers: Tiers::Both, reserve_tokens, spare_blocks };
        pool.admit(&admission, at(0))
    };
    let events = pool.drain_events(usize::MAX).len();
    assert!(events > 0);
    assert_eq!(admit(16, 7).err(), Some(OutOfBlocks { group: 0, needed: 11, available: 10 }));
    assert!(pool.drain_events(9).is_empty(), "a refusal leaves no trace");
    let table = admit(16, 6).expect("four blocks and six spare");
    assert_eq!((table.cached_tokens(), table.capacity_tokens(), pool.available(0)), (8, 16, 6));
    // Blocks that others hold anyway cost nothing.
    assert!(admit(8, 6).is_ok());
}

#[test]
fn a_spilled_prefix_comes_back() {
    let pool = two_tiers(4, 8);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    let spills = pool.take_spills();
    assert_eq!((spills.len(), pool.counts().spilled), (4, 4));
    let probe = pool.probe_tiers(&tenant("a"), &prompt(16));
    assert_eq!((probe.first, probe.both), (0, 16));

    let mut table = pool.open(&tenant("a"), &prompt(16), at(1));
    assert_eq!(table.cached_tokens(), 16);
    let mut second = pool.open(&tenant("a"), &prompt(8), at(1));
    let fills = table.take_fills();
    assert_eq!((fills.len(), second.take_fills().len()), (4, 0), "one fill serves all who share the block");
    for (fill, id) in fills.iter().zip(table.ids(0)) {
        let spill = spills.iter().find(|spill| spill.hash == fill.hash).expect("it was spilled");
        assert_eq!((fill.slot, fill.block), (spill.slot, *id));
    }
    drop((table, second));
    assert_eq!(pool.counts().all.used, 4, "the step that fills them has yet to run");
    assert!(pool.take_spills().is_empty());
    fill_up(&pool);
    assert!(pool.take_spills().is_empty(), "what is in the second tier is not spilled again");
}

#[test]
fn filling_is_the_callers_choice() {
    let pool = two_tiers(4, 8);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    let (scope, tokens) = (tenant("a"), prompt(16));
    for (tiers, cached) in [(Tiers::First, 0), (Tiers::Both, 16)] {
        let admission =
            Admission { scope: &scope, tokens: &tokens, tiers, reserve_tokens: 0, spare_blocks: 0 };
        assert_eq!(pool.admit(&admission, at(0)).expect("it fits").cached_tokens(), cached);
    }
}

#[test]
fn a_fill_nobody_waits_for_is_not_handed_out() {
    let pool = two_tiers(4, 8);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    drop(pool.open(&tenant("a"), &prompt(16), at(0)));
    let counts = pool.counts();
    assert_eq!((counts.all.free, counts.all.cached, counts.spilled, counts.totals.filled), (4, 0, 4, 0));
}

#[test]
fn a_failed_fill_breaks_all_who_hold_the_block_and_is_forgotten() {
    let pool = two_tiers(5, 8);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    let mut table = pool.open(&tenant("a"), &prompt(16), at(0));
    let mut short = pool.open(&tenant("a"), &prompt(8), at(0));
    let fills = table.take_fills();
    short.take_fills();
    pool.take_spills();
    pool.fill_failed(&fills[2]);
    assert_eq!((table.is_broken(), short.is_broken()), (true, false));
    table.reserve(20).expect("there is room");
    table.append(&[16, 17, 18, 19], at(0));
    assert_eq!(pool.probe(&tenant("a"), &prompt(20)), 8, "in both tiers, and nothing is built on it");
    drop(table);
    pool.audit([&short], []).expect("the invariants hold");
    assert_eq!(pool.counts().spilled, 3);
    assert_eq!(pool.open(&tenant("a"), &prompt(16), at(0)).cached_tokens(), 8);
}

/// The block is out of the index when its fill fails; its holder must learn of it all the same.
#[test]
fn a_fill_fails_after_the_sequence_that_first_computed_it_was_discarded() {
    let second_tier = Some(SecondTier { max_blocks: 8, max_age: at(100) });
    let pool = Pool::new(PoolConfig { second_tier, ..config(&[(4, Some(4))]) });
    let mut author = pool.open(&tenant("a"), &prompt(12), at(0));
    author.reserve(12).expect("there is room");
    author.append(&prompt(12), at(0));
    fill_up(&pool);
    let mut table = pool.open(&tenant("a"), &prompt(4), at(0));
    let fills = table.take_fills();
    assert_eq!(fills.len(), 1, "its first block slid out of the author's window and was spilled");
    pool.take_spills();
    author.discard();
    pool.fill_failed(&fills[0]);
    assert!(table.is_broken());
    pool.audit([&table], []).expect("the invariants hold");
}

#[test]
fn a_failed_spill_is_forgotten() {
    let pool = two_tiers(4, 8);
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    let spills = pool.take_spills();
    // The tail is evicted first: the last spill is the head of the prefix, and the one before it the second block.
    pool.spill_failed(&spills[2]);
    assert_eq!((pool.counts().spilled, pool.probe(&tenant("a"), &prompt(16))), (3, 4));
}

#[test]
fn the_second_tier_is_bounded_in_size_and_age() {
    let second_tier = Some(SecondTier { max_blocks: 3, max_age: at(10) });
    let pool = Pool::new(PoolConfig { second_tier, ..config(&[(4, None)]) });
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    fill_up(&pool);
    let slots: Vec<_> = pool.take_spills().iter().map(|spill| spill.slot).collect();
    assert_eq!(slots, [0, 1, 2, 0], "the tail makes room for the head");
    assert_eq!((pool.counts().spilled, pool.probe(&tenant("a"), &prompt(16))), (3, 12));
    let later = |seconds| drop(pool.open(&tenant("b"), &prompt(4), at(seconds)));
    later(10);
    assert_eq!(pool.counts().spilled, 3);
    later(11);
    assert_eq!((pool.counts().spilled, pool.probe(&tenant("a"), &prompt(16))), (0, 0));
    pool.check().expect("the invariants hold");
}

#[test]
fn a_pool_without_caching_finds_nothing() {
    let second_tier = Some(SecondTier { max_blocks: 3, max_age: at(10) });
    let groups = vec![GroupConfig { blocks: 4, window: None }];
    let pool = Pool::new(PoolConfig { block_tokens: BLOCK, groups, caching: false, second_tier });
    drop(computed(&pool, &tenant("a"), &prompt(16)));
    assert_eq!(pool.open(&tenant("a"), &prompt(16), at(0)).cached_tokens(), 0);
    assert_eq!(pool.counts().all.free, 4);
    assert!(pool.drain_events(9).is_empty());
}

#[test]
fn handles_outlive_each_other_and_cross_threads() {
    let pool = pool(8);
    let table = computed(&pool, &tenant("a"), &prompt(8));
    let pin = pool.pin(&tenant("a"), &prompt(8));
    let other = pool.clone();
    drop(pool);
    std::thread::spawn(move || drop((table, pin))).join().expect("it ends");
    assert_eq!(other.counts().all.cached, 2);
}
