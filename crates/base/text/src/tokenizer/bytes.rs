//! GPT-2's byte alphabet: every byte has a printable character, so that vocabularies are plain text.
//!
//! Bytes that are printable in Latin-1 stand for themselves; the other 68 are numbered from U+0100 in
//! byte order (so the space is `Ġ`, the newline `Ċ`).

/// Whether a byte stands for itself.
const fn is_direct(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The character of `byte`.
pub(super) fn byte_to_char(byte: u8) -> char {
    if is_direct(byte) {
        return char::from(byte);
    }
    let number = (0..byte).filter(|&b| !is_direct(b)).count() as u32;
    char::from_u32(0x100 + number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte of every character from U+0000 to U+0143, where it has one.
pub(super) struct CharToByte([Option<u8>; 0x144]);

impl CharToByte {
    pub(super) fn new() -> Self {
        let mut table = [None; 0x144];
        for byte in 0..=u8::MAX {
            table[byte_to_char(byte) as usize] = Some(byte);
        }
        Self(table)
    }

    /// Appends the bytes that a token's text stands for. Characters outside the alphabet (added tokens
    /// written as they are) stand for their own UTF-8.
    pub(super) fn decode(&self, text: &str, out: &mut Vec<u8>) {
        for c in text.chars() {
            match self.0.get(c as usize).copied().flatten() {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// The byte of a token written `<0xNN>`.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection() {
        let table = CharToByte::new();
        for byte in 0..=u8::MAX {
            let mut out = Vec::new();
            table.decode(&byte_to_char(byte).to_string(), &mut out);
            assert_eq!(out, [byte]);
        }
        assert_eq!([b' ', b'\n', b'\t', 0x7f, 0xad].map(byte_to_char), ['Ġ', 'Ċ', 'ĉ', 'ġ', 'Ń']);
    }

    #[test]
    fn byte_tokens_are_hexadecimal() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(["<0x0>", "<0xGG>", "<0x+1>", "a"].map(byte_token), [None; 4]);
    }
}
