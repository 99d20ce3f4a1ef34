//! The second tier's bytes: one file of equal slots, each as large as the largest block of any group.
//!
//! The scheduler's pool decides what is in which slot; this is where the bytes are. The file has no name
//! (it is unlinked as soon as it is made), its bytes are encrypted with a key of this process, and each
//! slot carries a keyed checksum: nothing readable is left behind, and what does not come back as it was
//! written is not used.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use motet_kv::{CacheKey, Fill, SecondTier, Spill};

/// Where evicted blocks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierConfig {
    /// A folder on a local disk.
    pub folder: PathBuf,
    /// Most bytes of the file.
    pub max_bytes: u64,
    /// A block that was not used for this long is forgotten.
    pub max_age: Duration,
}

pub(crate) struct Tier {
    file: File,
    key: [u8; 32],
    slots: Vec<Slot>,
    block_bytes: usize,
    max_age: Duration,
    /// Of writes; never used twice with one key, so no two slots share a keystream.
    nonce: u64,
}

/// What a slot's bytes are.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    nonce: u64,
    /// Bytes written.
    len: usize,
    checksum: [u8; 32],
}

/// Most slots: bounds the table of what they hold.
const MAX_SLOTS: u64 = 1 << 22;

impl Tier {
    pub(crate) fn open(config: &TierConfig, key: &CacheKey, block_bytes: usize) -> io::Result<Self> {
        let slots = (config.max_bytes / block_bytes.max(1) as u64).min(MAX_SLOTS) as usize;
        if slots == 0 {
            let why = format!("{} bytes are less than a block's {block_bytes}", config.max_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self {
            file: tempfile::tempfile_in(&config.folder)?,
            key: key.derive("motet 2026 second tier of the KV cache"),
            slots: vec![Slot::default(); slots],
            block_bytes,
            max_age: config.max_age,
            nonce: 0,
        })
    }

    /// What the pool may use of it.
    pub(crate) fn bounds(&self) -> SecondTier {
        SecondTier { max_blocks: self.slots.len() as u32, max_age: self.max_age }
    }

    pub(crate) fn put(&mut self, spill: &Spill, bytes: &[u8]) -> io::Result<()> {
        self.nonce += 1;
        let checksum = self.checksum(spill.hash.as_bytes(), self.nonce, bytes);
        let slot = Slot { nonce: self.nonce, len: bytes.len(), checksum };
        if bytes.len() > self.block_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sealed = bytes.to_vec();
        self.apply_keystream(slot.nonce, &mut sealed);
        self.file.write_all_at(&sealed, spill.slot as u64 * self.block_bytes as u64)?;
        match self.slots.get_mut(spill.slot as usize) {
            Some(place) => *place = slot,
            None => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }

    pub(crate) fn get(&self, fill: &Fill) -> io::Result<Vec<u8>> {
        let slot = self.slots.get(fill.slot as usize).copied().ok_or(io::ErrorKind::InvalidInput)?;
        let mut bytes = vec![0; slot.len];
        self.file.read_exact_at(&mut bytes, fill.slot as u64 * self.block_bytes as u64)?;
        self.apply_keystream(slot.nonce, &mut bytes);
        if self.checksum(fill.hash.as_bytes(), slot.nonce, &bytes) != slot.checksum {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(bytes)
    }

    fn checksum(&self, hash: &[u8], nonce: u64, bytes: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"checksum").update(&nonce.to_le_bytes()).update(hash).update(bytes);
        *hasher.finalize().as_bytes()
    }

    /// BLAKE3's extendable output, keyed, as a stream cipher.
    fn apply_keystream(&self, nonce: u64, bytes: &mut [u8]) {
        let mut stream = vec![0; bytes.len()];
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"keystream").update(&nonce.to_le_bytes()).finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motet_kv::{Pool, PoolConfig, Scope, ScopeParts};

    fn tier(max_bytes: u64) -> io::Result<Tier> {
        let config = TierConfig { folder: std::env::temp_dir(), max_bytes, max_age: Duration::MAX };
        Tier::open(&config, &CacheKey::new([7; 32]), 100)
    }

    /// A spill and the fill that reads it back.
    fn moves(slot: u32) -> (Spill, Fill) {
        let scope = Scope::new(
            &CacheKey::new([7; 32]),
            &ScopeParts { tenant: "", model: "", tokenizer: "", adapter: None, namespace: None },
        );
        let pool = Pool::new(PoolConfig {
            second_tier: Some(SecondTier { max_blocks: 4, max_age: Duration::MAX }),
            ..PoolConfig::single(1, 16)
        });
        let now = Duration::ZERO;
        let fill = |token: u32| {
            let mut table = pool.open(&scope, &[token; 16], now);
            table.reserve(16).unwrap();
            table.append(&[token; 16], now);
        };
        fill(1);
        fill(2);
        let spill = Spill { slot, ..pool.take_spills()[0] };
        (spill, Fill { group: 0, block: 3, hash: spill.hash, slot })
    }

    #[test]
    fn bytes_come_back_and_are_not_readable_on_disk() {
        let mut tier = tier(1000).unwrap();
        let (spill, fill) = moves(9);
        tier.put(&spill, &[42; 100]).unwrap();
        assert_eq!(tier.get(&fill).unwrap(), [42; 100]);
        let mut raw = [0; 100];
        tier.file.read_exact_at(&mut raw, 900).unwrap();
        assert!(raw.iter().filter(|byte| **byte == 42).count() < 10);
    }

    #[test]
    fn smaller_blocks_come_back_at_their_size() {
        let mut tier = tier(1000).unwrap();
        let (spill, fill) = moves(4);
        tier.put(&spill, &[42; 60]).unwrap();
        assert_eq!(tier.get(&fill).unwrap(), [42; 60]);
        assert!(tier.put(&spill, &[42; 101]).is_err(), "larger than a slot");
    }

    #[test]
    fn what_was_changed_is_not_used() {
        let mut tier = tier(1000).unwrap();
        let (spill, fill) = moves(0);
        tier.put(&spill, &[42; 100]).unwrap();
        tier.file.write_all_at(&[1], 50).unwrap();
        assert_eq!(tier.get(&fill).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(tier.get(&Fill { slot: 1, ..fill }).is_err(), "a slot never written");
        assert!(tier.get(&Fill { slot: 99, ..fill }).is_err(), "a slot that does not exist");
    }

    #[test]
    fn a_tier_too_small_for_a_block_says_so() {
        assert!(tier(99).err().unwrap().to_string().contains("less than a block's 100"));
    }
}
