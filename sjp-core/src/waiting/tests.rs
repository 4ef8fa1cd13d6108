//! Waiting jobs on a cluster small enough to work out by hand.
//!
//! slim: s01 and s02 with 16 CPUs and 64,000 MB; fat: f01 with 16 CPUs and
//! 256,000 MB.

use super::*;
use crate::cluster::{Node, Partition, QosCaps, Reservation, SlurmConfig};
use crate::config::{Mode, Policy, UserChoice};
use crate::ledger::Ledger;
use crate::publish::{Extra, RosterInput, build_roster};
use crate::units::{Cpus, MemMb};
use std::collections::HashMap;

pub(super) const NOW: i64 = 100_000;

pub(super) const SETTINGS: Settings = Settings {
    release_after: 60,
    interval: 60,
    open: true,
    wait_for_room: false,
    widen: true,
    budget_fat: 3600,
    budget_slim: 4 * 3600,
    fat_mb_per_cpu: 6000.0,
    stepped: None,
};

pub(super) struct Site {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub config: SlurmConfig,
    pub policy: Policy,
    pub qos: Vec<QosCaps>,
    pub reservations: Vec<Reservation>,
    pub jobs: Vec<Job>,
    pub settings: Settings,
    ledger: Ledger,
}

pub(super) fn node(name: &str, partitions: &[&str], mem: u64) -> Node {
    Node {
        name: name.into(),
        state: vec!["IDLE".into()],
        usable: true,
        cpus: Cpus(16),
        cpus_effective: Cpus(16),
        mem: Some(MemMb(mem)),
        threads_per_core: 1,
        weight: 1,
        partitions: strings(partitions),
        ..Node::default()
    }
}

pub(super) fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

impl Site {
    pub fn new() -> Self {
        let partition = |name: &str, tier| Partition {
            name: name.into(),
            state: "UP".into(),
            tier,
            default: name == "slim",
            max_time: Limit::At(14 * 1440),
            max_nodes: Limit::Unlimited,
            over_subscribe: "NO".into(),
            ..Partition::default()
        };
        Self {
            nodes: vec![
                node("s01", &["slim"], 64_000),
                node("s02", &["slim"], 64_000),
                node("f01", &["fat"], 256_000),
            ],
            partitions: vec![partition("slim", 10), partition("fat", 8)],
            config: SlurmConfig {
                select_type: "select/cons_tres".into(),
                select_params: vec!["CR_CPU_MEMORY".into()],
                ..SlurmConfig::default()
            },
            policy: Policy { mode: Mode::Enforce, ..Policy::default() },
            qos: Vec::new(),
            reservations: Vec::new(),
            jobs: Vec::new(),
            settings: SETTINGS,
            ledger: Ledger::new(),
        }
    }

    /// A running job that takes `cpus` CPUs and 1,000 MB for each on `node`.
    pub fn run(&mut self, node: &str, cpus: u32, end: i64) {
        let id = 10_000 + u32::try_from(self.jobs.len()).unwrap();
        self.jobs.push(Job {
            id,
            array_tasks: 1,
            state: JobState::Active,
            nodes: strings(&[node]),
            node_count: 1,
            cpus: Cpus(cpus),
            mem: MemPer::Cpu(MemMb(1000)),
            end: Some(end),
            priority: 1,
            batch: true,
            ..Job::default()
        });
        let n = self.nodes.iter_mut().find(|n| n.name == node).unwrap();
        n.cpus_alloc.0 += cpus;
        n.mem_alloc.0 += u64::from(cpus) * 1000;
    }

