//! Partitions and node of many shapes of job, worked out by hand.
//!
//! The cluster, with what is free and what that is worth under the default demand mix:
//! `phi = .10 min(c, m/800) + .15 min(c, m/1280) + .25 min(c, m/4267) +
//! .25 min(c, m/7680) + .15 min(c, m/14178) + .10 min(c, m/30720)`, term by term:
//!
//! | node | partitions | free | phi |
//! |---|---|---|---|
//! | s1 | slim, quick | 8c, 8,000 MB (1,000 per CPU) | .800 + .938 + .469 + .260 + .085 + .026 = 2.577 |
//! | s2 | slim, quick | 4c, 48,000 MB (12,000) | .4 + .6 + 1.0 + 1.0 + .508 + .156 = 3.664 |
//! | s3, s4 | slim | 16c, 64,000 MB (4,000) | 1.6 + 2.4 + 3.750 + 2.083 + .677 + .208 = 10.718 |
//! | f1 | fat | 8c, 192,000 MB (24,000) | .8 + 1.2 + 2.0 + 2.0 + 1.2 + .625 = 7.825 |
//! | f2 | fat | 16c, 256,000 MB (16,000) | 1.6 + 2.4 + 4.0 + 4.0 + 2.4 + .833 = 15.233 |
//!
//! A job of c CPUs costs `phi before - phi after` there. Partitions whose cheapest node is
//! within 0.25 c of the cheapest of all are admitted. Of the nodes of the highest tier
//! among them, those within 0.1 c of the least are equals; the smallest
//! `|ln(free memory per CPU / the job's)|` wins, and is pinned when the worst node costs
//! 0.1 c more, or its logarithm is 0.1 larger.

use sjp_tests::{ClusterSpec, RunAs, TestCluster};

use crate::common::{Desk, QUICK, go_on_scheduling, mark, stop_scheduling, submit};

/// A submission, and what it must lead to.
struct Case {
    args: &'static str,
    /// The job's partitions.
    partitions: &'static str,
    /// All admitted partitions: `from` or `placed` of the mark.
    admitted: &'static str,
    /// The node; or, in brackets, why there is none.
    node: &'static str,
}

const fn case(
    args: &'static str,
    partitions: &'static str,
    admitted: &'static str,
    node: &'static str,
) -> Case {
    Case { args, partitions, admitted, node }
}

