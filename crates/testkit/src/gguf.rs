//! Writing GGUF files, sound ones and, by patching at [`Layout`]'s offsets, damaged ones.

/// A metadata value. `From` covers the common types: `builder.meta("llama.block_count", 2_u32)`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Meta {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    /// Elements of one type, that of the first; an empty array is typed u32.
    Array(Vec<Meta>),
}

macro_rules! meta_from {
    ($($t:ty => $variant:ident),*) => {$(
        impl From<$t> for Meta {
            fn from(value: $t) -> Self { Meta::$variant(value) }
        }
        impl From<Vec<$t>> for Meta {
            fn from(values: Vec<$t>) -> Self { Meta::Array(values.into_iter().map(Meta::$variant).collect()) }
        }
    )*};
}
meta_from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
           f32 => F32, f64 => F64, bool => Bool, String => String);

impl From<&str> for Meta {
    fn from(value: &str) -> Self {
        Meta::String(value.to_owned())
    }
}

impl Meta {
    fn type_id(&self) -> u32 {
        match self {
            Meta::U8(_) => 0,
            Meta::I8(_) => 1,
            Meta::U16(_) => 2,
            Meta::I16(_) => 3,
            Meta::U32(_) => 4,
            Meta::I32(_) => 5,
            Meta::F32(_) => 6,
            Meta::Bool(_) => 7,
            Meta::String(_) => 8,
            Meta::Array(_) => 9,
            Meta::U64(_) => 10,
            Meta::I64(_) => 11,
            Meta::F64(_) => 12,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Meta::U8(v) => out.push(*v),
            Meta::I8(v) => out.extend(v.to_le_bytes()),
            Meta::U16(v) => out.extend(v.to_le_bytes()),
            Meta::I16(v) => out.extend(v.to_le_bytes()),
            Meta::U32(v) => out.extend(v.to_le_bytes()),
            Meta::I32(v) => out.extend(v.to_le_bytes()),
            Meta::U64(v) => out.extend(v.to_le_bytes()),
            Meta::I64(v) => out.extend(v.to_le_bytes()),
            Meta::F32(v) => out.extend(v.to_le_bytes()),
            Meta::F64(v) => out.extend(v.to_le_bytes()),
            Meta::Bool(v) => out.push(u8::from(*v)),
            Meta::String(v) => write_string(out, v.as_bytes()),
            Meta::Array(values) => {
                out.extend(values.first().map_or(4, Meta::type_id).to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.write(out));
            }
        }
    }
}

/// A tensor to write. `ty` is a ggml type id, known or not.
#[derive(Debug, Clone)]
struct TensorEntry {
    name: String,
    shape: Vec<u64>,
    ty: u32,
    data: Vec<u8>,
}

/// Collects metadata and tensors and writes them as a GGUF file. Nothing is validated.
#[derive(Debug, Clone)]
pub struct GgufBuilder {
    version: u32,
    alignment: usize,
    metadata: Vec<(String, Meta)>,
    tensors: Vec<TensorEntry>,
}

/// Where the fields of a written file stand, in bytes from its start.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Each key with the offsets of the key (its length) and of the value's type.
    pub keys: Vec<(String, usize, usize)>,
    /// Each tensor's directory entry.
    pub tensors: Vec<TensorLayout>,
    /// The first directory entry.
    pub directory: usize,
    /// The end of the header, before padding.
    pub header_end: usize,
    /// The first byte of tensor data.
    pub data: usize,
}

/// Offsets of the fields of one directory entry.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct TensorLayout {
    pub name: String,
    pub name_at: usize,
    pub dimension_count_at: usize,
    pub dimensions_at: usize,
    pub type_at: usize,
    pub offset_at: usize,
}

impl Layout {
    /// The offset of a key's value type; the value follows 4 bytes later.
    ///
    /// # Panics
    /// There is no such key.
    pub fn value_type(&self, key: &str) -> usize {
        self.keys.iter().find(|(name, ..)| name == key).map(|&(_, _, at)| at).expect("a key of the file")
    }