    /// A job of 8 CPUs and 1,000 MB for each, pending since five minutes.
    pub fn wait(&mut self, id: u32, priority: u32, place: &[&str], comment: &str) -> &mut Job {
        let pin = Mark::parse(comment).and_then(|m| m.get("pin").map(str::to_owned));
        self.jobs.push(Job {
            id,
            array_tasks: 1,
            uid: 1000,
            state: JobState::Pending,
            reason: "Resources".into(),
            partitions: strings(place),
            req_nodes: pin.into_iter().collect(),
            node_count: 1,
            tasks: 1,
            cpus: Cpus(8),
            mem: MemPer::Cpu(MemMb(1000)),
            time_limit: Limit::At(60),
            submit: NOW - 300,
            eligible: Some(NOW - 300),
            priority,
            batch: true,
            admin_comment: Some(comment.into()),
            ..Job::default()
        });
        self.jobs.last_mut().unwrap()
    }

    pub fn roster(&self) -> Roster {
        build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &self.partitions,
            config: &self.config,
            qos: &self.qos,
            bound_users: &[],
            policy: &self.policy,
        })
    }

    pub fn with<T>(&self, now: i64, use_it: impl FnOnce(&Snapshot<'_>, &[Waiting<'_>]) -> T) -> T {
        let roster = self.roster();
        let marks: Vec<(&Job, Mark)> = self
            .jobs
            .iter()
            .filter(|j| j.state == JobState::Pending)
            .filter_map(|j| Some((j, Mark::parse(j.admin_comment.as_deref()?)?)))
            .collect();
        let waiting: Vec<Waiting<'_>> =
            marks.iter().map(|(job, mark)| Waiting { job, mark }).collect();
        let snapshot = Snapshot {
            roster: &roster,
            input: RoomsInput {
                nodes: &self.nodes,
                nodes_asked_at: now as f64,
                reservations: &self.reservations,
                jobs: &self.jobs,
                ledger: &self.ledger,
                qos: &self.qos,
                config: &self.config,
                now,
                extra: Extra::default(),
            },
        };
        use_it(&snapshot, &waiting)
    }

    pub fn recheck(&self, now: i64) -> Vec<Intent> {
        self.with(now, |s, w| recheck::plan(s, w, &self.settings).intents)
    }

    fn widen(&self, now: i64) -> Vec<Intent> {
        self.with(now, |s, w| widen::plan(s.roster, w, &self.settings, now))
    }

    fn release(&self, now: i64) -> Vec<Intent> {
        self.with(now, |s, w| release::plan(s.roster, w, &self.settings, now))
    }

    fn let_go(&self) -> Vec<Intent> {
        self.with(NOW, |s, w| let_go(s.roster, w))
    }

    /// What slurmctld makes of an intent.
    pub fn apply(&mut self, intent: &Intent) {
        let job = self.jobs.iter_mut().find(|j| j.id == intent.job).unwrap();
        if intent.unpin {
            job.req_nodes.clear();
        }
        if !intent.partitions.is_empty() {
            job.partitions.clone_from(&intent.partitions);
        }
        job.req_nodes.extend(intent.pin.clone());
        job.admin_comment = Some(intent.comment.clone());
    }

    pub fn fill(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.run(node, 16, NOW + 3600);
        }
    }
}

fn brief(intents: &[Intent]) -> Vec<(Kind, u32, String, Option<&str>)> {
    intents.iter().map(|i| (i.kind, i.job, i.partitions.join(","), i.pin.as_deref())).collect()
}

fn value(intent: &Intent, key: &str) -> String {
    Mark::parse(&intent.comment).unwrap().get(key).unwrap_or_default().to_owned()
}

const SLIM: &str = "sjp:placed=slim;job=8c,7.8G,1.0G/c;id=1";

#[test]
fn a_pin_is_released_when_its_time_is_over() {
    let mut site = Site::new();
    let pin = "mine sjp:pin=s01;from=fat,slim;job=8c;free=8c;id=1";
    site.wait(7, 10, &["slim"], pin).eligible = Some(NOW);
    assert!(site.release(NOW + 59).is_empty());
    let plan = site.release(NOW + 60);
    assert_eq!(brief(&plan), [(Kind::Release, 7, "fat,slim".into(), None)]);
    assert_eq!(plan[0].comment, "mine sjp:placed=fat,slim;released=s01;job=8c;id=1");
    assert!(plan[0].unpin);
    // A pin that was set later counts from then on.
    site.jobs[0].admin_comment = Some(format!("sjp:pin=s01;from=fat,slim;at={};id=1", NOW + 30));
    assert!(site.release(NOW + 89).is_empty());
    assert_eq!(site.release(NOW + 90).len(), 1);
}

