//! place() and open() through Lua, on a real table.
#![cfg(feature = "vendored")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::cluster::Cluster;
use common::{World, counted};
use sjp_core::config::{Mode, UserChoice};
use sjp_core::units::Limit;

/// The fields of a job of `cpus` CPUs and `mb` MB on the node, for an hour.
fn job(cpus: u32, mb: u32) -> String {
    format!("min_cpus={cpus}.0, min_mem_per_node={mb}.0, time_limit=60.0,")
}

#[test]
fn a_job_gets_partition_pin_and_mark() {
    let world = World::new(Cluster::slim_and_fat());
    let out = world.place(&job(4, 8_000));
    assert_eq!((out.placed, out.reason.as_deref()), (true, None), "{out:?}");
    // 2,000 MB a CPU: an idle slim node (4,000) rather than the half taken one
    // (7,000); slim1 is the first of its equals. It costs 2.1 CPUs there, and
    // 3.1 on fat1: both partitions are admitted (2.1 + 4 x 0.25).
    assert_eq!(out.partition.as_deref(), Some("slim"));
    assert_eq!(out.req_nodes.as_deref(), Some("slim1"));
    assert_eq!(out.mark("pin"), out.req_nodes);
    assert_eq!(out.mark("from").as_deref(), Some("fat,slim"));
    assert_eq!(out.mark("job").as_deref(), Some("4c,7.8G,2.0G/c"));
    assert!(out.mark("id").is_some(), "{out:?}");
    assert_eq!(out.writes, ["partition", "req_nodes", "admin_comment"]);

    let fat = world.place(&job(4, 60_000));
    assert_eq!(fat.partition.as_deref(), Some("fat"), "{fat:?}");
    assert_ne!(fat.mark("id"), out.mark("id"));
}

#[test]
fn what_stays_the_same_is_not_written() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.change(|c| c.policy.mode = Mode::Advise);
    let out = world.place(&format!("{} partition='slim', req_nodes='slim3',", job(4, 8_000)));
    assert!(out.placed, "{out:?}");
    assert_eq!(out.writes, ["admin_comment"]);
    assert_eq!(out.req_nodes.as_deref(), Some("slim3"));
}

#[test]
fn advise_sets_partitions_and_never_a_node() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.change(|c| c.policy.mode = Mode::Advise);
    let out = world.place(&job(4, 8_000));
    assert!(out.placed, "{out:?}");
    assert_eq!(out.req_nodes, None);
    assert_eq!(out.mark("placed"), out.partition);
    assert_eq!(out.writes, ["partition", "admin_comment"]);
}

