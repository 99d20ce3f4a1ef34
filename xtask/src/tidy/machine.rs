//! Paths that exist on one machine only.

use super::{Finding, SourceFile};
use crate::paths;

/// The folders that a path of this machine starts with: the user's home and the project.
pub(crate) fn folders() -> Vec<String> {
    let home = std::env::var("HOME").ok();
    let project = paths::root().to_str().map(str::to_owned);
    let is_telling = |folder: &String| folder.trim_end_matches('/').len() > 1;
    let with_slash = |folder: String| format!("{}/", folder.trim_end_matches('/'));
    home.into_iter().chain(project).filter(is_telling).map(with_slash).collect()
}

/// Every line of the file with such a path.
pub(crate) fn check(file: &SourceFile, folders: &[String]) -> Vec<Finding> {
    let has_path = |line: &str| folders.iter().any(|folder| line.contains(folder.as_str()));
    let hits = file.text.lines().enumerate().filter(|(_, line)| has_path(line));
    let what = "a path of this machine: use ~ or a path from the project's root";
    hits.map(|(index, _)| Finding::error(format!("{}:{}", file.path, index + 1), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_machine_are_found() {
        let folders = ["/home/me/".to_owned()];
        let check = |text: &str, expected: usize| {
            let file = SourceFile { path: "a.md".to_owned(), text: text.to_owned() };
            assert_eq!(check(&file, &folders).len(), expected, "{text}");
        };
        check("see /home/me/x\nor ~/x", 1);
        check("see /home/you/x", 0);
    }
}