#[test]
fn half_a_release_is_finished_at_once() {
    let mut site = Site::new();
    site.wait(7, 10, &["slim"], "sjp:pin=s01;from=slim,fat;id=1").req_nodes.clear();
    let plan = site.release(NOW - 299);
    assert_eq!(brief(&plan), [(Kind::Release, 7, "slim,fat".into(), None)]);
    assert!(!plan[0].unpin);
}

#[test]
fn what_somebody_else_changed_is_let_go() {
    let mut site = Site::new();
    let pin = "site sjp:pin=s01;from=slim,fat;id=1";
    site.wait(1, 10, &["slim"], pin);
    site.wait(2, 10, &["slim"], pin).req_nodes = strings(&["s02"]);
    site.wait(3, 10, &["slim"], pin).req_nodes = strings(&["s01", "s02"]);
    site.wait(4, 10, &["fat"], pin);
    site.wait(5, 10, &["fat"], pin).req_nodes.clear();
    site.wait(6, 10, &["slim", "fat"], "sjp:placed=fat,slim;id=1");
    site.wait(7, 10, &["slim"], "sjp:placed=fat,slim;id=1");
    site.wait(8, 10, &["slim"], "sjp:open=slim;id=1").req_nodes = strings(&["s01"]);
    site.wait(9, 10, &["slim"], "sjp:open=slim;own=nodes;id=1").req_nodes = strings(&["s01"]);
    site.wait(10, 10, &["slim"], "sjp:skipped=gpu");
    site.wait(11, 10, &["slim"], "sjp:qos=a>b;placed=fat;id=1");
    let plan = site.let_go();
    let seen: Vec<(u32, bool, &str)> =
        plan.iter().map(|i| (i.job, i.unpin, i.comment.as_str())).collect();
    assert_eq!(
        seen,
        [
            (2, false, "site"),
            (3, false, "site"),
            (4, true, "site"),
            (5, false, "site"),
            (7, false, ""),
            (8, false, ""),
            (11, false, "sjp:qos=a>b;id=1"),
        ]
    );
    assert!(plan.iter().all(|i| i.partitions.is_empty() && i.pin.is_none()));
    assert_eq!(site.release(NOW).len(), 1, "only what is sjp's is released");
    assert!(site.recheck(NOW).iter().all(|i| ![2, 3, 4, 5, 7, 8, 11].contains(&i.job)));
}

#[test]
fn a_job_whose_nodes_somebody_chose_gets_back_the_partitions_that_hold_them() {
    let mut site = Site::new();
    let own = |nodes: &[&str]| strings(nodes);
    site.wait(1, 10, &["fat"], "sjp:placed=fat;id=1").req_nodes = own(&["s01"]);
    site.wait(2, 10, &["fat"], "sjp:pin=f01;from=fat;id=2").req_nodes = own(&["s01"]);
    site.wait(3, 10, &["fat"], "sjp:placed=fat;was=slim,fat;id=3").req_nodes = own(&["s02"]);
    // Nothing that it came with holds this node: it stays.
    site.wait(4, 10, &["fat"], "sjp:placed=fat;id=4").req_nodes = own(&["f01"]);
    site.wait(5, 10, &["fat"], "sjp:placed=slim;id=5").req_nodes = own(&["s01"]);
    let plan = site.let_go();
    let seen: Vec<(u32, bool, String)> =
        plan.iter().map(|i| (i.job, i.unpin, i.partitions.join(","))).collect();
    let back = |job, list: &str| (job, false, list.to_owned());
    assert_eq!(seen, [back(1, "slim"), back(2, "slim"), back(3, "slim"), back(4, ""), back(5, "")]);
    assert_eq!(plan[0].words, "let go in s01, back to slim");
}

