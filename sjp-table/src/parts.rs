//! A table in ordinary memory: not part of the interface. Tests, model runs,
//! Miri and fuzzing use it to run the code that slurmctld runs without a
//! mapping.

use crate::claims::{Claims, Reserved, Ring};
use crate::codec;
use crate::engine::{RosterCache, Table};
use crate::error::{CapacityError, Damage, HeaderError, PushError, ReadError, RosterFault};
use crate::header;
use crate::layout::{Capacity, Layout};
use crate::rooms::{Meta, TableView};
use crate::seqlock::{Pair, Try};
use crate::sync::{AtomicU64, get, set};
use sjp_core::publication::{Claim, RoomView, Rooms, Roster};
use std::sync::Arc;

/// A table without a mapping.
pub struct Plain {
    words: Vec<AtomicU64>,
    layout: Layout,
}

/// What a walk over a table came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Groups seen.
    pub groups: usize,
    /// Members seen.
    pub members: usize,
    /// Nodes whose group was looked up.
    pub nodes: usize,
    /// Claims read.
    pub claims: usize,
}

fn zeros(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

impl Plain {
    /// A fresh table.
    ///
    /// # Errors
    /// A capacity is out of range.
    pub fn new(capacity: Capacity) -> Result<Self, CapacityError> {
        let layout = Layout::new(capacity)?;
        let words = zeros(layout.total_words());
        header::write(&words, &layout, 1, 1);
        Ok(Self { words, layout })
    }

    /// A table out of bytes, checked as at attaching.
    ///
    /// # Errors
    /// The header is refused.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HeaderError> {
        let words: Vec<AtomicU64> = codec::words_of(bytes).map(AtomicU64::new).collect();
        let layout = header::check(&words, bytes.len() as u64)?;
        Ok(Self { words, layout })
    }

    /// The bytes as they stand.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| get(word).to_ne_bytes()).collect()
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Overwrites a word.
    pub fn poke(&self, word: usize, value: u64) {
        if let Some(word) = self.words.get(word) {
            set(word, value);
        }
    }

    fn table(&self) -> Option<Table<'_>> {
        let (snapshot, ring) = self.words.split_at_checked(self.layout.ring)?;
        Table::new(snapshot, ring, &self.layout)
    }

    fn ring(&self) -> Option<Ring<'_>> {
        Ring::new(self.words.get(self.layout.ring..)?, self.layout.capacity.claims)
    }

    /// Stores a roster into a slot, whatever its soundness.
    pub fn store_roster(&self, slot: usize, id: u64, roster: &Roster) {
        if let (Some(table), Ok(bytes)) = (self.table(), codec::encode(roster)) {
            table.store_roster(slot, id, &bytes);
        }
    }

    /// Stores bytes as a roster.
    pub fn store_roster_bytes(&self, slot: usize, id: u64, bytes: &[u8]) {
        if let Some(table) = self.table() {
            table.store_roster(slot, id, bytes);
        }
    }

    /// Publishes rooms, whatever their soundness.
    pub fn publish(&self, rooms: &Rooms, meta: Meta, roster_id: u64, roster_slot: usize) {
        if let Some(table) = self.table() {
            table.publish(rooms, meta, roster_id, roster_slot, 1);
        }
    }

    /// As `Reader::read`.
    ///
    /// # Errors
    /// As there.
    pub fn read<R>(&self, read: impl FnMut(&TableView<'_>) -> R) -> Result<R, ReadError> {
        self.table().ok_or(ReadError::Closed)?.read(read)
    }

    /// As `Reader::roster`, without a cache.
    ///
    /// # Errors
    /// As there.
    pub fn roster(&self) -> Result<Arc<Roster>, ReadError> {
        let mut cache = RosterCache::default();
        let table = self.table().ok_or(ReadError::Closed)?;
        table.read_with_roster(&mut cache, |_, roster| Arc::clone(roster))
    }

    /// As `Reader::push_claim`.
    ///
    /// # Errors
    /// As there.
    pub fn push(&self, claim: &Claim) -> Result<u64, PushError> {
        self.table().ok_or(PushError::Closed)?.push(claim)
    }

    /// As `Publisher::close`.
    pub fn close(&self) {
        if let Some(table) = self.table() {
            table.close();
        }
    }

    /// Draws a number and takes its slot, as a writer does that then dies; with
    /// a claim, after having stored that.
    ///
    /// # Errors
    /// As for a push.
    pub fn push_and_die(&self, claim: Option<&Claim>) -> Result<u64, PushError> {
        let reserved: Reserved<'_> = self.ring().ok_or(PushError::Closed)?.reserve()?;
        if let Some(claim) = claim {
            reserved.fill(claim);
        }
        Ok(reserved.seq)
    }

    /// The claims after `after`; slots being written up to `skip` are passed
    /// over, and the first one beyond it is returned.
    ///
    /// # Errors
    /// The ring holds nonsense.
    pub fn claims(&self, after: u64, skip: u64) -> Result<(Claims, Option<u64>), Damage> {
        let ring = self.ring().ok_or(Damage::ClaimsHead(0))?;
        let mut list = Vec::new();
        let look = ring.since(after, skip, &mut list)?;
        Ok((Claims { list, upto: look.upto, lost: look.lost }, look.pending))
    }

    /// Reads everything there is to read. Whatever bytes stand in the table,
    /// this returns.
    ///
    /// # Errors
    /// What reading says.
    pub fn walk(&self) -> Result<Walk, ReadError> {
        // All three are read, whatever the others say.
        let (claims, walk, roster) = (self.claims(0, u64::MAX), self.read(walk), self.roster());
        if let Ok(roster) = &roster {
            check_indices(roster);
        }
        let walk = walk?;
        roster?;
        Ok(Walk { claims: claims?.0.list.len(), ..walk })
    }
}

