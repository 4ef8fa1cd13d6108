//! The daemon as a whole, in process: a fake cluster, a real table, and time
//! that runs as fast as it can.

use super::fake::{Fake, job};
use super::world::{seconds, unix_now};
use super::{Control, DaemonError, Setup, run};
use crate::actuator::Answer;
use crate::config::{Config, Source};
use crate::lock::LockError;
use crate::logging::LogLevel;
use crate::ports::Kind;
use crate::status::Status;
use sjp_core::cluster::JobState;
use sjp_core::config::Mode;
use sjp_core::publication::Claim;
use sjp_core::units::Cpus;
use sjp_table::Reader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const S: Duration = Duration::from_secs(1);
const PIN: &str = "sjp:pin=slim1;from=fat,slim;job=2c,4000M,2.0G/c;free=16c,62.5G,3.9G/c;id=7f3a";

/// A running daemon with its folder.
struct Run {
    dir: tempfile::TempDir,
    fake: Arc<Fake>,
    controls: mpsc::Sender<Control>,
    task: JoinHandle<Result<(), DaemonError>>,
    t0: Instant,
}

fn settings(dir: &Path, more: &str) -> String {
    let d = dir.display();
    format!(
        "[general]\nstate_dir = \"{d}/state\"\nlog_file = \"{d}/log/d.jsonl\"\n\
         text_log = \"{d}/log/d.log\"\ndisable_file = \"{d}/disable\"\n{more}"
    )
}

impl Run {
    fn start(more: &str, fake: Arc<Fake>, dry_run: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("sjp.toml"), settings(dir.path(), more)).expect("written");
        Self::start_in(dir, fake, dry_run)
    }

    fn start_in(dir: tempfile::TempDir, fake: Arc<Fake>, dry_run: bool) -> Self {
        let (controls, receive) = mpsc::channel(2);
        let task = tokio::spawn(run(setup(dir.path(), fake.clone(), dry_run), receive));
        Self { dir, fake, controls, task, t0: Instant::now() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn reader(&self) -> Reader {
        Reader::attach(&self.path("state/table")).expect("a table")
    }

    fn status(&self) -> Status {
        Status::read(&self.path("state")).expect("a status")
    }

    fn decisions(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path("log/d.jsonl")).expect("a decision log");
        text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
    }

    fn events(&self, event: &str) -> Vec<serde_json::Value> {
        self.decisions().into_iter().filter(|d| d["event"] == event).collect()
    }

    async fn control(&self, control: Control) {
        self.controls.send(control).await.expect("it runs");
        // A message is taken at the next turn.
        sleep(S / 10).await;
    }

    async fn stop(self) -> (tempfile::TempDir, Arc<Fake>) {
        self.controls.send(Control::Stop).await.expect("it runs");
        self.task.await.expect("no panic").expect("a clean end");
        (self.dir, self.fake)
    }
}

fn setup(dir: &Path, fake: Arc<Fake>, dry_run: bool) -> Setup<Fake, Fake> {
    let source = Source { file: Some(dir.join("sjp.toml")), ..Source::default() };
    let (config, notices) = source.load().expect("good settings");
    Setup {
        source,
        config,
        notices,
        dry_run,
        cluster: fake.clone(),
        actuator: fake,
        log_level: LogLevel::default(),
    }
}

fn long_ago() -> i64 {
    seconds(unix_now()) - 1000
}

