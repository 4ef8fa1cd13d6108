//! Waiting jobs of sjp's: whose marks to read, and what to do for them. What is
//! to be done is planned by `sjp-core`; the hands do it.

use super::intents::{action_of, settings_of};
use super::marks::MarkBook;
use super::rounds::Rounds;
use super::world::seconds;
use crate::actuator::{Action, ActionKind, Outcome, Report};
use crate::config::Config;
use crate::journal::Entry;
use crate::status::Waits;
use sjp_core::cluster::{Job, MarkedJob};
use sjp_core::mark::Mark;
use sjp_core::publish::Moving;
use sjp_core::waiting::{self, Intent, Snapshot, Waiting as OneWaiting, release};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// Bookkeeping for waiting jobs.
#[derive(Debug)]
pub struct Waiting {
    book: MarkBook,
    counts: Waits,
    released: u64,
    /// Pending jobs with a pin at the last look.
    pinned: usize,
    /// Of those, the ones that should have been released by now.
    overdue: usize,
    /// When the queue is to be read for what is then due.
    due: Option<Instant>,
    /// What is widened and chosen again, a batch at a time.
    rounds: Rounds,
    /// Room that changes under way take, by job: until a queue shows them.
    moving: HashMap<u32, OnTheMove>,
    /// Skipped jobs by id and submit time: their partitions when they were first
    /// seen.
    skipped: HashMap<(u32, i64), Vec<String>>,
    /// When the clock was stepped last, Unix seconds by the clock since.
    stepped: Option<i64>,
}

/// Room that a change takes.
#[derive(Debug)]
struct OnTheMove {
    takes: Vec<Moving>,
    /// When the change was made, seconds of a clock that is never stepped; `None`:
    /// not yet.
    made: Option<f64>,
}

/// What is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What was done is taken back in its time, and nothing new is done.
    Undo,
    /// Nothing that depends on room: the nodes were asked for before the queue, and
    /// may show room that jobs have taken which do not wait any more.
    Urgent,
    /// Everything.
    All,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes, those that cannot wait first, then the most useful ones. Each is
    /// to be handed over, or given to [`Waiting::not_taken`].
    pub actions: Vec<Action>,
    /// What is to be logged.
    pub entry: Option<Entry>,
}

impl Waiting {
    /// Of a run that starts at `unix` seconds.
    #[must_use]
    pub fn new(unix: f64) -> Self {
        Self {
            book: MarkBook::new(seconds(unix)),
            counts: Waits::default(),
            released: 0,
            pinned: 0,
            overdue: 0,
            due: None,
            rounds: Rounds::default(),
            moving: HashMap::new(),
            skipped: HashMap::new(),
            stepped: None,
        }
    }

    /// Another sjpd may have acted, or acts from now on: what is known of marks is
    /// forgotten. `unix` in seconds.
    pub fn begin_anew(&mut self, unix: f64) {
        self.book = MarkBook::new(seconds(unix));
        (self.pinned, self.overdue, self.due) = (0, 0, None);
        self.rounds.begin_anew();
        self.moving.clear();
        self.skipped.clear();
    }

    /// The clock was stepped, and is `unix` seconds now: what was stamped before says
    /// nothing of how long a job has waited.
    pub fn clock_stepped(&mut self, unix: f64) {
        self.stepped = Some(seconds(unix));
    }

    /// A new queue was read, asked for at `asked` (seconds of a clock that is never
    /// stepped).
    pub fn see_queue(&mut self, jobs: &[Job], asked: f64) {
        self.book.see_queue(jobs, asked);
        // What was made before is in this queue.
        self.moving.retain(|_, m| m.made.is_none_or(|made| asked <= made));
        let mut skipped = HashMap::new();
        for (job, mark) in self.book.marked(jobs) {
            if mark.get("skipped").is_some() {
                let key = (job.id, job.submit);
                let first = self.skipped.remove(&key).unwrap_or_else(|| job.partitions.clone());
                skipped.insert(key, first);
            }
        }
        self.skipped = skipped;
    }

