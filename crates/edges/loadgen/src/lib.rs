//! A load generator for OpenAI-compatible servers.
//!
//! An [`Experiment`] says what is sent to which servers and when; [`run`] sends it and gives a [`Report`], which is
//! shown as a table ([`table`]) or a page with plots ([`html`]), and saved and read as JSON.
//!
//! What is decided before anything is sent is pure and seeded: prompts (`workload`), arrival times (`arrivals`),
//! recorded loads (`trace`), the next rate of a search (`search`). `client` times one request, `drive` keeps the right
//! number in flight, `suite` goes through rows, repeats and targets, `summary` and `stats` say what came of it.

mod arrivals;
mod client;
mod drive;
mod error;
mod report;
mod rng;
mod search;
mod slo;
mod sse;
mod stats;
mod suite;
mod summary;
mod targets;
mod trace;
mod wire;
mod words;
mod workload;

pub use arrivals::Load;
pub use error::LoadError;
pub use report::{Probe, Report, Row, SearchResult, Settings, TargetInfo, html, table};
pub use search::FindRate;
pub use slo::{Slo, duration};
pub use stats::{Estimate, Spread};
pub use suite::{Experiment, Progress, Silent, run};
pub use summary::{Summary, Timeline};
pub use targets::{Target, baseline};
pub use trace::{MAX_TRACE_BYTES, TraceRow, read_trace};
pub use wire::{Endpoint, RequestOptions};
pub use words::TokenScale;
pub use workload::{Caps, GivenPrompt, GivenText, Lengths, Workload, read_prompts};
