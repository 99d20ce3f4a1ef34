//! Passwords from the person or the pipe.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal};

use motet_store::Secret;
use rustyline::{
    ColorMode, Editor, Helper,
    completion::Completer,
    config::Configurer,
    error::ReadlineError,
    highlight::{CmdKind, Highlighter},
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

use crate::failure::Failure;

/// Asks twice on a terminal; elsewhere reads a line.
pub(super) fn ask(login: &str) -> Result<Secret, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return read_line();
    }
    // Terminals without colours would show what is typed: colours are how it is hidden.
    let config = rustyline::Config::builder().color_mode(ColorMode::Forced).auto_add_history(false).build();
    let mut editor = Editor::with_history(config, MemHistory::new()).map_err(Failure::runtime)?;
    editor.set_max_history_size(0).map_err(Failure::runtime)?;
    editor.set_helper(Some(Mask));
    let mut read = |prompt: &str| match editor.readline(prompt) {
        Ok(text) => Ok(text),
        Err(ReadlineError::Eof | ReadlineError::Interrupted) => {
            Err(Failure::usage("no password was typed; nothing was changed"))
        }
        Err(error) => Err(Failure::runtime(error)),
    };
    let password = read(&format!("New password of {login}: "))?;
    if read("Once more: ")? != password {
        return Err(Failure::usage("the two passwords differ; nothing was changed"));
    }
    Ok(Secret::new(password))
}

/// The first line of standard input.
pub(super) fn read_line() -> Result<Secret, Failure> {
    first_line(&mut io::stdin().lock())
}

fn first_line(input: &mut impl BufRead) -> Result<Secret, Failure> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Failure::usage(format!("standard input: {e}")))?;
    let line = line.trim_end_matches(['\n', '\r']);
    if line.is_empty() {
        return Err(Failure::usage("standard input has no password; write one on its first line"));
    }
    Ok(Secret::new(line))
}

/// Shows stars for what is typed.
struct Mask;

impl Highlighter for Mask {
    fn highlight<'l>(&self, line: &'l str, _pos: usize) -> Cow<'l, str> {
        Cow::Owned("*".repeat(line.chars().count()))
    }

    fn highlight_char(&self, _line: &str, _pos: usize, kind: CmdKind) -> bool {
        !matches!(kind, CmdKind::MoveCursor)
    }
}

impl Completer for Mask {
    type Candidate = String;
}

impl Hinter for Mask {
    type Hint = String;
}

impl Validator for Mask {}
impl Helper for Mask {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let check = |input: &str, want: Option<&str>| {
            let got = first_line(&mut input.as_bytes()).ok();
            assert_eq!(got.as_ref().map(Secret::expose), want, "{input:?}");
        };
        check("correct horse\nmore\n", Some("correct horse"));
        check(" spaces stay \r\n", Some(" spaces stay "));
        check("no newline", Some("no newline"));
        check("\n", None);
        check("", None);
    }
}
