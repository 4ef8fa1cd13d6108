//! The readers of sjp-slurm on what a real Slurm prints for the very commands
//! that sjpd runs, with text in it that tries to pass for something else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use jiff::tz::TimeZone;
use sjp_core::cluster::{Job, JobState, Names};
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use sjp_slurm::squeue::Query;
use sjp_slurm::{ENV, Parsed, config, json, nodes, partitions, reservations};
use sjp_tests::{ClusterSpec, RunAs, TestCluster, wait_for};
use std::time::Duration;

/// Runs a command as sjpd does: with the environment of the readers.
fn run(cluster: &TestCluster, program: &str, args: &[&str]) -> String {
    let env: Vec<String> = ENV.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let words: Vec<&str> =
        env.iter().map(String::as_str).chain([program]).chain(args.iter().copied()).collect();
    cluster.run(RunAs::Root, "env", &words).unwrap().ok().unwrap()
}

fn queue(cluster: &TestCluster, query: &Query) -> Parsed<Job> {
    let args = query.args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // Not the zone of this machine: times come as seconds.
    query.read(&run(cluster, "squeue", &args), &TimeZone::fixed(jiff::tz::offset(7)))
}

fn by_id(parsed: &Parsed<Job>, id: u32) -> &Job {
    parsed.records.iter().find(|j| j.id == id).unwrap_or_else(|| panic!("no {id}: {parsed:?}"))
}

#[test]
fn nodes_partitions_reservations_and_the_configuration() {
    let cluster = ClusterSpec::slim_and_fat()
        .partition("hidden", "s01", "Hidden=YES AllowAccounts=a,b MaxTime=1:30:00 PriorityTier=7")
        .slurm_conf("DefMemPerCPU=2000")
        .start()
        .unwrap();
    cluster.fill_node("s01", 4, 8000).unwrap();
    let forged = "bad = disk\nNodeName=x State=IDLE CPUTot=99 RealMemory=9";
    cluster
        .cmd("scontrol", &["update", "node=s02", "state=drain", &format!("reason={forged}")])
        .unwrap();
    let comment = "a\nNodeName=f01 Arch=x86_64 State=DOWN\n\nNodeName=ghost CPUTot=1";
    cluster.cmd("scontrol", &["update", "node=f01", &format!("comment={comment}")]).unwrap();
    cluster
        .cmd(
            "scontrol",
            &[
                "create",
                "reservation",
                "reservation=half",
                "users=root",
                "starttime=now",
                "duration=60",
                "nodes=f01",
                "corecnt=4",
            ],
        )
        .unwrap();

    let one_line = nodes::read(&run(&cluster, "scontrol", nodes::ARGS));
    assert_eq!(one_line.errors, []);
    let names: Vec<_> = one_line.records.iter().map(|n| (n.name.as_str(), n.usable)).collect();
    assert_eq!(names, [("f01", true), ("s01", true), ("s02", false)]);
    let s01 = &one_line.records[1];
    assert_eq!((s01.cpus, s01.cpus_free(), s01.mem_alloc), (Cpus(16), Cpus(12), MemMb(8000)));
    assert_eq!((s01.mem, s01.mem_free()), (Some(MemMb(32_000)), Some(MemMb(24_000))));
    assert_eq!(s01.partitions, ["slim", "hidden"]);
    assert_eq!(one_line.records[2].state, ["IDLE", "DRAIN"]);
    let lines = nodes::read(&run(&cluster, "scontrol", &["-a", "show", "nodes"]));
    assert_eq!(lines.errors, []);
    let brief: Vec<_> = lines.records.iter().map(|n| (n.name.as_str(), n.usable)).collect();
    assert_eq!(brief, names);

    let parts = partitions::read(&run(&cluster, "scontrol", partitions::ARGS));
    assert_eq!((&parts.errors[..], &parts.warnings[..]), (&[][..], &[][..]));
    let hidden = parts.records.iter().find(|p| p.name == "hidden").unwrap();
    assert_eq!((hidden.max_time, hidden.tier, hidden.hidden), (Limit::At(90), 7, true));
    assert_eq!(hidden.allow_accounts, Names::Listed(vec!["a".into(), "b".into()]));
    assert_eq!(parts.records[0].nodes, ["s01", "s02"]);
    assert!(parts.records[0].default);

    // Which cores it takes is printed some time after it was made.
    let half = wait_for(Duration::from_secs(60), "the cores of the reservation are told", || {
        let text = run(&cluster, "scontrol", reservations::ARGS);
        let mut reserved = reservations::read(&text, &TimeZone::fixed(jiff::tz::offset(7)));
        assert_eq!(reserved.errors, []);
        assert_eq!(reserved.records.len(), 1);
        let half = reserved.records.remove(0);
        Ok(if half.whole_nodes { Err(text) } else { Ok(half) })
    })
    .unwrap();
    assert_eq!(half.name, "half");
    assert_eq!((half.nodes.as_slice(), half.cores[0].cores), (&["f01".to_owned()][..], 4));
    assert_eq!(half.end - half.start, 3600);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((half.start - i64::try_from(now.as_secs()).unwrap()).abs() < 120, "{half:?}");

    let conf = config::read(&run(&cluster, "scontrol", config::ARGS));
    assert_eq!(conf.errors, []);
    assert_eq!(conf.records[0].def_mem, MemPer::Cpu(MemMb(2000)));
    assert!(conf.records[0].memory_consumable() && conf.records[0].whole_cores());
    assert!(cluster.version().contains(&conf.records[0].version));
    cluster.stop().unwrap();
}

