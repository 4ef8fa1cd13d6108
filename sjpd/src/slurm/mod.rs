//! The cluster behind Slurm's own commands: the runner that starts them, and
//! the adapter that makes records of what they print.

pub mod runner;

pub use runner::{RunError, Runner};
