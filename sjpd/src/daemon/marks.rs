//! Which waiting jobs' marks are to be read, and what is known of them.
//!
//! Where the queue itself tells the AdminComment, nothing more is to be read.
//! Elsewhere reading marks is dear (JSON, on some versions of the whole queue):
//! they are read for pending jobs only, when they are about to matter, and
//! remembered by job id and submit time for as long as the job is queued.

use sjp_core::cluster::{Job, JobState, MarkedJob};
use sjp_core::mark::Mark;
use sjp_core::waiting::waiting_since;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// First rest of a job whose change was refused; it doubles.
const FIRST_REST: Duration = Duration::from_secs(60);
/// Longest rest.
const LAST_REST: Duration = Duration::from_secs(3600);

/// A job id may be used again after a wrap-around; with the submit time it
/// names one job.
type Key = (u32, i64);

/// What is known of one pending job's AdminComment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// The mark; `None`: the comment holds none of sjp's.
    mark: Option<Mark>,
}

/// Marks of pending jobs.
#[derive(Debug, Default)]
pub struct MarkBook {
    known: HashMap<Key, Known>,
    /// Changes under way, by job id.
    in_hand: HashSet<u32>,
    /// Jobs whose last change was refused: not again before, and how often.
    resting: HashMap<u32, (Instant, u32)>,
    /// Jobs that a dry run has told about.
    told: HashSet<u32>,
    /// Pending jobs from before this second (Unix) may be left over from an
    /// earlier run; `None`: all of those have been looked at.
    sweep_before: Option<i64>,
    /// Jobs whose change may be half made: their marks are read again.
    reread: HashSet<u32>,
    /// When jobs were changed last, seconds of a clock that is never stepped: a
    /// queue asked for earlier does not show it.
    changed: HashMap<u32, f64>,
    /// When the last queue was asked for, by the same clock.
    asked: f64,
}

impl MarkBook {
    /// An empty book of a run that starts at `now` (Unix seconds): jobs
    /// submitted earlier are all looked at once, since an earlier run may
    /// have ended in the middle of a change.
    #[must_use]
    pub fn new(now: i64) -> Self {
        Self { sweep_before: Some(now), ..Self::default() }
    }

    /// Ids of jobs whose marks are to be read now, the most urgent first.
    /// `now` in Unix seconds; a mark matters once the job has been eligible
    /// for `matters_after`, and without a pin only where `all` do.
    #[must_use]
    pub fn wanted(&self, jobs: &[Job], now: i64, matters_after: Duration, all: bool) -> Vec<u32> {
        let after = i64::try_from(matters_after.as_secs()).unwrap_or(i64::MAX);
        // After a step of the clock back, a job may seem to wait from later on.
        let ripe = |since: i64| since > now || now.saturating_sub(since) >= after;
        // A job that rests need not be read yet.
        let unknown = |job: &&Job| {
            job.state == JobState::Pending
                && job.admin_comment.is_none()
                && (all || job.array_id.is_none())
                && !self.known.contains_key(&key(job))
                && !self.in_hand.contains(&job.id)
        };
        let due = |job: &&Job| {
            self.reread.contains(&job.id)
                || (all || job.req_nodes.len() == 1) && ripe(waiting_since(job))
        };
        let mut ids: Vec<u32> = jobs.iter().filter(unknown).filter(due).map(|j| j.id).collect();
        if let Some(before) = self.sweep_before {
            let old = |job: &&Job| job.submit <= before && !due(job);
            ids.extend(jobs.iter().filter(unknown).filter(old).map(|j| j.id));
        }
        ids
    }

    /// Takes in what was read. `asked`: what was asked for; a job that is not
    /// in the answer has left the queue, or is remembered as unmarked.
    pub fn learn(&mut self, asked: &[u32], read: &[MarkedJob], jobs: &[Job]) {
        let by_id: HashMap<u32, &MarkedJob> = read.iter().map(|m| (m.id, m)).collect();
        let asked: HashSet<u32> = asked.iter().copied().collect();
        for job in jobs.iter().filter(|j| j.state == JobState::Pending) {
            // An answer for the whole queue tells of more than was asked.
            match by_id.get(&job.id) {
                Some(marked) if marked.submit == job.submit => {
                    if !self.in_hand.contains(&job.id) {
                        let mark = Mark::parse(&marked.admin_comment);
                        self.known.insert(key(job), Known { mark });
                        self.reread.remove(&job.id);
                    }
                }
                Some(_) | None if asked.contains(&job.id) => {
                    self.known.insert(key(job), Known { mark: None });
                }
                Some(_) | None => {}
            }
        }
    }

