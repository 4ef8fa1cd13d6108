//! What the settings change, on real submissions.

use sjp_tests::{ClusterSpec, RunAs, Signal, Sjpd, TestCluster, wait_for};

use crate::common::{
    Desk, QUICK, SOON, Seen, go_on_scheduling, mark, stop_scheduling, table, wait_placing,
    wait_table,
};

/// Jobs named `open...` that have no room are opened by the site's script.
const AFTER: &str = r#"
    if not placed and reason == "no room" and string.match(job_desc.name, "^open") then
        local opened, why = sjp.open(job_desc, submit_uid, part_list)
        slurm.log_info("sjp-test: opened %s %s", tostring(opened), tostring(why))
    end
"#;

/// s1: 8c, 8,000 MB free; s2: 16c, 64,000; f1: 16c, 256,000. (What they are worth, and
/// what jobs cost there, is worked out in shapes.rs.)
fn cluster() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s[1-2]", 16, 64_000)
        .nodes("f1", 16, 256_000)
        .partition("slim", "s[1-2]", "Default=YES MaxTime=600")
        .partition("fat", "f1", "MaxTime=600")
        .with_sjp("", AFTER)
        .start()
        .unwrap();
    cluster.fill_node("s1", 8, 56_000).unwrap();
    cluster
}

struct Site<'c> {
    cluster: &'c TestCluster,
    sjpd: Sjpd,
}

impl Site<'_> {
    /// Sends SIGHUP with these settings and waits until the table has them.
    fn set(&mut self, settings: &str) {
        let said = |log: &str| log.matches("settings").count();
        let before = said(&self.sjpd.log());
        self.cluster.write_sjp_toml(&format!("{settings}\n{QUICK}")).unwrap();
        self.sjpd.signal(Signal::SIGHUP).unwrap();
        wait_for(SOON, "the settings are read", || {
            let log = self.sjpd.log();
            Ok(if said(&log) > before { Ok(()) } else { Err(log) })
        })
        .unwrap();
        let generation = table(self.cluster)["generation"].clone();
        wait_table(self.cluster, "a publication after that", |t| {
            t["generation"].as_u64() > generation.as_u64().map(|g| g + 2)
        });
    }

    fn try_out(&self, name: &str, options: &str) -> Seen {
        let args: Vec<&str> = options.split(' ').collect();
        let seen = Desk::new(self.cluster).try_out(RunAs::user(1), name, &args);
        assert!(seen.answer.ok, "{seen:?}");
        seen
    }

    /// Partition, required nodes and excluded nodes.
    fn fields(&self, name: &str, options: &str) -> [String; 3] {
        let job = self.try_out(name, options).job;
        [job.partition, job.required_nodes, job.excluded_nodes]
    }
}

const LEAN: &str = "-c4 --mem=4000 -t60";

