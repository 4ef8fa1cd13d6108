//! Pulses against a database that somebody else changes too, with crashes.

use super::pulses::{Note, Orders, Pulses, Time};
use super::record::Record;
use super::settings;
use crate::actuator::{Action, ActionKind, Outcome, Report, Target};
use crate::config::Config;
use proptest::prelude::*;
use sjp_core::cluster::{Job, JobState, Node, Partition, QosCaps, SlurmConfig};
use sjp_core::config::Policy;
use sjp_core::ledger::Ledger;
use sjp_core::limits::View;
use sjp_core::limits::pulse::Caps;
use sjp_core::publish::{RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::units::{Cpus, MemMb, MemPer};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

const T0: f64 = 1_000_000.0;

/// sjpd's pulses, the database, and a clock.
struct Site {
    dir: tempfile::TempDir,
    pulses: Pulses,
    caps: BTreeMap<String, Caps>,
    config: Config,
    busy: u32,
    now: f64,
    t0: Instant,
    notes: Vec<Note>,
    done: Vec<(ActionKind, String)>,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is done, and said so.
    Done,
    /// It is done, and said to have failed.
    DoneUnseen,
    /// It is not done.
    Failed,
    /// sjpd is killed before it.
    KilledBefore,
    /// sjpd is killed after it.
    KilledAfter,
}

fn user(cap: u32) -> Caps {
    Caps { user: Some(cap), account: None }
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.limits.hysteresis = 2;
        let path = dir.path().join("limits.json");
        config.limits.state_file.clone_from(&path);
        Self {
            pulses: Pulses::new(Record::open(&path).0),
            dir,
            caps: BTreeMap::from([("normal".to_owned(), user(8))]),
            config,
            busy: 8,
            now: T0,
            t0: Instant::now(),
            notes: Vec::new(),
            done: Vec::new(),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("limits.json")
    }

    fn time(&self) -> Time {
        let instant = self.t0 + Duration::from_secs_f64(self.now - T0);
        Time { unix: self.now, steady: self.now, instant }
    }

    fn restart(&mut self) {
        self.pulses = Pulses::new(Record::open(&self.path()).0);
    }

    fn user_cap(&self) -> Option<u32> {
        self.caps["normal"].user
    }

    /// A user at the cap of 8 CPUs, whose next job of 4 fits.
    fn check(&mut self) {
        let node = Node {
            name: "n1".into(),
            usable: true,
            cpus: Cpus(32),
            cpus_effective: Cpus(32),
            cpus_alloc: Cpus(self.busy),
            mem: Some(MemMb(128_000)),
            threads_per_core: 1,
            partitions: vec!["p".into()],
            ..Node::default()
        };
        let partition = Partition {
            name: "p".into(),
            state: "UP".into(),
            over_subscribe: "NO".into(),
            ..Partition::default()
        };
        let qos = QosCaps {
            name: "normal".into(),
            max_cpus_per_user: Some(8),
            used_by_user: vec![(1000, 8)],
            ..QosCaps::default()
        };
        let job = Job {
            id: 7,
            array_tasks: 1,
            uid: 1000,
            state: JobState::Pending,
            reason: "QOSMaxCpuPerUserLimit".into(),
            partitions: vec!["p".into()],
            cpus: Cpus(4),
            mem: MemPer::Node(MemMb(1000)),
            node_count: 1,
            tasks: 1,
            batch: true,
            qos: "normal".into(),
            priority: 7,
            ..Job::default()
        };
        let (nodes, partitions, qos, jobs) = ([node], [partition], [qos], [job]);
        let (config, policy, ledger) = (SlurmConfig::default(), Policy::default(), Ledger::new());
        let roster = build_roster(&RosterInput {
            nodes: &nodes,
            partitions: &partitions,
            config: &config,
            qos: &qos,
            bound_users: &[],
            policy: &policy,
        });
        let now = self.now as i64;
        let rooms = build_rooms(
            &roster,
            &RoomsInput {
                nodes: &nodes,
                nodes_asked_at: self.now,
                extra: sjp_core::publish::Extra::default(),
                reservations: &[],
                jobs: &jobs,
                ledger: &ledger,
                qos: &qos,
                config: &config,
                now,
            },
        );
        let (roster, rooms) = (&roster, &rooms);
        let view = View { roster, rooms, jobs: &jobs, partitions: &partitions, qos: &qos, now };
        let (settings, at) = (settings(&self.config), self.time().instant);
        let _ = self.pulses.check(&view, &settings, &HashMap::new(), at);
    }

    /// What is to be done by the caps as they are.
    fn plan(&mut self) -> Vec<Action> {
        if !self.pulses.wants() {
            return Vec::new();
        }
        self.pulses.asked();
        let caps: Vec<(String, Caps)> = self.caps.iter().map(|(q, c)| (q.clone(), *c)).collect();
        let (settings, time) = (settings(&self.config), self.time());
        let Orders { actions, notes } =
            self.pulses.plan(&caps, self.now - 0.1, &settings, false, time);
        self.notes.extend(notes);
        actions
    }

    /// Changes the database as the action says.
    fn make(&mut self, action: &Action) {
        let Target::Qos(qos) = &action.target else { panic!("{action:?}") };
        // What could be raised is on the disk by then.
        if action.kind == ActionKind::Raise {
            assert!(Record::open(&self.path()).0.qos().contains_key(qos));
        }
        for (key, value) in action.updates[0].set() {
            let cpus = value.strip_prefix("cpu=").and_then(|n| n.parse().ok());
            let caps = self.caps.get_mut(qos).expect("it is there");
            match *key {
                "MaxTRESPerUser" => caps.user = cpus,
                "MaxTRESPerAccount" => caps.account = cpus,
                other => panic!("{other}"),
            }
        }
        self.done.push((action.kind, action.words.clone()));
    }

    fn carry_out(&mut self, action: Action, fate: Fate) {
        if matches!(fate, Fate::Done | Fate::DoneUnseen | Fate::KilledAfter) {
            self.make(&action);
        }
        let outcome = match fate {
            Fate::Done => Outcome::Done,
            Fate::DoneUnseen | Fate::Failed => Outcome::Failed("no answer within 10 s".into()),
            Fate::KilledBefore | Fate::KilledAfter => return self.restart(),
        };
        let time = self.time();
        let _ = self.pulses.reported(&Report { action, outcome }, time);
    }

    /// One check and what it leads to, 15 s later.
    fn turn(&mut self, on: bool, fate: Fate) {
        self.now += 15.0;
        if on {
            self.check();
        } else {
            self.pulses.check_off();
        }
        for action in self.plan() {
            self.carry_out(action, fate);
        }
        self.now += 0.2;
    }

    fn raised(&self) -> usize {
        self.pulses.recorded().len()
    }
}

#[tokio::test]
async fn a_pulse_comes_and_goes() {
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    assert_eq!((site.user_cap(), site.raised()), (Some(8), 0), "not after one check");
    site.turn(true, Fate::Done);
    assert_eq!((site.user_cap(), site.raised()), (Some(16), 1));
    let mut turns = 0;
    while site.user_cap() == Some(16) {
        site.turn(true, Fate::Done);
        turns += 1;
    }
    assert!((3..=4).contains(&turns), "60 s: {turns}");
    assert_eq!(site.user_cap(), Some(8));
    site.turn(true, Fate::Done);
    assert_eq!(site.raised(), 0, "it was seen to be given back");
    assert!(!site.path().exists());
    // Nothing in the rest, then again.
    let (mut rest, ended) = (0, site.now);
    while site.user_cap() == Some(8) {
        site.turn(true, Fate::Done);
        rest += 1;
    }
    assert!(site.now - ended >= 280.0, "{rest}");
    // Much is used: it ends early.
    site.busy = 31;
    site.turn(true, Fate::Done);
    assert_eq!(site.user_cap(), Some(8));
    let kinds: Vec<_> = site.done.iter().map(|(kind, _)| *kind).collect();
    use ActionKind::{Lower, Raise};
    assert_eq!(kinds, [Raise, Lower, Raise, Lower]);
    assert_eq!(site.done[0].1, "caps MaxTRESPU cpu=8 raised to MaxTRESPU cpu=16");
    assert_eq!(site.notes, []);
}

#[tokio::test]
async fn an_admin_s_caps_win() {
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    // Before: what is there when it is raised is the base.
    site.caps.insert("normal".into(), Caps { user: Some(10), account: Some(100) });
    site.turn(true, Fate::Done);
    assert_eq!(site.caps["normal"], Caps { user: Some(20), account: Some(200) });
    // During: one of them.
    site.caps.insert("normal".into(), Caps { user: Some(12), account: Some(200) });
    site.turn(true, Fate::Done);
    assert!(site.notes[0].words.contains("somebody has set one of its caps"), "{:?}", site.notes);
    for _ in 0..5 {
        site.turn(true, Fate::Done);
    }
    assert_eq!(site.caps["normal"], Caps { user: Some(12), account: Some(100) });
    assert_eq!(site.raised(), 0);
    // During: all of them, or the QOS itself.
    for by_hand in [Some(Caps { user: None, account: Some(3) }), None] {
        while site.raised() == 0 {
            site.turn(true, Fate::Done);
        }
        site.notes.clear();
        match by_hand {
            Some(caps) => site.caps.insert("normal".into(), caps),
            None => site.caps.remove("normal"),
        };
        site.turn(true, Fate::Done);
        assert_eq!((site.raised(), site.notes.len()), (0, 1), "{:?}", site.notes);
        assert_eq!(site.caps.get("normal").copied(), by_hand);
    }
}

#[tokio::test]
async fn what_failed_may_have_been_done() {
    // The raise is not known to have been made: it is found and taken back.
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    site.turn(true, Fate::DoneUnseen);
    assert_eq!((site.user_cap(), site.raised()), (Some(16), 1));
    for _ in 0..5 {
        site.turn(true, Fate::Done);
    }
    assert_eq!((site.user_cap(), site.raised()), (Some(8), 0));
    // Never made, or late: the record stays for ten minutes.
    for late in [false, true] {
        let mut site = Site::new();
        site.turn(true, Fate::Done);
        site.turn(true, Fate::Failed);
        assert_eq!((site.user_cap(), site.raised()), (Some(8), 1));
        for _ in 0..20 {
            site.turn(true, Fate::Done);
            assert_eq!((site.user_cap(), site.raised()), (Some(8), 1), "nothing is tried");
        }
        if late {
            site.caps.insert("normal".into(), user(16));
            site.turn(true, Fate::Done);
            assert_eq!(site.user_cap(), Some(8));
        }
        while site.raised() == 1 {
            site.turn(false, Fate::Done);
        }
        assert_eq!(site.user_cap(), Some(8));
        assert!(site.now - T0 > if late { 300.0 } else { 600.0 });
    }
    // Giving back fails for a while: tried again, ever more seldom.
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    site.turn(true, Fate::Done);
    for _ in 0..60 {
        site.turn(true, Fate::Failed);
    }
    let time = site.time();
    assert_eq!(site.user_cap(), Some(16));
    for _ in 0..60 {
        site.turn(true, Fate::Done);
        if site.raised() == 0 {
            break;
        }
    }
    assert_eq!((site.user_cap(), site.raised()), (Some(8), 0));
    assert!(site.now - time.unix < 900.0);
}

#[tokio::test]
async fn what_a_crash_left_is_undone_by_the_next_run() {
    for fate in [Fate::KilledAfter, Fate::KilledBefore] {
        for on in [true, false] {
            let mut site = Site::new();
            site.turn(true, Fate::Done);
            site.turn(true, fate);
            assert_eq!(site.raised(), 1);
            assert!(site.pulses.wants(), "asked for at once");
            site.turn(on, Fate::Done);
            assert_eq!(site.user_cap(), Some(8), "{fate:?}");
            if fate == Fate::KilledAfter {
                site.turn(on, Fate::Done);
                assert_eq!(site.raised(), 0);
            }
        }
    }
    // A command that outlives sjpd: found when it is done.
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    site.turn(true, Fate::KilledBefore);
    for _ in 0..10 {
        site.turn(true, Fate::Done);
    }
    site.caps.insert("normal".into(), user(16));
    site.turn(true, Fate::Done);
    assert_eq!(site.user_cap(), Some(8));
    // Killed while it gives back.
    for fate in [Fate::KilledAfter, Fate::KilledBefore] {
        let mut site = Site::new();
        site.turn(true, Fate::Done);
        site.turn(true, Fate::Done);
        site.turn(false, fate);
        for _ in 0..50 {
            site.turn(false, Fate::Done);
        }
        assert_eq!((site.user_cap(), site.raised()), (Some(8), 0), "{fate:?}");
    }
}

#[tokio::test]
async fn a_dry_run_and_a_full_disk_change_nothing() {
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    site.now += 15.0;
    site.check();
    let caps = [("normal".to_owned(), user(8))];
    let (plain, time) = (settings(&site.config), site.time());
    let orders = site.pulses.plan(&caps, site.now, &plain, true, time);
    assert_eq!(orders.actions.len(), 1);
    assert!(!site.path().exists());
    let report = Report { action: orders.actions[0].clone(), outcome: Outcome::Would };
    assert_eq!(site.pulses.reported(&report, time), None);
    for _ in 0..5 {
        site.turn(true, Fate::Done);
    }
    assert_eq!(site.done, [], "told once");
    // Switched off between plan and command: nothing is recorded.
    let mut site = Site::new();
    site.turn(true, Fate::Done);
    site.now += 15.0;
    site.check();
    let actions = site.plan();
    assert_eq!(site.raised(), 1);
    let report = Report { action: actions[0].clone(), outcome: Outcome::Off };
    let time = site.time();
    assert_eq!(site.pulses.reported(&report, time), None);
    assert_eq!(site.raised(), 0);
    assert!(!site.path().exists());
    // What cannot be recorded is not begun.
    let mut site = Site::new();
    std::fs::create_dir(site.dir.path().join("limits.json.new")).expect("in the way");
    for _ in 0..5 {
        site.turn(true, Fate::Done);
    }
    assert_eq!((site.user_cap(), site.done.len()), (Some(8), 0));
    assert!(site.notes.iter().all(|n| n.error) && !site.notes.is_empty());
}

proptest! {
    /// Whatever becomes of commands and of sjpd, in the end the caps are the base or
    /// what an admin has set, and nothing is recorded.
    #[test]
    fn in_the_end_nothing_is_left(
        fates in proptest::collection::vec((0u8..5, any::<bool>(), 0u8..12), 1..60),
    ) {
        let mut site = Site::new();
        let mut want = 8;
        for (fate, on, admin) in fates {
            let fate = [
                Fate::Done, Fate::DoneUnseen, Fate::Failed, Fate::KilledBefore, Fate::KilledAfter,
            ][usize::from(fate)];
            site.turn(on, fate);
            if admin == 0 {
                // A value that no pulse sets.
                want = if want == 8 { 9 } else { 8 };
                site.caps.insert("normal".into(), user(want));
            }
        }
        for _ in 0..130 {
            site.turn(false, Fate::Done);
        }
        prop_assert_eq!(site.user_cap(), Some(want));
        prop_assert_eq!(site.raised(), 0);
        prop_assert!(!site.path().exists());
    }
}
