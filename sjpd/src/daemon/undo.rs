//! `sjpd --undo`, `sjp undo`: takes back every change of sjp's that still stands,
//! says what it does, and looks again until nothing is left.

use super::intents::update;
use super::limits::{Record, SETTLE, caps_words, read_record};
use super::marks::MarkBook;
use super::reads::Reads;
use super::stance::{Standing, host_name, policy};
use super::table::snapshot;
use super::world::{Reading, World, seconds, unix_now};
use crate::actuator::{
    self, Action, ActionKind, Actuator, Gate, Outcome, Report, Seen, Target, Tempo, Update,
};
use crate::config::{Active, Config};
use crate::journal::{Entry, Journal};
use crate::ports::{Cluster, Kind};
use serde::Serialize;
use sjp_core::cluster::Job;
use sjp_core::limits::pulse::{Raised, settings_of};
use sjp_core::mark::Mark;
use sjp_core::undo;
use sjp_core::waiting::Waiting;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often what is left is tried again before it is given up.
const ROUNDS: usize = 3;
/// Why all of it is done.
const WHY: &str = "everything of sjp's is taken back";
/// The wait before another look at what could not be undone.
const PAUSE: Duration = Duration::from_secs(2);

/// One change that was taken back, or was to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `job 7`, `QOS normal`.
    pub target: String,
    /// What is taken back.
    pub words: String,
    /// `done`, `gone` (the job waits no more), `would`, `failed`.
    pub outcome: &'static str,
    /// What was said, where something was.
    pub said: Option<String>,
}

impl Change {
    fn of(report: &Report) -> Self {
        Self {
            target: report.action.target.to_string(),
            words: report.action.words.clone(),
            outcome: report.outcome.word(),
            said: report.outcome.said().map(str::to_owned),
        }
    }

    /// On one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { target, words, outcome, said } = self;
        match (*outcome, said) {
            ("would", _) => format!("{target}: would be undone: {words}"),
            ("gone", _) => format!("{target}: waits no more"),
            (_, Some(said)) => format!("{target}: {words}: {outcome}: {said}"),
            (_, None) => format!("{target}: {words}: {outcome}"),
        }
    }
}

/// What became of it all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Jobs of which everything was taken back (or would be, by a dry run).
    pub jobs: usize,
    /// QOS whose caps were given back.
    pub qos: usize,
    /// What still stands, by target, and why.
    pub left: BTreeMap<String, String>,
    /// What could not be read, and so may hide more.
    pub unread: Vec<String>,
}

impl Undone {
    /// Whether nothing is left.
    #[must_use]
    pub fn all(&self) -> bool {
        self.left.is_empty() && self.unread.is_empty()
    }

    /// On one line.
    #[must_use]
    pub fn summary(&self, dry_run: bool) -> String {
        let verb = if dry_run { "would be undone" } else { "undone" };
        let count = |count: usize, what: &str| {
            if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
        };
        let mut words = format!("{verb}: {}", count(self.jobs, "job"));
        if self.qos > 0 {
            words = format!("{words}, caps of {} QOS", self.qos);
        }
        if !self.left.is_empty() {
            words = format!("{words}; {} could not be undone", self.left.len());
        } else if !dry_run {
            words.push_str("; nothing is left");
        }
        if !self.unread.is_empty() {
            words = format!("{words}; not everything could be read: {}", self.unread.join("; "));
        }
        words
    }
}

/// Why it was not begun.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The cluster cannot be read.
    #[error("nothing was changed: {0}")]
    Unread(String),
    /// Another host's sjpd may act.
    #[error(
        "nothing was changed: sjpd {0}; run this on the host of the slurmctld that acts, or set \
         [general] active = \"always\""
    )]
    NotHere(Standing),
    /// Slurm will not let this user.
    #[error("nothing was changed: run this as root or as SlurmUser ({0})")]
    NoRights(String),
}

