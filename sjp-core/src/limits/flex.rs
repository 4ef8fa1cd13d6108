//! The flex QOS: which held jobs move to it, which come back.
//!
//! A job's mark says where it came from (`qos=own>flex`), and is written in one
//! update with the QOS itself: what it says holds, or somebody else has changed
//! the job's QOS since, whose choice stays.

use super::{Cap, Held, Idle, Settings, Trial, View, can_be_judged, held, idle};
use crate::cluster::Job;
use crate::mark::Mark;
use crate::undo;
use crate::waiting::{Step, Waiting};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A job id may be used again; with the submit time it names one job.
type Key = (u32, i64);

/// What is remembered from one plan to the next. Times are Unix seconds.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Since when jobs have been seen waiting in the flex QOS.
    since: HashMap<Key, i64>,
    /// When jobs came back.
    back: HashMap<Key, i64>,
}

impl Memory {
    /// A job came back at `now`.
    pub fn came_back(&mut self, job: u32, submit: i64, now: i64) {
        self.back.insert((job, submit), now);
        self.since.remove(&(job, submit));
    }

    /// The clock was stepped by so many seconds: what is remembered is moved along.
    pub fn clock_stepped(&mut self, by: i64) {
        for at in self.since.values_mut().chain(self.back.values_mut()) {
            *at = at.saturating_add(by);
        }
    }

    /// Forgets what is no longer waiting (in the flex QOS), or has rested.
    fn tidy(&mut self, view: &View<'_>, in_flex: &HashSet<Key>, cooldown: i64) {
        self.since.retain(|key, _| in_flex.contains(key));
        let waits: HashSet<Key> = view.jobs.iter().map(key).collect();
        let now = view.now;
        let rests = |at: i64| at <= now && now.saturating_sub(at) < cooldown;
        self.back.retain(|key, at| waits.contains(key) && rests(*at));
    }
}

/// Whether somebody may use the flex QOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// The association says so.
    Yes,
    /// It does not.
    No,
    /// Associations are not known.
    Unknown,
}

/// One job that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Job id.
    pub job: u32,
    /// The QOS it has.
    pub own: String,
    /// The flex QOS.
    pub flex: String,
    /// Its AdminComment from then on.
    pub comment: String,
    /// Which cap holds it, in CPUs, and what of it is in use.
    pub cap: Cap,
    /// The cap, in CPUs.
    pub limit: u32,
    /// What of it is in use, in CPUs.
    pub used: u32,
}

/// One job that comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// Job id.
    pub job: u32,
    /// Its submit time, Unix seconds.
    pub submit: i64,
    /// The QOS it gets.
    pub own: String,
    /// The flex QOS that it leaves.
    pub flex: String,
    /// Its AdminComment from then on.
    pub comment: String,
    /// Seconds it waited there; `None`: moves are switched off.
    pub waited: Option<i64>,
}

/// A job whose QOS somebody else has changed, which stays: sjp lets go of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Job id.
    pub job: u32,
    /// The QOS it has.
    pub qos: String,
    /// What the mark says.
    pub said: String,
    /// Its AdminComment without the mark.
    pub comment: String,
    /// Whether it still has a pin of sjp's, which comes off.
    pub unpin: bool,
    /// The partitions it gets back; empty: they stay.
    pub partitions: Vec<String>,
}

/// QOS and mark change in one update: one never shows without the other.
fn change(qos: &str, comment: &str) -> Vec<Step> {
    vec![vec![("qos", qos.to_owned()), ("admincomment", comment.to_owned())]]
}

impl Move {
    /// The updates, in the order in which they are made.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        change(&self.flex, &self.comment)
    }
}

impl Back {
    /// The updates, in the order in which they are made.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        change(&self.own, &self.comment)
    }
}

impl Foreign {
    /// The updates, in the order in which they are made.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(2);
        if self.unpin {
            steps.push(vec![("reqnodelist", String::new())]);
        }
        let mut set = Vec::with_capacity(2);
        if !self.partitions.is_empty() {
            set.push(("partition", self.partitions.join(",")));
        }
        set.push(("admincomment", self.comment.clone()));
        steps.push(set);
        steps
    }
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Jobs to move, highest priority first.
    pub moves: Vec<Move>,
    /// Jobs to give back.
    pub back: Vec<Back>,
    /// Jobs to let go.
    pub foreign: Vec<Foreign>,
    /// Users and accounts who may not use the flex QOS, though jobs of theirs
    /// are held.
    pub denied: BTreeSet<(u32, String)>,
    /// Held jobs.
    pub held: usize,
    /// Marked jobs that wait in the flex QOS.
    pub in_flex: usize,
    /// What is idle, before the moves.
    pub idle: Idle,
}

/// What a plan is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Move jobs, and give them back in time.
    All,
    /// Nothing new: every moved job that waits goes back at once.
    Undo,
}

