//! A throwaway real Slurm cluster for tests: daemons, jobs, sjpd.
//!
//! ```no_run
//! use sjp_tests::{ClusterSpec, RunAs};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = ClusterSpec::slim_and_fat().slurm_conf("EnforcePartLimits=ALL").start()?;
//! cluster.fill_node("s01", 8, 16_000)?;
//! let id = cluster.sbatch_as(RunAs::user(1), &["-n1", "--mem=1G", "--wrap=sleep 100"])?;
//! let job = cluster.wait_started(id)?;
//! assert_eq!(job.partition, "slim");
//! cluster.stop()
//! # }
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `SJP_SLURM_ROOT` | run the Slurm inside this folder, by chroot |
//! | `SJP_TEST_DIR` | where the clusters' folders are made (default: `sjp-tests` in the temporary folder) |
//! | `SJP_TEST_KEEP=1` | keep the folders |
//! | `SJP_STAGE` | the folder with sjp.lua and the native modules |
//! | `SJPD_BIN`, `SJP_BIN` | the programs, when not those of this build |

#![forbid(unsafe_code)]

mod accounting;
mod cluster;
mod commands;
mod controllers;
mod daemons;
pub mod forge;
mod leftovers;
mod life;
mod lua;
mod ports;
mod process;
mod root;
mod sjpd;
mod spec;
mod wait;

pub use accounting::ACCOUNT;
pub use cluster::TestCluster;
pub use commands::{FILL_JOB_NAME, JOB_DEADLINE, Job, parse_record};
pub use daemons::Daemon;
pub use life::{Crash, HANGS, Tampered, children, mappings, open_files, table_target};
pub use lua::{Answer, DIR_MARK, build_dir, job_submit_text, shipped_job_submit, stage_dir};
pub use nix::sys::signal::Signal;
pub use process::{Background, CpuSeconds, Output, cpu_seconds};
pub use root::{RunAs, Slurm, TEST_USERS};
pub use sjpd::{Sjpd, sjp_toml};
pub use spec::{CLUSTER_NAME, ClusterSpec, NodeSpec};
pub use wait::wait_for;
