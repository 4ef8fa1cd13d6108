//! Each reason to leave a job alone, and each not to pin one, by real submissions: what
//! `place` answers, and that the fields stay as they came.

use sjp_tests::{ClusterSpec, NodeSpec, RunAs, Signal, Sjpd, TestCluster, wait_for};

use crate::common::{QUICK, SOON, Seen, answered, node_row, submit, wait_table};

/// Keeps the fields before `place`, and writes those that differ after it to the log.
/// Jobs named `site...` come with an AdminComment of the site's.
const BEFORE: &str = r#"
    if string.match(job_desc.name or "", "^site") then
        job_desc.admin_comment = "site rule 7"
    end
    local fields = { "partition", "req_nodes", "exc_nodes", "admin_comment", "min_cpus",
        "min_nodes", "max_nodes", "time_limit", "priority", "features", "comment", "qos",
        "account", "reservation", "shared", "dependency", "begin_time", "num_tasks" }
    local old = {}
    for _, field in ipairs(fields) do old[field] = job_desc[field] end
"#;
const AFTER: &str = r#"
    local changed = {}
    for _, field in ipairs(fields) do
        if job_desc[field] ~= old[field] then changed[#changed + 1] = field end
    end
    slurm.log_info("sjp-test: changed %s name=%s", table.concat(changed, ","),
        tostring(job_desc.name))
"#;

/// The fields that `place` changed for the job of this name.
fn changed(cluster: &TestCluster, name: &str) -> String {
    let end = format!(" name={name}");
    wait_for(SOON, "the changed fields are logged", || {
        let log = cluster.slurmctld_log();
        let line = log.lines().rev().filter_map(|l| l.split_once("sjp-test: changed "));
        let mut found = line.filter_map(|(_, l)| l.strip_suffix(end.as_str()));
        Ok(found.next().map(str::to_string).ok_or("nothing"))
    })
    .unwrap()
}

/// Everything of a record that a user would miss.
fn plain(seen: &Seen) -> (String, String, String) {
    let job = &seen.job;
    (job.partition.clone(), job.required_nodes.clone(), job.excluded_nodes.clone())
}

fn cluster() -> TestCluster {
    ClusterSpec::new()
        .node_spec(NodeSpec::new("s[1-2]", 8, 32_000).features("fast"))
        .nodes("f1", 8, 128_000)
        .node_spec(NodeSpec::cloud("g1", 8, 32_000).gres("gpu:2"))
        .partition("slim", "s[1-2]", "Default=YES MaxTime=600 DefaultTime=60")
        .partition("fat", "f1,g1", "MaxTime=600 DefaultTime=60")
        .with_sjp(BEFORE, AFTER)
        .start()
        .unwrap()
}

/// Sends SIGHUP with other settings, and waits until the table has them.
fn reload(cluster: &TestCluster, sjpd: &mut Sjpd, overrides: &str, mode: &str) {
    cluster.write_sjp_toml(overrides).unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
    wait_table(cluster, &format!("mode {mode}"), |t| t["mode"] == mode);
}

/// (name, reason, options)
const ABOUT_THE_JOB: &[(&str, &str, &str)] = &[
    ("gpu", "gpu", "--gres=gpu:1 -p fat"),
    ("gpus", "gpu", "--gpus-per-task=1 -n1 -p fat"),
    ("feature", "constraint", "-C fast"),
    ("contiguous", "constraint", "--contiguous"),
    ("cores", "constraint", "--cores-per-socket=1"),
    ("wide", "multi-node", "-N2 -c1"),
    ("spread", "multi-node", "-n4 --ntasks-per-node=2"),
    ("named", "multi-node", "-N2 -w s1,s2"),
    ("allmem", "no memory", "--mem=0"),
    ("long", "no partition", "-t 601"),
    ("reserved", "reservation", "--reservation=ours"),
    ("drained", "no usable node in --nodelist", "-w f1 -p fat"),
    ("hidden", "no usable node in --nodelist", "-w f[1] -p fat"),
];

#[test]
fn each_reason_leaves_the_job_as_it_came() {
    let cluster = cluster();
    let user = RunAs::user(1);
    cluster
        .cmd(
            "scontrol",
            &[
                "create",
                "reservation",
                "ReservationName=ours",
                "StartTime=now",
                "Duration=1000",
                "Users=sjpt1",
                "Nodes=g1",
                "Partition=fat",
            ],
        )
        .unwrap();
    cluster.drain_node("f1").unwrap();
    let mut sjpd = cluster.start_sjpd(QUICK).unwrap();
    wait_table(&cluster, "f1 is not usable", |t| node_row(t, "f1")["usable"] == false);

    for (name, reason, options) in ABOUT_THE_JOB {
        let args: Vec<&str> = std::iter::once("-H").chain(options.split(' ')).collect();
        // Without sjp first, for what the fields must be.
        let disable = cluster.dir().join("disable");
        std::fs::write(&disable, "").unwrap();
        let without = submit(&cluster, user, &format!("{name}-off"), &args);
        assert_eq!(without.answer.reason, "disabled", "{without:?}");
        assert_eq!(changed(&cluster, &format!("{name}-off")), "");
        assert_eq!(without.job.admin_comment, "");
        std::fs::remove_file(&disable).unwrap();

        let seen = submit(&cluster, user, name, &args);
        assert!(seen.answer.ok && !seen.answer.placed, "{seen:?}");
        assert_eq!(seen.answer.reason, *reason, "{seen:?}");
        assert_eq!(changed(&cluster, name), "admin_comment", "{seen:?}");
        assert_eq!(seen.job.admin_comment, format!("sjp:skipped={reason}"), "{seen:?}");
        assert_eq!(plain(&seen), plain(&without), "{seen:?} {without:?}");

        let site = format!("site-{name}");
        let seen = submit(&cluster, user, &site, &args);
        assert_eq!((seen.answer.reason.as_str(), changed(&cluster, &site).as_str()), (*reason, ""));
        assert_eq!(seen.job.admin_comment, "site rule 7");
    }
    cluster.resume_node("f1").unwrap();
    wait_table(&cluster, "f1 is back", |t| node_row(t, "f1")["usable"] == true);

    // Neither srun nor salloc.
    let out = cluster.srun(user, &["-J", "by-srun", "-c1", "--mem=10", "hostname"]).unwrap();
    assert!(out.success(), "{out:?}");
    let id = cluster.salloc(user, &["-J", "by-salloc", "-c1", "--mem=10"]).unwrap();
    for name in ["by-srun", "by-salloc"] {
        assert_eq!(answered(&cluster, name).0.reason, "not batch");
        assert_eq!(changed(&cluster, name), "admin_comment");
    }
    assert_eq!(cluster.job(id).unwrap().admin_comment, "sjp:skipped=not batch");

    // Components of a heterogeneous job.
    let script = "#!/bin/sh\n#SBATCH -J het -H -n1 --mem=10 -o /dev/null\n#SBATCH hetjob\n\
                  #SBATCH -n1 --mem=10 -p fat\nsleep 1000\n";
    let id = cluster.sbatch_script(user, &[], script).unwrap();
    let parts: Vec<_> = cluster.jobs().unwrap().into_iter().filter(|j| j.name == "het").collect();
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert!(parts.iter().any(|j| j.id == id));
    for part in parts {
        assert_eq!(part.admin_comment, "sjp:skipped=het job", "{part:?}");
    }

    cluster.cancel_all().unwrap();
    about_sjp(&cluster, &mut sjpd, user);
    cluster.stop().unwrap();
}

/// The reasons that are about sjp, and one that is about the cluster.
fn about_sjp(cluster: &TestCluster, sjpd: &mut Sjpd, user: RunAs) {
    let lean: &[&str] = &["-H", "-c1", "--mem=1000", "-t60"];
    let untouched = |name: &str, reason: &str| {
        let seen = submit(cluster, user, name, lean);
        assert!(seen.answer.ok && !seen.answer.placed, "{seen:?}");
        assert_eq!(seen.answer.reason, reason, "{seen:?}");
        assert_eq!(changed(cluster, name), "", "{seen:?}");
        assert_eq!(
            (seen.job.admin_comment.as_str(), seen.job.partition.as_str()),
            ("", "slim"),
            "{seen:?}"
        );
    };

    // No node has room.
    let full: Vec<u32> =
        ["s1", "s2", "f1"].map(|node| cluster.fill_node(node, 8, 1000).unwrap()).into();
    wait_table(cluster, "every node is full", |t| {
        ["s1", "s2", "f1"].iter().all(|n| node_row(t, n)["cpus_free"] == 0)
    });
    let seen = submit(cluster, user, "full", lean);
    assert_eq!(seen.answer.reason, "no room");
    assert_eq!(changed(cluster, "full"), "admin_comment");
    assert_eq!(seen.job.admin_comment, "sjp:skipped=no room");
    let ids: Vec<String> = full.iter().map(u32::to_string).collect();
    cluster.cmd("scancel", &ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    wait_table(cluster, "every node is free", |t| {
        ["s1", "s2", "f1"].iter().all(|n| node_row(t, n)["cpus_free"] == 8)
    });

    // The site's text stays in front of the mark.
    let seen = submit(cluster, user, "site-placed", lean);
    assert!(seen.answer.placed, "{seen:?}");
    assert!(seen.job.admin_comment.starts_with("site rule 7 sjp:placed=slim;job=1c,"), "{seen:?}");
    assert_eq!(changed(cluster, "site-placed"), "partition,admin_comment");

    // Modes.
    reload(cluster, sjpd, &format!("general.mode = \"observe\"\n{QUICK}"), "observe");
    untouched("observed", "observe");
    reload(cluster, sjpd, &format!("general.mode = \"advise\"\n{QUICK}"), "advise");
    let seen = submit(cluster, user, "advised-no", &["-H", "--mem=0"]);
    assert_eq!(seen.job.admin_comment, "sjp:skipped=no memory", "{seen:?}");

    // No native module for this Lua: the file is away when the script is loaded again.
    let modules = cluster.dir().join("sjp");
    let away = cluster.dir().join("sjp-away");
    std::fs::create_dir(&away).unwrap();
    for entry in std::fs::read_dir(&modules).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "sjp.lua" {
            std::fs::rename(entry.path(), away.join(entry.file_name())).unwrap();
        }
    }
    cluster.touch_job_submit().unwrap();
    untouched("modules-away", "no native module");
    for entry in std::fs::read_dir(&away).unwrap() {
        let entry = entry.unwrap();
        std::fs::rename(entry.path(), modules.join(entry.file_name())).unwrap();
    }
    cluster.touch_job_submit().unwrap();
    assert!(submit(cluster, user, "modules-back", lean).answer.placed);

    // sjpd hangs, then goes.
    reload(cluster, sjpd, &format!("pin.max_age = 1.5\n{QUICK}"), "enforce");
    sjpd.signal(Signal::SIGSTOP).unwrap();
    let mut tries = 0;
    wait_for(SOON, "the node data is too old", || {
        tries += 1;
        let seen = submit(cluster, user, &format!("aging{tries}"), lean);
        Ok(if seen.answer.reason == "stale" { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
    untouched("stale", "stale");
    sjpd.signal(Signal::SIGCONT).unwrap();
    wait_for(SOON, "the node data is young again", || {
        tries += 1;
        let seen = submit(cluster, user, &format!("aging{tries}"), lean);
        Ok(if seen.answer.placed { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
    sjpd.signal(Signal::SIGTERM).unwrap();
    assert_eq!(sjpd.wait().unwrap(), 0);
    untouched("alone", "no table");
}
