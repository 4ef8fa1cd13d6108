//! Placement on a real Slurm: real submissions, against what they should have led to.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod accepted;
mod burst;
mod common;
mod cores;
mod hostile;
mod nodes;
mod reasons;
mod settings;
mod shapes;
