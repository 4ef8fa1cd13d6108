//! The cluster behind Slurm's own commands: the runner that starts them, and
//! the adapter that makes records of what they print.

pub(crate) mod accounting;
mod commands;
mod heartbeat;
pub mod runner;

pub(crate) use commands::nonce;
pub use commands::{SlurmCommands, runner as runner_for};
pub use runner::{RunError, Runner};
