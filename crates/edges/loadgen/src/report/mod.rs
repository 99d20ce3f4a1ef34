//! Results: as data, as a table, as a page with plots.

mod charts;
mod html;
mod model;
mod svg;
mod table;

pub use html::html;
pub use model::{Probe, Report, Row, SearchResult, Settings, TargetInfo};
pub use table::table;
