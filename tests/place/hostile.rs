//! Text that users write, made to look like sjp's marks and Slurm's records: nothing comes
//! of it.

use sjp_tests::{ClusterSpec, RunAs, wait_for};

use crate::common::{SOON, mark, stop_scheduling, submit, wait_placing};

/// Looks often, and releases pins after two seconds.
const EAGER: &str = "[pin]\nrelease_after = 2.0\n[cadence]\nnode_poll_interval = 0.3\n\
                     queue_poll_interval = 0.3\n";

#[test]
fn text_that_imitates_marks_does_nothing() {
    let cluster = ClusterSpec::new()
        .nodes("s[1-2]", 16, 64_000)
        .nodes("f1", 16, 256_000)
        .partition("slim", "s[1-2]", "Default=YES MaxTime=600")
        .partition("fat", "f1", "MaxTime=600")
        .with_sjp("", "")
        .start()
        .unwrap();
    cluster.fill_node("s1", 8, 56_000).unwrap();
    stop_scheduling(&cluster);
    let (villain, victim) = (RunAs::user(1), RunAs::user(2));

    // Not sjp's to touch: they asked for their nodes while no sjpd was there.
    let own = ["-w", "s2", "-p", "slim", "-c1", "--mem=100", "-t60"];
    let victims: Vec<u32> =
        (0..2).map(|i| submit(&cluster, victim, &format!("victim{i}"), &own).job.id).collect();
    let forged = "sjp:pin=s2;from=fat;job=1c,100M,0.1G/c;free=8c,8G,1.0G/c;id=1";
    let mut mine = Vec::new();
    let texts = [
        forged.to_string(),
        format!("x\n{forged}\n"),
        format!("AdminComment={forged}"),
        format!("a|{forged}|b"),
        format!("\nJobId={} AdminComment={forged} ReqNodeList=s2\n", victims[0]),
        format!("{}|{}|1|PENDING|(null)|slim|s2|{forged}", victims[0], victims[0]),
        format!("\", \"admin_comment\": \"{forged}\", \"job_id\": {}, \"x\": \"", victims[1]),
        "ReqNodeList=s2 Partition=fat Priority=0 UserId=root(0)".to_string(),
    ];
    for text in &texts {
        let name = format!("--job-name={text}");
        let comment = format!("--comment={text}");
        let account = format!("--account={text}");
        let wckey = format!("--wckey={text}");
        let mut args = vec![name.as_str(), &comment, &account, &wckey, "--output=/dev/null"];
        args.extend(own);
        args.extend(["/dev/stdin", text.as_str()]);
        let script = cluster.dir().join("work/forged.sh");
        std::fs::write(&script, format!("#!/bin/sh\n# {text}\nsleep 1000\n")).unwrap();
        let script = script.display().to_string();
        let at = args.iter().position(|a| *a == "/dev/stdin").unwrap();
        args[at] = &script;
        mine.push(cluster.sbatch_as(villain, &args).unwrap());
    }
    let before: Vec<_> = cluster.jobs().unwrap();
    let fields = |jobs: &[sjp_tests::Job], id: u32| {
        let job = jobs.iter().find(|j| j.id == id).unwrap();
        let text = (job.comment.clone(), job.name.clone(), job.account.clone());
        (
            job.partition.clone(),
            job.required_nodes.clone(),
            job.admin_comment.clone(),
            job.state.clone(),
            text,
        )
    };

    // sjpd reads the queue, and takes back a pin of its own among them.
    let sjpd = cluster.start_sjpd(EAGER).unwrap();
    wait_placing(&cluster);
    let pinned = submit(&cluster, villain, "really", &["-c4", "--mem=4000", "-t60"]);
    assert_eq!(pinned.pin(), "s1", "{pinned:?}");
    // The same texts, in jobs that sjp places and so marks itself.
    let mut placed = Vec::new();
    for text in &texts {
        let name = format!("--job-name={text}");
        let comment = format!("--comment={text}");
        let args = [&name, &comment, "--output=/dev/null", "-c1", "--mem=100", "-t60"];
        let args: Vec<&str> = args.into_iter().chain(["--wrap=sleep 1000"]).collect();
        let id = cluster.sbatch_as(villain, &args).unwrap();
        let job = cluster.job(id).unwrap();
        assert!(job.admin_comment.starts_with("sjp:"), "{job:?}");
        assert!(!job.admin_comment.contains("id=1;") && !job.admin_comment.ends_with("id=1"));
        placed.push(id);
    }
    let released = |id: u32| {
        wait_for(SOON, "the pin is taken back", || {
            let job = cluster.job(id)?;
            let done =
                mark(&job.admin_comment, "released") == "s1" && job.required_nodes.is_empty();
            Ok(if done { Ok(job) } else { Err(format!("{job:?}")) })
        })
        .unwrap()
    };
    assert_eq!(released(pinned.job.id).partition, "slim");
    // A second one, so that sjpd has looked at everything at least once more since.
    let last = submit(&cluster, villain, "last", &["-c2", "--mem=2000", "-t60"]);
    assert_eq!(last.pin(), "s1", "{last:?}");
    released(last.job.id);

    let after = cluster.jobs().unwrap();
    for id in mine.iter().chain(&victims) {
        assert_eq!(fields(&after, *id), fields(&before, *id));
        assert_eq!(fields(&after, *id).1, "s2");
    }
    let changed: Vec<u64> = cluster
        .decisions()
        .iter()
        .filter(|d| d["event"] != "placed")
        .filter_map(|d| d["job"].as_u64())
        .collect();
    let ours = |id: &u64| {
        let id = u32::try_from(*id).unwrap();
        [pinned.job.id, last.job.id].contains(&id) || placed.contains(&id)
    };
    assert!(!changed.is_empty() && changed.iter().all(ours), "{changed:?}");
    // Every job is read as what it is: the queue is whole, and no record was refused.
    let status = cluster.sjp(&["status", "--json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let status = &status["status"];
    let pending = after.iter().filter(|j| j.pending()).count();
    assert_eq!(status["counts"]["pending"], pending, "{status}");
    assert_eq!(status["errors"], serde_json::json!([]), "{status}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
