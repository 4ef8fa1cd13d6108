//! `sjp parse`, run as a program on captured output.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use common::{run, run_with};
use serde_json::Value;
use std::path::{Path, PathBuf};

const INPUT: i32 = 65;

/// Real outputs; `None` where they are not beside the repository.
fn cases() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/readers");
    if !dir.is_dir() {
        eprintln!("skipped: {} is not there", dir.display());
        return None;
    }
    Some(dir)
}

const NODES: &str = "NodeName=n1 Arch=x86_64 CoresPerSocket=16 CPUAlloc=4 CPUTot=16 CPULoad=0.1 Gres=(null) RealMemory=64000 \
                     AllocMem=1000 State=MIXED ThreadsPerCore=1 Weight=1 Partitions=slim \n";

#[test]
fn text_is_a_table_and_json_has_the_kind_as_key() {
    let ran = run_with(&["parse", "nodes"], NODES.as_bytes()).ends(0);
    let ran = ran.says(&["name", "n1    yes     MIXED    16         12", "nodes: 1 record\n"]);
    assert_eq!(ran.err, "");
    let json = run_with(&["parse", "nodes", "--json"], NODES.as_bytes()).ends(0).json();
    assert_eq!(json["nodes"][0]["name"], "n1");
    assert_eq!(json["nodes"][0]["usable"], true);
    assert_eq!(json["nodes"][0]["cpus_free"], 12);
    assert_eq!(json["nodes"][0]["mem_free_mb"], 63_000);
    assert_eq!(json["errors"], serde_json::json!([]));
}

#[test]
fn input_comes_from_a_file_or_a_dash() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nodes.txt");
    std::fs::write(&file, NODES).unwrap();
    run(&["parse", "nodes", file.to_str().unwrap()]).ends(0).says(&["n1"]);
    run_with(&["parse", "nodes", "-"], NODES.as_bytes()).ends(0).says(&["n1"]);
    run(&["parse", "nodes", "/nonexistent/nodes.txt"])
        .ends(INPUT)
        .complains(&["/nonexistent/nodes.txt: cannot be read: No such file"]);
    run(&["parse", "nodes", "/"]).ends(INPUT).complains(&["/: cannot be read"]);
}

#[test]
fn nothing_readable_ends_with_65_and_lists_the_errors() {
    let ran = run_with(&["parse", "nodes"], b"slurm_load_node error: Unable to contact\n");
    ran.ends(INPUT).says(&["nodes: 0 records"]).complains(&["standard input: error: line 1: "]);
    let json = run_with(&["parse", "nodes", "--json"], b"what\n").ends(INPUT).json();
    assert!(!json["errors"].as_array().unwrap().is_empty());
    for kind in ["nodes", "partitions", "config", "reservations", "jobs", "qos", "assoc"] {
        run_with(&["parse", kind], b" \n").ends(INPUT).complains(&["standard input: is empty"]);
    }
    run_with(&["parse", "nodes", "--json"], b"").ends(INPUT).json();
    run_with(&["parse", "nodes", "--json"], b"{\"nodes\": [").ends(INPUT).json();
    run_with(&["parse", "nodes", "--json"], &[0xff, 0xfe, 0, 1, 2]).ends(INPUT).json();
}

#[test]
fn some_unreadable_records_end_with_1_and_the_rest_is_kept() {
    let text = NODES.to_owned() + &NODES.replace("=n1", "=n2").replace("CPUTot=16", "CPUTot=many");
    let ran = run_with(&["parse", "nodes"], text.as_bytes()).ends(1);
    ran.says(&["n1", "nodes: 1 record"]).complains(&["error: line 2: CPUTot=\"many\""]);
    let json = run_with(&["parse", "nodes", "--json"], text.as_bytes()).ends(1).json();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(json["errors"][0]["line"], 2);
}

#[test]
fn nothing_there_is_no_error() {
    let text = b"No reservations in the system\n";
    run_with(&["parse", "reservations"], text).ends(0).says(&["reservations: 0 records"]);
}

#[test]
fn users_text_is_made_safe() {
    let text = NODES.trim_end().to_owned() + " Reason=a\u{1b}[2Jb\u{9b}m [root@x]\n";
    for args in [&["parse", "nodes"][..], &["parse", "nodes", "--json"]] {
        let ran = run_with(args, text.as_bytes()).ends(0);
        assert!(!ran.out.contains(['\u{1b}', '\u{9b}']), "{ran:#?}");
        assert!(!ran.err.contains(['\u{1b}', '\u{9b}']), "{ran:#?}");
    }
    let ran = run_with(&["parse", "nodes"], b"evil\x1b[2J\n").ends(INPUT);
    assert!(!ran.err.contains('\u{1b}'), "{ran:#?}");
}

/// Every recorded output that the readers know: both forms agree, and the code
/// says whether something could be read.
#[test]
fn recorded_outputs_of_many_versions() {
    let Some(dir) = cases() else { return };
    let kind_of = |name: &str| {
        [
            ("config-", "config"),
            ("slurmconf-", "config"),
            ("job-", "jobs"),
            ("json-jobs-", "jobs"),
            ("squeue-", "jobs"),
            ("node-", "nodes"),
            ("json-nodes-", "nodes"),
            ("sinfo-", "nodes"),
            ("partition-", "partitions"),
            ("reservation-", "reservations"),
            ("sacctmgr-qos-", "qos"),
            ("sacctmgr-user-", "assoc"),
        ]
        .into_iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, kind)| kind)
    };
    let mut seen = 0;
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let Some(kind) = path.file_name().and_then(|n| kind_of(n.to_str().unwrap())) else {
            continue;
        };
        let file = path.to_str().unwrap();
        let json = run(&["parse", kind, file, "--json"]);
        let value = json.json();
        let count = |key: &str| value[key].as_array().map_or(0, Vec::len);
        let expected = match (count(kind), count("errors")) {
            (_, 0) => 0,
            (0, _) => INPUT,
            _ => 1,
        };
        assert_eq!(json.code, expected, "{file}");
        let text = run(&["parse", kind, file]).ends(expected);
        let records = format!("{kind}: {} record", count(kind));
        assert!(text.out.contains(&records), "{file}: {}", text.out);
        assert_eq!(text.err.lines().count(), count("errors") + count("warnings"), "{file}");
        seen += 1;
    }
    assert!(seen >= 30, "only {seen} outputs in {}", dir.display());
}

#[test]
fn a_node_with_all_memory_taken_has_cpus_that_no_job_can_use() {
    let Some(dir) = cases() else { return };
    let file = dir.join("node-24.11-oneline-gpu-not-in-tres.txt");
    let json = run(&["parse", "nodes", file.to_str().unwrap(), "--json"]).ends(0).json();
    let nodes = json["nodes"].as_array().unwrap();
    let na5 = nodes.iter().find(|n| n["name"] == "na5").unwrap();
    assert_eq!((&na5["cpus_free"], &na5["mem_free_mb"]), (&24.into(), &0.into()));
    let nb1 = nodes.iter().find(|n| n["name"] == "nb1").unwrap();
    assert_eq!((&nb1["gpus"]["total"], &nb1["gpus"]["used"]), (&4.into(), &Value::Null));
}
