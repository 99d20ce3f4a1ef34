//! A position in untrusted bytes. Nothing is read, sized or allocated before it is known to be there.

use super::error::{Field, GgufError};

/// Reads little-endian fields one after the other; every refusal names file, field and offset.
pub(super) struct Cursor<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Cursor { file, bytes, at: 0 }
    }

    /// The file's name, for messages.
    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    /// Byte offset of the next field.
    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    /// Bytes from the next field to the end of the file.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        let Some(bytes) = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end)) else {
            let problem = format!("the file ends here: {len} bytes needed, {} left", self.left());
            return Err(field.malformed(self.file, self.position(), problem));
        };
        self.at += len;
        Ok(bytes)
    }

    /// The next number.
    pub(super) fn number<T: Number>(&mut self, field: Field<'_>) -> Result<T, GgufError> {
        Ok(T::from_le(self.take(T::SIZE, field)?))
    }

    /// The next `len` numbers; the bytes are known to be there before the vector is made.
    pub(super) fn numbers<T: Number>(&mut self, len: usize, field: Field<'_>) -> Result<Vec<T>, GgufError> {
        let size = len.saturating_mul(T::SIZE);
        Ok(self.take(size, field)?.chunks_exact(T::SIZE).map(T::from_le).collect())
    }

    /// Reads a count and refuses one whose items, at least `item_size` bytes each, the rest of the
    /// file cannot hold. So a count bounds an allocation.
    pub(super) fn count(&mut self, item_size: usize, field: Field<'_>) -> Result<usize, GgufError> {
        let at = self.position();
        let count: u64 = self.number(field)?;
        self.fits(count, item_size, field, at)
    }

    /// `count` as usize, when that many items of at least `item_size` bytes fit into the rest of the file.
    pub(super) fn fits(
        &self,
        count: u64,
        item_size: usize,
        field: Field<'_>,
        at: u64,
    ) -> Result<usize, GgufError> {
        let most = self.left() / item_size;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                let problem =
                    format!("{count} is more than the {} bytes left in the file can hold", self.left());
                Err(field.malformed(self.file, at, problem))
            }
        }
    }

    /// The bytes of the next length-prefixed string, not yet known to be UTF-8.
    pub(super) fn string_bytes(&mut self, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        let at = self.position();
        let len: u64 = self.number(field)?;
        match usize::try_from(len) {
            Ok(len) if len <= self.left() => self.take(len, field),
            _ => {
                let problem =
                    format!("string length {len} is more than the {} bytes left in the file", self.left());
                Err(field.malformed(self.file, at, problem))
            }
        }
    }

    /// The next string. It is copied before it is checked, since a mapped file can change in between.
    pub(super) fn string(&mut self, field: Field<'_>) -> Result<String, GgufError> {
        let at = self.position();
        let bytes = self.string_bytes(field)?.to_vec();
        String::from_utf8(bytes).map_err(|e| {
            let first = e.utf8_error().valid_up_to();
            field.malformed(self.file, at, format!("the string is not valid UTF-8 from its byte {first} on"))
        })
    }
}

/// A fixed-size little-endian number.
pub(super) trait Number: Sized {
    /// Bytes in the file.
    const SIZE: usize;
    /// From exactly `SIZE` bytes.
    fn from_le(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            const SIZE: usize = size_of::<$t>();
            fn from_le(bytes: &[u8]) -> Self {
                let mut exact = [0; size_of::<$t>()];
                exact.copy_from_slice(bytes);
                <$t>::from_le_bytes(exact)
            }
        }
    )*};
}
number!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);
