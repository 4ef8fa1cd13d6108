//! The pure heart of sjp: what a cluster and a job look like, where a job
//! fits, and what to do about it.
//!
//! Nothing in this crate reads a file, a clock, the environment or a random
//! number: the time is an argument, and the same input gives the same answer.
//! slurmctld (through `sjp-lua`), the daemon, the commands and the simulator
//! all decide with this code.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod cluster;
pub mod config;
pub mod decision;
pub mod eligible;
pub mod explain;
pub mod hostlist;
pub mod ledger;
pub mod limits;
pub mod mark;
pub mod place;
pub mod promises;
pub mod publication;
pub mod publish;
pub mod request;
pub mod submission;
pub mod undo;
pub mod units;
pub mod waiting;
