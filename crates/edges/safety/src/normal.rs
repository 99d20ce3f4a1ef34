//! One spelling for many: what looks the same to a reader becomes the same text.
//!
//! A normal text is lower-case words with one space before, between and after them; phrases are written so too, and a
//! phrase that stands in a text between its spaces begins and ends at words.
//!
//! [`fold`] takes away what can't be told apart by eye: compatibility forms, case, accents, invisible characters, and
//! Cyrillic and Greek letters that look like Latin ones. [`plain`] makes words of that. [`unmask`] makes other words:
//! of digits and signs inside words letters (`k1ll`), and of letters that stand apart words (`k i l l`).
//! Both are looked at, as a text may mean its digits.
//!
//! A character becomes at most 18 by its compatibility form, so all of this is linear.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Fewest letters apart from each other that are read as one word: fewer are initials.
const SPELLED_LETTERS: usize = 3;

/// The text without its costume; still with its signs and spaces.
pub(crate) fn fold(text: &str) -> String {
    let is_kept = |c: &char| !is_invisible(*c) && !is_accent(*c);
    let decomposed = text.chars().filter(is_kept).nfkd().filter(is_kept);
    let mut folded = String::with_capacity(text.len());
    for c in decomposed.flat_map(char::to_lowercase).filter(is_kept) {
        match c {
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            _ => folded.push(latin(c)),
        }
    }
    folded
}

/// The words of a folded text.
pub(crate) fn plain(folded: &str) -> String {
    let mut words = String::with_capacity(folded.len() + 2);
    words.push(' ');
    for c in folded.chars().filter(|c| !is_apostrophe(*c)) {
        if is_of_word(c) {
            words.push(c);
        } else {
            separate(&mut words);
        }
    }
    separate(&mut words);
    words
}

/// What a folded text may be meant to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unmasked {
    /// Its words.
    pub(crate) words: String,
    /// Letters that stand apart, each run of them as one word.
    pub(crate) spelled: String,
}

/// Reads signs as letters, `1` as `one`, and letters that stand apart as words. `None` where that changes nothing.
pub(crate) fn unmask(folded: &str, one: char) -> Option<Unmasked> {
    let mut reader = Reader::new(one, folded.len());
    let (mut word, mut gap) = (String::new(), String::new());
    for c in folded.chars().filter(|c| !is_apostrophe(*c)) {
        if is_of_word(c) || letter(c, one) != c {
            if word.is_empty() {
                reader.gap = std::mem::take(&mut gap);
            }
            word.push(c);
        } else {
            gap.push_str(reader.take(&word));
            word.clear();
            gap.push(c);
        }
    }
    reader.take(&word);
    reader.end_run();
    separate(&mut reader.unmasked.words);
    separate(&mut reader.unmasked.spelled);
    reader.has_changed.then_some(reader.unmasked)
}

/// Takes words one after the other, each with the gap before it.
struct Reader {
    one: char,
    gap: String,
    /// Characters that stand apart, each with the gap before it.
    run: Vec<(String, char)>,
    unmasked: Unmasked,
    has_changed: bool,
}

impl Reader {
    fn new(one: char, bytes: usize) -> Self {
        let words = String::with_capacity(bytes + 2);
        let unmasked = Unmasked { words, spelled: String::new() };
        Self { one, gap: String::new(), run: Vec::new(), unmasked, has_changed: false }
    }

    /// Gives back the signs at the end of the word, which are punctuation.
    fn take<'a>(&mut self, word: &'a str) -> &'a str {
        let (word, signs) = match word.trim_end_matches(|c| !is_of_word(c)) {
            "" => (word, ""),
            trimmed => word.split_at(trimmed.len()),
        };
        let mut chars = word.chars();
        match (chars.next(), chars.next()) {
            (None, _) => {}
            (Some(c), None) => self.run.push((std::mem::take(&mut self.gap), c)),
            _ => {
                self.end_run();
                self.push(word);
            }
        }
        signs
    }

    /// A word of several characters.
    fn push(&mut self, word: &str) {
        separate(&mut self.unmasked.words);
        let is_mixed =
            word.chars().any(char::is_alphabetic) && word.chars().any(|c| letter(c, self.one) != c);
        self.has_changed |= is_mixed;
        for c in word.chars() {
            match letter(c, self.one) {
                letter if is_mixed => self.unmasked.words.push(letter),
                _ if is_of_word(c) => self.unmasked.words.push(c),
                _ => separate(&mut self.unmasked.words),
            }
        }
    }

    /// The characters that stood apart, as words. A gap that differs from most parts two words.
    fn end_run(&mut self) {
        let mut run = std::mem::take(&mut self.run);
        run.truncate(run.iter().rposition(|(_, c)| is_of_word(*c)).map_or(0, |last| last + 1));
        let is_spelled = run.iter().filter(|(_, c)| c.is_alphabetic()).count() >= SPELLED_LETTERS;
        self.has_changed |= is_spelled;
        let words = &mut self.unmasked.words;
        separate(words);
        if is_spelled {
            separate(&mut self.unmasked.spelled);
        }
        let mut gaps = BTreeMap::<&str, usize>::new();
        run.iter().skip(1).for_each(|(gap, _)| *gaps.entry(gap).or_default() += 1);
        let usual = gaps.into_iter().max_by_key(|(gap, count)| (*count, Reverse(gap.len())));
        let usual = usual.map_or_else(String::new, |(gap, _)| gap.to_owned());
        for (gap, c) in run {
            if is_spelled {
                self.unmasked.spelled.push(letter(c, self.one));
                if gap != usual {
                    separate(words);
                }
                words.push(letter(c, self.one));
            } else {
                separate(words);
                words.extend(Some(c).filter(|c| is_of_word(*c)));
            }
        }
    }
}

