//! `sjp table` and `sjp place`, run as programs on a published table; one test
//! for each option.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use common::{Cluster, Ran, Site};
use serde_json::Value;
use sjp_core::config::{Mode, NoRoom};

const OK: i32 = 0;
const CRITICAL: i32 = 2;
const USAGE: i32 = 64;

fn live() -> Site {
    let mut site = Site::bare();
    site.publish(&Cluster::slim_and_fat(), 0);
    site
}

fn place(site: &Site, args: &[&str]) -> Ran {
    site.run(&[&["place"], args].concat())
}

fn placed(site: &Site, args: &[&str]) -> Value {
    place(site, &[args, &["--json"]].concat()).ends(OK).json()
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|v| v[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn table_shows_nodes_partitions_and_shapes() {
    let ran = live().run(&["table"]).ends(OK);
    let ran = ran.says(&["node data 0.", "publication 1", "3 usable nodes in 3 shapes"]);
    let line = |name: &str| {
        let found = ran.out.lines().find(|l| l.starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {ran:#?}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("s01"), ["s01", "64", "24", "250G", "54.7G", "2.3G", "-", "slim"]);
    assert_eq!(line("s03")[2], "-");
    assert!(line("s03").ends_with(&["not", "usable"]));
    assert_eq!(line("slim")[..5], ["slim", "10", "3", "2", "88"]);
    assert!(line("old").join(" ").contains("not used: "), "{ran:#?}");
}

#[test]
fn table_json_holds_the_same() {
    let json = live().run(&["table", "--json"]).ends(OK).json();
    assert_eq!(names(&json["nodes"], "name"), ["f01", "s01", "s02", "s03"]);
    let s01 = &json["nodes"][1];
    assert_eq!(
        (&s01["cpus"], &s01["cpus_free"], &s01["mem_mb"], &s01["mem_free_mb"]),
        (&64.into(), &24.into(), &256_000.into(), &56_000.into())
    );
    assert_eq!(s01["partitions"][0], "slim");
    assert_eq!(s01["promised"], Value::Null);
    assert_eq!(json["nodes"][3]["usable"], false);
    assert_eq!(json["nodes"][3]["cpus_free"], Value::Null);
    assert_eq!(names(&json["partitions"], "name"), ["fat", "old", "slim"]);
    assert_eq!(json["partitions"][1]["open"], false);
    assert_eq!(json["partitions"][2]["cpus_free"], 88);
    // s01: 24 free CPUs, memory for 56,000 / 4267 = 13.12 of them.
    let stranded = json["partitions"][2]["stranded"].as_f64().unwrap();
    assert!((stranded - (24.0 - 56_000.0 / 4267.0) - (64.0 - 256_000.0 / 4267.0)).abs() < 1e-9);
    assert_eq!(json["groups"].as_array().unwrap().len(), 3);
    assert_eq!(json["mode"], "enforce");
    assert_eq!(json["stale"], false);
}

#[test]
fn table_node_narrows_and_names_unknown_nodes() {
    let site = live();
    let json = site.run(&["table", "--node", "s[01-02]", "--json"]).ends(OK).json();
    assert_eq!(names(&json["nodes"], "name"), ["s01", "s02"]);
    site.run(&["table", "--node", "s04"]).ends(CRITICAL).complains(&["no node s04 in the table"]);
    site.run(&["table", "--node", "s[01-09]"])
        .ends(CRITICAL)
        .complains(&["no node s04 (and 5 more) in the table; nearest is s0"]);
    site.run(&["table", "--node", "s[01"]).ends(CRITICAL).complains(&["--node s[01: "]);
    let ran = site.run(&["table", "--node", "s[1-999999999]"]).ends(CRITICAL);
    assert!(ran.err.contains("--node"), "{ran:#?}");
    let json = site.run(&["table", "--node", "x\u{7}y", "--json"]).ends(CRITICAL).json();
    assert!(json["error"].as_str().unwrap().contains("no node"), "{json}");
}

#[test]
fn table_partition_narrows_and_names_the_nearest() {
    let site = live();
    let json = site.run(&["table", "--partition", "fat", "--json"]).ends(OK).json();
    assert_eq!(names(&json["nodes"], "name"), ["f01"]);
    let ran = site.run(&["table", "--partition", "fat"]).ends(OK);
    assert!(!ran.out.contains("slim"), "{ran:#?}");
    site.run(&["table", "--partition", "slimm"])
        .ends(CRITICAL)
        .complains(&["no partition slimm in the table; nearest is slim"]);
}

#[test]
fn promises_show_in_the_table_and_count_in_place() {
    let site = live();
    assert_eq!(placed(&site, &["--cpus", "4", "--mem", "16G"])["nodes_with_room"], 3);
    site.claim("s01", 22, 1000);
    site.claim("s01", 1, 1000);
    let json = site.run(&["table", "--json"]).ends(OK).json();
    assert_eq!(json["nodes"][1]["promised"]["cpus"], 23);
    assert_eq!(json["nodes"][1]["promised"]["mem_mb"], 2000);
    assert_eq!(json["claims"]["open"], 2);
    site.run(&["table"]).ends(OK).says(&["23c,2.0G", "2 claims not yet taken over"]);
    assert_eq!(placed(&site, &["--cpus", "4", "--mem", "16G"])["nodes_with_room"], 2);
}

#[test]
fn neither_command_changes_the_table() {
    let site = live();
    let before = site.run(&["table", "--json"]).ends(OK).json();
    for _ in 0..3 {
        placed(&site, &["--cpus", "4", "--mem", "16G"]);
    }
    let after = site.run(&["table", "--json"]).ends(OK).json();
    for key in ["claims", "generation", "nodes"] {
        assert_eq!(before[key], after[key]);
    }
}

#[test]
fn place_tells_node_reason_and_runners_up() {
    let site = live();
    let ran = place(&site, &["--cpus", "4", "--mem", "9G", "--time", "60"]).ends(OK);
    // s01 has 24 CPUs and 54.7G left, 2.3G for each: just the job's own ratio.
    ran.says(&[
        "pinned to s01 in slim; loss ",
        "job: 4c, 9G, 60 min\n",
        "admitted",
        "closed: ",
        "s02",
        "f01",
    ]);
    let json = placed(&site, &["--cpus", "4", "--mem", "9G", "--time", "60"]);
    assert_eq!(json["placed"], true);
    assert_eq!(json["reason"], Value::Null);
    assert_eq!(json["place_answers"], Value::Null);
    assert_eq!(json["placement"]["pin"], "s01");
    assert_eq!(json["placement"]["partitions"][0], "slim");
    assert_eq!(json["placement"]["basis"], "room");
    assert_eq!(names(&json["candidates"], "node").len(), 3);
    assert_eq!(json["job"]["mem_mb"], 9216);
}

#[test]
fn place_cpus() {
    let site = live();
    let json = placed(&site, &["--cpus", "64", "--mem", "1G"]);
    assert_eq!(json["nodes_with_room"], 2);
    let json = place(&site, &["--cpus", "65", "--mem", "1G", "--json"]).ends(CRITICAL).json();
    assert_eq!(json["reason"], "no partition");
    place(&site, &["-c", "65", "--mem", "1G"])
        .ends(CRITICAL)
        .says(&["not placed: no partition", "no node is big enough"]);
    place(&site, &["--cpus", "0"]).ends(USAGE).complains(&["--cpus"]);
    assert_eq!(placed(&site, &["--mem", "1G"])["job"]["cpus"], 1);
}

#[test]
fn place_mem() {
    let site = live();
    assert_eq!(placed(&site, &["--mem", "300G"])["nodes_with_room"], 1);
    assert_eq!(placed(&site, &["--mem", "300"])["job"]["mem_mb"], 300);
    assert_eq!(
        place(&site, &["--mem", "0", "--json"]).ends(CRITICAL).json()["reason"],
        "no memory"
    );
    place(&site, &["--mem", "1.5G"]).ends(USAGE).complains(&["--mem 1.5G: not a size"]);
    placed(&site, &["--cpus", "1"]);
}

#[test]
fn place_mem_per_cpu() {
    let site = live();
    let json = placed(&site, &["--cpus", "10", "--mem-per-cpu", "30G"]);
    assert_eq!(
        (&json["job"]["mem_per_cpu_mb"], &json["nodes_with_room"]),
        (&30_720.into(), &1.into())
    );
    place(&site, &["--mem", "1", "--mem-per-cpu", "1"]).ends(USAGE).complains(&["--mem"]);
}

#[test]
fn place_time() {
    let site = live();
    assert_eq!(placed(&site, &["--mem", "1G", "--time", "2-12"])["job"]["minutes"], 3600);
    let ran = place(&site, &["--mem", "1G", "-t", "15-0"]).ends(CRITICAL);
    ran.says(&["not placed: no partition", "time limit above MaxTime (20160 min)"]);
    place(&site, &["--mem", "1G", "--time", "soon"]).ends(USAGE).complains(&["--time soon: not a"]);
}

#[test]
fn place_tasks() {
    let site = live();
    let json = placed(&site, &["--cpus", "2", "--tasks", "3", "--mem", "8G"]);
    assert_eq!((&json["job"]["cpus"], &json["job"]["tasks"]), (&6.into(), &3.into()));
    assert_eq!(json["placement"]["not_pinned"], "several tasks without -N 1");
    place(&site, &["-c", "100000000", "-n", "1000000"]).ends(USAGE).complains(&["too much"]);
}

#[test]
fn place_nodes() {
    let site = live();
    let json = placed(&site, &["--cpus", "2", "-n", "2", "--mem", "9G", "--nodes", "1"]);
    assert_ne!(json["placement"]["not_pinned"], "several tasks without -N 1");
    let json = place(&site, &["--mem", "1G", "-N", "2", "--json"]).ends(CRITICAL).json();
    assert_eq!(json["reason"], "multi-node");
}

#[test]
fn place_partition() {
    let site = live();
    let json = placed(&site, &["--cpus", "4", "--mem", "9G", "--partition", "fat"]);
    assert_eq!(json["placement"]["partitions"], serde_json::json!(["fat"]));
    place(&site, &["--mem", "9G", "-p", "old"])
        .ends(CRITICAL)
        .says(&["not placed: no partition", "not among the partitions named"]);
}

#[test]
fn place_user() {
    let site = live();
    place(&site, &["--mem", "1G", "--user", "root"]).ends(OK).says(&["user root"]);
    assert_eq!(placed(&site, &["--mem", "1G", "-u", "4242"])["job"]["uid"], 4242);
    place(&site, &["--mem", "1G", "--user", "no-such-user-here"])
        .ends(USAGE)
        .complains(&["--user no-such-user-here: no such user on this host"]);
}

fn with_lists() -> Site {
    let mut cluster = Cluster::slim_and_fat();
    let listed = |name: &str| sjp_core::cluster::Names::Listed(vec![name.into()]);
    cluster.partitions[0].allow_accounts = listed("physics");
    cluster.partitions[1].allow_qos = listed("long");
    let mut site = Site::bare();
    site.publish(&cluster, 0);
    site
}

#[test]
fn place_account() {
    let site = with_lists();
    place(&site, &["--mem", "1G"]).ends(CRITICAL).says(&["account not allowed", "QOS not allowed"]);
    let json = placed(&site, &["--mem", "1G", "--account", "physics"]);
    assert_eq!(json["placement"]["admitted"], serde_json::json!(["slim"]));
}

#[test]
fn place_qos() {
    let site = with_lists();
    let json = placed(&site, &["--mem", "1G", "--qos", "long"]);
    assert_eq!(json["placement"]["admitted"], serde_json::json!(["fat"]));
}

#[test]
fn place_nodelist() {
    let site = live();
    let json = placed(&site, &["--mem", "1G", "--nodelist", "f01"]);
    assert_eq!(json["placement"]["partitions"], serde_json::json!(["fat"]));
    let json = place(&site, &["--mem", "1G", "-w", "s03", "--json"]).ends(CRITICAL).json();
    assert_eq!(json["placed"], false);
}

#[test]
fn place_exclude() {
    let site = live();
    let json = placed(&site, &["--cpus", "4", "--mem", "9G", "--exclude", "s[01-02]"]);
    assert_eq!(names(&json["candidates"], "node"), ["f01"]);
}

#[test]
fn place_without_room() {
    let mut cluster = Cluster::slim_and_fat();
    for node in &mut cluster.nodes {
        node.cpus_alloc = node.cpus;
    }
    let mut site = Site::bare();
    site.publish(&cluster, 0);
    let ran = place(&site, &["--mem", "1G"]).ends(CRITICAL);
    ran.says(&["not placed: no room", "no room now"]);
    cluster.policy.no_room = NoRoom::Open;
    site.publish(&cluster, 0);
    let json = placed(&site, &["--mem", "1G"]);
    assert_eq!(
        (&json["placement"]["basis"], &json["nodes_with_room"]),
        (&"open".into(), &0.into())
    );
    cluster.policy.no_room = NoRoom::Leave;
    cluster.policy.always_place = true;
    site.publish(&cluster, 0);
    assert_eq!(placed(&site, &["--mem", "1G"])["placement"]["basis"], "shape");
}

#[test]
fn place_says_what_the_module_would_answer() {
    let mut cluster = Cluster::slim_and_fat();
    cluster.policy.mode = Mode::Observe;
    let mut site = Site::bare();
    site.publish(&cluster, 0);
    place(&site, &["--mem", "1G"]).ends(OK).says(&["place() itself answers \"observe\" now"]);
    site.publish(&Cluster::slim_and_fat(), 60);
    let json = place(&site, &["--mem", "1G", "--json"]).ends(CRITICAL).json();
    assert_eq!((&json["place_answers"], &json["placed"]), (&"stale".into(), &true.into()));
    place(&site, &["--mem", "1G"])
        .ends(CRITICAL)
        .says(&["60 s old: place() answers \"stale\" now"]);
    std::fs::write(site.dir.path().join("disable"), "").unwrap();
    let json = placed(&site, &["--mem", "1G"]);
    assert_eq!(json["place_answers"], "disabled");
}

#[test]
fn without_a_table_both_say_so() {
    let site = Site::bare();
    for args in [&["table"][..], &["place", "--mem", "1G"]] {
        site.run(args).ends(CRITICAL).complains(&["no table there (is sjpd running?)"]);
        let json = site.run(&[args, &["--json"]].concat()).ends(CRITICAL).json();
        assert!(json["error"].as_str().unwrap().contains("no table there"), "{json}");
    }
    std::fs::remove_dir(site.state_dir()).unwrap();
    site.run(&["table"])
        .ends(CRITICAL)
        .complains(&["is sjpd running, with this [general] state_dir?"]);
}

#[test]
fn wrong_settings_end_with_their_own_code() {
    let site = Site::with_settings("[nope]\n");
    site.run(&["table"]).ends(78).complains(&["sjp: ", ": [nope]: unknown section"]);
}

#[test]
fn nobody_reading_is_no_error() {
    use std::process::Stdio;
    let mut cluster = Cluster::slim_and_fat();
    cluster.nodes = (0..60)
        .map(|i| {
            common::node(&format!("n{i:02}{}", "x".repeat(200)), &["slim"], 64, 256_000, (0, 0))
        })
        .collect();
    let mut site = Site::bare();
    site.publish(&cluster, 0);
    let config = site.config().display().to_string();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = common::sjp(&["--config", &config, "table", "--json"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
