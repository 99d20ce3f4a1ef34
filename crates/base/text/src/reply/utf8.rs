//! Bytes to text, holding back a character whose end has not come yet.

/// Decodes a stream of bytes as `String::from_utf8_lossy` would decode all of them together.
#[derive(Default)]
pub(crate) struct Utf8Stream {
    /// The beginning of a character: at most three bytes between calls.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes the next bytes and returns the text that is certain.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_end = done + invalid.len() == self.pending.len();
            if invalid.is_empty() || (at_end && is_incomplete(invalid)) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
        self.pending.drain(..done);
        text
    }

    /// What an unfinished character becomes at the end of the stream.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Whether more bytes could complete these to a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holds_back_an_unfinished_character() {
        let mut stream = Utf8Stream::default();
        let steps: [(&[u8], &str); 6] = [
            (b"a\xe6", "a"),
            (b"\x97", ""),
            (b"\xa5b", "日b"),
            (b"\xf0\x9f", ""),
            (b"x", "\u{fffd}x"),
            (b"\xff\xe2\x82", "\u{fffd}"),
        ];
        for (bytes, expected) in steps {
            assert_eq!(stream.push(bytes), expected, "{bytes:x?}");
        }
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    proptest! {
        #[test]
        fn equals_decoding_at_once(chunks in prop::collection::vec(
            prop::collection::vec(prop::sample::select(vec![b'a', 0xc3, 0xa9, 0xe6, 0x97, 0xa5, 0xf0, 0x9f, 0x98, 0x80, 0xff, 0xed]), 0..5),
            0..12,
        )) {
            let mut stream = Utf8Stream::default();
            let mut got: String = chunks.iter().map(|chunk| stream.push(chunk)).collect();
            got += &stream.finish();
            let whole = chunks.concat();
            prop_assert_eq!(got, String::from_utf8_lossy(&whole));
        }
    }
}
