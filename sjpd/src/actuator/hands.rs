//! Carries actions out: a task of its own with two bounded queues, so that the
//! polling loop never waits for a change. What takes changes back goes before
//! everything else. Changes of QOS have a task of their own: slurmdbd, which may
//! hang, keeps no job waiting.

use super::{Action, ActionKind, Actuator, Answer, Look, Outcome, Seen, Target, Update};
use crate::journal::{Entry, Journal};
use sjp_core::cluster::JobState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Actions of either lane that may wait; what does not fit is planned again,
/// from a newer queue.
const QUEUE: usize = 256;
/// First wait after a busy answer; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait after a busy answer.
const LAST_WAIT: Duration = Duration::from_secs(60);
/// Busy answers for one update, after which the action is given up: the next
/// look at the queue plans it again, from fresh data.
const TRIES: u32 = 6;
/// How often an update is tried again soon, before [`Answer::Again`] counts as busy:
/// with three of four answers such, one update in five thousand gets there.
const SOON_TRIES: u32 = 30;
/// The wait before each of these.
const SOON: Duration = Duration::from_millis(100);

/// Whether changes may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// None at all: where another sjpd acts.
    Off,
    /// Mode observe or advise: what takes back, and nothing else.
    Undo,
    /// `--dry-run`: say what would be done.
    Dry,
    /// Mode enforce.
    On,
}

/// How changes are made, from the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Tempo {
    /// Whether at all.
    pub gate: Gate,
    /// `[cadence] max_updates_per_second`.
    pub per_second: f64,
    /// `[general] disable_file`: while it is there, only what takes back is done.
    pub disable_file: Option<Arc<PathBuf>>,
}

impl Tempo {
    /// Whether a change of this kind may be begun at this moment.
    #[must_use]
    pub fn allows(&self, kind: ActionKind) -> bool {
        match self.gate {
            Gate::Off => false,
            Gate::Undo => kind.undoes(),
            Gate::Dry | Gate::On => {
                kind.undoes() || !self.disable_file.as_ref().is_some_and(|file| disabled(file))
            }
        }
    }
}

/// Whether the disable file is there. What cannot be told counts as there.
#[must_use]
pub fn disabled(file: &Path) -> bool {
    !matches!(file.try_exists(), Ok(false))
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The action.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
}

/// The loop's end of the hands.
#[derive(Debug)]
pub struct Hands {
    jobs: Lanes,
    qos: Lanes,
    tempo: watch::Sender<Tempo>,
    tasks: [JoinHandle<()>; 2],
}

/// The two queues, the more urgent one first.
#[derive(Debug)]
struct Lanes {
    undoing: mpsc::Sender<Action>,
    others: mpsc::Sender<Action>,
}

/// Starts the hands. Reports come through the returned receiver.
pub fn start<A: Actuator>(
    actuator: Arc<A>,
    journal: Journal,
    tempo: Tempo,
) -> (Hands, mpsc::Receiver<Report>) {
    let (reports, outbox) = mpsc::channel(4 * QUEUE);
    let (tempo, tempo_seen) = watch::channel(tempo);
    let worker = || {
        let (undoing, urgent) = mpsc::channel(QUEUE);
        let (others, inbox) = mpsc::channel(QUEUE);
        let worker = Worker {
            actuator: actuator.clone(),
            journal: journal.clone(),
            tempo: tempo_seen.clone(),
            last: None,
            wait: FIRST_WAIT,
        };
        let task = tokio::spawn(worker.run(Inbox { urgent, others: inbox }, reports.clone()));
        (Lanes { undoing, others }, task)
    };
    let ((jobs, first), (qos, second)) = (worker(), worker());
    (Hands { jobs, qos, tempo, tasks: [first, second] }, outbox)
}

impl Hands {
    /// Hands an action over; `false` where its queue is full. Actions of one
    /// lane are begun in the order they were handed over.
    #[must_use]
    pub fn order(&self, action: Action) -> bool {
        let lanes = match action.target {
            Target::Job(_) => &self.jobs,
            Target::Qos(_) => &self.qos,
        };
        let lane = if action.kind.undoes() { &lanes.undoing } else { &lanes.others };
        lane.try_send(action).is_ok()
    }

