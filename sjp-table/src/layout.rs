//! Where everything stands in the table. Offsets follow from the capacities
//! alone, so a reader works them out for itself and only compares them with
//! what the header says. `docs/table.md` shows the same; a test compares the
//! two, and the assertions at the end of this file pin the numbers.
//!
//! The table is an array of 64-bit words in the machine's byte order. Where a
//! word holds two 32-bit values, "low" is bits 0 to 31.

use crate::error::CapacityError;

/// What the first eight bytes say.
pub const MAGIC: [u8; 8] = *b"SJPTABLE";
/// Raised with every change of this file's meaning.
pub const LAYOUT_VERSION: u64 = 1;
/// Reads differently on a machine of another byte order.
pub const BYTE_ORDER_MARK: u64 = 0x0102_0304_0506_0708;
/// Bytes in a word.
pub const WORD: usize = 8;
/// Sections and columns begin at a multiple of this many words: a cache line.
pub const LINE_WORDS: usize = 8;
/// The claims ring begins at a multiple of this many bytes, since it is mapped
/// apart: the largest page size in use.
#[cfg(not(loom))]
pub const RING_ALIGN: usize = 65_536;
/// In model runs every word costs, and nothing is mapped.
#[cfg(loom)]
pub const RING_ALIGN: usize = 64;

/// Most nodes that a table can be made for.
pub const MAX_NODES: u32 = 131_072;
/// Most groups.
pub const MAX_GROUPS: u32 = 131_072;
/// Most rooms under QOS caps.
pub const MAX_QOS_ROOMS: u32 = 1_048_576;
/// Most bytes of an encoded roster.
pub const MAX_ROSTER_BYTES: u32 = 8 * 1024 * 1024;
/// Most claims.
pub const MAX_CLAIMS: u32 = 65_536;

/// Words of the header, by index.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::LAYOUT_VERSION`]; 0 until the table is complete.
    pub const VERSION: usize = 1;
    /// [`super::BYTE_ORDER_MARK`].
    pub const BYTE_ORDER: usize = 2;
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 3;
    /// Bytes of the whole table.
    pub const TOTAL_BYTES: usize = 4;
    /// Fingerprint of the roster's encoding.
    pub const SCHEMA: usize = 5;
    /// Process id of the publisher.
    pub const PID: usize = 6;
    /// When the table was made, CLOCK_MONOTONIC nanoseconds.
    pub const CREATED_NS: usize = 7;
    /// Capacities.
    pub const CAP_NODES: usize = 8;
    /// See above.
    pub const CAP_GROUPS: usize = 9;
    /// See above.
    pub const CAP_QOS_ROOMS: usize = 10;
    /// See above.
    pub const CAP_ROSTER_BYTES: usize = 11;
    /// See above; a power of two.
    pub const CAP_CLAIMS: usize = 12;
    /// Offsets of the sections, in bytes.
    pub const OFF_ROOMS_0: usize = 13;
    /// See above.
    pub const OFF_ROOMS_1: usize = 14;
    /// See above.
    pub const OFF_ROSTER_0: usize = 15;
    /// See above.
    pub const OFF_ROSTER_1: usize = 16;
    /// See above.
    pub const OFF_CLAIMS: usize = 17;
    /// How many publications there were; its lowest bit names the current
    /// buffer. From here on words change while the table lives.
    pub const GENERATION: usize = 24;
    /// The publisher's last sign of life, CLOCK_MONOTONIC nanoseconds.
    pub const HEARTBEAT_NS: usize = 25;
    /// Not 0: the publisher has left this table.
    pub const CLOSED: usize = 26;
    /// Words of the header.
    pub const WORDS: usize = 32;

    /// Names and word indices, for the comparison with the document.
    pub const FIELDS: &[(&str, usize)] = &[
        ("magic", MAGIC),
        ("version", VERSION),
        ("byte_order", BYTE_ORDER),
        ("header_bytes", HEADER_BYTES),
        ("total_bytes", TOTAL_BYTES),
        ("schema", SCHEMA),
        ("pid", PID),
        ("created_ns", CREATED_NS),
        ("cap_nodes", CAP_NODES),
        ("cap_groups", CAP_GROUPS),
        ("cap_qos_rooms", CAP_QOS_ROOMS),
        ("cap_roster_bytes", CAP_ROSTER_BYTES),
        ("cap_claims", CAP_CLAIMS),
        ("off_rooms_0", OFF_ROOMS_0),
        ("off_rooms_1", OFF_ROOMS_1),
        ("off_roster_0", OFF_ROSTER_0),
        ("off_roster_1", OFF_ROSTER_1),
        ("off_claims", OFF_CLAIMS),
        ("generation", GENERATION),
        ("heartbeat_ns", HEARTBEAT_NS),
        ("closed", CLOSED),
    ];
}

