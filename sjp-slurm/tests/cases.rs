//! Real outputs of many Slurm versions and sites, with what a correct reader
//! gets out of each. They lie beside the repository, in `../shared/cases`, and
//! are not part of it: where they are not there, the test says so and passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use sjp_slurm::any::{Kind, parse};
use std::path::PathBuf;

fn folder() -> Option<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/readers");
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: no cases in {}", dir.display());
    None
}

fn read(kind: Kind, name: &str) -> Option<Value> {
    let bytes = std::fs::read(folder()?.join(name)).unwrap();
    Some(parse(kind, &bytes, &TimeZone::UTC))
}

/// The records of a file that reads without an error.
fn clean(kind: Kind, name: &str) -> Option<Vec<Value>> {
    let value = read(kind, name)?;
    assert_eq!(value["errors"], json!([]), "{name}");
    Some(value[kind.name()].as_array().unwrap().clone())
}

fn column(records: &[Value], key: &str) -> Vec<Value> {
    records.iter().map(|r| r[key].clone()).collect()
}

/// The names of nodes that are usable and have a free CPU and, where it is
/// known, free memory.
fn with_room(nodes: &[Value]) -> Vec<&str> {
    nodes
        .iter()
        .filter(|n| n["usable"] == true && n["cpus_free"] != 0 && n["mem_free_mb"] != 0)
        .map(|n| n["name"].as_str().unwrap())
        .collect()
}

#[test]
fn nodes_of_16_05() {
    let Some(nodes) = clean(Kind::Nodes, "node-16.05-oneline-down-star.txt") else { return };
    assert_eq!(column(&nodes, "name"), ["datamover1", "datamover2", "highmem1", "lm2", "r1n03"]);
    assert_eq!(with_room(&nodes), ["datamover1"]);
    assert_eq!((&nodes[0]["cpus_free"], &nodes[0]["mem_alloc_mb"]), (&json!(1), &json!(0)));
    assert_eq!(nodes[1]["state"], json!(["DOWN", "NOT_RESPONDING", "DRAIN"]));
    assert_eq!((&nodes[1]["usable"], &nodes[1]["mem_mb"]), (&json!(false), &Value::Null));
    assert_eq!(nodes[1]["reason"], "Not responding [root@2017-06-29T08:00:07]");
    assert_eq!((&nodes[2]["cpus_alloc"], &nodes[2]["usable"]), (&json!(4), &json!(false)));
    assert_eq!((&nodes[3]["weight"], &nodes[3]["usable"]), (&json!(1000), &json!(false)));
    assert_eq!((&nodes[4]["cpus_free"], &nodes[4]["mem_alloc_mb"]), (&json!(0), &json!(124_928)));
    assert_eq!(nodes[4]["partitions"], json!(["batch", "cpu", "test"]));
}

#[test]
fn nodes_over_several_lines() {
    let Some(nodes) = clean(Kind::Nodes, "node-20.11-ibu-multiline.txt") else { return };
    assert_eq!(nodes.len(), 1);
    assert_eq!((&nodes[0]["cpus"], &nodes[0]["cpus_free"]), (&json!(16), &json!(0)));
    assert_eq!(nodes[0]["mem_free_mb"], 129_576);
    assert_eq!(nodes[0]["gpus"]["total"], 0);

    let nodes = clean(Kind::Nodes, "node-24.11-blank-line-inside-record.txt").unwrap();
    assert_eq!(nodes.len(), 1);
    let n = &nodes[0];
    assert_eq!((&n["gpus"]["total"], &n["gpus"]["used"]), (&json!(1), &Value::Null));
    assert_eq!((&n["usable"], &n["cpus_free"]), (&json!(true), &json!(32)));
    assert_eq!(n["mem_free_mb"], 249_036);
    assert_eq!(n["reason"], "Node start up [root@2026-03-11T11:05:51]");
}

#[test]
fn a_cloud_node_whose_memory_nobody_set() {
    let Some(nodes) = clean(Kind::Nodes, "node-21.08-cloud-realmemory-1.txt") else { return };
    let n = &nodes[0];
    assert_eq!((nodes.len(), &n["cpus"]), (1, &json!(8)));
    assert_eq!((&n["mem_mb"], &n["mem_free_mb"]), (&Value::Null, &Value::Null));
    // Slurm allocates jobs to a powered-down node and powers it up for them.
    assert_eq!(n["state"], json!(["IDLE", "CLOUD", "POWERED_DOWN"]));
    assert_eq!(n["usable"], true);
}

