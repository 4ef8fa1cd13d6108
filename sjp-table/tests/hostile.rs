//! Whatever bytes stand in a table, reading it answers with a value or an
//! error, stays within bounds and ends.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod common;

use common::{Numbers, any_roster, claim, distinct_rooms, rooms_for, roster, small};
use proptest::prelude::*;
use sjp_core::publication::{Group, NameTable, RoomView, Rooms};
use sjp_table::layout::{self, Layout, header, ring};
use sjp_table::parts::{self, Plain};
use sjp_table::{Capacity, Damage, Meta, PushError, ReadError, RosterFault};

/// A table in ordinary memory with something of everything in it.
fn plain() -> Plain {
    let table = Plain::new(small()).unwrap();
    let roster = roster(30);
    table.store_roster(0, 5, &roster);
    for seed in 0..3 {
        table.publish(&rooms_for(&roster, seed), Meta::default(), 5, 0);
    }
    for n in 0..100 {
        table.push(&claim(n)).unwrap();
    }
    table
}

/// The word of a rooms buffer that readers look at now.
fn current(table: &Plain, word: usize) -> usize {
    let generation = table.read(|view| view.generation()).unwrap();
    table.layout().rooms[(generation & 1) as usize] + word
}

fn layout() -> Layout {
    Layout::new(small()).unwrap()
}

#[test]
fn a_sound_table_walks_whole() {
    let walk = plain().walk().unwrap();
    assert!(walk.groups > 0 && walk.members > 0);
    assert_eq!((walk.nodes, walk.claims), (30, 64));
}

