//! Plans for held jobs on clusters small enough to work out by hand, and
//! properties on random ones.

use super::flex::{self, May, Scope};
use super::pulse::{self, Caps, Over, Raised};
use super::*;
use crate::cluster::{JobState, Node, SlurmConfig};
use crate::config::{Mode, Policy};
use crate::ledger::Ledger;
use crate::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
use crate::units::{Cpus, Limit, MemMb, MemPer};
use crate::waiting::Waiting;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

const NOW: i64 = 1_000_000;

/// A cluster with a queue.
#[derive(Clone, Debug)]
struct Site {
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    qos: Vec<QosCaps>,
    jobs: Vec<Job>,
    moving: HashSet<u32>,
}

fn node(name: &str, cpus: u32, mem: u64, used: u32) -> Node {
    Node {
        name: name.to_owned(),
        state: vec!["IDLE".to_owned()],
        usable: true,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(cpus),
        cpus_alloc: Cpus(used),
        mem: Some(MemMb(mem)),
        mem_alloc: MemMb(mem / u64::from(cpus) * u64::from(used)),
        threads_per_core: 1,
        weight: 1,
        partitions: vec!["p".to_owned()],
        ..Node::default()
    }
}

/// Held by the user's cap, unless changed.
fn job(id: u32, cpus: u32) -> Job {
    Job {
        id,
        array_tasks: 1,
        uid: 1000,
        state: JobState::Pending,
        reason: "QOSMaxCpuPerUserLimit".to_owned(),
        partitions: vec!["p".to_owned()],
        submit: NOW - 100,
        time_limit: Limit::At(60),
        cpus: Cpus(cpus),
        mem: MemPer::Node(MemMb(1000 * u64::from(cpus))),
        node_count: 1,
        tasks: 1,
        batch: true,
        account: Some("acc".to_owned()),
        qos: "normal".to_owned(),
        priority: 1000 - id,
        admin_comment: Some("sjp:placed=p;id=1".to_owned()),
        ..Job::default()
    }
}

fn caps(name: &str, user: Option<u32>, used: u32) -> QosCaps {
    QosCaps {
        name: name.to_owned(),
        max_cpus_per_user: user,
        used_by_user: vec![(1000, used)],
        ..QosCaps::default()
    }
}

fn settings() -> Settings {
    Settings {
        min_idle_share: 0.25,
        count_pending: false,
        lower_below: 0.10,
        hysteresis: 3,
        ceiling: 2.0,
        pulse: 60,
        cooldown: 300,
        flex_qos: "flex".to_owned(),
        revert_after: 60,
    }
}

impl Site {
    /// Two nodes of 16 CPUs; user 1000 is at the cap of 8 CPUs of `normal`.
    fn new(jobs: Vec<Job>) -> Self {
        Self {
            nodes: vec![node("n1", 16, 64_000, 8), node("n2", 16, 64_000, 0)],
            partitions: vec![Partition {
                name: "p".to_owned(),
                state: "UP".to_owned(),
                max_time: Limit::Unlimited,
                over_subscribe: "NO".to_owned(),
                ..Partition::default()
            }],
            qos: vec![caps("flex", None, 0), caps("normal", Some(8), 8)],
            jobs,
            moving: HashSet::new(),
        }
    }

