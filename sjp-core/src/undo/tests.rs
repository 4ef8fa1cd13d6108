//! slim (the default) and fat are open to all; tiny is too small for most jobs,
//! vip lets in one group only, shut is down.

use super::*;
use crate::cluster::{Names, Node, Partition, SlurmConfig};
use crate::config::Policy;
use crate::publication::UserPartitions;
use crate::publish::{RosterInput, build_roster};
use crate::units::{Cpus, MemMb, MemPer};
use proptest::prelude::*;

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn roster() -> Roster {
    let node = |name: &str, partitions: &[&str], mem: u64| Node {
        name: name.into(),
        state: vec!["IDLE".into()],
        usable: true,
        cpus: Cpus(16),
        cpus_effective: Cpus(16),
        mem: Some(MemMb(mem)),
        threads_per_core: 1,
        partitions: strings(partitions),
        ..Node::default()
    };
    let partition = |name: &str| Partition {
        name: name.into(),
        state: if name == "shut" { "DOWN" } else { "UP" }.into(),
        default: name == "slim",
        allow_groups: if name == "vip" { Names::Listed(strings(&["vips"])) } else { Names::All },
        over_subscribe: "NO".into(),
        ..Partition::default()
    };
    let config = SlurmConfig {
        select_type: "select/cons_tres".into(),
        select_params: strings(&["CR_CORE_MEMORY"]),
        ..SlurmConfig::default()
    };
    build_roster(&RosterInput {
        nodes: &[
            node("f1", &["fat", "vip"], 256_000),
            node("s1", &["slim", "shut", "vip"], 64_000),
            node("t1", &["tiny"], 4_000),
        ],
        partitions: &["fat", "shut", "slim", "tiny", "vip"].map(partition),
        config: &config,
        qos: &[],
        bound_users: &[],
        policy: &Policy::default(),
    })
}

fn job(partitions: &[&str], nodes: &[&str]) -> Job {
    Job {
        id: 7,
        array_tasks: 1,
        tasks: 1,
        cpus: Cpus(2),
        node_count: 1,
        mem: MemPer::Node(MemMb(8_000)),
        partitions: strings(partitions),
        req_nodes: strings(nodes),
        qos: "normal".into(),
        batch: true,
        ..Job::default()
    }
}

fn undo(job: &Job, comment: &str) -> Undo {
    let mark = Mark::parse(comment).unwrap();
    let list = plan(&roster(), &[Waiting { job, mark: &mark }]);
    assert_eq!(list.len(), 1);
    list[0].clone()
}

#[test]
fn a_pinned_job_gets_back_what_it_came_with() {
    let pinned = job(&["fat"], &["f1"]);
    let u = undo(&pinned, "site sjp:pin=f1;from=fat,slim;was=slim,fat;job=2c;id=1");
    assert_eq!(
        (u.unpin.as_deref(), u.partitions.as_slice()),
        (Some("f1"), &strings(&["slim", "fat"])[..])
    );
    assert_eq!((u.comment.as_str(), &u.qos), ("site", &None));
    assert_eq!(u.words(), "pin to f1 off, back to slim,fat, mark off");
    // It named nothing: the default partition.
    let u = undo(&pinned, "sjp:pin=f1;from=fat,slim;id=1");
    assert_eq!((u.partitions, u.comment.as_str()), (strings(&["slim"]), ""));
    // The node is off already.
    let u = undo(&job(&["fat"], &[]), "sjp:pin=f1;from=fat,slim;was=fat;id=1");
    assert_eq!((u.unpin, u.partitions), (None, vec![]), "it is in fat already");
}

#[test]
fn no_job_goes_where_it_could_never_run_or_may_not() {
    let pinned = job(&["fat"], &["f1"]);
    for (was, left) in
        [("was=tiny,fat;", "fat"), ("was=vip,slim;", "slim"), ("was=gone,slim;", "slim")]
    {
        let u = undo(&pinned, &format!("sjp:pin=f1;from=fat,slim;{was}id=1"));
        let seen = if u.partitions.is_empty() { &pinned.partitions } else { &u.partitions };
        assert_eq!(*seen, [left], "{was}");
        assert_eq!(u.stays, None);
    }
    for (was, why) in [
        ("was=tiny;", "no node is big enough"),
        ("was=vip;", "not permitted to this user"),
        ("was=gone;", "there is no gone"),
    ] {
        let u = undo(&pinned, &format!("sjp:pin=f1;from=fat,slim;{was}id=1"));
        assert_eq!((&u.partitions, u.comment.as_str()), (&strings(&["fat", "slim"]), ""), "{was}");
        let words = u.words();
        assert!(words.contains(why) && words.contains("stays in fat,slim"), "{words}");
    }
    // What is down for a while comes back too; with nothing else, beside what sjp chose.
    let u = undo(&pinned, "sjp:pin=f1;from=fat,slim;was=shut,slim;id=1");
    assert_eq!((u.partitions, u.stays), (strings(&["shut", "slim"]), None));
    let u = undo(&pinned, "sjp:pin=f1;from=fat,slim;was=shut;id=1");
    assert_eq!(u.partitions, ["shut", "fat", "slim"]);
    assert_eq!(u.stays.as_deref(), Some("stays in fat,slim too: state DOWN"));
    // vip was among what the site let the user into.
    let u = undo(&job(&["fat", "vip"], &["f1"]), "sjp:pin=f1;from=fat,vip;was=vip;id=1");
    assert_eq!(u.partitions, ["vip"]);
    // Too much memory for the default partition.
    let big = Job { mem: MemPer::Node(MemMb(100_000)), ..job(&["fat"], &[]) };
    let u = undo(&big, "sjp:placed=fat;id=1");
    assert_eq!(u.partitions, Vec::<String>::new());
    assert!(u.words().contains("stays in fat: not back to the default partition"), "{}", u.words());
}