#[test]
fn a_job_moves_to_where_there_is_room() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    site.wait(1, 10, &["slim"], SLIM);
    let plan = site.recheck(NOW);
    assert_eq!(brief(&plan), [(Kind::Move, 1, "fat".into(), None)]);
    assert_eq!(value(&plan[0], "moved"), "slim>fat");
    assert_eq!(value(&plan[0], "placed"), "fat");
    assert_eq!(plan[0].takes, [("f01".to_owned(), 8, 8000)]);
    site.apply(&plan[0]);
    assert!(site.recheck(NOW + 1).is_empty(), "rests");
    assert!(site.recheck(NOW + 60).is_empty(), "it has room where it is");
    assert!(site.let_go().is_empty());
}

#[test]
fn moves_never_add_up_to_more_than_fits() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    for (id, priority) in [(1, 10), (2, 30), (3, 20), (4, 40)] {
        site.wait(id, priority, &["slim"], SLIM);
    }
    let plan = site.recheck(NOW);
    let moved: Vec<u32> = plan.iter().filter(|i| i.kind == Kind::Move).map(|i| i.job).collect();
    assert_eq!(moved, [4, 2], "16 CPUs, by priority");
    let opened: Vec<u32> = plan.iter().filter(|i| i.kind == Kind::Open).map(|i| i.job).collect();
    assert_eq!(opened, [3, 1], "the others may go wherever room comes first");
}

#[test]
fn who_moved_a_moment_ago_has_taken_the_room() {
    let mut site = Site::new();
    site.settings.open = false;
    site.fill(&["s01", "s02"]);
    for id in 1..=6 {
        site.wait(id, 10, &["slim"], SLIM);
    }
    let first = site.recheck(NOW);
    assert_eq!(first.len(), 2);
    for intent in &first {
        site.apply(intent);
    }
    for later in [1, 59, 60, 300] {
        assert_eq!(site.recheck(NOW + later), [], "after {later} s");
    }
    // Nor is it there for others where a job may not be moved any more.
    for job in site.jobs.iter_mut().filter(|j| j.partitions == ["fat"]) {
        job.admin_comment = Some("sjp:placed=fat;own=exclude;job=8c,7.8G,1.0G/c;id=1".into());
    }
    assert_eq!(site.recheck(NOW + 300), []);
}

#[test]
fn a_job_without_room_gets_every_partition_and_is_narrowed_when_it_can_start() {
    let mut site = Site::new();
    site.fill(&["s01", "s02", "f01"]);
    site.wait(1, 10, &["slim"], SLIM);
    site.wait(2, 10, &["slim"], "sjp:pin=s01;from=slim;at=99990;job=8c,7.8G,1.0G/c;id=2");
    site.settings.interval = 5;
    let plan = site.recheck(NOW);
    let open = "slim,fat".to_owned();
    assert_eq!(brief(&plan), [(Kind::Open, 1, open.clone(), None), (Kind::Open, 2, open, None)]);
    assert_eq!(
        (value(&plan[0], "open"), value(&plan[1], "released")),
        ("slim,fat".into(), "s01".into())
    );
    assert!(!plan[0].unpin && plan[1].unpin);
    for intent in &plan {
        site.apply(intent);
    }
    assert!(site.recheck(NOW + 60).is_empty(), "open already");
    site.settings.open = false;
    let running = site.jobs.iter().position(|j| j.nodes == ["f01"]).unwrap();
    site.jobs.remove(running);
    site.nodes[2].cpus_alloc.0 = 8;
    site.nodes[2].mem_alloc.0 = 8000;
    let plan = site.recheck(NOW + 60);
    assert_eq!(brief(&plan), [(Kind::Narrow, 1, "fat".into(), None)], "room for one");
    assert_eq!(value(&plan[0], "placed"), "fat");
}