    fn with<T>(&self, now: i64, look: impl FnOnce(&View<'_>) -> T) -> T {
        let policy = Policy { mode: Mode::Enforce, ..Policy::default() };
        let config = SlurmConfig {
            select_type: "select/cons_tres".to_owned(),
            select_params: vec!["CR_CPU_MEMORY".to_owned()],
            ..SlurmConfig::default()
        };
        let roster = build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &self.partitions,
            config: &config,
            qos: &self.qos,
            bound_users: &[],
            policy: &policy,
        });
        let ledger = Ledger::new();
        let rooms = build_rooms(
            &roster,
            &RoomsInput {
                nodes: &self.nodes,
                nodes_asked_at: now as f64,
                reservations: &[],
                jobs: &self.jobs,
                ledger: &ledger,
                qos: &self.qos,
                config: &config,
                now,
                extra: Extra::default(),
            },
        );
        look(&View {
            roster: &roster,
            rooms: &rooms,
            jobs: &self.jobs,
            partitions: &self.partitions,
            qos: &self.qos,
            now,
        })
    }

    fn marks(&self) -> Vec<(usize, Mark)> {
        let parse = |j: &Job| Mark::parse(j.admin_comment.as_deref()?);
        self.jobs.iter().enumerate().filter_map(|(i, j)| Some((i, parse(j)?))).collect()
    }

    fn flex_at(
        &self,
        now: i64,
        settings: &Settings,
        may: impl Fn(&Job, &str) -> May,
        scope: Scope,
        memory: &mut flex::Memory,
    ) -> flex::Plan {
        let marks = self.marks();
        let moving = self.moving.clone();
        let ours: Vec<Waiting<'_>> = marks
            .iter()
            .filter(|(i, _)| self.jobs[*i].state == JobState::Pending)
            .map(|(i, mark)| Waiting { job: &self.jobs[*i], mark })
            .collect();
        self.with(now, |view| flex::plan(view, settings, &ours, &moving, may, scope, memory))
    }

    fn flex(&self) -> flex::Plan {
        self.flex_at(NOW, &settings(), |_, _| May::Yes, Scope::All, &mut flex::Memory::default())
    }

    fn check_at(
        &self,
        now: i64,
        settings: &Settings,
        on: &BTreeMap<String, Raised>,
        memory: &mut pulse::Memory,
    ) -> pulse::Check {
        let marks = self.marks();
        let marks: HashMap<u32, &Mark> =
            marks.iter().map(|(i, mark)| (self.jobs[*i].id, mark)).collect();
        self.with(now, |view| pulse::check(view, settings, &marks, on, memory))
    }
}

fn moved(plan: &flex::Plan) -> Vec<u32> {
    plan.moves.iter().map(|m| m.job).collect()
}