#[test]
fn counters_that_contradict_each_other() {
    let Some(value) = read(Kind::Nodes, "node-24.05-drain-reboot-overcommit.txt") else { return };
    let nodes = value["nodes"].as_array().unwrap();
    assert_eq!(column(nodes, "name"), ["node-01", "node-03", "node-06", "node-07"]);
    assert_eq!(value["errors"], json!([]));
    assert_eq!(nodes[0]["cpus_free"], 0, "the state says that it is full");
    assert_eq!(nodes[1]["usable"], false);
    assert_eq!(nodes[1]["reason"], "BUG: Throttling [root@2026-02-02T10:27:00]");
    assert_eq!((&nodes[2]["cpus_free"], &nodes[2]["mem_free_mb"]), (&json!(0), &json!(0)));
    assert_eq!(nodes[2]["mem_alloc_mb"], 1_344_000);
    assert_eq!(nodes[2]["gpus"], json!({"total": 8, "used": 8}));
    assert_eq!(nodes[3]["state"], json!(["MIXED", "DRAIN", "REBOOT_REQUESTED"]));
    assert_eq!(nodes[3]["usable"], false);
    assert_eq!(with_room(nodes), Vec::<&str>::new());
    let warnings = value["warnings"].to_string();
    assert!(warnings.contains("node-06") && warnings.contains("node-01"), "{warnings}");
}

#[test]
fn gpus_that_only_gres_tells_of() {
    let Some(nodes) = clean(Kind::Nodes, "node-24.11-oneline-gpu-not-in-tres.txt") else { return };
    assert_eq!(column(&nodes, "name"), ["na7", "na5", "nb1", "nb9"]);
    assert_eq!(column(&nodes, "cpus_free"), [22, 24, 32, 32]);
    assert_eq!(column(&nodes, "mem_free_mb"), [1531, 0, 15_867, 15_867]);
    let gpus = json!({"total": 4, "used": null});
    assert_eq!((&nodes[2]["gpus"], &nodes[3]["gpus"]), (&gpus, &gpus));

    let nodes = clean(Kind::Nodes, "node-26.05-oneline.txt").unwrap();
    assert_eq!(column(&nodes, "usable"), [true; 4]);
    assert_eq!(column(&nodes, "cpus_alloc"), [8, 4, 0, 0]);
    assert_eq!(column(&nodes, "mem_alloc_mb"), [14_336, 8192, 0, 0]);
    assert_eq!(nodes[3]["gpus"]["total"], 4);
}

#[test]
fn nodes_from_json() {
    let Some(nodes) = clean(Kind::Nodes, "json-nodes-21.08-state-string.json") else { return };
    assert_eq!(column(&nodes, "name"), ["g001", "g002"]);
    assert_eq!(nodes[0]["gpus"], json!({"total": 16, "used": 8}));
    assert_eq!(nodes[1]["gpus"], json!({"total": 8, "used": 8}));
    assert_eq!((&nodes[0]["cpus_free"], &nodes[0]["mem_mb"]), (&json!(90), &Value::Null));
    assert_eq!(nodes[0]["state"], json!(["MIXED"]));
}

#[test]
fn nodes_as_sinfo_shows_them() {
    let Some(nodes) = clean(Kind::Nodes, "sinfo-default-flag-suffixes.txt") else { return };
    assert_eq!(nodes.len(), 83 + 4);
    let usable: Vec<&str> =
        nodes.iter().filter(|n| n["usable"] == true).map(|n| n["name"].as_str().unwrap()).collect();
    assert_eq!(
        usable,
        ["c006", "c007", "c014", "c015", "c017", "c018", "c023", "e001", "e002", "e003", "e004"]
    );
    let e001 = nodes.iter().find(|n| n["name"] == "e001").unwrap();
    assert_eq!(e001["partitions"], json!(["debug", "idle"]));
    let c002 = nodes.iter().find(|n| n["name"] == "c002").unwrap();
    assert_eq!(c002["state"], json!(["DRAINING", "REBOOT_REQUESTED"]));

    let nodes = clean(Kind::Nodes, "sinfo-gcm-duplicate-headers.txt").unwrap();
    assert_eq!(column(&nodes, "name"), ["node0201", "node1537", "node4180"]);
    assert_eq!(nodes[0]["state"], json!(["DRAIN", "NOT_RESPONDING"]));
}

