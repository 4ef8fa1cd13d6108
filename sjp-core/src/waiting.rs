//! Jobs of sjp's that wait: what to do about them as the cluster changes.
//!
//! Pure planning. [`standing`] tells whether a job still is where its mark says
//! sjp put it; a job that somebody else has changed is let go. [`release`] takes
//! back pins that did not help, [`recheck`] chooses again, [`widen`] gives jobs
//! that have waited too long every partition that can hold them. What is to be
//! done comes back as [`Intent`]s; carrying them out is somebody else's.

pub mod recheck;
pub mod release;
mod room;
pub mod standing;
pub mod widen;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::cluster::{Job, JobState};
use crate::mark::{self, Mark};
use crate::publication::Roster;
use crate::publish::{RoomsInput, asked_mem};
use crate::request::JobRequest;
use crate::undo;
use crate::units::{Limit, MemMb, MemPer};
use standing::Standing;

/// A pending job of sjp's, with its mark.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The job as the queue shows it.
    pub job: &'a Job,
    /// Its mark, read where users cannot write.
    pub mark: &'a Mark,
}

/// What the plans depend on, of the settings. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// `[pin] release_after`.
    pub release_after: i64,
    /// `[recheck] interval`.
    pub interval: i64,
    /// `[recheck] open`.
    pub open: bool,
    /// `[pin] wait_for_room`, where pins, rechecks and `always_place` allow it.
    pub wait_for_room: bool,
    /// `[starvation] enabled`.
    pub widen: bool,
    /// `[starvation] budget_hours.fat`.
    pub budget_fat: i64,
    /// `[starvation] budget_hours.slim`.
    pub budget_slim: i64,
    /// `[starvation] fat_ratio_threshold`, MB per CPU.
    pub fat_mb_per_cpu: f64,
    /// When the clock was stepped last, Unix seconds by the clock since; `None`: not
    /// since sjpd runs. What was stamped before says nothing: waits count from here.
    pub stepped: Option<i64>,
}

/// The cluster and its queue, as the plans see them.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Names, rules and settings.
    pub roster: &'a Roster,
    /// Everything that the rooms are made of.
    pub input: RoomsInput<'a>,
}

/// What is to be done for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The mark goes: somebody else has changed the job.
    DropMark,
    /// The pin is taken back.
    Release,
    /// It goes where there is room now.
    Move,
    /// The same, of a job that had every partition.
    Narrow,
    /// It gets every partition that can hold it: it has waited too long.
    Widen,
    /// It is pinned to the node that is expected to have room first.
    WaitFor,
    /// It gets every partition that can hold it: there is no room.
    Open,
}

/// One change of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What it is.
    pub kind: Kind,
    /// Job id.
    pub job: u32,
    /// Whether the node it requires has to be taken off first, by itself.
    pub unpin: bool,
    /// The partitions it gets; empty: they stay.
    pub partitions: Vec<String>,
    /// The node it is pinned to, together with its partitions.
    pub pin: Option<String>,
    /// The AdminComment it gets, together with them.
    pub comment: String,
    /// Room that it takes: node, CPUs, MB.
    pub takes: Vec<(String, u32, u32)>,
    /// What is done, in words.
    pub words: String,
    /// Why.
    pub why: String,
}

/// Keys and values of one update of a job, as `scontrol update` takes them.
pub type Step = Vec<(&'static str, String)>;

impl Intent {
    /// How many updates of slurmctld it takes.
    #[must_use]
    pub fn updates(&self) -> usize {
        1 + usize::from(self.unpin)
    }

    /// The updates, in the order in which they are made.
    ///
    /// A node that is required goes first, by itself: some versions refuse
    /// partitions that do not hold it. Partitions, the new node and the mark go
    /// together, so that no moment shows one without the others.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(2);
        if self.unpin {
            steps.push(vec![("reqnodelist", String::new())]);
        }
        let mut set = Vec::with_capacity(3);
        if !self.partitions.is_empty() {
            set.push(("partition", self.partitions.join(",")));
        }
        if let Some(node) = &self.pin {
            set.push(("reqnodelist", node.clone()));
        }
        set.push(("admincomment", self.comment.clone()));
        steps.push(set);
        steps
    }
}

