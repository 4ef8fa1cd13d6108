//! Attach to any bytes, and read whatever was let in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sjp_core::publication::{Claim, Group, Kind, NameTable, PartitionRule, QosRoom, Rooms, Roster};
use sjp_core::units::Cpus;
use sjp_table::parts::{self, Plain};
use sjp_table::{Capacity, Meta};
use std::sync::OnceLock;

/// A sound table with something of everything.
fn sound() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let capacity =
            Capacity { nodes: 8, groups: 8, qos_rooms: 4, roster_bytes: 1024, claims: 4 };
        let table = Plain::new(capacity).expect("within the limits");
        let roster = Roster {
            nodes: NameTable::new(["a", "b", "c"]),
            partitions: vec![PartitionRule { name: "p".into(), ..Default::default() }],
            psets: vec![vec![0]],
            kinds: vec![Kind { cpus: Cpus(4), mem: None, size: None, step: 1, pset: 0 }],
            kind_of: vec![0; 3],
            qos: vec!["q".into()],
            ..Default::default()
        };
        let rooms = Rooms {
            groups: vec![Group { cpus: 4, count: 3, ..Default::default() }],
            members: vec![0, 1, 2],
            group_of: vec![0, 0, 0],
            qos_rooms: vec![QosRoom { uid: 1, qos: 0, cpus: 9 }],
        };
        table.store_roster(0, 1, &roster);
        table.publish(&rooms, Meta::default(), 1, 0);
        table.publish(&rooms, Meta::default(), 1, 0);
        for id in 0..6 {
            table.push(&Claim { id, ..Default::default() }).expect("a fresh ring");
        }
        table.to_bytes()
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    if kind % 8 == 0 {
        let _ = parts::exercise(data);
        return;
    }
    // Words overwritten: two bytes of place, eight of value.
    let mut bytes = sound().to_vec();
    let words = bytes.len() / 8;
    let ring = words - 8 - 4 * 8;
    for change in data.chunks_exact(10) {
        let (place, value) = change.split_at(2);
        let place = usize::from(u16::from_le_bytes([place[0], place[1]]));
        // The zeros before the ring are of no interest.
        let word = if place % 4 == 0 { ring + place / 4 % 40 } else { place % 700 };
        bytes[word * 8..word * 8 + 8].copy_from_slice(value);
    }
    let _ = parts::exercise(&bytes);
});
