//! The header: written once at creation, with the version last, and checked
//! word by word when a reader attaches. Pure: works on any words.

use crate::codec;
use crate::error::HeaderError;
use crate::layout::{
    BYTE_ORDER_MARK, Capacity, LAYOUT_VERSION, Layout, MAGIC, WORD, header as field,
};
use crate::sync::{AtomicU64, Ordering, fence, get, set};

/// Writes the header of a fresh, zeroed table.
pub(crate) fn write(words: &[AtomicU64], layout: &Layout, pid: u32, now_ns: u64) {
    let capacity = layout.capacity;
    let byte = |word: usize| (word * WORD) as u64;
    let values = [
        (field::MAGIC, u64::from_ne_bytes(MAGIC)),
        (field::BYTE_ORDER, BYTE_ORDER_MARK),
        (field::HEADER_BYTES, byte(field::WORDS)),
        (field::TOTAL_BYTES, byte(layout.total_words())),
        (field::SCHEMA, codec::schema()),
        (field::PID, u64::from(pid)),
        (field::CREATED_NS, now_ns),
        (field::CAP_NODES, u64::from(capacity.nodes)),
        (field::CAP_GROUPS, u64::from(capacity.groups)),
        (field::CAP_QOS_ROOMS, u64::from(capacity.qos_rooms)),
        (field::CAP_ROSTER_BYTES, u64::from(capacity.roster_bytes)),
        (field::CAP_CLAIMS, u64::from(capacity.claims)),
        (field::OFF_ROOMS_0, byte(layout.rooms[0])),
        (field::OFF_ROOMS_1, byte(layout.rooms[1])),
        (field::OFF_ROSTER_0, byte(layout.roster[0])),
        (field::OFF_ROSTER_1, byte(layout.roster[1])),
        (field::OFF_CLAIMS, byte(layout.ring)),
        (field::HEARTBEAT_NS, now_ns),
    ];
    for (index, value) in values {
        if let Some(word) = words.get(index) {
            set(word, value);
        }
    }
    if let Some(version) = words.get(field::VERSION) {
        version.store(LAYOUT_VERSION, Ordering::Release);
    }
}

/// Checks a header against this build and against `bytes`, the size of the
/// whole table; returns the layout to read with. `words` may be just the
/// header's.
pub(crate) fn check(words: &[AtomicU64], bytes: u64) -> Result<Layout, HeaderError> {
    let Some(words) = words.get(..field::WORDS) else {
        return Err(HeaderError::Short { bytes: words.len() * WORD });
    };
    let version = get(&words[field::VERSION]);
    fence(Ordering::Acquire);
    let word = |index: usize| get(&words[index]);

    let found = word(field::MAGIC);
    if found != u64::from_ne_bytes(MAGIC) {
        return Err(HeaderError::Magic { found });
    }
    if version == 0 {
        return Err(HeaderError::Unfinished);
    }
    let found = word(field::BYTE_ORDER);
    if found != BYTE_ORDER_MARK {
        return Err(HeaderError::ByteOrder { found });
    }
    if version != LAYOUT_VERSION {
        return Err(HeaderError::Version { found: version, expected: LAYOUT_VERSION });
    }
    let (found, expected) = (word(field::HEADER_BYTES), (field::WORDS * WORD) as u64);
    if found != expected {
        return Err(HeaderError::HeaderBytes { found, expected });
    }
    let (found, expected) = (word(field::SCHEMA), codec::schema());
    if found != expected {
        return Err(HeaderError::Schema { found, expected });
    }
    // A capacity above 32 bits becomes one that no limit allows.
    let capacity = |index: usize| u32::try_from(word(index)).unwrap_or(u32::MAX);
    let layout = Layout::new(Capacity {
        nodes: capacity(field::CAP_NODES),
        groups: capacity(field::CAP_GROUPS),
        qos_rooms: capacity(field::CAP_QOS_ROOMS),
        roster_bytes: capacity(field::CAP_ROSTER_BYTES),
        claims: capacity(field::CAP_CLAIMS),
    })?;
    for (section, index, at) in [
        ("rooms buffer 0", field::OFF_ROOMS_0, layout.rooms[0]),
        ("rooms buffer 1", field::OFF_ROOMS_1, layout.rooms[1]),
        ("roster slot 0", field::OFF_ROSTER_0, layout.roster[0]),
        ("roster slot 1", field::OFF_ROSTER_1, layout.roster[1]),
        ("the claims ring", field::OFF_CLAIMS, layout.ring),
    ] {
        let (found, expected) = (word(index), (at * WORD) as u64);
        if found != expected {
            return Err(HeaderError::Offset { section, found, expected });
        }
    }
    let (stated, expected) = (word(field::TOTAL_BYTES), layout.total_bytes() as u64);
    if stated != expected || bytes != expected {
        return Err(HeaderError::TotalBytes { stated, expected, bytes });
    }
    Ok(layout)
}