/// Since when a job could have started, Unix seconds: a requeued or delayed
/// job counts from when it became eligible.
#[must_use]
pub fn waiting_since(job: &Job) -> i64 {
    job.eligible.map_or(job.submit, |eligible| eligible.max(job.submit))
}

/// Whether a pending job waits for room and for its turn, and for nothing else:
/// by what Slurm says, no dependency, begin time, hold or limit keeps it.
#[must_use]
pub fn waits_for_room(job: &Job) -> bool {
    let reason = job.reason.as_str();
    let by_nodes = ["ReqNodeNotAvail", "Nodes required for job are DOWN", "PartitionDown"];
    let known = matches!(reason, "None" | "Priority" | "Resources" | "PartitionInactive")
        || by_nodes.iter().any(|start| reason.starts_with(start));
    job.state == JobState::Pending && job.could_start() && known
}

impl Settings {
    /// Since when a job has waited, by the clock as it is `now`, Unix seconds.
    #[must_use]
    pub fn since(&self, job: &Job, now: i64) -> i64 {
        self.after_step(waiting_since(job), now)
    }

    /// A time that was stamped, by the clock as it is now: none before the last step,
    /// and after one back none that is still to come.
    #[must_use]
    pub fn after_step(&self, at: i64, now: i64) -> i64 {
        match self.stepped {
            Some(step) if at > now => step,
            Some(step) => at.max(step),
            None => at,
        }
    }

    /// How long a job may wait before it is widened, in seconds.
    #[must_use]
    pub fn budget(&self, job: &Job) -> i64 {
        let per_cpu = match job.mem {
            MemPer::Unset => 0.0,
            MemPer::Cpu(mb) => mb.0 as f64,
            MemPer::Node(mb) => {
                mb.0 as f64 * f64::from(job.node_count.max(1)) / f64::from(job.cpus.0.max(1))
            }
        };
        if per_cpu >= self.fat_mb_per_cpu { self.budget_fat } else { self.budget_slim }
    }

    /// Whether a job has waited for longer.
    #[must_use]
    pub fn past_budget(&self, job: &Job, now: i64) -> bool {
        now.saturating_sub(self.since(job, now)) >= self.budget(job)
    }
}

/// Where a job came from, as lists of partitions.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Those that it named; empty: none.
    named: String,
    /// Those that it was in all the same, as far as it is known.
    home: String,
}

impl Origin {
    /// By the mark, and by where the job is while sjp has not placed it.
    pub(crate) fn of(job: &Job, mark: &Mark) -> Self {
        let home = if mark.places() { mark.list("had") } else { job.partitions.clone() };
        Self { named: mark.list("was").join(","), home: home.join(",") }
    }

    /// Of a job that named these.
    pub(crate) fn named(list: &[String]) -> Self {
        Self { named: list.join(","), home: String::new() }
    }
}

/// A job of sjp's as it asks to be placed now: by what the queue shows, and by
/// what its mark says it came with.
pub(crate) fn request<'a>(job: &'a Job, mark: &Mark, origin: &'a Origin) -> JobRequest<'a> {
    let given = |list: &'a String| Some(list.as_str()).filter(|l| !l.is_empty());
    let mut request = JobRequest::queued(job, "", given(&origin.named));
    request.home = given(&origin.home);
    let pinned_once = ["pin", "from", "released"].iter().any(|key| mark.get(key).is_some());
    if pinned_once {
        // Several tasks are pinned with -N 1 only, which the queue does not show.
        request.max_nodes = Some(1);
    }
    // Left to a partition without a default, it is all of a node's.
    let memory_unknown = mark.get("job").is_some_and(|shape| !shape.contains(','));
    let whole = job.mem == MemPer::Node(MemMb(0));
    request.mem = asked_mem(job);
    if memory_unknown || (whole && mark.has("left", "mem")) {
        request.mem = MemPer::Unset;
    }
    if mark.has("left", "time") {
        request.time_limit = Limit::Unset;
    }
    request
}

