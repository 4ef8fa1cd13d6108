//! The recheck: jobs of sjp's that wait are chosen again, by the same policy, on
//! the cluster and the queue as they are now.
//!
//! Highest priority first, and each takes the room it is expected to use, so
//! that the moves never add up to more than fits. A job that has room where it is
//! stays; one that has none there moves to where there is; where there is none
//! anywhere, it waits for the node that will have room first, or gets every
//! partition that can hold it.

use super::room::Future;
use super::standing::{self, Standing};
use super::{
    Intent, Kind, Origin, Settings, Snapshot, Waiting, in_order, opened_list, own_partitions,
    permitted, place_words, request, same, waits_for_room,
};
use crate::decision::{Basis, NodeClaim, Placement, Reason};
use crate::eligible::kind_of;
use crate::mark::{self, Mark};
use crate::place::{Context, Scratch, Survey, look_for_room, may_pin};
use crate::promises::Promises;
use crate::publication::Rooms;
use crate::publish::{Extra, RoomsInput, build_rooms, job_share, planned_at};
use std::cmp::Reverse;
use std::collections::HashSet;

/// What a recheck found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recheck {
    /// Jobs that were chosen again.
    pub looked_at: usize,
    /// What is to be done, the most useful first: jobs that can start, by
    /// priority; then what only lets them wait better.
    pub intents: Vec<Intent>,
}

/// One job that is chosen again.
struct Candidate<'a> {
    w: Waiting<'a>,
    /// The node of its pin, by index; `None` without one, or of a node that is
    /// gone.
    pin: Option<u32>,
    /// Whether that pin waits for room.
    waits: bool,
    /// What it takes on its pin's node: CPUs and MB.
    share: (u32, u32),
    /// Placed by nobody yet: skipped for want of room.
    skipped: bool,
    /// It stays as it is, and takes the room that it has there: it was changed a
    /// moment ago, is past its budget, or has lists of its own that the queue does
    /// not show.
    rests: bool,
}

/// Chooses again for every waiting job that could start if it had room.
#[must_use]
pub fn plan(snapshot: &Snapshot<'_>, waiting: &[Waiting<'_>], settings: &Settings) -> Recheck {
    let mut list: Vec<Candidate<'_>> =
        waiting.iter().filter_map(|w| candidate(snapshot, w, settings)).collect();
    list.sort_by_key(|c| (Reverse(c.w.job.priority), c.w.job.submit, c.w.job.id));
    let anew: HashSet<u32> = list.iter().map(|c| c.w.job.id).collect();
    let mut planner = Planner::new(snapshot, settings, &anew);
    // Who is pinned to room takes it before others may; who waits for room
    // takes it in its turn.
    for c in list.iter().filter(|c| !c.waits) {
        planner.promise_pin(c);
    }
    let mut intents: Vec<Intent> = list.iter().filter_map(|c| planner.decide(c)).collect();
    // Stable: within a kind the order of priority stays.
    intents.sort_by_key(|i| usefulness(i.kind));
    Recheck { looked_at: list.len(), intents }
}

/// The order of changes: the most useful have the least number.
#[must_use]
pub fn usefulness(kind: Kind) -> u8 {
    match kind {
        Kind::DropMark | Kind::Release => 0,
        Kind::Move | Kind::Narrow => 1,
        Kind::Widen => 2,
        Kind::WaitFor => 3,
        Kind::Open => 4,
    }
}

/// The job as a candidate; `None` where a recheck leaves it alone.
fn candidate<'a>(
    snapshot: &Snapshot<'_>,
    w: &Waiting<'a>,
    settings: &Settings,
) -> Option<Candidate<'a>> {
    let (job, mark, now) = (w.job, w.mark, snapshot.input.now);
    if !waits_for_room(job) {
        return None;
    }
    let changed = mark.seconds("at").filter(|&at| at <= now);
    let rests = mark.get("widened").is_some()
        || mark.get("own").is_some()
        || (settings.widen && settings.past_budget(job, now))
        || changed.is_some_and(|at| now - at < settings.interval);
    // A skipped job whose partitions are not what it named was changed since, by its
    // user or by the site's rules.
    let was = mark.list("was");
    if !mark.places() && !was.is_empty() && !same(&was, &job.partitions) {
        return None;
    }
    let skipped = match standing::of(job, mark, snapshot.roster) {
        Standing::Ours => false,
        Standing::Unplaced
            if mark.get("skipped") == Some(Reason::NoRoom.words()) && job.req_nodes.is_empty() =>
        {
            true
        }
        Standing::Unplaced | Standing::Half | Standing::Changed { .. } => return None,
    };
    let node = mark.get("pin").and_then(|node| snapshot.roster.nodes.find(node));
    let pin = node.and_then(|n| u32::try_from(n).ok());
    let kind = pin.and_then(|node| kind_of(snapshot.roster, node));
    let whole_cores = snapshot.input.config.whole_cores();
    let (cpus, mem) = job_share(job, kind.map_or(1, |kind| kind.step), whole_cores);
    Some(Candidate {
        w: *w,
        pin,
        waits: mark.get("eta").is_some() && settings.wait_for_room,
        share: (cpus, u32::try_from(mem).unwrap_or(u32::MAX)),
        skipped,
        rests,
    })
}

