//! Pre-tokenizers: how text is cut into the pieces that BPE then merges on its own.
//!
//! Published as regular expressions with look-ahead. They are written out by hand here: each is a
//! handful of alternatives tried in order at every position, and a hand-written scan is linear in the
//! text whatever it holds, where a backtracking engine has to give up at some limit.

use super::TokenizerError;
use crate::unicode::{is_letter, is_number};

/// A rule for cutting text, by the names that GGUF files use in `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Splitter {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every `\p{N}` on its own, then the GPT-2 rule on what lies between.
    DigitsGpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Llama3 {
        /// `k`, the most digits in a piece.
        digits: usize,
    },
}

/// Every supported name, its rule, and whether a piece that is itself a token is taken whole without
/// following the merges.
const RULES: &[(&str, Splitter, bool)] = &[
    ("default", Splitter::Gpt2, false),
    ("gpt-2", Splitter::Gpt2, false),
    ("phi-2", Splitter::Gpt2, false),
    ("smollm", Splitter::DigitsGpt2, false),
    ("starcoder", Splitter::DigitsGpt2, false),
    ("refact", Splitter::DigitsGpt2, false),
    ("command-r", Splitter::DigitsGpt2, false),
    ("codeshell", Splitter::DigitsGpt2, false),
    ("llama-bpe", Splitter::Llama3 { digits: 3 }, true),
    ("llama3", Splitter::Llama3 { digits: 3 }, true),
    ("llama-v3", Splitter::Llama3 { digits: 3 }, true),
    ("qwen2", Splitter::Llama3 { digits: 1 }, false),
    ("deepseek-r1-qwen", Splitter::Llama3 { digits: 1 }, false),
];

impl Splitter {
    /// The rule called `pre`, and whether whole-piece tokens come before merges.
    pub(super) fn named(pre: Option<&str>) -> Result<(Self, bool), TokenizerError> {
        let name = pre.unwrap_or("default");
        let found = RULES.iter().find(|rule| rule.0 == name);
        found.map(|rule| (rule.1, rule.2)).ok_or_else(|| TokenizerError::UnsupportedPre {
            pre: name.to_owned(),
            supported: RULES.iter().map(|rule| rule.0).collect::<Vec<_>>().join(", "),
        })
    }

    /// Calls `piece` with consecutive parts that together are `text`.
    pub(super) fn for_each(self, text: &str, mut piece: impl FnMut(&str)) {
        match self {
            Self::Gpt2 => cut(text, gpt2_len, &mut piece),
            Self::Llama3 { digits } => cut(text, |rest| llama3_len(rest, digits), &mut piece),
            Self::DigitsGpt2 => cut(text, digit_run_len, &mut |part: &str| {
                if part.starts_with(is_number) { piece(part) } else { cut(part, gpt2_len, &mut piece) }
            }),
        }
    }
}

/// Cuts `text` into parts whose length `len` gives from the rest of the text; it is at least one character.
fn cut(text: &str, len: impl Fn(&str) -> usize, piece: &mut impl FnMut(&str)) {
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(len(rest));
        piece(part);
        rest = after;
    }
}

fn char_len(c: char) -> usize {
    c.len_utf8()
}

