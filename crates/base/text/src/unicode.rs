//! Unicode general categories that the standard library does not offer.
//!
//! Pre-tokenizers speak of `\p{L}` and `\p{N}`; Python's `repr` asks what is printable.
//! `char::is_alphabetic` is the derived property Alphabetic, which also holds for combining marks, so it
//! cannot stand in for `\p{L}`.

use regex_syntax::hir::{Class, HirKind};
use std::sync::LazyLock;

/// One character class: a table for the first 2^16 code points, sorted ranges above.
struct CharClass {
    low: Vec<u64>,
    high: Vec<(u32, u32)>,
}

const LOW_END: u32 = 0x1_0000;

impl CharClass {
    /// The class of a regex such as `\p{L}`. An unparsable pattern gives the empty class; the patterns
    /// are constants of this module and its tests look at each.
    fn new(pattern: &str) -> Self {
        let mut class = Self { low: vec![0; (LOW_END / 64) as usize], high: Vec::new() };
        let Ok(hir) = regex_syntax::parse(pattern) else { return class };
        let HirKind::Class(Class::Unicode(ranges)) = hir.kind() else { return class };
        for range in ranges.iter() {
            let (start, end) = (range.start() as u32, range.end() as u32);
            for point in start..=end.min(LOW_END - 1) {
                class.low[(point / 64) as usize] |= 1 << (point % 64);
            }
            if end >= LOW_END {
                class.high.push((start.max(LOW_END), end));
            }
        }
        class
    }

    fn contains(&self, c: char) -> bool {
        let point = c as u32;
        if point < LOW_END {
            return self.low[(point / 64) as usize] >> (point % 64) & 1 == 1;
        }
        let after = self.high.partition_point(|&(start, _)| start <= point);
        after > 0 && point <= self.high[after - 1].1
    }
}

static LETTER: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"\p{L}"));
static UNPRINTABLE: LazyLock<CharClass> = LazyLock::new(|| CharClass::new(r"[\p{C}\p{Z}--\x20]"));

/// Whether `c` is in `\p{L}`.
pub(crate) fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphabetic() } else { LETTER.contains(c) }
}

/// Whether `c` is in `\p{N}` (the standard library's numeric is exactly Nd, Nl and No).
pub(crate) fn is_number(c: char) -> bool {
    c.is_numeric()
}

/// Whether Python's `str.isprintable` holds for `c`: everything but the categories Other and Separator,
/// and the space.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() { (' '..='~').contains(&c) } else { !UNPRINTABLE.contains(c) }
}

/// The classes that BERT's tokenizer tells apart, as Unicode 8 had them: the tables of the `tokenizers` library, with
/// which vocabularies are made, are that old. What was added since is an ordinary letter there.
static BERT_OTHER: LazyLock<CharClass> =
    LazyLock::new(|| CharClass::new(r"[[\p{Cc}\p{Cf}\p{Co}]&&\p{Age:8.0}]"));
static BERT_ACCENT: LazyLock<CharClass> = LazyLock::new(|| {
    CharClass::new(r"[[\p{Mn}&&\p{Age:8.0}]\x{1734}\x{1171E}--[\x{1885}\x{1886}\x{A9BD}\x{111C9}]]")
});
static BERT_PUNCTUATION: LazyLock<CharClass> =
    LazyLock::new(|| CharClass::new(r"[[\p{P}&&\p{Age:8.0}]\x{166D}\x{111C9}]"));

/// Whether BERT's tokenizer drops `c` as a control character. Tab and line ends are spaces to it.
pub(crate) fn is_bert_other(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_control() } else { BERT_OTHER.contains(c) }
}

/// Whether `c`, of a decomposed text, is an accent that BERT's tokenizer drops.
pub(crate) fn is_bert_accent(c: char) -> bool {
    !c.is_ascii() && BERT_ACCENT.contains(c)
}

/// Whether `c` is a word of its own to BERT's tokenizer.
pub(crate) fn is_bert_punctuation(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_punctuation() } else { BERT_PUNCTUATION.contains(c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_bert_are_not_empty() {
        assert!(is_bert_other('\u{200b}') && is_bert_other('\u{e000}') && !is_bert_other('\u{890}'));
        assert!(is_bert_accent('\u{301}') && !is_bert_accent('\u{1885}') && !is_bert_accent('a'));
        assert!(is_bert_punctuation('。') && is_bert_punctuation('\u{166d}') && !is_bert_punctuation('€'));
    }

    #[test]
    fn classes_are_the_general_categories() {
        let letters = ['a', 'Z', 'é', 'ß', '日', 'ء', '𝒜', 'ª'];
        let not_letters = ['1', ' ', '_', '\u{301}', '\u{93e}', 'Ⓐ', 'Ⅷ', '😀', '\u{fdd0}'];
        assert!(letters.iter().all(|&c| is_letter(c)));
        assert!(!not_letters.iter().any(|&c| is_letter(c)));
        assert!(['0', '٣', '½', 'Ⅷ', '²'].iter().all(|&c| is_number(c)));
        assert!(['a', ' ', 'é', '日', '😀', '\u{301}'].iter().all(|&c| is_printable(c)));
        assert!(
            !['\n', '\u{a0}', '\u{200b}', '\u{2028}', '\u{e000}', '\u{ffff}', '\u{10fffe}']
                .iter()
                .any(|&c| is_printable(c))
        );
    }
}