/// Random words everywhere but in the header: many tables, each read whole.
#[test]
fn random_words_behind_a_sound_header() {
    let sound = plain().to_bytes();
    let mut numbers = Numbers::new(1);
    let mut outcomes = std::collections::BTreeMap::<String, usize>::new();
    for round in 0..200 {
        let mut bytes = sound.clone();
        // Whole garbage, garbage among what is sound, or small numbers, which
        // get past more checks.
        let share = 1 + numbers.below(4);
        let small_numbers = round % 3 == 0;
        for word in bytes[header::WORDS * 8..].chunks_exact_mut(8) {
            if numbers.below(4) < share {
                let value = if small_numbers { numbers.below(40) } else { numbers.next() };
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
        // Let the reader in: what the sequence words guard is tested elsewhere.
        let generation = numbers.below(4) + 1;
        let buffer = layout().rooms[(generation & 1) as usize];
        let mut put = |word: usize, value: u64| {
            bytes[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
        };
        put(header::GENERATION, generation);
        put(buffer, 2 * generation);
        put(header::CLOSED, 0);
        if numbers.below(2) == 0 {
            let slot = numbers.below(2);
            put(buffer + layout::rooms::ROSTER_SLOT, slot);
            put(buffer + layout::rooms::ROSTER_ID, 5);
            put(layout().roster[slot as usize], 2);
            put(layout().roster[slot as usize] + layout::roster::ID, 5);
        }
        if numbers.below(2) == 0 {
            put(layout().ring, numbers.below(1000));
            for count in layout::rooms::GROUPS..=layout::rooms::QOS_ROOMS {
                put(buffer + count, numbers.below(65));
            }
        }
        let outcome = match parts::exercise(&bytes) {
            Ok(_) => "read".to_owned(),
            Err(text) => text.chars().take_while(|c| !c.is_ascii_digit()).collect(),
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{outcomes:#?}");
    assert!(outcomes.len() > 3, "more than one thing was refused: {outcomes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_words_changed(changes in proptest::collection::vec(
        (0..layout().total_words(), prop_oneof![0..64u64, any::<u64>(), 0..=1u64 << 33]), 1..40,
    )) {
        let table = plain();
        for (word, value) in changes {
            table.poke(word, value);
        }
        let _ = table.walk();
        let _ = parts::exercise(&table.to_bytes());
    }

    #[test]
    fn any_bits_flipped(flips in proptest::collection::vec((any::<u32>(), 0..8u32), 1..20)) {
        let mut bytes = plain().to_bytes();
        let len = bytes.len();
        for (at, bit) in flips {
            // Half of them where readers look first.
            let at = if at % 2 == 0 { at as usize % 4096 } else { at as usize % len };
            bytes[at] ^= 1 << bit;
        }
        let _ = parts::exercise(&bytes);
    }

    #[test]
    fn any_bytes_at_all(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        prop_assert!(parts::exercise(&bytes).is_err());
    }

    #[test]
    fn any_bytes_as_a_roster(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let table = plain();
        table.store_roster_bytes(0, 5, &bytes);
        let _ = table.walk();
    }

    /// Changed bytes of a real roster, with a checksum that fits: what decodes
    /// and passes the check is sound.
    #[test]
    fn a_damaged_roster_with_a_good_checksum(
        roster in any_roster(),
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = parts::encode(&roster).unwrap();
        let len = bytes.len();
        for (at, value) in changes {
            bytes[at as usize % len] = value;
        }
        let table = plain();
        table.store_roster_bytes(0, 5, &bytes);
        // `walk` follows every index of a roster that came through.
        let _ = table.walk();
    }
}

#[test]
fn rosters_that_claim_to_be_huge_are_refused() {
    // 2^64 - 1 wherever a length may stand: to set that much aside would panic.
    let sound = parts::encode(&roster(5)).unwrap();
    let mut refused = 0;
    for at in 0..sound.len() {
        let mut bytes = sound[..at].to_vec();
        bytes.extend([0xFF; 9]);
        bytes.push(0x01);
        bytes.extend(&sound[at..]);
        refused += usize::from(parts::decode(&bytes).is_err());
    }
    assert!(refused > sound.len() / 2, "{refused} of {}", sound.len());
}

#[test]
fn each_unsound_roster_is_refused_by_the_reader_too() {
    let table = plain();
    let refuse = |change: &dyn Fn(&mut sjp_core::publication::Roster)| {
        let mut unsound = roster(30);
        change(&mut unsound);
        table.store_roster(0, 5, &unsound);
        match table.roster().unwrap_err() {
            ReadError::Damaged(Damage::Roster(fault)) => fault,
            other => panic!("{other}"),
        }
    };
    use RosterFault as F;
    assert!(matches!(refuse(&|r| r.kind_of[3] = 3), F::Index { index: 3, found: 3, .. }));
    assert!(matches!(refuse(&|r| r.kinds[0].pset = 9), F::Index { .. }));
    assert!(matches!(refuse(&|r| r.psets[0] = vec![4]), F::Index { .. }));
    assert!(matches!(refuse(&|r| r.bound_users[0].partitions = vec![99]), F::Index { .. }));
    assert!(matches!(refuse(&|r| r.kind_of.push(0)), F::KindOfLength { .. }));
    assert!(matches!(refuse(&|r| r.policy.min_gain = Some(f64::INFINITY)), F::Setting(_)));
    let unsorted = NameTable::new((0..30).rev().map(|i| ["b", "a"][i % 2]));
    assert!(matches!(refuse(&|r| r.nodes = unsorted.clone()), F::Order { .. }));
}

#[test]
fn a_roster_of_another_size_than_the_rooms() {
    let table = plain();
    table.store_roster(0, 5, &roster(29));
    assert!(matches!(
        table.roster(),
        Err(ReadError::Damaged(Damage::Count { what: "nodes", found: 30, most: 29 }))
    ));
}

#[test]
fn a_roster_that_is_not_where_the_rooms_say() {
    let table = plain();
    table.poke(current(&table, layout::rooms::ROSTER_SLOT), 1);
    let error = table.roster().unwrap_err();
    assert_eq!(error, ReadError::Damaged(Damage::RosterSlot { id: 5, slot: 1 }));
    table.poke(current(&table, layout::rooms::ROSTER_SLOT), u64::MAX);
    let error = table.roster().unwrap_err();
    assert_eq!(error, ReadError::Damaged(Damage::RosterSlot { id: 5, slot: u64::MAX }));
}

#[test]
fn a_roster_with_a_wrong_checksum_or_length() {
    let slot = layout().roster[0];
    let table = plain();
    table.poke(slot + layout::roster::WORDS + 3, 0x1234);
    assert_eq!(table.roster(), Err(ReadError::Damaged(Damage::RosterChecksum)));
    let table = plain();
    table.poke(slot + layout::roster::LENGTH, 1 << 50);
    assert!(matches!(
        table.roster(),
        Err(ReadError::Damaged(Damage::Count { what: "bytes of roster", .. }))
    ));
}

#[test]
fn counts_beyond_their_capacity() {
    for (word, what) in [
        (layout::rooms::GROUPS, "groups"),
        (layout::rooms::MEMBERS, "members"),
        (layout::rooms::NODES, "nodes"),
        (layout::rooms::QOS_ROOMS, "QOS rooms"),
    ] {
        for found in [65, 1 << 32, u64::MAX] {
            let table = plain();
            table.poke(current(&table, word), found);
            let error = table.read(|_| ()).unwrap_err();
            assert_eq!(error, ReadError::Damaged(Damage::Count { what, found, most: 64 }));
        }
    }
}

#[test]
fn a_group_that_claims_members_beyond_the_last() {
    let table = plain();
    let hostile = Group { first: u32::MAX, count: u32::MAX, ..Group::default() };
    let rooms = Rooms {
        groups: vec![hostile, Group { first: 1, count: u32::MAX, ..Group::default() }],
        members: vec![0, 1, 70],
        group_of: vec![0, 1, 9],
        ..Rooms::default()
    };
    table.publish(&rooms, Meta::default(), 5, 0);
    table
        .read(|view| {
            let spans: Vec<_> =
                (0..2).filter_map(|i| view.group(i)).map(|g| (g.first, g.count)).collect();
            assert_eq!(spans, [(3, 0), (1, 2)]);
            assert_eq!(view.member(1), Some(1));
            assert_eq!(view.member(2), None, "a node beyond the last");
            assert_eq!(view.group_of(2), None, "a group beyond the last");
        })
        .unwrap();
}

#[test]
fn a_publisher_stuck_inside_is_busy_after_a_bounded_number_of_tries() {
    let table = plain();
    table.poke(current(&table, layout::rooms::SEQUENCE), 7);
    let mut runs = 0;
    assert_eq!(table.read(|_| runs += 1), Err(ReadError::Busy));
    assert_eq!(runs, 0);
    // The roster stuck, too.
    let table = plain();
    table.poke(layout().roster[0], 9);
    assert_eq!(table.roster(), Err(ReadError::Busy));
}

#[test]
fn a_publisher_that_comes_in_between_each_time_is_busy_in_the_end() {
    let table = plain();
    let publish_twice = || {
        for _ in 0..2 {
            table.publish(&Rooms::default(), Meta::default(), 5, 0);
        }
    };
    let mut runs = 0;
    let answer = table.read(|_| {
        runs += 1;
        publish_twice();
    });
    assert_eq!(answer, Err(ReadError::Busy));
    assert_eq!(runs, sjp_table::MAX_TRIES);
    // Once is no harm.
    let mut runs = 0;
    let answer = table.read(|_| {
        runs += 1;
        if runs == 1 {
            publish_twice();
        }
        runs
    });
    assert_eq!(answer, Ok(2));
    // And one publication goes to the other buffer: it does not disturb.
    let answer = table.read(|view| {
        table.publish(&Rooms::default(), Meta::default(), 5, 0);
        view.generation()
    });
    assert_eq!(answer.map(|n| n + 1), table.read(|view| view.generation()));
}

#[test]
fn a_publisher_that_dies_inside_leaves_the_other_buffer() {
    let table = plain();
    let before = table.read(|view| view.to_rooms()).unwrap();
    let generation = table.read(|view| view.generation()).unwrap();
    let other = layout().rooms[((generation + 1) & 1) as usize];
    table.poke(other, 5);
    for word in 1..layout().rooms_words {
        table.poke(other + word, u64::MAX);
    }
    assert_eq!(table.read(|view| view.to_rooms()), Ok(before));
}

#[test]
fn a_half_written_claim_leaves_one_slot_unreadable() {
    for filled in [None, Some(claim(99))] {
        let table = Plain::new(small()).unwrap();
        table.push(&claim(1)).unwrap();
        assert_eq!(table.push_and_die(filled.as_ref()), Ok(2));
        table.push(&claim(3)).unwrap();
        // For who waits for it: nothing beyond.
        let (seen, pending) = table.claims(0, 0).unwrap();
        assert_eq!((seen.upto, seen.lost, pending), (1, 0, Some(2)));
        // For who passes it over: the next.
        let (seen, pending) = table.claims(0, 2).unwrap();
        assert_eq!((seen.upto, seen.lost, pending), (3, 1, None));
        assert_eq!(seen.list.iter().map(|c| c.seq).collect::<Vec<_>>(), [1, 3]);
        // The ring comes round and takes the slot back.
        for n in 4..=66 {
            assert_eq!(table.push(&claim(n)), Ok(n));
        }
        let (seen, _) = table.claims(60, 0).unwrap();
        assert_eq!((seen.upto, seen.lost, seen.list.len()), (66, 0, 6));
    }
}

#[test]
fn a_head_that_is_no_sequence_number() {
    let table = plain();
    for head in [u64::MAX, 1 << 63, (1 << 62) + 1] {
        table.poke(layout().ring + ring::HEAD, head);
        assert_eq!(table.claims(0, 0), Err(Damage::ClaimsHead(head)));
        let error = table.push(&claim(1)).unwrap_err();
        assert!(matches!(error, PushError::Damaged(_)), "{error}");
    }
    // One that is possible and wrong: bounded work, nothing believed.
    table.poke(layout().ring + ring::HEAD, 1 << 62);
    let (seen, pending) = table.claims(3, u64::MAX).unwrap();
    assert_eq!((seen.list.len(), pending, seen.upto), (0, None, 1 << 62));
}

#[test]
fn a_spoilt_claim_is_not_believed() {
    let table = Plain::new(small()).unwrap();
    for n in 1..=3 {
        table.push(&claim(n)).unwrap();
    }
    let second = layout().ring + ring::WORDS + ring::SLOT_WORDS;
    for word in ring::ID..ring::SLOT_WORDS {
        let table = Plain::from_bytes(&table.to_bytes()).unwrap();
        table.poke(second + word, 0xABCD);
        let (seen, _) = table.claims(0, 0).unwrap();
        assert_eq!((seen.list.len(), seen.lost, seen.upto), (2, 1, 3));
    }
}

#[test]
fn a_claim_by_a_writer_that_slept_for_a_whole_ring_is_not_believed() {
    let table = Plain::new(small()).unwrap();
    let sleeper = table.push_and_die(None).unwrap();
    for n in 2..=65 {
        assert_eq!(table.push(&claim(n)), Ok(n));
    }
    // 65 stands in the sleeper's slot now; the sleeper's data spoil it.
    let slot = layout().ring + ring::WORDS;
    table.poke(slot + ring::ID, 0xBAD);
    let (seen, _) = table.claims(sleeper, 0).unwrap();
    assert_eq!((seen.list.len(), seen.lost), (63, 1));
}

#[test]
fn a_walk_is_cheap_even_where_every_group_claims_all_members() {
    let nodes = 2000;
    let table = Plain::new(Capacity::for_size(nodes)).unwrap();
    let mut rooms = distinct_rooms(nodes, 1);
    for group in &mut rooms.groups {
        (group.first, group.count) = (0, u32::MAX);
    }
    table.store_roster(0, 1, &roster(nodes));
    table.publish(&rooms, Meta::default(), 1, 0);
    let walk = table.walk().unwrap();
    assert_eq!((walk.groups, walk.members), (nodes, nodes));
}