/// How often a recheck builds the rooms anew, about.
const MOST_ROOMS: usize = 64;

/// How many jobs of a recheck may wait for a node, the first by priority: that takes a
/// look at the future of every node. The others wait for any.
const MOST_WAITS: usize = 500;

/// The state of one recheck.
struct Planner<'s> {
    snapshot: &'s Snapshot<'s>,
    settings: &'s Settings,
    anew: &'s HashSet<u32>,
    /// Priorities of the jobs that Slurm has planned, highest first.
    planned: Vec<u32>,
    /// How many of those plans the rooms account for.
    counted: usize,
    rooms: Rooms,
    /// Taken so far, by nodes.
    promises: Promises,
    scratch: Scratch,
    /// What running jobs give back, where it is asked for.
    future: Option<Future>,
    /// Jobs that may still wait for a node.
    waits: usize,
}

impl<'s> Planner<'s> {
    fn new(snapshot: &'s Snapshot<'s>, settings: &'s Settings, anew: &'s HashSet<u32>) -> Self {
        let jobs = snapshot.input.jobs.iter();
        let mut planned: Vec<u32> =
            jobs.filter(|j| planned_at(j).is_some()).map(|j| j.priority).collect();
        planned.sort_unstable_by_key(|&p| Reverse(p));
        let mut planner = Self {
            snapshot,
            settings,
            anew,
            planned,
            counted: 0,
            rooms: Rooms::default(),
            promises: Promises::new(),
            scratch: Scratch::new(),
            future: settings.wait_for_room.then(|| Future::new(snapshot, anew)),
            waits: MOST_WAITS,
        };
        planner.rooms = planner.rooms_above(u32::MAX);
        planner
    }

    /// The rooms as a job of this priority sees them: Slurm's plans for jobs above
    /// it count, those for jobs below it do not.
    fn rooms_above(&self, priority: u32) -> Rooms {
        let extra =
            Extra { anew: Some(self.anew), plans_above: priority, ..self.snapshot.input.extra };
        build_rooms(self.snapshot.roster, &RoomsInput { extra, ..self.snapshot.input })
    }

    /// Makes the rooms those that a job of this priority sees. With many plans, a few
    /// for jobs just below it count too: each change means to build all rooms anew.
    fn count_plans(&mut self, priority: u32) {
        let counted = self.planned.iter().take_while(|&&p| p > priority).count();
        if counted <= self.counted {
            return;
        }
        let ahead = (self.planned.len() / MOST_ROOMS).min(self.planned.len() - counted);
        self.counted = counted + ahead;
        let last = self.planned.get(self.counted.saturating_sub(1)).copied();
        self.rooms = self.rooms_above(last.map_or(priority, |p| p.saturating_sub(1)));
    }

    fn promise_pin(&mut self, c: &Candidate<'_>) {
        if let Some(node) = c.pin {
            self.promises.promise(node, c.share.0, c.share.1);
        }
    }

