//! Lines and blocks from the person or the pipe.

use std::io::{self, BufRead, IsTerminal};

use rustyline::{
    Cmd, ConditionalEventHandler, Context, Editor, Event, EventContext, EventHandler, Helper, KeyEvent,
    Movement, RepeatCount,
    completion::Completer,
    config::Configurer,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::commands::COMMANDS;
use crate::failure::Failure;

const QUOTES: &str = "\"\"\"";
const PROMPT: &str = "› ";

/// Where messages come from.
pub(super) enum Input {
    /// A terminal, with editing and history in memory.
    Editor(Box<Editor<ChatHelper, MemHistory>>),
    /// A pipe or file.
    Lines,
}

impl Input {
    /// An editor on a terminal, plain lines elsewhere.
    pub(super) fn open() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Lines);
        }
        let config = rustyline::Config::builder().bracketed_paste(true).build();
        let mut editor = Editor::with_history(config, MemHistory::new()).map_err(Failure::runtime)?;
        editor.set_helper(Some(ChatHelper));
        editor.set_auto_add_history(true);
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(ClearOrLeave)));
        Ok(Self::Editor(Box::new(editor)))
    }

    /// The next message or command; `None` when there are no more.
    pub(super) fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::Editor(editor) => match editor.readline(PROMPT) {
                Ok(text) => Ok(Some(joined(&text))),
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(error) => Err(Failure::runtime(error)),
            },
            Self::Lines => next_of_lines(&mut io::stdin().lock()),
        }
    }
}

fn next_of_lines(lines: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    loop {
        let read =
            lines.read_line(&mut text).map_err(|e| Failure::runtime(format!("standard input: {e}")))?;
        let whole = text.trim_end_matches(['\n', '\r']);
        if read == 0 {
            return Ok((!whole.is_empty()).then(|| joined(whole)));
        }
        if is_complete(whole) {
            return Ok(Some(joined(whole)));
        }
    }
}

/// Whether `text` needs no further line: no open `"""` block and no `\` at its end.
fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    match trimmed.strip_prefix(QUOTES) {
        Some(rest) => rest.ends_with(QUOTES),
        None => !text.ends_with('\\'),
    }
}

/// The message that `text` spells: without the quotes of a block, or with continued lines joined.
fn joined(text: &str) -> String {
    let trimmed = text.trim();
    if let Some(rest) = trimmed.strip_prefix(QUOTES) {
        return rest.strip_suffix(QUOTES).unwrap_or(rest).trim_matches('\n').to_owned();
    }
    text.replace("\\\r\n", "\n").replace("\\\n", "\n").trim_end_matches('\\').to_owned()
}

/// Ctrl-C empties the line; on an empty one it leaves.
struct ClearOrLeave;

impl ConditionalEventHandler for ClearOrLeave {
    fn handle(
        &self,
        _event: &Event,
        _count: RepeatCount,
        _positive: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        Some(if context.line().is_empty() { Cmd::Interrupt } else { Cmd::Kill(Movement::WholeBuffer) })
    }
}

/// Tells the editor when a message is complete, and completes commands.
pub(super) struct ChatHelper;

impl Helper for ChatHelper {}
impl Highlighter for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_complete = is_complete(context.input());
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for ChatHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let known = COMMANDS.iter().map(|(name, _)| *name);
        let fitting = known.filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, fitting.map(str::to_owned).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_continued_lines_are_one_message() {
        let check = |input: &str, expected: &[&str]| {
            let mut reader = input.as_bytes();
            let mut got = Vec::new();
            while let Some(message) = next_of_lines(&mut reader).unwrap() {
                got.push(message);
            }
            assert_eq!(got, expected, "{input:?}");
        };
        check("", &[]);
        check("a\n\nb", &["a", "", "b"]);
        check("a\\\nb\\\nc\nd\n", &["a\nb\nc", "d"]);
        check("a\\\r\nb\r\n", &["a\nb"]);
        check("\"\"\"\nfn a() {\n\n}\n\"\"\"\nnext\n", &["fn a() {\n\n}", "next"]);
        check("\"\"\"one line\"\"\"\n", &["one line"]);
        check("\"\"\"never closed\nx", &["never closed\nx"]);
        check("ends with \\", &["ends with "]);
    }
}