#[test]
fn partitions() {
    let Some(parts) = clean(Kind::Partitions, "partition-24.05-multiline-jobdefaults.txt") else {
        return;
    };
    assert_eq!(column(&parts, "name"), ["test", "production"]);
    assert_eq!(column(&parts, "node_count"), [12, 12]);
    assert_eq!(column(&parts, "max_time_minutes"), [480, 10_080]);
    assert_eq!(parts[0]["allow_accounts"], json!(["general"]));
    assert_eq!(parts[1]["allow_accounts"], Value::Null);

    let parts = clean(Kind::Partitions, "partition-oneline-inactive-denyaccounts.txt").unwrap();
    assert_eq!(column(&parts, "name"), ["batch", "debug"]);
    assert_eq!(column(&parts, "state"), ["INACTIVE", "UP"]);
    assert_eq!(column(&parts, "default"), [true, false]);
    assert_eq!(column(&parts, "node_count"), [810, 640]);
    assert_eq!(parts[0]["nodes"].as_array().unwrap().len(), 810);
    assert_eq!(column(&parts, "max_time_minutes"), [10_080, 60]);
    assert_eq!(parts[0]["deny_accounts"].as_array().unwrap().len(), 40);
    assert_eq!((&parts[0]["allow_accounts"], &parts[0]["qos"]), (&Value::Null, &Value::Null));
    assert_eq!((&parts[1]["qos"], &parts[1]["max_nodes"]), (&json!("debug"), &json!(2)));
    assert_eq!(parts[1]["max_cpus_per_node"], 28);
    assert_eq!(parts[1]["def_mem"], json!({"per": "cpu", "mb": 4315}));
}

#[test]
fn reservations() {
    let name = "reservation-20.11-nested-nodename-coreids.txt";
    let Some(all) = clean(Kind::Reservations, name) else { return };
    assert_eq!((all.len(), &all[0]["whole_nodes"]), (1, &json!(false)));
    assert_eq!(all[0]["nodes"], json!(["node01", "node02", "node03", "node04"]));
    assert_eq!(all[0]["cores"][3], json!({"node": "node04", "cores": 6}));
    assert_eq!(all[0]["end"].as_i64().unwrap() - all[0]["start"].as_i64().unwrap(), 60);

    let all = clean(Kind::Reservations, "reservation-22.05-future-maint.txt").unwrap();
    assert_eq!(
        (all[0]["nodes"].as_array().unwrap().len(), &all[0]["active"]),
        (102, &json!(false))
    );
    // 2025-08-26T07:00:00, for 5,100 minutes.
    assert_eq!((&all[0]["start"], &all[0]["end"]), (&json!(1_756_191_600), &json!(1_756_497_600)));
    assert_eq!(all[0]["flags"], json!(["SPEC_NODES", "ALL_NODES"]));
    assert_eq!(all[0]["whole_nodes"], true);

    let value = read(Kind::Reservations, "reservation-25.11-relative-times.txt").unwrap();
    assert_eq!(value["reservations"], json!([]));
    assert!(value["errors"][0]["what"].as_str().unwrap().contains("SLURM_TIME_FORMAT"));

    assert_eq!(clean(Kind::Reservations, "reservation-none.txt").unwrap(), Vec::<Value>::new());
}