#[test]
fn every_reason_about_the_job_is_answered_and_noted() {
    let world = World::new(Cluster::slim_and_fat());
    let cases = [
        ("script=false,", "not batch"),
        ("tres_per_node='gpu:2',", "gpu"),
        ("tres_per_node='gres/gpu:2',", "gpu"),
        ("tres_per_job='gres:gpu:2',", "gpu"),
        ("tres_per_socket='gres/gpu:a100:1', sockets_per_node=1.0,", "gpu"),
        ("tres_per_task='cpu=2,gres/gpu=1',", "gpu"),
        ("num_tasks=1.0, ntasks_per_tres=1.0,", "gpu"),
        ("reservation='maint',", "reservation"),
        ("features='avx512',", "constraint"),
        ("prefer='avx512',", "constraint"),
        ("contiguous=1.0,", "constraint"),
        ("num_tasks=2.0, req_switch=1.0,", "constraint"),
        ("ntasks_per_node=2.0, max_nodes=1.0, req_switch=1.0,", "constraint"),
        ("cores_per_socket=4.0,", "constraint"),
        ("sockets_per_node=1.0,", "constraint"),
        ("threads_per_core=1.0,", "constraint"),
        ("num_tasks=2.0, ntasks_per_core=1.0,", "constraint"),
        ("num_tasks=2.0, ntasks_per_socket=2.0,", "constraint"),
        ("pn_min_tmp_disk=100.0,", "constraint"),
        ("min_nodes=2.0,", "multi-node"),
        ("num_tasks=4.0, ntasks_per_node=2.0,", "multi-node"),
        ("min_mem_per_node=0.0,", "no memory"),
        ("min_mem_per_node=false, min_mem_per_cpu=0.0,", "no memory"),
        ("het_job_offset=0.0,", "het job"),
        ("het_job_offset=1.0,", "het job"),
        ("script=false, het_job_offset=1.0,", "het job"),
        ("min_cpus=17.0,", "no partition"),
        ("min_mem_per_node=256001.0,", "no partition"),
        ("partition='nowhere',", "no partition"),
        ("req_nodes='nosuch1',", "no usable node in --nodelist"),
        ("min_cpus=16.0, min_mem_per_node=65000.0, partition='fat', exc_nodes='fat2',", "no room"),
    ];
    for (fields, reason) in cases {
        let fields = format!("{}{fields}", job(4, 8_000));
        let out = world.place(&fields);
        assert_eq!((out.placed, out.reason.as_deref()), (false, Some(reason)), "{fields}: {out:?}");
        assert_eq!(out.writes, ["admin_comment"], "{fields}");
        // Who waits for room is looked at again: what it named is written down.
        let named = if reason == "no room" { ";was=fat;own=exclude" } else { "" };
        assert_eq!(out.comment, Some(format!("sjp:skipped={reason}{named}")), "{fields}");

        let out = world.place(&format!("{fields} admin_comment='the site says',"));
        assert_eq!(out.reason.as_deref(), Some(reason), "{fields}");
        assert_eq!(out.writes, [""; 0], "a comment that is not empty stays: {fields}");
    }
}

#[test]
fn what_changes_nothing_about_the_place_does_not_matter() {
    let mut world = World::new(Cluster::slim_and_fat());
    for fields in [
        "licenses='abaqus:3',",
        "burst_buffer='#BB capacity=1G',",
        "clusters='test',",
        "container='/c',",
        "tres_per_task='cpu=4',",
        "tres_per_node='none',",
        "shared=1.0,",
        "contiguous=65534.0,",
        "begin_time=1000.0,",
        "priority=4294967295.0,",
        "features='', reservation='', dependency='', req_nodes='', tres_per_node='',",
        "max_nodes=1.0, min_nodes=1.0,",
        "req_switch=1.0, ntasks_per_core=1.0, ntasks_per_socket=1.0,",
        "mem_per_tres='gres:gpu:8000', cpus_per_tres='gres:gpu:8', reboot=0.0,",
    ] {
        let out = world.place_alone(&format!("{}{fields}", job(1, 8_000)));
        assert!(out.placed, "{fields}: {out:?}");
        assert!(out.req_nodes.is_some(), "{fields}: {out:?}");
    }
}

#[test]
fn not_pinned_where_a_pin_would_be_wrong() {
    let mut world = World::new(Cluster::slim_and_fat());
    for fields in [
        "array_inx='1-3',",
        "array_inx='0-99%4',",
        "num_tasks=4.0,",
        "begin_time=9999999999.0,",
        "dependency='afterok:1',",
        "priority=0.0,",
        "shared=0.0,",
        "shared=2.0,",
        "req_nodes='slim3',",
    ] {
        let out = world.place_alone(&format!("{}{fields}", job(4, 8_000)));
        assert!(out.placed, "{fields}: {out:?}");
        assert_eq!(out.mark("pin"), None, "{fields}: {out:?}");
        assert!(!out.writes.contains(&"req_nodes".to_owned()), "{fields}: {out:?}");
        assert_eq!(out.mark("placed"), out.partition, "{fields}: {out:?}");
    }
    let out = world
        .place_alone(&format!("{}num_tasks=4.0, min_nodes=1.0, max_nodes=1.0,", job(4, 8_000)));
    assert!(out.mark("pin").is_some(), "-N 1 keeps the tasks together: {out:?}");
}

