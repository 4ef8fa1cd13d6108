//! Which jobs only a CPU cap of their own QOS keeps from starting.

use super::View;
use crate::cluster::{Job, JobState, QosCaps};
use std::cmp::Reverse;

/// The cap that holds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cap {
    /// `MaxTRESPerUser` cpu.
    User,
    /// `MaxTRESPerAccount` cpu.
    Account,
}

impl Cap {
    /// By the reason of a pending job. The words are the same from 22.05 to
    /// 26.05; that of the account has no "QOS" in front, though it is one of
    /// the QOS's caps (associations have none for each account).
    #[must_use]
    pub fn of_reason(reason: &str) -> Option<Self> {
        match reason {
            "QOSMaxCpuPerUserLimit" => Some(Self::User),
            "MaxCpuPerAccount" => Some(Self::Account),
            _ => None,
        }
    }

    /// This cap of a QOS, in CPUs.
    #[must_use]
    pub fn of(self, qos: &QosCaps) -> Option<u32> {
        match self {
            Self::User => qos.max_cpus_per_user,
            Self::Account => qos.max_cpus_per_account,
        }
    }

    /// What of it is in use, for this job, in CPUs.
    #[must_use]
    pub fn used(self, qos: &QosCaps, job: &Job) -> u32 {
        match self {
            Self::User => {
                let mut of = qos.used_by_user.iter().filter(|(uid, _)| *uid == job.uid);
                of.next().map_or(0, |(_, used)| *used)
            }
            Self::Account => {
                let Some(account) = job.account.as_deref() else { return 0 };
                let mut of = qos.used_by_account.iter().filter(|(name, _)| name == account);
                of.next().map_or(0, |(_, used)| *used)
            }
        }
    }
}

/// A job that is held by a cap.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The job.
    pub job: &'a Job,
    /// Which cap.
    pub cap: Cap,
    /// The cap, in CPUs.
    pub limit: u32,
    /// What is in use, in CPUs.
    pub used: u32,
}

/// Pending jobs that are held by a cap of their own QOS and by nothing else,
/// highest priority first.
///
/// Slurm shows the first limit that a job does not pass, and tests these caps
/// first at a QOS of the partition's, which then decides alone: where that has
/// the cap, another QOS of the job's would not help. A job that the cap has
/// room for by now is left to the scheduler.
#[must_use]
pub fn held<'a>(view: &View<'a>) -> Vec<Held<'a>> {
    let mut list: Vec<Held<'a>> = view
        .jobs
        .iter()
        .filter(|job| job.state == JobState::Pending && job.could_start())
        .filter_map(|job| {
            let cap = Cap::of_reason(&job.reason)?;
            let qos = view.caps(&job.qos)?;
            let limit = cap.of(qos)?;
            let used = cap.used(qos, job);
            let beyond = used.saturating_add(job.cpus.0) > limit;
            (beyond && !partition_caps(view, job, cap)).then_some(Held { job, cap, limit, used })
        })
        .collect();
    list.sort_by_key(|h| (Reverse(h.job.priority), h.job.submit, h.job.id));
    list
}

/// Whether a partition of the job's has a QOS with this cap.
fn partition_caps(view: &View<'_>, job: &Job, cap: Cap) -> bool {
    let named = |name: &String| view.partitions.iter().find(|p| p.name == *name);
    job.partitions.iter().filter_map(named).any(|p| {
        let qos = p.qos.as_deref().and_then(|name| view.caps(name));
        qos.is_some_and(|qos| cap.of(qos).is_some())
    })
}