#[test]
fn the_users_later_choice_stays() {
    for (now, comment, unpin) in [
        (job(&["slim"], &["f1"]), "sjp:pin=f1;from=fat;id=1", Some("f1")),
        (job(&["fat"], &[]), "sjp:placed=slim;was=slim,fat;id=1", None),
    ] {
        let u = undo(&now, comment);
        assert_eq!(
            (u.unpin.as_deref(), u.partitions.len(), u.stays),
            (unpin, 0, None),
            "{comment}"
        );
        assert_eq!(u.comment, "");
    }
    // Nodes that it chose: of the partitions it came with, those that hold them come back.
    let u = undo(&job(&["fat"], &["s1"]), "sjp:pin=f1;from=fat;was=slim;id=1");
    assert_eq!((u.unpin, u.partitions, u.stays), (None, strings(&["slim"]), None));
    let u = undo(&job(&["fat"], &["f1"]), "sjp:placed=fat;id=1");
    assert_eq!((u.unpin, u.partitions.len(), u.comment.as_str()), (None, 0, ""));
    assert!(u.stays.unwrap().contains("stays in fat"));
    // A node of the job's own, which sjp followed.
    let own = job(&["fat"], &["f1"]);
    let u = undo(&own, "sjp:placed=fat;was=fat,slim;own=nodes;id=1");
    assert_eq!((u.unpin, u.partitions), (None, vec![]), "slim does not hold f1");
}

#[test]
fn a_qos_goes_back_last_and_only_where_it_is_still_flex() {
    let mark = "x sjp:pin=f1;from=fat,slim;was=slim;qos=normal>flex;id=1";
    let flex = Job { qos: "flex".into(), ..job(&["fat"], &["f1"]) };
    let u = undo(&flex, mark);
    let qos = u.qos.clone().unwrap();
    assert_eq!((qos.own.as_str(), qos.comment.as_str()), ("normal", "x"));
    assert_eq!(u.comment, "x sjp:qos=normal>flex;id=1");
    assert_eq!(u.words(), "pin to f1 off, back to slim, QOS flex back to normal, mark off");
    let changed = Job { qos: "high".into(), ..flex };
    assert_eq!((undo(&changed, mark).qos, undo(&changed, mark).comment.as_str()), (None, "x"));
}

#[test]
fn skipped_jobs_lose_their_mark_only() {
    let u = undo(&job(&["slim"], &[]), "sjp:skipped=no room;was=fat");
    assert_eq!((u.partitions.len(), u.comment.as_str(), u.words().as_str()), (0, "", "mark off"));
    // One that sjpd moved has where Slurm had put it.
    let u = undo(&job(&["fat"], &[]), "sjp:placed=fat;moved=slim>fat;had=vip;at=1;id=1");
    assert_eq!(u.partitions, ["vip"]);
}

#[test]
fn a_user_bound_to_partitions_gets_one_at_most() {
    let mut roster = roster();
    roster.bound_users = vec![UserPartitions { uid: 0, account: None, partitions: vec![0, 2] }];
    let mark = Mark::parse("sjp:placed=fat;was=slim,fat;id=1").unwrap();
    let job = job(&["fat"], &[]);
    let u = plan(&roster, &[Waiting { job: &job, mark: &mark }]).remove(0);
    assert!(u.partitions.is_empty() && u.stays.is_some(), "{}", u.words());
}

/// Makes the steps of an undo, at most `steps` of them. Answers how many there were.
fn make(job: &mut Job, comment: &mut String, undo: &Undo, steps: usize) -> usize {
    let mut made = 0;
    let mut step = |change: &mut dyn FnMut()| {
        if made < steps {
            change();
        }
        made += 1;
    };
    if undo.unpin.is_some() {
        step(&mut || job.req_nodes.clear());
    }
    if undo.qos.is_none() || !undo.partitions.is_empty() || undo.unpin.is_some() {
        step(&mut || {
            if !undo.partitions.is_empty() {
                job.partitions.clone_from(&undo.partitions);
            }
            comment.clone_from(&undo.comment);
        });
    }
    if let Some(qos) = &undo.qos {
        step(&mut || {
            job.qos.clone_from(&qos.own);
            comment.clone_from(&qos.comment);
        });
    }
    made
}

