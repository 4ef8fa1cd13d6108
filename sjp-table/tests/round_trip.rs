//! What is published is what is read: over a real memfd, through the link.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod common;

use common::{any_roster, claim, distinct_rooms, rooms_for, roster, small};
use proptest::prelude::*;
use sjp_core::publication::{RoomView, Rooms, Roster};
use sjp_table::{
    AttachError, Capacity, Meta, PublishError, Publisher, PushError, ReadError, Reader, RoomsFault,
    RosterFault, now_ns,
};

fn meta(n: u64) -> Meta {
    Meta { data_time_ns: n, claims_taken: 0 }
}

/// Everything that a view answers equals what the rooms themselves answer.
fn assert_same(reader: &mut Reader, roster: &Roster, rooms: &Rooms, meta: Meta) {
    let copy = reader
        .read_with_roster(|view, r| {
            assert_eq!(r, roster);
            assert_eq!(view.meta(), meta);
            assert_eq!(view.group_count(), rooms.group_count());
            for i in 0..=rooms.group_count() {
                assert_eq!(view.group(i), rooms.group(i));
                assert_eq!(view.free(i), rooms.group(i).map(|g| (g.cpus, g.mem)));
            }
            for k in 0..=rooms.members.len() {
                assert_eq!(view.member(k), rooms.member(k));
            }
            for node in 0..=rooms.group_of.len() as u32 {
                assert_eq!(view.group_of(node), rooms.group_of(node));
            }
            for uid in (0..41).chain([u32::MAX]) {
                for qos in 0..5 {
                    assert_eq!(view.qos_room(uid, qos), rooms.qos_room(uid, qos));
                }
            }
            view.to_rooms()
        })
        .unwrap();
    assert_eq!(&copy, rooms);
    assert_eq!(*reader.roster().unwrap(), *roster);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_publication_comes_through(
        roster in any_roster(),
        seeds in proptest::collection::vec(any::<u64>(), 1..4),
        id in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut publisher = Publisher::create(dir.path(), small()).unwrap();
        let mut reader = Reader::attach(&publisher.link()).unwrap();
        for (n, seed) in seeds.into_iter().enumerate() {
            let rooms = rooms_for(&roster, seed);
            let meta = Meta { data_time_ns: seed, claims_taken: n as u64 };
            publisher.publish(&roster, id, &rooms, meta).unwrap();
            assert_same(&mut reader, &roster, &rooms, meta);
        }
    }
}

#[test]
fn a_fresh_table_is_empty_and_a_closed_one_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let mut reader = Reader::attach(&publisher.link()).unwrap();
    assert_eq!(reader.read(|_| ()), Err(ReadError::Empty));
    assert_eq!(reader.roster().unwrap_err(), ReadError::Empty);
    assert_eq!(reader.publisher_pid(), std::process::id());

    let (roster, rooms) = (roster(9), distinct_rooms(9, 1));
    publisher.publish(&roster, 1, &rooms, meta(1)).unwrap();
    assert_eq!(reader.read(|view| view.generation()), Ok(1));
    assert!(!reader.is_closed());

    let before = reader.heartbeat_ns();
    publisher.heartbeat();
    assert!(reader.heartbeat_ns() >= before && before > 0 && reader.heartbeat_ns() <= now_ns());

    publisher.close();
    assert!(reader.is_closed());
    assert_eq!(reader.read(|_| ()), Err(ReadError::Closed));
    assert_eq!(reader.push_claim(&claim(1)), Err(PushError::Closed));
    assert!(matches!(publisher.publish(&roster, 1, &rooms, meta(2)), Err(PublishError::Closed)));
    assert!(matches!(Reader::attach(&publisher.link()), Err(AttachError::NoTable { .. })));
}

#[test]
fn dropping_the_publisher_closes_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::create(dir.path(), small()).unwrap();
    let link = publisher.link();
    let reader = Reader::attach(&link).unwrap();
    drop(publisher);
    assert!(reader.is_closed());
    assert!(link.symlink_metadata().is_err(), "the link is gone with its table");
}

#[test]
fn a_later_publishers_link_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let first = Publisher::create(dir.path(), small()).unwrap();
    let second = Publisher::create(dir.path(), small()).unwrap();
    drop(first);
    assert!(Reader::attach(&second.link()).is_ok());
}

