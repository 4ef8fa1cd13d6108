//! Users' text that imitates marks, in every field that a user can write, with
//! recheck, opening, flex and `sjp undo` on, on a real Slurm: sjpd never acts on it,
//! and never sets a partition, node or QOS taken from it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use sjp_tests::{ClusterSpec, RunAs, TestCluster};

const SOON: Duration = Duration::from_secs(30);
const FORGED: [&str; 4] = [
    "sjp:qos=normal>root;id=1",
    "sjp:pin=s01;from=slim,secret;was=secret;job=8c,0.5G,0.1G/c;id=1",
    "sjp:skipped=no room;was=secret",
    "x|b|e\nsjp:placed=slim;was=secret;qos=root>flex;id=1",
];

fn sacctmgr(cluster: &TestCluster, args: &str) {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap();
}

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s01,f01,r01", 16, 32_000)
        .partition("slim", "s01", "Default=YES")
        .partition("fat", "f01", "")
        .partition("secret", "r01", "AllowGroups=root")
        .with_accounting("associations,limits,qos")
        .start()
        .unwrap();
    for args in [
        "add qos root,flex,capped",
        "modify qos capped set MaxTRESPerUser=cpu=1",
        "modify user sjpt1 set qos+=flex,capped",
    ] {
        sacctmgr(&cluster, args);
    }
    for node in ["s01", "f01"] {
        cluster.fill_node(node, 16, 1_000).unwrap();
    }
    cluster
}

#[test]
fn text_of_users_that_imitates_marks_is_only_text() {
    let cluster = start();
    let user = RunAs::user(1);
    let mut jobs = Vec::new();
    for text in FORGED {
        let dir = cluster.dir().join("work").join(text.replace(['/', '\n'], "-"));
        let (comment, name) = (format!("--comment={text}"), format!("-J{text}"));
        let wckey = format!("--wckey={text}");
        let out = format!("-o/tmp/{}", text.replace('/', "-"));
        let chdir = format!("-D{}", dir.display());
        let wrap = format!("--wrap=sleep 1000 # {text}");
        let script = ["--mem=500", "-t600", "-pslim", wrap.as_str()];
        for more in [
            vec![comment.as_str(), "-c8"],
            vec![&name, "-c8"],
            vec![&wckey, "-c8"],
            vec![&chdir, "-c8"],
            vec![&out, "-c8"],
            // Held by a cap of its QOS, as what flex moves.
            vec![&comment, &name, "-c2", "-qcapped"],
        ] {
            let args: Vec<&str> = more.into_iter().chain(script).collect();
            let made = cluster.sbatch_output(user, &args).unwrap();
            // What Slurm itself refuses of it reaches nobody.
            if let Some(id) = made.stdout.split_ascii_whitespace().last() {
                jobs.push(id.split(';').next().unwrap().parse::<u32>().unwrap());
            }
        }
    }
    assert!(jobs.len() >= 16, "{jobs:?}");
    // What a user may change later; the AdminComment is none of it.
    let (mut refused, mut taken) = (0, 0);
    for id in &jobs {
        let job = format!("jobid={id}");
        for text in FORGED {
            let out = cluster.run(user, "scontrol", &["update", &job, &format!("comment={text}")]);
            taken += usize::from(out.unwrap().success());
            let admin = format!("admincomment={text}");
            let out = cluster.run(user, "scontrol", &["update", &job, &admin]).unwrap();
            refused += usize::from(!out.success());
        }
        let name = format!("jobname={}", FORGED[0]);
        cluster.run(user, "scontrol", &["update", &job, &name]).unwrap();
    }
    assert_eq!(refused, jobs.len() * FORGED.len(), "a user wrote an AdminComment");
    assert!(taken > 0, "no comment could be changed");
    let out = cluster
        .sbatch_output(user, &["--admin-comment=sjp:qos=normal>root", "--wrap=true"])
        .unwrap();
    assert!(!out.success(), "sbatch takes an AdminComment: {out:?}");

    // Jobs that are sjp's, to see that it acts at all.
    let own = || {
        let args = ["-c8", "--mem=500", "-t600", "-pslim", "-o/dev/null", "--wrap=sleep 1000"];
        let id = cluster.sbatch_as(user, &args).unwrap();
        let mark = "admincomment=sjp:placed=slim;job=8c,0.5G,0.1G/c;id=2";
        cluster.cmd("scontrol", &["update", &format!("jobid={id}"), mark]).unwrap();
        id
    };
    let toml = "[cadence]\nqueue_poll_interval = 0.5\nqos_poll_interval = 1.0\n\
         act_interval = 1.0\n[pin]\nrelease_after = 1.0\n[recheck]\ninterval = 1\n\
         [starvation]\nbudget_hours.fat = 0.01\nbudget_hours.slim = 0.01\n\
         [limits]\nmode = \"flex\"\nflex_revert_after = 1\nmin_idle_share = 0.0\n";
    let sjpd = cluster.start_sjpd(toml).unwrap();
    // The second one with a later recheck.
    let ours = [(); 2].map(|()| {
        let id = own();
        let opened = |j: &sjp_tests::Job| j.partitions().len() > 1;
        cluster.wait_job(id, SOON, "is given more partitions", opened).unwrap();
        id
    });
    let untouched = || {
        for id in &jobs {
            let job = cluster.job(*id).unwrap();
            assert_eq!(
                (job.partition.as_str(), job.admin_comment.as_str()),
                ("slim", ""),
                "{job:?}"
            );
            assert!(job.required_nodes.is_empty(), "{job:?}");
            assert!(["normal", "capped"].contains(&job.qos.as_str()), "{job:?}");
        }
        let of = |e: &&serde_json::Value| {
            e["stage"].is_string() && !ours.iter().any(|id| e["job"] == *id)
        };
        let all = cluster.decisions();
        let others: Vec<_> = all.iter().filter(of).collect();
        assert!(others.is_empty(), "{others:?}");
    };
    untouched();
    assert_eq!(sjpd.stop().unwrap(), 0);
    let out = cluster.sjp(&["undo"]).unwrap();
    assert!(out.success() && out.stdout.contains("undone: 2 jobs;"), "{out:?}");
    untouched();
    cluster.stop().unwrap();
}
