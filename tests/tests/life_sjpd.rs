//! sjpd hangs, dies, is stopped, replaced and told things, while users submit to a
//! real slurmctld: each submission is accepted, and placement comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use sjp_tests::forge::{Forged, VERSION_WORD, link_table, set_word, table_bytes, word};
use sjp_tests::{ClusterSpec, Signal, Sjpd, TestCluster, children, wait_for};

const SOON: Duration = Duration::from_secs(60);
/// Submissions for one measurement.
const COUNT: usize = 15;

/// Powered-down cloud nodes: they need no slurmd.
fn start() -> TestCluster {
    ClusterSpec::new()
        .cloud_nodes("s[01-04]", 64, 256_000)
        .cloud_nodes("f[01-02]", 64, 1_024_000)
        .partition("slim", "s[01-04]", "Default=YES")
        .partition("fat", "f[01-02]", "")
        .with_sjp("", "")
        .start()
        .unwrap()
}

const QUICK: &str = "[pin]\nmax_age = 4.0\n[cadence]\nqueue_poll_interval = 1.0\n";

#[test]
fn node_data_that_is_no_longer_refreshed_grows_stale() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let text = format!("{QUICK}{}", tampered.toml("timeout = 3.0"));
    let mut sjpd = cluster.start_sjpd(&text).unwrap();
    cluster.wait_placing().unwrap();

    // scontrol shows no nodes any more; everything else answers, and sjpd lives.
    tampered.hang("show nodes").unwrap();
    cluster.wait_reason("stale").unwrap();
    let calls = |words: &str| tampered.calls().iter().filter(|c| c.contains(words)).count();
    let (nodes, partitions) = (calls("show nodes"), calls("show partitions"));
    let mut most = 0;
    wait_for(SOON, "a few more tries of scontrol show nodes", || {
        most = most.max(children(sjpd.pid()).len());
        // By the age of the data, not of the last write: sjpd goes on publishing.
        let answer = cluster.probe().unwrap();
        assert!(!answer.placed && answer.reason == "stale", "{answer:?}");
        let (more, others) = (calls("show nodes") - nodes, calls("show partitions") - partitions);
        Ok(if more >= 2 && others >= 3 { Ok(()) } else { Err(format!("{more}, {others}")) })
    })
    .unwrap();
    // One reading in flight of each of the seven kinds at most, not one a second.
    assert!(most <= 7, "{most} children");
    let hanging = children(sjpd.pid())
        .into_iter()
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok())
        .filter(|line| line.starts_with(b"sleep"))
        .count();
    assert!(hanging <= 1, "{hanging} hanging children");
    let status = cluster.sjp(&["status"]).unwrap();
    assert_ne!(status.code, 0, "status finds nothing wrong: {}", status.stdout);
    assert_eq!(sjpd.ended().unwrap(), None);

    tampered.hang_no_more().unwrap();
    cluster.wait_placing().unwrap();
    wait_for(SOON, "status is content again", || {
        let status = cluster.sjp(&["status"]).unwrap();
        Ok(if status.success() { Ok(()) } else { Err(status.stdout) })
    })
    .unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

