//! Files and batches as the API shows them.

use motet_store::{Batch, FileInfo};
use serde::Serialize;
use serde_json::Value;

/// A file.
#[derive(Debug, Serialize)]
pub(crate) struct FileObject {
    pub(crate) id: String,
    object: &'static str,
    bytes: u64,
    created_at: i64,
    expires_at: Option<i64>,
    filename: String,
    purpose: String,
    status: &'static str,
    status_details: Option<()>,
}

/// A file that is gone.
#[derive(Debug, Serialize)]
pub(crate) struct FileDeleted {
    pub(crate) id: String,
    pub(crate) object: &'static str,
    pub(crate) deleted: bool,
}

/// A batch.
#[derive(Debug, Serialize)]
pub(crate) struct BatchObject {
    pub(crate) id: String,
    object: &'static str,
    endpoint: String,
    errors: Option<Problems>,
    input_file_id: String,
    completion_window: &'static str,
    status: &'static str,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
    created_at: i64,
    in_progress_at: Option<i64>,
    expires_at: i64,
    finalizing_at: Option<i64>,
    completed_at: Option<i64>,
    failed_at: Option<i64>,
    expired_at: Option<i64>,
    cancelling_at: Option<i64>,
    cancelled_at: Option<i64>,
    request_counts: Counts,
    metadata: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Problems {
    object: &'static str,
    data: Value,
}

#[derive(Debug, Serialize)]
struct Counts {
    total: u64,
    completed: u64,
    failed: u64,
}

/// The only window there is.
pub(crate) const WINDOW: &str = "24h";

impl From<FileInfo> for FileObject {
    fn from(file: FileInfo) -> Self {
        Self {
            id: file.id.as_str().to_owned(),
            object: "file",
            bytes: file.bytes,
            created_at: seconds(file.created_at),
            expires_at: file.expires_at.map(seconds),
            filename: file.name,
            purpose: file.purpose,
            status: "processed",
            status_details: None,
        }
    }
}

impl From<Batch> for BatchObject {
    fn from(batch: Batch) -> Self {
        let (times, counts) = (batch.times, batch.counts);
        let at = |time: Option<i64>| time.map(seconds);
        // What is stored was written by this crate.
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        Self {
            id: batch.id.as_str().to_owned(),
            object: "batch",
            endpoint: batch.endpoint,
            errors: json(batch.problems).map(|data| Problems { object: "list", data }),
            input_file_id: batch.input.as_str().to_owned(),
            completion_window: WINDOW,
            status: batch.status.as_str(),
            output_file_id: batch.output.map(|id| id.as_str().to_owned()),
            error_file_id: batch.errors.map(|id| id.as_str().to_owned()),
            created_at: seconds(times.created),
            in_progress_at: at(times.in_progress),
            expires_at: seconds(times.expires),
            finalizing_at: at(times.finalizing),
            completed_at: at(times.completed),
            failed_at: at(times.failed),
            expired_at: at(times.expired),
            cancelling_at: at(times.cancelling),
            cancelled_at: at(times.cancelled),
            request_counts: Counts {
                total: counts.total,
                completed: counts.completed,
                failed: counts.failed,
            },
            metadata: json(batch.metadata),
        }
    }
}

fn seconds(ms: i64) -> i64 {
    ms.div_euclid(1000)
}
