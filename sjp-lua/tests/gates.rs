//! What keeps place() from touching a job: no table, old data, the mode, the
//! disable file, wrong arguments, fields that cannot be read or written.
#![cfg(feature = "vendored")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::cluster::Cluster;
use common::{Outcome, Submitter, World, wait_until};
use mlua::{Table, Value};
use sjp_core::config::Mode;
use sjp_table::{Capacity, Meta, Publisher};
use std::io::{Seek as _, SeekFrom, Write as _};

const JOB: &str = "min_cpus=4.0, min_mem_per_node=8000.0, time_limit=60.0,";
/// The same with something sjp would note a skip for.
const GPU_JOB: &str = "min_cpus=4.0, min_mem_per_node=8000.0, tres_per_node='gpu:1',";

fn untouched(out: &Outcome, reason: &str) {
    assert_eq!((out.placed, out.reason.as_deref()), (false, Some(reason)), "{out:?}");
    assert_eq!(out.writes, [""; 0], "{reason}: {out:?}");
}

#[test]
fn without_a_table_nothing_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Box::leak(Box::default());
    let submitter = Submitter::new(shared, dir.path());
    untouched(&submitter.place(GPU_JOB), "no table");
    untouched(&submitter.open(JOB), "no table");
    assert_eq!(submitter.logged(), [""; 0], "that sjpd does not run is no error");
    // A table appears: found within a second or so.
    let mut publisher = Publisher::create(dir.path(), Capacity::for_size(10)).unwrap();
    untouched(&submitter.place(JOB), "no table");
    let cluster = Cluster::slim_and_fat();
    let roster = cluster.roster();
    let rooms = cluster.rooms(&roster);
    wait_until(|| {
        let meta = Meta { data_time_ns: sjp_table::now_ns(), claims_taken: 0 };
        publisher.publish(&roster, 1, &rooms, meta).unwrap();
        let out = submitter.place(JOB);
        if out.placed { Ok(()) } else { Err(format!("{out:?}")) }
    });
}

#[test]
fn a_table_that_is_none_is_logged_once_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("table"), "not a table").unwrap();
    let shared = Box::leak(Box::default());
    let submitter = Submitter::new(shared, dir.path());
    for _ in 0..50 {
        untouched(&submitter.place(JOB), "no table");
    }
    let logged = submitter.logged();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].starts_with("error sjp: the table in ") && logged[0].contains("cannot be used")
    );
}

#[test]
fn old_data_is_stale_and_young_data_is_not() {
    let mut world = World::new(Cluster::slim_and_fat());
    let ago = |s: u64| sjp_table::now_ns() - s * 1_000_000_000;
    world.publish_at(ago(5));
    assert!(world.place(JOB).placed, "5 s old, 10 s allowed, and no newer table to be had");
    world.publish_at(ago(11));
    untouched(&world.place(GPU_JOB), "stale");
    world.publish_at(ago(0));
    assert!(world.place(JOB).placed);
    world.publish_at(sjp_table::now_ns() + 3_600_000_000_000);
    untouched(&world.place(JOB), "stale");
    world.change(|c| c.policy.max_age_ms = 2_000);
    world.publish_at(ago(3));
    untouched(&world.place(JOB), "stale");
}

#[test]
fn observe_touches_nothing() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.change(|c| c.policy.mode = Mode::Observe);
    untouched(&world.place(JOB), "observe");
    untouched(&world.place(GPU_JOB), "observe");
    let desc = format!("desc({{{JOB}}}, nil, 'script')");
    untouched(&world.submitter.call_desc("place", &desc, "nil"), "observe");
}

#[test]
fn the_disable_file_counts_from_the_next_call() {
    let world = World::new(Cluster::slim_and_fat());
    assert!(world.place(JOB).placed);
    std::fs::write(world.disable_file(), "").unwrap();
    untouched(&world.place(GPU_JOB), "disabled");
    untouched(&world.open(JOB), "disabled");
    std::fs::remove_file(world.disable_file()).unwrap();
    assert!(world.place(JOB).placed);
}

#[test]
fn a_disable_file_that_cannot_be_looked_for_counts_as_there() {
    let world = World::new(Cluster::slim_and_fat());
    let config: Table = world.submitter.module.get("config").unwrap();
    // A name too long to exist: ENAMETOOLONG, even for root.
    config.set("disable_file", format!("/{}", "x".repeat(4000))).unwrap();
    untouched(&world.place(JOB), "error");
    assert!(world.submitter.logged()[0].contains("cannot tell whether"));
}

#[test]
fn a_closed_table_is_let_go_and_the_next_one_found() {
    let mut world = World::new(Cluster::slim_and_fat());
    assert!(world.place(JOB).placed);
    world.publisher.close();
    untouched(&world.place(JOB), "no table");
    world.publisher = Publisher::create(world.dir.path(), Capacity::for_size(10)).unwrap();
    wait_until(|| {
        world.publish();
        let out = world.place(JOB);
        if out.placed { Ok(()) } else { Err(format!("{out:?}")) }
    });
}