#[test]
fn settings_change_what_is_chosen() {
    let cluster = cluster();
    stop_scheduling(&cluster);
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    wait_placing(&cluster);
    let mut site = Site { cluster: &cluster, sjpd };

    // As it comes: s1 1.289, s2 1.935, f1 3.613 (ln 0, 4, 16).
    assert_eq!(site.fields("plain", LEAN), ["slim", "s1", ""]);
    assert_eq!(site.fields("own-p", &format!("{LEAN} -p fat")), ["fat", "", ""]);
    assert_eq!(site.fields("own-w", &format!("{LEAN} -w f1 -p fat")), ["fat", "f1", ""]);
    assert_eq!(site.fields("own-x", &format!("{LEAN} -x s1")), ["slim", "", "s1"]);

    site.set("policy.user_partition = \"ignore\"");
    assert_eq!(site.fields("over-p", &format!("{LEAN} -p fat")), ["slim", "s1", ""]);
    site.set("policy.user_nodes = \"ignore\"");
    assert_eq!(site.fields("drop-w", &format!("{LEAN} -w s2")), ["slim", "s1", ""]);
    assert_eq!(site.fields("drop-x", &format!("{LEAN} -x s1,s[2]")), ["slim", "s1", ""]);
    // Not pinned, and yet dropped.
    let array = format!("{LEAN} --array=1-2 -w s2 -x s1");
    assert_eq!(site.fields("drop-both", &array), ["slim", "", ""]);

    // Modes and pins.
    site.set("general.mode = \"advise\"");
    let seen = site.try_out("advised", LEAN);
    assert_eq!((seen.job.partition.as_str(), seen.job.required_nodes.as_str()), ("slim", ""));
    assert_eq!(mark(&seen.job.admin_comment, "placed"), "slim");
    assert!(seen.words.ends_with("not pinned: pins are off"), "{seen:?}");
    site.set("pin.enabled = false");
    assert_eq!(site.fields("unpinned", LEAN), ["slim", "", ""]);
    // s1 and s2 are equal within 0.2 * 4 = .8 (.646 apart), and s1 wins by ratio...
    site.set("pin.min_gain_share = 0.2");
    assert_eq!(site.fields("share", LEAN), ["slim", "s1", ""]);
    // ...which is no gain when it must be above ln 4 = 1.386.
    site.set("pin.min_gain_share = 0.2\npin.min_ratio_gain = 1.4");
    assert_eq!(site.fields("no-gain", LEAN), ["slim", "", ""]);
    // In CPUs, whatever the job's size: .646 is above .6, and not above .7.
    site.set("pin.min_gain = 0.6\npin.min_ratio_gain = 1.4");
    assert_eq!(site.fields("cpus", LEAN), ["slim", "s1", ""]);
    site.set("pin.min_gain = 0.7\npin.min_ratio_gain = 1.4");
    assert_eq!(site.fields("cpus-no", LEAN), ["slim", "", ""]);

    // Partitions.
    site.set("topology.exclude_partitions = [\"slim\"]");
    assert_eq!(site.fields("without", LEAN), ["fat", "", ""]);
    site.set("topology.batch_partitions = [\"fat\"]");
    assert_eq!(site.fields("just", LEAN), ["fat", "", ""]);
    // 3.613 - 1.289 is within .6 * 4.
    site.set("policy.tolerance = 0.6");
    assert_eq!(mark(&site.try_out("wide", LEAN).job.admin_comment, "from"), "fat,slim");
    // Nobody needs more than 800 MB per CPU: memory costs nothing, and CPUs the same
    // everywhere, so that f1 is as good, and the job's ratio decides for s1.
    site.set("policy.demand = [[800, 1.0]]");
    let seen = site.try_out("demand", LEAN);
    assert_eq!(mark(&seen.job.admin_comment, "from"), "fat,slim", "{seen:?}");
    assert_eq!(seen.pin(), "s1");

    no_room(&cluster, &mut site);
    assert_eq!(site.sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// With fewer CPUs than memory left, and then with every node full.
fn no_room(cluster: &TestCluster, site: &mut Site<'_>) {
    go_on_scheduling(cluster);
    cluster.fill_node("s2", 12, 1000).unwrap();
    stop_scheduling(cluster);
    // 28 of 48 CPUs and 327,000 of 384,000 MB are free. Whatever they cost, s1 (8 CPUs, 1,000
    // MB each) is nearer to 3,000 MB per CPU (ln 3 = 1.099) than s2 (4 CPUs, ln 5.25 = 1.658)
    // and f1 (16 CPUs, ln 5.33 = 1.674); s2 has the fewest CPUs.
    let even = "policy.tolerance = 9.0\npin.min_gain_share = 9.0\npin.min_ratio_gain = 0.01";
    site.set(even);
    assert_eq!(site.fields("ratio", "-c2 --mem=6000 -t60"), ["slim", "s1", ""]);
    site.set(&format!("{even}\npin.tie = \"scarce\""));
    assert_eq!(site.fields("scarce", "-c2 --mem=6000 -t60"), ["slim", "s2", ""]);

    go_on_scheduling(cluster);
    cluster.fill_node("s1", 8, 1000).unwrap();
    cluster.fill_node("s2", 4, 1000).unwrap();
    cluster.fill_node("f1", 16, 1000).unwrap();
    stop_scheduling(cluster);
    site.set("");
    let seen = site.try_out("left", LEAN);
    assert_eq!((seen.answer.reason.as_str(), seen.job.partition.as_str()), ("no room", "slim"));

    let seen = site.try_out("open-by-script", LEAN);
    assert_eq!(seen.answer.reason, "no room");
    assert_eq!(seen.job.partition, "fat,slim", "{seen:?}");
    assert_eq!(mark(&seen.job.admin_comment, "open"), "fat,slim");
    let seen = site.try_out("open-big", "-c4 --mem=100000 -t60");
    assert_eq!(seen.job.partition, "fat", "only f1 holds it: {seen:?}");
    let seen = site.try_out("open-own", &format!("{LEAN} -p slim"));
    assert_eq!(seen.job.partition, "slim", "never widened: {seen:?}");

    site.set("policy.no_room = \"open\"");
    let seen = site.try_out("opened", LEAN);
    assert!(seen.answer.placed, "{seen:?}");
    assert_eq!(mark(&seen.job.admin_comment, "open"), "fat,slim");
    assert_eq!((seen.job.partition.as_str(), seen.job.required_nodes.as_str()), ("fat,slim", ""));

    // As if empty: s2 1.935, f1 3.613 > 1.935 + 1.0.
    site.set("policy.always_place = true");
    let seen = site.try_out("by-shape", LEAN);
    assert!(seen.answer.placed, "{seen:?}");
    assert_eq!(mark(&seen.job.admin_comment, "placed"), "slim");
    assert_eq!((seen.job.partition.as_str(), seen.job.required_nodes.as_str()), ("slim", ""));
    let seen = site.try_out("by-shape-fat", "-c4 --mem=60000 -t60");
    assert_eq!(seen.job.partition, "fat", "{seen:?}");
}