#[test]
fn a_pin_with_room_is_nobody_else_s() {
    let mut site = Site::new();
    site.fill(&["s01", "f01"]);
    site.run("s02", 8, NOW + 3600);
    site.wait(1, 10, &["slim"], "sjp:pin=s02;from=slim;job=8c,7.8G,1.0G/c;id=1");
    site.wait(2, 99, &["fat"], "sjp:placed=fat;job=8c,7.8G,1.0G/c;id=2");
    let plan = site.recheck(NOW);
    assert_eq!(brief(&plan), [(Kind::Open, 2, "slim,fat".into(), None)]);
}

#[test]
fn jobs_that_could_not_start_anyway_are_left() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    // Of those that stay whatever happens, the ones in fat take the room there.
    for (id, reason) in (1..).zip([
        "Dependency",
        "BeginTime",
        "JobHeldUser",
        "QOSMaxCpuPerUserLimit",
        "AssocGrpCpuLimit",
        "JobArrayTaskLimit",
        "Licenses",
        "Reservation",
    ]) {
        site.wait(id, 10, &["slim"], SLIM).reason = reason.into();
    }
    site.wait(20, 0, &["slim"], SLIM);
    site.wait(21, 10, &["slim"], SLIM).dependent = true;
    site.wait(22, 10, &["slim"], "sjp:placed=slim;own=exclude;id=1");
    let old = site.wait(23, 10, &["slim"], SLIM);
    (old.submit, old.eligible) = (NOW - 4 * 3600, Some(NOW - 4 * 3600));
    site.wait(24, 10, &["slim"], "sjp:open=slim;widened=slim;id=1");
    site.wait(25, 10, &["slim"], "sjp:skipped=multi-node");
    site.wait(26, 10, &["slim"], "no mark");
    assert_eq!(site.recheck(NOW), []);
    site.settings.widen = false;
    assert_eq!(site.recheck(NOW).len(), 1, "no budget where nothing is widened");
}

#[test]
fn the_job_s_own_partitions_bound_the_choice() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    site.wait(1, 10, &["slim"], "sjp:placed=slim;was=slim;job=8c,7.8G,1.0G/c;id=1");
    assert_eq!(site.recheck(NOW), []);
    assert_eq!(site.widen(NOW + 20_000), []);
    site.policy.user_partition = UserChoice::Ignore;
    assert_eq!(brief(&site.recheck(NOW)), [(Kind::Move, 1, "fat".into(), None)]);
    assert_eq!(site.widen(NOW + 20_000).len(), 1);
}

#[test]
fn partitions_of_groups_only_where_the_job_was_before() {
    let mut site = Site::new();
    site.partitions[1].allow_groups = crate::cluster::Names::Listed(strings(&["vip"]));
    site.fill(&["s01", "s02"]);
    site.wait(1, 10, &["slim"], SLIM);
    site.wait(2, 9, &["slim"], "sjp:pin=s01;from=slim,fat;job=8c,7.8G,1.0G/c;id=1");
    assert_eq!(brief(&site.recheck(NOW)), [(Kind::Move, 2, "fat".into(), None)]);
}

#[test]
fn a_job_skipped_for_want_of_room_moves_once_there_is_some() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    site.wait(1, 10, &["slim"], "sjp:skipped=no room");
    site.wait(2, 9, &["slim"], "sjp:skipped=no room;was=slim");
    let plan = site.recheck(NOW);
    assert_eq!(brief(&plan), [(Kind::Move, 1, "fat".into(), None)]);
    assert_eq!(value(&plan[0], "had"), "slim");
    assert_eq!(value(&plan[0], "skipped"), "");
}

#[test]
fn slurm_s_plans_count_for_jobs_of_a_higher_priority() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    let planned = site.wait(9, 50, &["fat"], "not sjp's");
    (planned.sched_nodes, planned.start) = (strings(&["f01"]), Some(NOW + 600));
    site.wait(1, 60, &["slim"], SLIM);
    site.wait(2, 40, &["slim"], SLIM);
    let plan = site.recheck(NOW);
    assert_eq!(
        brief(&plan),
        [(Kind::Move, 1, "fat".into(), None), (Kind::Open, 2, "slim,fat".into(), None)],
        "the second would be in the way of job 9"
    );
    // One that ends before may use the gap.
    site.jobs.last_mut().unwrap().time_limit = Limit::At(9);
    assert_eq!(brief(&site.recheck(NOW))[1], (Kind::Move, 2, "fat".into(), None));
}

