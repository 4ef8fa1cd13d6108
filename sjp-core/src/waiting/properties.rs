//! What holds for any cluster and any queue: no node is promised more than it has,
//! no forbidden partition is named, marks tell the truth, and a change that is cut
//! in two is repaired.

use super::tests::{NOW, SETTINGS, Site, node, strings};
use super::*;
use crate::cluster::Names;
use crate::eligible::{accepts, named_partitions, partitions_of};
use crate::units::{Cpus, MemMb};
use proptest::prelude::*;
use std::collections::HashMap;

const PARTITIONS: [&str; 3] = ["fat", "mid", "slim"];
const REASONS: [&str; 6] = [
    "Resources",
    "Priority",
    "None",
    "ReqNodeNotAvail, UnavailableNodes:n0",
    "Dependency",
    "QOSMaxCpuPerUserLimit",
];

/// One node: partitions (bits), memory class, CPUs in use, minutes until they come
/// back.
type NodeSeed = (u8, u8, u32, i64);

/// One waiting job.
#[derive(Clone, Debug)]
struct JobSeed {
    cpus: u32,
    mem: u64,
    minutes: u32,
    priority: u32,
    reason: usize,
    /// What sjp did: placed, open, pinned, pinned to wait, skipped.
    kind: u8,
    /// Partitions that it has (bits), and that it named.
    place: u8,
    was: u8,
    node: usize,
    age: i64,
    array: Option<u32>,
    flags: u8,
}

fn job_seed() -> impl Strategy<Value = JobSeed> {
    let size = (1u32..=12, 500u64..20_000, 5u32..600, 1u32..20);
    let place = (0usize..REASONS.len(), 0u8..5, 1u8..8, 0u8..8, 0usize..6);
    (size, place, 0i64..20_000, prop::option::weighted(0.2, 1u32..9), 0u8..16).prop_map(
        |((cpus, mem, minutes, priority), (reason, kind, place, was, node), age, array, flags)| {
            JobSeed {
                cpus,
                mem,
                minutes,
                priority,
                reason,
                kind,
                place,
                was,
                node,
                age,
                array,
                flags,
            }
        },
    )
}

fn names(bits: u8) -> Vec<String> {
    let list = PARTITIONS.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1);
    list.map(|(_, name)| (*name).to_owned()).collect()
}

fn site(nodes: &[NodeSeed], jobs: &[JobSeed], restricted: u8, flags: u8) -> Site {
    let mut site = Site::new();
    site.nodes.clear();
    let slim = site.partitions[0].clone();
    site.partitions = PARTITIONS
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let mut partition = slim.clone();
            partition.name = (*name).to_owned();
            partition.tier = u32::try_from(i).unwrap() / 2;
            partition.default = *name == "slim";
            partition.max_time = Limit::At(if *name == "mid" { 120 } else { 1440 });
            if restricted >> i & 1 == 1 {
                partition.allow_groups = Names::Listed(strings(&["vip"]));
            }
            partition
        })
        .collect();
    for (i, &(partitions, mem, used, minutes)) in nodes.iter().enumerate() {
        let name = format!("n{i}");
        let partitions = names(partitions);
        let partitions: Vec<&str> = partitions.iter().map(String::as_str).collect();
        site.nodes.push(node(&name, &partitions, 32_000 << (mem % 3)));
        if used > 0 {
            site.run(&name, used, NOW + minutes * 60);
        }
    }
    site.policy.always_place = true;
    site.settings = Settings {
        open: flags & 1 == 1,
        wait_for_room: flags & 2 == 2,
        widen: flags & 4 == 4,
        ..SETTINGS
    };
    let roster = site.roster();
    for (i, seed) in jobs.iter().enumerate() {
        let id = u32::try_from(i).unwrap() + 1;
        let place = names(seed.place);
        let was = names(seed.was);
        let mut mark = Mark::default();
        mark.before = "site".into();
        let n = seed.node % nodes.len().max(1);
        let here: Vec<String> = partitions_of(&roster, u32::try_from(n).unwrap())
            .iter()
            .map(|&p| PARTITIONS[usize::from(p)].to_owned())
            .filter(|p| place.contains(p))
            .collect();
        let list = place.join(",");
        let pinned = (seed.kind == 2 || seed.kind == 3) && !here.is_empty();
        match seed.kind {
            2 | 3 if pinned => {
                mark.set("pin", &format!("n{n}"));
                mark.set("from", &list);
                if seed.kind == 3 {
                    mark.set("eta", &(NOW + 60).to_string());
                }
            }
            4 => _ = mark.set("skipped", "no room"),
            1 => _ = mark.set("open", &list),
            _ => _ = mark.set("placed", &list),
        }
        if !was.is_empty() {
            mark.set("was", &was.join(","));
        }
        if seed.flags & 1 == 1 {
            mark.set("own", "exclude");
        }
        if seed.flags & 2 == 2 {
            mark.set("at", &(NOW - 30).to_string());
        }
        mark.set("job", "1c,1M,0.1G/c");
        let place: Vec<&str> =
            if pinned { &here } else { &place }.iter().map(String::as_str).collect();
        let job = site.wait(id, seed.priority, &place, &mark.to_comment());
        job.cpus = Cpus(seed.cpus);
        job.mem = MemPer::Node(MemMb(seed.mem));
        job.time_limit = Limit::At(seed.minutes);
        job.reason = REASONS[seed.reason].to_owned();
        job.submit = NOW - seed.age;
        job.eligible = Some(NOW - seed.age);
        if let Some(tasks) = seed.array.filter(|_| !pinned) {
            (job.array_id, job.array_tasks) = (Some(id), tasks);
        }
    }
    site
}