/// Words at the head of a rooms buffer, by index.
pub mod rooms {
    /// Sequence word: twice the generation that stands here, one less while it
    /// is being written.
    pub const SEQUENCE: usize = 0;
    /// The publication that stands here.
    pub const GENERATION: usize = 1;
    /// When the node data was asked for, CLOCK_MONOTONIC nanoseconds.
    pub const DATA_TIME_NS: usize = 2;
    /// The last claim that the rooms already account for.
    pub const CLAIMS_TAKEN: usize = 3;
    /// The roster that the indices refer to.
    pub const ROSTER_ID: usize = 4;
    /// The roster slot it stands in, 0 or 1.
    pub const ROSTER_SLOT: usize = 5;
    /// When it was published, CLOCK_MONOTONIC nanoseconds.
    pub const PUBLISHED_NS: usize = 6;
    /// Groups in use.
    pub const GROUPS: usize = 7;
    /// Members in use.
    pub const MEMBERS: usize = 8;
    /// Nodes (entries of `group_of`) in use.
    pub const NODES: usize = 9;
    /// Rooms under QOS caps in use.
    pub const QOS_ROOMS: usize = 10;
    /// Words of the head.
    pub const WORDS: usize = 16;

    /// Names and word indices, for the comparison with the document.
    pub const FIELDS: &[(&str, usize)] = &[
        ("sequence", SEQUENCE),
        ("generation", GENERATION),
        ("data_time_ns", DATA_TIME_NS),
        ("claims_taken", CLAIMS_TAKEN),
        ("roster_id", ROSTER_ID),
        ("roster_slot", ROSTER_SLOT),
        ("published_ns", PUBLISHED_NS),
        ("groups", GROUPS),
        ("members", MEMBERS),
        ("nodes", NODES),
        ("qos_rooms", QOS_ROOMS),
    ];
}

/// Words at the head of a roster slot, by index; the encoded roster follows.
pub mod roster {
    /// Sequence word: odd while being written.
    pub const SEQUENCE: usize = 0;
    /// The roster's id.
    pub const ID: usize = 1;
    /// Bytes in use.
    pub const LENGTH: usize = 2;
    /// Checksum of id, length and bytes.
    pub const CHECKSUM: usize = 3;
    /// Words of the head.
    pub const WORDS: usize = 8;

    /// Names and word indices, for the comparison with the document.
    pub const FIELDS: &[(&str, usize)] =
        &[("sequence", SEQUENCE), ("id", ID), ("length", LENGTH), ("checksum", CHECKSUM)];
}

/// Words of the claims ring, by index: the head, and those of each slot.
pub mod ring {
    /// The last sequence number handed out.
    pub const HEAD: usize = 0;
    /// Words of the ring's head; the slots follow.
    pub const WORDS: usize = 8;

    /// In a slot: twice the sequence number, plus one while being written.
    pub const STATE: usize = 0;
    /// In a slot: `Claim::id`.
    pub const ID: usize = 1;
    /// In a slot: `Claim::roster`.
    pub const ROSTER: usize = 2;
    /// In a slot: `Claim::time`.
    pub const TIME: usize = 3;
    /// In a slot: uid (low), node (high).
    pub const UID_NODE: usize = 4;
    /// In a slot: cpus (low), mem (high).
    pub const CPUS_MEM: usize = 5;
    /// In a slot: limit (low), flags (high).
    pub const LIMIT_FLAGS: usize = 6;
    /// In a slot: checksum of the sequence number and the six words above.
    pub const CHECKSUM: usize = 7;
    /// Words of a slot.
    pub const SLOT_WORDS: usize = 8;

    /// Names and word indices of the head, for the comparison with the document.
    pub const FIELDS: &[(&str, usize)] = &[("head", HEAD)];
    /// Names and word indices of a slot, for the comparison with the document.
    pub const SLOT_FIELDS: &[(&str, usize)] = &[
        ("state", STATE),
        ("id", ID),
        ("roster", ROSTER),
        ("time", TIME),
        ("uid_node", UID_NODE),
        ("cpus_mem", CPUS_MEM),
        ("limit_flags", LIMIT_FLAGS),
        ("checksum", CHECKSUM),
    ];
}

/// How much a table can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Nodes (also members of groups), up to [`MAX_NODES`].
    pub nodes: u32,
    /// Groups, up to [`MAX_GROUPS`]; as many as nodes is always enough.
    pub groups: u32,
    /// Rooms under QOS caps, up to [`MAX_QOS_ROOMS`].
    pub qos_rooms: u32,
    /// Bytes of an encoded roster, up to [`MAX_ROSTER_BYTES`].
    pub roster_bytes: u32,
    /// Claims in the ring, up to [`MAX_CLAIMS`]; rounded up to a power of two.
    pub claims: u32,
}

