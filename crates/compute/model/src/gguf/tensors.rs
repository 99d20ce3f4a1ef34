//! The tensor directory of one file: names, shapes, types and where the data lies.

use super::cursor::Cursor;
use super::error::{Field, GgufError, quote};
use super::header::RESERVE_LIMIT;
use super::tensor_type::TensorType;

/// Fewest bytes a directory entry takes: name length, one byte of name, n_dims, one dimension, type, offset.
pub(super) const LEAST_ENTRY: usize = 8 + 1 + 4 + 8 + 4 + 8;
/// Longest tensor name in bytes; ggml itself stops at 64.
const NAME_LIMIT: usize = 256;
/// Most dimensions a tensor has in ggml.
const DIMENSION_LIMIT: u32 = 4;

/// A tensor as its file declares it. Its data is known to lie inside the file.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    name: String,
    shape: [usize; DIMENSION_LIMIT as usize],
    dimensions: usize,
    ty: TensorType,
    offset: u64,
    size: usize,
    /// Where in the header the offset field stands.
    offset_at: u64,
    /// Which file of a split model holds it.
    pub(super) part: usize,
}

impl TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements per dimension in ggml's order: the first is the row length, contiguous in memory.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.dimensions]
    }

    /// How the elements are stored.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Bytes from the start of its file to the data.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of data.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Header offset that an error about this tensor names.
    pub(super) fn declared_at(&self) -> u64 {
        self.offset_at
    }

    pub(super) fn in_part(self, part: usize) -> Self {
        TensorInfo { part, ..self }
    }

    fn end(&self) -> u64 {
        self.offset + self.size as u64
    }
}

/// Reads `count` entries and checks every data range against the end of the file and the other ranges.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    count: usize,
    alignment: u64,
) -> Result<Vec<TensorInfo>, GgufError> {
    let mut tensors = Vec::with_capacity(count.min(RESERVE_LIMIT));
    for index in 0..count {
        tensors.push(entry(cursor, index, alignment)?);
    }
    place(cursor, &mut tensors, alignment)?;
    refuse_overlap(cursor.file(), &tensors)?;
    Ok(tensors)
}

fn entry(cursor: &mut Cursor<'_>, index: usize, alignment: u64) -> Result<TensorInfo, GgufError> {
    let name_at = cursor.position();
    let name = cursor.string(Field::TensorName(index))?;
    if name.is_empty() || name.len() > NAME_LIMIT {
        let problem = format!("a name of {} bytes (1 to {NAME_LIMIT} are allowed)", name.len());
        return Err(Field::TensorName(index).malformed(cursor.file(), name_at, problem));
    }
    let (shape, dimensions) = shape(cursor, &name)?;
    let ty_at = cursor.position();
    let ty = tensor_type(cursor, &name)?;
    let size = byte_size(&shape[..dimensions], ty)
        .map_err(|problem| Field::TensorType(&name).malformed(cursor.file(), ty_at, problem))?;
    let offset_at = cursor.position();
    let offset: u64 = cursor.number(Field::TensorOffset(&name))?;
    if !offset.is_multiple_of(alignment) {
        let problem = format!("{offset} is not a multiple of the alignment {alignment}");
        return Err(Field::TensorOffset(&name).malformed(cursor.file(), offset_at, problem));
    }
    Ok(TensorInfo { name, shape, dimensions, ty, offset, size, offset_at, part: 0 })
}

fn shape(
    cursor: &mut Cursor<'_>,
    name: &str,
) -> Result<([usize; DIMENSION_LIMIT as usize], usize), GgufError> {
    let at = cursor.position();
    let dimensions: u32 = cursor.number(Field::DimensionCount(name))?;
    if dimensions == 0 || dimensions > DIMENSION_LIMIT {
        let problem = format!("{dimensions} dimensions (1 to {DIMENSION_LIMIT} are allowed)");
        return Err(Field::DimensionCount(name).malformed(cursor.file(), at, problem));
    }
    let mut shape = [1; DIMENSION_LIMIT as usize];
    let mut elements = 1_usize;
    for (index, slot) in shape.iter_mut().take(dimensions as usize).enumerate() {
        let field = Field::Dimension(name, index);
        let at = cursor.position();
        let length: u64 = cursor.number(field)?;
        if length == 0 {
            return Err(field.malformed(cursor.file(), at, "the dimension is 0"));
        }
        let product = usize::try_from(length).ok().and_then(|l| Some((l, elements.checked_mul(l)?)));
        let Some((length, product)) = product else {
            let problem = format!("{length}: the number of elements overflows");
            return Err(field.malformed(cursor.file(), at, problem));
        };
        (*slot, elements) = (length, product);
    }
    Ok((shape, dimensions as usize))
}

fn tensor_type(cursor: &mut Cursor<'_>, name: &str) -> Result<TensorType, GgufError> {
    let at = cursor.position();
    let id: u32 = cursor.number(Field::TensorType(name))?;
    TensorType::from_id(id).ok_or_else(|| {
        let problem = match TensorType::removed(id) {
            Some(old) => {
                format!("{old} (type id {id}) was dropped from the format; quantise the model again")
            }
            None => format!("unknown tensor type id {id}"),
        };
        Field::TensorType(name).unsupported(cursor.file(), at, problem)
    })
}

fn byte_size(shape: &[usize], ty: TensorType) -> Result<usize, String> {
    let row = shape.first().copied().unwrap_or(1);
    let block = ty.block_size();
    if !row.is_multiple_of(block) {
        return Err(format!("rows of {row} elements are not whole {ty} blocks of {block}"));
    }
    let blocks = shape.iter().skip(1).try_fold(row / block, |product, &length| product.checked_mul(length));
    blocks
        .and_then(|blocks| blocks.checked_mul(ty.type_size()))
        .ok_or_else(|| "the size in bytes overflows".to_owned())
}

/// Turns offsets into the data section, which begins at the next aligned byte, into offsets into the file.
fn place(cursor: &Cursor<'_>, tensors: &mut [TensorInfo], alignment: u64) -> Result<(), GgufError> {
    let data_start = cursor.position().checked_next_multiple_of(alignment);
    let file_size = cursor.position() + cursor.left() as u64;
    for tensor in tensors {
        let start = data_start.and_then(|data| data.checked_add(tensor.offset));
        match start.and_then(|start| Some((start, start.checked_add(tensor.size as u64)?))) {
            Some((start, end)) if end <= file_size => tensor.offset = start,
            placed => {
                let end = placed.map_or_else(|| "past 2^64".to_owned(), |(_, end)| format!("at byte {end}"));
                let problem = format!(
                    "{} bytes of {} data would end {end}, past the end of the file ({file_size} bytes); \
                     the file is cut short or damaged",
                    tensor.size, tensor.ty
                );
                let field = Field::TensorOffset(&tensor.name);
                return Err(field.malformed(cursor.file(), tensor.offset_at, problem));
            }
        }
    }
    Ok(())
}

fn refuse_overlap(file: &str, tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        let [first, second] = pair else { continue };
        if first.end() > second.offset {
            let problem = format!(
                "its data, from byte {} on, overlaps tensor {} (bytes {} to {})",
                second.offset,
                quote(&first.name),
                first.offset,
                first.end()
            );
            return Err(Field::TensorOffset(&second.name).malformed(file, second.offset_at, problem));
        }
    }
    Ok(())
}
