use std::{fmt::Display, io, process::ExitCode};

/// How a command ends when it does not succeed: one line on stderr and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

/// Who can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The caller: flags, configuration, model file, port. Exit code 2.
    Usage,
    /// It went wrong while running. Exit code 1.
    Runtime,
    /// Ctrl-C. Exit code 130, as shells report it.
    Interrupted,
    /// Whoever read our output left, such as `head`. Nothing to say; exit code 0.
    ReaderLeft,
}

impl Failure {
    /// What the caller asked for can't be done.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { kind: Kind::Usage, message: message.to_string() }
    }

    /// It went wrong while running.
    pub(crate) fn runtime(message: impl Display) -> Self {
        Self { kind: Kind::Runtime, message: message.to_string() }
    }

    /// The user stopped it.
    pub(crate) fn interrupted() -> Self {
        Self { kind: Kind::Interrupted, message: String::new() }
    }

    /// Our output could not be written.
    pub(crate) fn output(error: io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::ReaderLeft } else { Kind::Runtime };
        Self { kind, message: format!("the output can't be written: {error}") }
    }

    /// The line for a person, where there is something to say. Always one line.
    pub(crate) fn line(&self) -> Option<String> {
        let words = || self.message.split_whitespace().collect::<Vec<_>>().join(" ");
        matches!(self.kind, Kind::Usage | Kind::Runtime).then(words)
    }

    /// 2 for the caller's mistakes, 1 for failures while running, 130 for Ctrl-C.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Usage => 2,
            Kind::Runtime => 1,
            Kind::Interrupted => 130,
            Kind::ReaderLeft => 0,
        })
    }
}