#[test]
fn cpus_are_what_slurm_will_count() {
    let mut world = World::new(Cluster::slim_and_fat());
    for (fields, cpus) in [
        ("min_cpus=6.0,", "6c"),
        ("min_cpus=1.0, num_tasks=2.0, cpus_per_task=3.0, min_nodes=1.0, max_nodes=1.0,", "6c"),
        ("min_cpus=1.0, tres_per_task='cpu=5',", "5c"),
        ("min_cpus=1.0, pn_min_cpus=7.0,", "7c"),
        ("min_cpus=4294967294.0,", "1c"),
        ("min_cpus=1.0, ntasks_per_node=4.0, min_nodes=1.0, max_nodes=1.0,", "4c"),
    ] {
        let out = world.place_alone(&format!("min_mem_per_node=1000.0, time_limit=60.0, {fields}"));
        let shape = out.mark("job").unwrap_or_default();
        assert_eq!(shape.split(',').next(), Some(cpus), "{fields}: {out:?}");
    }
}

#[test]
fn integers_and_floats_and_every_sentinel_are_alike() {
    let mut world = World::new(Cluster::slim_and_fat());
    for number in ["4", "4.0"] {
        let fields = format!("min_cpus={number}, min_mem_per_cpu=2000, time_limit=60");
        let out = world.place_alone(&fields);
        assert_eq!(out.mark("job").as_deref(), Some("4c,7.8G,2.0G/c"), "{fields}: {out:?}");
    }
    let numeric = [
        "num_tasks",
        "cpus_per_task",
        "pn_min_cpus",
        "ntasks_per_node",
        "min_nodes",
        "max_nodes",
        "begin_time",
        "het_job_offset",
        "ntasks_per_tres",
        "contiguous",
        "req_switch",
        "cores_per_socket",
        "sockets_per_node",
        "threads_per_core",
        "ntasks_per_core",
        "ntasks_per_socket",
        "pn_min_tmp_disk",
        "shared",
        "priority",
    ];
    for unset in ["false", "4294967294.0", "4294967295.0", "18446744073709551616.0", "0/0", "-1"] {
        for field in numeric {
            // Nothing that begins at the end of time.
            if field == "begin_time" && unset != "false" {
                continue;
            }
            let out = world.place_alone(&format!("{}{field}={unset},", job(4, 8_000)));
            assert!(out.placed && out.mark("pin").is_some(), "{field}={unset}: {out:?}");
        }
    }
}

#[test]
fn part_list_bounds_the_choice() {
    let world = World::new(Cluster::slim_and_fat());
    let call = |part_list: &str| world.submitter.call("place", &job(4, 8_000), part_list);
    assert_eq!(call("{slim={}, fat={}}").partition.as_deref(), Some("slim"));
    assert_eq!(call("{fat={}}").partition.as_deref(), Some("fat"));
    assert_eq!(
        call("{fat={}, other={}, [7]={}, [{}]=1, [true]=2}").partition.as_deref(),
        Some("fat")
    );
    assert_eq!(call("{}").reason.as_deref(), Some("no partition"));
    let trap = "setmetatable({fat={}}, {__index=function() error('x') end, \
                __pairs=function() error('y') end, __len=function() error('z') end})";
    assert_eq!(call(trap).partition.as_deref(), Some("fat"));
}

#[test]
fn partitions_that_would_refuse_the_job_are_left_out() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.change(|c| c.partition("slim").max_time = Limit::At(30));
    assert_eq!(world.place_alone(&job(4, 8_000)).partition.as_deref(), Some("fat"));
    world.change(|c| {
        c.partition("slim").max_time = Limit::Unset;
        c.partition("slim").allow_accounts =
            sjp_core::cluster::Names::Listed(vec!["physics".to_owned()]);
    });
    for (fields, partition) in [
        ("", "fat"),
        ("account='physics',", "slim"),
        ("account='biology',", "fat"),
        ("default_account='physics',", "slim"),
        ("account='biology', default_account='physics',", "fat"),
        ("account='', default_account='physics',", "slim"),
    ] {
        let out = world.place_alone(&format!("{}{fields}", job(4, 8_000)));
        assert_eq!(out.partition.as_deref(), Some(partition), "{fields}: {out:?}");
    }
    world.change(|c| {
        c.partition("slim").allow_accounts = sjp_core::cluster::Names::All;
        c.partition("slim").deny_qos = vec!["low".to_owned()];
    });
    let out = world.place_alone(&format!("{}default_qos='low',", job(4, 8_000)));
    assert_eq!(out.partition.as_deref(), Some("fat"), "{out:?}");
    world.change(|c| {
        c.partition("slim").deny_qos.clear();
        c.partition("slim").alloc_nodes =
            sjp_core::cluster::Names::Listed(vec!["login1".to_owned()]);
    });
    for (host, partition) in [("login1", "slim"), ("login2", "fat")] {
        let out = world.place_alone(&format!("{}alloc_node='{host}',", job(4, 8_000)));
        assert_eq!(out.partition.as_deref(), Some(partition), "{out:?}");
    }
}