/// Plans. `ours`: pending jobs with their marks, of which nothing is under way,
/// as a queue shows them that was asked for after their last change. `moving`:
/// jobs whose move is under way. `may`: whether the job's user may use this QOS
/// in all of the job's partitions.
#[must_use]
pub fn plan(
    view: &View<'_>,
    settings: &Settings,
    ours: &[Waiting<'_>],
    moving: &HashSet<u32>,
    may: impl Fn(&Job, &str) -> May,
    scope: Scope,
    memory: &mut Memory,
) -> Plan {
    let mut plan = Plan::default();
    let mut in_flex = HashSet::new();
    // They are about to start: what is idle is theirs first.
    let mut first: Vec<&Job> = view.jobs.iter().filter(|j| moving.contains(&j.id)).collect();
    for w in ours {
        let Some(said) = w.mark.get("qos") else { continue };
        let Some((own, flex)) =
            said.split_once('>').filter(|(o, f)| !o.is_empty() && !f.is_empty())
        else {
            continue;
        };
        if !w.job.qos.eq_ignore_ascii_case(flex) {
            let undo = undo::of(view.roster, w);
            plan.foreign.push(Foreign {
                job: w.job.id,
                qos: w.job.qos.clone(),
                said: said.to_owned(),
                comment: let_go(w.mark),
                unpin: undo.unpin.is_some(),
                partitions: undo.partitions,
            });
            continue;
        }
        plan.in_flex += 1;
        in_flex.insert(key(w.job));
        let since = memory.since.entry(key(w.job)).or_insert(view.now);
        // A clock that was put back begins anew.
        *since = (*since).min(view.now);
        let waited = view.now.saturating_sub(*since);
        if scope == Scope::All && waited < settings.revert_after {
            first.push(w.job);
            continue;
        }
        // A QOS that its user may not use is none that the job came from.
        if may(w.job, own) == May::No {
            continue;
        }
        let mut mark = w.mark.clone();
        mark.remove("qos");
        plan.back.push(Back {
            job: w.job.id,
            submit: w.job.submit,
            own: own.to_owned(),
            flex: flex.to_owned(),
            comment: mark.to_comment(),
            waited: (scope == Scope::All).then_some(waited),
        });
    }
    memory.tidy(view, &in_flex, settings.cooldown);
    let held = held(view);
    plan.held = held.len();
    plan.idle = idle(view, settings.count_pending);
    if scope == Scope::All {
        let mut room = (plan.idle, Trial::new(view));
        for job in first {
            if let Some(loss) = room.1.take(job, &settings.flex_qos) {
                room.0.take(loss);
            }
        }
        moves(view, settings, ours, (&held, room), may, memory, &mut plan);
    }
    plan
}

fn moves(
    view: &View<'_>,
    settings: &Settings,
    ours: &[Waiting<'_>],
    (held, (mut idle, mut trial)): (&[Held<'_>], (Idle, Trial<'_>)),
    may: impl Fn(&Job, &str) -> May,
    memory: &Memory,
    plan: &mut Plan,
) {
    let flex = settings.flex_qos.as_str();
    let Some(caps) = view.caps(flex) else { return };
    let marks: HashMap<Key, &Waiting<'_>> = ours.iter().map(|w| (key(w.job), w)).collect();
    // Added to what is in use under the flex QOS's own caps.
    let mut by_user: HashMap<u32, u32> = HashMap::new();
    let mut by_account: HashMap<&str, u32> = HashMap::new();
    for held in held {
        if idle.share() < settings.min_idle_share {
            return;
        }
        let job = held.job;
        let Some(w) = marks.get(&key(job)) else { continue };
        let candidate = w.mark.get("qos").is_none()
            && can_be_judged(w.mark)
            && !job.qos.eq_ignore_ascii_case(flex)
            && !memory.back.contains_key(&key(job));
        if !candidate {
            continue;
        }
        let wants = job.cpus.0.saturating_mul(job.array_tasks.max(1));
        let user = by_user.entry(job.uid).or_default();
        let account = by_account.entry(job.account.as_deref().unwrap_or_default()).or_default();
        let within = |cap: Cap, added: u32| {
            let used = cap.used(caps, job).saturating_add(added).saturating_add(wants);
            cap.of(caps).is_none_or(|limit| used <= limit)
        };
        if !within(Cap::User, *user) || !within(Cap::Account, *account) {
            continue;
        }
        match may(job, flex) {
            May::Yes => {}
            May::No => {
                plan.denied.insert((job.uid, job.account.clone().unwrap_or_default()));
                continue;
            }
            May::Unknown => continue,
        }
        let mut mark = w.mark.clone();
        if job.qos.contains('>') || !mark.set("qos", &format!("{}>{flex}", job.qos)) {
            continue;
        }
        let Some(loss) = trial.take(job, flex) else { continue };
        idle.take(loss);
        *user = user.saturating_add(wants);
        *account = account.saturating_add(wants);
        plan.moves.push(Move {
            job: job.id,
            own: job.qos.clone(),
            flex: flex.to_owned(),
            comment: mark.to_comment(),
            cap: held.cap,
            limit: held.limit,
            used: held.used,
        });
    }
}

/// The AdminComment without the mark: nothing is owed any more.
fn let_go(mark: &Mark) -> String {
    let mut mark = mark.clone();
    mark.remove("qos");
    mark.let_go()
}

fn key(job: &Job) -> Key {
    (job.id, job.submit)
}