    fn decide(&mut self, c: &Candidate<'_>) -> Option<Intent> {
        let (job, mark, roster) = (c.w.job, c.w.mark, self.snapshot.roster);
        self.count_plans(job.priority);
        if let Some(node) = c.pin.filter(|_| !c.waits) {
            self.promises.take_back(node, c.share.0, c.share.1);
        }
        let origin = Origin::of(job, mark);
        let request = request(job, mark, &origin);
        let permitted = permitted(roster, mark);
        let context = |promises| Context {
            roster,
            rooms: &self.rooms,
            promised: promises,
            now: u64::try_from(self.snapshot.input.now).unwrap_or(0),
            permitted: Some(permitted.as_slice()),
        };
        let ctx = context(self.promises.as_slice());
        let scratch = &mut self.scratch;
        // A job that sjp does not place (any more) stays as it is.
        let found = match c.pin {
            None => look_for_room(&ctx, &request, scratch),
            // Whether its own node has room, only a look at every node tells.
            Some(_) => Survey::take(&ctx, &request, scratch).map(|survey| (survey, None)),
        };
        let Ok((survey, mut placement)) = found else {
            if !c.waits {
                self.promise_pin(c);
            }
            return None;
        };
        if let Some(node) = c.pin
            && (c.rests || survey.has_room_on(&ctx, scratch, node))
        {
            self.promise_pin(c);
            return None;
        }
        let has_room = |name: &String| {
            let at = roster.partitions.iter().position(|rule| rule.name == *name);
            at.and_then(|p| scratch.costs.get(p)).is_some_and(|cost| cost.is_finite())
        };
        let here = mark.get("pin").is_none() && job.partitions.iter().any(has_room);
        if c.pin.is_some() && survey.has_room(scratch) {
            placement = Some(survey.by_room(&ctx, &request, scratch));
        }
        if let Some(placement) = placement {
            let names = |list: &[u16]| -> Vec<String> {
                let names = mark::partition_names(roster, list);
                names.split(',').map(str::to_owned).collect()
            };
            let (admitted, partitions) = (names(&placement.admitted), names(&placement.partitions));
            let opened = mark.get("open").is_some();
            let stays = here
                && match opened {
                    _ if c.rests => true,
                    true => placement.pin.is_none() && same(&admitted, &job.partitions),
                    false => admitted.iter().any(|name| job.partitions.contains(name)),
                };
            if c.rests && !here {
                return None;
            }
            // What it uses where it is; elsewhere, what it moves to.
            let claims = if stays && !opened {
                let only: Vec<bool> = roster
                    .partitions
                    .iter()
                    .zip(&permitted)
                    .map(|(rule, &may)| may && job.partitions.contains(&rule.name))
                    .collect();
                let ctx = Context { permitted: Some(only.as_slice()), ..ctx };
                match look_for_room(&ctx, &request, scratch) {
                    Ok((_, Some(there))) => there.claims,
                    _ => placement.claims.clone(),
                }
            } else {
                placement.claims.clone()
            };
            for claim in &claims {
                self.promises.promise(claim.node, claim.cpus, claim.mem);
            }
            if stays {
                return None;
            }
            let kind = if opened { Kind::Narrow } else { Kind::Move };
            return Some(self.to_room(c, kind, &placement, partitions));
        }
        if c.skipped || c.rests {
            return None;
        }
        let open = survey.opened(&ctx, &request, scratch);
        // Past its budget it waits for no single node any more.
        let now = self.snapshot.input.now;
        let pins =
            may_pin(&ctx, &request) && !self.settings.past_budget(job, now) && self.waits > 0;
        let wait = self.future.as_ref().filter(|_| pins).and_then(|future| {
            let first = future.first(&ctx, &survey, scratch, &self.promises)?;
            let here = c
                .pin
                .filter(|_| c.waits)
                .and_then(|node| future.on(&ctx, &survey, scratch, &self.promises, node));
            // Only a node that has room sooner is worth another change.
            Some(here.filter(|here| here.eta <= first.eta).unwrap_or(first))
        });
        if let Some(wait) = wait {
            self.waits -= 1;
            self.promises.promise(wait.node, wait.cpus, wait.mem);
            return (c.pin != Some(wait.node) || !c.waits)
                .then(|| self.to_wait(c, &open, wait.node, wait.eta))
                .flatten();
        }
        if self.settings.open { self.to_open(c, &open) } else { None }
    }