/// Everything that is planned at one moment, as sjpd takes it: one change a job.
fn everything(site: &Site, now: i64) -> Vec<Intent> {
    site.with(now, |s, w| {
        let mut all = let_go(s.roster, w);
        all.extend(release::plan(s.roster, w, &site.settings, now));
        let busy: Vec<u32> = all.iter().map(|i| i.job).collect();
        let rest: Vec<Waiting<'_>> =
            w.iter().filter(|w| !busy.contains(&w.job.id)).copied().collect();
        all.extend(widen::plan(s.roster, &rest, &site.settings, now));
        all.extend(recheck::plan(s, &rest, &site.settings).intents);
        all
    })
}

fn job(site: &Site, id: u32) -> &Job {
    site.jobs.iter().find(|j| j.id == id && j.state == JobState::Pending).unwrap()
}

fn mark_of(job: &Job) -> Mark {
    Mark::parse(job.admin_comment.as_deref().unwrap()).unwrap()
}

/// Moves, and pins that stay, fit into what each node has free.
fn nothing_is_promised_twice(site: &Site, intents: &[Intent]) {
    let mut taken: HashMap<&str, (u64, u64)> = HashMap::new();
    for (node, cpus, mem) in intents.iter().flat_map(|i| &i.takes) {
        let t = taken.entry(node).or_default();
        *t = (t.0 + u64::from(*cpus), t.1 + u64::from(*mem));
    }
    let moved = |id: u32| intents.iter().any(|i| i.job == id);
    let mut promised = taken.clone();
    for j in site.jobs.iter().filter(|j| crate::publish::is_tied(j) && !moved(j.id)) {
        if mark_of(j).get("eta").is_some() && site.settings.wait_for_room {
            continue; // Waits for room; it holds none.
        }
        let (cpus, mem) = crate::publish::job_share(j, 1, false);
        let t = promised.entry(j.req_nodes[0].as_str()).or_default();
        *t = (t.0 + u64::from(cpus), t.1 + mem);
    }
    for (name, (cpus, mem)) in promised.iter().filter(|(name, _)| taken.contains_key(*name)) {
        let node = site.nodes.iter().find(|n| n.name == **name).unwrap();
        assert!(
            *cpus <= u64::from(node.cpus_free().0) && *mem <= node.mem_free().unwrap().0,
            "{name}: {cpus} CPUs, {mem} MB promised; {:?} {:?} free\n{intents:#?}",
            node.cpus_free(),
            node.mem_free()
        );
    }
}