impl Capacity {
    /// Claims that a table holds where nobody says otherwise.
    pub const DEFAULT_CLAIMS: u32 = 16_384;

    /// Head-room for a cluster that has `nodes` nodes now: a quarter more, and
    /// at least 256. The roster is taken to need up to 64 bytes a node.
    #[must_use]
    pub fn for_size(nodes: usize) -> Self {
        let nodes = u32::try_from(nodes).unwrap_or(MAX_NODES);
        Self {
            nodes,
            groups: nodes,
            qos_rooms: 1024,
            roster_bytes: nodes.saturating_mul(64),
            claims: Self::DEFAULT_CLAIMS,
        }
        .with_head_room()
    }

    /// A quarter more of everything but claims, within the limits. This is
    /// what to make a larger table with after [`PublishError::Full`].
    ///
    /// [`PublishError::Full`]: crate::PublishError::Full
    #[must_use]
    pub fn with_head_room(self) -> Self {
        let more = |n: u32, least: u32, most: u32| n.saturating_add(n / 4).clamp(least, most);
        Self {
            nodes: more(self.nodes, 256, MAX_NODES),
            groups: more(self.groups, 256, MAX_GROUPS),
            qos_rooms: more(self.qos_rooms, 1024, MAX_QOS_ROOMS),
            roster_bytes: more(self.roster_bytes, 65_536, MAX_ROSTER_BYTES),
            claims: self.claims.clamp(64, MAX_CLAIMS),
        }
    }

    /// The larger of the two, field by field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.max(other.nodes),
            groups: self.groups.max(other.groups),
            qos_rooms: self.qos_rooms.max(other.qos_rooms),
            roster_bytes: self.roster_bytes.max(other.roster_bytes),
            claims: self.claims.max(other.claims),
        }
    }

    /// Whether everything in `other` fits.
    #[must_use]
    pub fn holds(self, other: Self) -> bool {
        self.max(other) == self
    }
}

/// One column: where it begins within its buffer, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// First word, from the buffer's first.
    pub at: usize,
    /// Words.
    pub words: usize,
}

/// The columns of a rooms buffer, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// A word a group: free cpus (low), free mem (high).
    pub free: Column,
    /// A word a group: phi, the bits of an f64.
    pub phi: Column,
    /// A word a group: pset (bits 0..16), step (16..32), weight (high).
    pub class: Column,
    /// A word a group: taken_at (low), cpus_then (high).
    pub taken: Column,
    /// A word a group: mem_then (low), 0 (high).
    pub then: Column,
    /// A word a group: first (low), count (high).
    pub span: Column,
    /// Half a word a node: members, even ones low.
    pub members: Column,
    /// Half a word a node: group_of, even ones low.
    pub group_of: Column,
    /// A word a room: qos (low), uid (high); ascending.
    pub qos_key: Column,
    /// A word a room: cpus (low), 0 (high).
    pub qos_cpus: Column,
}

impl Columns {
    /// Names of the columns, in order, for the comparison with the document.
    pub const NAMES: [&'static str; 10] = [
        "free", "phi", "class", "taken", "then", "span", "members", "group_of", "qos_key",
        "qos_cpus",
    ];
}

/// Where the sections of a table stand. Offsets are in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The capacities it follows from.
    pub capacity: Capacity,
    /// The columns of each rooms buffer.
    pub columns: Columns,
    /// The two rooms buffers.
    pub rooms: [usize; 2],
    /// Words of a rooms buffer.
    pub rooms_words: usize,
    /// The two roster slots.
    pub roster: [usize; 2],
    /// Words of a roster slot.
    pub roster_words: usize,
    /// The claims ring.
    pub ring: usize,
    /// Words of the claims ring.
    pub ring_words: usize,
}

const fn line(words: usize) -> usize {
    words.next_multiple_of(LINE_WORDS)
}