#[test]
fn held_is_who_only_the_cap_of_the_own_qos_holds() {
    let held_ids = |site: &Site| site.with(NOW, |view| ids(&held(view)));
    fn ids(list: &[Held<'_>]) -> Vec<u32> {
        list.iter().map(|h| h.job.id).collect()
    }
    let changed = |change: fn(&mut Job)| {
        let mut job = job(1, 4);
        change(&mut job);
        Site::new(vec![job])
    };
    assert_eq!(held_ids(&changed(|_| {})), [1]);
    for other in
        ["Resources", "Priority", "QOSGrpCpuLimit", "AssocGrpCpuLimit", "QOSMaxCpuPerJobLimit"]
    {
        let mut job = job(1, 4);
        job.reason = other.to_owned();
        assert!(held_ids(&Site::new(vec![job])).is_empty(), "{other}");
    }
    assert!(held_ids(&changed(|j| j.dependent = true)).is_empty());
    assert!(held_ids(&changed(|j| j.priority = 0)).is_empty());
    assert!(held_ids(&changed(|j| j.state = JobState::Active)).is_empty());
    // A QOS without that cap, or one with room by now.
    assert!(held_ids(&changed(|j| j.qos = "flex".to_owned())).is_empty());
    assert!(held_ids(&changed(|j| j.reason = "MaxCpuPerAccount".to_owned())).is_empty());
    let mut site = changed(|_| {});
    site.qos[1] = caps("normal", Some(8), 4);
    assert!(held_ids(&site).is_empty());
    // The account's cap.
    let mut site = changed(|j| j.reason = "MaxCpuPerAccount".to_owned());
    site.qos[1].max_cpus_per_account = Some(20);
    site.qos[1].used_by_account = vec![("acc".to_owned(), 18)];
    assert_eq!(held_ids(&site), [1]);
    // The partition's own QOS has the cap: then it decides.
    let mut site = changed(|_| {});
    site.partitions[0].qos = Some("flex".to_owned());
    assert_eq!(held_ids(&site), [1]);
    site.partitions[0].qos = Some("normal".to_owned());
    assert!(held_ids(&site).is_empty());
    // Highest priority first.
    let site = Site::new(vec![job(3, 1), job(1, 1), job(2, 1)]);
    assert_eq!(held_ids(&site), [1, 2, 3]);
}

#[test]
fn the_idle_share_by_hand() {
    let share = |site: &Site, count| site.with(NOW, |view| idle(view, count).share());
    // n1 is half used in CPUs and memory, n2 is empty.
    let mut site = Site::new(vec![job(1, 8)]);
    assert!((share(&site, false) - 0.75).abs() < 1e-9);
    // Held jobs do not wait for room; one that does takes its larger share.
    assert!((share(&site, true) - 0.75).abs() < 1e-9);
    site.jobs[0].reason = "Resources".to_owned();
    assert!((share(&site, true) - 0.50).abs() < 1e-9);
    site.jobs[0].mem = MemPer::Node(MemMb(64_000));
    assert!((share(&site, true) - 0.25).abs() < 1e-9);
    site.jobs[0].partitions = vec!["elsewhere".to_owned()];
    assert!((share(&site, true) - 0.75).abs() < 1e-9);
    // What is not usable is no capacity; of nothing, nothing is idle.
    site.nodes[1].usable = false;
    assert!((share(&site, false) - 0.5).abs() < 1e-9);
    site.nodes[0].usable = false;
    assert!(share(&site, false) == 0.0);
}

#[test]
fn as_many_move_as_fit_highest_priority_first() {
    // 24 CPUs are free: 8 on n1, 16 on n2.
    let site = Site::new(vec![job(1, 8), job(2, 12), job(3, 8), job(4, 4), job(5, 4)]);
    let while_idle = |min_idle_share| {
        let settings = Settings { min_idle_share, ..settings() };
        site.flex_at(NOW, &settings, |_, _| May::Yes, Scope::All, &mut flex::Memory::default())
    };
    let plan = while_idle(0.0);
    assert_eq!(moved(&plan), [1, 2, 4], "{plan:?}");
    assert_eq!(plan.moves[0].comment, "sjp:placed=p;qos=normal>flex;id=1");
    assert_eq!((plan.held, plan.in_flex), (5, 0));
    // While enough is idle: three quarters before the first, half after it.
    assert_eq!(moved(&while_idle(0.74)), [1]);
    assert_eq!(moved(&while_idle(0.76)), [0; 0]);
    assert_eq!(moved(&while_idle(0.49)), [1, 2]);
}

#[test]
fn who_moved_before_has_the_room_first() {
    // 24 CPUs are free, and 20 of them as good as taken.
    let large = |id: u32| Job { cpus: Cpus(12), ..flexed(id) };
    let mut site = Site::new(vec![large(7), job(8, 8), job(1, 8), job(2, 4)]);
    site.moving.insert(8);
    let plan = site.flex_at(
        NOW,
        &Settings { min_idle_share: 0.0, ..settings() },
        |_, _| May::Yes,
        Scope::All,
        &mut flex::Memory::default(),
    );
    assert_eq!(moved(&plan), [2]);
}

#[test]
fn who_does_not_move() {
    let one = |change: fn(&mut Job)| {
        let mut job = job(1, 4);
        change(&mut job);
        moved(&Site::new(vec![job]).flex())
    };
    assert_eq!(one(|_| {}), [1]);
    assert!(one(|j| j.admin_comment = Some("site".to_owned())).is_empty());
    assert!(one(|j| j.admin_comment = None).is_empty());
    let skipped = |j: &mut Job| j.admin_comment = Some("sjp:skipped=constraint".to_owned());
    assert!(one(skipped).is_empty(), "what it asks for is not in the queue");
    assert_eq!(one(|j| j.admin_comment = Some("sjp:skipped=no room".to_owned())), [1]);
    assert!(one(|j| j.gres = true).is_empty());
    assert!(one(|j| j.partitions = vec!["elsewhere".to_owned()]).is_empty());
    assert!(one(|j| j.cpus = Cpus(17)).is_empty());
    // An array only where all of its tasks fit.
    assert_eq!(one(|j| (j.array_id, j.array_tasks) = (Some(1), 6)), [1]);
    assert!(one(|j| (j.array_id, j.array_tasks) = (Some(1), 7)).is_empty());
    // A partition that does not take the flex QOS.
    let mut site = Site::new(vec![job(1, 4)]);
    site.partitions[0].deny_qos = vec!["flex".to_owned()];
    assert!(moved(&site.flex()).is_empty());
    // No such QOS; one with a cap of its own.
    let mut site = Site::new(vec![job(1, 4), job(2, 4)]);
    site.qos[0].max_cpus_per_user = Some(6);
    assert_eq!(moved(&site.flex()), [1]);
    site.qos.remove(0);
    assert!(moved(&site.flex()).is_empty());
    // Users who may not are told of; of others nothing is known.
    let site = Site::new(vec![job(1, 4)]);
    let ask = |may: May| {
        site.flex_at(NOW, &settings(), |_, _| may, Scope::All, &mut flex::Memory::default())
    };
    assert!(moved(&ask(May::No)).is_empty() && moved(&ask(May::Unknown)).is_empty());
    assert_eq!(ask(May::No).denied.into_iter().collect::<Vec<_>>(), [(1000, "acc".to_owned())]);
    assert!(ask(May::Unknown).denied.is_empty());
}

/// `job`, as it waits in the flex QOS.
fn flexed(id: u32) -> Job {
    Job {
        qos: "flex".to_owned(),
        reason: "Resources".to_owned(),
        admin_comment: Some("mine sjp:placed=p;qos=normal>flex;id=1".to_owned()),
        ..job(id, 4)
    }
}

#[test]
fn who_does_not_start_goes_back_and_rests() {
    let mut memory = flex::Memory::default();
    let yes = |_: &Job, _: &str| May::Yes;
    let site = Site::new(vec![flexed(1)]);
    for t in [0, 59] {
        let plan = site.flex_at(NOW + t, &settings(), yes, Scope::All, &mut memory);
        assert!(plan.back.is_empty() && plan.in_flex == 1, "{plan:?}");
    }
    let plan = site.flex_at(NOW + 60, &settings(), yes, Scope::All, &mut memory);
    assert_eq!(plan.back.len(), 1);
    assert_eq!((plan.back[0].own.as_str(), plan.back[0].waited), ("normal", Some(60)));
    assert_eq!(plan.back[0].comment, "mine sjp:placed=p;id=1");
    memory.came_back(1, NOW - 100, NOW + 60);
    let held = Site::new(vec![job(1, 4)]);
    for (t, moves) in [(61, 0), (359, 0), (360, 1)] {
        let plan = held.flex_at(NOW + t, &settings(), yes, Scope::All, &mut memory);
        assert_eq!(plan.moves.len(), moves, "after {t} s");
    }
    // Switched off: at once, and nothing new.
    let both = Site::new(vec![flexed(1), job(2, 4)]);
    let plan = both.flex_at(NOW, &settings(), yes, Scope::Undo, &mut flex::Memory::default());
    assert_eq!((plan.back.len(), plan.moves.len()), (1, 0));
    assert_eq!(plan.back[0].waited, None);
    // A QOS that its user may not use is not given.
    let no = |_: &Job, qos: &str| if qos == "normal" { May::No } else { May::Yes };
    let plan = both.flex_at(NOW, &settings(), no, Scope::Undo, &mut flex::Memory::default());
    assert!(plan.back.is_empty());
}

#[test]
fn somebody_s_own_choice_of_a_qos_stays() {
    let chosen = |comment: &str| Job {
        admin_comment: Some(comment.to_owned()),
        qos: "high".to_owned(),
        ..flexed(1)
    };
    let site = Site::new(vec![chosen("mine sjp:placed=p;qos=normal>flex;id=1")]);
    let plan = site.flex();
    assert!(plan.back.is_empty() && plan.moves.is_empty());
    assert_eq!(plan.foreign.len(), 1);
    assert_eq!(plan.foreign[0].comment, "mine");
    assert!(!plan.foreign[0].unpin);
    // A pin of sjp's is taken back with it; nodes that somebody chose stay.
    let pinned = |node: &str| Job {
        req_nodes: vec![node.to_owned()],
        ..chosen("sjp:pin=n1;from=p;qos=normal>flex;id=1")
    };
    let foreign = Site::new(vec![pinned("n1")]).flex().foreign;
    assert_eq!((foreign[0].comment.as_str(), foreign[0].unpin), ("", true));
    let steps: Vec<usize> = foreign[0].steps().iter().map(Vec::len).collect();
    assert_eq!(steps, [1, 1], "the node first; its partitions are its own already");
    assert!(!Site::new(vec![pinned("n2")]).flex().foreign[0].unpin);
    // A job that its user sent there is none of sjp's.
    let own = Job { admin_comment: Some("sjp:placed=p;id=1".to_owned()), ..flexed(1) };
    let plan = Site::new(vec![own]).flex_at(
        NOW + 1000,
        &settings(),
        |_, _| May::Yes,
        Scope::Undo,
        &mut flex::Memory::default(),
    );
    assert_eq!((plan.back, plan.foreign), (Vec::new(), Vec::new()));
}

#[test]
fn a_pulse_needs_some_checks_in_a_row() {
    let (none, mut memory) = (BTreeMap::new(), pulse::Memory::default());
    let held = Site::new(vec![job(1, 4), job(2, 4)]);
    let quiet = Site::new(Vec::new());
    let raises = |site: &Site, memory: &mut pulse::Memory| {
        site.check_at(NOW, &settings(), &none, memory).raise
    };
    assert!(raises(&held, &mut memory).is_empty());
    assert!(raises(&held, &mut memory).is_empty() && memory.stirs());
    assert!(raises(&quiet, &mut memory).is_empty() && !memory.stirs());
    for _ in 0..2 {
        assert!(raises(&held, &mut memory).is_empty());
    }
    assert_eq!(raises(&held, &mut memory), [("normal".to_owned(), 2)]);
    // Not while too little is idle, for jobs that do not fit, or that the raised
    // cap would hold too.
    let mut ready = memory.clone();
    let mut full = held.clone();
    full.nodes[1].cpus_alloc = Cpus(12);
    full.nodes[0].cpus_alloc = Cpus(16);
    assert!(raises(&full, &mut ready).is_empty() && !ready.stirs());
    let mut ready = memory.clone();
    assert!(raises(&Site::new(vec![job(1, 9)]), &mut ready).is_empty());
    assert!(raises(&Site::new(vec![job(1, 17)]), &mut memory).is_empty());
}

#[test]
fn a_pulse_ends_in_time_or_early_and_rests() {
    let raised = Raised::from(Caps { user: Some(8), account: None }, 2.0, NOW).unwrap();
    let on = BTreeMap::from([("normal".to_owned(), raised)]);
    let mut memory = pulse::Memory::default();
    let site = Site::new(vec![job(1, 4)]);
    let lower = |site: &Site, now: i64| {
        site.check_at(now, &settings(), &on, &mut pulse::Memory::default()).lower
    };
    assert!(lower(&site, NOW + 59).is_empty());
    assert_eq!(lower(&site, NOW + 60), [("normal".to_owned(), Over::Time(60))]);
    assert_eq!(lower(&site, NOW - 1), [("normal".to_owned(), Over::Time(-1))]);
    let mut full = site.clone();
    full.nodes[0].cpus_alloc = Cpus(15);
    full.nodes[1].cpus_alloc = Cpus(15);
    let ends = lower(&full, NOW + 1);
    assert!(matches!(ends[0].1, Over::Busy(share) if share < 0.10), "{ends:?}");
    // Not again before the rest is over, and then only after some checks.
    memory.ended("normal", NOW + 60);
    let none = BTreeMap::new();
    let mut raised_at = Vec::new();
    for t in (60..=420).step_by(15) {
        if !site.check_at(NOW + t, &settings(), &none, &mut memory).raise.is_empty() {
            raised_at.push(t);
        }
    }
    assert_eq!(raised_at.first(), Some(&390), "{raised_at:?}");
}

#[test]
fn what_is_given_back_is_what_nobody_else_changed() {
    let caps = |user, account| Caps { user, account };
    let raised = Raised::from(caps(Some(8), Some(21)), 1.5, NOW).unwrap();
    assert_eq!(raised.raised, caps(Some(12), Some(31)));
    let back = |user, account| raised.to_give_back(caps(user, account));
    assert_eq!(back(Some(12), Some(31)), caps(Some(8), Some(21)));
    assert_eq!(back(Some(10), Some(31)), caps(None, Some(21)), "an admin's cap stays");
    assert_eq!(back(None, None), caps(None, None), "an admin took them off");
    assert_eq!(back(Some(8), Some(21)), caps(None, None), "never raised, or given back");
    assert!(raised.is_base(caps(Some(8), Some(21))) && !raised.is_base(caps(Some(12), Some(21))));
    assert_eq!(raised.still_ours(caps(Some(8), Some(21))), None);
    let half = raised.still_ours(caps(Some(10), Some(31))).unwrap();
    assert_eq!((half.base, half.raised), (caps(None, Some(21)), caps(None, Some(31))));
    assert_eq!(half.to_give_back(caps(Some(12), Some(31))), caps(None, Some(21)));
    assert_eq!(Raised::from(caps(None, None), 2.0, NOW), None);
    assert_eq!(Raised::from(caps(Some(0), Some(1)), 1.9, NOW), None);
    let huge = Raised::from(caps(Some(u32::MAX / 2), None), 100.0, NOW).unwrap();
    assert_eq!(huge.raised.user, Some(u32::MAX));
    let set = pulse::settings_of(caps(Some(8), Some(21)));
    let set: Vec<String> = set.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(set, ["MaxTRESPerUser=cpu=8", "MaxTRESPerAccount=cpu=21"]);
}

/// Some nodes, some jobs, most of them held.
fn site() -> impl Strategy<Value = Site> {
    let nodes = proptest::collection::vec((1u32..=32, 0u32..=32, 1000u64..8000), 1..6);
    let jobs =
        proptest::collection::vec((1u32..=24, 100u64..9000, 0u32..4, 0u8..6, 1u32..4), 0..20);
    (nodes, jobs, 0u32..40, proptest::option::of(0u32..60)).prop_map(|(nodes, jobs, cap, flex)| {
        let mut site = Site::new(Vec::new());
        site.nodes = nodes
            .into_iter()
            .enumerate()
            .map(|(i, (cpus, used, per))| {
                node(&format!("n{i}"), cpus, u64::from(cpus) * per, used.min(cpus))
            })
            .collect();
        site.qos = vec![caps("flex", flex, 3), caps("normal", Some(cap), cap)];
        site.jobs = jobs
            .into_iter()
            .enumerate()
            .map(|(i, (cpus, per, uid, kind, tasks))| {
                let id = u32::try_from(i).unwrap() + 1;
                let base = Job { uid: 1000 + uid, ..job(id, cpus) };
                let mem = MemPer::Node(MemMb(per * u64::from(cpus)));
                match kind {
                    0 => Job { reason: "Resources".to_owned(), mem, ..base },
                    1 => Job { mem, uid: 1000 + uid, ..flexed(id) },
                    2 => Job { array_id: Some(id), array_tasks: tasks, mem, ..base },
                    3 => Job { admin_comment: Some("site".to_owned()), mem, ..base },
                    _ => Job { mem, ..base },
                }
            })
            .collect();
        site
    })
}

proptest! {
    #[test]
    fn moves_never_add_up_to_more_than_fits(site in site(), least in 0.0f64..1.0) {
        let settings = Settings { min_idle_share: least, ..settings() };
        let mut memory = flex::Memory::default();
        let plan = site.flex_at(NOW, &settings, |_, _| May::Yes, Scope::All, &mut memory);
        let by_id: HashMap<u32, &Job> = site.jobs.iter().map(|j| (j.id, j)).collect();
        let (mut cpus, mut mem) = (0u64, 0u64);
        let mut by_user: HashMap<u32, u32> = HashMap::new();
        for m in &plan.moves {
            let job = by_id[&m.job];
            prop_assert_eq!(job.qos.as_str(), "normal");
            prop_assert_eq!(job.reason.as_str(), "QOSMaxCpuPerUserLimit");
            let mark = Mark::parse(&m.comment).unwrap();
            prop_assert_eq!(mark.get("qos"), Some("normal>flex"));
            let MemPer::Node(each) = job.mem else { unreachable!() };
            cpus += u64::from(job.cpus.0) * u64::from(job.array_tasks);
            mem += each.0 * u64::from(job.array_tasks);
            *by_user.entry(job.uid).or_default() += job.cpus.0 * job.array_tasks;
        }
        let free_cpus: u64 = site.nodes.iter().map(|n| u64::from(n.cpus_free().0)).sum();
        let free_mem: u64 = site.nodes.iter().map(|n| n.mem_free().unwrap().0).sum();
        prop_assert!(cpus <= free_cpus && mem <= free_mem);
        if let Some(limit) = site.qos[0].max_cpus_per_user {
            for (uid, taken) in by_user {
                let used = if uid == 1000 { 3 } else { 0 };
                prop_assert!(used + taken <= limit);
            }
        }
        prop_assert!(plan.moves.is_empty() || plan.idle.share() >= least);
        let order: Vec<u32> = plan.moves.iter().map(|m| by_id[&m.job].priority).collect();
        prop_assert!(order.is_sorted_by(|a, b| a >= b));
    }

    /// Whatever is moved can be told from the job alone, and goes back.
    #[test]
    fn every_move_has_its_way_back(site in site()) {
        let yes = |_: &Job, _: &str| May::Yes;
        let mut memory = flex::Memory::default();
        let plan = site.flex_at(NOW, &settings(), yes, Scope::All, &mut memory);
        let mut after = site.clone();
        for m in &plan.moves {
            let job = after.jobs.iter_mut().find(|j| j.id == m.job).unwrap();
            (job.qos, job.admin_comment) = (m.flex.clone(), Some(m.comment.clone()));
        }
        // As after a crash: nothing is remembered.
        let plan = after.flex_at(NOW, &settings(), yes, Scope::Undo, &mut flex::Memory::default());
        for b in &plan.back {
            let job = after.jobs.iter_mut().find(|j| j.id == b.job).unwrap();
            (job.qos, job.admin_comment) = (b.own.clone(), Some(b.comment.clone()));
        }
        for (before, now) in site.jobs.iter().zip(&after.jobs) {
            if before.qos == "normal" {
                prop_assert_eq!(before, now);
            } else {
                prop_assert_eq!(now.qos.as_str(), "normal");
            }
        }
    }

    /// Whenever sjp stops, and whatever an admin sets in between: what is set in the
    /// end is the base or the admin's.
    #[test]
    fn caps_end_at_the_base_or_the_admin_s(
        base in (proptest::option::of(0u32..500), proptest::option::of(0u32..500)),
        admin in proptest::option::of((proptest::option::of(0u32..2000), proptest::option::of(0u32..2000))),
        ceiling in 1.0f64..5.0,
        done in any::<bool>(),
    ) {
        let base = Caps { user: base.0, account: base.1 };
        let Some(raised) = Raised::from(base, ceiling, NOW) else { return Ok(()) };
        let merge = |now: Caps, set: Caps| Caps {
            user: set.user.or(now.user),
            account: set.account.or(now.account),
        };
        let mut now = if done { merge(base, raised.raised) } else { base };
        let by_hand = admin.map(|(user, account)| Caps { user, account });
        if let Some(by_hand) = by_hand {
            now = by_hand;
        }
        let end = merge(now, raised.to_give_back(now));
        let want = |end: Option<u32>, base, raised, by_hand: Option<Option<u32>>| match by_hand {
            // Set to just what sjp set it to: not to be told apart.
            Some(hand) if hand != raised || raised.is_none() => end == hand,
            _ => end == base,
        };
        prop_assert!(want(end.user, base.user, raised.raised.user, by_hand.map(|h| h.user)));
        prop_assert!(want(end.account, base.account, raised.raised.account, by_hand.map(|h| h.account)));
        prop_assert!(raised.to_give_back(end).none() || by_hand.is_some());
    }
}