    /// The jobs whose marks are to be read now, at most `most`. `off`: nothing new is
    /// done.
    #[must_use]
    pub fn wanted(
        &self,
        jobs: &[Job],
        unix: f64,
        config: &Config,
        off: bool,
        most: usize,
    ) -> Vec<u32> {
        let all = !off && (config.recheck.interval > Duration::ZERO || config.starvation.enabled);
        let mut ids = self.book.wanted(jobs, seconds(unix), matters_after(config), all);
        ids.truncate(most);
        ids
    }

    /// Marks were read.
    pub fn learn(&mut self, asked: &[u32], read: &[MarkedJob], jobs: &[Job]) {
        self.book.learn(asked, read, jobs);
    }

    /// What is to be done now, on a queue that was just read.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot<'_>,
        unix: f64,
        now: Instant,
        config: &Config,
        scope: Scope,
    ) -> Plan {
        let (roster, jobs) = (snapshot.roster, snapshot.input.jobs);
        let mut settings = settings_of(config);
        // Nobody moves a pin that waits for room: it goes like any other.
        settings.wait_for_room &= scope != Scope::Undo;
        settings.widen &= scope != Scope::Undo;
        settings.stepped = self.stepped;
        let time = snapshot.input.now;
        let ours: Vec<OneWaiting<'_>> =
            self.book.ours(jobs, now).map(|(job, mark)| OneWaiting { job, mark }).collect();
        self.pinned = ours.iter().filter(|w| w.mark.get("pin").is_some()).count();
        let strayed = |w: &OneWaiting<'_>| {
            let first = self.skipped.get(&(w.job.id, w.job.submit));
            first.is_some_and(|first| *first != w.job.partitions)
        };
        let mut intents = waiting::let_go(roster, &ours);
        intents.extend(ours.iter().filter(|w| strayed(w)).map(waiting::let_go_of));
        let releases = release::plan(roster, &ours, &settings, time);
        let grace = 2 * seconds(config.cadence.queue_poll_interval.as_secs_f64());
        let since = |job: u32| ours.iter().find(|w| w.job.id == job);
        let late = |r: &&Intent| {
            let due = since(r.job).and_then(|w| release::due(w, &settings, time));
            r.unpin && due.is_some_and(|due| due.saturating_add(grace) < time)
        };
        self.overdue = releases.iter().filter(late).count();
        intents.extend(releases);
        let busy: HashSet<u32> = intents.iter().map(|i| i.job).collect();
        let rest: Vec<OneWaiting<'_>> =
            ours.iter().filter(|w| !busy.contains(&w.job.id)).copied().collect();
        let mut plan = Plan::default();
        let due = |w: &OneWaiting<'_>| {
            let at = release::due(w, &settings, time)? as f64;
            (at > unix).then_some(at - unix)
        };
        let soonest = ours.iter().filter_map(due).fold(f64::INFINITY, f64::min);
        if scope == Scope::All {
            let (batch, entry) = self.rounds.plan(snapshot, &rest, &settings, now, config);
            intents.extend(batch);
            plan.entry = entry;
        }
        // A moment later, as Slurm's times are whole seconds.
        let release = (soonest < 1e9).then(|| now + Duration::from_secs_f64(soonest + 0.1));
        let recheck = self.rounds.next().filter(|_| !ours.is_empty() && settings.interval > 0);
        self.due = [release, recheck].into_iter().flatten().min();
        let by_id: HashMap<u32, (&Job, &Mark)> =
            ours.iter().map(|w| (w.job.id, (w.job, w.mark))).collect();
        let mut orders = Vec::with_capacity(intents.len());
        for intent in intents {
            if let Some((job, mark)) = by_id.get(&intent.job) {
                let takes = intent.takes.clone();
                orders.push((takes, action_of(intent, job, mark)));
            }
        }
        for (takes, action) in orders {
            let Some(job) = action.job() else { continue };
            self.book.begin(job);
            if !takes.is_empty() {
                let takes = takes.into_iter().map(|(node, cpus, mem)| Moving { node, cpus, mem });
                self.moving.insert(job, OnTheMove { takes: takes.collect(), made: None });
            }
            plan.actions.push(action);
        }
        plan
    }

    /// Pending jobs of sjp's that may be changed now, with their marks.
    #[must_use]
    pub fn ours<'a>(&'a self, jobs: &'a [Job], now: Instant) -> Vec<OneWaiting<'a>> {
        self.book.ours(jobs, now).map(|(job, mark)| OneWaiting { job, mark }).collect()
    }

    /// An action that somebody else planned is handed over.
    pub fn begin(&mut self, action: &Action) {
        if let Some(job) = action.job() {
            self.book.begin(job);
        }
    }

    /// When the queue is to be read again for what is then due: it is decided on a
    /// fresh queue.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The queue will be read for it.
    pub fn due_is_seen_to(&mut self) {
        self.due = None;
    }

    /// Room that changes under way take.
    #[must_use]
    pub fn moving(&self) -> Vec<Moving> {
        self.moving.values().flat_map(|m| m.takes.iter().cloned()).collect()
    }

    /// The hands' queue was full: planned again at the next look.
    pub fn not_taken(&mut self, action: &Action) {
        if let Some(job) = action.job() {
            self.over(job);
            self.book.dropped(job);
        }
    }

    /// A change came to nothing.
    fn over(&mut self, job: u32) {
        self.rounds.over(job);
        self.moving.remove(&job);
    }

    /// What became of an action, at `steady` seconds of a clock that is never stepped.
    /// Answers the error, where it failed.
    pub fn reported(&mut self, report: &Report, steady: f64, now: Instant) -> Option<String> {
        let job = report.action.job()?;
        match &report.outcome {
            Outcome::Done => {
                self.book.made(job, report.action.mark.as_deref(), steady);
                self.rounds.over(job);
                if let Some(moving) = self.moving.get_mut(&job) {
                    moving.made = Some(steady);
                }
                self.count(report.action.kind);
            }
            Outcome::Gone(_) | Outcome::Off => {
                self.over(job);
                self.book.dropped(job);
            }
            Outcome::Changed(_) => {
                self.over(job);
                self.book.changed_by_others(job, steady);
            }
            Outcome::Would => {
                self.over(job);
                self.book.told(job);
            }
            Outcome::Failed(said) => {
                self.over(job);
                self.book.refused(job, now);
                return Some(said.clone());
            }
        }
        None
    }

    fn count(&mut self, kind: ActionKind) {
        let counts = &mut self.counts;
        match kind {
            ActionKind::Release => self.released += 1,
            ActionKind::Move => counts.moved += 1,
            ActionKind::Open => counts.opened += 1,
            ActionKind::Narrow => counts.narrowed += 1,
            ActionKind::WaitFor => counts.waiting_for_room += 1,
            ActionKind::Widen => counts.widened += 1,
            ActionKind::DropMark => counts.let_go += 1,
            _ => {}
        }
    }

    /// Settings changed: what a dry run told may be told again.
    pub fn settings_changed(&mut self) {
        self.book.settings_changed();
        self.rounds.recheck_now();
    }

    /// What was done for waiting jobs since the start.
    #[must_use]
    pub fn counts(&self) -> Waits {
        let (rechecks, left) = self.rounds.counts();
        Waits { rechecks, left, ..self.counts.clone() }
    }

    /// Pins released since the start.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Pending jobs with a known pin at the last look.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    /// Of those, the ones that should have been released by now.
    #[must_use]
    pub fn overdue(&self) -> usize {
        self.overdue
    }
}