    /// The offsets of a tensor's entry.
    ///
    /// # Panics
    /// There is no such tensor.
    pub fn tensor(&self, name: &str) -> &TensorLayout {
        self.tensors.iter().find(|tensor| tensor.name == name).expect("a tensor of the file")
    }
}

impl Default for GgufBuilder {
    fn default() -> Self {
        GgufBuilder { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufBuilder {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes this version number. Versions 2 and 3 have the same layout in little-endian files.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to this many bytes and says so in `general.alignment`.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment as usize;
        self.meta("general.alignment", alignment)
    }

    /// Adds a key; a second one of the same name is written too.
    pub fn meta(mut self, key: &str, value: impl Into<Meta>) -> Self {
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// Replaces a key's value, or adds the key.
    pub fn set(mut self, key: &str, value: impl Into<Meta>) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.meta(key, value)
    }

    /// Leaves a key out.
    pub fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self
    }

    /// Adds a tensor with `shape` in ggml's order (row length first) and data as the type stores it.
    pub fn tensor(mut self, name: &str, shape: &[u64], ty: u32, data: Vec<u8>) -> Self {
        self.tensors.push(TensorEntry { name: name.to_owned(), shape: shape.to_vec(), ty, data });
        self
    }

    /// Leaves a tensor out.
    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// The file's bytes.
    pub fn build(&self) -> Vec<u8> {
        self.build_with_layout().0
    }

    /// The file's bytes, and where its fields are.
    pub fn build_with_layout(&self) -> (Vec<u8>, Layout) {
        let mut out = b"GGUF".to_vec();
        let mut layout = Layout::default();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            let key_at = out.len();
            write_string(&mut out, key.as_bytes());
            layout.keys.push((key.clone(), key_at, out.len()));
            out.extend(value.type_id().to_le_bytes());
            value.write(&mut out);
        }
        layout.directory = out.len();
        let mut offset = 0;
        for tensor in &self.tensors {
            layout.tensors.push(write_entry(&mut out, tensor, offset as u64));
            offset = (offset + tensor.data.len()).next_multiple_of(self.alignment);
        }
        layout.header_end = out.len();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            layout.data = if layout.data == 0 { out.len() } else { layout.data };
            out.extend(&tensor.data);
        }
        (out, layout)
    }

    /// The model cut into `count` parts the way `llama-gguf-split` does: all metadata in the first, tensors
    /// in order. Part `i` of the result belongs into `NAME-0000{i+1}-of-0000{count}.gguf`.
    ///
    /// # Panics
    /// `count` is 0 or over 65535.
    pub fn split(&self, count: usize) -> Vec<GgufBuilder> {
        let parts = u16::try_from(count).expect("a part count");
        let per_part = self.tensors.len().div_ceil(count);
        let part = |number: u16| {
            let first = usize::from(number) * per_part;
            let last = (first + per_part).min(self.tensors.len());
            let metadata = if number == 0 { self.metadata.clone() } else { Vec::new() };
            let total = i32::try_from(self.tensors.len()).expect("a tensor count");
            let tensors = self.tensors.get(first..last).unwrap_or_default().to_vec();
            GgufBuilder { metadata, tensors, ..*self }
                .meta("split.no", number)
                .meta("split.count", parts)
                .meta("split.tensors.count", total)
        };
        (0..parts).map(part).collect()
    }
}

fn write_entry(out: &mut Vec<u8>, tensor: &TensorEntry, offset: u64) -> TensorLayout {
    let name_at = out.len();
    write_string(out, tensor.name.as_bytes());
    let dimension_count_at = out.len();
    out.extend((tensor.shape.len() as u32).to_le_bytes());
    let dimensions_at = out.len();
    tensor.shape.iter().for_each(|length| out.extend(length.to_le_bytes()));
    let type_at = out.len();
    out.extend(tensor.ty.to_le_bytes());
    let offset_at = out.len();
    out.extend(offset.to_le_bytes());
    TensorLayout { name: tensor.name.clone(), name_at, dimension_count_at, dimensions_at, type_at, offset_at }
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}
