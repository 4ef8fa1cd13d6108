//! The daemon sjpd and the command sjp: reads the cluster, publishes the
//! table, keeps waiting jobs current, and tells people what was decided.
#![forbid(unsafe_code)]

pub mod actuator;
pub mod cli;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod journal;
pub mod lock;
pub mod logging;
pub mod notify;
pub mod ports;
pub mod slurm;
pub mod start;
pub mod status;
pub mod undo;
