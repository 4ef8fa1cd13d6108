//! The demo tells the truth: what its text says is what Slurm says, and what sjp is
//! meant to do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::ExitStatus;

use serde_json::Value;
use sjp_core::mark::Mark;

/// Runs the demo; its standard output, and its standard error for messages.
#[allow(clippy::disallowed_methods, reason = "the program under test")]
fn demo(args: &[&str]) -> (ExitStatus, String, String) {
    let out =
        std::process::Command::new(env!("CARGO_BIN_EXE_sjp-demo")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status, text(out.stdout), text(out.stderr))
}

fn line<'a>(value: &'a Value, name: &str) -> &'a Value {
    value["jobs"].as_array().unwrap().iter().find(|j| j["name"] == name).unwrap()
}

/// The mark and the nodes of the only job of a line, in the pass with sjp.
fn only<'a>(value: &'a Value, name: &str) -> (Mark, &'a str, &'a Value) {
    let jobs = line(value, name)["sjp"]["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1, "{name}: {jobs:?}");
    let mark = Mark::parse(jobs[0]["admin_comment"].as_str().unwrap());
    (mark.unwrap_or_default(), jobs[0]["nodes"].as_str().unwrap(), &jobs[0])
}

#[test]
fn the_demo_shows_what_happened() {
    let (status, out, err) = demo(&["--json"]);
    assert!(status.success(), "{status}\n{err}\n{out}");
    let value: Value = serde_json::from_str(&out).unwrap();
    let report = value["report"].as_str().unwrap();
    the_table_is_right(&value, report);
    sjp_did_its_part(&value);
    the_pin_was_taken_back(&value, report);

    // The figures are those of the jobs.
    for pass in ["plain", "sjp"] {
        let started: u64 = value["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|j| j[pass]["started"].as_u64().unwrap())
            .sum();
        assert_eq!(value[pass]["started"], started, "{pass}");
        let shown = format!("{started} of {} jobs", value[pass]["jobs"]);
        let summary = report.lines().find(|l| l.starts_with("started at once")).unwrap();
        assert!(summary.contains(&shown), "{summary}");
    }
    assert_eq!(value["status"]["level"], "ok", "{}", value["status"]);
    assert_eq!(value["place"]["placed"], true);

    // Nothing is left of the cluster.
    let removed = report.split_once("sjpd and Slurm stopped, ").unwrap().1;
    let dir = removed.split_once(" removed").unwrap().0;
    assert!(!std::path::Path::new(dir).exists(), "{dir}");
}

/// Each row of the text shows where Slurm says the jobs are, in both passes, and each
/// sentence of what sjp did.
fn the_table_is_right(value: &Value, report: &str) {
    let flat = report.split_whitespace().collect::<Vec<_>>().join(" ");
    for job in value["jobs"].as_array().unwrap() {
        let name = job["name"].as_str().unwrap();
        let row = report.lines().find(|l| l.split(' ').next() == Some(name)).unwrap();
        for pass in ["plain", "sjp"] {
            let shown = job[pass]["shown"].as_str().unwrap();
            assert!(row.contains(shown), "{row}: {shown}");
            for one in job[pass]["jobs"].as_array().unwrap() {
                let nodes = one["nodes"].as_str().unwrap();
                match one["state"].as_str().unwrap() {
                    "RUNNING" => assert!(!nodes.is_empty() && shown.contains(nodes), "{job}"),
                    "PENDING" => assert!(shown.contains("wait"), "{job}"),
                    other => panic!("{name} is {other}: {job}"),
                }
            }
            if job[pass]["refused"].is_string() {
                assert_eq!(shown, "refused");
            }
        }
        let whys = job["why"].as_array().unwrap();
        assert!(!whys.is_empty(), "{job}");
        for why in whys {
            assert!(flat.contains(why.as_str().unwrap()), "{why}\n{report}");
        }
    }
    let longest = report.lines().take_while(|l| !l.starts_with("$ sjp")).max_by_key(|l| l.len());
    assert!(longest.is_some_and(|l| l.len() <= 80), "{longest:?}");
}

/// What the mix is there to show.
fn sjp_did_its_part(value: &Value) {
    // Each of these has one node that fits it, which Slurm then used.
    for (name, node) in [("lean", "s01"), ("heavy", "s04"), ("huge", "f02")] {
        let (mark, nodes, job) = only(value, name);
        assert_eq!((mark.get("pin"), nodes), (Some(node), node), "{job}");
    }
    let (mark, nodes, job) = only(value, "own-node");
    assert!(mark.get("pin").is_none() && mark.get("placed").is_some(), "{job}");
    assert_eq!(nodes, "s03", "{job}");
    let (_, nodes, job) = only(value, "own-part");
    assert!(nodes.starts_with('f') && job["partition"] == "fat", "{job}");
    let (mark, _, job) = only(value, "tasks");
    assert!(mark.get("placed").is_some(), "{job}");
    for job in line(value, "array")["sjp"]["jobs"].as_array().unwrap() {
        let mark = Mark::parse(job["admin_comment"].as_str().unwrap()).unwrap();
        assert!(mark.get("pin").is_none() && mark.get("placed").is_some(), "{job}");
    }
    for (name, reason) in [("two-node", "multi-node"), ("gpu", "gpu")] {
        let (mark, _, job) = only(value, name);
        assert_eq!(mark.get("skipped"), Some(reason), "{job}");
    }
    let (mark, nodes, job) = only(value, "wide");
    assert_eq!((mark.list("open").len(), nodes), (2, ""), "{job}");

    // The point of it all.
    assert_eq!(line(value, "huge")["plain"]["started"], 0);
    let started = |pass: &str| value[pass]["started"].as_u64().unwrap();
    assert!(started("sjp") > started("plain"), "{} {}", value["sjp"], value["plain"]);
}

fn the_pin_was_taken_back(value: &Value, report: &str) {
    let release = &value["release"];
    let node = release["node"].as_str().unwrap();
    let mark = |job: &Value| Mark::parse(job["admin_comment"].as_str().unwrap()).unwrap();
    let (before, after) = (&release["before"], &release["after"]);
    assert_eq!(value["place"]["placement"]["pin"], node);
    assert_eq!(before["required_nodes"], node);
    assert_eq!(mark(before).get("pin"), Some(node));
    assert_eq!((&before["state"], &before["nodes"]), (&"PENDING".into(), &"".into()));
    assert_eq!((&after["state"], &after["id"]), (&"RUNNING".into(), &before["id"]));
    assert_ne!(after["nodes"], node);
    assert_eq!(after["required_nodes"], "");
    let began = format!("job {}: release from {node}, back to slim: begin;", before["id"]);
    assert!(release["log"][0].as_str().unwrap().starts_with(&began), "{release}");
    let shown = format!("runs on {}, not pinned", after["nodes"].as_str().unwrap());
    assert!(report.contains(&shown), "{shown}\n{report}");
}

#[test]
fn a_wrong_argument_is_said_and_nothing_is_started() {
    let (status, out, err) = demo(&["--fast"]);
    assert_eq!((status.code(), out.as_str()), (Some(2), ""));
    assert!(err.starts_with("sjp-demo: --fast: no such argument\nusage: "), "{err}");
}
