//! Models cut into several GGUF files by `llama-gguf-split`: `NAME-00001-of-00003.gguf` and so on.
//!
//! File names count from 1, the `split.no` key inside counts from 0. The first part has the metadata;
//! later ones repeat only the `split.` keys. `split.tensors.count` is the number in all parts together.
//! A set is used only when every part is there and agrees with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Gguf;
use super::error::{Field, GgufError, one_line, quote};
use super::header::Header;
use super::source::Source;
use super::tensor_type::TensorType;

const PART_NUMBER: &str = "split.no";
const PART_COUNT: &str = "split.count";
const TENSOR_COUNT: &str = "split.tensors.count";
/// Missing files that a message lists by name.
const LISTED: usize = 3;
/// Weight roles two parts must share before their types say anything about a mix-up.
const ROLES_TO_JUDGE: usize = 3;

/// What the name of a part says: `prefix-00002-of-00003.gguf` is part 2 of 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartName {
    pub prefix: String,
    pub number: u32,
    pub count: u32,
}

impl PartName {
    /// Reads a file name; `None` where it is not that of a part.
    pub(super) fn parse(file_name: &str) -> Option<Self> {
        let (stem, extension) = file_name.rsplit_once('.')?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let five_digits = |text: &str| match text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse::<u32>().ok(),
            false => None,
        };
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let is_part = extension.eq_ignore_ascii_case("gguf") && !prefix.is_empty();
        is_part.then(|| PartName { prefix: prefix.to_owned(), number, count })
    }

    /// The part that `path` is by its name, or by the name of the file it links to. A set of one is no set.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, GgufError> {
        let Some(part) = path.file_name().and_then(OsStr::to_str).and_then(Self::parse) else {
            return Ok(None);
        };
        if part.number == 0 || part.number > part.count {
            let problem = format!("the name says part {} of {}, which cannot be", part.number, part.count);
            return Err(GgufError::selection(path.display(), problem));
        }
        Ok((part.count > 1).then_some(part))
    }

    fn file_name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// Whether a file name is that of a piece of a file cut at arbitrary bytes.
pub(super) fn is_byte_piece(file_name: &str) -> bool {
    let lower = file_name.to_ascii_lowercase();
    lower.contains(".gguf.part") || lower.contains(".gguf-split-")
}

/// Refuses `NAME.gguf.part1of2`: the first piece has a valid header and would pass for a damaged model.
pub(super) fn refuse_byte_piece(path: &Path) -> Result<(), GgufError> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if !is_byte_piece(&name) {
        return Ok(());
    }
    let problem = "this is one piece of a GGUF file that was cut at arbitrary bytes; join all pieces in order \
                   (cat NAME.gguf.part* > NAME.gguf) and give the joined file";
    Err(GgufError::selection(path.display(), problem))
}

/// Refuses a part whose name does not say so: its siblings cannot be found.
pub(super) fn refuse_lone_part(file: &str, header: &Header) -> Result<(), GgufError> {
    let count = split_number(file, header, PART_COUNT)?.unwrap_or(1);
    if count <= 1 {
        return Ok(());
    }
    let number =
        split_number(file, header, PART_NUMBER)?.map_or_else(|| "one".to_owned(), |no| (no + 1).to_string());
    let problem = format!(
        "this is part {number} of {count} of a split model; give it back its name, NAME-0000N-of-{count:05}.gguf, \
         beside the other parts"
    );
    Err(GgufError::selection(file, problem))
}

/// Opens the set that the part at `path` belongs to.
pub(super) fn open_set(path: &Path, part: &PartName) -> Result<Gguf, GgufError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let given = path.file_name().unwrap_or_default();
    let paths: Vec<PathBuf> = (1..=part.count)
        .map(|number| {
            folder.join(if number == part.number {
                given.into()
            } else {
                PathBuf::from(part.file_name(number))
            })
        })
        .collect();
    refuse_missing(path, &paths)?;
    let mut parts: Vec<(Source, Header)> = Vec::with_capacity(paths.len());
    for (number, path) in paths.iter().enumerate() {
        let source = Source::open(path)?;
        let header = Header::read(&source.name, source.bytes())?;
        check_position(&source.name, &header, number as u64, part.count)?;
        if let Some((first, first_header)) = parts.first() {
            check_kinship((&first.name, first_header), (&source.name, &header))?;
        }
        parts.push((source, header));
    }
    check_total(&parts)?;
    Gguf::assemble(path.to_owned(), parts)
}

