//! The same small cluster, read from three Slurm versions: every folder below
//! `assets/versions` is read, and each must give what was set up there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use jiff::tz::TimeZone;
use sjp_core::cluster::Names;
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use sjp_slurm::any::{Kind, parse};
use sjp_slurm::{accounting, config, json, nodes, partitions, reservations};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// The folders of captures, by version.
fn versions() -> Vec<(String, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assets/versions");
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().into_string().unwrap(), e.path()))
        .collect();
    all.sort();
    assert!(all.len() >= 3, "{all:?}");
    all
}

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn nodes_in_every_form() {
    for (version, dir) in versions() {
        for file in
            ["scontrol-show-nodes.txt", "scontrol-show-nodes-o.txt", "scontrol-show-nodes-d-o.txt"]
        {
            let at = format!("{version} {file}");
            let parsed = nodes::read(&text(&dir, file));
            assert_eq!((&parsed.errors[..], &parsed.warnings[..]), (&[][..], &[][..]), "{at}");
            let usable: Vec<_> =
                parsed.records.iter().map(|n| (n.name.as_str(), n.usable)).collect();
            let want = [("f01", true), ("f02", true), ("s01", true), ("s02", true), ("s03", false)];
            assert_eq!(usable, want, "{at}");
            let [f01, f02, _, _, s03] = &parsed.records[..] else { panic!("{at}") };
            assert_eq!((f01.cpus, f01.cpus_free()), (Cpus(64), Cpus(56)), "{at}");
            assert_eq!(f01.mem_free(), Some(MemMb(1_024_000 - 131_072)), "{at}");
            assert_eq!(
                (&f02.state[..], &f02.partitions[..]),
                (
                    &["IDLE".to_owned(), "RESERVED".to_owned()][..],
                    &["fat".to_owned(), "closed".to_owned()][..]
                ),
                "{at}"
            );
            assert!(s03.reason.as_deref().unwrap().starts_with("disk = bad, see #12 ["), "{at}");
            for node in &parsed.records {
                assert_eq!(
                    (node.gpus.total, node.threads_per_core, node.weight),
                    (0, 1, 1),
                    "{at}"
                );
            }
        }
    }
}

#[test]
fn partitions_with_their_limits() {
    for (version, dir) in versions() {
        let parsed = partitions::read(&text(&dir, "scontrol-show-partitions-o.txt"));
        assert_eq!((&parsed.errors[..], &parsed.warnings[..]), (&[][..], &[][..]), "{version}");
        let brief: Vec<_> = parsed
            .records
            .iter()
            .map(|p| (p.name.as_str(), p.state.as_str(), p.tier, p.node_count, p.max_time))
            .collect();
        let fortnight = Limit::At(20_160);
        assert_eq!(
            brief,
            [
                ("slim", "UP", 10, 3, fortnight),
                ("fat", "UP", 8, 2, fortnight),
                ("short", "UP", 12, 3, Limit::At(60)),
                ("interactive", "UP", 1, 1, Limit::At(480)),
                ("closed", "DOWN", 1, 1, fortnight),
            ],
            "{version}"
        );
        let [slim, fat, short, ..] = &parsed.records[..] else { panic!() };
        assert!(slim.default && !fat.default && !slim.exclusive_user);
        assert_eq!(slim.nodes, ["s01", "s02", "s03"]);
        assert_eq!((slim.max_nodes, slim.default_time), (Limit::Unlimited, Limit::At(60)));
        assert_eq!(fat.max_mem, MemPer::Cpu(MemMb(32_000)));
        assert_eq!(fat.allow_qos, Names::Listed(vec!["normal".into(), "high".into()]));
        assert_eq!(short.allow_accounts, Names::Listed(vec!["acc".into()]));
        assert_eq!(slim.allow_accounts, Names::All);
    }
}

#[test]
fn reservations_whole_and_partial() {
    for (version, dir) in versions() {
        for file in ["scontrol-show-reservations.txt", "scontrol-show-reservations-o.txt"] {
            let parsed = reservations::read(&text(&dir, file), &TimeZone::UTC);
            assert_eq!(parsed.errors, [], "{version} {file}");
            let [maint, course] = &parsed.records[..] else { panic!("{version} {file}") };
            assert_eq!((maint.name.as_str(), maint.active), ("maint_a", false));
            assert!(maint.whole_nodes && maint.flags == ["MAINT", "SPEC_NODES"]);
            assert_eq!(maint.end - maint.start, 7200);
            assert_eq!((course.name.as_str(), course.active), ("course", true));
            assert!(!course.whole_nodes);
            assert_eq!((course.cores[0].node.as_str(), course.cores[0].cores), ("f02", 8));
            assert_eq!(course.end - course.start, 36_000);
            assert_eq!(maint.start - course.start, 3 * 3600);
        }
    }
}

#[test]
fn the_configuration() {
    for (version, dir) in versions() {
        let parsed = config::read(&text(&dir, "scontrol-show-config.txt"));
        assert_eq!(parsed.errors, [], "{version}");
        let c = &parsed.records[0];
        assert!(c.version.starts_with(&version), "{version}: {}", c.version);
        assert_eq!(c.def_mem, MemPer::Cpu(MemMb(2000)), "{version}");
        assert!(c.memory_consumable() && !c.whole_cores() && c.nodes_shared(), "{version}");
        assert_eq!((c.cluster.as_str(), c.controllers.len()), ("bar", 1), "{version}");
    }
}