    /// Takes in a queue asked for at `asked` (seconds of a steady clock): learns the marks
    /// it tells, and forgets what has left it.
    pub fn see_queue(&mut self, jobs: &[Job], asked: f64) {
        self.asked = asked;
        for job in jobs.iter().filter(|j| j.state == JobState::Pending) {
            let Some(comment) = &job.admin_comment else { continue };
            if !self.is_older(job.id) && !self.in_hand.contains(&job.id) {
                self.known.insert(key(job), Known { mark: Mark::parse(comment) });
            }
        }
        self.retain(jobs);
    }

    fn retain(&mut self, jobs: &[Job]) {
        let pending: HashSet<Key> =
            jobs.iter().filter(|j| j.state == JobState::Pending).map(key).collect();
        let ids: HashSet<u32> = pending.iter().map(|&(id, _)| id).collect();
        self.known.retain(|key, _| pending.contains(key));
        self.resting.retain(|id, _| ids.contains(id));
        self.reread.retain(|id| ids.contains(id));
        self.changed.retain(|id, _| ids.contains(id));
        self.told.retain(|id| ids.contains(id));
        let swept = self.sweep_before.is_some_and(|before| {
            jobs.iter()
                .filter(|j| {
                    j.state == JobState::Pending && j.array_id.is_none() && j.submit <= before
                })
                .all(|j| self.known.contains_key(&key(j)) || self.in_hand.contains(&j.id))
        });
        if swept {
            self.sweep_before = None;
        }
    }

    /// Whether the last queue was asked for before the job was changed last.
    fn is_older(&self, job: u32) -> bool {
        self.changed.get(&job).is_some_and(|&at| self.asked <= at)
    }

    /// Pending jobs with a mark of sjp's.
    pub fn marked<'a>(&'a self, jobs: &'a [Job]) -> impl Iterator<Item = (&'a Job, &'a Mark)> {
        let pending = jobs.iter().filter(|j| j.state == JobState::Pending);
        pending.filter_map(|job| Some((job, self.known.get(&key(job))?.mark.as_ref()?)))
    }

    /// Pending jobs with a mark of sjp's that may be changed now: nothing of
    /// theirs is under way, refused a moment ago, or told by a dry run, and the
    /// queue shows what was changed last.
    pub fn ours<'a>(
        &'a self,
        jobs: &'a [Job],
        now: Instant,
    ) -> impl Iterator<Item = (&'a Job, &'a Mark)> {
        jobs.iter().filter(|j| j.state == JobState::Pending).filter_map(move |job| {
            let busy = self.in_hand.contains(&job.id)
                || self.is_older(job.id)
                || self.told.contains(&job.id)
                || self.resting.get(&job.id).is_some_and(|&(until, _)| now < until);
            let mark = self.known.get(&key(job))?.mark.as_ref()?;
            (!busy).then_some((job, mark))
        })
    }

    /// A change of this job was handed over.
    pub fn begin(&mut self, job: u32) {
        self.in_hand.insert(job);
    }

    /// It was made at `steady` seconds: the job's AdminComment is now `comment`
    /// (`None`: as it was).
    pub fn made(&mut self, job: u32, comment: Option<&str>, steady: f64) {
        self.in_hand.remove(&job);
        self.changed.insert(job, steady);
        self.resting.remove(&job);
        let Some(comment) = comment else { return };
        for (_, known) in self.known.iter_mut().filter(|((id, _), _)| *id == job) {
            known.mark = Mark::parse(comment);
        }
    }

    /// Somebody else has changed the job, as a look at it at `steady` seconds showed: it
    /// is left alone until a later queue shows it, and its mark is read again.
    pub fn changed_by_others(&mut self, job: u32, steady: f64) {
        self.in_hand.remove(&job);
        self.changed.insert(job, steady);
        self.known.retain(|&(id, _), _| id != job);
        self.reread.insert(job);
    }

    /// The job does not wait any more, or the change was not begun.
    pub fn dropped(&mut self, job: u32) {
        self.in_hand.remove(&job);
    }

    /// A dry run said what it would do.
    pub fn told(&mut self, job: u32) {
        self.in_hand.remove(&job);
        self.told.insert(job);
    }

    /// It was refused, perhaps half made: what is known of the job is read
    /// again, and it rests for a while.
    pub fn refused(&mut self, job: u32, now: Instant) {
        self.in_hand.remove(&job);
        self.known.retain(|&(id, _), _| id != job);
        let times = self.resting.get(&job).map_or(0, |&(_, times)| times);
        let rest = FIRST_REST.saturating_mul(1 << times.min(10)).min(LAST_REST);
        self.resting.insert(job, (now + rest, times + 1));
        self.reread.insert(job);
    }

    /// A change of mode or settings: what a dry run told may be told again.
    pub fn settings_changed(&mut self) {
        self.told.clear();
    }
}

fn key(job: &Job) -> Key {
    (job.id, job.submit)
}
