//! The step loop: schedule, execute, sample, publish.