#[test]
fn only_sjps_marks_are_marks() {
    for (version, dir) in versions() {
        let bytes = std::fs::read(dir.join("squeue-json.json")).unwrap();
        let parsed = json::marks(&bytes, None);
        assert_eq!(parsed.errors, [], "{version}");
        let ids: BTreeSet<u32> = parsed.records.iter().map(|j| j.id).collect();
        assert_eq!(ids, (1..=17).collect(), "{version}");
        let marked: Vec<_> = parsed
            .records
            .iter()
            .filter(|j| !j.admin_comment.is_empty())
            .map(|j| (j.id, j.admin_comment.as_str(), j.required_nodes.as_str()))
            .collect();
        let [(4, pin, "s02"), (7, placed, "")] = marked[..] else { panic!("{version} {marked:?}") };
        assert_eq!(pin, "sjp:pin=s02;from=slim,fat;job=4c,16G,4.0G/c;id=7f3a");
        assert!(placed.starts_with("site note;sjp:placed=slim,fat;job=1c,1."));
        let by_id = |id: u32| parsed.records.iter().find(|j| j.id == id).unwrap();
        assert_eq!(
            (&by_id(2).state[..], &by_id(4).state[..]),
            (&["RUNNING".to_owned()][..], &["PENDING".to_owned()][..])
        );
        assert_eq!(by_id(4).partitions, ["slim"]);
        assert!(parsed.records.iter().all(|j| j.submit > 1_796_000_000), "{version}");
        let wanted = HashSet::from([4, 16, 99]);
        let few = json::marks(&bytes, Some(&wanted));
        assert_eq!(few.records.iter().map(|j| j.id).collect::<Vec<_>>(), [4, 16], "{version}");
        assert_eq!(few.records[1].admin_comment, "", "{version}: the imitation");
    }
}

#[test]
fn captured_texts_of_jobs() {
    for (version, dir) in versions() {
        // Of the text records, the imitating one cannot be read safely.
        let bytes = std::fs::read(dir.join("scontrol-show-jobs-o.txt")).unwrap();
        let value = parse(Kind::Jobs, &bytes, &TimeZone::UTC);
        let jobs = value["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 16, "{version}");
        assert!(jobs.iter().all(|j| j["id"] != 16 && j["admin_comment"].is_null()), "{version}");
        let errors = value["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{version}");
        assert!(errors[0]["text"].as_str().unwrap().starts_with("JobId=16 "), "{version}");

        let bytes = std::fs::read(dir.join("squeue-r.txt")).unwrap();
        let value = parse(Kind::Jobs, &bytes, &TimeZone::UTC);
        let (jobs, errors) =
            (value["jobs"].as_array().unwrap(), value["errors"].as_array().unwrap());
        // In 22.05's capture one partition list was cut.
        assert_eq!(jobs.len() + errors.len(), 17, "{version}");
        assert_eq!(errors.len(), usize::from(version == "22.05"), "{version}");
        let array = jobs.iter().find(|j| j["id"] == 6).unwrap();
        assert_eq!(array["array_tasks"], 9, "{version}");
        let held = jobs.iter().find(|j| j["id"] == 8).unwrap();
        assert_eq!((&held["reason"], &held["state"]), (&"JobHeldUser".into(), &"PENDING".into()));

        let bytes = std::fs::read(dir.join("sinfo-N.txt")).unwrap();
        let value = parse(Kind::Nodes, &bytes, &TimeZone::UTC);
        assert_eq!(
            (value["nodes"].as_array().unwrap().len(), &value["errors"]),
            (5, &serde_json::json!([]))
        );
    }
}

#[test]
fn qos_and_associations() {
    for (version, dir) in versions() {
        let limits = accounting::qos(&text(&dir, "sacctmgr-qos.txt"));
        assert_eq!(limits.errors, [], "{version}");
        let used = accounting::assoc_mgr(&text(&dir, "assoc_mgr.txt"));
        assert_eq!(used.errors, [], "{version}");
        let caps = accounting::caps(&limits.records, &used.records);
        let brief: Vec<_> = caps
            .iter()
            .map(|q| (q.name.as_str(), q.max_cpus_per_user, q.max_cpus_per_account, q.can_reject))
            .collect();
        assert_eq!(
            brief,
            [
                ("normal", Some(160), None, false),
                ("high", Some(96), Some(200), false),
                ("flex", None, None, false),
            ],
            "{version}"
        );
        assert_eq!(caps[1].used_by_user, [(0, 60)], "{version}");
        assert_eq!(caps[1].used_by_account, [("root".to_owned(), 60)], "{version}");
        assert_eq!(limits.records[1].max_wall_minutes, Some(1440), "{version}");

        let assocs = accounting::assoc(&text(&dir, "sacctmgr-assoc.txt"));
        assert_eq!(assocs.errors, [], "{version}");
        let root = assocs.records.iter().find(|a| a.user.is_some()).unwrap();
        assert_eq!((root.account.as_str(), root.user.as_deref()), ("root", Some("root")));
        assert_eq!((root.qos.len(), &root.partition), (3, &None), "{version}");
    }
}