/// A mark matters once it may be time to do something: it is read one look at the
/// queue ahead, so that reading does not add to the wait.
fn matters_after(config: &Config) -> Duration {
    let ahead = config.cadence.queue_poll_interval + Duration::from_secs(2);
    let mut first = config.pin.release_after;
    if config.recheck.interval > Duration::ZERO {
        first = first.min(config.recheck.interval);
    }
    first.saturating_sub(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::cluster::{JobState, Node, Partition, SlurmConfig};
    use sjp_core::config::Policy;
    use sjp_core::ledger::Ledger;
    use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_roster};
    use sjp_core::units::{Cpus, Limit};

    fn job(id: u32, req: &[&str], submit: i64) -> Job {
        Job {
            id,
            array_tasks: 1,
            state: JobState::Pending,
            partitions: vec!["slim1".into()],
            req_nodes: req.iter().map(|s| (*s).to_owned()).collect(),
            submit,
            ..Job::default()
        }
    }

    fn marked(job: &Job, comment: &str) -> MarkedJob {
        MarkedJob {
            id: job.id,
            admin_comment: comment.into(),
            submit: job.submit,
            ..MarkedJob::default()
        }
    }

    /// Plans on a cluster of n1 in slim1 and n2 in slim2, both full.
    fn planned(
        waiting: &mut Waiting,
        jobs: &[Job],
        unix: f64,
        now: Instant,
        config: &Config,
    ) -> Vec<Action> {
        let node = |name: &str, partition: &str| Node {
            name: name.into(),
            usable: true,
            cpus_effective: Cpus(16),
            cpus_alloc: Cpus(16),
            partitions: vec![partition.into()],
            ..Node::default()
        };
        let partition = |name: &str| Partition {
            name: name.into(),
            state: "UP".into(),
            max_nodes: Limit::Unlimited,
            ..Partition::default()
        };
        let nodes = [node("n1", "slim1"), node("n2", "slim2")];
        let roster = build_roster(&RosterInput {
            nodes: &nodes,
            partitions: &[partition("slim1"), partition("slim2")],
            config: &SlurmConfig::default(),
            qos: &[],
            bound_users: &[],
            policy: &Policy::default(),
        });
        let input = RoomsInput {
            nodes: &nodes,
            nodes_asked_at: unix,
            reservations: &[],
            jobs,
            ledger: &Ledger::new(),
            qos: &[],
            config: &SlurmConfig::default(),
            now: seconds(unix),
            extra: Extra::default(),
        };
        waiting.plan(&Snapshot { roster: &roster, input }, unix, now, config, Scope::All).actions
    }

    /// Nothing is chosen again or widened: only marks of pins matter.
    fn releases_only() -> Config {
        let mut config = Config::default();
        config.recheck.interval = Duration::ZERO;
        config.starvation.enabled = false;
        config
    }

    const PIN: &str = "sjp:pin=n1;from=slim1,slim2;job=4c,16G,4.0G/c;free=8c,40G,5.0G/c;id=7f3a";

    fn report(action: &Action, outcome: Outcome) -> Report {
        Report { action: action.clone(), outcome }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pin_is_read_shortly_before_it_matters_and_released_in_time() {
        let (config, now) = (releases_only(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010), job(8, &[], 1010), job(9, &["n1", "n2"], 1010)];
        waiting.see_queue(&jobs, 0.0);
        assert!(waiting.wanted(&jobs, 1030.0, &config, false, 100).is_empty(), "too early");
        let wanted = waiting.wanted(&jobs, 1061.0, &config, false, 100);
        assert_eq!(wanted, [7], "one required node, and nothing else");
        waiting.learn(&wanted, &[marked(&jobs[0], PIN)], &jobs);
        assert!(waiting.wanted(&jobs, 1065.0, &config, false, 100).is_empty(), "known");
        assert!(planned(&mut waiting, &jobs, 1069.0, now, &config).is_empty(), "not yet");
        assert_eq!(waiting.due(), Some(now + Duration::from_millis(1100)));
        let plan = planned(&mut waiting, &jobs, 1070.0, now, &config);
        assert_eq!(plan.len(), 1);
        assert_eq!((plan[0].kind, plan[0].job()), (ActionKind::Release, Some(7)));
        let [node, rest] = plan[0].updates.as_slice() else { panic!("two updates") };
        assert_eq!(node.set(), [("reqnodelist", String::new())]);
        assert_eq!(rest.set()[0], ("partition", "slim1,slim2".to_owned()));
        let comment = &rest.set()[1].1;
        assert!(!comment.contains("pin="), "{comment}");
        assert!(planned(&mut waiting, &jobs, 1075.0, now, &config).is_empty(), "under way");
        assert_eq!(waiting.reported(&report(&plan[0], Outcome::Done), 1076.0, now), None);
        assert!(planned(&mut waiting, &jobs, 1080.0, now, &config).is_empty(), "done");
        assert_eq!(waiting.released(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_users_own_node_ends_the_mark_and_other_comments_are_left_alone() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(1, &["n2"], 1010), job(2, &["n1"], 1010), job(3, &["n1"], 1010)];
        let comments = [PIN, "sjp:placed=slim1;id=1", "mine"];
        let read: Vec<MarkedJob> = jobs.iter().zip(comments).map(|(j, c)| marked(j, c)).collect();
        waiting.learn(&[1, 2, 3], &read, &jobs);
        let plan = planned(&mut waiting, &jobs, 9000.0, now, &config);
        for (action, job) in plan.iter().zip([1, 2]) {
            assert_eq!((action.kind, action.job()), (ActionKind::DropMark, Some(job)));
            let [only] = action.updates.as_slice() else { panic!("the mark alone: {action:?}") };
            assert_eq!(only.set(), [("admincomment", String::new())]);
            waiting.reported(&report(action, Outcome::Done), 9001.0, now);
        }
        assert_eq!((plan.len(), waiting.counts().let_go), (2, 2));
        assert!(planned(&mut waiting, &jobs, 9100.0, now, &config).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_skipped_job_that_changed_is_not_looked_at_again() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let skipped = |partition: &str| {
            [Job {
                partitions: vec![partition.into()],
                admin_comment: Some("sjp:skipped=no room".into()),
                ..job(7, &[], 900)
            }]
        };
        waiting.see_queue(&skipped("slim1"), 1001.0);
        assert!(planned(&mut waiting, &skipped("slim1"), 1002.0, now, &config).is_empty());
        waiting.see_queue(&skipped("slim2"), 1003.0);
        let plan = planned(&mut waiting, &skipped("slim2"), 1004.0, now, &config);
        assert_eq!(plan.len(), 1);
        assert_eq!((plan[0].kind, plan[0].mark.as_deref()), (ActionKind::DropMark, Some("")));
    }

    #[tokio::test(start_paused = true)]
    async fn rechecks_come_at_their_interval_in_batches_and_room_is_kept() {
        let (mut config, now) = (Config::default(), Instant::now());
        config.cadence.max_updates_per_second = 0.5;
        let mut waiting = Waiting::new(1000.0);
        let jobs: Vec<Job> = (1..=6)
            .map(|id| Job {
                priority: 10,
                reason: "Resources".into(),
                cpus: Cpus(4),
                node_count: 1,
                batch: true,
                mem: sjp_core::units::MemPer::Node(sjp_core::units::MemMb(100)),
                time_limit: Limit::At(10),
                admin_comment: Some("sjp:placed=slim1;job=4c,100M,0.0G/c;id=1".into()),
                ..job(id, &[], 900)
            })
            .collect();
        waiting.see_queue(&jobs, 1001.0);
        let first = planned(&mut waiting, &jobs, 1002.0, now, &config);
        assert_eq!(first.iter().filter_map(Action::job).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(first.iter().all(|a| a.kind == ActionKind::Open), "{first:?}");
        assert_eq!((waiting.counts().rechecks, waiting.counts().left), (1, 2));
        assert!(planned(&mut waiting, &jobs, 1003.0, now, &config).is_empty(), "one at a time");
        for action in &first {
            waiting.reported(&report(action, Outcome::Done), 1004.0, now);
        }
        waiting.see_queue(&jobs, 1005.0);
        let rest = planned(&mut waiting, &jobs[4..], 1006.0, now, &config);
        assert_eq!(rest.iter().filter_map(Action::job).collect::<Vec<_>>(), [5, 6]);
        for action in &rest {
            waiting.reported(&report(action, Outcome::Done), 1007.0, now);
        }
        let counts = waiting.counts();
        assert_eq!((counts.rechecks, counts.opened, counts.left), (1, 6, 0));
        waiting.see_queue(&jobs, 1008.0);
        assert!(planned(&mut waiting, &jobs, 1009.0, now, &config).is_empty(), "not due");
        assert_eq!(waiting.due(), Some(now + Duration::from_secs(60)));
        let later = now + Duration::from_secs(60);
        assert_eq!(planned(&mut waiting, &jobs, 1062.0, later, &config).len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_cut_in_two_by_a_crash_is_finished_after_a_restart() {
        let (config, now) = (releases_only(), Instant::now());
        let mut waiting = Waiting::new(2000.0);
        // Its node is gone already, its partitions are not yet back.
        let jobs = [job(7, &[], 1010), job(8, &[], 2001)];
        waiting.see_queue(&jobs, 0.0);
        let wanted = waiting.wanted(&jobs, 2002.0, &config, false, 100);
        assert_eq!(wanted, [7], "jobs of an earlier run only");
        waiting.learn(&wanted, &[marked(&jobs[0], PIN)], &jobs);
        let plan = planned(&mut waiting, &jobs, 2002.0, now, &config);
        assert_eq!(plan.len(), 1);
        let [rest] = plan[0].updates.as_slice() else { panic!("the node is off already") };
        assert_eq!(rest.set()[0], ("partition", "slim1,slim2".to_owned()));
        waiting.see_queue(&jobs, 0.0);
        let later = [job(9, &[], 1500)];
        assert!(waiting.wanted(&later, 2003.0, &config, false, 100).is_empty(), "swept once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_change_rests_is_read_again_and_tried_again() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&jobs[0], PIN)], &jobs);
        let plan = planned(&mut waiting, &jobs, 1100.0, now, &config);
        let failed = report(&plan[0], Outcome::Failed("Access/permission denied".into()));
        assert_eq!(
            waiting.reported(&failed, 1101.0, now).as_deref(),
            Some("Access/permission denied")
        );
        // The node went, the partitions did not: known from the mark only.
        let half = [job(7, &[], 1010)];
        waiting.see_queue(&half, 0.0);
        assert_eq!(waiting.wanted(&half, 1101.0, &config, false, 100), [7]);
        waiting.learn(&[7], &[marked(&half[0], PIN)], &half);
        assert!(waiting.wanted(&half, 1101.0, &config, false, 100).is_empty());
        assert!(planned(&mut waiting, &half, 1102.0, now, &config).is_empty(), "rests");
        let later = now + Duration::from_secs(61);
        assert_eq!(planned(&mut waiting, &half, 1162.0, later, &config).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_tells_once() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&jobs[0], PIN)], &jobs);
        let plan = planned(&mut waiting, &jobs, 1100.0, now, &config);
        waiting.reported(&report(&plan[0], Outcome::Would), 1100.0, now);
        assert!(planned(&mut waiting, &jobs, 1200.0, now, &config).is_empty());
        waiting.settings_changed();
        assert_eq!(planned(&mut waiting, &jobs, 1200.0, now, &config).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_id_used_again_is_another_job() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let old = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&old[0], PIN)], &old);
        let new = [job(7, &["n1"], 5000)];
        waiting.see_queue(&new, 0.0);
        assert!(planned(&mut waiting, &new, 9000.0, now, &config).is_empty());
        assert_eq!(waiting.wanted(&new, 9000.0, &config, false, 100), [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_tells_marks_needs_no_other_reading() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let told =
            |comment: &str| [Job { admin_comment: Some(comment.into()), ..job(7, &["n1"], 900) }];
        let jobs = told(PIN);
        waiting.see_queue(&jobs, 1001.0);
        assert!(waiting.wanted(&jobs, 1100.0, &config, false, 100).is_empty());
        let plan = planned(&mut waiting, &jobs, 1100.0, now, &config);
        assert_eq!(plan.len(), 1);
        waiting.reported(&report(&plan[0], Outcome::Done), 1102.0, now);
        // Asked for before the change was made: the old mark is not news.
        waiting.see_queue(&jobs, 1101.0);
        assert!(planned(&mut waiting, &jobs, 1103.0, now, &config).is_empty());
        let mine = told("mine");
        waiting.see_queue(&mine, 1110.0);
        assert!(planned(&mut waiting, &mine, 1111.0, now, &config).is_empty());
    }
}
