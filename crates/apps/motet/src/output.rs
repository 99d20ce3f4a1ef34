//! Standard output and what a terminal allows.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Writes `text` to standard output at once.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Tells the person at the terminal something that is not output. Nobody may be reading it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// `text` in a faint colour where `stream` is a terminal that shows it.
pub(crate) fn dim(text: &str, stream: &impl IsTerminal) -> String {
    if stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("\x1b[2m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// `text` for a terminal: control characters that a model or a file put there can't steer it.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
