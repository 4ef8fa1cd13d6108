//! The roster as bytes: encoding, decoding, and the one check after which
//! later code may trust a roster's indices. Also the checksum. Pure.

use crate::error::RosterFault;
use crate::layout::{MAX_NODES, MAX_QOS_ROOMS};
use sjp_core::publication::{Kind, NameTable, PartitionRule, Roster, UserPartitions};
use sjp_core::units::Cpus;

/// A checksum over words: for each word `w`,
/// `h = (h ^ w) * 0x9E37_79B9_7F4A_7C15; h ^= h >> 32`.
/// Each step can be undone, so one changed word never goes unnoticed. It finds
/// damage, not malice.
#[derive(Clone, Copy)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// The start value.
    pub(crate) const fn new() -> Self {
        Self(0x736A_7020_7461_626C)
    }

    /// Takes a word in.
    #[inline]
    #[must_use]
    pub(crate) const fn word(self, word: u64) -> Self {
        let h = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(h ^ (h >> 32))
    }

    /// The sum.
    pub(crate) const fn done(self) -> u64 {
        self.0
    }
}

/// Bytes as words, the last one filled up with zeros; in memory the bytes keep
/// their order.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_ne_bytes(word)
    })
}

/// Encodes a roster.
pub(crate) fn encode(roster: &Roster) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_allocvec(roster)
}

/// Decodes a roster. Hostile bytes cannot make it allocate much: every element
/// takes at least a byte, so a length that the bytes do not bear out fails
/// after at most a megabyte set aside, and the bytes are capped by
/// `MAX_ROSTER_BYTES`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Roster, postcard::Error> {
    postcard::from_bytes(bytes)
}

/// A number that changes when the encoding of rosters changes: the checksum of
/// a small roster with something in every list. It keeps two builds apart that
/// would read each other's rosters wrongly.
pub(crate) fn schema() -> u64 {
    let sample = Roster {
        nodes: NameTable::new(["n1"]),
        partitions: vec![PartitionRule { name: "p".into(), tier: 1, ..Default::default() }],
        psets: vec![vec![0]],
        kinds: vec![Kind { cpus: Cpus(2), mem: None, size: None, step: 3, pset: 0 }],
        kind_of: vec![0],
        bound_users: vec![UserPartitions { uid: 4, account: None, partitions: vec![0] }],
        qos: vec!["q".into()],
        ..Default::default()
    };
    // A roster cannot fail to be encoded into a growing buffer; if it did,
    // both sides would agree on 0 and fail on the first real one.
    encode(&sample).map_or(0, |bytes| {
        words_of(&bytes).fold(Checksum::new().word(bytes.len() as u64), Checksum::word).done()
    })
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), RosterFault> {
    if count > most { Err(RosterFault::TooMany { what, count, most }) } else { Ok(()) }
}

fn ascending<T: Ord>(what: &'static str, list: &[T]) -> Result<(), RosterFault> {
    match list.windows(2).position(|pair| pair[0] >= pair[1]) {
        Some(i) => Err(RosterFault::Order { what, index: i + 1 }),
        None => Ok(()),
    }
}

fn within(
    what: &'static str,
    index: usize,
    found: impl Into<usize>,
    count: usize,
) -> Result<(), RosterFault> {
    let found = found.into();
    if found < count { Ok(()) } else { Err(RosterFault::Index { what, index, found, count }) }
}

/// Checks a roster once, in both directions: what passes has every index in
/// range, every list that is searched in order, and only finite settings.
pub(crate) fn validate(roster: &Roster) -> Result<(), RosterFault> {
    const U16: usize = u16::MAX as usize + 1;
    at_most("nodes", roster.nodes.len(), MAX_NODES as usize)?;
    at_most("partitions", roster.partitions.len(), U16)?;
    at_most("sets of partitions", roster.psets.len(), U16)?;
    at_most("kinds", roster.kinds.len(), U16)?;
    at_most("QOS", roster.qos.len(), MAX_QOS_ROOMS as usize)?;

    let mut before: Option<&str> = None;
    for index in 0..roster.nodes.len() {
        let name = roster.nodes.get(index).ok_or(RosterFault::NodeName { index })?;
        if before.is_some_and(|b| b.as_bytes() >= name.as_bytes()) {
            return Err(RosterFault::Order { what: "node names", index });
        }
        before = Some(name);
    }
    let names: Vec<&str> = roster.partitions.iter().map(|p| p.name.as_str()).collect();
    ascending("partitions", &names)?;
    ascending("QOS names", &roster.qos)?;
    for (index, pset) in roster.psets.iter().enumerate() {
        ascending("partitions of a set", pset)?;
        for &partition in pset {
            within("set of partitions", index, partition, roster.partitions.len())?;
        }
    }
    for (index, kind) in roster.kinds.iter().enumerate() {
        within("kind", index, kind.pset, roster.psets.len())?;
    }
    if roster.kind_of.len() != roster.nodes.len() {
        return Err(RosterFault::KindOfLength {
            found: roster.kind_of.len(),
            nodes: roster.nodes.len(),
        });
    }
    for (index, &kind) in roster.kind_of.iter().enumerate() {
        within("kind of node", index, kind, roster.kinds.len())?;
    }
    for (index, user) in roster.bound_users.iter().enumerate() {
        for &partition in &user.partitions {
            within("bound user", index, partition, roster.partitions.len())?;
        }
    }
    settings(roster)
}

fn settings(roster: &Roster) -> Result<(), RosterFault> {
    let policy = &roster.policy;
    let usable = |name: &'static str, number: f64| {
        if number.is_finite() && number >= 0.0 { Ok(()) } else { Err(RosterFault::Setting(name)) }
    };
    usable("policy.tolerance", policy.tolerance)?;
    usable("pin.min_gain_share", policy.min_gain_share)?;
    usable("pin.min_gain", policy.min_gain.unwrap_or(0.0))?;
    usable("pin.min_ratio_gain", policy.min_ratio_gain)?;
    for demand in &policy.demand {
        usable("policy.demand", demand.weight)?;
        usable("policy.demand", demand.mb_per_cpu)?;
        if demand.mb_per_cpu == 0.0 {
            return Err(RosterFault::Setting("policy.demand"));
        }
    }
    Ok(())
}