const CASES: &[Case] = &[
    // s1 keeps half of both, so it loses half of phi: 1.289. s3 keeps 12c, 60,000: 1.2 + 1.8
    // + 3.0 + 1.953 + .635 + .195 = 8.783, lost 1.935. s2 loses its last CPUs: 3.664. f2
    // keeps 12c, 252,000: 1.2 + 1.8 + 3 + 3 + 1.8 + .820 = 11.620, lost 3.613; f1 4.000,
    // lost 3.825. Limit 1.289 + 1.0: slim. Equals up to 1.689: s1 alone.
    case("-c4 --mem=4000 -t60", "slim", "slim", "s1"),
    case("-c4 --mem-per-cpu=1000 -t60", "slim", "slim", "s1"),
    // The bound of slim's MaxTime, and one minute above quick's.
    case("-c4 --mem=4000 -t1-00:00:00", "slim", "slim", "s1"),
    case("-c4 --mem=4000 -t11", "slim", "slim", "s1"),
    // s1 keeps 7/8 of everything and loses 2.577/8 = .322; s3 10.718 - 10.364 = .355, too
    // dear to be equal (.422 would be); ln 0 at s1, ln 4 at s3. fat .903 > .322 + .25.
    // (.355 is within .1, so the ratio decides: s1.)
    case("-c1 --mem=1000 -t60", "slim", "slim", "s1"),
    // s3 15c, 60,000: 1.5 + 2.25 + 3.515 + 1.953 + .635 + .195 = 10.049, lost .670; s2 .821;
    // s1 1.189; f1 7.825 - 6.912 = f2 15.233 - 14.320 = .913 <= .670 + .25. Equals: s3, s4
    // (up to .770), ratio 0.
    case("-c1 --mem=4000 -t60", "slim", "fat,slim", "s3"),
    // s3 15c, 62,000: 10.259, lost .460; s1 7c, 6,000: 2.033, lost .544: equal to s3, and
    // as far in ratio (ln 2 both ways), so the smaller loss wins. fat .907 > .710.
    case("-c1 --mem=2000 -t60", "slim", "slim", "s3"),
    // s3 12c, 48,000: three quarters, lost 2.680; s2 3.664; f2 12c, 240,000: 11.581, lost
    // 3.652 <= 2.680 + 1.0.
    case("-c4 --mem=16000 -t60", "slim", "fat,slim", "s3"),
    case("-n4 -N1 --mem-per-cpu=4000 -t60", "slim", "fat,slim", "s3"),
    case("-n4 --mem-per-cpu=4000 -t60", "fat,slim", "fat,slim", "(several tasks without -N 1)"),
    // s2 is emptied: 3.664. s3 12c, 16,000: 1.2 + 1.8 + .937 + .521 + .169 + .052 = 4.680,
    // lost 6.039. f2 12c, 208,000: 11.477, lost 3.756; f1 3.825. Equals up to 4.064: s2
    // (ln 0), f1 (ln 2 = .693), f2 (ln 4/3 = .288).
    case("-c4 --mem=48000 -t60", "slim", "fat,slim", "s2"),
    case("-c4 --mem-per-cpu=12000 -t60", "slim", "fat,slim", "s2"),
    // s1 is emptied: 2.577; s3 8c, 56,000: 6.598, lost 4.121; fat 7.233 and 7.825.
    case("-c8 --mem=8000 -t60", "slim", "slim", "s1"),
    case("-n2 -c4 -N1 --mem=8000 -t60", "slim", "slim", "s1"),
    // s3 loses everything with its memory: 10.718. f2 8c, 192,000 has left what f1 has:
    // 7.825, lost 7.408; f1 7.825. Limit 9.408: fat. Equals both; ln 2 at f2, ln 3 at f1.
    case("-c8 --mem=64000 -t60", "fat", "fat", "f2"),
    // Only fat: f2 8c, 128,000: 7.617, lost 7.617, ln 0; f1 7.825, ln 1.5.
    case("-c8 --mem=128000 -t60", "fat", "fat", "f2"),
    // s3 and s4 lose everything, as nodes alike; f2 15.233 > 10.718 + 4.
    case("-c16 --mem=16000 -t60", "slim", "slim", "(no node is better by the margins)"),
    case("-c16 --mem=256000 -t60", "fat", "fat", "(one node has room)"),
    // f1 6c, 160,000: 5.921, lost 1.904; f2 14c, 224,000: 13.329, lost 1.904; s2 2c, 16,000:
    // 1.721, lost 1.943; s3 14c, 32,000: 6.859, lost 3.859. Equals f1 (ln 1.5), f2 (ln 0),
    // s2 (ln 4/3).
    case("-c2 --mem=32000 -t60", "fat", "fat,slim", "f2"),
    // f1 4c, 92,000: .4 + .6 + 1 + 1 + .6 + .299 = 3.899, lost 3.926; f2 12c, 156,000:
    // 11.158, lost 4.075. Equals; ln(25,000/24,000) at f1, ln(25,000/16,000) at f2.
    case("-c4 --mem=100000 -t60", "fat", "fat", "f1"),
    // f1 loses everything with its memory: 7.825; f2 15c, 64,000: 10.468, lost 4.765.
    case("-c1 --mem=192000 -t60", "fat", "fat", "f2"),
    // s3 keeps a quarter: lost 8.039; f2 11.233 > 8.039 + 3. s3 and s4 alike.
    case("-c12 --mem=48000 -t60", "slim", "slim", "(no node is better by the margins)"),
    // s3 10c, 40,000: lost 6/16 of 10.718 = 4.019; f2 10c, 232,000: 9.755, lost 5.478 <=
    // 5.519; f1 5.825. Equals up to 4.619: s3, s4.
    case("-c6 --mem=24000 -t60", "slim", "fat,slim", "s3"),
    // No memory asked for: 2,000 MB per CPU in slim, 8,000 in fat. s3 12c, 56,000: 8.598,
    // lost 2.121; s1 2.577 is no equal; fat at 4c, 32,000: f2 11.529, lost 3.704 > 3.121.
    case("-c4 -t60", "slim", "slim", "s3"),
    // Only empty nodes, which it takes whole: s3 and s4 10.718, f2 15.233.
    case("-c4 --mem=4000 --exclusive -t60", "slim", "slim", "(exclusive)"),
    case("--array=1-3 -c4 --mem=4000 -t60", "slim", "slim", "(array)"),
    case("-H -c4 --mem=4000 -t60", "slim", "slim", "(held)"),
    case("--begin=now+1hour -c4 --mem=4000 -t60", "slim", "slim", "(begins later)"),
    case("--dependency=singleton -c4 --mem=4000 -t60", "slim", "slim", "(dependency)"),
    // Above slim's MaxTime (one day): fat. f2 3.613, f1 3.825: equals; ln 16 at f2, ln 24.
    case("-c4 --mem=4000 -t1-00:01:00", "fat", "fat", "f2"),
    // At quick's MaxTime (10 min): s1 costs the same in quick, whose tier is the higher.
    case("-c4 --mem=4000 -t10", "quick,slim", "quick,slim", "s1"),
    // .670 in slim, .821 (s2) in quick, .913 in fat, limit .920. Quick's tier: s2 and s1,
    // which costs 1.189.
    case("-c1 --mem=4000 -t10", "quick,slim", "quick,fat,slim", "s2"),
    // In quick only s2 has 48,000 MB left.
    case("-c4 --mem=48000 -t10", "quick,fat,slim", "quick,fat,slim", "(one node has room)"),
    // The user's partitions: s3 and s4 alike (10.718), whatever fat would cost.
    case("-p slim -c8 --mem=64000 -t60", "slim", "slim", "(no node is better by the margins)"),
    case("-p fat -c4 --mem=4000 -t60", "fat", "fat", "f2"),
    case("-p slim,fat -c4 --mem=16000 -t60", "slim", "fat,slim", "s3"),
    // quick does not take 60 minutes.
    case("-p fat,quick -c4 --mem=4000 -t60", "fat", "fat", "f2"),
    // The user's nodes.
    case("-w f1 -c4 --mem=4000 -t60", "fat", "fat", "(own nodelist)"),
    case("-w s4 -x s1,f[1-2] -c4 --mem=4000 -t60", "slim", "slim", "(own nodelist)"),
    // Without s1 (1.289): s3 1.935, s4 the same.
    case("-x s1 -c4 --mem=4000 -t60", "slim", "slim", "s3"),
    case("-x s[1,3],f2 -c4 --mem=4000 -t60", "slim", "slim", "s4"),
    // s2 3.664 (ln 3), f2 3.652 (ln 4), f1 3.825 (ln 6): equals.
    case("-x s1,s[3-4] -c4 --mem=16000 -t60", "slim", "fat,slim", "s2"),
];

