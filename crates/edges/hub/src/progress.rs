/// Hears how a download goes. Called from the task that downloads, so it must not block for long.
pub trait Progress: Send + Sync {
    /// `file` has `total` bytes, `done` of which are here already.
    fn start(&self, file: &str, done: u64, total: u64);

    /// `done` bytes are here; it may fall when a server can't resume.
    fn advance(&self, done: u64);

    /// Something a person who waits wants to know, such as a retry.
    fn note(&self, message: &str);

    /// The file is complete and checked.
    fn finish(&self);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _file: &str, _done: u64, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, _message: &str) {}
    fn finish(&self) {}
}