#[test]
fn configurations() {
    let Some(all) = clean(Kind::Config, "config-23.02-show-config-cr_cpu.txt") else { return };
    let c = &all[0];
    assert_eq!((&c["select_params"], &c["memory_consumable"]), (&json!(["CR_CPU"]), &json!(false)));
    assert_eq!(c["job_submit_plugins"], json!(["lua"]));
    assert_eq!(c["controllers"], json!(["ctld1", "ctld2"]));
    let scheduler = c["scheduler_params"].as_array().unwrap();
    for token in ["bf_window=4320", "bf_max_job_test=1500", "defer", "8847_node_trace"] {
        assert!(scheduler.contains(&json!(token)), "{token}");
    }

    let all = clean(Kind::Config, "slurmconf-25.11-nodeset-dynamic.conf").unwrap();
    let c = &all[0];
    assert_eq!((&c["nodes"], &c["memory_consumable"]), (&json!([]), &Value::Null));
    assert_eq!(c["parameters"]["MaxNodeCount"], "100");
    assert_eq!(c["parameters"]["Waittime"], "0");
    assert_eq!(c["job_submit_plugins"], json!(["lua"]));
    assert_eq!(c["node_sets"][1], json!({"names": ["gpu_nodes"], "values": {"Feature": "gpu"}}));
    assert_eq!(c["partitions"][0]["values"]["Nodes"], "cpu_nodes");

    let all = clean(Kind::Config, "slurmconf-schedmd-unit-port-ranges.conf").unwrap();
    let c = &all[0];
    assert_eq!(c["nodes"].as_array().unwrap().len(), 32);
    assert_eq!(c["nodes"][31], "node32");
    assert_eq!(c["node_lines"][0]["values"]["Port"], "40001-40032");
    assert_eq!((&c["parameters"]["AuthType"], &c["partitions"]), (&json!(""), &json!([])));
    assert_eq!((&c["memory_consumable"], &c["whole_cores"]), (&json!(false), &json!(true)));
}

#[test]
fn jobs_as_scontrol_shows_them() {
    let Some(jobs) = clean(Kind::Jobs, "job-21.08-held-and-unavailable.txt") else { return };
    assert_eq!(column(&jobs, "state"), ["PENDING", "PENDING"]);
    assert_eq!(column(&jobs, "priority"), [0, 121_777]);
    assert_eq!(jobs[0]["mem"], json!({"per": "cpu", "mb": 2048}));
    assert_eq!(jobs[1]["mem"], json!({"per": "node", "mb": 40_960}));
    assert_eq!(column(&jobs, "required_nodes"), ["", ""]);
    let reason = "ReqNodeNotAvail,_UnavailableNodes:node8,nodek4,nodep[1-2],nodex3";
    assert_eq!(jobs[1]["reason"], reason);

    let jobs = clean(Kind::Jobs, "job-multinode-gpu-detail.txt").unwrap();
    let nodes = jobs[0]["nodes"].as_str().unwrap();
    assert_eq!(sjp_core::hostlist::expand(nodes).unwrap().len(), 8);
    assert_eq!((&jobs[0]["cpus"], &jobs[0]["node_count"]), (&json!(2048), &json!(8)));
    assert_eq!(jobs[0]["mem"], json!({"per": "node", "mb": 1_536_000}));
    assert_eq!(jobs[0]["time_limit_minutes"], 10_080);

    let jobs = clean(Kind::Jobs, "job-oneline-pending-spaces-in-name.txt").unwrap();
    assert_eq!(column(&jobs, "scheduled_nodes"), ["gpu-15", "gpu-13", "gpu-14"]);
    assert_eq!(column(&jobs, "reason"), ["Priority"; 3]);
    assert_eq!(column(&jobs, "node_count"), [1, 1, 1]);

    let jobs = clean(Kind::Jobs, "job-whole-node-mem0.txt").unwrap();
    assert_eq!(jobs[0]["mem"], json!({"per": "node", "mb": 0}));
    assert_eq!((&jobs[0]["time_limit_minutes"], &jobs[0]["qos"]), (&json!(525_600), &json!("")));
}

#[test]
fn jobs_from_json() {
    let Some(jobs) = clean(Kind::Jobs, "json-jobs-21.08-plain-numbers.json") else { return };
    assert_eq!(column(&jobs, "id"), [26_515_966, 58_948_420]);
    assert_eq!(column(&jobs, "state"), ["RUNNING", "PENDING"]);
    assert_eq!(column(&jobs, "partitions"), [json!(["hw-l"]), json!(["hw-m"])]);
    assert_eq!(column(&jobs, "memory_per_cpu"), [json!(64_000), Value::Null]);
    assert_eq!(column(&jobs, "memory_per_node"), [Value::Null, json!(131_072)]);
    assert_eq!(column(&jobs, "time_limit_minutes"), [30_240, 1439]);
    assert_eq!(jobs[1]["array_tasks"], "1-10");
}

