//! The only module that changes the cluster.
//!
//! An [`Action`] says what is to be changed and why; it decides nothing. The
//! [`Hands`] carry actions out one after the other, apart from the polling
//! loop: outside enforce, and while the disable file is there, only what takes
//! back; in words only under `--dry-run`; logged before and after, no faster than `[cadence] max_updates_per_second`, tried again
//! while slurmctld has no time.

mod action;
mod commands;
mod hands;

pub use action::{Action, ActionKind, Seen, Settings, Target, Update, job_updates};
pub use commands::CommandActuator;
pub use hands::{Gate, Hands, Report, Tempo, disabled, start};

use crate::config::Config;
use sjp_core::cluster::Job;
use std::future::Future;

/// How one update went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was made.
    Made,
    /// The job does not wait any more: there is nothing left to do.
    Gone(String),
    /// slurmctld has no time or is away: to be tried again later.
    Busy(String),
    /// slurmctld said EAGAIN at once: to be tried again soon. 24.11 and 26.05 say so to
    /// most new partitions where the job has no association (no accounting), whatever
    /// their load: an old errno of the thread that answers (measured: 39 to 46 of 60).
    Again(String),
    /// It was refused.
    Refused(String),
    /// Not made: somebody else has changed the job since it was decided.
    Changed(String),
}

/// A job right before it is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// As it is now, waiting or not.
    Job(Box<Job>),
    /// It is not in the queue any more.
    Gone(String),
    /// slurmctld has no time or is away.
    Busy(String),
    /// Nobody can look: what was decided is done unseen.
    Blind,
}

/// The port through which changes reach a cluster.
pub trait Actuator: Send + Sync + 'static {
    /// Makes one update.
    fn update(&self, update: &Update) -> impl Future<Output = Answer> + Send;

    /// Looks at one job, right before an update of it. Slurm has no update that
    /// depends on what the job is then: this makes the time in which somebody else's
    /// change can be overwritten that of two commands.
    fn look(&self, _job: u32) -> impl Future<Output = Look> + Send {
        async { Look::Blind }
    }

    /// The command line of an update, for the log.
    fn words(&self, update: &Update) -> String;

    /// Takes changed settings over, from the next update on.
    fn settings_changed(&self, _config: &Config) {}
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every update was made.
    Done,
    /// The job did not wait any more.
    Gone(String),
    /// `--dry-run`: it would have been done.
    Would,
    /// Not begun: changes are off.
    Off,
    /// Refused, or slurmctld was busy for too long.
    Failed(String),
    /// Not done, or not all of it: somebody else has changed the job meanwhile.
    Changed(String),
}

impl Outcome {
    /// One word for the log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Gone(_) => "gone",
            Self::Would => "would",
            Self::Off => "off",
            Self::Failed(_) => "failed",
            Self::Changed(_) => "changed",
        }
    }

    /// What was said, where something was.
    #[must_use]
    pub fn said(&self) -> Option<&str> {
        match self {
            Self::Gone(said) | Self::Failed(said) | Self::Changed(said) => Some(said),
            Self::Done | Self::Would | Self::Off => None,
        }
    }
}
