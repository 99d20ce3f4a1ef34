//! What a server decides over all its replicas: which model answers, and what it gives up first when there is too much
//! to do.

mod choose;
mod facts;
mod ladder;
mod returns;

pub use choose::{AUTO, Asked, Auto, Candidate, Choice, Pressure, Readiness, Role, Why, choose};
pub use facts::{Effort, Facts, Level, Signs, tokens_of};
pub use ladder::{Change, LONGEST_GAP, Ladder, LadderConfig, LaneSignal, Measures, Rung, Signals, Standing};
pub use returns::{Arrival, LaneView, Returns, ReturnsConfig, Terms};
