//! Several Lua states in one process, as slurmctld has them while it reloads
//! job_submit.lua: this test links the system's liblua, whose symbols the
//! module finds as it does inside slurmctld.
#![cfg(not(any(feature = "vendored", feature = "module")))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unsafe_code, reason = "a Lua that may load C modules")]

#[path = "common/cluster.rs"]
#[allow(dead_code, reason = "part of it is used")]
mod cluster;
#[path = "common/stage.rs"]
#[allow(dead_code, reason = "part of it is used")]
mod stage;

use cluster::{Cluster, node, partition};
use mlua::Lua;
use sjp_table::{Capacity, Meta, Publisher};

/// Twenty nodes of 8 CPUs, all free.
fn twenty() -> Cluster {
    let mut cluster = Cluster::empty();
    for i in 0..20 {
        cluster.nodes.push(node(&format!("n{i:02}"), 8, 32_000, &["batch"]));
    }
    cluster.partitions.push(partition("batch", &cluster.nodes));
    cluster
}

fn published(dir: &std::path::Path) -> Publisher {
    let cluster = twenty();
    let roster = cluster.roster();
    let rooms = cluster.rooms(&roster);
    let mut publisher = Publisher::create(dir, Capacity::for_size(20)).unwrap();
    let meta = Meta { data_time_ns: sjp_table::now_ns(), claims_taken: 0 };
    publisher.publish(&roster, 1, &rooms, meta).unwrap();
    publisher
}

/// A state that has loaded the installed module.
fn state(state_dir: &std::path::Path) -> Lua {
    // SAFETY: the only C module that is loaded is the one under test.
    let lua = unsafe { Lua::unsafe_new() };
    let script = format!(
        "package.path = '{}/?.lua;'
         sjp = require('sjp')
         assert(sjp.interface == 1, 'the native module is not loaded')
         sjp.config.state_dir = {state_dir:?}
         sjp.config.disable_file = ''
         function submit()
             local job = {{script = 'x', min_cpus = 4.0, min_mem_per_node = 1000.0, time_limit = 60.0}}
             local placed, reason = sjp.place(job, 1000, nil)
             return placed, reason, job.partition
         end",
        stage::stage().display()
    );
    lua.load(script).exec().unwrap();
    lua
}

fn submit(lua: &Lua) -> (bool, Option<String>, Option<String>) {
    lua.load("return submit()").eval().unwrap()
}

fn placed(lua: &Lua) {
    assert_eq!(submit(lua), (true, None, Some("batch".to_owned())));
}

/// How often the module is mapped into this process.
fn is_mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("/sjp_native-5.")
}

// One test, since all of it is about what the process as a whole holds.
#[test]
fn states_come_and_go_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = published(dir.path());
    assert!(!is_mapped());

    // The older closed first, as slurmctld does.
    let older = state(dir.path());
    placed(&older);
    let newer = state(dir.path());
    placed(&newer);
    placed(&older);
    drop(older);
    placed(&newer);

    // The newer closed first.
    let third = state(dir.path());
    placed(&third);
    drop(third);
    placed(&newer);

    // None left: the module stays where it is.
    drop(newer);
    assert!(is_mapped(), "linked with -z nodelete");

    // A hundred reloads, each with a new state before the old one goes.
    let mut current = state(dir.path());
    for _ in 0..100 {
        let next = state(dir.path());
        drop(std::mem::replace(&mut current, next));
    }
    placed(&current);

    // They all counted on one another's promises: 40 jobs fit, 7 are placed.
    let more = (0..100).filter(|_| submit(&current).0).count();
    assert_eq!(more, 40 - 7);
    assert_eq!(submit(&current).1.as_deref(), Some("no room"));
    assert_eq!(publisher.claims_since(0).unwrap().list.len(), 40);
}
