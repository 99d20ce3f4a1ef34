//! Stop strings over a stream of text.

/// Finds the first stop string in a stream and holds back only what may still become one.
///
/// Every stop string is a Knuth–Morris–Pratt automaton whose state is the length of its longest prefix
/// that the text seen so far ends with. Text can be released up to the longest of those prefixes, so a
/// suffix is held exactly while it is a proper prefix of some stop string. The match that is complete
/// first wins, and of those that complete together the one that began first. Neither depends on how the
/// text was cut into chunks. Cost is linear in the text, times the number of stop strings.
pub(crate) struct StopMatcher {
    patterns: Vec<Pattern>,
    held: String,
    stopped: bool,
}

struct Pattern {
    text: Box<[u8]>,
    /// `fallback[i]`: longest proper prefix of `text[..=i]` that is also its suffix.
    fallback: Box<[usize]>,
    /// Bytes matched; less than the length of `text` between calls.
    state: usize,
}

impl Pattern {
    fn new(text: String) -> Self {
        let text = text.into_bytes().into_boxed_slice();
        let mut fallback = vec![0; text.len()].into_boxed_slice();
        for i in 1..text.len() {
            let mut k = fallback[i - 1];
            while k > 0 && text[k] != text[i] {
                k = fallback[k - 1];
            }
            fallback[i] = k + usize::from(text[k] == text[i]);
        }
        Self { text, fallback, state: 0 }
    }

    /// Takes one byte; whether the whole pattern now ends here.
    fn step(&mut self, byte: u8) -> bool {
        while self.state > 0 && self.text[self.state] != byte {
            self.state = self.fallback[self.state - 1];
        }
        self.state += usize::from(self.text[self.state] == byte);
        self.state == self.text.len()
    }
}

impl StopMatcher {
    /// Empty stop strings never match.
    pub(crate) fn new(stop: Vec<String>) -> Self {
        let patterns = stop.into_iter().filter(|s| !s.is_empty()).map(Pattern::new).collect();
        Self { patterns, held: String::new(), stopped: false }
    }

    /// Whether a stop string was found; nothing comes out after that.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the next text and returns what can be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (i, byte) in text.bytes().enumerate() {
            let mut complete = 0;
            for pattern in &mut self.patterns {
                if pattern.step(byte) {
                    complete = complete.max(pattern.text.len());
                }
            }
            if complete > 0 {
                self.stopped = true;
                self.held.truncate(before + i + 1 - complete);
                return std::mem::take(&mut self.held);
            }
        }
        let hold = self.patterns.iter().map(|p| p.state).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - hold);
        std::mem::replace(&mut self.held, rest)
    }

    /// The text still held, at the end of the stream.
    pub(crate) fn finish(&mut self) -> String {
        self.patterns.iter_mut().for_each(|pattern| pattern.state = 0);
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text up to the first complete stop string, by looking at every end.
    fn naive<'a>(text: &'a str, stop: &[String]) -> (&'a str, bool) {
        for end in 1..=text.len() {
            let ends = |s: &&String| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes());
            if let Some(longest) = stop.iter().filter(ends).map(String::len).max() {
                return (&text[..end - longest], true);
            }
        }
        (text, false)
    }

    /// Pushes `chunks`; `expected` are the deltas, then what `finish` gives.
    fn check(stop: &[&str], chunks: &[&str], expected: &[&str], stopped: bool) {
        let mut matcher = StopMatcher::new(stop.iter().map(|&s| s.to_owned()).collect());
        let mut got: Vec<String> = chunks.iter().map(|chunk| matcher.push(chunk)).collect();
        got.push(matcher.finish());
        assert_eq!((got, matcher.is_stopped()), (expected.iter().map(|&s| s.to_owned()).collect(), stopped));
    }

    #[test]
    fn holds_only_what_may_become_a_stop_string() {
        let stop = ["five, six"];
        check(&stop, &["fo", "ur, fi", "ve, s", "ix, seven"], &["fo", "ur, ", "", "", ""], true);
        check(&stop, &["fo", "ur, fi", "ve, s", "even"], &["fo", "ur, ", "", "five, seven", ""], false);
        check(&stop, &["fo", "ur, fi"], &["fo", "ur, ", "fi"], false);
        check(&["ab", "abc"], &["xa", "bc"], &["x", "", ""], true);
        check(&["abc", "b"], &["xabc"], &["xa", ""], true);
        check(&["bc", "abc"], &["xabc"], &["x", ""], true);
        check(&["aab"], &["aa", "a", "b"], &["", "a", "", ""], true);
        check(&["", "é"], &["caf", "é", "more"], &["caf", "", "", ""], true);
        check(&[], &["a", "b"], &["a", "b", ""], false);
    }

    proptest! {
        #[test]
        fn equals_the_naive_cut(
            text in "[abé]{0,30}",
            stop in prop::collection::vec("[abé]{0,5}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(text.len() + 1)).collect();
            cuts.retain(|&i| text.is_char_boundary(i));
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut matcher = StopMatcher::new(stop.clone());
            let mut got: String = cuts.windows(2).map(|w| matcher.push(&text[w[0]..w[1]])).collect();
            got += &matcher.finish();
            prop_assert_eq!((got.as_str(), matcher.is_stopped()), naive(&text, &stop));
        }
    }
}
