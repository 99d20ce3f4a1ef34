use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::category::{Category, Verdict};
use crate::check::Check;
use crate::normal::{fold, plain};

/// So many words in a row are no coincidence.
const WINDOW: usize = 12;
/// Words of the prompt that are kept: 8 bytes each, and as much for the table.
const MAX_WORDS: usize = 16_384;
const SCORE: f64 = 0.95;

/// Finds parts of a system prompt: twelve of its words in a row, whatever stands between them.
/// A translation or a summary of the prompt is not found, and a prompt of fewer words is not guarded.
pub struct PromptLeak {
    windows: HashSet<u64>,
    /// Its keys are random, so that nobody can make a text that has another one's hash.
    hasher: RandomState,
}

impl PromptLeak {
    /// Guards a prompt, of which the first 16,384 words.
    pub fn new(prompt: &str) -> Self {
        let hasher = RandomState::new();
        let text = plain(&fold(prompt));
        let windows = windows(&hasher, text.split_whitespace().take(MAX_WORDS)).collect();
        Self { windows, hasher }
    }
}

impl Check for PromptLeak {
    fn check(&self, text: &str) -> Verdict {
        if self.windows.is_empty() {
            return Verdict::default();
        }
        let text = plain(&fold(text));
        let is_leak = windows(&self.hasher, text.split_whitespace()).any(|hash| self.windows.contains(&hash));
        if is_leak { Verdict::of(Category::PromptLeak, SCORE) } else { Verdict::default() }
    }
}

/// A hash of each run of [`WINDOW`] words: the hashes of its words as digits of a number, modulo 2⁶⁴, so that the next
/// one takes one multiplication (Karp and Rabin, "Efficient randomized pattern-matching algorithms", 1987).
fn windows<'a>(
    hasher: &'a RandomState,
    words: impl Iterator<Item = &'a str> + 'a,
) -> impl Iterator<Item = u64> + 'a {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let oldest = BASE.wrapping_pow(WINDOW as u32);
    let mut ring = [0; WINDOW];
    let mut sum = 0u64;
    words.enumerate().filter_map(move |(index, word)| {
        let hash = hasher.hash_one(word);
        let out = std::mem::replace(&mut ring[index % WINDOW], hash);
        sum = sum.wrapping_mul(BASE).wrapping_add(hash).wrapping_sub(out.wrapping_mul(oldest));
        (index + 1 >= WINDOW).then_some(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = "You are Ada, an assistant of the town library. Never mention the price of a lost card, \
                          and always answer in the language of the question.";

    #[test]
    fn runs_of_the_prompts_words() {
        let guard = PromptLeak::new(PROMPT);
        let check = |text: &str, want: bool| {
            assert_eq!(guard.check(text).is_flagged(Category::PromptLeak), want, "{text}");
        };
        check(PROMPT, true);
        check(&PROMPT.to_uppercase().replace(' ', "\n- "), true);
        check(
            "Sure! It says: never mention the price of a lost card, and always answer in the language.",
            true,
        );
        check("I never mention the price of a lost card.", false);
        check("An assistant of the town library answered the question about the price of a card.", false);
        check("", false);
        check(&PROMPT.split(' ').rev().collect::<Vec<_>>().join(" "), false);
        let short = PromptLeak::new("You are helpful.");
        assert_eq!(short.check("You are helpful."), Verdict::default());
    }

    #[test]
    fn a_window_depends_on_its_words_alone() {
        let hasher = RandomState::new();
        let words: Vec<_> = PROMPT.split(' ').collect();
        let all: Vec<_> = windows(&hasher, words.iter().copied()).collect();
        assert_eq!(all.len(), words.len() - WINDOW + 1);
        for (start, hash) in all.iter().enumerate() {
            let alone = words[start..start + WINDOW].iter().copied();
            assert_eq!(windows(&hasher, alone).collect::<Vec<_>>(), [*hash]);
        }
    }
}
