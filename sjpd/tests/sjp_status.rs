//! `sjp status`, run as a program against states that sjpd can be in.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use common::{Cluster, Ran, Site, command, now, run};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const OK: i32 = 0;
const WARNING: i32 = 1;
const CRITICAL: i32 = 2;
const UNKNOWN: i32 = 3;

fn live() -> Site {
    let mut site = Site::bare();
    site.publish(&Cluster::slim_and_fat(), 0);
    site.write(&Site::healthy());
    site
}

#[test]
fn healthy_is_ok_and_says_what_it_does() {
    let ran = live().run(&["status"]).ends(OK).says(&[
        "sjp OK: placing and pinning jobs (mode enforce); 3 of 4 nodes usable, node data 0.",
        "up 10 min",
        "s of CPU",
        "MB\n",
        "4 nodes, 3 usable; 3 partitions, 2 used",
        "node data 0.",
        "publication 1",
        "reservations",
    ]);
    assert_eq!(ran.err, "");
}

#[test]
fn json_holds_the_same() {
    let site = live();
    let json = site.run(&["status", "--json"]).ends(OK).json();
    assert_eq!(json["level"], "ok");
    assert_eq!(json["sjpd"]["alive"], true);
    assert_eq!(json["sjpd"]["pid"], std::process::id());
    assert!(json["sjpd"]["memory_mb"].as_f64().unwrap() > 1.0);
    assert!(json["sjpd"]["cpu_seconds"].as_f64().is_some());
    assert!(json["table"]["age_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(json["table"]["nodes"], 4);
    assert_eq!(json["status"]["counts"]["usable"], 3);
    let ran = site.run(&["--json", "status"]).ends(OK);
    assert_eq!(ran.json()["level"], "ok");
}

#[test]
fn never_started_is_critical() {
    let ran = Site::bare().run(&["status"]).ends(CRITICAL);
    let ran = ran.says(&["sjp CRITICAL: sjpd is not running with state_dir", "\"no table\""]);
    assert_eq!(ran.out.lines().filter(|l| l.contains("CRITICAL")).count(), 1, "{ran:#?}");
    let site = Site::bare();
    std::fs::remove_dir(site.state_dir()).unwrap();
    site.run(&["status"]).ends(CRITICAL).says(&["sjpd is not running"]);
}

#[test]
fn dead_sjpd_is_critical_and_its_last_word_is_shown() {
    let site = Site::bare();
    let mut status = Site::healthy();
    // This process's id, but of another start: the number was used again.
    status.pid_start += 1;
    status.written = now() - 200.0;
    status.trouble(now() - 210.0, "nodes", "slurmctld does not answer");
    status.nodes.failures = 9;
    status.nodes.error = Some("old news".into());
    site.write(&status);
    let ran = site.run(&["status"]).ends(CRITICAL);
    assert!(!ran.out.contains("WARNING"), "{ran:#?}");
    site.run(&["status"]).ends(CRITICAL).says(&[
        "sjp CRITICAL: sjpd (pid",
        "is gone",
        "last word is 3 min old",
        "ago: nodes: slurmctld does not answer",
    ]);
    let json = site.run(&["status", "--json"]).ends(CRITICAL).json();
    assert_eq!(json["sjpd"]["alive"], false);
    assert_eq!(json["sjpd"]["uptime_seconds"], serde_json::Value::Null);
}

#[test]
fn a_process_that_is_gone_is_found_out_at_once() {
    let site = Site::bare();
    let mut status = Site::healthy();
    // No process has this id: it is above what the kernel gives out.
    status.pid = 4_194_304 + 7;
    site.write(&status);
    site.run(&["status"]).ends(CRITICAL).says(&["is gone"]);
}

#[test]
fn hanging_sjpd_is_warned_of_then_critical() {
    let mut site = Site::bare();
    site.publish(&Cluster::slim_and_fat(), 7);
    let mut status = Site::healthy();
    status.written = now() - 7.0;
    site.write(&status);
    site.run(&["status"]).ends(WARNING).says(&["lives, but has said nothing for 7.0 s"]);
    status.written = now() - 60.0;
    site.write(&status);
    site.run(&["status"]).ends(CRITICAL).says(&["lives, but has said nothing for 60 s"]);
}

#[test]
fn stale_table_is_critical_by_the_age_of_its_data() {
    let mut site = Site::bare();
    site.publish(&Cluster::slim_and_fat(), 45);
    site.write(&Site::healthy());
    site.run(&["status"]).ends(CRITICAL).says(&[
        "sjp CRITICAL: the node data is 45 s old, above [pin] max_age (10 s): place() answers \"stale\"",
    ]);
    assert_eq!(site.run(&["status", "--json"]).json()["table"]["stale"], true);
}

#[test]
fn living_sjpd_without_a_table_is_critical() {
    let site = Site::bare();
    site.write(&Site::healthy());
    site.run(&["status"]).ends(CRITICAL).says(&["sjpd lives, but its table cannot be read"]);
}

#[test]
fn nothing_published_is_no_alarm_until_sjpd_had_its_chance() {
    let mut site = Site::bare();
    site.publish_nothing();
    let mut status = Site::healthy();
    status.started = now() - 1.0;
    site.write(&status);
    site.run(&["status"]).ends(WARNING).says(&["has published nothing since its start 1.0 s ago"]);
    status.nodes.failures = 1;
    status.nodes.error = Some("scontrol timed out".into());
    site.write(&status);
    site.run(&["status"]).ends(CRITICAL).says(&["ago (nodes: scontrol timed out)"]);
    status.nodes.failures = 0;
    status.nodes.error = None;
    status.started = now() - 60.0;
    site.write(&status);
    site.run(&["status"]).ends(CRITICAL).says(&["has published nothing since its start 60 s ago"]);
    site.run(&["table"]).ends(CRITICAL).complains(&["nothing has been published yet"]);
}

#[test]
fn disable_file_is_a_warning() {
    let site = live();
    std::fs::write(site.dir.path().join("disable"), "").unwrap();
    site.run(&["status"])
        .ends(WARNING)
        .says(&["sjp WARNING: place() is switched off", "disable exists"]);
    assert_eq!(site.run(&["status", "--json"]).json()["disabled"], true);
}

#[test]
fn troubles_of_a_living_sjpd_are_warnings() {
    type Change = fn(&mut sjpd::status::Status);
    let cases: [(Change, &str); 7] = [
        (
            |s| {
                s.queue.failures = 3;
                s.queue.error = Some("squeue timed out".into());
            },
            "queue: failed 3 times in a row: squeue timed out",
        ),
        (|s| s.config_error = Some("line 3".into()), "the older ones count: line 3"),
        (|s| s.table.error = Some("too small".into()), "could not be published: too small"),
        (|s| s.pins.overdue = 2, "2 pins should have been released"),
        (|s| s.counts.usable = 0, "no node is usable"),
        (
            |s| {
                s.log.path = Some("/var/log/x".into());
                s.log.error = Some("no space left on device".into());
                s.log.dropped = 1;
            },
            "/var/log/x cannot be written (no space left on device); 1 line lost",
        ),
        (
            |s| {
                s.text_log.path = Some("/var/log/y".into());
                s.text_log.error = Some("denied".into());
            },
            "/var/log/y cannot be written",
        ),
    ];
    for (change, words) in cases {
        let site = live();
        let mut status = Site::healthy();
        change(&mut status);
        site.write(&status);
        site.run(&["status"]).ends(WARNING).says(&["sjp WARNING: ", words]);
    }
}

#[test]
fn modes_are_told_apart() {
    for (mode, words) in [
        ("observe", "sjp OK: observing, touches no job (mode observe)"),
        ("advise", "sjp OK: choosing partitions (mode advise)"),
    ] {
        let site = live();
        let mut status = Site::healthy();
        status.mode = mode.into();
        site.write(&status);
        site.run(&["status"]).ends(OK).says(&[words]);
    }
    let site = live();
    let mut status = Site::healthy();
    status.dry_run = true;
    status.active = false;
    site.write(&status);
    site.run(&["status"])
        .ends(OK)
        .says(&["dry run: changes are logged", "not acting on this host"]);
}

#[test]
fn what_cannot_be_told_is_unknown() {
    let site = Site::bare();
    std::fs::write(site.state_dir().join("status.json"), "{").unwrap();
    site.run(&["status"]).ends(UNKNOWN).says(&["sjp UNKNOWN: cannot tell", "status.json"]);
    std::fs::write(site.config(), "[pin]\nnope = 1\n").unwrap();
    let ran = site.run(&["status"]).ends(UNKNOWN);
    let ran = ran.says(&["sjp UNKNOWN: cannot tell", ":2:1: [pin] nope: unknown key"]);
    assert_eq!(ran.err, "");
    let json = site.run(&["status", "--json"]).ends(UNKNOWN).json();
    assert_eq!(json["level"], "unknown");
    run(&["--config", "/nonexistent/sjp.toml", "status"])
        .ends(UNKNOWN)
        .says(&["/nonexistent/sjp.toml: cannot be read: no such file"]);
}

#[test]
fn text_of_others_is_made_safe() {
    let site = live();
    let mut status = Site::healthy();
    status.trouble(now(), "nodes", "evil \u{1b}[2J\u{9b}1m\nsjp OK: fine");
    status.cluster = Some("c\u{202e}x".into());
    status.version = "1\u{7}".into();
    site.write(&status);
    let ran = site.run(&["status"]).ends(OK);
    assert!(!ran.out.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']), "{ran:#?}");
    assert_eq!(ran.out.lines().filter(|l| l.starts_with("sjp OK")).count(), 1, "{ran:#?}");
    let ran = site.run(&["status", "--json"]).ends(OK);
    assert!(!ran.out.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']), "{ran:#?}");
    assert_eq!(ran.json()["status"]["version"], "1\u{7}");
}

/// Runs `sjp` as a user who has no rights here; `None` where this test cannot
/// become one.
fn as_nobody(site: &Site, args: &[&str]) -> Option<Ran> {
    use std::os::unix::process::CommandExt as _;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can run a program as another user");
        return None;
    }
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The program and the settings must be within that user's reach.
    let program = site.dir.path().join("sjp");
    // Copied by a process of its own: a descriptor open for writing here could
    // be inherited by what another test starts, and the copy be "busy".
    let copied = program.display().to_string();
    let copy = [env!("CARGO_BIN_EXE_sjp"), copied.as_str()];
    Ran::of(command(Path::new("/bin/cp"), &copy).output().unwrap()).ends(OK);
    open(&program);
    open(site.dir.path());
    open(&site.state_dir());
    let config = site.config().display().to_string();
    let mut command = command(&program, &[&["--config", &config], args].concat());
    Some(Ran::of(command.uid(65_534).gid(65_534).output().unwrap()))
}

#[test]
fn users_without_rights_are_told_by_the_status_file() {
    let site = live();
    let Some(ran) = as_nobody(&site, &["status"]) else { return };
    ran.ends(OK).says(&["sjp OK: placing", "only root and root may read the table"]);
    for args in [&["table"][..], &["place", "--cpus", "1"]] {
        let Some(ran) = as_nobody(&site, args) else { return };
        ran.ends(77).complains(&["sjp: only root and root may read the table in "]);
    }
    std::fs::set_permissions(
        site.state_dir().join("status.json"),
        std::fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let Some(ran) = as_nobody(&site, &["status"]) else { return };
    ran.ends(UNKNOWN).says(&["sjp UNKNOWN: cannot tell: no right to read"]);
}
