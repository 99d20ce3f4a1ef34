//! How much memory is free, and how much of it conversations get.

use std::fmt::{self, Display, Formatter};

use super::values::human_bytes;

/// Memory for keys and values, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KvMemory {
    /// This many bytes.
    Bytes(usize),
    /// This part, above 0 and below 1, of what is free beside the weights.
    Share(f64),
    /// Room for this many tokens.
    Tokens(u32),
}

impl KvMemory {
    /// Bytes of the arena. `weights` are the bytes the model is about to take, `block_bytes` those of
    /// a block of `block_tokens` tokens over all layers.
    pub(crate) fn bytes(self, weights: u64, block_bytes: usize, block_tokens: usize) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (available().saturating_sub(weights) as f64 * share) as usize,
            Self::Tokens(tokens) => (tokens as usize).div_ceil(block_tokens).saturating_mul(block_bytes),
        }
    }
}

impl KvMemory {
    /// One of `count` equal parts.
    pub(crate) fn part(self, count: usize) -> Self {
        let count = count.max(1);
        match self {
            Self::Bytes(bytes) => Self::Bytes((bytes / count).max(1)),
            Self::Share(share) => Self::Share(share / count as f64),
            Self::Tokens(tokens) => Self::Tokens((tokens / count as u32).max(1)),
        }
    }
}

impl Display for KvMemory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&human_bytes(*bytes as u64)),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
            Self::Tokens(tokens) => write!(f, "{tokens}tok"),
        }
    }
}

/// Assumed where the system can't be asked.
const ASSUMED: u64 = 4 << 30;
/// Share of the free memory.
const SHARE: u64 = 4;
const MOST: u64 = 2 << 30;
const LEAST: u64 = 64 << 20;

/// The KV arena when nobody says.
pub(crate) fn default_kv_memory() -> KvMemory {
    KvMemory::Bytes(share(available()))
}

/// Bytes that can be taken: what the system has left, or a container's limit.
pub(crate) fn available() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let host = read("/proc/meminfo").and_then(|text| available_of_meminfo(&text));
    let group = |name: &str| read(&format!("/sys/fs/cgroup/{name}"));
    let limit =
        group("memory.max").zip(group("memory.current")).and_then(|(max, used)| free_of_group(&max, &used));
    host.into_iter().chain(limit).min().unwrap_or(ASSUMED)
}

fn share(available: u64) -> usize {
    (available / SHARE).clamp(LEAST, MOST) as usize
}

/// `MemAvailable` in bytes.
fn available_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What a container may still take; `None` without a limit.
fn free_of_group(max: &str, used: &str) -> Option<u64> {
    Some(max.trim().parse::<u64>().ok()?.saturating_sub(used.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_system_says() {
        let text = "MemTotal:       100 kB\nMemFree:  1 kB\nMemAvailable:   24576000 kB\n";
        assert_eq!(available_of_meminfo(text), Some(24_576_000 * 1024));
        assert_eq!(available_of_meminfo("MemTotal: 100 kB"), None);
        assert_eq!(free_of_group("1000\n", "300\n"), Some(700));
        assert_eq!(free_of_group("1000", "3000"), Some(0));
        assert_eq!(free_of_group("max\n", "300\n"), None);
    }

    #[test]
    fn sizes_become_bytes() {
        assert_eq!(KvMemory::Bytes(5).bytes(1, 4096, 16), 5);
        assert_eq!(KvMemory::Tokens(33).bytes(1, 4096, 16), 3 * 4096, "whole blocks");
        assert_eq!(KvMemory::Share(0.5).bytes(u64::MAX, 4096, 16), 0, "the weights leave nothing");
        assert!(KvMemory::Share(0.5).bytes(0, 4096, 16) > 0);
        let parts = [KvMemory::Bytes(1 << 30), KvMemory::Share(0.5), KvMemory::Tokens(60_000)];
        assert_eq!(parts.map(|memory| memory.part(2).to_string()), ["512 MiB", "25%", "30000tok"]);
    }

    #[test]
    fn takes_a_quarter_within_bounds() {
        assert_eq!(share(4 << 30), 1 << 30);
        assert_eq!(share(64 << 30), 2 << 30);
        assert_eq!(share(1 << 20), 64 << 20);
    }
}