#[test]
fn an_array_is_one_group_of_tasks() {
    let mut site = Site::new();
    site.fill(&["s01", "s02"]);
    let array = site.wait(1, 10, &["slim"], SLIM);
    (array.array_id, array.array_tasks) = (Some(1), 30);
    let plan = site.recheck(NOW);
    assert_eq!(brief(&plan), [(Kind::Move, 1, "fat".into(), None)]);
    assert_eq!(plan[0].takes, [("f01".to_owned(), 16, 16_000)], "two tasks fit");
}

fn waits_for_room_site() -> Site {
    let mut site = Site::new();
    site.policy.always_place = true;
    site.settings.wait_for_room = true;
    for (node, end) in [("s01", 900), ("s02", 600), ("f01", 600)] {
        site.run(node, 12, NOW + end);
    }
    site
}

#[test]
fn a_job_waits_for_the_node_that_will_have_room_first() {
    let mut site = waits_for_room_site();
    site.wait(1, 10, &["slim"], SLIM);
    site.wait(2, 9, &["slim"], SLIM);
    site.wait(3, 8, &["slim"], SLIM);
    site.wait(4, 7, &["slim"], SLIM);
    let plan = site.recheck(NOW);
    let pins: Vec<(&str, String)> =
        plan.iter().map(|i| (i.pin.as_deref().unwrap(), value(i, "eta"))).collect();
    let at = |s: i64| (NOW + s).to_string();
    // 16 CPUs come free: two jobs each, the higher tier first.
    assert_eq!(pins, [("s02", at(600)), ("s02", at(600)), ("f01", at(600)), ("f01", at(600))]);
    assert!(plan.iter().all(|i| i.kind == Kind::WaitFor && !i.unpin));
    assert_eq!(
        (value(&plan[0], "from"), value(&plan[0], "moved")),
        ("slim,fat".into(), String::new())
    );
    for intent in &plan {
        site.apply(intent);
    }
    assert!(site.let_go().is_empty());
    assert!(site.recheck(NOW + 60).is_empty(), "nothing changed");
    assert!(site.release(NOW + 3600).is_empty(), "it waits until its budget");
    site.settings.widen = false;
    assert_eq!(site.release(NOW + 4 * 3600).len(), 4);
    site.settings.widen = true;
    assert_eq!(site.widen(NOW + 4 * 3600).len(), 4);
    site.settings.wait_for_room = false;
    assert_eq!(site.release(NOW + 60).len(), 4, "switched off");
    site.settings.wait_for_room = true;
    // The job on s01 ends sooner than its limit said.
    site.nodes[0].cpus_alloc.0 = 0;
    site.nodes[0].mem_alloc.0 = 0;
    site.jobs.remove(0);
    let plan = site.recheck(NOW + 60);
    let moves = [(Kind::Move, 1, "slim".into(), None), (Kind::Move, 2, "slim".into(), None)];
    assert_eq!(brief(&plan), moves);
    assert_eq!(value(&plan[0], "moved"), "s02>slim");
    assert!(plan.iter().all(|i| i.unpin));
}

#[test]
fn a_job_that_waits_moves_to_the_node_that_is_first_now() {
    let mut site = waits_for_room_site();
    let comment = "sjp:pin=s02;from=slim,fat;eta=100600;job=8c,7.8G,1.0G/c;id=1";
    site.wait(1, 10, &["slim"], comment);
    site.jobs[0].end = Some(NOW + 300);
    let plan = site.recheck(NOW);
    assert_eq!(brief(&plan), [(Kind::WaitFor, 1, "slim".into(), Some("s01"))]);
    assert_eq!(
        (value(&plan[0], "moved"), value(&plan[0], "eta")),
        ("s02>s01".into(), "100300".into())
    );
    assert!(plan[0].unpin);
    // Unlimited jobs never give anything back.
    for job in &mut site.jobs {
        job.end = None;
    }
    assert_eq!(brief(&site.recheck(NOW)), [(Kind::Open, 1, "slim,fat".into(), None)]);
}