    /// Takes over changed settings, from the next update on.
    pub fn set_tempo(&self, tempo: Tempo) {
        self.tempo.send_replace(tempo);
    }

    /// Ends the tasks: an update in flight is waited for up to `patience`,
    /// what was not begun is left for the next run.
    pub async fn stop(self, patience: Duration) {
        self.tempo.send_modify(|t| t.gate = Gate::Off);
        drop((self.jobs, self.qos));
        let until = Instant::now() + patience;
        for mut task in self.tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

/// The worker's end of the lanes.
struct Inbox {
    urgent: mpsc::Receiver<Action>,
    others: mpsc::Receiver<Action>,
}

impl Inbox {
    /// The next action; `None`: both lanes are closed and empty.
    async fn next(&mut self) -> Option<Action> {
        tokio::select! {
            biased;
            Some(action) = self.urgent.recv() => Some(action),
            // Both lanes close together: what is left of the first went before.
            action = self.others.recv() => action,
        }
    }
}

struct Worker<A> {
    actuator: Arc<A>,
    journal: Journal,
    tempo: watch::Receiver<Tempo>,
    last: Option<Instant>,
    /// The wait after the next busy answer; shared by all actions, since it
    /// is the same slurmctld.
    wait: Duration,
}

impl<A: Actuator> Worker<A> {
    async fn run(mut self, mut inbox: Inbox, reports: mpsc::Sender<Report>) {
        while let Some(action) = inbox.next().await {
            let outcome = self.carry_out(&action).await;
            if reports.send(Report { action, outcome }).await.is_err() {
                return;
            }
        }
    }

    async fn carry_out(&mut self, action: &Action) -> Outcome {
        if !self.allows(action) {
            return Outcome::Off;
        }
        if self.tempo.borrow().gate == Gate::Dry {
            self.log(action, "would", None);
            return Outcome::Would;
        }
        // Its turn may come long after it was ordered.
        self.pace().await;
        if !self.allows(action) {
            return Outcome::Off;
        }
        self.log(action, "begin", None);
        let mut outcome = Outcome::Done;
        let mut seen = action.seen.clone();
        for (made, update) in action.updates.iter().enumerate() {
            outcome = match self.make(action, update, seen.as_ref(), made > 0).await {
                Some(Answer::Made) => {
                    if let Some(seen) = &mut seen {
                        seen.take(update);
                    }
                    continue;
                }
                Some(Answer::Changed(said)) => Outcome::Changed(said),
                Some(Answer::Gone(said)) => Outcome::Gone(said),
                Some(Answer::Busy(said) | Answer::Again(said) | Answer::Refused(said)) => {
                    Outcome::Failed(said)
                }
                None => Outcome::Off,
            };
            break;
        }
        self.log(action, outcome.word(), outcome.said());
        outcome
    }

    /// Whether the action may be begun now.
    fn allows(&self, action: &Action) -> bool {
        self.tempo.borrow().allows(action.kind)
    }

    /// One update, tried again while slurmctld is busy; `None` where changes were
    /// switched off meanwhile. An action of which a part is made (`begun`) is made
    /// whole. What slurmdbd was too busy for may have been done all the same, or be
    /// done later: whoever ordered it looks first.
    async fn make(
        &mut self,
        action: &Action,
        update: &Update,
        seen: Option<&Seen>,
        begun: bool,
    ) -> Option<Answer> {
        let (mut tries, mut soon) = (1, 0);
        loop {
            self.pace().await;
            self.last = Some(Instant::now());
            let answer = match self.stands_in_the_way(update, seen).await {
                Some(answer) => answer,
                None => self.actuator.update(update).await,
            };
            let (Answer::Busy(said) | Answer::Again(said)) = &answer else {
                self.wait = FIRST_WAIT;
                return Some(answer);
            };
            if matches!(update, Update::Qos { .. }) {
                return Some(answer);
            }
            let wait = if matches!(answer, Answer::Again(_)) && soon < SOON_TRIES {
                soon += 1;
                tracing::debug!(%action.target, said, "slurmctld says EAGAIN");
                SOON
            } else if tries == TRIES {
                return Some(Answer::Busy(format!("{said} ({} tries)", tries + soon)));
            } else {
                tries += 1;
                tracing::warn!(%action.target, said, wait = ?self.wait, "slurmctld is busy");
                let next = (self.wait * 2).min(LAST_WAIT);
                std::mem::replace(&mut self.wait, next)
            };
            tokio::time::sleep(wait).await;
            if !begun && !self.allows(action) {
                return None;
            }
        }
    }

    /// A last look at the job: why the update is not to be made, or that it is made
    /// already, by a command that seemed to fail or by another sjpd. What somebody
    /// else has chosen since it was decided is not overwritten.
    async fn stands_in_the_way(&self, update: &Update, seen: Option<&Seen>) -> Option<Answer> {
        let (id, seen) = (update.job()?, seen?);
        match self.actuator.look(id).await {
            Look::Blind => None,
            Look::Busy(said) => Some(Answer::Busy(said)),
            Look::Gone(said) => Some(Answer::Gone(said)),
            Look::Job(job) if job.state != JobState::Pending => {
                Some(Answer::Gone(format!("it is {} now", job.state_word)))
            }
            Look::Job(job) => {
                let changed = seen.differs(&job)?;
                let mut after = seen.clone();
                after.take(update);
                let made = job.admin_comment.is_some() && after.differs(&job).is_none();
                Some(if made { Answer::Made } else { Answer::Changed(changed) })
            }
        }
    }

    /// Waits until the rate allows the next update.
    async fn pace(&self) {
        let per_second = self.tempo.borrow().per_second;
        if per_second > 0.0 {
            let gap = Duration::from_secs_f64((1.0 / per_second).min(3600.0));
            if let Some(last) = self.last {
                sleep_until(last + gap).await;
            }
        }
    }

    fn log(&self, action: &Action, stage: &str, said: Option<&str>) {
        let commands: Vec<String> = action.updates.iter().map(|u| self.actuator.words(u)).collect();
        let mut words = format!("{action}: {stage}");
        match (stage, said) {
            ("begin" | "would", _) => {
                words = format!("{words}; {}; {}", action.why, commands.join(" && "));
            }
            (_, Some(said)) => words = format!("{words}: {said}"),
            _ => {}
        }
        let entry = Entry::new(action.kind.word(), words);
        let entry = match &action.target {
            Target::Job(id) => entry.with("job", id),
            Target::Qos(name) => entry.with("qos", name),
        };
        let entry = entry
            .with("stage", stage)
            .with("commands", commands)
            .with("why", &action.why)
            .with_some("said", said);
        self.journal.write(&entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::{ActionKind, job_updates};
    use crate::journal::JournalPaths;
    use parking_lot::Mutex;
    use std::collections::VecDeque;

    #[derive(Default)]
    struct Fake {
        answers: Mutex<VecDeque<Answer>>,
        seen: Mutex<Vec<(Duration, String)>>,
        born: Mutex<Option<Instant>>,
    }

    impl Fake {
        fn with(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
            let fake =
                Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::default() };
            *fake.born.lock() = Some(Instant::now());
            Arc::new(fake)
        }

        fn seconds(&self) -> Vec<u64> {
            self.seen.lock().iter().map(|(at, _)| at.as_secs()).collect()
        }
    }

    impl Actuator for Fake {
        async fn update(&self, update: &Update) -> Answer {
            let born = self.born.lock().expect("set");
            self.seen.lock().push((born.elapsed(), self.words(update)));
            self.answers.lock().pop_front().unwrap_or(Answer::Made)
        }

        fn words(&self, update: &Update) -> String {
            let keys: Vec<_> = update.set().iter().map(|s| s.0).collect();
            format!("{:?} {keys:?}", update.job())
        }
    }

    fn release(job: u32) -> Action {
        let mark = "sjp:released=n1";
        Action {
            kind: ActionKind::Release,
            target: Target::Job(job),
            updates: job_updates(job, Some(""), &["slim".to_owned()], mark),
            mark: Some(mark.into()),
            seen: None,
            words: "release from n1".into(),
            why: "still pending".into(),
        }
    }

    fn log(dir: &tempfile::TempDir) -> (Journal, std::path::PathBuf) {
        let path = dir.path().join("d.jsonl");
        (Journal::open(&JournalPaths { json: Some(path.clone()), text: None }), path)
    }

    fn stages(path: &std::path::Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).expect("a log");
        let value = |l| serde_json::from_str::<serde_json::Value>(l).expect("JSON");
        text.lines().map(|l| value(l)["stage"].as_str().expect("a stage").to_owned()).collect()
    }

    fn on(per_second: f64) -> Tempo {
        Tempo { gate: Gate::On, per_second, disable_file: None }
    }

    fn gate(gate: Gate) -> Tempo {
        Tempo { gate, ..on(2.0) }
    }

    fn moving(job: u32) -> Action {
        Action { kind: ActionKind::Move, ..release(job) }
    }

    #[tokio::test(start_paused = true)]
    async fn actions_are_logged_before_and_after_and_paced() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, path) = log(&dir);
        let fake = Fake::with([]);
        let (hands, mut reports) = start(fake.clone(), journal, on(0.5));
        assert!(hands.order(release(1)) && hands.order(release(2)));
        for job in [1, 2] {
            let report = reports.recv().await.expect("a report");
            assert_eq!((report.action.job(), report.outcome), (Some(job), Outcome::Done));
        }
        assert_eq!(fake.seconds(), [0, 2, 4, 6], "two updates each, one every 2 s");
        assert_eq!(stages(&path), ["begin", "done", "begin", "done"]);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn busy_is_tried_again_with_growing_waits_from_the_update_that_failed() {
        let dir = tempfile::tempdir().expect("a folder");
        let busy = || Answer::Busy("Resource temporarily unavailable".into());
        let fake = Fake::with([Answer::Made, busy(), busy(), busy(), Answer::Made]);
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(2.0));
        assert!(hands.order(release(1)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Done);
        assert_eq!(fake.seconds(), [0, 0, 1, 3, 7]);
        let seen: Vec<String> = fake.seen.lock().iter().map(|(_, words)| words.clone()).collect();
        assert!(seen[0].contains("reqnodelist"));
        assert!(seen[1..].iter().all(|words| words.contains("partition")), "{seen:?}");
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_started_is_done_and_a_refusal_ends_the_action() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, path) = log(&dir);
        let fake = Fake::with([
            Answer::Gone("Job is no longer pending execution".into()),
            Answer::Refused("Access/permission denied".into()),
        ]);
        let (hands, mut reports) = start(fake.clone(), journal, on(2.0));
        assert!(hands.order(release(1)) && hands.order(release(2)));
        let first = reports.recv().await.expect("a report").outcome;
        assert!(matches!(first, Outcome::Gone(_)), "{first:?}");
        let second = reports.recv().await.expect("a report").outcome;
        assert!(matches!(second, Outcome::Failed(_)), "{second:?}");
        assert_eq!(fake.seen.lock().len(), 2, "no second update after either");
        assert_eq!(stages(&path), ["begin", "gone", "begin", "failed"]);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_qos_is_changed_apart_from_jobs_and_tried_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let fake = Fake::with([Answer::Made, Answer::Busy("no answer".into())]);
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(0.1));
        let set = vec![("MaxTRESPerUser", "cpu=8".to_owned())];
        let raise = Action {
            kind: ActionKind::Raise,
            target: Target::Qos("normal".into()),
            updates: vec![Update::Qos { name: "normal".into(), set }],
            mark: None,
            seen: None,
            words: "8 to 16 CPUs".into(),
            why: "held".into(),
        };
        assert!(hands.order(release(1)) && hands.order(raise.clone()));
        let first = reports.recv().await.expect("a report");
        assert_eq!(first, Report { action: raise, outcome: Outcome::Failed("no answer".into()) });
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Done);
        assert_eq!(fake.seconds(), [0, 0, 10], "neither waits for the other");
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn endless_busy_gives_the_action_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let fake = Fake::with((0..20).map(|_| Answer::Busy("busy".into())));
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(2.0));
        assert!(hands.order(release(1)));
        let outcome = reports.recv().await.expect("a report").outcome;
        assert_eq!(outcome, Outcome::Failed(format!("busy ({TRIES} tries)")));
        assert_eq!(fake.seen.lock().len(), TRIES as usize);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn eagain_is_tried_again_soon_and_then_as_busy() {
        let dir = tempfile::tempdir().expect("a folder");
        let again = || Answer::Again("Resource temporarily unavailable".into());
        let few = 3;
        let fake = Fake::with((0..few).map(|_| again()));
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(10.0));
        assert!(hands.order(release(1)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Done);
        assert_eq!(fake.seconds().last(), Some(&0), "{:?}", fake.seconds());
        hands.stop(Duration::from_secs(1)).await;

        let fake = Fake::with((0..100).map(|_| again()));
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(10.0));
        assert!(hands.order(release(1)));
        let outcome = reports.recv().await.expect("a report").outcome;
        let tries = TRIES + SOON_TRIES;
        let said = format!("Resource temporarily unavailable ({tries} tries)");
        assert_eq!(outcome, Outcome::Failed(said));
        // Three seconds of soon, then 1, 2, 4, 8 and 16.
        assert_eq!(fake.seconds()[SOON_TRIES as usize..], [3, 4, 6, 10, 18, 34]);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_changed_when_off_or_dry() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, path) = log(&dir);
        let fake = Fake::with([]);
        let (hands, mut reports) = start(fake.clone(), journal, gate(Gate::Off));
        assert!(hands.order(release(1)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Off);
        hands.set_tempo(gate(Gate::Dry));
        assert!(hands.order(release(2)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Would);
        assert!(fake.seen.lock().is_empty());
        assert_eq!(stages(&path), ["would"]);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn switched_off_what_waits_is_not_begun_and_what_takes_back_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, path) = log(&dir);
        let fake = Fake::with([]);
        let (hands, mut reports) = start(fake.clone(), journal, on(0.1));
        // The first is made whole; the others are still in the queue.
        assert!((1..=3).all(|job| hands.order(moving(job))));
        while fake.seen.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        hands.set_tempo(Tempo { gate: Gate::Undo, ..on(0.1) });
        assert!(hands.order(release(4)));
        let mut ends = Vec::new();
        for _ in 0..4 {
            let report = reports.recv().await.expect("a report");
            ends.push((report.action.job().expect("a job"), report.outcome.word()));
        }
        assert_eq!(ends, [(1, "done"), (4, "done"), (2, "off"), (3, "off")]);
        assert_eq!(fake.seconds(), [0, 10, 20, 30]);
        assert_eq!(stages(&path), ["begin", "done", "begin", "done"]);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_disable_file_stops_new_changes_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let off = dir.path().join("disable");
        let fake = Fake::with([Answer::Busy("busy".into())]);
        let tempo = Tempo { disable_file: Some(Arc::new(off.clone())), ..on(0.1) };
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, tempo);
        assert!(hands.order(moving(1)) && hands.order(moving(2)));
        while fake.seen.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::write(&off, "").expect("written");
        // Nothing of the first was made: it is not tried again.
        for job in [1, 2] {
            let report = reports.recv().await.expect("a report");
            assert_eq!((report.action.job(), report.outcome), (Some(job), Outcome::Off));
        }
        assert!(hands.order(release(3)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Done);
        std::fs::remove_file(&off).expect("removed");
        assert!(hands.order(moving(4)));
        assert_eq!(reports.recv().await.expect("a report").outcome, Outcome::Done);
        assert_eq!(fake.seen.lock().len(), 5);
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_back_goes_first_and_is_not_kept_out_by_the_rest() {
        let dir = tempfile::tempdir().expect("a folder");
        let fake = Fake::with([]);
        let (hands, mut reports) = start(fake, log(&dir).0, on(2.0));
        for job in 1..=u32::try_from(QUEUE).expect("small") {
            assert!(hands.order(moving(job)));
        }
        assert!(!hands.order(moving(9999)), "full");
        assert!(hands.order(release(7000)) && hands.order(release(7001)));
        for job in [7000, 7001, 1, 2] {
            assert_eq!(reports.recv().await.expect("a report").action.job(), Some(job));
        }
        hands.stop(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_leaves_what_was_not_begun() {
        let dir = tempfile::tempdir().expect("a folder");
        let fake = Fake::with([]);
        let (hands, mut reports) = start(fake.clone(), log(&dir).0, on(0.01));
        for job in 1..=9 {
            assert!(hands.order(release(job)));
        }
        hands.stop(Duration::from_secs(1)).await;
        assert!(fake.seen.lock().len() <= 2, "{:?}", fake.seen.lock());
        while let Some(report) = reports.recv().await {
            assert_eq!(report.outcome, Outcome::Off);
        }
    }
}