impl Layout {
    /// Works the layout out.
    ///
    /// # Errors
    /// A capacity is zero or above its limit, or the claims are not a power of
    /// two.
    pub const fn new(capacity: Capacity) -> Result<Self, CapacityError> {
        macro_rules! within {
            ($field:ident, $most:expr) => {
                if capacity.$field == 0 || capacity.$field > $most {
                    return Err(CapacityError {
                        what: stringify!($field),
                        asked: capacity.$field as u64,
                        most: $most as u64,
                    });
                }
            };
        }
        within!(nodes, MAX_NODES);
        within!(groups, MAX_GROUPS);
        within!(qos_rooms, MAX_QOS_ROOMS);
        within!(roster_bytes, MAX_ROSTER_BYTES);
        within!(claims, MAX_CLAIMS);
        if !capacity.claims.is_power_of_two() {
            return Err(CapacityError {
                what: "claims (a power of two)",
                asked: capacity.claims as u64,
                most: MAX_CLAIMS as u64,
            });
        }
        // No sum below can overflow: the limits keep every table under 128 MB.
        let (groups, nodes, qos) =
            (capacity.groups as usize, capacity.nodes as usize, capacity.qos_rooms as usize);
        let halves = nodes.div_ceil(2);
        let mut at = rooms::WORDS;
        macro_rules! column {
            ($words:expr) => {{
                let column = Column { at, words: $words };
                at += line($words);
                column
            }};
        }
        let columns = Columns {
            free: column!(groups),
            phi: column!(groups),
            class: column!(groups),
            taken: column!(groups),
            then: column!(groups),
            span: column!(groups),
            members: column!(halves),
            group_of: column!(halves),
            qos_key: column!(qos),
            qos_cpus: column!(qos),
        };
        let rooms_words = at;
        let roster_words = line(roster::WORDS + (capacity.roster_bytes as usize).div_ceil(WORD));
        let ring_words = ring::WORDS + capacity.claims as usize * ring::SLOT_WORDS;
        let rooms_0 = header::WORDS;
        let rooms_1 = rooms_0 + rooms_words;
        let roster_0 = rooms_1 + rooms_words;
        let roster_1 = roster_0 + roster_words;
        let ring = (roster_1 + roster_words).next_multiple_of(RING_ALIGN / WORD);
        Ok(Self {
            capacity,
            columns,
            rooms: [rooms_0, rooms_1],
            rooms_words,
            roster: [roster_0, roster_1],
            roster_words,
            ring,
            ring_words,
        })
    }

    /// Words of the part that readers map read-only: all but the ring.
    #[must_use]
    pub const fn snapshot_words(&self) -> usize {
        self.ring
    }

    /// Words of the whole table.
    #[must_use]
    pub const fn total_words(&self) -> usize {
        self.ring + self.ring_words
    }

    /// Bytes of the whole table.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        self.total_words() * WORD
    }
}

/// A size worked out by hand, so that a change of any constant shows.
#[cfg(not(loom))]
const SAMPLE: Layout = match Layout::new(Capacity {
    nodes: 1000,
    groups: 1000,
    qos_rooms: 100,
    roster_bytes: 50_000,
    claims: 1024,
}) {
    Ok(layout) => layout,
    Err(_) => panic!("the sample is within the limits"),
};

const _: () = {
    assert!(header::WORDS * WORD == 256);
    assert!(header::GENERATION * WORD == 192);
    assert!(header::CLOSED < header::WORDS && header::OFF_CLAIMS < header::GENERATION);
    assert!(rooms::WORDS * WORD == 128 && rooms::QOS_ROOMS < rooms::WORDS);
    assert!(roster::WORDS * WORD == 64 && roster::CHECKSUM < roster::WORDS);
    assert!(ring::WORDS * WORD == 64 && ring::SLOT_WORDS * WORD == 64);
    assert!(ring::CHECKSUM < ring::SLOT_WORDS);
    assert!(header::WORDS.is_multiple_of(LINE_WORDS) && rooms::WORDS.is_multiple_of(LINE_WORDS));
};

#[cfg(not(loom))]
const _: () = {
    assert!(SAMPLE.columns.free.at == 16);
    assert!(SAMPLE.columns.phi.at == 1016);
    assert!(SAMPLE.columns.class.at == 2016);
    assert!(SAMPLE.columns.taken.at == 3016);
    assert!(SAMPLE.columns.then.at == 4016);
    assert!(SAMPLE.columns.span.at == 5016);
    assert!(SAMPLE.columns.members.at == 6016);
    assert!(SAMPLE.columns.group_of.at == 6520);
    assert!(SAMPLE.columns.qos_key.at == 7024);
    assert!(SAMPLE.columns.qos_cpus.at == 7128);
    assert!(SAMPLE.rooms_words == 7232);
    assert!(SAMPLE.rooms[0] * WORD == 256);
    assert!(SAMPLE.rooms[1] * WORD == 58_112);
    assert!(SAMPLE.roster[0] * WORD == 115_968);
    assert!(SAMPLE.roster_words * WORD == 50_112);
    assert!(SAMPLE.roster[1] * WORD == 166_080);
    assert!(SAMPLE.ring * WORD == 262_144);
    assert!(SAMPLE.total_bytes() == 327_744);
};