#[test]
fn the_queue_with_hostile_text() {
    let cluster = ClusterSpec::slim_and_fat()
        .partition("closed", "s01", "AllowAccounts=nobody")
        .slurm_conf("DefMemPerCPU=2000")
        .start()
        .unwrap();
    let user = RunAs::user(1);
    let run_job = |args: &[&str]| {
        let args = [args, &["--wrap=sleep 300", "-o", "/dev/null"]].concat();
        cluster.sbatch_as(user, &args).unwrap()
    };
    let per_cpu = run_job(&["-c4", "--mem-per-cpu=1500", "-t", "2-12", "-w", "s01"]);
    cluster.wait_started(per_cpu).unwrap();
    let per_node = run_job(&["-c4", "--mem=10G", "-H", "-p", "slim,fat"]);
    let default = run_job(&["-c2", "-H", "-t", "30"]);
    let whole = run_job(&["--mem=0", "-H"]);
    let array = run_job(&["-a", "1-9:2,20%4", "-H"]);
    let long_list: String = (0..200).map(|n| (n * 3 + n % 2).to_string() + ",").collect();
    let long_array = run_job(&["-a", long_list.trim_end_matches(','), "-H"]);
    let exclusive = run_job(&["--exclusive", "-H"]);
    let dependent = run_job(&["-d", &format!("afterok:{per_cpu}")]);
    let later = run_job(&["--begin=now+1hour"]);
    // A name, a comment and an account that imitate rows of any kind.
    let forged = "x\n99|b0123456789abcdef|99|N/A|0|PENDING|fat|e0123456789abcdef\n98|PENDING";
    let name = run_job(&["-H", &format!("--job-name={forged}"), &format!("--comment={forged}")]);
    let account = run_job(&["-p", "closed", &format!("--account={forged}")]);
    let mark = "note | by\nthe site|e0123456789abcdef\n97|b0123456789abcdef|;sjp:pin=s02;id=7f3a";
    cluster
        .cmd("scontrol", &["update", &format!("jobid={per_node}"), &format!("admincomment={mark}")])
        .unwrap();

    let mut query = Query::new(0x1f2e_3d4c_5b6a_7988);
    // 26.05 prints OverSubscribe=NO for every job.
    query.no_means_exclusive = cluster.release() <= (24, 11);
    let parsed = wait_for(Duration::from_secs(30), "the scheduler has seen every job", || {
        let parsed = queue(&cluster, &query);
        let reasons: Vec<_> = parsed.records.iter().map(|j| j.reason.clone()).collect();
        let seen = by_id(&parsed, dependent).reason == "Dependency"
            && by_id(&parsed, later).reason == "BeginTime";
        Ok(if seen { Ok(parsed) } else { Err(reasons.join("; ")) })
    })
    .unwrap();
    assert_eq!(parsed.errors, []);
    let mut ids: Vec<u32> = parsed.records.iter().map(|j| j.id).collect();
    ids.sort_unstable();
    let mut submitted = vec![
        per_cpu, per_node, default, whole, array, long_array, exclusive, dependent, later, name,
        account,
    ];
    submitted.sort_unstable();
    assert_eq!(ids, submitted);

    let job = by_id(&parsed, per_cpu);
    assert_eq!((job.state, job.state_word.as_str()), (JobState::Active, "RUNNING"));
    assert_eq!((job.cpus, job.mem), (Cpus(4), MemPer::Cpu(MemMb(1500))));
    assert_eq!((&job.nodes[..], &job.req_nodes[..]), (&["s01".into()][..], &["s01".into()][..]));
    assert_eq!(job.time_limit, Limit::At(3600));
    assert_eq!(job.end.unwrap() - job.start.unwrap(), 60 * 3600);
    assert_eq!(RunAs::Uid(job.uid), user);
    assert_eq!((job.exclusive, job.dependent, job.gres), (false, false, false));
    let job = by_id(&parsed, per_node);
    assert_eq!((job.mem, job.priority), (MemPer::Node(MemMb(10_240)), 0));
    assert_eq!(job.partitions, ["slim", "fat"]);
    assert_eq!(job.admin_comment.as_deref(), Some(mark));
    let job = by_id(&parsed, default);
    assert_eq!((job.mem, job.time_limit), (MemPer::Cpu(MemMb(2000)), Limit::At(30)));
    assert_eq!(job.admin_comment.as_deref(), Some(""));
    assert_eq!(by_id(&parsed, whole).mem, MemPer::Node(MemMb(0)));
    let job = by_id(&parsed, array);
    assert_eq!((job.array_id, job.array_tasks), (Some(array), 6));
    assert_eq!(by_id(&parsed, long_array).array_tasks, 200);
    assert_eq!(by_id(&parsed, exclusive).exclusive, query.no_means_exclusive);
    let job = by_id(&parsed, dependent);
    assert_eq!((job.dependent, job.eligible, job.reason.as_str()), (true, None, "Dependency"));
    let job = by_id(&parsed, later);
    assert_eq!(job.eligible.unwrap() - job.submit, 3600);
    assert_eq!(by_id(&parsed, name).state_word, "PENDING");

    let bare = queue(&cluster, &Query::new(5).without_marks());
    assert_eq!((bare.errors.len(), bare.records.len()), (0, submitted.len()));
    assert!(bare.records.iter().all(|j| j.admin_comment.is_none()));

    let marks = json::marks(run(&cluster, "squeue", json::ARGS).as_bytes(), None);
    assert_eq!(marks.errors, []);
    let marked: Vec<_> = marks.records.iter().filter(|j| !j.admin_comment.is_empty()).collect();
    assert_eq!(marked.len(), 1);
    assert_eq!((marked[0].id, marked[0].admin_comment.as_str()), (per_node, mark));
    assert_eq!(marked[0].partitions, ["slim", "fat"]);
    cluster.stop().unwrap();
}