    /// The job goes where there is room.
    fn to_room(
        &self,
        c: &Candidate<'_>,
        kind: Kind,
        placement: &Placement,
        partitions: Vec<String>,
    ) -> Intent {
        let (job, roster) = (c.w.job, self.snapshot.roster);
        let pin = placement.pin.and_then(|n| roster.nodes.get(n as usize)).map(str::to_owned);
        let mut mark = c.w.mark.clone();
        if c.skipped {
            mark.set("had", &job.partitions.join(","));
        }
        mark.place(roster, placement);
        let list = partitions.join(",");
        let old = place_words(job);
        let new = pin.clone().unwrap_or_else(|| partitions.join("+"));
        let words = match (kind, &pin) {
            (Kind::Narrow, Some(node)) => format!("narrow to {node} in {list}"),
            (Kind::Narrow, None) => format!("narrow to {list}"),
            (_, Some(node)) => format!("move from {old} to {node} in {list}"),
            (_, None) => format!("move from {old} to {list}"),
        };
        let free = mark::shape(placement.room.cpus, placement.room.mem);
        let why = match kind {
            Kind::Narrow => format!("it can start there; a node has {free} free"),
            _ => format!("room there and none in {old}, or at less loss; a node has {free} free"),
        };
        if kind == Kind::Move {
            mark.set("moved", &format!("{old}>{new}"));
        }
        let takes = placement.claims.iter().filter_map(|claim| self.named(claim)).collect();
        self.intent(c, kind, mark, partitions, pin, takes, words, why)
    }

    /// The job waits for room on `node`, expected at `eta` (Unix seconds).
    fn to_wait(&self, c: &Candidate<'_>, open: &Placement, node: u32, eta: i64) -> Option<Intent> {
        let (job, roster) = (c.w.job, self.snapshot.roster);
        let here = crate::eligible::partitions_of(roster, node);
        let list: Vec<u16> = open.admitted.iter().copied().filter(|p| here.contains(p)).collect();
        let name = roster.nodes.get(node as usize)?.to_owned();
        if list.is_empty() {
            return None;
        }
        let mut mark = c.w.mark.clone();
        let moved = c.pin.is_some().then(|| format!("{}>{name}", place_words(job)));
        let pinned = Placement { partitions: list.clone(), pin: Some(node), ..open.clone() };
        mark.place(roster, &pinned);
        mark.remove("free");
        mark.set("eta", &eta.to_string());
        if let Some(moved) = moved {
            mark.set("moved", &moved);
        }
        let names = mark::partition_names(roster, &list);
        let seconds = eta.saturating_sub(self.snapshot.input.now).max(0);
        let words = format!("wait for room on {name} in {names}");
        let why = format!("no node has room; {name} is expected to have it first, in {seconds} s");
        let partitions = names.split(',').map(str::to_owned).collect();
        Some(self.intent(c, Kind::WaitFor, mark, partitions, Some(name), Vec::new(), words, why))
    }

    /// The job gets every partition that can hold it.
    fn to_open(&self, c: &Candidate<'_>, open: &Placement) -> Option<Intent> {
        let (job, roster) = (c.w.job, self.snapshot.roster);
        let from = c.w.mark.list("from");
        let before = own_partitions(job, &from);
        let list = in_order(roster, &opened_list(roster, &open.admitted, before))?;
        let pinned = c.w.mark.get("pin");
        if pinned.is_none() && same(&list, &job.partitions) {
            return None;
        }
        let old = place_words(job);
        let mut mark = c.w.mark.clone();
        mark.place(roster, &Placement { pin: None, basis: Basis::Open, ..open.clone() });
        mark.set("open", &list.join(","));
        if let Some(node) = pinned {
            mark.set("released", node);
        }
        let words = format!("open from {old} to {}", list.join(","));
        let why = format!("no node in {} has room now", before.join(","));
        Some(self.intent(c, Kind::Open, mark, list, None, Vec::new(), words, why))
    }

    #[allow(clippy::too_many_arguments, reason = "three call sites, all of it the answer")]
    fn intent(
        &self,
        c: &Candidate<'_>,
        kind: Kind,
        mut mark: Mark,
        partitions: Vec<String>,
        pin: Option<String>,
        takes: Vec<(String, u32, u32)>,
        words: String,
        why: String,
    ) -> Intent {
        mark.set("at", &self.snapshot.input.now.to_string());
        Intent {
            kind,
            job: c.w.job.id,
            unpin: !c.w.job.req_nodes.is_empty(),
            partitions,
            pin,
            comment: mark.to_comment(),
            takes,
            words,
            why,
        }
    }

    fn named(&self, claim: &NodeClaim) -> Option<(String, u32, u32)> {
        let name = self.snapshot.roster.nodes.get(claim.node as usize)?;
        Some((name.to_owned(), claim.cpus, claim.mem))
    }
}