/// A space, unless there is one.
fn separate(words: &mut String) {
    if !words.ends_with(' ') {
        words.push(' ');
    }
}

/// Marks that have no table of accents are parts of the words of their languages.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

/// The letter that a digit or a sign stands for, or the character itself.
fn letter(c: char, one: char) -> char {
    match c {
        '0' => 'o',
        '1' | '!' => one,
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        '8' => 'b',
        _ => c,
    }
}

/// `don't` and `dont` are one word.
fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | '‘' | 'ʼ' | '`' | '´' | '′')
}

/// Marks that any letter can have, and that no letter needs to be read.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe20}'..='\u{fe2f}')
}

/// What is drawn as nothing: joiners, direction, variants, fillers, tags.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// The Latin letter that a folded Cyrillic or Greek one, or another Latin one, looks like. A text of those languages
/// turns into nonsense by it, and so do phrases of a list, the same.
fn latin(c: char) -> char {
    match c {
        'а' | 'α' | 'ɑ' => 'a',
        'в' | 'β' => 'b',
        'с' | 'ϲ' => 'c',
        'ԁ' | 'đ' => 'd',
        'е' | 'є' | 'ε' | 'ɛ' => 'e',
        'ɡ' => 'g',
        'һ' | 'н' | 'ħ' => 'h',
        'і' | 'ι' | 'ı' | 'ɩ' | 'ӏ' => 'i',
        'ј' | 'ϳ' => 'j',
        'к' | 'κ' => 'k',
        'ł' => 'l',
        'м' => 'm',
        'ո' | 'η' => 'n',
        'о' | 'ο' | 'σ' | 'ς' | 'օ' | 'ø' => 'o',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'г' => 'r',
        'ѕ' | 'ſ' => 's',
        'т' | 'τ' => 't',
        'υ' | 'ս' => 'u',
        'ѵ' | 'ν' => 'v',
        'ԝ' | 'ω' => 'w',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let check = |text: &str, want: &str| assert_eq!(plain(&fold(text)), want, "{text:?}");
        check("", " ");
        check(" \n", " ");
        check("Hello,  World!", " hello world ");
        check("Don’t", " dont ");
        check("ＦＵＬＬ ｗｉｄｔｈ", " full width ");
        check("𝖇𝖔𝖑𝖉 Ⓒⓘⓡⓒⓛⓔ", " bold circle ");
        check("zero\u{200b}width\u{200d} \u{202e}right\u{202c}", " zerowidth right ");
        check("z\u{334}\u{335}a\u{300}lgo Café", " zalgo cafe ");
        check("кіll рауρаl", " kill paypal ");
        check("STRAẞE İstanbul", " strasse istanbul ");
        check("हिन्दी", " हिन्दी ");
        check("a\u{e0041}b", " ab ");
        check("日本語、テスト", " 日本語 テスト ");
    }

    #[test]
    fn what_words_may_be_meant_to_be() {
        let check = |text: &str, words: Option<&str>, spelled: &str| {
            let got = unmask(&fold(text), 'i');
            let want = words.map(|words| (words.to_owned(), spelled.to_owned()));
            assert_eq!(got.map(|unmasked| (unmasked.words, unmasked.spelled)), want, "{text:?}");
        };
        check("kill 1000 times! (5 or 7)", None, "");
        check("k1ll", Some(" kill "), " ");
        check("a$$et wa!t!", Some(" asset wait "), " ");
        check("k i l l", Some(" kill "), " kill ");
        check("k i l l   m e", Some(" kill me "), " killme ");
        check("a k.i.l.l", Some(" a kill "), " akill ");
        check("k.i.l.l m.e now", Some(" kill me now "), " killme ");
        check("k 1 l l", Some(" kill "), " kill ");
        check("k i l l!   m e !", Some(" kill me "), " killme ");
        check("I  a m  h e r e", Some(" i am here "), " iamhere ");
        check("so k-i-l-l it", Some(" so kill it "), " kill ");
        check("A. B. see 4 u", None, "");
    }
}