/// New partitions are those that Slurm accepts, that the job's own bound, and that
/// hold its node.
fn partitions_are_allowed(site: &Site, roster: &Roster, intent: &Intent) {
    let job = job(site, intent.job);
    let mark = mark_of(job);
    let origin = Origin::of(job, &mark);
    let request = request(job, &mark, &origin);
    let named = named_partitions(roster, &request);
    let may = permitted(roster, &mark);
    let before: Vec<String> =
        ["from", "placed", "open"].iter().flat_map(|k| mark.list(k)).collect();
    for name in &intent.partitions {
        let at = roster.partitions.iter().position(|r| r.name == *name).unwrap();
        let (index, rule) = (u16::try_from(at).unwrap(), &roster.partitions[at]);
        let accepted =
            accepts(roster, index, rule, &request, Some(&may), named.as_deref(), None).is_ok();
        assert!(
            accepted || before.contains(name) || job.partitions.contains(name),
            "{name}: {intent:#?} {job:#?}"
        );
        if let Some(pin) = &intent.pin {
            let node = u32::try_from(roster.nodes.find(pin).unwrap()).unwrap();
            assert!(accepted && partitions_of(roster, node).contains(&index), "{intent:#?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn plans_keep_their_promises(
        nodes in prop::collection::vec((1u8..8, 0u8..3, 0u32..=16, 1i64..900), 1..6),
        jobs in prop::collection::vec(job_seed(), 1..10),
        restricted in 0u8..8,
        flags in 0u8..8,
    ) {
        let mut site = site(&nodes, &jobs, restricted & 3, flags);
        let roster = site.roster();
        let intents = everything(&site, NOW);
        let mut ids: Vec<u32> = intents.iter().map(|i| i.job).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), intents.len(), "one change a job: {:#?}", intents);
        nothing_is_promised_twice(&site, &intents);
        for intent in &intents {
            partitions_are_allowed(&site, &roster, intent);
            let before = job(&site, intent.job).clone();
            let mark = mark_of(&before);
            let chosen = !matches!(intent.kind, Kind::DropMark | Kind::Release);
            prop_assert!(!chosen || waits_for_room(&before), "{:?} {:?}", intent, before);
            prop_assert!(!chosen || !intent.partitions.is_empty());

            // Cut off after the first update: the next run gives back what it had.
            if intent.unpin && chosen {
                let half = Job { req_nodes: Vec::new(), ..before.clone() };
                let w = [Waiting { job: &half, mark: &mark }];
                prop_assert!(let_go(&roster, &w).is_empty());
                let repair = release::plan(&roster, &w, &site.settings, NOW);
                prop_assert_eq!(repair.len(), 1);
                prop_assert_eq!(&repair[0].partitions, &mark.list("from"));
                prop_assert!(!repair[0].unpin);
            }

            site.apply(intent);
            let after = job(&site, intent.job);
            prop_assert!(after.admin_comment.as_deref().unwrap().starts_with("site"));
            if intent.kind == Kind::DropMark {
                continue;
            }
            let new = mark_of(after);
            prop_assert_eq!(standing::of(after, &new, &roster), Standing::Ours, "{:#?}", intent);
            prop_assert_eq!(new.list("was"), mark.list("was"));
            prop_assert!(new.get("had").is_some() == (mark.get("skipped").is_some()));
            prop_assert_eq!(new.get("widened").is_some(), intent.kind == Kind::Widen);
        }
        // A moment later, whoever was changed is left as it is; a released job may be
        // chosen again.
        for again in everything(&site, NOW + 1) {
            let released = |i: &Intent| i.job == again.job && i.kind == Kind::Release;
            let before = ids.contains(&again.job) && !intents.iter().any(released);
            prop_assert!(!before, "{:#?} after {:#?}", again, intents);
        }
        // An hour later the changes still do not run in circles: what was opened or
        // widened is not opened or widened again.
        let later = everything(&site, NOW + 120);
        for i in later.iter().filter(|i| matches!(i.kind, Kind::Open | Kind::Widen)) {
            let twice = intents.iter().any(|o| o.job == i.job && o.kind == i.kind);
            prop_assert!(!twice, "{:#?} after {:#?}", i, intents);
        }
    }
}
