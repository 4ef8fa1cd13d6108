//! The only module that changes the cluster.
//!
//! An [`Action`] says what is to be changed and why; it decides nothing. The
//! [`Hands`] carry actions out one after the other, apart from the polling
//! loop: off outside enforce, in words only under `--dry-run`, logged before
//! and after, no faster than `[cadence] max_updates_per_second`, tried again
//! while slurmctld has no time.

mod hands;
mod scontrol;

pub use hands::{Gate, Hands, Report, Tempo, start};
pub use scontrol::ScontrolActuator;

use crate::config::Config;
use std::fmt;
use std::future::Future;

/// A change to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A pinned job that waits loses its node and gets its partitions back.
    ReleasePin {
        /// The job.
        job: u32,
        /// The node it was pinned to, for the log.
        node: String,
        /// Whether the required node is still set (not where only the second
        /// half of an earlier release is missing).
        clear_node: bool,
        /// The partitions it gets back, in order; empty: as they are.
        partitions: Vec<String>,
        /// Its AdminComment from now on.
        admin_comment: String,
        /// Why.
        why: String,
    },
}

impl Action {
    /// The job that is changed.
    #[must_use]
    pub fn job(&self) -> u32 {
        match self {
            Self::ReleasePin { job, .. } => *job,
        }
    }

    /// One word for the log.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReleasePin { .. } => "release",
        }
    }

    /// Why it is done.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::ReleasePin { why, .. } => why,
        }
    }

    /// The updates that make it up, in order.
    ///
    /// A release is two: some versions refuse partitions that do not hold
    /// the required node, so the node goes first.
    #[must_use]
    pub fn updates(&self) -> Vec<Update> {
        match self {
            Self::ReleasePin { job, clear_node, partitions, admin_comment, .. } => {
                let mut updates = Vec::with_capacity(2);
                if *clear_node {
                    updates.push(Update { job: *job, set: vec![("reqnodelist", String::new())] });
                }
                let mut set = Vec::with_capacity(2);
                if !partitions.is_empty() {
                    set.push(("partition", partitions.join(",")));
                }
                set.push(("admincomment", admin_comment.clone()));
                updates.push(Update { job: *job, set });
                updates
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReleasePin { job, node, partitions, .. } => {
                write!(f, "job {job}: release from {node}")?;
                if !partitions.is_empty() {
                    write!(f, ", back to {}", partitions.join(","))?;
                }
                Ok(())
            }
        }
    }
}

/// One `scontrol update` of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The job.
    pub job: u32,
    /// Keys and values, in the order written.
    pub set: Vec<(&'static str, String)>,
}

/// How one update went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was made.
    Made,
    /// The job does not wait any more: there is nothing left to do.
    Gone(String),
    /// slurmctld has no time or is away: to be tried again later.
    Busy(String),
    /// It was refused.
    Refused(String),
}

/// The port through which changes reach a cluster.
pub trait Actuator: Send + Sync + 'static {
    /// Makes one update.
    fn update(&self, update: &Update) -> impl Future<Output = Answer> + Send;

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
        }
    }

    /// What was said, where something was.
    #[must_use]
    pub fn said(&self) -> Option<&str> {
        match self {
            Self::Gone(said) | Self::Failed(said) => Some(said),
            Self::Done | Self::Would | Self::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_clears_the_node_before_it_gives_partitions_back() {
        let mut action = Action::ReleasePin {
            job: 7,
            node: "n1".into(),
            clear_node: true,
            partitions: vec!["slim1".into(), "slim2".into()],
            admin_comment: "sjp:released=60".into(),
            why: "pending for 60 s".into(),
        };
        let updates = action.updates();
        assert_eq!(updates.len(), 2);
        assert_eq!(updates[0].set, [("reqnodelist", String::new())]);
        let second = [
            ("partition", "slim1,slim2".to_owned()),
            ("admincomment", "sjp:released=60".to_owned()),
        ];
        assert_eq!(updates[1].set, second);
        let Action::ReleasePin { clear_node, .. } = &mut action;
        *clear_node = false;
        assert_eq!(action.updates().len(), 1, "the second half alone");
    }
}
