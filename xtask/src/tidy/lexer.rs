//! Tells Rust code from comments and literals, as far as word searches need it.

/// A source text taken apart; each part keeps the line structure of the whole, so that line numbers agree.
pub(crate) struct Parts {
    /// The code, with blanks for comments and for what is inside literals.
    pub(crate) code: String,
    /// The comments, with blanks for everything else.
    pub(crate) comments: String,
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// Block comments nest: how deep.
    BlockComment(usize),
    /// In a string with escapes.
    Text,
    /// In a raw string, which ends with a quote and so many hashes.
    RawText(usize),
}

/// Takes a Rust source text apart.
pub(crate) fn split(source: &str) -> Parts {
    let chars: Vec<char> = source.chars().collect();
    let mut parts = Parts { code: String::new(), comments: String::new() };
    let (mut state, mut at) = (State::Code, 0);
    while at < chars.len() {
        let (next, taken) = step(state, &chars, at);
        for &c in &chars[at..at + taken] {
            parts.push(state, next, c);
        }
        at += taken;
        state = next;
    }
    parts
}

impl Parts {
    fn push(&mut self, before: State, after: State, c: char) {
        let is_comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
        let is_code = matches!((before, after), (State::Code, State::Code));
        let blank = if c == '\n' { '\n' } else { ' ' };
        self.code.push(if is_code { c } else { blank });
        self.comments.push(if is_comment(before) { c } else { blank });
    }
}

/// The state after the characters at `at`, and how many of them were taken.
fn step(state: State, chars: &[char], at: usize) -> (State, usize) {
    let starts = |text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    match state {
        State::Code => step_code(chars, at),
        State::LineComment => (if chars[at] == '\n' { State::Code } else { State::LineComment }, 1),
        State::BlockComment(1) if starts("*/") => (State::Code, 2),
        State::BlockComment(depth) if starts("*/") => (State::BlockComment(depth - 1), 2),
        State::BlockComment(depth) if starts("/*") => (State::BlockComment(depth + 1), 2),
        State::BlockComment(_) => (state, 1),
        State::Text if chars[at] == '\\' => (state, 2.min(chars.len() - at)),
        State::Text => (if chars[at] == '"' { State::Code } else { state }, 1),
        State::RawText(hashes) => {
            let is_end = chars[at] == '"' && (1..=hashes).all(|i| chars.get(at + i) == Some(&'#'));
            if is_end { (State::Code, 1 + hashes) } else { (state, 1) }
        }
    }
}

fn step_code(chars: &[char], at: usize) -> (State, usize) {
    let next = chars.get(at + 1);
    match chars[at] {
        '/' if next == Some(&'/') => (State::LineComment, 2),
        '/' if next == Some(&'*') => (State::BlockComment(1), 2),
        '"' => (State::Text, 1),
        'r' if !at.checked_sub(1).is_some_and(|before| is_word(chars[before])) => raw_text(chars, at),
        '\'' => (State::Code, char_literal(chars, at)),
        _ => (State::Code, 1),
    }
}

/// `r"`, `r#"` and so on open a raw string; `r#name` and names in `r` do not.
fn raw_text(chars: &[char], at: usize) -> (State, usize) {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) == Some(&'"') {
        (State::RawText(hashes), 2 + hashes)
    } else {
        (State::Code, 1)
    }
}

/// How many characters the literal (`'x'`, `'\n'`) or the start of a lifetime takes.
fn char_literal(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => {
            let rest = chars[at + 3..].iter().take_while(|&&c| c != '\'' && c != '\n').count();
            (4 + rest).min(chars.len() - at)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// Whether a character can be part of a Rust name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let check = |source: &str, code: &str, comments: &str| {
            let parts = split(source);
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!((words(&parts.code), words(&parts.comments)), (code.to_owned(), comments.to_owned()));
            assert_eq!(parts.code.lines().count(), source.lines().count());
        };
        check("let a = 1; // one\nlet b;", "let a = 1; let b;", "one");
        check("a /* x /* y */ z */ b", "a b", "x /* y */ z */");
        check(r#"f("todo // no", c)"#, "f( , c)", "");
        check(r#"f("a\"b", c)"#, "f( , c)", "");
        check(r##"f(r#"x " y"#, c)"##, "f( , c)", "");
        check(
            "fn f<'a>(x: &'a str, q: char) { q == '\"' || q == '\\'' }",
            "fn f<'a>(x: &'a str, q: char) { q == '\"' || q == '\\'' }",
            "",
        );
        check("for r in xs {}", "for r in xs {}", "");
    }
}
