//! Never a rejection: whatever plain Slurm accepts is accepted with sjp, under each
//! EnforcePartLimits, with partitions that would refuse the job all around.

use std::collections::BTreeMap;

use sjp_tests::{ACCOUNT, ClusterSpec, RunAs, TestCluster, wait_for};

use crate::common::{QUICK, SOON, answered, mark, partition_row, submit, table, wait_placing};

/// Partitions on slim's nodes that refuse the plain job below, and are the most
/// attractive but for that: their tier is the highest. `true`: Slurm refuses a list that
/// holds it under EnforcePartLimits=ALL (some of the rest it accepts, and never runs there).
const TRAPS: &[(&str, &str, bool)] = &[
    ("time", "MaxTime=5", true),
    ("minnodes", "MinNodes=2", true),
    ("account", "AllowAccounts=physics", true),
    ("notaccount", "DenyAccounts=test", true),
    ("qos", "AllowQos=high", true),
    ("notqos", "DenyQos=normal", true),
    ("memnode", "MaxMemPerNode=3999", true),
    ("memcpu", "MaxMemPerCPU=999", false),
    ("cpus", "MaxCPUsPerNode=3", false),
    ("group", "AllowGroups=root", true),
    ("host", "AllocNodes=elsewhere", true),
    ("root", "RootOnly=YES", true),
    ("resv", "ReqResv=YES", true),
    ("gate", "QOS=gate", true),
    ("strict", "QOS=strict", true),
    ("drain", "State=DRAIN", false),
    ("inactive", "State=INACTIVE", false),
    ("down", "State=DOWN", false),
];

/// (options, the partitions it may run in; a list of them is what sjp may set)
const JOBS: &[(&str, &[&str])] = &[
    ("-c4 --mem=4000 -t10", &["slim", "fat"]),
    ("-c1 --mem=4000 -t10", &["slim", "fat", "cpus"]),
    ("-c4 --mem-per-cpu=1000 -t10", &["slim", "fat"]),
    ("-c4 --mem=4000", &["slim", "fat"]),
    ("-c4 --mem=4000 -t10 -p fat,slim", &["slim", "fat"]),
    ("-c4 --mem=4000 -t10 -p fat", &["fat"]),
    ("-c4 --mem=4000 -t5 -p time", &["time"]),
    ("-c3 --mem=4000 -t10 -p cpus", &["cpus"]),
    ("-c4 --mem=3999 -t10 -p memnode", &["memnode"]),
    ("-c4 --mem=4000 -t10 -A physics -p account", &["account"]),
    ("-c4 --mem=4000 -t10 -A physics -p account,slim", &["account", "slim"]),
    ("-c4 --mem=4000 -t10 -q high -p qos", &["qos"]),
    ("-c4 --mem=4000 -t10 -q high -p notqos,slim", &["notqos", "slim"]),
    ("-c4 --mem=4000 -t10 -w s2", &["slim"]),
    ("-c4 --mem=4000 -t10 -w f1 -p fat", &["fat"]),
    ("-c4 --mem=4000 -t10 -x s1", &["slim", "fat"]),
    ("-n4 --mem-per-cpu=1000 -t10", &["slim", "fat"]),
    ("--array=1-2 -c4 --mem=4000 -t10", &["slim", "fat"]),
    ("-c4 --mem=100000 -t10 -p slim,fat", &["fat"]),
];

fn set_enforcement(cluster: &TestCluster, traps: &str, how: &str) {
    let conf = std::fs::read_to_string(cluster.conf_path()).unwrap();
    let kept = conf.lines().filter(|l| {
        !l.starts_with("EnforcePartLimits=")
            && !TRAPS.iter().any(|(t, ..)| l.starts_with(&format!("PartitionName={t} ")))
    });
    let kept: String = kept.map(|l| format!("{l}\n")).collect();
    cluster.write("slurm.conf", &format!("{kept}EnforcePartLimits={how}\n{traps}")).unwrap();
    cluster.reconfigure().unwrap();
    wait_for(SOON, "EnforcePartLimits is in force", || {
        let config = cluster.cmd("scontrol", &["show", "config"])?;
        let line = config.lines().find(|l| l.starts_with("EnforcePartLimits")).unwrap_or("");
        Ok(if line.ends_with(&format!("= {how}")) { Ok(()) } else { Err(line.to_string()) })
    })
    .unwrap();
}

/// `sbatch`: the job id, or what it said.
fn sbatch(cluster: &TestCluster, user: RunAs, name: &str, options: &str) -> Result<u32, String> {
    let name = format!("--job-name={name}");
    let mut args = vec![name.as_str(), "--output=/dev/null", "--wrap=sleep 1000"];
    args.splice(2..2, options.split(' '));
    let out = cluster.sbatch_output(user, &args).unwrap();
    match out.stdout.trim().parse() {
        Ok(id) if out.success() => Ok(id),
        _ => Err(out.stderr),
    }
}

