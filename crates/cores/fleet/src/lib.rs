//! What a server decides over all its replicas: which model answers, and what it gives up first when there is too much
//! to do.

mod ladder;
pub use ladder::{Change, LONGEST_GAP, Ladder, LadderConfig, LaneSignal, Measures, Rung, Signals, Standing};

mod returns;
pub use returns::{Arrival, LaneView, Returns, ReturnsConfig, Terms};
