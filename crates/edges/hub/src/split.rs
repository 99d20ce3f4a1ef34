//! Models in several files, `NAME-00001-of-00003.gguf` and so on. The first part stands for the set.

/// Most parts a set may have: a bound on what one name makes Motet fetch.
const MOST_PARTS: u32 = 1000;

/// What the name of a part says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    /// Everything before the numbers, folders included.
    pub(crate) prefix: &'a str,
    /// From 1.
    pub(crate) number: u32,
    /// Parts of the set, at least 2: a set of one is a plain file.
    pub(crate) count: u32,
}

impl<'a> PartName<'a> {
    /// Reads a file name; `None` where it is not that of a part.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let is_part = extension.eq_ignore_ascii_case("gguf")
            && (2..=MOST_PARTS).contains(&count)
            && (1..=count).contains(&number);
        is_part.then_some(Self { prefix, number, count })
    }

    /// The name of another part.
    pub(crate) fn name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// The files that make up the model that `name` names, first part first; `name` alone where it is whole.
pub(crate) fn parts(name: &str) -> Vec<String> {
    match PartName::parse(name) {
        Some(part) => (1..=part.count).map(|number| part.name(number)).collect(),
        None => vec![name.to_owned()],
    }
}

fn five_digits(text: &str) -> Option<u32> {
    let is_number = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let check = |name: &str, expected: &[&str]| assert_eq!(parts(name), expected);
        check("a.gguf", &["a.gguf"]);
        check("a-00001-of-00001.gguf", &["a-00001-of-00001.gguf"]);
        check("x/a-00002-of-00002.gguf", &["x/a-00001-of-00002.gguf", "x/a-00002-of-00002.gguf"]);
        check("a-00003-of-00002.gguf", &["a-00003-of-00002.gguf"]);
        check("a-1-of-2.gguf", &["a-1-of-2.gguf"]);
        check("a-00001-of-99999.gguf", &["a-00001-of-99999.gguf"]);
    }
}