fn cancel(cluster: &TestCluster, id: u32) {
    cluster.cmd("scancel", &[&id.to_string()]).unwrap();
}

/// Runs every job without sjp, then with it.
fn compare(cluster: &TestCluster, user: RunAs, jobs: &[(&str, &[&str])], round: &str) {
    let disable = cluster.dir().join("disable");
    let mut accepted = 0;
    for (i, (options, allowed)) in jobs.iter().enumerate() {
        std::fs::write(&disable, "").unwrap();
        let plain = sbatch(cluster, user, &format!("{round}-{i}-off"), options);
        std::fs::remove_file(&disable).unwrap();
        if let Ok(id) = plain {
            cancel(cluster, id);
            accepted += 1;
        }
        let name = format!("{round}-{i}");
        let with = sbatch(cluster, user, &name, options);
        let what = format!("{round}: {options}: without sjp {plain:?}, with it {with:?}");
        if plain.is_err() {
            with.map(|id| cancel(cluster, id)).unwrap_or_default();
            continue;
        }
        let id = with.unwrap_or_else(|_| panic!("{what}"));
        let (answer, words) = answered(cluster, &name);
        assert!(answer.ok && answer.placed, "{what}: {answer:?}");
        let jobs = cluster.jobs().unwrap();
        let job = jobs.iter().find(|j| j.name == name).unwrap();
        let comment = &job.admin_comment;
        let set = mark(comment, "placed") + &mark(comment, "from");
        assert!(!set.is_empty(), "{what}: {job:?}");
        for partition in set.split(',') {
            assert!(allowed.contains(&partition), "{what}: {comment} {words}");
        }
        // An array's tasks have ids of their own.
        let started = wait_for(SOON, &format!("{what} starts"), || {
            let jobs = cluster.jobs()?;
            let found = jobs.into_iter().find(|j| j.name == name && j.has_nodes());
            Ok(found.ok_or_else(|| cluster.cmd("squeue", &[]).unwrap_or_default()))
        })
        .unwrap();
        assert!(allowed.contains(&started.partition.as_str()), "{what}: {started:?}");
        let pin = mark(comment, "pin");
        assert!(pin.is_empty() || pin == started.nodes, "{what}: {comment}: {}", started.nodes);
        cancel(cluster, id);
    }
    assert!(accepted > 0, "{round}: plain Slurm accepts none of the jobs");
}

fn sacctmgr(cluster: &TestCluster, args: &str) {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap();
}

