//! Prompts of common English words, which most vocabularies hold as one token each.

use crate::rng::Rng;

/// Short, frequent words, so that the number of tokens is close to the number of words.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with",
    "his", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "word", "but", "not",
    "what", "all", "were", "we", "when", "your", "can", "said", "there", "use", "an", "each", "which", "she",
    "do", "how", "their", "if", "will", "up", "other", "about", "out", "many", "then", "them", "these", "so",
    "some", "her", "would", "make", "like", "him", "into", "time", "has", "look", "two", "more", "write",
    "go", "see", "number", "no", "way", "could", "people", "my", "than", "first", "water", "been", "call",
    "who", "oil", "its", "now", "find", "long", "down", "day", "did", "get", "come", "made", "may", "part",
    "over", "new", "sound", "take", "only", "little", "work", "know", "place", "year", "live", "me", "back",
    "give", "most", "very", "after", "thing", "our", "just", "name", "good", "man", "think", "say", "great",
    "where", "help", "through", "much", "before", "line", "right", "too", "mean", "old", "any", "same",
    "tell", "boy", "follow", "came", "want", "show", "also", "around", "form", "three", "small", "set",
    "put", "end", "does", "another", "well", "large", "must", "big", "even", "such", "because", "turn",
    "here", "why", "ask", "went", "men", "read", "need", "land", "home", "us", "move", "try", "kind", "hand",
    "picture", "again", "change", "off", "play", "air", "away", "animal", "house", "point", "page", "letter",
    "mother", "answer", "found", "study", "still", "learn", "should", "world", "high", "every", "near",
    "add", "food", "between", "own", "below", "country", "plant", "last", "school", "father", "keep", "tree",
    "never", "start", "city", "earth", "eye", "light", "thought", "head", "under", "story", "saw", "left",
    "few", "while", "along", "might", "close", "seem", "next", "hard", "open", "example", "begin", "life",
    "always", "those", "both", "paper", "together", "got", "group", "often", "run", "until", "children",
    "side", "feet", "car", "mile", "night", "walk", "white", "sea", "began", "grow", "took", "river", "four",
];

/// Appends `count` words that depend on `seed`; a shorter run of a seed is the beginning of a longer one.
pub(crate) fn append(text: &mut String, seed: u64, count: usize) {
    let mut rng = Rng::new(&[seed]);
    for _ in 0..count {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS[rng.below(WORDS.len())]);
    }
}

/// How a server's tokenizer sees these words: `tokens = overhead + per_word * words`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenScale {
    /// Tokens a word takes on average.
    pub per_word: f64,
    /// Tokens of every prompt that are not from its words: a begin token, the chat template.
    pub overhead: f64,
}

impl Default for TokenScale {
    fn default() -> Self {
        Self { per_word: 1.0, overhead: 0.0 }
    }
}

impl TokenScale {
    /// From two prompts of different length, each as (words, tokens). `None` when the counts make no sense,
    /// such as a server that reports the same for both.
    pub(crate) fn fit(short: (usize, u32), long: (usize, u32)) -> Option<Self> {
        let words = long.0.checked_sub(short.0).filter(|words| *words > 0)?;
        let per_word = (f64::from(long.1) - f64::from(short.1)) / words as f64;
        let overhead = (f64::from(short.1) - per_word * short.0 as f64).max(0.0);
        (0.2..=20.0).contains(&per_word).then_some(Self { per_word, overhead })
    }

    /// Words that take about `tokens` tokens.
    pub(crate) fn words(&self, tokens: u32) -> usize {
        (f64::from(tokens) / self.per_word).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, count: usize) -> String {
        let mut text = String::new();
        append(&mut text, seed, count);
        text
    }

    #[test]
    fn a_seed_repeats_and_grows() {
        assert_eq!(text(7, 50), text(7, 50));
        assert_ne!(text(7, 50), text(8, 50));
        assert!(text(7, 51).starts_with(&text(7, 50)));
        assert_eq!(text(7, 50).split(' ').count(), 50);
        assert_eq!(text(7, 0), "");
    }

    #[test]
    fn scales_are_fitted() {
        let check = |short, long, expected: Option<(f64, f64)>| {
            let fitted = TokenScale::fit(short, long).map(|scale| (scale.per_word, scale.overhead));
            assert_eq!(fitted, expected, "{short:?} {long:?}");
        };
        check((100, 101), (300, 301), Some((1.0, 1.0)));
        check((100, 160), (300, 460), Some((1.5, 10.0)));
        check((100, 90), (300, 300), Some((1.05, 0.0)));
        check((100, 50), (300, 50), None);
        check((100, 0), (100, 10), None);
        assert_eq!(TokenScale { per_word: 1.5, overhead: 0.0 }.words(300), 200);
    }
}