fn refuse_missing(given: &Path, paths: &[PathBuf]) -> Result<(), GgufError> {
    let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut names: Vec<String> =
        missing.iter().take(LISTED).map(|path| one_line(&path.display().to_string())).collect();
    if missing.len() > LISTED {
        names.push(format!("{} more", missing.len() - LISTED));
    }
    let problem = format!("this is a part of a split model, of which {} is missing", names.join(", "));
    Err(GgufError::selection(given.display(), problem))
}

/// The part must say inside what its name says outside.
fn check_position(file: &str, header: &Header, index: u64, count: u32) -> Result<(), GgufError> {
    let declared = split_number(file, header, PART_COUNT)?;
    if declared != Some(u64::from(count)) {
        let inside = declared.map_or_else(|| "no count".to_owned(), |n| n.to_string());
        let problem =
            format!("the name says {count} parts, the file says {inside}; it belongs to another set");
        return Err(split_error(file, header, PART_COUNT, problem));
    }
    let declared = split_number(file, header, PART_NUMBER)?;
    if declared != Some(index) {
        let inside = declared.map_or_else(|| "no number".to_owned(), |n| format!("part {}", n + 1));
        let problem =
            format!("the name says part {}, the file says {inside}; put the right part there", index + 1);
        return Err(split_error(file, header, PART_NUMBER, problem));
    }
    Ok(())
}

/// A later part must not contradict the first one.
fn check_kinship((first, ours): (&str, &Header), (file, theirs): (&str, &Header)) -> Result<(), GgufError> {
    for entry in theirs.metadata.entries().iter().filter(|entry| entry.key != PART_NUMBER) {
        if ours.metadata.entry(&entry.key).is_some_and(|other| other.value != entry.value) {
            let problem = format!(
                "{} differs from that of {first}; the parts are of different models",
                entry.value.describe()
            );
            return Err(split_error(file, theirs, &entry.key, problem));
        }
    }
    let (shared, differing) = compare_types(&roles(ours), &roles(theirs));
    if shared >= ROLES_TO_JUDGE && differing * 2 > shared {
        let types: BTreeSet<&str> = roles(theirs).into_values().flatten().map(TensorType::name).collect();
        let types: Vec<&str> = types.into_iter().collect();
        let problem = format!(
            "its weights are {}, unlike those of {first}; the parts are of different quantisations of the model",
            types.join(" and ")
        );
        return Err(GgufError::selection(file, problem));
    }
    Ok(())
}

/// The types that weight matrices of each role have: `blk.3.attn_q.weight` has the role `attn_q.weight`.
/// A single part's mix of types proves nothing, since recipes vary them by role and by layer.
fn roles(header: &Header) -> BTreeMap<&str, BTreeSet<TensorType>> {
    let mut roles: BTreeMap<&str, BTreeSet<TensorType>> = BTreeMap::new();
    for tensor in header.tensors.iter().filter(|tensor| tensor.shape().len() > 1) {
        let role = tensor.name().strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        if let Some((_, role)) = role {
            roles.entry(role).or_default().insert(tensor.ty());
        }
    }
    roles
}

/// How many roles two parts share, and for how many of those they have no type in common.
fn compare_types(
    ours: &BTreeMap<&str, BTreeSet<TensorType>>,
    theirs: &BTreeMap<&str, BTreeSet<TensorType>>,
) -> (usize, usize) {
    let shared = ours.iter().filter_map(|(role, types)| Some((types, theirs.get(role)?)));
    shared.fold((0, 0), |(count, differing), (a, b)| (count + 1, differing + usize::from(a.is_disjoint(b))))
}

fn check_total(parts: &[(Source, Header)]) -> Result<(), GgufError> {
    let Some((source, header)) = parts.first() else { return Ok(()) };
    let found: usize = parts.iter().map(|(_, header)| header.tensors.len()).sum();
    match split_number(&source.name, header, TENSOR_COUNT)? {
        Some(declared) if declared != found as u64 => {
            let problem = format!("{declared} tensors declared, {found} found in the {} parts", parts.len());
            Err(split_error(&source.name, header, TENSOR_COUNT, problem))
        }
        _ => Ok(()),
    }
}

fn split_number(file: &str, header: &Header, key: &str) -> Result<Option<u64>, GgufError> {
    let Some(entry) = header.metadata.entry(key) else { return Ok(None) };
    match entry.value.as_integer().and_then(|v| u32::try_from(v).ok()) {
        Some(number) => Ok(Some(number.into())),
        None => {
            let problem = format!("expected a count, found {}", entry.value.describe());
            Err(split_error(file, header, key, problem))
        }
    }
}

fn split_error(file: &str, header: &Header, key: &str, problem: String) -> GgufError {
    match header.metadata.entry(key) {
        Some(entry) => Field::Value(key).malformed(file, entry.value_at(), problem),
        None => GgufError::selection(file, format!("{problem} ({} is absent)", quote(key))),
    }
}