#[test]
fn default_account_and_qos_are_asked_only_where_it_matters() {
    let mut world = World::new(Cluster::slim_and_fat());
    let asks = |world: &World| {
        let desc = format!("desc({{{}}}, nil, 'default_account')", job(4, 8_000));
        world.submitter.call_desc("place", &desc, "nil").reason
    };
    assert_eq!(asks(&world), None);
    world.change(|c| c.partition("slim").deny_accounts = vec!["guests".to_owned()]);
    assert_eq!(asks(&world).as_deref(), Some("error"));
}

#[test]
fn open_sets_every_partition_that_can_hold_the_job() {
    let mut world = World::new(Cluster::slim_and_fat());
    world.change(Cluster::fill);
    let out = world.place(&job(4, 8_000));
    assert_eq!(out.reason.as_deref(), Some("no room"));
    let out = world.open(&format!("{}admin_comment='sjp:skipped=no room',", job(4, 8_000)));
    assert!(out.placed, "{out:?}");
    assert_eq!(counted(out.partition.as_deref().unwrap().split(',')), counted(["fat", "slim"]));
    assert_eq!((out.mark("open"), out.req_nodes.as_deref()), (out.partition.clone(), None));
    assert_eq!(out.mark("skipped"), None);
    let fat = world.open(&job(4, 80_000));
    assert_eq!(fat.partition.as_deref(), Some("fat"));
    assert_eq!(world.open("script=false").reason.as_deref(), Some("not batch"));
    assert_eq!(world.open(&job(17, 1)).reason.as_deref(), Some("no partition"));
    world.change(|c| c.policy.mode = Mode::Observe);
    let out = world.open(&job(4, 8_000));
    assert_eq!((out.reason.as_deref(), out.writes.len()), (Some("observe"), 0));
}

#[test]
fn the_site_s_comment_is_kept() {
    let world = World::new(Cluster::slim_and_fat());
    let out = world.place(&format!("{}admin_comment='project 42',", job(4, 8_000)));
    assert!(out.comment.as_deref().unwrap().starts_with("project 42 sjp:"), "{out:?}");
    let out = world.place(&format!("{}admin_comment='caf\\233',", job(4, 8_000)));
    assert_eq!((out.reason.as_deref(), out.writes.len()), (Some("error"), 0), "not UTF-8");
}

#[test]
fn a_user_s_nodes_are_followed_or_dropped() {
    let mut world = World::new(Cluster::slim_and_fat());
    let fields = format!("{}req_nodes='fat2', exc_nodes='slim[1-4]',", job(4, 8_000));
    let out = world.place(&fields);
    assert_eq!(out.partition.as_deref(), Some("fat"), "{out:?}");
    assert_eq!(out.req_nodes.as_deref(), Some("fat2"));
    assert_eq!(out.exc_nodes.as_deref(), Some("slim[1-4]"));
    world.change(|c| c.policy.user_nodes = UserChoice::Ignore);
    let out = world.place(&fields);
    assert_eq!(out.partition.as_deref(), Some("slim"), "{out:?}");
    assert_eq!(out.exc_nodes, None);
    assert_ne!(out.req_nodes.as_deref(), Some("fat2"));
    world.change(|c| c.policy.mode = Mode::Advise);
    let out = world.place(&fields);
    assert_eq!((out.req_nodes, out.exc_nodes), (None, None));
}
