use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use motet_store::{BatchBounds, FileBounds, Whose};

/// Where the wall clock is read: milliseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Bounds and places of [`Batches`](crate::Batches).
#[derive(Clone)]
pub struct BatchConfig {
    /// Where the contents of files are. It is made when the first file comes.
    pub folder: PathBuf,
    /// Whose batches are run: accounts', or nobody's where there are none.
    pub whose: Whose,
    /// Longest file in bytes: 200 MB, as OpenAI's batches take.
    pub max_file_bytes: u64,
    /// Most that a tenant may keep: 10,000 files and 10 GiB by default, fifty of the longest.
    pub per_tenant: FileBounds,
    /// Uploads at once; more get 503. Each holds a buffer of about 2 MiB and a place on the disk that is not counted
    /// before it ends.
    pub uploads: usize,
    /// How long an upload may take: 200 MB in ten minutes is 340 kB/s.
    pub upload_timeout: Duration,
    /// Batches that have not ended. Each waiting one is a row; the runner looks at all of them. A user's 50 are
    /// 2.5 million lines.
    pub batches: BatchBounds,
    /// Most lines of a batch: 50,000, as OpenAI's. The place of each is kept in memory while the batch runs, 48 bytes.
    pub max_lines: usize,
    /// Longest line: what the gateway takes as a body.
    pub max_line_bytes: usize,
    /// Lines of all batches that are sent at once. They run in what others leave; more of them only wait in the
    /// engine's queue.
    pub lines_at_once: usize,
    /// Batches that run at once; they take turns line by line.
    pub batches_at_once: usize,
    /// How long a batch may take: `completion_window`.
    pub window: Duration,
    /// How long answers are kept.
    pub keep_output: Duration,
    /// The first wait after a refusal that names no time; each further one doubles it.
    pub first_wait: Duration,
    /// The longest wait between two attempts.
    pub longest_wait: Duration,
    /// How often a run writes down how far it is and makes sure that its answers are on the disk.
    pub progress: Duration,
    /// How often the runner looks for batches that another process was asked for, and for the lock when that has ended.
    pub look: Duration,
    /// The wall clock.
    pub clock: WallClock,
}

impl BatchConfig {
    /// The usual bounds.
    pub fn new(folder: PathBuf, whose: Whose) -> Self {
        Self {
            folder,
            whose,
            max_file_bytes: 200_000_000,
            per_tenant: FileBounds { files: 10_000, bytes: 10 << 30 },
            uploads: 8,
            upload_timeout: Duration::from_secs(600),
            batches: BatchBounds { of_user: 50, of_all: 1_000 },
            max_lines: 50_000,
            max_line_bytes: 4 << 20,
            lines_at_once: 8,
            batches_at_once: 16,
            window: Duration::from_secs(24 * 3600),
            keep_output: Duration::from_secs(30 * 24 * 3600),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            progress: Duration::from_secs(1),
            look: Duration::from_secs(5),
            clock: Arc::new(now),
        }
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// A moment from now.
    pub(crate) fn after(&self, time: Duration) -> i64 {
        self.now().saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