#[test]
fn jobs_as_squeue_shows_them() {
    let Some(jobs) = clean(Kind::Jobs, "squeue-format-array-elements.txt") else { return };
    assert_eq!(jobs.len(), 9);
    assert_eq!(jobs.iter().filter(|j| j["id"] == 2_653_325).count(), 4);
    assert_eq!(column(&jobs, "state"), ["RUNNING"; 9]);

    let jobs = clean(Kind::Jobs, "squeue-unitsep-invalid-timeleft.txt").unwrap();
    assert_eq!(column(&jobs, "id"), [6_779_842, 6_787_542, 6_769_365, 6_783_828]);
    assert_eq!(column(&jobs, "state"), ["RUNNING", "RUNNING", "RUNNING", "TIMEOUT"]);

    // Nothing says which of their columns is which: refused, row by row.
    for (name, rows) in [
        ("squeue-25.11-pipe-multipartition-reasons.txt", 55),
        ("squeue-comma-delimiter-ambiguous.txt", 2),
        ("squeue-hashpipe-throttled-arrays.txt", 5),
    ] {
        let value = read(Kind::Jobs, name).unwrap();
        assert_eq!(value["jobs"], json!([]), "{name}");
        assert_eq!(value["errors"].as_array().unwrap().len(), rows, "{name}");
        assert!(value["errors"][0]["what"].as_str().unwrap().starts_with("no header"), "{name}");
    }
}

#[test]
fn accounting_tables() {
    let Some(qos) = clean(Kind::Qos, "sacctmgr-qos-P-jeanzay.txt") else { return };
    assert_eq!(column(&qos, "name"), ["qos_cpu-dev", "qos_gpu-dev", "qos_cpu-t3"]);
    assert_eq!(column(&qos, "max_wall_minutes"), [120, 120, 1200]);
    assert_eq!(column(&qos, "max_cpus_per_user"), [10_240, 640, 96_000]);
    assert_eq!(column(&qos, "max_cpus_per_account"), [10_240, 640, 96_000]);
    assert_eq!(column(&qos, "max_gpus_per_user"), [Value::Null, json!(32), Value::Null]);
    assert_eq!(column(&qos, "max_submit_per_user"), [10, 10, 10_000]);
    assert_eq!(column(&qos, "max_cpus_per_job"), [Value::Null, Value::Null, json!(40_960)]);

    let value = read(Kind::Qos, "sacctmgr-qos-table-truncated-name.txt").unwrap();
    let qos = value["qos"].as_array().unwrap();
    assert_eq!(qos.len(), 11);
    let hold = qos.iter().find(|q| q["name"] == "hold").unwrap();
    let normal = qos.iter().find(|q| q["name"] == "normal").unwrap();
    assert_eq!(
        (&hold["max_jobs_per_user"], &normal["max_jobs_per_user"]),
        (&json!(0), &Value::Null)
    );
    assert!(value["errors"][0]["what"].as_str().unwrap().contains("\"longqosna+\" was cut"));

    let assoc = clean(Kind::Assoc, "sacctmgr-user-P-qos-lists.txt").unwrap();
    assert_eq!(assoc.len(), 4);
    assert_eq!(assoc[1]["qos"], json!(["normal", "lowest"]));
    assert_eq!(
        column(&assoc, "default_qos"),
        [Value::Null, json!("normal"), Value::Null, Value::Null]
    );
}

/// Every file of a kind that is read here gives records, or errors, or says
/// that there are none: nothing passes in silence.
#[test]
fn no_file_passes_in_silence() {
    let Some(dir) = folder() else { return };
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let kind = match name.split('-').next().unwrap() {
            "config" | "slurmconf" => Kind::Config,
            "node" | "sinfo" => Kind::Nodes,
            "partition" => Kind::Partitions,
            "reservation" => Kind::Reservations,
            "job" | "squeue" => Kind::Jobs,
            "json" if name.starts_with("json-nodes") => Kind::Nodes,
            "json" => Kind::Jobs,
            "sacctmgr" if name.contains("qos-") && !name.contains("user") => Kind::Qos,
            "sacctmgr" => Kind::Assoc,
            _ => continue,
        };
        let value = read(kind, &name).unwrap();
        let count = |key: &str| value[key].as_array().unwrap().len();
        assert!(
            count(kind.name()) + count("errors") > 0 || name == "reservation-none.txt",
            "{name}: {value}"
        );
        seen += 1;
    }
    assert!(seen >= 30, "{seen}");
}
