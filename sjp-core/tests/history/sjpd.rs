//! What sjpd does around the plans, without its I/O: it looks at the cluster, takes
//! claims over, publishes, plans, and makes the updates one after the other. All of
//! its memory is lost when it dies.

use crate::events::Setup;
use crate::job::same;
use crate::slurm::{Answer, Slurm};
use sjp_core::cluster::{Job, JobState, Node, QosCaps};
use sjp_core::ledger::Ledger;
use sjp_core::limits::View;
use sjp_core::limits::flex::{self, May, Scope};
use sjp_core::mark::Mark;
use sjp_core::publication::{Claim, Rooms, Roster};
use sjp_core::publish::{Extra, Moving, RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::undo;
use sjp_core::waiting::{self, Kind, Snapshot, Step, Waiting, recheck, release, widen};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// What is published: it outlives a sjpd that is killed.
#[derive(Clone, Debug)]
pub struct Table {
    pub roster_id: u64,
    pub roster: Rc<Roster>,
    pub rooms: Rooms,
    /// When the node data was asked for, Unix seconds.
    pub at: i64,
    /// Claims that the rooms account for.
    pub taken: usize,
}

/// A change in hand: its updates, and how far they are made.
#[derive(Clone, Debug)]
pub struct Order {
    pub kind: &'static str,
    pub job: u32,
    /// Of an array: its id and its tasks, and `job` is the record that waits.
    pub array: Option<u32>,
    pub tasks: Vec<u32>,
    pub steps: Vec<Step>,
    pub made: usize,
    /// The history's count when the queue was read.
    pub seen: u64,
    /// The job as it was seen, and as the updates have left it since.
    pub at: Job,
    pub words: String,
}

impl Order {
    pub fn new(kind: &'static str, job: &Job, steps: Vec<Step>, seen: u64, words: String) -> Self {
        let tasks = job.task_ids.iter().flat_map(|list| list.split(','));
        Self {
            kind,
            job: job.id,
            array: job.array_id,
            tasks: tasks.filter_map(|task| task.parse().ok()).collect(),
            steps,
            made: 0,
            seen,
            at: job.clone(),
            words,
        }
    }

    /// Whether somebody has changed what is to be changed: a last look tells.
    pub fn differs(&self, job: &Job) -> bool {
        !same(&self.at.partitions, &job.partitions)
            || self.at.req_nodes != job.req_nodes
            || self.at.qos != job.qos
            || self.at.admin_comment != job.admin_comment
    }

    /// Whether it takes back: that goes on while sjp is switched off.
    pub fn takes_back(&self) -> bool {
        matches!(self.kind, "release" | "drop-mark" | "let-go" | "flex-back" | "undo")
    }
}

/// What `sjp undo` would do now.
pub fn undo_all(slurm: &Slurm, setup: &Setup, count: u64) -> Vec<Order> {
    let mut look = Sjpd::start(&[]);
    look.read_nodes(slurm, setup, &[]);
    (look.jobs, look.qos) = (slurm.read_queue(), slurm.read_qos());
    let table = look.publish(slurm, setup, &[]);
    let marks = marks(&look.jobs);
    let ours = look.ours(&marks, count, slurm.now);
    let plan = undo::plan(&table.roster, &ours).into_iter();
    plan.filter_map(|undo| {
        let w = ours.iter().find(|w| w.job.id == undo.job)?;
        Some(Order::new("undo", w.job, undo.steps(), count, undo.words()))
    })
    .collect()
}

fn marks(jobs: &[Job]) -> HashMap<u32, Mark> {
    let pending = jobs.iter().filter(|j| j.state == JobState::Pending);
    pending.filter_map(|j| Some((j.id, Mark::parse(j.admin_comment.as_deref()?)?))).collect()
}

/// What one look leads to.
#[derive(Debug, Default)]
pub struct Look {
    pub orders: Vec<Order>,
    /// Room that the orders take, by job.
    takes: Vec<(u32, Vec<Moving>)>,
    /// Jobs of a recheck: the next waits for them.
    batch: Vec<u32>,
    rechecked: bool,
}

#[derive(Debug)]
struct OnTheMove {
    takes: Vec<Moving>,
    made: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Sjpd {
    nodes: Vec<Node>,
    nodes_at: i64,
    jobs: Vec<Job>,
    qos: Vec<QosCaps>,
    ledger: Ledger,
    rosters: Vec<Rc<Roster>>,
    taken: usize,
    in_hand: HashSet<u32>,
    changed: HashMap<u32, u64>,
    resting: HashMap<u32, i64>,
    moving: HashMap<u32, OnTheMove>,
    skipped: HashMap<(u32, i64), Vec<String>>,
    /// Of the last batch of a recheck.
    under_way: HashSet<u32>,
    next_recheck: i64,
    flex: flex::Memory,
    /// Jobs that are being moved to the flex QOS.
    flexing: HashSet<u32>,
    pub hands: VecDeque<Order>,
}

impl Sjpd {
    /// A new run: claims from before are lost with the table they stood in.
    pub fn start(ring: &[Claim]) -> Self {
        Self { taken: ring.len(), ..Self::default() }
    }

    /// Reads the nodes and publishes.
    pub fn read_nodes(&mut self, slurm: &Slurm, setup: &Setup, ring: &[Claim]) -> Table {
        self.nodes = slurm.read_nodes();
        self.nodes_at = slurm.now;
        self.publish(slurm, setup, ring)
    }

    fn moving(&self) -> Vec<Moving> {
        self.moving.values().flat_map(|m| m.takes.iter().cloned()).collect()
    }

    fn take_claims(&mut self, ring: &[Claim]) {
        let rosters = &self.rosters;
        let of = |id: u64| rosters.get(usize::try_from(id).ok()?).map(|r| &**r);
        self.ledger.take(&ring[self.taken..], of);
        self.taken = ring.len();
    }

    fn publish(&mut self, slurm: &Slurm, setup: &Setup, ring: &[Claim]) -> Table {
        self.take_claims(ring);
        let bound: Vec<_> =
            slurm.bound.iter().map(|(uid, p)| (*uid, None, vec![p.clone()])).collect();
        let roster = build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &slurm.partitions,
            config: &slurm.config,
            qos: &self.qos,
            bound_users: &bound,
            policy: &setup.policy,
        });
        if self.rosters.last().is_none_or(|last| **last != roster) {
            self.rosters.push(Rc::new(roster));
        }
        let id = self.rosters.len() - 1;
        let roster = self.rosters[id].clone();
        let moving = self.moving();
        let rooms = build_rooms(&roster, &self.input(slurm, &moving));
        Table { roster_id: id as u64, roster, rooms, at: self.nodes_at, taken: self.taken }
    }

    fn input<'a>(&'a self, slurm: &'a Slurm, moving: &'a [Moving]) -> RoomsInput<'a> {
        RoomsInput {
            nodes: &self.nodes,
            nodes_asked_at: self.nodes_at as f64,
            reservations: &slurm.reservations,
            jobs: &self.jobs,
            ledger: &self.ledger,
            qos: &self.qos,
            config: &slurm.config,
            now: slurm.now,
            extra: Extra { moving, ..Extra::default() },
        }
    }

    /// Reads nodes and queue, plans, and takes the orders in hand. `count`: the
    /// history's. `off`: nothing new, while what was done is taken back in its time.
    pub fn look(
        &mut self,
        slurm: &Slurm,
        setup: &Setup,
        ring: &[Claim],
        count: u64,
        off: bool,
    ) -> (Table, Look) {
        self.nodes = slurm.read_nodes();
        self.nodes_at = slurm.now;
        self.jobs = slurm.read_queue();
        self.qos = slurm.read_qos();
        self.take_claims(ring);
        self.ledger.see_queue(&self.jobs, slurm.now);
        self.moving.retain(|_, m| m.made.is_none_or(|made| count <= made));
        let marks = marks(&self.jobs);
        self.note_skipped(&marks);
        let table = self.publish(slurm, setup, ring);
        let look = self.plan(slurm, setup, &marks, &table, count, off);
        if look.rechecked {
            self.next_recheck = slurm.now + setup.waiting.interval;
        }
        self.under_way.extend(&look.batch);
        for (job, takes) in &look.takes {
            self.moving.insert(*job, OnTheMove { takes: takes.clone(), made: None });
        }
        let mut look = look;
        self.take_in_hand(&look.orders);
        let held = self.look_after_held(slurm, setup, &marks, &table, count, off);
        self.take_in_hand(&held);
        look.orders.extend(held);
        // With what was just promised.
        let table = if look.orders.is_empty() { table } else { self.publish(slurm, setup, ring) };
        (table, look)
    }

    fn take_in_hand(&mut self, orders: &[Order]) {
        for order in orders {
            self.in_hand.insert(order.job);
            self.hands.push_back(order.clone());
        }
    }

    /// Pending jobs with a mark that may be changed now: nothing of theirs is under way,
    /// or was refused a moment ago, and the queue shows what was changed last.
    fn ours<'a>(&'a self, marks: &'a HashMap<u32, Mark>, count: u64, now: i64) -> Vec<Waiting<'a>> {
        let may = |job: &&Job| {
            job.state == JobState::Pending
                && !self.in_hand.contains(&job.id)
                && self.changed.get(&job.id).is_none_or(|&at| count > at)
                && self.resting.get(&job.id).is_none_or(|&until| now >= until)
        };
        let jobs = self.jobs.iter().filter(may);
        jobs.filter_map(|job| Some(Waiting { job, mark: marks.get(&job.id)? })).collect()
    }

    /// Jobs that only a cap of their QOS holds move to another, and back.
    fn look_after_held(
        &mut self,
        slurm: &Slurm,
        setup: &Setup,
        marks: &HashMap<u32, Mark>,
        table: &Table,
        count: u64,
        off: bool,
    ) -> Vec<Order> {
        let mut memory = std::mem::take(&mut self.flex);
        let (moving, now) = (self.moving(), slurm.now);
        let ours = self.ours(marks, count, now);
        let on = setup.flex && !off;
        let mut orders = Vec::new();
        if on || ours.iter().any(|w| w.mark.get("qos").is_some()) {
            let rooms = build_rooms(&table.roster, &self.input(slurm, &moving));
            let view = View {
                roster: &table.roster,
                rooms: &rooms,
                jobs: &self.jobs,
                partitions: &slurm.partitions,
                qos: &self.qos,
                now,
            };
            let may = |job: &Job, qos: &str| match qos {
                "flex" if !setup.flexers.contains(&job.uid) => May::No,
                _ => May::Yes,
            };
            let scope = if on { Scope::All } else { Scope::Undo };
            let (limits, flexing) = (&setup.limits, &self.flexing);
            let plan = flex::plan(&view, limits, &ours, flexing, may, scope, &mut memory);
            let mut order = |kind, job: u32, steps, words| {
                if let Some(w) = ours.iter().find(|w| w.job.id == job) {
                    orders.push(Order::new(kind, w.job, steps, count, words));
                }
            };
            for f in &plan.foreign {
                order("let-go", f.job, f.steps(), format!("let go of QOS {}", f.qos));
            }
            for b in &plan.back {
                order("flex-back", b.job, b.steps(), format!("{} back to {}", b.flex, b.own));
            }
            for m in &plan.moves {
                order("flex", m.job, m.steps(), format!("{} to {}", m.own, m.flex));
            }
        }
        self.flexing.extend(orders.iter().filter(|o| o.kind == "flex").map(|o| o.job));
        self.flex = memory;
        orders
    }

    /// Remembers the partitions in which skipped jobs were first seen.
    fn note_skipped(&mut self, marks: &HashMap<u32, Mark>) {
        let mut skipped = HashMap::new();
        for job in self.jobs.iter().filter(|j| j.state == JobState::Pending) {
            if marks.get(&job.id).is_some_and(|mark| mark.get("skipped").is_some()) {
                let key = (job.id, job.submit);
                let first = self.skipped.remove(&key).unwrap_or_else(|| job.partitions.clone());
                skipped.insert(key, first);
            }
        }
        self.skipped = skipped;
    }

    fn plan(
        &self,
        slurm: &Slurm,
        setup: &Setup,
        marks: &HashMap<u32, Mark>,
        table: &Table,
        count: u64,
        off: bool,
    ) -> Look {
        let mut settings = setup.waiting;
        settings.wait_for_room &= !off;
        settings.widen &= !off;
        let (roster, now) = (&*table.roster, slurm.now);
        let moving = self.moving();
        let snapshot = Snapshot { roster, input: self.input(slurm, &moving) };
        let ours = self.ours(marks, count, now);
        let strayed = |w: &&Waiting<'_>| {
            let first = self.skipped.get(&(w.job.id, w.job.submit));
            first.is_some_and(|first| *first != w.job.partitions)
        };
        let mut intents = waiting::let_go(roster, &ours);
        intents.extend(ours.iter().filter(strayed).map(waiting::let_go_of));
        intents.extend(release::plan(roster, &ours, &settings, now));
        let busy: HashSet<u32> = intents.iter().map(|i| i.job).collect();
        let rest: Vec<Waiting<'_>> =
            ours.iter().filter(|w| !busy.contains(&w.job.id)).copied().collect();
        let (mut batch, mut look) = (Vec::new(), Look::default());
        if !off && self.under_way.is_empty() {
            batch = widen::plan(roster, &rest, &settings, now);
            if now >= self.next_recheck && settings.interval > 0 {
                batch.extend(recheck::plan(&snapshot, &rest, &settings).intents);
                batch.sort_by_key(|i| recheck::usefulness(i.kind));
                look.rechecked = true;
            }
            batch.truncate(setup.batch);
            look.batch = batch.iter().map(|i| i.job).collect();
        }
        intents.extend(batch);
        for intent in intents {
            let w = ours.iter().find(|w| w.job.id == intent.job).expect("planned for one of ours");
            if !intent.takes.is_empty() {
                let takes = intent.takes.iter().map(|(node, cpus, mem)| Moving {
                    node: node.clone(),
                    cpus: *cpus,
                    mem: *mem,
                });
                look.takes.push((intent.job, takes.collect()));
            }
            let words = format!("{} ({})", intent.words, intent.why);
            let kind = word(intent.kind);
            look.orders.push(Order::new(kind, w.job, intent.steps(), count, words));
        }
        look
    }

    /// What became of an order. `count`: the history's.
    pub fn reported(&mut self, order: &Order, answer: Answer, count: u64, now: i64) {
        let job = order.job;
        self.in_hand.remove(&job);
        self.under_way.remove(&job);
        self.flexing.remove(&job);
        match answer {
            Answer::Made => {
                if order.kind == "flex-back"
                    && let Some(job) = self.jobs.iter().find(|j| j.id == job)
                {
                    self.flex.came_back(job.id, job.submit, now);
                }
                self.changed.insert(job, count);
                if let Some(moving) = self.moving.get_mut(&job) {
                    moving.made = Some(count);
                }
            }
            Answer::Gone | Answer::Changed => {
                self.moving.remove(&job);
            }
            Answer::Refused => {
                self.moving.remove(&job);
                self.resting.insert(job, now + 5);
            }
        }
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::DropMark => "drop-mark",
        Kind::Release => "release",
        Kind::Move => "move",
        Kind::Narrow => "narrow",
        Kind::Widen => "widen",
        Kind::WaitFor => "wait",
        Kind::Open => "open",
    }
}
