//! Nodes and partitions that are not what they seem: reserved, drained, down, asleep,
//! closed, or big enough only in one way.

use sjp_tests::{ClusterSpec, RunAs, TestCluster};

use crate::common::{
    Desk, QUICK, mark, node_row, partition_row, stop_scheduling, table, wait_placing, wait_table,
};

fn reserve(cluster: &TestCluster, words: &str) {
    let mut args = vec!["create", "reservation", "Users=root"];
    args.extend(words.split(' '));
    cluster.cmd("scontrol", &args).unwrap();
}

/// Submits and gives the reason, or "placed".
fn outcome(desk: &Desk<'_>, name: &str, options: &str) -> String {
    let args: Vec<&str> = options.split(' ').collect();
    let seen = desk.try_out(RunAs::user(1), name, &args);
    assert!(seen.answer.ok, "{seen:?}");
    if seen.answer.placed { "placed".into() } else { seen.answer.reason }
}

#[test]
fn reserved_drained_down_and_odd_nodes() {
    let cluster = ClusterSpec::new()
        .nodes("s[1-4]", 16, 64_000)
        .nodes("wide", 64, 64_000)
        .nodes("tall", 4, 512_000)
        .cloud_nodes("c[1-2]", 16, 64_000)
        .partition("slim", "s[1-4]", "Default=YES MaxTime=600 DefaultTime=60")
        .partition("odd", "wide,tall", "MaxTime=600")
        .partition("cloud", "c[1-2]", "MaxTime=600")
        .partition("shut", "s[1-4]", "State=DOWN PriorityTier=9")
        .partition("idle", "s[1-4]", "State=INACTIVE PriorityTier=9")
        .with_sjp("", "")
        .start()
        .unwrap();
    // s2 is the node for a job of 4 CPUs and 4,000 MB: free memory per CPU is the job's.
    cluster.fill_node("s2", 8, 56_000).unwrap();
    stop_scheduling(&cluster);
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    wait_placing(&cluster);
    let desk = Desk::new(&cluster);
    let lean = "-p slim -c4 --mem=4000";
    let pin = |desk: &Desk<'_>, name: &str, options: &str| {
        let args: Vec<&str> = options.split(' ').collect();
        desk.try_out(RunAs::user(1), name, &args).pin()
    };
    assert_eq!(pin(&desk, "free", &format!("{lean} -t120")), "s2");

    // Reserved as a whole: now (s1), in two hours (s2); half the cores of s3, now; s4 for
    // maintenance.
    reserve(&cluster, "ReservationName=whole StartTime=now Duration=600 Nodes=s1");
    reserve(&cluster, "ReservationName=later StartTime=now+2hours Duration=600 Nodes=s2");
    reserve(&cluster, "ReservationName=cores StartTime=now Duration=600 Nodes=s3 CoreCnt=8");
    reserve(&cluster, "ReservationName=maint StartTime=now Duration=600 Nodes=s4 Flags=MAINT");
    wait_table(&cluster, "the reservations are known", |t| {
        let later = |node: &str| node_row(t, node)["later"].is_object();
        ["s1", "s2", "s3"].iter().all(|n| later(n))
            && node_row(t, "s3")["later"]["cpus_free"] == 8
            && node_row(t, "s4")["usable"] == false
    });
    let desk = Desk::new(&cluster);
    for (name, options, wanted) in [
        ("whole", "-p slim -w s1 -c1 --mem=100 -t1", "no room"),
        ("before", "-p slim -w s2 -c1 --mem=100 -t60", "placed"),
        ("into", "-p slim -w s2 -c1 --mem=100 -t180", "no room"),
        ("half", "-p slim -w s3 -c8 --mem=100 -t60", "placed"),
        ("more", "-p slim -w s3 -c9 --mem=100 -t60", "no room"),
        ("maint", "-p slim -w s4 -c1 --mem=100 -t60", "no usable node in --nodelist"),
        // No limit: slim's DefaultTime ends before the reservation begins.
        ("default", "-p slim -w s2 -c1 --mem=100", "placed"),
    ] {
        assert_eq!(outcome(&desk, name, options), wanted, "{name}: {options}");
    }
    // s2 while the job ends before, then s3 alone, which needs no pin.
    assert_eq!(pin(&desk, "ends-before", &format!("{lean} -t60")), "s2");
    let args: Vec<String> = format!("{lean} -t180").split(' ').map(String::from).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let seen = desk.try_out(RunAs::user(1), "ends-after", &args);
    assert!(seen.words.ends_with("not pinned: one node has room"), "{seen:?}");
    for name in ["whole", "later", "cores", "maint"] {
        let name = format!("ReservationName={name}");
        cluster.cmd("scontrol", &["delete", &name]).unwrap();
    }
    wait_table(&cluster, "the reservations are gone", |t| {
        ["s1", "s2", "s3", "s4"].iter().all(|n| node_row(t, n)["later"].is_null())
            && node_row(t, "s4")["usable"] == true
    });

    // Drained and down.
    cluster.drain_node("s1").unwrap();
    cluster.down_node("s3").unwrap();
    wait_table(&cluster, "s1 and s3 are not usable", |t| {
        ["s1", "s3"].iter().all(|n| node_row(t, n)["usable"] == false)
    });
    let desk = Desk::new(&cluster);
    for node in ["s1", "s3"] {
        let options = format!("-p slim -w {node} -c1 --mem=100 -t60");
        let name = format!("gone-{node}");
        assert_eq!(outcome(&desk, &name, &options), "no usable node in --nodelist");
    }
    // Only s4 has 16 CPUs left.
    let seen = desk.try_out(RunAs::user(1), "last", &["-p", "slim", "-c16", "--mem=100", "-t60"]);
    assert!(seen.words.ends_with("not pinned: one node has room"), "{seen:?}");
    cluster.resume_node("s1").unwrap();
    cluster.resume_node("s3").unwrap();
    wait_table(&cluster, "s1 and s3 are back", |t| {
        ["s1", "s3"].iter().all(|n| node_row(t, n)["usable"] == true)
    });
    let desk = Desk::new(&cluster);

    // Powered-down cloud nodes can be used.
    assert!(cluster.node("c1").unwrap()["State"].contains("POWERED_DOWN"));
    let seen = desk.try_out(RunAs::user(1), "asleep", &["-p", "cloud", "-c4", "--mem=100", "-t60"]);
    assert!(seen.answer.placed && seen.job.partition == "cloud", "{seen:?}");

    // Closed partitions take no part, wherever they are named.
    let now = table(&cluster);
    assert_eq!(partition_row(&now, "shut")["open"], false);
    assert_eq!(partition_row(&now, "idle")["open"], false);
    assert_eq!(outcome(&desk, "shut", "-p shut -c1 --mem=100 -t60"), "no partition");
    let seen = desk.try_out(
        RunAs::user(1),
        "half-shut",
        &["-p", "shut,slim,idle", "-c4", "--mem=4000", "-t60"],
    );
    assert_eq!((seen.job.partition.as_str(), seen.pin().as_str()), ("slim", "s2"), "{seen:?}");
    assert_eq!(mark(&seen.job.admin_comment, "from"), "slim");

    // The CPUs are on one node, the memory on another.
    let big = "-c32 --mem=100000 -t60";
    let plain = cluster
        .sbatch_output(RunAs::user(1), &["-p", "odd", "-c32", "--mem=100000", "--wrap=true"])
        .unwrap();
    assert!(!plain.success(), "a node holds {big}: {plain:?}");
    let log = cluster.slurmctld_log();
    assert!(log.contains("reason=no partition name=wrap"), "no answer about {big}");
    // Both are used for what they can hold.
    assert_eq!(outcome(&desk, "wide", "-p odd -c32 --mem=30000 -t60"), "placed");
    assert_eq!(outcome(&desk, "tall", "-p odd -c2 --mem=300000 -t60"), "placed");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
