use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::category::{Category, Verdict};
use crate::check::Check;
use crate::list::{BUILTIN, List, ListError};
use crate::normal::{Unmasked, fold, plain, unmask};
use crate::phrase::expand;

/// Most phrases of all lists together, alternatives written out: some 12 MiB once compiled.
pub const MAX_PHRASES: usize = 50_000;
/// Most words of a phrase. As many phrases can end at one word of a text, so this bounds the matches.
const MAX_WORDS: usize = 16;
/// Longest phrase, in bytes.
const MAX_PHRASE_BYTES: usize = 256;
/// A shorter phrase is not looked for in letters that stand apart, where nothing shows where words begin and end.
const MIN_SPELLED_BYTES: usize = 8;

/// Finds phrases of lists, however they are dressed up.
///
/// Invariant: a text is read once as it is and twice with signs read as letters, by automata that take one step
/// per byte; the matches at a word are at most [`MAX_WORDS`].
pub struct Rules {
    /// Phrases between spaces.
    words: AhoCorasick,
    /// What each of them means, by the automaton's number.
    meanings: Vec<Meaning>,
    /// Phrases without spaces, of those that count.
    spelled: AhoCorasick,
    /// What each of these means.
    spelled_verdicts: Vec<Verdict>,
}

/// What a phrase means; one may be in several rules.
#[derive(Clone, Copy, Default)]
struct Meaning {
    verdict: Option<Verdict>,
    /// What it overlaps does not count.
    is_allowed: bool,
}

/// How much was done for a verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    /// Bytes that automata have read.
    bytes: usize,
    /// Matches that they reported.
    matches: usize,
}

impl Rules {
    /// The built-in list alone.
    ///
    /// # Errors
    /// As [`Rules::read`]; the list that comes with this version has no mistakes.
    pub fn builtin() -> Result<Self, ListError> {
        compile(&[List::read(BUILTIN)?])
    }

    /// A list of an operator, with the built-in one unless it says `builtin = false`.
    ///
    /// # Errors
    /// Says where the list has a mistake, or which bound it exceeds.
    pub fn read(text: &str) -> Result<Self, ListError> {
        let list = List::read(text)?;
        if list.builtin { compile(&[List::read(BUILTIN)?, list]) } else { compile(&[list]) }
    }

    fn examine(&self, text: &str) -> (Verdict, Work) {
        let (mut verdict, mut work) = (Verdict::default(), Work::default());
        let folded = fold(text);
        self.look_at(&plain(&folded), &mut verdict, &mut work);
        for Unmasked { words, spelled } in ['i', 'l'].iter().filter_map(|one| unmask(&folded, *one)) {
            self.look_at(&words, &mut verdict, &mut work);
            work.bytes += spelled.len();
            for found in self.spelled.find_overlapping_iter(&spelled) {
                work.matches += 1;
                verdict.merge(&self.spelled_verdicts[found.pattern().as_usize()]);
            }
        }
        (verdict, work)
    }

    fn look_at(&self, words: &str, verdict: &mut Verdict, work: &mut Work) {
        work.bytes += words.len();
        let (mut found, mut allowed) = (Vec::new(), Vec::new());
        for one in self.words.find_overlapping_iter(words) {
            work.matches += 1;
            let meaning = self.meanings[one.pattern().as_usize()];
            // Without the spaces around them, which neighbours share.
            let span = (one.start() + 1, one.end() - 1);
            if meaning.is_allowed {
                allowed.push(span);
            }
            found.extend(meaning.verdict.map(|verdict| (span, verdict)));
        }
        let allowed = Spans::new(allowed);
        for ((start, end), found) in found {
            if !allowed.overlap(start, end) {
                verdict.merge(&found);
            }
        }
    }
}

impl Check for Rules {
    fn check(&self, text: &str) -> Verdict {
        self.examine(text).0
    }
}

/// Parts of a text, by where they begin, each with the furthest end of all up to it.
struct Spans(Vec<(usize, usize)>);

impl Spans {
    fn new(mut spans: Vec<(usize, usize)>) -> Self {
        spans.sort_unstable();
        let mut furthest = 0;
        for (_, end) in &mut spans {
            furthest = furthest.max(*end);
            *end = furthest;
        }
        Self(spans)
    }

    fn overlap(&self, start: usize, end: usize) -> bool {
        let before = self.0.partition_point(|(begin, _)| *begin < end);
        before > 0 && self.0[before - 1].1 > start
    }
}

fn compile(lists: &[List]) -> Result<Rules, ListError> {
    let mut phrases = Phrases::default();
    for list in lists {
        for rule in &list.rules {
            let mut verdict = Verdict::default();
            rule.categories()?.into_iter().for_each(|category: Category| verdict.raise(category, rule.score));
            for written in &rule.phrases {
                phrases.add(written, |meaning| meaning.verdict.get_or_insert_default().merge(&verdict))?;
            }
        }
        for written in &list.allow {
            phrases.add(written, |meaning| meaning.is_allowed = true)?;
        }
    }
    let mut spelled = BTreeMap::<String, Verdict>::new();
    for (phrase, meaning) in &phrases.0 {
        let letters = phrase.replace(' ', "");
        if let Some(verdict) = meaning.verdict.filter(|_| letters.len() >= MIN_SPELLED_BYTES) {
            spelled.entry(letters).or_default().merge(&verdict);
        }
    }
    Ok(Rules {
        words: automaton(phrases.0.keys())?,
        meanings: phrases.0.into_values().collect(),
        spelled: automaton(spelled.keys())?,
        spelled_verdicts: spelled.into_values().collect(),
    })
}

fn automaton<'a>(phrases: impl Iterator<Item = &'a String>) -> Result<AhoCorasick, ListError> {
    let built = AhoCorasick::builder().match_kind(MatchKind::Standard).build(phrases);
    built.map_err(|error| ListError(format!("the phrases are too many: {error}")))
}

/// Phrases as they are looked for, and what they mean.
#[derive(Default)]
struct Phrases(BTreeMap<String, Meaning>);

impl Phrases {
    fn add(&mut self, written: &str, mean: impl Fn(&mut Meaning)) -> Result<(), ListError> {
        let shown: String = written.chars().take(60).collect();
        let wrong = |why: &str| ListError(format!("the phrase {shown:?} {why}"));
        for phrase in expand(written).map_err(|why| wrong(&why))? {
            let phrase = plain(&fold(&phrase));
            let words = phrase.split_whitespace().count();
            if words == 0 {
                return Err(wrong("has an alternative without a letter"));
            }
            if words > MAX_WORDS || phrase.len() > MAX_PHRASE_BYTES {
                return Err(wrong(&format!("is longer than {MAX_WORDS} words or {MAX_PHRASE_BYTES} bytes")));
            }
            mean(self.0.entry(phrase).or_default());
        }
        if self.0.len() > MAX_PHRASES {
            return Err(ListError(format!("there are more than {MAX_PHRASES} phrases")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