/// Bytes of the longest prefix whose characters all satisfy `is`.
fn run(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// Neither space, letter nor number.
fn is_other(c: char) -> bool {
    !c.is_whitespace() && !is_letter(c) && !is_number(c)
}

/// One number character, or everything up to the next one.
fn digit_run_len(rest: &str) -> usize {
    match rest.chars().next() {
        Some(c) if is_number(c) => char_len(c),
        _ => run(rest, |c| !is_number(c)),
    }
}

/// Length of a contraction such as `'ll` at the start, 0 if there is none.
fn contraction_len(rest: &str, fold: impl Fn(char) -> char) -> usize {
    let mut chars = rest.chars();
    if chars.next() != Some('\'') {
        return 0;
    }
    let (first, second) = (chars.next(), chars.next());
    let folded = |c: Option<char>| c.map(&fold);
    match (folded(first), folded(second)) {
        (Some('s' | 't' | 'm' | 'd'), _) => 1 + first.map_or(0, char_len),
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        _ => 0,
    }
}

/// Case folding as far as contractions need it; `ſ` is the one non-ASCII letter that folds into them.
fn fold_case(c: char) -> char {
    if c == 'ſ' { 's' } else { c.to_ascii_lowercase() }
}

/// `\s+(?!\S)|\s+`: a run of space, less its last character when text follows and something is left.
fn space_len(rest: &str) -> usize {
    let spaces = run(rest, char::is_whitespace);
    if spaces == rest.len() {
        return spaces;
    }
    let last = rest[..spaces].chars().next_back().map_or(0, char_len);
    if spaces > last { spaces - last } else { spaces }
}

fn gpt2_len(rest: &str) -> usize {
    let contraction = contraction_len(rest, |c| c);
    if contraction > 0 {
        return contraction;
    }
    let lead = usize::from(rest.starts_with(' '));
    let body = &rest[lead..];
    match body.chars().next() {
        Some(c) if is_letter(c) => lead + run(body, is_letter),
        Some(c) if is_number(c) => lead + run(body, is_number),
        Some(c) if !c.is_whitespace() => lead + run(body, is_other),
        _ => space_len(rest),
    }
}

fn llama3_len(rest: &str, digits: usize) -> usize {
    let contraction = contraction_len(rest, fold_case);
    if contraction > 0 {
        return contraction;
    }
    let Some(first) = rest.chars().next() else { return 0 };
    if is_letter(first) {
        return run(rest, is_letter);
    }
    if is_number(first) {
        return rest.chars().take(digits).take_while(|&c| is_number(c)).map(char_len).sum();
    }
    // one character that is no line break may lead a word
    let body = &rest[char_len(first)..];
    if !matches!(first, '\r' | '\n') && body.starts_with(is_letter) {
        return char_len(first) + run(body, is_letter);
    }
    let lead = usize::from(first == ' ');
    let others = run(&rest[lead..], is_other);
    if others > 0 {
        let end = lead + others;
        return end + run(&rest[end..], |c| matches!(c, '\r' | '\n'));
    }
    let spaces = run(rest, char::is_whitespace);
    match rest[..spaces].rfind(['\r', '\n']) {
        Some(last_break) => last_break + 1,
        None => space_len(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pre: &str, text: &str, expected: &[&str]) {
        let (splitter, _) = Splitter::named(Some(pre)).unwrap();
        let mut parts = Vec::new();
        splitter.for_each(text, |part| parts.push(part.to_owned()));
        assert_eq!(parts, expected, "{pre} {text:?}");
    }

    #[test]
    fn pieces_are_those_of_the_published_rules() {
        check("gpt-2", "I'll  go,don't  ", &["I", "'ll", " ", " go", ",", "don", "'t", "  "]);
        check("gpt-2", "x12 34\n\n y", &["x", "12", " 34", "\n\n", " y"]);
        check("gpt-2", "I'LL", &["I", "'", "LL"]);
        check("gpt-2", "e\u{301}a", &["e", "\u{301}", "a"]);
        check("smollm", "a  12 b", &["a", "  ", "1", "2", " b"]);
        check("smollm", "½a", &["½", "a"]);
        check("llama3", "I'LL 'ſ x1234", &["I", "'LL", " '", "ſ", " x", "123", "4"]);
        check("llama3", "'ſ", &["'ſ"]);
        check("llama3", "a!!\n\n  \n  b", &["a", "!!\n\n", "  \n", " ", " b"]);
        check("llama3", "\tfoo\u{a0}bar (baz)", &["\tfoo", "\u{a0}bar", " (", "baz", ")"]);
        check("llama3", "\n\nfoo", &["\n\n", "foo"]);
        check("qwen2", "12 3", &["1", "2", " ", "3"]);
        check("qwen2", "", &[]);
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let message = Splitter::named(Some("tekken")).unwrap_err().to_string();
        assert!(message.contains("\"tekken\"") && message.contains("smollm, "), "{message}");
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_text(text in r"[a-zA-Z' 0-9½\n\r\t ſé日!\u{301}]{0,40}|\PC{0,20}") {
            for rule in RULES {
                let mut joined = String::new();
                rule.1.for_each(&text, |part| {
                    assert!(!part.is_empty());
                    joined.push_str(part);
                });
                prop_assert_eq!(&joined, &text);
            }
        }
    }
}
