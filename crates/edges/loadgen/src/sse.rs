//! Server-sent events, as far as completion streams use them: the `data` of each event.

/// Longest event; a chunk with many log-probabilities stays far below.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// Cuts bytes as they arrive into events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The line that is not ended yet.
    line: Vec<u8>,
    /// The `data` of the event that is not ended yet.
    data: Vec<u8>,
}

/// An event is longer than any completion stream has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Events {
    /// Takes bytes and hands each event that they complete to `on_event`.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + piece.len() > MAX_EVENT_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line(&mut on_event);
            }
        }
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(&[u8])) {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if !self.data.is_empty() {
                on_event(&self.data);
                self.data.clear();
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = Events::default();
        for piece in pieces {
            events.feed(piece, |data| found.push(String::from_utf8_lossy(data).into_owned())).unwrap();
        }
        found
    }

    #[test]
    fn events_are_cut() {
        let check =
            |text: &str, expected: &[&str]| assert_eq!(events(&[text.as_bytes()]), expected, "{text:?}");
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data:a\r\n\r\n", &["a"]);
        check(": ping\n\nevent: x\nid: 3\ndata: a\n\n", &["a"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data: a\n", &[]);
    }

    #[test]
    fn long_events_are_refused() {
        let mut events = Events::default();
        let long = vec![b'x'; MAX_EVENT_BYTES];
        assert_eq!(events.feed(&long, |_| ()), Ok(()));
        assert_eq!(events.feed(b"y", |_| ()), Err(TooLong));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(cuts in proptest::collection::vec(0usize..60, 0..6)) {
            let text = b"data: {\"a\": 1}\r\n\r\n: comment\n\ndata: second\n\ndata: [DONE]\n\n";
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&pieces), ["{\"a\": 1}", "second", "[DONE]"]);
        }
    }
}