/// The partitions that sjp may set for this job, by index: those open to all,
/// and those that the mark says it got before, or may get. sjpd does not know
/// groups.
pub(crate) fn permitted(roster: &Roster, mark: &Mark) -> Vec<bool> {
    let set: Vec<String> =
        ["from", "placed", "open", "may"].iter().flat_map(|key| mark.list(key)).collect();
    let may =
        |rule: &crate::publication::PartitionRule| !rule.restricted || set.contains(&rule.name);
    roster.partitions.iter().map(may).collect()
}

/// Where a job is, as `moved` writes it: its node, or its partitions.
fn place_words(job: &Job) -> String {
    if job.req_nodes.is_empty() { job.partitions.join("+") } else { job.req_nodes.join("+") }
}

/// Every partition of the placement `open`, and those that the job has now: they
/// took it before, and may be closed for a while only.
fn opened_list(roster: &Roster, open: &[u16], now: &[String]) -> Vec<String> {
    let names = mark::partition_names(roster, open);
    let mut list: Vec<String> =
        names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
    for name in now {
        if !list.contains(name) {
            list.push(name.clone());
        }
    }
    list
}

/// The list in an order that slurmctld takes; `None`: it would refuse any. See
/// [`crate::publication::PartitionRule::takes_no_jobs`].
pub(crate) fn in_order(roster: &Roster, list: &[String]) -> Option<Vec<String>> {
    let refused = |name: &&String| {
        roster.partitions.iter().any(|rule| rule.name == **name && rule.takes_no_jobs())
    };
    let (last, first): (Vec<&String>, Vec<&String>) = list.iter().partition(refused);
    (!first.is_empty()).then(|| first.into_iter().chain(last).cloned().collect())
}

/// The partitions that a job of sjp's is to have while it is not pinned.
fn own_partitions<'a>(job: &'a Job, from: &'a [String]) -> &'a [String] {
    if from.is_empty() { &job.partitions } else { from }
}

/// Whether two lists hold the same names, in whatever order.
pub(crate) fn same(a: &[String], b: &[String]) -> bool {
    let within = |a: &[String], b: &[String]| a.iter().all(|name| b.contains(name));
    within(a, b) && within(b, a)
}

/// Jobs that somebody else has changed since sjp placed them: the mark goes, and
/// with it what else is still as sjp left it: its pin, or the partitions of a job for
/// which somebody has chosen nodes.
#[must_use]
pub fn let_go(roster: &Roster, waiting: &[Waiting<'_>]) -> Vec<Intent> {
    let one = |w: &Waiting<'_>| match standing::of(w.job, w.mark, roster) {
        Standing::Changed { unpin, .. } => {
            let partitions = undo::of(roster, w).partitions;
            let mut intent = Intent { unpin, partitions, ..let_go_of(w) };
            if !intent.partitions.is_empty() {
                intent.words.push_str(", back to ");
                intent.words.push_str(&intent.partitions.join(","));
            }
            Some(intent)
        }
        Standing::Ours | Standing::Half | Standing::Unplaced => None,
    };
    waiting.iter().filter_map(one).collect()
}

/// The mark of a job goes: somebody else has changed where it is.
#[must_use]
pub fn let_go_of(w: &Waiting<'_>) -> Intent {
    Intent {
        kind: Kind::DropMark,
        job: w.job.id,
        unpin: false,
        partitions: Vec::new(),
        pin: None,
        comment: w.mark.let_go(),
        takes: Vec::new(),
        words: format!("let go in {}", place_words(w.job)),
        why: "it is not where sjp left it: somebody chose otherwise".to_owned(),
    }
}