#[test]
fn a_job_past_its_budget_is_widened_once() {
    let mut site = Site::new();
    site.fill(&["s01", "s02", "f01"]);
    site.wait(1, 10, &["slim"], SLIM);
    let fat = site.wait(2, 20, &["fat"], "sjp:pin=f01;from=fat;eta=1;id=1");
    fat.mem = MemPer::Cpu(MemMb(7000));
    fat.reason = "ReqNodeNotAvail, UnavailableNodes:f01".into();
    site.wait(3, 10, &["slim"], SLIM).reason = "ReqNodeNotAvail, UnavailableNodes:s01".into();
    site.wait(4, 10, &["slim"], "sjp:skipped=no room");
    assert_eq!(brief(&site.widen(NOW + 3299)), []);
    let both = "slim,fat".to_owned();
    let plan = site.widen(NOW + 3300);
    assert_eq!(brief(&plan), [(Kind::Widen, 2, both.clone(), None)]);
    assert!(plan[0].unpin);
    assert_eq!(
        (value(&plan[0], "widened"), value(&plan[0], "released")),
        ("f01".into(), "f01".into())
    );
    let plan = site.widen(NOW + 4 * 3600 - 300);
    assert_eq!(brief(&plan), [(Kind::Widen, 2, both.clone(), None), (Kind::Widen, 1, both, None)]);
    for intent in &plan {
        site.apply(intent);
    }
    assert_eq!(site.widen(NOW + 5 * 3600), []);
    assert!(site.let_go().is_empty());
    site.settings.widen = false;
    assert_eq!(site.widen(NOW + 5 * 3600), []);
}

#[test]
fn no_room_is_promised_twice_where_marks_and_rooms_meet() {
    // What each node is promised after a recheck: pins that stay, and moves.
    let mut site = Site::new();
    site.run("s01", 8, NOW + 600);
    site.fill(&["s02"]);
    site.wait(1, 10, &["slim"], "sjp:pin=s01;from=slim;at=99999;job=8c,7.8G,1.0G/c;id=1");
    site.wait(2, 50, &["slim"], "sjp:pin=s02;from=slim;at=9;job=8c,7.8G,1.0G/c;id=2");
    site.wait(3, 40, &["slim"], SLIM);
    site.wait(4, 30, &["slim"], SLIM);
    let plan = site.recheck(NOW);
    let mut taken: HashMap<&str, u32> = HashMap::new();
    for (node, cpus, _) in plan.iter().flat_map(|i| &i.takes) {
        *taken.entry(node).or_default() += cpus;
    }
    // Pins on s01 that were set a moment ago are no candidates and hold it.
    assert_eq!(taken, HashMap::from([("f01", 16)]));
}

#[test]
fn what_a_mark_says_a_user_may_use_is_used() {
    let mut site = Site::new();
    site.partitions[1].allow_groups = crate::cluster::Names::Listed(strings(&["chem"]));
    for node in ["s01", "s02"] {
        site.run(node, 16, NOW + 86_400);
    }
    site.wait(1, 9, &["slim"], "sjp:placed=slim;job=8c,7.8G,1.0G/c;id=1");
    site.wait(2, 8, &["slim"], "sjp:placed=slim;may=fat;job=8c,7.8G,1.0G/c;id=2");
    let plan = site.recheck(NOW);
    let moved: Vec<u32> = plan.iter().filter(|i| i.kind == Kind::Move).map(|i| i.job).collect();
    assert_eq!(moved, [2]);
}