#[test]
fn a_table_that_was_replaced_is_followed_with_its_claims() {
    let mut world = World::new(Cluster::slim_and_fat());
    // Four nodes are free; each such job takes one.
    let whole = "min_cpus=16.0, min_mem_per_node=8000.0, time_limit=60.0,";
    assert!(world.place(whole).placed && world.place(whole).placed);
    let roster = world.cluster.roster();
    let rooms = world.cluster.rooms(&roster);
    let larger = world.publisher.capacity().with_head_room();
    let meta = Meta { data_time_ns: sjp_table::now_ns(), claims_taken: 0 };
    world.publisher.replace(larger, &roster, 1, &rooms, meta).unwrap();
    wait_until(|| {
        let out = world.place(whole);
        if out.placed { Ok(()) } else { Err(format!("{out:?}")) }
    });
    assert!(world.place(whole).placed);
    let out = world.place(whole);
    assert_eq!(out.reason.as_deref(), Some("no room"), "the claims were carried over: {out:?}");
}

#[test]
fn a_stuck_table_is_left_for_the_one_that_takes_its_place() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.publish_at(sjp_table::now_ns() - 20_000_000_000);
    untouched(&world.place(JOB), "stale");
    // Another sjpd, while the first hangs: the link is turned, nothing closed.
    let mut second = Publisher::create(world.dir.path(), Capacity::for_size(10)).unwrap();
    let roster = world.cluster.roster();
    let rooms = world.cluster.rooms(&roster);
    wait_until(|| {
        let meta = Meta { data_time_ns: sjp_table::now_ns(), claims_taken: 0 };
        second.publish(&roster, 7, &rooms, meta).unwrap();
        let out = world.place(JOB);
        if out.placed { Ok(()) } else { Err(format!("{out:?}")) }
    });
}

#[test]
fn wrong_arguments_are_answered_with_error() {
    let world = World::new(Cluster::slim_and_fat());
    for call in ["place", "open"] {
        for arguments in [
            "",
            "nil",
            "5",
            "'x'",
            "true",
            "function() end",
            "{}",
            "{}, nil",
            "{}, 'root'",
            "{}, {}",
            "{}, -1",
            "{}, 0/0",
            "{}, 1e300",
            "{}, 1000, 5",
            "{}, 1000, 'slim'",
            "{}, 1000, true",
            "nil, 1000, nil",
        ] {
            let (placed, reason) = world.submitter.raw(&format!("sjp.{call}({arguments})"));
            assert_eq!(placed, Value::Boolean(false), "{call}({arguments})");
            let reason = reason.as_string().unwrap().to_string_lossy();
            assert_eq!(reason, "error", "{call}({arguments})");
        }
    }
    let logged = world.submitter.logged();
    assert_eq!(logged.len(), 1, "one line a minute: {logged:?}");
    assert!(logged[0].contains("job_desc is nil, expected a table"), "{logged:?}");
    // More arguments than there are do no harm.
    let (placed, _) =
        world.submitter.raw(&format!("sjp.place((desc({{{JOB}}})), 1000, nil, 1, 2)"));
    assert_eq!(placed, Value::Boolean(true));
}

#[test]
fn fields_of_another_type_are_errors() {
    for field in [
        "min_cpus={}",
        "partition=5",
        "partition={}",
        "time_limit='60'",
        "admin_comment={}",
        "priority='high'",
        "features={}",
        "tres_per_node=7",
        "array_inx=3",
    ] {
        let world = World::new(Cluster::slim_and_fat());
        untouched(&world.place(&format!("{JOB}{field}")), "error");
        let name = field.split('=').next().unwrap();
        let logged = world.submitter.logged();
        assert!(logged[0].contains(&format!("job_desc.{name} is a ")), "{field}: {logged:?}");
    }
}

#[test]
fn a_read_that_raises_leaves_the_job_alone() {
    for field in ["script", "partition", "pn_min_tmp_disk", "admin_comment"] {
        let world = World::new(Cluster::slim_and_fat());
        let desc = format!("desc({{{JOB}}}, nil, '{field}')");
        untouched(&world.submitter.call_desc("place", &desc, "nil"), "error");
        assert!(world.submitter.logged()[0].contains("no such luck"), "{field}");
        assert!(world.place(JOB).placed, "the next job is none the worse");
    }
}

#[test]
fn a_write_that_raises_is_undone() {
    for refused in ["partition", "req_nodes", "admin_comment"] {
        for own in ["", "partition='slim,fat', admin_comment='site',"] {
            let world = World::new(Cluster::slim_and_fat());
            let desc = format!("desc({{{JOB}{own}}}, '{refused}')");
            let out = world.submitter.call_desc("place", &desc, "nil");
            assert_eq!(out.reason.as_deref(), Some("error"), "{refused}: {out:?}");
            let (partition, comment) =
                if own.is_empty() { (None, None) } else { (Some("slim,fat"), Some("site")) };
            assert_eq!(out.partition.as_deref(), partition, "{refused}: {out:?}");
            assert_eq!(out.comment.as_deref(), comment, "{refused}: {out:?}");
            assert_eq!(out.req_nodes, None, "{refused}: {out:?}");
            assert!(world.submitter.logged()[0].contains(&format!("refused {refused}")));
        }
    }
    // The note of a skip, refused.
    let world = World::new(Cluster::slim_and_fat());
    let desc = format!("desc({{{GPU_JOB}}}, 'admin_comment')");
    untouched(&world.submitter.call_desc("place", &desc, "nil"), "error");
    // An error value that is no text.
    let desc = format!(
        "(function() local d, s, w = desc({{{JOB}}}); \
         getmetatable(d).__newindex = function() error({{}}) end; return d, s, w end)()"
    );
    untouched(&world.submitter.call_desc("place", &desc, "nil"), "error");
}

