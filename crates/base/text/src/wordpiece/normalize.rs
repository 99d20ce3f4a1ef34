//! BERT's normaliser, character by character, and its pre-tokenizer.

use unicode_normalization::UnicodeNormalization;

use crate::unicode::{is_bert_accent, is_bert_other, is_bert_punctuation};

/// What is done to a text before it is cut into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Normalizer {
    /// Drops control characters; every kind of space becomes one.
    pub(super) is_cleaning: bool,
    /// Puts spaces around Chinese characters, so that each is a word.
    pub(super) is_spacing_chinese: bool,
    /// Decomposes, and drops what is then a mark of its own.
    pub(super) is_stripping_accents: bool,
    /// Makes lower case.
    pub(super) is_lowercasing: bool,
}

impl Normalizer {
    pub(super) fn normalize(self, text: &str) -> String {
        let clean = text.chars().filter_map(move |c| if self.is_cleaning { clean(c) } else { Some(c) });
        let spaced = clean.flat_map(move |c| {
            let space = (self.is_spacing_chinese && is_chinese(c)).then_some(' ');
            space.into_iter().chain([c]).chain(space)
        });
        let mut out = String::with_capacity(text.len());
        if self.is_stripping_accents {
            self.lower(spaced.nfd().filter(|&c| !is_bert_accent(c)), &mut out);
        } else {
            self.lower(spaced, &mut out);
        }
        out
    }

    fn lower(self, chars: impl Iterator<Item = char>, out: &mut String) {
        if self.is_lowercasing {
            out.extend(chars.flat_map(char::to_lowercase));
        } else {
            out.extend(chars);
        }
    }
}

fn clean(c: char) -> Option<char> {
    match c {
        '\t' | '\n' | '\r' => Some(' '),
        '\0' | '\u{fffd}' => None,
        _ if is_bert_other(c) => None,
        _ if c.is_whitespace() => Some(' '),
        _ => Some(c),
    }
}

/// The CJK blocks as BERT names them. Hangul and kana are written with spaces, or are too few, to need it.
fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{4e00}'..='\u{9fff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}'
        | '\u{f900}'..='\u{faff}'
        | '\u{2f800}'..='\u{2fa1f}')
}

/// Calls `word` for what stands between spaces, cut before and after every punctuation mark.
pub(super) fn words<'a>(text: &'a str, mut word: impl FnMut(&'a str)) {
    for part in text.split(char::is_whitespace) {
        let mut rest = part;
        while let Some(at) = rest.find(is_bert_punctuation) {
            let (before, mark) = rest.split_at(at);
            if !before.is_empty() {
                word(before);
            }
            let end = mark.chars().next().map_or(0, char::len_utf8);
            word(&mark[..end]);
            rest = &mark[end..];
        }
        if !rest.is_empty() {
            word(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalised_and_cut() {
        let all = Normalizer {
            is_cleaning: true,
            is_spacing_chinese: true,
            is_stripping_accents: true,
            is_lowercasing: true,
        };
        let check = |normalizer: Normalizer, text: &str, want: &[&str]| {
            let text = normalizer.normalize(text);
            let mut got = Vec::new();
            words(&text, |word| got.push(word));
            assert_eq!(got, want, "{text:?}");
        };
        check(all, "", &[]);
        check(all, " \t\u{3000}\n", &[]);
        check(all, "Ünïcode's  naïve", &["unicode", "'", "s", "naive"]);
        check(all, "a\u{200b}b\0c\u{fffd}", &["abc"]);
        check(all, "東京tower", &["東", "京", "tower"]);
        check(all, "İ ẞ ﬁ", &["i", "ß", "ﬁ"]);
        let plain = Normalizer { is_stripping_accents: false, is_lowercasing: false, ..all };
        check(plain, "Ünïcode E\u{301}", &["Ünïcode", "E\u{301}"]);
        let raw = Normalizer { is_cleaning: false, is_spacing_chinese: false, ..plain };
        check(raw, "a\u{200b}b 東京", &["a\u{200b}b", "東京"]);
    }

    /// Every character against the `tokenizers` library; `tests/data/wordpiece.py` says what a digest is over.
    #[test]
    fn every_character_as_the_library_treats_it() {
        let expected: Vec<String> =
            serde_json::from_str(include_str!("../../tests/data/wordpiece_unicode.json")).unwrap();
        let all = Normalizer {
            is_cleaning: true,
            is_spacing_chinese: true,
            is_stripping_accents: true,
            is_lowercasing: true,
        };
        // Composed letters of scripts that Unicode got after the library's tables were made; no vocabulary has their
        // parts.
        let is_new = |c| {
            matches!(c,
                '\u{105c9}' | '\u{105e4}' | '\u{11383}' | '\u{11385}' | '\u{1138e}' | '\u{11391}' | '\u{113c5}'
                | '\u{113c7}' | '\u{113c8}' | '\u{11938}' | '\u{16121}'..='\u{16128}' | '\u{16d68}'..='\u{16d6a}')
        };
        for (block, expected) in (0u32..).zip(expected) {
            let mut digest = 0xcbf2_9ce4_8422_2325_u64;
            for c in (block << 12..(block + 1) << 12).filter_map(char::from_u32).filter(|c| !is_new(*c)) {
                words(&all.normalize(&format!("a{c}b")), |word| {
                    for byte in word.bytes().chain([0]) {
                        digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                    }
                });
            }
            assert_eq!(format!("{digest:016x}"), expected, "from U+{:04X} on", block << 12);
        }
    }
}