#[test]
fn a_new_roster_is_decoded_and_an_old_one_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let mut reader = Reader::attach(&publisher.link()).unwrap();
    for id in 1..20 {
        let roster = roster(id as usize);
        let rooms = distinct_rooms(id as usize, id);
        publisher.publish(&roster, id, &rooms, meta(id)).unwrap();
        assert_same(&mut reader, &roster, &rooms, meta(id));
        let first = reader.roster().unwrap();
        publisher.publish(&roster, id, &rooms, meta(id + 100)).unwrap();
        let again = reader.roster().unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &again), "decoded once an id");
    }
}

#[test]
fn what_does_not_fit_is_refused_whole_and_replace_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let mut reader = Reader::attach(&publisher.link()).unwrap();
    let (few, few_rooms) = (roster(10), distinct_rooms(10, 1));
    publisher.publish(&few, 1, &few_rooms, meta(1)).unwrap();

    let (many, many_rooms) = (roster(500), distinct_rooms(500, 2));
    let Err(PublishError::Full { needed }) = publisher.publish(&many, 2, &many_rooms, meta(2))
    else {
        panic!("500 nodes do not fit into 64");
    };
    assert!(needed.nodes == 500 && needed.groups == 500 && needed.roster_bytes >= 16_384);
    assert_eq!(needed.claims, 64);
    // The old publication stands, and its roster too.
    assert_same(&mut reader, &few, &few_rooms, meta(1));

    assert!(publisher.publish_or_grow(&many, 2, &many_rooms, meta(3)).unwrap());
    assert_eq!(reader.read(|_| ()), Err(ReadError::Closed));
    let mut reader = Reader::attach(&publisher.link()).unwrap();
    assert_same(&mut reader, &many, &many_rooms, meta(3));
    assert!(publisher.capacity().nodes > 500, "with head-room");
    assert!(!publisher.publish_or_grow(&many, 2, &many_rooms, meta(4)).unwrap());
}

#[test]
fn claims_survive_the_replacement_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let reader = Reader::attach(&publisher.link()).unwrap();
    for n in 1..=5 {
        assert_eq!(reader.push_claim(&claim(n)), Ok(n));
    }
    let seen = publisher.claims_since(0).unwrap();
    assert_eq!((seen.upto, seen.lost, seen.list.len()), (5, 0, 5));
    assert_eq!(reader.push_claim(&claim(6)), Ok(6));

    let (roster, rooms) = (roster(100), distinct_rooms(100, 2));
    let taken = Meta { data_time_ns: 1, claims_taken: 3 };
    let capacity = Capacity::for_size(100);
    publisher.replace(capacity, &roster, 7, &rooms, taken).unwrap();
    assert_eq!(reader.push_claim(&claim(9)), Err(PushError::Closed));

    let reader = Reader::attach(&publisher.link()).unwrap();
    let mut list = Vec::new();
    // For the module: what the rooms do not account for, under the old numbers.
    assert_eq!(reader.claims_since(taken.claims_taken, &mut list), Ok(0));
    let ids: Vec<_> = list.iter().map(|c| (c.seq, c.id)).collect();
    assert_eq!(ids, [4, 5, 6].map(|n| (n, claim(n).id)));
    // For the publisher: what it had not seen.
    let seen = publisher.claims_since(seen.upto).unwrap();
    assert_eq!(seen.list.iter().map(|c| c.seq).collect::<Vec<_>>(), [6]);
    assert_eq!(reader.push_claim(&claim(7)), Ok(7));
    assert_eq!(publisher.claims_since(seen.upto).unwrap().upto, 7);
}

#[test]
fn claims_come_through_and_the_ring_tells_what_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let reader = Reader::attach(&publisher.link()).unwrap();
    assert_eq!(publisher.claims_since(0).unwrap().upto, 0);
    for n in 1..=200u64 {
        assert_eq!(reader.push_claim(&claim(n)), Ok(n));
        let mut list = Vec::new();
        assert_eq!(reader.claims_since(n - 1, &mut list), Ok(0));
        assert_eq!(list, [sjp_core::publication::Claim { seq: n, ..claim(n) }]);
    }
    let seen = publisher.claims_since(0).unwrap();
    assert_eq!((seen.list.len(), seen.lost, seen.upto), (64, 136, 200));
    assert!(seen.list.iter().map(|c| c.seq).eq(137..=200));
    assert_eq!(publisher.claims_since(200).unwrap().list, []);
    // A number from another time is no claim and no loss.
    let beyond = publisher.claims_since(10_000).unwrap();
    assert_eq!((beyond.upto, beyond.lost), (10_000, 0));
}

