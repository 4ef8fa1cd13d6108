//! Promises: what is placed counts at once, whoever placed it, and only until
//! sjpd has taken it over; several Lua states share one table.
#![cfg(feature = "vendored")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::cluster::{Cluster, node, partition};
use common::{Submitter, World, counted};
use sjp_core::publication::Claim;
use sjp_table::Reader;

/// Ten nodes of 8 CPUs and 32,000 MB, all free, in one partition.
fn ten() -> Cluster {
    let mut cluster = Cluster::empty();
    for i in 0..10 {
        cluster.nodes.push(node(&format!("n{i}"), 8, 32_000, &["batch"]));
    }
    cluster.partitions.push(partition("batch", &cluster.nodes));
    cluster
}

const HALF: &str = "min_cpus=4.0, min_mem_per_node=16000.0, time_limit=60.0,";

#[test]
fn a_burst_never_promises_a_node_twice() {
    let mut world = World::new(ten());
    let placed = (0..30).filter(|_| world.place(HALF).placed).count();
    assert_eq!(placed, 20, "two on each of ten nodes, then no room");
    let claims = world.publisher.claims_since(0).unwrap();
    assert_eq!(claims.list.len(), 20);
    let by_node = counted(claims.list.iter().map(|c| c.node));
    assert_eq!(by_node.len(), 10);
    assert!(by_node.values().all(|&n| n == 2), "{by_node:?}");
    assert_eq!(counted(claims.list.iter().map(|c| c.id)).len(), 20, "ids differ");
}

#[test]
fn a_claim_says_what_the_job_takes() {
    let mut world = World::new(ten());
    world.cluster.take("n3", 4, 8_000);
    world.publish();
    let out = world.place("min_cpus=2.0, min_mem_per_cpu=6000.0, time_limit=90.0, user_id=1000.0,");
    let claims = world.publisher.claims_since(0).unwrap().list;
    let [claim] = claims.as_slice() else { panic!("{claims:?}") };
    assert_eq!((claim.cpus, claim.mem, claim.limit, claim.uid), (2, 12_000, 90, 1000));
    assert_eq!(claim.roster, world.roster_id);
    assert_eq!(out.mark("id"), Some(format!("{:x}", claim.id)));
    let name = format!("n{}", claim.node);
    assert_eq!(out.req_nodes, Some(name));
    assert_eq!((claim.not_pinned(), claim.flags & 1), (None, 1));
}

#[test]
fn the_owner_is_who_submits_unless_root_submits_for_another() {
    let mut world = World::new(ten());
    for (submit_uid, owner) in [(54_321, 54_321), (0, 4711)] {
        let call = format!("sjp.place((desc({{{HALF} user_id=4711.0}})), {submit_uid}, nil)");
        assert_eq!(world.submitter.raw(&call).0, mlua::Value::Boolean(true));
        let claims = world.publisher.claims_since(0).unwrap().list;
        assert_eq!(claims.last().map(|c| c.uid), Some(owner));
    }
}

#[test]
fn placements_without_a_pin_are_claimed_too() {
    let mut world = World::new(ten());
    for _ in 0..5 {
        assert!(world.place(&format!("{HALF}array_inx='1-4',")).placed);
    }
    let out = world.place(HALF);
    assert_eq!(out.reason.as_deref(), Some("no room"), "20 tasks were promised: {out:?}");
    let claims = world.publisher.claims_since(0).unwrap().list;
    assert!(claims.iter().all(|c| c.flags & 3 == 2), "arrays, not pinned: {claims:?}");
}

#[test]
fn what_sjpd_has_taken_counts_no_more() {
    let mut world = World::new(ten());
    while world.place(HALF).placed {}
    let claims = world.publisher.claims_since(0).unwrap();
    // The rooms account for the first twelve by now (here: those jobs ended).
    world.claims_taken = claims.list[11].seq;
    world.publish();
    let placed = (0..30).filter(|_| world.place(HALF).placed).count();
    assert_eq!(placed, 12);
    world.claims_taken = world.publisher.claims_since(0).unwrap().upto;
    world.publish();
    assert_eq!((0..30).filter(|_| world.place(HALF).placed).count(), 20);
}

#[test]
fn claims_of_others_count() {
    let world = World::new(ten());
    assert!(world.place(HALF).placed);
    let other = Reader::attach(&world.dir.path().join("table")).unwrap();
    for node in 0..10 {
        let claim =
            Claim { roster: world.roster_id, node, cpus: 8, mem: 32_000, ..Claim::default() };
        other.push_claim(&claim).unwrap();
    }
    assert_eq!(world.place(HALF).reason.as_deref(), Some("no room"));
}

#[test]
fn claims_on_another_roster_do_not() {
    let world = World::new(ten());
    let other = Reader::attach(&world.dir.path().join("table")).unwrap();
    for node in 0..10 {
        let claim = Claim { roster: 99, node, cpus: 8, mem: 32_000, ..Claim::default() };
        other.push_claim(&claim).unwrap();
    }
    assert!(world.place(HALF).placed);
}

#[test]
fn a_job_left_alone_claims_nothing() {
    let mut world = World::new(ten());
    for fields in ["tres_per_node='gpu:1',", "min_cpus=9.0,", "script=false,"] {
        assert!(!world.place(&format!("{HALF}{fields}")).placed);
    }
    assert_eq!(world.publisher.claims_since(0).unwrap().list, []);
    let desc = format!("desc({{{HALF}}}, 'partition')");
    assert!(!world.submitter.call_desc("place", &desc, "nil").placed);
    let list = world.publisher.claims_since(0).unwrap().list;
    assert_eq!(list.len(), 1, "made before the fields were refused; it expires in sjpd");
}

#[test]
fn two_states_share_the_promises_and_either_may_close_first() {
    for older_first in [true, false] {
        let world = World::new(ten());
        let older = Submitter::new(world.shared, world.dir.path());
        let newer = Submitter::new(world.shared, world.dir.path());
        for _ in 0..3 {
            assert!(older.place(HALF).placed && newer.place(HALF).placed);
        }
        let left = if older_first {
            drop(older);
            newer
        } else {
            drop(newer);
            older
        };
        let placed = (0..30).filter(|_| left.place(HALF).placed).count();
        assert_eq!(placed, 14);
    }
}