#[test]
fn memory_that_was_left_to_a_partition_is_what_the_queue_shows() {
    let mut site = Site::new();
    site.partitions[0].def_mem = MemPer::Cpu(MemMb(1000));
    site.partitions[1].def_mem = MemPer::Cpu(MemMb(20_000));
    for node in ["s01", "s02"] {
        site.run(node, 16, NOW + 86_400);
    }
    // 8 CPUs with 1,000 MB each, as slim gave it: fat's own default changes nothing.
    site.wait(1, 9, &["slim"], "sjp:placed=slim;left=mem;job=8c,7.8G,1.0G/c;id=1");
    let plan = site.recheck(NOW);
    let takes: Vec<_> = plan.iter().flat_map(|i| i.takes.clone()).collect();
    assert_eq!(takes, [("f01".to_owned(), 8, 8000)]);
}

#[test]
fn a_skipped_job_gets_no_less_time_than_where_the_site_put_it() {
    let mut site = Site::new();
    site.partitions[0].default_time = Limit::At(10);
    site.fill(&["f01"]);
    // The site's rules put both into fat, which gives them no end; slim is the default.
    let skipped = "sjp:skipped=no room;left=time";
    site.wait(1, 9, &["fat"], skipped).time_limit = Limit::Unlimited;
    site.wait(2, 8, &["fat"], "sjp:skipped=no room").time_limit = Limit::At(5);
    let plan = site.recheck(NOW);
    let moved: Vec<u32> = plan.iter().map(|i| i.job).collect();
    assert_eq!(moved, [2]);
}

#[test]
fn a_clock_that_is_set_makes_no_wait_longer_and_none_endless() {
    let job = |submit| Job { submit, ..Job::default() };
    let set = |step| Settings { stepped: Some(step), ..SETTINGS };
    // An hour forward: what waited a minute has not waited an hour.
    let forward = set(NOW + 3600);
    assert_eq!(forward.since(&job(NOW), NOW + 3610), NOW + 3600);
    assert_eq!(forward.since(&job(NOW + 3605), NOW + 3610), NOW + 3605);
    assert!(!forward.past_budget(&job(NOW - 4 * 3600 + 60), NOW + 3610));
    // An hour back: nobody waits from an hour to come.
    let back = set(NOW - 3600);
    assert_eq!(back.since(&job(NOW), NOW - 3590), NOW - 3600);
    let mark = Mark::parse("sjp:pin=n1;from=a").expect("a mark");
    let pinned = |now| release::due(&Waiting { job: &job(NOW), mark: &mark }, &back, now);
    assert_eq!(pinned(NOW - 3590), Some(NOW - 3600 + 60));
    let moved = Mark::parse(&format!("sjp:pin=n1;from=a;at={NOW}")).expect("a mark");
    let due = release::due(&Waiting { job: &job(NOW), mark: &moved }, &back, NOW - 3590);
    assert_eq!(due, Some(NOW - 3600 + 60));
    assert_eq!(SETTINGS.since(&job(NOW), NOW + 9), NOW);
}

#[test]
fn a_list_never_begins_with_a_partition_that_is_drained() {
    let pinned = "sjp:pin=f01;from=slim,fat;id=1";
    let released = |state: [&str; 2]| {
        let mut site = Site::new();
        for (partition, state) in site.partitions.iter_mut().zip(state) {
            partition.state = state.into();
        }
        site.wait(1, 10, &["fat"], pinned);
        let plan = site.release(NOW);
        let [only] = plan.as_slice() else { panic!("one pin: {plan:?}") };
        (only.partitions.join(","), value(only, "placed"))
    };
    let both = |list: &str| (list.to_owned(), list.to_owned());
    assert_eq!(released(["UP", "UP"]), both("slim,fat"));
    assert_eq!(released(["DRAIN", "UP"]), both("fat,slim"));
    assert_eq!(released(["DOWN", "DRAIN"]), both("slim,fat"), "one that is down takes jobs");
    // slurmctld would refuse both: the job keeps the one that it has.
    assert_eq!(released(["DRAIN", "INACTIVE"]), (String::new(), "fat".to_owned()));
}