#[test]
fn what_slurm_accepts_is_accepted() {
    let cluster = ClusterSpec::new()
        .nodes("s[1-2]", 128, 512_000)
        .nodes("f1", 128, 2_048_000)
        .partition("slim", "s[1-2]", "Default=YES MaxTime=600 DefaultTime=60")
        .partition("fat", "f1", "MaxTime=600 DefaultTime=60")
        .with_accounting("associations,limits,qos")
        .with_sjp("", "")
        .start()
        .unwrap();
    for args in [
        "add qos high,gate,strict,capped",
        "modify qos capped set MaxTRESPerUser=cpu=4",
        "modify qos gate set MaxSubmitJobsPerUser=1",
        "modify qos strict set Flags=DenyOnLimit MaxTRESPerJob=cpu=1",
        "add account physics",
        "add user sjpt1 account=physics",
        "modify user sjpt1 set qos+=high,capped",
    ] {
        sacctmgr(&cluster, args);
    }
    // sjpt2 is bound to partitions; sjpt3 has one such association beside a general one.
    for args in [
        "add account bound",
        "add user sjpt2 account=bound partitions=slim,fat",
        "modify user sjpt2 set defaultaccount=bound",
        "delete user sjpt2 account=test",
        "add user sjpt3 account=test partitions=slim",
    ] {
        sacctmgr(&cluster, args);
    }
    let shown = cluster.cmd("sacctmgr", &["-nP", "show", "assoc", "format=account,user,partition"]);
    let shown = shown.unwrap();
    assert!(shown.contains("bound|sjpt2|slim") && shown.contains("bound|sjpt2|fat"), "{shown}");
    assert!(!shown.contains(&format!("{ACCOUNT}|sjpt2|")), "{shown}");
    assert!(shown.contains(&format!("{ACCOUNT}|sjpt3|slim")), "{shown}");

    let traps: String = TRAPS
        .iter()
        .map(|(name, attributes, _)| {
            let state = if attributes.contains("State=") { "" } else { "State=UP " };
            let time = if attributes.contains("MaxTime=") { "" } else { "MaxTime=600 " };
            format!("PartitionName={name} Nodes=s[1-2] PriorityTier=9 {state}{time}{attributes}\n")
        })
        .collect();
    set_enforcement(&cluster, &traps, "ALL");
    let (first, second, third) = (RunAs::user(1), RunAs::user(2), RunAs::user(3));

    // The traps are traps: an id instead of a refusal would make the test prove nothing.
    let waits = sbatch(&cluster, first, "in-gate", "-H -c1 --mem=10 -t10 -p gate").unwrap();
    let mut others = Vec::new();
    for (trap, _, refuses) in TRAPS {
        let options = format!("{} -p slim,{trap}", JOBS[0].0);
        let outcome = sbatch(&cluster, first, "trapped", &options);
        if *refuses && outcome.is_ok() {
            others.push(format!("{trap}: {outcome:?}"));
        }
        outcome.map(|id| cancel(&cluster, id)).unwrap_or_default();
    }
    assert!(others.is_empty(), "not what Slurm does: {others:?}");
    for user in [second, third] {
        let outcome = sbatch(&cluster, user, "trapped", "-c4 --mem=4000 -t10 -p slim,fat");
        assert!(outcome.is_err(), "{user:?}: {outcome:?}");
    }

    let sjpd = cluster.start_sjpd(&format!("{QUICK}qos_poll_interval = 1.0\n")).unwrap();
    let open = table(&cluster);
    for (trap, attributes, _) in TRAPS {
        let closed = ["State=", "RootOnly", "ReqResv", "MinNodes"];
        let closed = closed.iter().any(|word| attributes.starts_with(word));
        assert_eq!(partition_row(&open, trap)["open"], !closed, "{trap}: {open}");
    }
    for how in ["ALL", "ANY", "NO"] {
        set_enforcement(&cluster, &traps, how);
        wait_placing(&cluster);
        compare(&cluster, first, JOBS, how);
        compare(&cluster, second, BOUND, &format!("{how}-bound"));
        compare(&cluster, third, BOUND, &format!("{how}-both"));
    }
    cancel(&cluster, waits);
    not_pinned(&cluster, first);
    let left: BTreeMap<u32, String> = cluster
        .jobs()
        .unwrap()
        .into_iter()
        .filter(|j| j.pending())
        .map(|j| (j.id, j.name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// At the cap of the QOS, and without any memory to size by.
fn not_pinned(cluster: &TestCluster, user: RunAs) {
    let words = |name: &str, options: &str| {
        let args: Vec<&str> = options.split(' ').collect();
        let seen = submit(cluster, user, name, &args);
        assert!(seen.answer.placed, "{seen:?}");
        let why = seen.words.split_once("not pinned: ").map_or("pinned", |(_, why)| why);
        assert_eq!(why == "pinned", !seen.pin().is_empty(), "{seen:?}");
        (seen.job.id, why.to_string())
    };
    let capped = "-q capped -c4 --mem=4000 -t10 -p slim";
    let (runs, why) = words("cap-free", capped);
    assert_ne!(why, "user at the CPU cap of the QOS");
    cluster.wait_started(runs).unwrap();
    // sjpd reads the use of QOS every second here.
    let mut tries = 0;
    let waits = wait_for(SOON, "the cap counts", || {
        tries += 1;
        let (id, why) = words(&format!("cap-full{tries}"), capped);
        if why == "user at the CPU cap of the QOS" {
            return Ok(Ok(id));
        }
        cancel(cluster, id);
        Ok(Err(why))
    })
    .unwrap();
    let (other, why) = words("cap-other", "-c4 --mem=4000 -t10 -p slim");
    assert_ne!(why, "user at the CPU cap of the QOS");
    let (unknown, why) = words("cap-unknown", "-c4 -t10 -p slim");
    assert_eq!(why, "memory unknown");
    for id in [runs, waits, other, unknown] {
        cancel(cluster, id);
    }
}

/// Jobs of users with an association for a partition: any list of two is refused, so one
/// partition is what they may get.
const BOUND: &[(&str, &[&str])] = &[
    // On empty nodes .670 in slim, .913 in fat: within tolerance, were it allowed.
    ("-c1 --mem=4000 -t10", &["slim", "fat", "cpus"]),
    ("-c1 --mem=4000 -t10 -p slim", &["slim"]),
    ("-c1 --mem=4000 -t10 -p fat", &["fat"]),
    ("-n2 --mem-per-cpu=4000 -t10", &["slim", "fat", "cpus"]),
    ("-c8 --mem=128000 -t10 -p fat", &["fat"]),
];
