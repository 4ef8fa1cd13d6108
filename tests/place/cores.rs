//! CPUs and memory as Slurm counts them, under each SelectTypeParameters: what sjp claims
//! for a job is what the job takes on its node.

use sjp_tests::{ClusterSpec, NodeSpec, RunAs, TestCluster, wait_for};

use crate::common::{QUICK, SOON, mark, node_row, submit, table, wait_placing, wait_table};

fn select(cluster: &TestCluster, parameters: &str) {
    let conf = std::fs::read_to_string(cluster.conf_path()).unwrap();
    let lines = conf.lines().filter(|l| !l.starts_with("SelectTypeParameters="));
    let conf: String = lines.map(|l| format!("{l}\n")).collect();
    cluster.write("slurm.conf", &format!("{conf}SelectTypeParameters={parameters}\n")).unwrap();
    cluster.restart_slurmctld().unwrap();
    cluster.wait_all_usable().unwrap();
}

/// CPUs and MB allocated on a node.
fn allocated(cluster: &TestCluster, node: &str) -> (u64, u64) {
    let node = cluster.node(node).unwrap();
    let number = |key: &str| node[key].parse().unwrap();
    (number("CPUAlloc"), number("AllocMem"))
}

/// Options, and the CPUs and MB that the job takes.
type Takes = (&'static str, u64, u64);

/// Runs jobs one by one on an empty cluster.
fn check(cluster: &TestCluster, parameters: &str, jobs: &[Takes]) {
    select(cluster, parameters);
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    wait_placing(cluster);
    let managed = parameters.contains("Memory");
    for (i, (options, cpus, mem)) in jobs.iter().enumerate() {
        wait_table(cluster, "the nodes are empty", |t| {
            let rows = t["nodes"].as_array().unwrap();
            rows.iter().all(|r| r["cpus_free"] == 16 && r["promised"].is_null())
        });
        let mut args: Vec<&str> = options.split(' ').collect();
        if !args.contains(&"-p") {
            args.extend(["-p", "all"]);
        }
        let name = format!("{parameters}{i}");
        let seen = submit(cluster, RunAs::user(1), &name, &args);
        let what = format!("{parameters} {options}: {seen:?}");
        assert!(seen.answer.placed, "{what}");
        let claimed = mark(&seen.job.admin_comment, "job");
        let job = cluster.wait_started(seen.job.id).unwrap();
        assert_eq!(allocated(cluster, &job.nodes), (*cpus, *mem), "{what}");
        assert!(claimed.starts_with(&format!("{cpus}c")), "{what}");
        wait_table(cluster, "the table shows the same", |t| {
            let row = node_row(t, &job.nodes);
            let free = if managed { (64_000 - mem).into() } else { serde_json::Value::Null };
            row["cpus_free"] == 16 - cpus && row["mem_free_mb"] == free
        });
        cluster.cancel_all().unwrap();
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
}

#[test]
fn cores_threads_and_memory_are_counted_as_slurm_does() {
    let cluster = ClusterSpec::new()
        .node_spec(NodeSpec::new("n[1-2]", 16, 64_000).threads_per_core(2))
        .partition("all", "n[1-2]", "Default=YES MaxTime=600")
        .node_spec(
            NodeSpec::new("h1", 16, 64_000)
                .threads_per_core(2)
                .sockets(1)
                .attribute("CoresPerSocket=16"),
        )
        .partition("one", "h1", "MaxTime=600")
        .node_spec(NodeSpec::new("b1", 16, 256_000).threads_per_core(2))
        .partition("big", "b1", "MaxTime=600")
        .select_parameters("CR_Core_Memory")
        .with_sjp("", "")
        .start()
        .unwrap();
    // Whole cores of two threads; memory by the CPUs that are allocated.
    check(
        &cluster,
        "CR_Core_Memory",
        &[
            ("-c1 --mem=1000 -t5", 2, 1000),
            ("-c3 --mem=1000 -t5", 4, 1000),
            ("-c3 --mem-per-cpu=1000 -t5", 4, 4000),
            ("-c4 --mem-per-cpu=1000 -t5", 4, 4000),
            ("-n3 -N1 --mem=500 -t5", 4, 500),
            // As many CPUs as cores, whatever threads these have: each core is one.
            ("-p one -c1 --mem=1000 -t5", 1, 1000),
            ("-p one -c3 --mem-per-cpu=1000 -t5", 3, 3000),
        ],
    );
    check(
        &cluster,
        "CR_CPU_Memory",
        &[
            ("-c1 --mem=1000 -t5", 2, 1000),
            ("-c3 --mem-per-cpu=1000 -t5", 4, 3000),
            ("-n3 -N1 --mem=500 -t5", 4, 500),
        ],
    );
    // Memory is not handed out: two jobs may use the same.
    check(&cluster, "CR_Core", &[("-c3 --mem=60000 -t5", 4, 0)]);
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    wait_placing(&cluster);
    // And yet no job runs where no node has its memory: a list of such partitions alone
    // would be refused. one's node takes 1 CPU for it, big's takes 2.
    let large = ["-c1", "--mem=100000", "-t5", "-p"];
    let disable = cluster.dir().join("disable");
    std::fs::write(&disable, "").unwrap();
    for (partitions, accepted) in [("one", false), ("one,big", true)] {
        let args: Vec<&str> = large.iter().copied().chain([partitions, "--wrap=true"]).collect();
        let plain = cluster.sbatch_output(RunAs::user(1), &args).unwrap();
        assert_eq!(plain.success(), accepted, "{plain:?}");
    }
    std::fs::remove_file(&disable).unwrap();
    let args: Vec<&str> = large.iter().copied().chain(["one,big"]).collect();
    let seen = submit(&cluster, RunAs::user(1), "large", &args);
    assert!(seen.answer.placed, "{seen:?}");
    assert_eq!(cluster.wait_started(seen.job.id).unwrap().nodes, "b1");
    for i in 0..2 {
        let name = format!("shared{i}");
        let args = ["-w", "n2", "-c3", "--mem=60000", "-t5"];
        let seen = submit(&cluster, RunAs::user(1), &name, &args);
        assert!(seen.answer.placed, "{seen:?}");
        assert_eq!(cluster.wait_started(seen.job.id).unwrap().nodes, "n2");
    }
    wait_for(SOON, "both are in the table", || {
        let now = table(&cluster);
        let row = node_row(&now, "n2");
        Ok(if row["cpus_free"] == 8 { Ok(()) } else { Err(row.to_string()) })
    })
    .unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