/// Walks over a view as a careful caller does: every group, its members up to
/// the first that is not there (no more steps in all than there are nodes),
/// every node's group, rooms under QOS caps.
pub fn walk(view: &TableView<'_>) -> Walk {
    let mut walk = Walk::default();
    let mut steps = view.node_count();
    for i in 0..view.group_count() {
        let Some(group) = view.group(i) else { break };
        walk.groups += 1;
        let from = group.first as usize;
        for k in from..from.saturating_add(group.count as usize).min(from + steps) {
            steps -= 1;
            let Some(node) = view.member(k) else { break };
            assert!((node as usize) < view.node_count(), "a member beyond the nodes");
            walk.members += 1;
        }
    }
    assert!(view.group(view.group_count()).is_none(), "a group beyond the last");
    for node in 0..view.node_count() as u32 {
        if let Some(group) = view.group_of(node) {
            assert!((group as usize) < view.group_count(), "a group beyond the last");
        }
        walk.nodes += 1;
    }
    assert!(view.group_of(u32::MAX).is_none() && view.member(usize::MAX).is_none());
    for uid in [0, 1, 1000, u32::MAX] {
        let _ = view.qos_room(uid, uid % 7);
    }
    walk
}

/// Follows every index of a roster that a reader let through.
fn check_indices(roster: &Roster) {
    for node in 0..roster.nodes.len() {
        let name = roster.nodes.get(node).unwrap_or_default();
        assert_eq!(roster.nodes.find(name), Some(node), "names are not sorted");
        let kind = roster.kinds[usize::from(roster.kind_of[node])];
        for &partition in &roster.psets[usize::from(kind.pset)] {
            assert!(usize::from(partition) < roster.partitions.len());
        }
    }
}

/// Attach and walk over any bytes: the entry point for fuzzing.
///
/// # Errors
/// In words, what was refused.
pub fn exercise(bytes: &[u8]) -> Result<Walk, String> {
    let table = Plain::from_bytes(bytes).map_err(|error| error.to_string())?;
    let result = table.walk().map_err(|error| error.to_string());
    // A claim can be written, or is refused; either way, nothing breaks.
    let _ = table.push(&Claim::default());
    result
}

/// Encodes a roster.
///
/// # Errors
/// As postcard says.
pub fn encode(roster: &Roster) -> Result<Vec<u8>, String> {
    codec::encode(roster).map_err(|error| error.to_string())
}

/// Decodes and checks a roster.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<Result<Roster, RosterFault>, String> {
    let roster = codec::decode(bytes).map_err(|error| error.to_string())?;
    Ok(codec::validate(&roster).map(|()| roster))
}

/// The two-buffer protocol on a few words, for model runs: the real one on
/// buffers of two data words, which always hold equal values.
pub struct Small {
    generation: AtomicU64,
    sequences: [AtomicU64; 2],
    data: [[AtomicU64; 2]; 2],
}

impl Default for Small {
    fn default() -> Self {
        let word = || AtomicU64::new(0);
        Self {
            generation: word(),
            sequences: [word(), word()],
            data: [[word(), word()], [word(), word()]],
        }
    }
}

impl Small {
    fn pair(&self) -> Pair<'_> {
        Pair { generation: &self.generation, sequences: [&self.sequences[0], &self.sequences[1]] }
    }

    /// Publishes `value` in all words; answers which generation it became.
    pub fn publish(&self, value: u64) -> u64 {
        let mut number = 0;
        self.pair().publish(|buffer, generation| {
            number = generation;
            for word in &self.data[buffer] {
                set(word, value);
            }
        });
        number
    }

    /// Dies while publishing, after so many words.
    pub fn publish_and_die(&self, value: u64, words: usize) {
        self.pair().publish_and_die(|buffer| {
            for word in self.data[buffer].iter().take(words) {
                set(word, value);
            }
        });
    }

    /// One try: the words, or `None`.
    pub fn read(&self) -> Option<(u64, u64)> {
        let tried = self.pair().attempt(|buffer| {
            let [a, b] = &self.data[buffer];
            (get(a), get(b))
        });
        match tried {
            Try::Read(words) => Some(words),
            Try::Disturbed | Try::Empty => None,
        }
    }
}
