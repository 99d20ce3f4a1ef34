//! Decides what runs in the next step.
