//! What was used, by whom: events, their way into the database, and reports.

mod calendar;
mod event;
mod export;
mod insert;
mod journal;
mod reader;
mod report;
mod writer;

pub use calendar::{date_of, day_of, day_of_date, month_of};
pub use event::{UsageEvent, UsageFinish, UsageId};
pub use export::{CSV_HEADER, Span};
pub use journal::{JournalError, Recorded};
pub use report::{DailyUsage, UsageGroup, UsageQuery, UsageSum};
pub use writer::{UsageWriter, UsageWriterOptions, UsageWriterStatus};