#[test]
fn submissions_go_on_whatever_becomes_of_sjpd() {
    let cluster = start();
    cluster.write_sjp_toml(QUICK).unwrap();
    let measure = |what: &str| cluster.measure_sbatch(what, COUNT).unwrap();
    measure("no sjpd yet");
    cluster.wait_reason("no table").unwrap();
    let mut sjpd = cluster.start_sjpd(QUICK).unwrap();
    cluster.wait_placing().unwrap();
    measure("sjpd runs");

    // Stopped: the table grows stale. Continued: it is refreshed.
    sjpd.signal(Signal::SIGSTOP).unwrap();
    measure("sjpd is stopped");
    cluster.wait_reason("stale").unwrap();
    sjpd.signal(Signal::SIGCONT).unwrap();
    cluster.wait_placing().unwrap();

    // Killed: the link leads nowhere, the old table is still mapped, and grows stale.
    sjpd.kill9().unwrap();
    measure("sjpd was killed");
    cluster.wait_reason("stale").unwrap();
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    cluster.wait_placing().unwrap();

    // A second one on the same state_dir says who holds it, and changes nothing.
    let mut second = cluster.spawn_sjpd(&[]).unwrap();
    let code = second.wait().unwrap();
    assert_ne!(code, 0);
    let said = cluster.log_tails(400);
    let holder = format!("pid {}", sjpd.pid());
    let told = said.lines().any(|l| l.contains("another sjpd holds") && l.contains(&holder));
    assert!(told, "no word of {holder} in:\n{said}");
    drop(second);
    cluster.wait_placing().unwrap();

    // Stopped cleanly: no table from the next call on. A table of a newer layout is
    // none either; a sound one at the same place is taken up.
    let run = cluster.dir().join("run");
    let sound = table_bytes(&run).unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    assert_eq!(cluster.probe().unwrap().reason, "no table");
    let mut newer = sound.clone();
    set_word(&mut newer, VERSION_WORD, word(&sound, VERSION_WORD) + 1);
    let newer = Forged::new("sjp-table", &newer, true).unwrap();
    link_table(&run, &newer.path()).unwrap();
    let says = |words: &str| cluster.slurmctld_log().contains(words);
    wait_for(SOON, "the module looked at the newer table", || {
        let answer = cluster.probe().unwrap();
        assert!(!answer.placed && answer.reason == "no table", "{answer:?}");
        Ok(if says("cannot be used") { Ok(()) } else { Err("nothing in slurmctld's log") })
    })
    .unwrap();
    measure("a table of another layout");
    assert_eq!(cluster.probe().unwrap().reason, "no table");
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    cluster.wait_placing().unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// Waits until the log of this run says it.
fn wait_said(sjpd: &Sjpd, words: &str) {
    wait_for(SOON, &format!("sjpd says {words:?}"), || {
        let log = sjpd.log();
        Ok(if log.contains(words) { Ok(()) } else { Err(log) })
    })
    .unwrap();
}

/// Writes sjp.toml and has it read.
fn reload(cluster: &TestCluster, sjpd: &mut Sjpd, text: &str) {
    cluster.write_sjp_toml(&format!("{QUICK}{text}")).unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
}

#[test]
fn sighup_and_sigterm_do_what_they_should() {
    let cluster = start();
    let observe = "[general]\nmode = \"observe\"\n";
    let mut sjpd = cluster.start_sjpd(&format!("{QUICK}{observe}")).unwrap();
    let pid = sjpd.pid();
    cluster.wait_reason("observe").unwrap();

    // Modes change without a restart, and back.
    reload(&cluster, &mut sjpd, "");
    cluster.wait_placing().unwrap();
    wait_said(&sjpd, "mode enforce, was observe");
    reload(&cluster, &mut sjpd, observe);
    cluster.wait_reason("observe").unwrap();
    wait_said(&sjpd, "mode observe, was enforce");

    // A bad file keeps the old settings, and says what is wrong and where.
    cluster.write("sjp.toml", "[general]\nmode = \"observe\"\n[pin]\nmax_agee = 3\n").unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
    wait_said(&sjpd, "the settings stay as they were");
    let log = sjpd.log();
    assert!(log.contains("max_agee") && log.contains("sjp.toml:4:"), "{log}");
    assert!(log.contains("nearest is max_age"), "{log}");
    assert_eq!(cluster.probe().unwrap().reason, "observe");
    let reload_failed = cluster.events("reload").iter().any(|e| e["taken"] == false);
    assert!(reload_failed, "{:?}", cluster.events("reload"));
    let status = cluster.sjp(&["status"]).unwrap();
    assert!(status.stdout.contains("max_agee"), "{}", status.stdout);
    reload(&cluster, &mut sjpd, "");
    cluster.wait_placing().unwrap();

    // logrotate: renamed, then SIGHUP.
    let path = cluster.dir().join("log/sjp-decisions.jsonl");
    let old = cluster.dir().join("log/sjp-decisions.jsonl.1");
    std::fs::rename(&path, &old).unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
    wait_for(SOON, "a new log", || {
        let new = cluster.events("reload").len();
        Ok(if new == 1 { Ok(()) } else { Err(format!("{new} reloads in the new file")) })
    })
    .unwrap();
    let moved = std::fs::read_to_string(&old).unwrap();
    assert!(moved.contains("\"event\":\"start\""), "{moved}");

    // A full disk under the logs: sjpd goes on, places, and says how much was lost.
    let full = SmallDisk::mount(&cluster, "small");
    let logs = |dir: &str| {
        let at = |name: &str| cluster.dir().join(dir).join(name);
        format!(
            "[general]\nlog_file = {:?}\ntext_log = {:?}\n",
            at("sjp-decisions.jsonl"),
            at("sjp.log")
        )
    };
    reload(&cluster, &mut sjpd, &logs("small"));
    full.fill();
    wait_for(SOON, "lines are lost", || {
        sjpd.signal(Signal::SIGHUP).unwrap();
        cluster.wait_placing().unwrap();
        let said = sjpd.log().contains("cannot write a decision log; going on");
        Ok(if said { Ok(()) } else { Err(sjpd.log()) })
    })
    .unwrap();
    assert_eq!(sjpd.ended().unwrap(), None);
    full.empty();
    let small = full.path.join("sjp-decisions.jsonl");
    wait_for(SOON, "the log goes on and tells of the gap", || {
        sjpd.signal(Signal::SIGHUP).unwrap();
        let text = std::fs::read_to_string(&small).unwrap_or_default();
        let told = text.contains("\"event\":\"gap\"") && text.contains("lines were lost here");
        Ok(if told { Ok(()) } else { Err(text) })
    })
    .unwrap();
    reload(&cluster, &mut sjpd, &logs("log"));
    wait_for(SOON, "the log is where it was", || {
        let reloads = cluster.events("reload").len();
        Ok(if reloads > 1 { Ok(()) } else { Err(reloads.to_string()) })
    })
    .unwrap();
    drop(full);

    // SIGTERM: no link, no status, no children, and the log says so.
    let families = children(pid);
    assert_eq!(sjpd.stop().unwrap(), 0);
    let run = cluster.dir().join("run");
    for name in ["table", "status.json"] {
        assert!(std::fs::symlink_metadata(run.join(name)).is_err(), "{name} is still there");
    }
    for child in families {
        assert!(std::fs::metadata(format!("/proc/{child}/exe")).is_err(), "{child} is left");
    }
    assert_eq!(cluster.events("stop").len(), 1);
    assert_eq!(cluster.probe().unwrap().reason, "no table");
    cluster.stop().unwrap();
}

/// A file system of 64 kB in the cluster's folder.
struct SmallDisk<'a> {
    cluster: &'a TestCluster,
    /// Where the cluster sees it.
    shown: String,
    /// The same folder as this process sees it: what is mounted inside a debootstrap
    /// folder is not mounted at the same path outside.
    path: std::path::PathBuf,
}

impl<'a> SmallDisk<'a> {
    fn mount(cluster: &'a TestCluster, name: &str) -> Self {
        let inside = cluster.dir().join(name);
        std::fs::create_dir(&inside).unwrap();
        let shown = inside.display().to_string();
        cluster.cmd("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &shown]).unwrap();
        let path = cluster.slurm().root().join(inside.strip_prefix("/").unwrap());
        SmallDisk { cluster, shown, path }
    }

    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.path.join("ballast")).unwrap();
        let written = (0..1024).take_while(|_| file.write(&[0; 512]).is_ok_and(|n| n > 0)).count();
        assert!(written < 1024, "{} is no small disk", self.path.display());
    }

    fn empty(&self) {
        std::fs::remove_file(self.path.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: sjpd may have a log open there.
        let unmounted = self.cluster.cmd("umount", &["-l", &self.shown]);
        if let Err(error) = unmounted {
            eprintln!("{error:#}");
        }
    }
}