#[test]
fn a_job_desc_that_calls_back_gets_an_answer() {
    let world = World::new(Cluster::slim_and_fat());
    let desc = format!(
        "(function() local d, s, w = desc({{{JOB}}}); local m = getmetatable(d); local old = m.__index; \
         m.__index = function(t, k) if k == 'partition' then inner = {{sjp.place(desc({{{JOB}}}), 1, nil)}} end \
         return old(t, k) end; return d, s, w end)()"
    );
    let out = world.submitter.call_desc("place", &desc, "nil");
    assert!(out.placed, "{out:?}");
    let inner: Vec<Value> = world.submitter.lua.load("return inner").eval().unwrap();
    assert_eq!(inner[0], Value::Boolean(false));
}

#[test]
fn settings_are_read_before_the_first_call() {
    let world = World::new(Cluster::slim_and_fat());
    assert!(world.place(JOB).placed);
    let config: Table = world.submitter.module.get("config").unwrap();
    config.set("state_dir", "/nowhere").unwrap();
    assert!(world.place(JOB).placed, "read once");

    for (key, value, want) in [
        ("state_dir", "5", "sjp.config.state_dir is a "),
        ("verbose", "'yes'", "sjp.config.verbose is a string"),
        ("disable_file", "{}", "sjp.config.disable_file is a table"),
    ] {
        let world = World::new(Cluster::slim_and_fat());
        world.submitter.lua.load(format!("sjp.config.{key} = {value}")).exec().unwrap();
        untouched(&world.place(JOB), "error");
        assert!(world.submitter.logged()[0].contains(want), "{:?}", world.submitter.logged());
        let good = if key == "verbose" { "nil" } else { "'/nowhere'" };
        world.submitter.lua.load(format!("sjp.config.{key} = {good}")).exec().unwrap();
        assert_ne!(world.place(JOB).reason.as_deref(), Some("error"), "mended");
    }
    let world = World::new(Cluster::slim_and_fat());
    world.submitter.lua.load("sjp.config = 7").exec().unwrap();
    untouched(&world.place(JOB), "error");
}

#[test]
fn verbose_says_each_decision() {
    let world = World::new(Cluster::slim_and_fat());
    world.submitter.lua.load("sjp.config.verbose = true").exec().unwrap();
    let out = world.place(JOB);
    world.place(GPU_JOB);
    let logged = world.submitter.logged();
    let node = out.req_nodes.unwrap();
    assert_eq!(logged[0], format!("info sjp: place: uid 1000 to slim, pinned to {node}"));
    assert_eq!(logged[1], "info sjp: place: left as it is: gpu");
    assert_eq!(logged.len(), 2);
}

#[test]
fn a_log_that_raises_or_is_missing_does_no_harm() {
    for break_it in [
        "slurm = nil",
        "slurm = 5",
        "slurm.log_error = nil",
        "slurm.log_error = 'x'",
        "slurm.log_error = function() error('full disk') end",
        "slurm = setmetatable({}, {__index = function() error('no') end})",
    ] {
        let world = World::new(Cluster::slim_and_fat());
        world.submitter.lua.load(break_it).exec().unwrap();
        let (placed, reason) = world.submitter.raw("sjp.place(nil)");
        assert_eq!(placed, Value::Boolean(false), "{break_it}");
        assert_eq!(reason.as_string().unwrap().to_string_lossy(), "error", "{break_it}");
        assert!(world.place(JOB).placed, "{break_it}");
    }
}

#[test]
fn whatever_bytes_stand_in_the_table_there_is_an_answer() {
    let world = World::new(Cluster::slim_and_fat());
    assert!(world.place(JOB).placed);
    let mut table =
        std::fs::OpenOptions::new().write(true).open(world.dir.path().join("table")).unwrap();
    let bytes = table.metadata().unwrap().len();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..2_000 {
        // Single words in the head and the rooms, then more and more of it.
        for _ in 0..=round / 100 {
            let at = if random() % 2 == 0 { random() % 4096.min(bytes) } else { random() % bytes };
            table.seek(SeekFrom::Start(at / 8 * 8)).unwrap();
            let word = match random() % 4 {
                0 => random(),
                1 => random() % 64,
                2 => u64::MAX,
                _ => 0,
            };
            table.write_all(&word.to_ne_bytes()).unwrap();
        }
        let out = world.place(JOB);
        assert!(out.placed || out.reason.is_some(), "round {round}");
    }
}
