//! Running other programs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// The full path of the first file on `PATH` with this name.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A command that runs in the project's root and does not read the terminal.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(crate::paths::root()).stdin(Stdio::null());
    command
}

/// The cargo that started this task, so that a toolchain override stays in force.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command with its output on the terminal; a failure names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    check(status, &shown)
}

/// Runs a command and returns what it wrote to stdout.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why = stderr.trim().lines().last().unwrap_or("it does not say why");
        bail!("`{shown}` failed ({}): {why}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command run by [`tee`] did.
pub(crate) struct Teed {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// What it wrote to stdout and stderr, as it came.
    pub(crate) text: String,
}

/// Runs a command, shows what it writes, and keeps a copy.
pub(crate) fn tee(command: &mut Command) -> Result<Teed> {
    let shown = shown(command);
    if std::io::stdout().is_terminal() {
        // The pipe hides the terminal from the program; these keep its colours.
        command.env("CARGO_TERM_COLOR", "always").env("FORCE_COLOR", "1");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let copy = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, Arc::clone(&copy))),
        child.stderr.take().map(|pipe| forward(pipe, Arc::clone(&copy))),
    ];
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    for reader in readers.into_iter().flatten() {
        // A reader ends when its pipe does; a panic in it has already been printed.
        let _ = reader.join();
    }
    let bytes = copy.lock().map(|bytes| bytes.clone()).unwrap_or_default();
    Ok(Teed { status, text: String::from_utf8_lossy(&bytes).into_owned() })
}

fn forward(mut pipe: impl Read + Send + 'static, copy: Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let mut stdout = std::io::stdout().lock();
            // A closed terminal must not stop the program from being drained.
            let _ = stdout.write_all(&buffer[..count]).and_then(|()| stdout.flush());
            if let Ok(mut copy) = copy.lock() {
                copy.extend_from_slice(&buffer[..count]);
            }
        }
    })
}

/// An error unless the command ended well.
pub(crate) fn check(status: ExitStatus, shown: &str) -> Result<()> {
    if status.success() { Ok(()) } else { bail!("`{shown}` failed ({status})") }
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