fn again(roster: &Roster, job: &Job, comment: &str) -> Option<Undo> {
    let mark = Mark::parse(comment)?;
    plan(roster, &[Waiting { job, mark: &mark }]).pop()
}

const PARTITIONS: [&str; 6] = ["fat", "shut", "slim", "tiny", "vip", "gone"];

fn some(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(PARTITIONS.to_vec(), 0..=most).prop_shuffle()
}

fn nodes() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(vec!["f1", "s1", "away"], 0..=2)
}

prop_compose! {
    fn marks()(
        key in proptest::sample::select(vec!["pin", "placed", "open", "skipped"]),
        list in some(3),
        was in some(3),
        had in some(1),
        node in proptest::sample::select(vec!["f1", "s1", "away"]),
        qos in proptest::option::of(proptest::sample::select(vec!["normal>flex", "high>flex", "x", ">flex"])),
        own in any::<bool>(),
        site in "[a-z ]{0,6}",
    ) -> String {
        let list = if list.is_empty() { "slim".to_owned() } else { list.join(",") };
        let mut fields = vec![match key {
            "pin" => format!("pin={node};from={list}"),
            "skipped" => "skipped=no room".to_owned(),
            key => format!("{key}={list}"),
        }];
        fields.extend(qos.map(|q| format!("qos={q}")));
        for (key, list) in [("was", was), ("had", had)] {
            if !list.is_empty() {
                fields.push(format!("{key}={}", list.join(",")));
            }
        }
        if own && key != "pin" {
            fields.push("own=nodes".to_owned());
        }
        let site = site.trim();
        let blank = if site.is_empty() { "" } else { " " };
        format!("{site}{blank}sjp:{};id=1", fields.join(";"))
    }
}

prop_compose! {
    fn jobs()(
        partitions in some(3),
        nodes in nodes(),
        mem in proptest::sample::select(vec![1_000u64, 8_000, 100_000, 900_000]),
        qos in proptest::sample::select(vec!["normal", "flex", "high"]),
    ) -> Job {
        let partitions = if partitions.is_empty() { vec!["slim"] } else { partitions };
        Job { mem: MemPer::Node(MemMb(mem)), qos: qos.into(), ..job(&partitions, &nodes) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_of_sjps_stands_afterwards_and_twice_is_once(first in jobs(), comment in marks(), placed in any::<bool>()) {
        let roster = roster();
        let mark = Mark::parse(&comment).unwrap();
        let mut first = first;
        if placed {
            // As sjp put it there.
            for key in ["from", "placed", "open"] {
                if mark.get(key).is_some() {
                    first.partitions = mark.list(key);
                }
            }
            first.req_nodes = mark.get("pin").map(str::to_owned).into_iter().collect();
        }
        let undo = again(&roster, &first, &comment).unwrap();
        let (mut job, mut text) = (first.clone(), comment.clone());
        let steps = make(&mut job, &mut text, &undo, usize::MAX);
        prop_assert_eq!(Mark::parse(&text), None, "{}", text);
        prop_assert_eq!(&text, &mark.before);
        prop_assert!(again(&roster, &job, &text).is_none());
        // A pin that is still there is gone; other nodes are not touched.
        if mark.get("pin").is_some_and(|pin| first.req_nodes == [pin]) {
            prop_assert!(job.req_nodes.is_empty());
        } else {
            prop_assert_eq!(&job.req_nodes, &first.req_nodes);
        }
        // Every partition is one that the job had, or got from sjp, or that takes it.
        for name in &job.partitions {
            let known = first.partitions.contains(name) || mark.list("from").contains(name);
            let fits = matches!((name.as_str(), first.mem), ("fat" | "vip", MemPer::Node(m)) if m.0 <= 256_000)
                || matches!((name.as_str(), first.mem), ("slim" | "shut" | "vip", MemPer::Node(m)) if m.0 <= 64_000)
                || matches!((name.as_str(), first.mem), ("tiny", MemPer::Node(m)) if m.0 <= 4_000);
            let allowed = name != "vip"
                || ["from", "placed", "open", "had"].iter().any(|key| mark.list(key).contains(name));
            prop_assert!(known || (fits && allowed), "{} of {:?}", name, undo);
        }
        prop_assert!(!job.partitions.is_empty());
        if mark.get("qos").and_then(|q| q.split_once('>')).is_some_and(|(own, flex)| !own.is_empty() && flex == first.qos) {
            prop_assert!(job.qos != "flex" || mark.get("qos") == Some("flex>flex"));
        } else {
            prop_assert_eq!(&job.qos, &first.qos);
        }
        // A crash after any step: the next plan ends where this one does.
        for cut in 0..steps {
            let (mut half, mut mark) = (first.clone(), comment.clone());
            make(&mut half, &mut mark, &undo, cut);
            if let Some(rest) = again(&roster, &half, &mark) {
                make(&mut half, &mut mark, &rest, usize::MAX);
            }
            prop_assert_eq!((&half, &mark), (&job, &text), "cut after {} steps", cut);
        }
    }
}
