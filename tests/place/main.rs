//! Placement on a real Slurm: real submissions, against what they should have led to.

mod common;
mod shapes;