/// Reads the cluster and undoes what stands, in some rounds, since what waits moves
/// on meanwhile. `tell` gets every change as it is made. `beside`: an sjpd that does
/// nothing new any more runs, and may be finishing a change.
///
/// # Errors
/// Where nothing can be undone from here.
pub async fn undo<C: Cluster, A: Actuator>(
    cluster: Arc<C>,
    actuator: Arc<A>,
    config: &Config,
    journal: Journal,
    dry_run: bool,
    beside: bool,
    tell: &mut impl FnMut(&Change),
) -> Result<Undone, Refused> {
    let mut run = Run {
        reads: Reads::new(cluster, config),
        world: World::new(),
        book: MarkBook::default(),
        undone: Undone::default(),
        done: BTreeSet::new(),
        caps: Recorded::open(config, dry_run, beside),
    };
    run.first_look(config).await?;
    let tempo = Tempo {
        gate: if dry_run { Gate::Dry } else { Gate::On },
        per_second: config.cadence.max_updates_per_second,
        disable_file: None,
    };
    journal
        .write(&Entry::new("undo", "everything of sjp's is taken back").with("dry_run", dry_run));
    let (hands, mut reports) = actuator::start(actuator, journal.clone(), tempo);
    let (mut quiet, mut round) = (!beside, 0);
    loop {
        let actions = run.plan(config).await?;
        if actions.is_empty() && quiet {
            break;
        }
        if actions.is_empty() {
            // What was being made when it was switched off has been by now.
            quiet = true;
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        if round == ROUNDS {
            run.give_up(&actions);
            break;
        }
        round += 1;
        let mut failed = false;
        let mut waiting = actions.into_iter().peekable();
        let mut out = 0;
        while waiting.peek().is_some() || out > 0 {
            while let Some(action) = waiting.next_if(|action| hands.order(action.clone())) {
                run.undone.left.remove(&action.target.to_string());
                out += 1;
            }
            let Some(report) = reports.recv().await else { break };
            out -= 1;
            failed |= run.take(&report);
            tell(&Change::of(&report));
        }
        if dry_run {
            break;
        }
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
    }
    hands.stop(Duration::from_secs(5)).await;
    let words = run.undone.summary(dry_run);
    journal.write(&Entry::new("undo", words).with("left", run.undone.left.len()));
    Ok(run.undone)
}

/// What is known on the way.
struct Run<C> {
    reads: Reads<C>,
    world: World,
    book: MarkBook,
    undone: Undone,
    /// What has been undone.
    done: BTreeSet<Target>,
    caps: Recorded,
}

/// Raised caps, as recorded.
enum Recorded {
    /// By nobody else's hands: what is given back is taken out.
    Mine(Record),
    /// To be looked at only: a dry run, or an sjpd that runs keeps it.
    Theirs,
    /// It cannot be read.
    Wrong(String),
}

impl Recorded {
    fn open(config: &Config, dry_run: bool, beside: bool) -> Self {
        if dry_run || beside {
            return Self::Theirs;
        }
        match Record::open(&config.limits.state_file) {
            (record, None) => Self::Mine(record),
            (_, Some(wrong)) => Self::Wrong(wrong),
        }
    }

    fn now(&self, config: &Config) -> Result<BTreeMap<String, Raised>, String> {
        let path = &config.limits.state_file;
        match self {
            Self::Mine(record) => Ok(record.qos().clone()),
            Self::Theirs => read_record(path).map_err(|e| format!("{}: {e}", path.display())),
            Self::Wrong(wrong) => Err(wrong.clone()),
        }
    }

    /// Nothing of it stands any more.
    fn over(&mut self, qos: &str) -> Result<(), String> {
        match self {
            Self::Mine(record) => record.remove(qos).map_err(|e| e.to_string()),
            Self::Theirs | Self::Wrong(_) => Ok(()),
        }
    }
}

impl<C: Cluster> Run<C> {
    /// What is read once: settings, whom sjp may not list partitions for.
    async fn first_look(&mut self, config: &Config) -> Result<(), Refused> {
        self.read(Kind::Config, Vec::new()).await.map_err(Refused::Unread)?;
        self.rights()?;
        let controllers = self.world.config.controllers.clone();
        if config.general.active == Active::Auto && controllers.len() > 1 {
            self.read(Kind::Controller, Vec::new()).await.map_err(Refused::Unread)?;
        }
        let (active, acting) = (config.general.active, self.world.acting);
        let standing = Standing::of(active, &controllers, &host_name(), acting);
        if standing != Standing::Active {
            return Err(Refused::NotHere(standing));
        }
        // Without accounting Slurm still says which partitions a job may have.
        for kind in [Kind::Qos, Kind::Associations] {
            if let Err(error) = self.read(kind, Vec::new()).await {
                tracing::warn!(%kind, "{error}");
            }
        }
        Ok(())
    }

    /// AdminComments are set by root and SlurmUser only.
    fn rights(&self) -> Result<(), Refused> {
        let uid = nix::unistd::geteuid().as_raw();
        let slurm = &self.world.config.slurm_user;
        let known = slurm.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        match known.and_then(|n| n.parse::<u32>().ok()) {
            Some(wanted) if uid != 0 && uid != wanted => Err(Refused::NoRights(slurm.clone())),
            _ => Ok(()),
        }
    }

    async fn read(&mut self, kind: Kind, ids: Vec<u32>) -> Result<(), String> {
        self.reads.start(kind, Instant::now(), ids);
        let joined = self.reads.arrival().await;
        let arrival = self.reads.done(joined);
        match arrival.result {
            Ok(reading) => {
                if let Reading::Marks(asked, records) = &reading {
                    self.book.learn(asked, &records.list, &self.world.jobs);
                }
                self.world.take(reading, arrival.asked, arrival.took);
                match self.world.last(kind).bad_records {
                    0 => Ok(()),
                    bad if matches!(kind, Kind::Queue | Kind::Marks) => {
                        self.undone.unread.push(format!("{kind}: {bad} records"));
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            Err(error) => Err(format!("{kind}: {error}")),
        }
    }

    /// What stands now.
    async fn plan(&mut self, config: &Config) -> Result<Vec<Action>, Refused> {
        (self.undone.unread, self.book) = (Vec::new(), MarkBook::new(seconds(unix_now())));
        for kind in [Kind::Nodes, Kind::Partitions, Kind::Queue] {
            self.read(kind, Vec::new()).await.map_err(Refused::Unread)?;
        }
        let asked = self.world.asked(Kind::Queue).map_or(0.0, |asked| asked.steady());
        self.book.see_queue(&self.world.jobs, asked);
        loop {
            let all = Duration::ZERO;
            let mut ids = self.book.wanted(&self.world.jobs, seconds(unix_now()), all, true);
            ids.truncate(self.reads.marks_at_once());
            if ids.is_empty() {
                break;
            }
            self.read(Kind::Marks, ids).await.map_err(Refused::Unread)?;
        }
        let (roster, _) = snapshot(&self.world, &policy(config, false, &Standing::Active));
        let marked: Vec<Waiting<'_>> =
            self.book.marked(&self.world.jobs).map(|(job, mark)| Waiting { job, mark }).collect();
        let by_id: HashMap<u32, (&Job, &Mark)> =
            marked.iter().map(|w| (w.job.id, (w.job, w.mark))).collect();
        let plan = undo::plan(&roster, &marked).into_iter();
        let mut actions: Vec<Action> = plan
            .filter_map(|undo| {
                let (job, mark) = by_id.get(&undo.job)?;
                Some(action(job, mark, &undo))
            })
            .collect();
        actions.extend(self.plan_caps(config).await);
        Ok(actions)
    }

    /// Caps that are raised still. What cannot be told about them is left, or unread.
    async fn plan_caps(&mut self, config: &Config) -> Vec<Action> {
        let recorded = match self.caps.now(config) {
            Ok(recorded) => recorded,
            Err(error) => {
                self.undone.unread.push(error);
                return Vec::new();
            }
        };
        if recorded.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.read(Kind::Limits, Vec::new()).await {
            for qos in recorded.into_keys() {
                self.undone.left.insert(Target::Qos(qos).to_string(), error.clone());
            }
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (qos, raised) in recorded {
            let now =
                self.world.limits.iter().find(|(name, _)| *name == qos).map(|(_, caps)| *caps);
            let back = now.map(|now| raised.to_give_back(now)).unwrap_or_default();
            let target = Target::Qos(qos.clone());
            if !back.none() {
                actions.push(Action {
                    kind: ActionKind::Undo,
                    target,
                    updates: vec![Update::Qos { name: qos, set: settings_of(back) }],
                    mark: None,
                    seen: None,
                    words: format!("caps back to {}", caps_words(back)),
                    why: WHY.to_owned(),
                });
                continue;
            }
            let age = seconds(unix_now()).abs_diff(raised.at);
            let settled = now.is_none_or(|now| !raised.is_base(now))
                || self.done.contains(&target)
                || age >= SETTLE.unsigned_abs();
            let name = target.to_string();
            if matches!(self.caps, Recorded::Mine(_)) && !settled {
                let words = format!(
                    "its caps are not raised now, but a command of {age} s ago may still do it: \
                     once more in ten minutes"
                );
                self.undone.left.insert(name, words);
            } else if let Err(error) = self.caps.over(&qos) {
                self.undone.left.insert(name, error);
            } else {
                self.undone.left.remove(&name);
            }
        }
        actions
    }

    /// These still stand.
    fn give_up(&mut self, actions: &[Action]) {
        for action in actions {
            self.done.remove(&action.target);
            let target = action.target.to_string();
            self.undone.left.entry(target).or_insert_with(|| "it is there again".to_owned());
        }
        self.count();
    }

    fn count(&mut self) {
        self.undone.jobs = self.done.iter().filter(|t| matches!(t, Target::Job(_))).count();
        self.undone.qos = self.done.len() - self.undone.jobs;
    }

    /// What became of one. Answers whether it failed.
    fn take(&mut self, report: &Report) -> bool {
        let target = report.action.target.to_string();
        match &report.outcome {
            Outcome::Done | Outcome::Would => {
                self.done.insert(report.action.target.clone());
                self.count();
                false
            }
            Outcome::Gone(_) => false,
            // Planned again, on what it is now.
            Outcome::Off | Outcome::Changed(_) => true,
            Outcome::Failed(said) => {
                self.undone.left.insert(target, said.clone());
                true
            }
        }
    }
}

fn action(job: &Job, mark: &Mark, undo: &undo::Undo) -> Action {
    Action {
        kind: ActionKind::Undo,
        target: Target::Job(undo.job),
        updates: undo.steps().into_iter().map(|set| update(job, set)).collect(),
        mark: Some(undo.comment_after().to_owned()),
        seen: Some(Seen::of(job, mark)),
        words: undo.words(),
        why: WHY.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, job};
    use super::*;
    use crate::actuator::{Answer, Update};
    use crate::journal::JournalPaths;
    use parking_lot::Mutex;
    use sjp_core::limits::pulse::Caps;

    const LONG_AGO: i64 = 1_000_000;

    /// Changes jobs as slurmctld would.
    struct Live(Arc<Fake>, Mutex<Vec<Answer>>);

    impl Actuator for Live {
        async fn update(&self, update: &Update) -> Answer {
            let answer = self.1.lock().pop().unwrap_or(Answer::Made);
            if answer == Answer::Made {
                let mut inner = self.0.inner.lock();
                if let Update::Qos { name, set } = update {
                    let [(key, value)] = set.as_slice() else { panic!("one cap") };
                    assert_eq!(*key, "MaxTRESPerUser");
                    let cpus = value.strip_prefix("cpu=").and_then(|n| n.parse().ok());
                    inner.caps.entry(name.clone()).or_default().user = cpus;
                }
                let ours = |j: &&mut Job| Some(j.id) == update.job();
                for job in inner.jobs.iter_mut().filter(ours) {
                    for (key, value) in update.set() {
                        let list = || value.split(',').filter(|s| !s.is_empty()).map(str::to_owned);
                        match *key {
                            "reqnodelist" => job.req_nodes = list().collect(),
                            "partition" => job.partitions = list().collect(),
                            "qos" => job.qos.clone_from(value),
                            "admincomment" => job.admin_comment = Some(value.clone()),
                            other => panic!("{other}"),
                        }
                    }
                }
            }
            answer
        }

        fn words(&self, update: &Update) -> String {
            format!("{update:?}")
        }
    }

    async fn undo_all(
        fake: &Arc<Fake>,
        answers: Vec<Answer>,
        dry_run: bool,
        beside: bool,
    ) -> (Vec<String>, Undone) {
        let live = Arc::new(Live(fake.clone(), Mutex::new(answers)));
        let journal = Journal::open(&JournalPaths { json: None, text: None });
        let mut lines = Vec::new();
        let mut tell = |change: &Change| lines.push(change.line());
        let config = Config::default();
        let done = undo(fake.clone(), live, &config, journal, dry_run, beside, &mut tell).await;
        (lines, done.expect("readable"))
    }

    fn fake() -> Arc<Fake> {
        let fake = Fake::new();
        let marked = |id, nodes: &[&str], mark: &str| job(id, nodes, mark, LONG_AGO);
        let in_flex = Job { qos: "flex".into(), ..marked(3, &[], "sjp:qos=normal>flex;id=1") };
        fake.inner.lock().jobs = vec![
            marked(1, &["slim1"], "mine sjp:pin=slim1;from=fat,slim;was=fat;id=1"),
            marked(2, &[], "sjp:skipped=no room"),
            in_flex,
            marked(4, &["slim1"], "users own"),
        ];
        fake
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_taken_back_once_and_the_rest_is_left() {
        let fake = fake();
        let untouched = fake.inner.lock().jobs[3].clone();
        let (lines, undone) = undo_all(&fake, Vec::new(), true, false).await;
        let would = "job 1: would be undone: pin to slim1 off, back to fat, mark off";
        assert!(lines.iter().any(|l| l == would), "{lines:?}");
        assert_eq!((lines.len(), undone.summary(true).as_str()), (3, "would be undone: 3 jobs"));
        let (mut lines, undone) = undo_all(&fake, Vec::new(), false, false).await;
        lines.sort();
        assert_eq!(
            lines,
            [
                "job 1: pin to slim1 off, back to fat, mark off: done",
                "job 2: mark off: done",
                "job 3: QOS flex back to normal, mark off: done"
            ]
        );
        assert!(undone.all());
        assert_eq!(undone.summary(false), "undone: 3 jobs; nothing is left");
        {
            let inner = fake.inner.lock();
            let seen: Vec<_> = inner
                .jobs
                .iter()
                .map(|j| (j.qos.as_str(), j.req_nodes.len(), j.admin_comment.as_deref()))
                .collect();
            let own = (untouched.qos.as_str(), 1, Some("users own"));
            let bare = |comment| (untouched.qos.as_str(), 0, Some(comment));
            assert_eq!(seen, [bare("mine"), bare(""), ("normal", 0, Some("")), own]);
            assert_eq!(inner.jobs[3], untouched);
        }
        // Beside an sjpd it looks once more; twice is the same as once.
        let before = fake.count(Kind::Queue);
        let (lines, undone) = undo_all(&fake, Vec::new(), false, true).await;
        assert_eq!((lines.len(), undone.all(), undone.jobs), (0, true, 0));
        assert_eq!(fake.count(Kind::Queue), before + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_again_and_then_told() {
        let fake = fake();
        fake.inner.lock().jobs.truncate(1);
        let refuse = |times| vec![Answer::Refused("Access/permission denied".into()); times];
        let (lines, undone) = undo_all(&fake, refuse(1), false, false).await;
        assert_eq!((lines.len(), undone.all(), undone.jobs), (2, true, 1), "{lines:?}");
        let fake = self::fake();
        fake.inner.lock().jobs.truncate(1);
        let (lines, undone) = undo_all(&fake, refuse(9), false, false).await;
        assert_eq!((lines.len(), undone.jobs), (ROUNDS, 0));
        assert!(!undone.all());
        let left: Vec<_> = undone.left.iter().collect();
        assert_eq!(left, [(&"job 1".to_owned(), &"Access/permission denied".to_owned())]);
        assert_eq!(undone.summary(false), "undone: 0 jobs; 1 could not be undone");
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_read_where_the_queue_does_not_tell_them() {
        let fake = fake();
        fake.inner.lock().marks_in_queue = false;
        let (lines, undone) = undo_all(&fake, Vec::new(), false, false).await;
        assert_eq!((lines.len(), undone.all()), (3, true), "{lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn raised_caps_go_back_to_what_was_recorded() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.limits.state_file = dir.path().join("limits.json");
        let cpus = |user| Caps { user: Some(user), account: None };
        let now = seconds(unix_now());
        let put = |at| {
            let mut record = Record::open(&config.limits.state_file).0;
            for (qos, base) in [("normal", 8), ("changed", 10), ("gone", 3)] {
                let raised = Raised::from(cpus(base), 2.0, at).expect("rises");
                record.put(qos, raised).expect("saved");
            }
        };
        let fake = Fake::new();
        let caps = [("normal", 16), ("changed", 99)];
        fake.inner.lock().caps = caps.map(|(qos, cap)| (qos.to_owned(), cpus(cap))).into();
        put(now);
        let undo_caps = async |dry_run| {
            let live = Arc::new(Live(fake.clone(), Mutex::default()));
            let journal = Journal::open(&JournalPaths { json: None, text: None });
            let mut lines = Vec::new();
            let mut tell = |change: &Change| lines.push(change.line());
            let end = undo(fake.clone(), live, &config, journal, dry_run, false, &mut tell).await;
            (lines, end.expect("readable"))
        };
        let before = std::fs::read(&config.limits.state_file).expect("there");
        let (lines, _) = undo_caps(true).await;
        assert_eq!(lines, ["QOS normal: would be undone: caps back to MaxTRESPU cpu=8"]);
        assert_eq!(std::fs::read(&config.limits.state_file).expect("there"), before);
        let (lines, undone) = undo_caps(false).await;
        assert_eq!(lines, ["QOS normal: caps back to MaxTRESPU cpu=8: done"]);
        assert_eq!(undone.summary(false), "undone: 0 jobs, caps of 1 QOS; nothing is left");
        assert!(!config.limits.state_file.exists());
        assert_eq!(fake.inner.lock().caps["changed"], cpus(99), "an admin's");
        // Recorded, but not raised (yet).
        let raised = Raised::from(cpus(8), 2.0, now).expect("rises");
        let mut record = Record::open(&config.limits.state_file).0;
        record.put("normal", raised).expect("saved");
        let (lines, undone) = undo_caps(false).await;
        assert_eq!((lines.len(), undone.left.len()), (0, 1));
        assert!(config.limits.state_file.exists());
        record.put("normal", Raised { at: now - SETTLE, ..raised }).expect("saved");
        let (_, undone) = undo_caps(false).await;
        assert!(undone.all() && !config.limits.state_file.exists(), "{undone:?}");
        // A record that cannot be read hides something.
        std::fs::write(&config.limits.state_file, "{").expect("written");
        let (_, undone) = undo_caps(true).await;
        assert!(!undone.all());
    }

    #[tokio::test(start_paused = true)]
    async fn it_refuses_on_the_standby_and_where_nothing_can_be_read() {
        let journal = || Journal::open(&JournalPaths { json: None, text: None });
        let config = Config::default();
        let mut tell = |change: &Change| panic!("{change:?}");
        for (acting, failing) in [(1, None), (0, Some(Kind::Queue)), (0, Some(Kind::Controller))] {
            let fake = fake();
            {
                let mut inner = fake.inner.lock();
                inner.controllers = vec![host_name(), "another".into()];
                inner.acting = acting;
                inner.failing.extend(failing);
            }
            let live = Arc::new(Live(fake.clone(), Mutex::default()));
            let end = undo(fake, live, &config, journal(), false, false, &mut tell).await;
            let error = end.expect_err("refused").to_string();
            assert!(error.starts_with("nothing was changed: "), "{error}");
        }
    }
}