#[tokio::test(start_paused = true)]
async fn each_kind_keeps_its_pace_and_none_runs_twice() {
    let run = Run::start("", Fake::new(), false);
    sleep(61 * S).await;
    let (fake, t0) = (run.fake.clone(), run.t0);
    assert!((60..=62).contains(&fake.count(Kind::Nodes)), "{}", fake.count(Kind::Nodes));
    assert_eq!(fake.seconds(Kind::Queue, t0), [0, 8, 16, 24, 32, 40, 48, 56]);
    assert_eq!(fake.seconds(Kind::Config, t0), [0, 60]);
    assert_eq!(fake.seconds(Kind::Reservations, t0), [0, 20, 40, 60]);
    assert_eq!(fake.seconds(Kind::Associations, t0), [0]);
    assert_eq!(fake.count(Kind::Marks), 0, "observe needs no marks");
    assert_eq!(fake.inner.lock().most_in_flight, 1);
    assert!(run.status().table.generation >= 60);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_slurmctld_is_asked_less_and_never_by_a_pile() {
    let fake = Fake::new();
    fake.inner.lock().slow.extend([(Kind::Nodes, 5 * S), (Kind::Queue, 9 * S)]);
    let run = Run::start("", fake, false);
    sleep(200 * S).await;
    let (fake, t0) = (run.fake.clone(), run.t0);
    assert_eq!(fake.seconds(Kind::Nodes, t0), [0, 25, 50, 75, 100, 125, 150, 175]);
    assert_eq!(fake.seconds(Kind::Queue, t0), [0, 99, 198]);
    assert_eq!(fake.inner.lock().most_in_flight, 1);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slurmctld_that_hangs_stops_nothing_and_stopping_ends_the_readings() {
    let run = Run::start("", Fake::new(), false);
    sleep(3 * S).await;
    let reader = run.reader();
    let age = |r: &Reader| r.read(|v| v.meta().data_time_ns).expect("published");
    run.fake.inner.lock().slow.extend(Kind::ALL.map(|k| (k, 100_000 * S)));
    sleep(10 * S).await;
    let (old, asked) = (age(&reader), run.fake.count(Kind::Nodes));
    let (generation, beat) = (run.status().table.generation, reader.heartbeat_ns());
    sleep(3600 * S).await;
    assert_eq!(age(&reader), old, "the data stay as old as they are");
    assert!(reader.heartbeat_ns() > beat, "but sjpd lives");
    assert!(run.status().table.generation > generation + 3000);
    assert_eq!(run.fake.count(Kind::Nodes), asked, "one in flight, and no other");
    let (_dir, fake) = run.stop().await;
    assert!(fake.inner.lock().in_flight.values().all(|&n| n == 0), "cut off, all of them");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_a_recovery_reads_everything_again() {
    let run = Run::start("", Fake::new(), false);
    sleep(5 * S / 2).await;
    let t0 = run.t0;
    run.fake.inner.lock().failing.extend([Kind::Nodes, Kind::Config]);
    sleep(60 * S).await;
    let gaps: Vec<u64> =
        run.fake.seconds(Kind::Nodes, t0).windows(2).map(|w| w[1] - w[0]).skip(2).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 16][..gaps.len()], "{gaps:?}");
    assert!(run.status().nodes.error.is_some_and(|e| e.contains("told to fail")));
    let partitions = run.fake.count(Kind::Partitions);
    run.fake.inner.lock().failing.clear();
    sleep(65 * S).await;
    assert_eq!(run.status().nodes.error, None);
    assert!(run.fake.count(Kind::Partitions) > partitions);
    assert!(run.status().errors.iter().any(|t| t.what == "nodes"));
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_everything_needed_was_read() {
    let fake = Fake::new();
    fake.inner.lock().failing.extend([Kind::Queue, Kind::Qos]);
    let run = Run::start("", fake, false);
    sleep(20 * S).await;
    assert_eq!(run.status().table.generation, 0);
    run.fake.inner.lock().failing.remove(&Kind::Queue);
    sleep(70 * S).await;
    assert!(run.status().table.generation > 0, "the caps of QOS are not needed");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_fails_like_any_other() {
    let run = Run::start("", Fake::new(), false);
    sleep(3 * S).await;
    run.fake.inner.lock().panic = Some(Kind::Reservations);
    sleep(30 * S).await;
    let status = run.status();
    assert!(status.reservations.error.is_some_and(|e| e.contains("cut off")));
    assert_eq!(status.nodes.error, None);
    run.fake.inner.lock().panic = None;
    sleep(70 * S).await;
    assert_eq!(run.status().reservations.error, None);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_slurmctld_is_read_anew() {
    let run = Run::start("", Fake::new(), false);
    sleep(55 * S).await;
    run.fake.inner.lock().boot = "later".into();
    sleep(7 * S).await;
    assert_eq!(run.fake.seconds(Kind::Associations, run.t0), [0, 60], "not after ten minutes");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_are_counted_once_from_the_next_publication_on() {
    let run = Run::start("[cadence]\nqueue_poll_interval = 60.0\n", Fake::new(), false);
    sleep(30 * S + S / 2).await;
    let mut reader = run.reader();
    let roster = reader.roster().expect("a roster");
    let node = roster.nodes.find("slim1").expect("slim1") as u32;
    let free = |r: &Reader| {
        r.read(|v| {
            use sjp_core::publication::RoomView;
            let group = v.group_of(node).and_then(|g| v.group(g as usize)).expect("a group");
            (group.cpus, v.meta().claims_taken)
        })
        .expect("published")
    };
    assert_eq!(free(&reader), (16, 0));
    let id = reader.read(|v| v.roster_id()).expect("published");
    let time = seconds(unix_now()) as u64;
    let claim =
        Claim { id: 9, roster: id, time, uid: 1000, node, cpus: 4, mem: 100, ..Claim::default() };
    reader.push_claim(&claim).expect("room in the ring");
    assert_eq!(run.fake.count(Kind::Queue), 1);
    sleep(2 * S).await;
    assert_eq!(free(&reader), (12, 1), "in the rooms, and said so");
    assert_eq!(run.fake.count(Kind::Queue), 2, "the queue is read sooner");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_placement_is_logged_when_its_job_appears() {
    let run = Run::start("mode = \"enforce\"\n", Fake::new(), false);
    sleep(3 * S).await;
    let mut reader = run.reader();
    let node = reader.roster().expect("a roster").nodes.find("slim1").expect("slim1") as u32;
    let roster = reader.read(|v| v.roster_id()).expect("published");
    let now = seconds(unix_now());
    let claim = Claim {
        id: 0x7f3a,
        roster,
        time: now as u64,
        uid: 1000,
        node,
        cpus: 2,
        mem: 4000,
        flags: 1,
        ..Claim::default()
    };
    reader.push_claim(&claim).expect("room in the ring");
    run.fake.inner.lock().jobs = vec![job(5, &["slim1"], PIN, now)];
    sleep(12 * S).await;
    let placed = run.events("placed");
    assert_eq!(placed.len(), 1, "{placed:?}");
    assert_eq!((&placed[0]["job"], &placed[0]["node"]), (&5.into(), &"slim1".into()));
    assert_eq!(placed[0]["id"], "7f3a");
    assert_eq!(run.status().claims.matched, 1);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_pin_is_released_in_two_updates() {
    for marks_in_queue in [true, false] {
        let fake = Fake::new();
        fake.inner.lock().marks_in_queue = marks_in_queue;
        fake.inner.lock().jobs = vec![
            job(1, &["slim1"], PIN, long_ago()),
            job(2, &["slim1"], "users own", long_ago()),
            job(3, &["slim2"], PIN, long_ago()),
        ];
        let run = Run::start("mode = \"enforce\"\n", fake, false);
        sleep(20 * S).await;
        let updates = run.fake.inner.lock().updates.clone();
        let keys: Vec<_> = updates.iter().map(|u| (u.job(), u.set()[0].0)).collect();
        // Somebody else's node ends the mark of job 3.
        let let_go = (Some(3), "admincomment");
        let released = [(Some(1), "reqnodelist"), (Some(1), "partition")];
        assert_eq!(keys, [&[let_go], &released[..]].concat(), "{marks_in_queue}");
        assert_eq!(updates[2].set()[0].1, "fat,slim");
        let stages: Vec<String> = run
            .events("release")
            .iter()
            .map(|e| e["stage"].as_str().expect("a stage").to_owned())
            .collect();
        assert_eq!(stages, ["begin", "done"]);
        assert_eq!(run.status().pins.released, 1);
        if !marks_in_queue {
            assert_eq!(run.fake.inner.lock().marks_asked.len(), 1, "read once, remembered");
        }
        run.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_release_is_finished_by_the_next_run() {
    let fake = Fake::new();
    fake.inner.lock().jobs = vec![job(1, &[], PIN, long_ago())];
    let run = Run::start("mode = \"enforce\"\n", fake, false);
    sleep(5 * S).await;
    let updates = run.fake.inner.lock().updates.clone();
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].set()[0], ("partition", "fat,slim".to_owned()));
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn busy_refused_and_started_are_told_apart() {
    let fake = Fake::new();
    {
        let mut inner = fake.inner.lock();
        inner.jobs = vec![job(1, &["slim1"], PIN, long_ago())];
        inner.answers = vec![
            Answer::Busy("Resource temporarily unavailable".into()),
            Answer::Busy("Resource temporarily unavailable".into()),
            Answer::Made,
            Answer::Refused("Access/permission denied".into()),
        ];
    }
    let run = Run::start("mode = \"enforce\"\n", fake, false);
    sleep(40 * S).await;
    assert_eq!(run.fake.inner.lock().updates.len(), 4, "refused: rests");
    assert!(run.status().errors.iter().any(|t| t.error.contains("permission denied")));
    sleep(60 * S).await;
    let last = run.fake.inner.lock().updates.last().expect("one more").clone();
    assert_eq!(last.set()[0].0, "partition", "the half that is missing");
    assert_eq!(run.status().pins.released, 1);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn outside_enforce_pins_are_taken_back_and_a_dry_run_only_says_so() {
    for (mode, dry_run) in
        [("observe", false), ("advise", false), ("enforce", true), ("observe", true)]
    {
        let fake = Fake::new();
        fake.inner.lock().jobs = vec![job(1, &["slim1"], PIN, long_ago())];
        let run = Run::start(&format!("mode = \"{mode}\"\n"), fake, dry_run);
        sleep(100 * S).await;
        let updates = run.fake.inner.lock().updates.len();
        assert_eq!(updates, if dry_run { 0 } else { 2 }, "{mode}");
        let stages: Vec<_> = run.events("release").iter().map(|e| e["stage"].clone()).collect();
        assert_eq!(stages, if dry_run { vec!["would"] } else { vec!["begin", "done"] }, "{mode}");
        let published = run.reader().roster().expect("a roster").policy.mode;
        let said = if mode == "advise" { Mode::Advise } else { Mode::Observe };
        assert_eq!(published, said, "a dry run must not make pins that nobody takes back");
        run.stop().await;
    }
}

/// A cluster with two controllers, this host's and another, which acts by index.
fn two_controllers(acting: usize) -> Arc<Fake> {
    let fake = Fake::new();
    {
        let mut inner = fake.inner.lock();
        inner.controllers = vec![super::stance::host_name(), "another".into()];
        inner.acting = acting;
        inner.jobs = vec![job(1, &["slim1"], PIN, long_ago())];
    }
    fake
}

#[tokio::test(start_paused = true)]
async fn the_standby_changes_nothing_until_its_controller_takes_over() {
    let run = Run::start("mode = \"enforce\"\n", two_controllers(1), false);
    sleep(60 * S).await;
    let status = run.status();
    assert_eq!((status.active, status.standing.as_str()), (false, "standby"));
    assert!(status.standing_words.contains("another"), "{}", status.standing_words);
    assert!(run.fake.inner.lock().updates.is_empty());
    let mode = || run.reader().roster().expect("a roster").policy.mode;
    assert_eq!(mode(), Mode::Enforce, "its slurmctld may place as soon as it acts");
    run.fake.inner.lock().acting = 0;
    sleep(10 * S).await;
    assert_eq!((run.status().active, run.fake.inner.lock().updates.len()), (true, 2));
    // And back: a pin that is due stays with whoever acts.
    run.fake.inner.lock().acting = 1;
    sleep(2 * S).await;
    run.fake.inner.lock().jobs = vec![job(2, &["slim1"], PIN, long_ago())];
    sleep(60 * S).await;
    assert_eq!(run.fake.inner.lock().updates.len(), 2);
    let words: Vec<_> = run.events("standing").iter().map(|e| e["standing"].clone()).collect();
    assert_eq!(words, ["asking", "standby", "active", "standby"]);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_cannot_tell_who_acts_makes_no_pins() {
    let fake = two_controllers(0);
    fake.inner.lock().failing.insert(Kind::Controller);
    let run = Run::start("mode = \"enforce\"\n", fake, false);
    sleep(60 * S).await;
    assert_eq!(run.status().standing, "unknown");
    assert!(run.fake.inner.lock().updates.is_empty());
    let mode = || run.reader().roster().expect("a roster").policy.mode;
    assert_eq!(mode(), Mode::Advise);
    // What was known once counts on while the file cannot be read.
    run.fake.inner.lock().failing.clear();
    sleep(60 * S).await;
    run.fake.inner.lock().failing.insert(Kind::Controller);
    sleep(60 * S).await;
    assert_eq!((run.status().standing.as_str(), mode()), ("active", Mode::Enforce));
    assert_eq!(run.fake.inner.lock().updates.len(), 2);
    // The settings overrule it, at once.
    let never = settings(run.dir.path(), "mode = \"enforce\"\nactive = \"never\"\n");
    std::fs::write(run.path("sjp.toml"), never).expect("written");
    run.control(Control::Reload).await;
    assert_eq!((run.status().standing.as_str(), mode()), ("never", Mode::Advise));
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn settings_are_read_again_and_bad_ones_are_not_taken() {
    let run = Run::start("", Fake::new(), false);
    sleep(3 * S).await;
    let write = |more: &str| {
        std::fs::write(run.path("sjp.toml"), settings(run.dir.path(), more)).expect("written");
    };
    write("mode = \"enforced\"\n");
    run.control(Control::Reload).await;
    let error = run.status().config_error.expect("an error");
    assert!(error.contains("mode"), "{error}");
    assert_eq!(run.reader().roster().expect("a roster").policy.mode, Mode::Observe);
    assert_eq!(run.events("reload")[0]["taken"], false);

    write("mode = \"enforce\"\n");
    std::fs::rename(run.path("log/d.jsonl"), run.path("log/d.jsonl.1")).expect("rotated");
    run.control(Control::Reload).await;
    assert_eq!(run.status().config_error, None);
    assert_eq!(run.reader().roster().expect("a roster").policy.mode, Mode::Enforce, "at once");
    assert_eq!(run.events("reload")[0]["taken"], true, "in the new file");
    run.fake.inner.lock().jobs = vec![job(1, &["slim1"], PIN, seconds(unix_now()) - 40)];
    sleep(12 * S).await;
    assert_eq!(run.status().pins.waiting, 1);

    write("mode = \"observe\"\n[cadence]\nnode_poll_interval = 5.0\n");
    run.control(Control::Reload).await;
    let reloads = run.events("reload");
    let last = reloads.last().expect("told")["words"].clone();
    assert!(last.as_str().is_some_and(|w| w.starts_with("1 pinned jobs wait")), "{last}");
    assert_eq!(run.fake.inner.lock().updates.len(), 0);
    // Time stands still for the queue: an older job instead.
    run.fake.inner.lock().jobs = vec![job(1, &["slim1"], PIN, long_ago())];
    let before = run.fake.count(Kind::Nodes);
    sleep(50 * S).await;
    let asked = run.fake.count(Kind::Nodes) - before;
    assert!((9..=12).contains(&asked), "{asked}");
    assert_eq!(run.fake.inner.lock().updates.len(), 2, "taken back in its time");
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_under_the_log_stops_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("sjp.toml"), settings(dir.path(), "")).expect("written");
    std::fs::create_dir(dir.path().join("log")).expect("made");
    let log = dir.path().join("log/d.jsonl");
    std::os::unix::fs::symlink("/dev/full", &log).expect("linked");
    let run = Run::start_in(dir, Fake::new(), false);
    sleep(20 * S).await;
    let status = run.status();
    assert!(status.log.dropped > 0 && status.log.error.is_some(), "{:?}", status.log);
    assert_eq!((status.text_log.dropped, status.text_log.error), (0, None));
    assert!(status.table.generation > 15);
    std::fs::remove_file(&log).expect("removed");
    run.control(Control::Reload).await;
    let first = &run.decisions()[0];
    assert_eq!(first["event"], "gap");
    assert_eq!(first["dropped"], status.log.dropped);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_daemon_for_a_state_folder_and_a_clean_end() {
    let run = Run::start("", Fake::new(), false);
    sleep(3 * S).await;
    let (_controls, receive) = mpsc::channel(1);
    let second = super::run(setup(run.dir.path(), Fake::new(), false), receive).await;
    match second {
        Err(DaemonError::Lock(LockError::Held { holder, .. })) => {
            assert!(holder.contains(&format!("pid {}", std::process::id())), "{holder}");
        }
        other => panic!("not refused: {other:?}"),
    }
    let reader = run.reader();
    assert!(!reader.is_closed(), "the first one is not disturbed");
    let (dir, fake) = run.stop().await;
    assert!(reader.is_closed());
    let left: Vec<_> = std::fs::read_dir(dir.path().join("state"))
        .expect("the folder stays")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["lock"]);
    // And the next one starts where this one ended.
    let run = Run::start_in(dir, fake, false);
    sleep(3 * S).await;
    assert!(run.status().table.generation > 0);
    assert!(run.events("stop").len() == 1 && run.events("start").len() == 2);
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn observe_says_where_sjp_would_have_put_a_job() {
    let run = Run::start("", Fake::new(), false);
    sleep(3 * S).await;
    let mut started = job(4, &[], "", seconds(unix_now()));
    started.state = JobState::Active;
    started.cpus = Cpus(2);
    started.partitions = vec!["fat".into()];
    started.nodes = vec!["fat1".into()];
    run.fake.inner.lock().jobs = vec![started];
    sleep(10 * S).await;
    let seen = run.events("observed");
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0]["nodes"], serde_json::json!(["fat1"]));
    assert_eq!(seen[0]["would_partitions"], serde_json::json!(["slim"]));
    run.stop().await;
}

#[tokio::test(start_paused = true)]
async fn once_tells_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = settings(dir.path(), "mode = \"enforce\"\n");
    let (config, _) = Config::parse(&text, Path::new("sjp.toml")).expect("good");
    let fake = Fake::new();
    fake.inner.lock().jobs = vec![job(1, &["slim1"], PIN, long_ago())];
    let me = super::preflight::Me { uid: 0, user: None, dry_run: false };
    let once = super::once(fake.clone(), &config, &me).await;
    assert!(once.ok(), "{once}");
    let text = once.to_string();
    for part in ["nodes: 3 nodes, 3 usable", "46 CPUs free", "would do: job 1: release from slim1"]
    {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(fake.inner.lock().updates.is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
    fake.inner.lock().failing.insert(Kind::Nodes);
    let once = super::once(fake, &config, &me).await;
    assert!(!once.ok() && once.table.is_none(), "{once}");
}