#[test]
fn unsound_rooms_and_rosters_are_not_published() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let good = roster(6);
    let rooms = distinct_rooms(6, 1);
    let mut refuse = |roster: &Roster, rooms: &Rooms| {
        publisher.publish(roster, 1, rooms, Meta::default()).unwrap_err()
    };
    let mut with_rooms = |change: &dyn Fn(&mut Rooms)| {
        let mut rooms = rooms.clone();
        change(&mut rooms);
        match refuse(&good, &rooms) {
            PublishError::Rooms(fault) => fault,
            other => panic!("{other}"),
        }
    };
    use RoomsFault as F;
    assert!(matches!(with_rooms(&|r| r.group_of.truncate(5)), F::GroupOfLength { .. }));
    assert!(matches!(with_rooms(&|r| r.groups[1].pset = 3), F::Pset { group: 1, .. }));
    assert!(matches!(with_rooms(&|r| r.groups[1].phi = f64::NAN), F::Phi { group: 1 }));
    assert!(matches!(with_rooms(&|r| r.groups[5].count = 2), F::Span { group: 5, .. }));
    assert!(matches!(with_rooms(&|r| r.groups[5].first = u32::MAX), F::Span { .. }));
    assert!(matches!(with_rooms(&|r| r.members[2] = 77), F::Member { group: 2, node: 77 }));
    assert!(matches!(with_rooms(&|r| r.group_of[2] = 4), F::Member { group: 2, node: 2 }));
    assert!(matches!(with_rooms(&|r| r.groups[5].count = 0), F::Unlisted { .. }));
    assert!(matches!(with_rooms(&|r| r.qos_rooms.swap(0, 1)), F::QosOrder { index: 1 }));
    assert!(matches!(with_rooms(&|r| r.qos_rooms[3].qos = 2), F::Qos { index: 3, .. }));

    let mut with_roster = |change: &dyn Fn(&mut Roster)| {
        let mut roster = good.clone();
        change(&mut roster);
        match refuse(&roster, &rooms) {
            PublishError::Roster(fault) => fault,
            other => panic!("{other}"),
        }
    };
    use RosterFault as F2;
    assert!(matches!(with_roster(&|r| r.kind_of[1] = 9), F2::Index { .. }));
    assert!(matches!(with_roster(&|r| r.kinds[1].pset = 3), F2::Index { .. }));
    assert!(matches!(with_roster(&|r| r.psets[1] = vec![1, 4]), F2::Index { .. }));
    assert!(matches!(with_roster(&|r| r.psets[1] = vec![2, 1]), F2::Order { .. }));
    assert!(matches!(with_roster(&|r| r.partitions.swap(0, 1)), F2::Order { .. }));
    assert!(matches!(with_roster(&|r| r.qos.swap(0, 1)), F2::Order { .. }));
    assert!(matches!(with_roster(&|r| r.bound_users[0].partitions[0] = 4), F2::Index { .. }));
    assert!(matches!(with_roster(&|r| r.kind_of.truncate(2)), F2::KindOfLength { .. }));
    assert!(matches!(with_roster(&|r| r.policy.tolerance = f64::NAN), F2::Setting(_)));
    assert!(matches!(with_roster(&|r| r.policy.demand[0].mb_per_cpu = 0.0), F2::Setting(_)));
    let names = |names: [&str; 6]| sjp_core::publication::NameTable::new(names);
    let twice = names(["a", "b", "b", "c", "d", "e"]);
    assert!(matches!(
        with_roster(&|r| r.nodes = twice.clone()),
        F2::Order { what: "node names", index: 2 }
    ));
}

#[test]
fn a_capacity_out_of_range_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for capacity in [
        Capacity { nodes: 0, ..small() },
        Capacity { nodes: u32::MAX, ..small() },
        Capacity { claims: u32::MAX, ..small() },
        Capacity { roster_bytes: u32::MAX, ..small() },
    ] {
        let error = Publisher::create(dir.path(), capacity).unwrap_err();
        assert!(error.to_string().starts_with("a table cannot hold"), "{error}");
    }
    let error = Publisher::create(&dir.path().join("missing"), small()).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}