fn cluster() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s[1-4]", 16, 64_000)
        .nodes("f[1-2]", 16, 256_000)
        .partition(
            "slim",
            "s[1-4]",
            "Default=YES MaxTime=1-00:00:00 DefaultTime=60 DefMemPerCPU=2000",
        )
        .partition("fat", "f[1-2]", "MaxTime=2-00:00:00 DefaultTime=60 DefMemPerCPU=8000")
        .partition("quick", "s[1-2]", "MaxTime=10 PriorityTier=5 DefMemPerCPU=2000")
        .with_sjp("", "")
        .start()
        .unwrap();
    cluster.fill_node("s1", 8, 56_000).unwrap();
    cluster.fill_node("s2", 12, 16_000).unwrap();
    cluster.fill_node("f1", 8, 64_000).unwrap();
    cluster
}

#[test]
fn shapes_go_where_the_least_is_lost() {
    let cluster = cluster();
    stop_scheduling(&cluster);
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    let desk = Desk::new(&cluster);
    let user = RunAs::user(1);
    for (i, case) in CASES.iter().enumerate() {
        let args: Vec<&str> = case.args.split(' ').collect();
        let seen = desk.try_out(user, &format!("shape{i}"), &args);
        let what = format!("{}: {seen:?}", case.args);
        assert!(seen.answer.ok && seen.answer.placed, "{what}");
        assert_eq!(seen.job.partition, case.partitions, "{what}");
        let comment = &seen.job.admin_comment;
        let given = |flag: &str| {
            let at = args.iter().position(|a| *a == flag);
            at.and_then(|at| args.get(at + 1)).copied().unwrap_or_default()
        };
        match case.node.strip_prefix('(').and_then(|why| why.strip_suffix(')')) {
            None => {
                assert_eq!(seen.job.required_nodes, case.node, "{what}");
                assert_eq!(seen.pin(), case.node, "{what}");
                assert_eq!(mark(comment, "from"), case.admitted, "{what}");
            }
            Some(why) => {
                assert_eq!(seen.job.required_nodes, given("-w"), "{what}");
                assert_eq!(seen.pin(), "", "{what}");
                assert_eq!(mark(comment, "placed"), case.admitted, "{what}");
                assert!(seen.words.ends_with(&format!("not pinned: {why}")), "{what}");
            }
        }
        assert_eq!(seen.job.excluded_nodes.is_empty(), given("-x").is_empty(), "{what}");
    }
    // Longer than any partition takes.
    let seen = desk.try_out(user, "week", &["-c4", "--mem=4000", "-t7-0", "-p", "slim,fat"]);
    assert_eq!(seen.answer.reason, "no partition", "{seen:?}");
    assert_eq!(seen.job.partition, "slim,fat");

    // Four that do not meet, side by side: they run where they were sent. The last is not
    // pinned: f2 has left what f1 has, where it would cost 5.825 > 5.519, and s3 and s4 are
    // alike.
    let ids: Vec<(u32, &str, &str)> = [
        ("-c8 --mem=64000 -t60", "f2", "fat"),
        ("-c4 --mem=4000 -t60", "s1", "slim"),
        ("-c4 --mem=48000 -t60", "s2", "slim"),
        ("-c6 --mem=24000 -t60", "", "slim"),
    ]
    .iter()
    .enumerate()
    .map(|(i, (args, node, partition))| {
        let args: Vec<&str> = args.split(' ').collect();
        let seen = submit(&cluster, user, &format!("run{i}"), &args);
        assert_eq!(seen.job.required_nodes, *node, "{seen:?}");
        (seen.job.id, *node, *partition)
    })
    .collect();
    go_on_scheduling(&cluster);
    cluster.sbatch(&["-p", "fat", "--mem=1", "-t1", "--wrap=true"]).unwrap();
    for (id, node, partition) in ids {
        let job = cluster.wait_started(id).unwrap();
        assert_eq!(job.partition, partition, "{job:?}");
        let runs_there =
            if node.is_empty() { ["s3", "s4"].contains(&&*job.nodes) } else { job.nodes == node };
        assert!(runs_there, "{node}: {job:?}");
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
