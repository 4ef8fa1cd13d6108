//! A rooms buffer: how `Rooms` are written into its columns, and the view that
//! reads them where they stand. Pure: works on any words.

use crate::error::{Damage, RoomsFault};
use crate::layout::{Column, Layout, rooms as head};
use crate::sync::{AtomicU64, get, high, low, pair, set};
use sjp_core::publication::{Group, NO_GROUP, RoomView, Rooms, Roster};

/// What the publisher says about a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// When the node data was asked for, CLOCK_MONOTONIC nanoseconds
    /// ([`crate::now_ns`]): the age of the table is counted from here.
    pub data_time_ns: u64,
    /// The sequence number of the last claim that the rooms account for.
    pub claims_taken: u64,
}

/// One publication, read where it stands. The values are consistent only if
/// the read that lent the view succeeds; until then any number may be
/// anything, but indices never lead outside.
pub struct TableView<'a> {
    meta: Meta,
    roster_id: u64,
    roster_slot: u64,
    generation: u64,
    published_ns: u64,
    free: &'a [AtomicU64],
    phi: &'a [AtomicU64],
    class: &'a [AtomicU64],
    taken: &'a [AtomicU64],
    then: &'a [AtomicU64],
    span: &'a [AtomicU64],
    members: &'a [AtomicU64],
    member_count: u32,
    group_of: &'a [AtomicU64],
    node_count: u32,
    qos_key: &'a [AtomicU64],
    qos_cpus: &'a [AtomicU64],
}

impl<'a> TableView<'a> {
    /// Takes the counts in and cuts the columns to them. The counts may be torn;
    /// they are only kept from leading outside.
    pub(crate) fn open(buffer: &'a [AtomicU64], layout: &Layout) -> Result<Self, Damage> {
        let word = |index: usize| buffer.get(index).map_or(0, get);
        let count = |what, index: usize, most: u32| {
            let found = word(index);
            match u32::try_from(found) {
                Ok(n) if n <= most => Ok(n),
                _ => Err(Damage::Count { what, found, most: most.into() }),
            }
        };
        let capacity = layout.capacity;
        let groups = count("groups", head::GROUPS, capacity.groups)? as usize;
        let member_count = count("members", head::MEMBERS, capacity.nodes)?;
        let node_count = count("nodes", head::NODES, capacity.nodes)?;
        let qos = count("QOS rooms", head::QOS_ROOMS, capacity.qos_rooms)? as usize;
        let column = |column: Column, words: usize| {
            buffer.get(column.at..).and_then(|rest| rest.get(..words)).unwrap_or(&[])
        };
        let columns = &layout.columns;
        Ok(Self {
            meta: Meta {
                data_time_ns: word(head::DATA_TIME_NS),
                claims_taken: word(head::CLAIMS_TAKEN),
            },
            roster_id: word(head::ROSTER_ID),
            roster_slot: word(head::ROSTER_SLOT),
            generation: word(head::GENERATION),
            published_ns: word(head::PUBLISHED_NS),
            free: column(columns.free, groups),
            phi: column(columns.phi, groups),
            class: column(columns.class, groups),
            taken: column(columns.taken, groups),
            then: column(columns.then, groups),
            span: column(columns.span, groups),
            members: column(columns.members, (member_count as usize).div_ceil(2)),
            member_count,
            group_of: column(columns.group_of, (node_count as usize).div_ceil(2)),
            node_count,
            qos_key: column(columns.qos_key, qos),
            qos_cpus: column(columns.qos_cpus, qos),
        })
    }

    /// Age and claims of this publication.
    #[inline]
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// The id of the roster that the indices refer to.
    #[inline]
    #[must_use]
    pub fn roster_id(&self) -> u64 {
        self.roster_id
    }

    /// The roster slot it stands in.
    pub(crate) fn roster_slot(&self) -> u64 {
        self.roster_slot
    }

    /// Number of the publication, from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When it was published, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn published_ns(&self) -> u64 {
        self.published_ns
    }

    /// How many nodes the roster has.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.node_count as usize
    }

    /// A copy of the whole publication, for reports.
    #[must_use]
    pub fn to_rooms(&self) -> Rooms {
        Rooms {
            groups: (0..self.group_count()).filter_map(|i| self.group(i)).collect(),
            members: (0..self.member_count as usize)
                .map(|k| half(self.members, k).unwrap_or(u32::MAX))
                .collect(),
            group_of: (0..self.node_count as usize)
                .map(|n| half(self.group_of, n).unwrap_or(NO_GROUP))
                .collect(),
            qos_rooms: self
                .qos_key
                .iter()
                .zip(self.qos_cpus)
                .map(|(key, cpus)| {
                    let key = get(key);
                    sjp_core::publication::QosRoom {
                        uid: high(key),
                        qos: low(key),
                        cpus: low(get(cpus)),
                    }
                })
                .collect(),
        }
    }
}

/// The `index`th 32-bit value of a column of halves.
#[inline]
fn half(column: &[AtomicU64], index: usize) -> Option<u32> {
    let word = get(column.get(index / 2)?);
    Some(if index.is_multiple_of(2) { low(word) } else { high(word) })
}

impl RoomView for TableView<'_> {
    #[inline]
    fn group_count(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn group(&self, i: usize) -> Option<Group> {
        let free = get(self.free.get(i)?);
        let class = get(self.class.get(i)?);
        let taken = get(self.taken.get(i)?);
        let span = get(self.span.get(i)?);
        let first = low(span).min(self.member_count);
        Some(Group {
            cpus: low(free),
            mem: high(free),
            pset: class as u16,
            step: (class >> 16) as u16,
            phi: f64::from_bits(get(self.phi.get(i)?)),
            taken_at: low(taken),
            cpus_then: high(taken),
            mem_then: low(get(self.then.get(i)?)),
            weight: high(class),
            first,
            count: high(span).min(self.member_count - first),
        })
    }

    #[inline]
    fn shape(&self, i: usize) -> Option<(u32, u32, u16)> {
        let free = get(self.free.get(i)?);
        Some((low(free), high(free), get(self.class.get(i)?) as u16))
    }

    #[inline]
    fn free(&self, i: usize) -> Option<(u32, u32)> {
        self.free.get(i).map(get).map(|word| (low(word), high(word)))
    }

    #[inline]
    fn class(&self, i: usize) -> Option<(u16, u16)> {
        let class = get(self.class.get(i)?);
        Some((class as u16, (class >> 16) as u16))
    }

    #[inline]
    fn worth(&self, i: usize) -> Option<(f64, u32)> {
        let count = high(get(self.span.get(i)?)).min(self.member_count);
        Some((f64::from_bits(get(self.phi.get(i)?)), count))
    }

    #[inline]
    fn member(&self, k: usize) -> Option<u32> {
        if k >= self.member_count as usize {
            return None;
        }
        half(self.members, k).filter(|&node| node < self.node_count)
    }

    #[inline]
    fn group_of(&self, node: u32) -> Option<u32> {
        if node >= self.node_count {
            return None;
        }
        half(self.group_of, node as usize).filter(|&group| (group as usize) < self.group_count())
    }

    fn qos_room(&self, uid: u32, qos: u32) -> Option<u32> {
        let find = |uid| {
            let key = pair(qos, uid);
            let i = self.qos_key.partition_point(|word| get(word) < key);
            (get(self.qos_key.get(i)?) == key).then_some(())?;
            self.qos_cpus.get(i).map(|word| low(get(word)))
        };
        find(uid).or_else(|| find(u32::MAX))
    }
}

/// What a publication says beside the rooms.
pub(crate) struct Stamp {
    pub(crate) meta: Meta,
    pub(crate) roster_id: u64,
    pub(crate) roster_slot: u64,
    pub(crate) generation: u64,
    pub(crate) published_ns: u64,
}

/// Stores rooms into a buffer whose sequence word is odd. The caller has
/// checked that they fit.
pub(crate) fn store(buffer: &[AtomicU64], layout: &Layout, rooms: &Rooms, stamp: &Stamp) {
    for (index, value) in [
        (head::GENERATION, stamp.generation),
        (head::DATA_TIME_NS, stamp.meta.data_time_ns),
        (head::CLAIMS_TAKEN, stamp.meta.claims_taken),
        (head::ROSTER_ID, stamp.roster_id),
        (head::ROSTER_SLOT, stamp.roster_slot),
        (head::PUBLISHED_NS, stamp.published_ns),
        (head::GROUPS, rooms.groups.len() as u64),
        (head::MEMBERS, rooms.members.len() as u64),
        (head::NODES, rooms.group_of.len() as u64),
        (head::QOS_ROOMS, rooms.qos_rooms.len() as u64),
    ] {
        if let Some(word) = buffer.get(index) {
            set(word, value);
        }
    }
    let columns = &layout.columns;
    let groups = rooms.groups.iter();
    fill(buffer, columns.free, groups.clone().map(|g| pair(g.cpus, g.mem)));
    fill(buffer, columns.phi, groups.clone().map(|g| g.phi.to_bits()));
    fill(
        buffer,
        columns.class,
        groups.clone().map(|g| pair(u32::from(g.pset) | u32::from(g.step) << 16, g.weight)),
    );
    fill(buffer, columns.taken, groups.clone().map(|g| pair(g.taken_at, g.cpus_then)));
    fill(buffer, columns.then, groups.clone().map(|g| u64::from(g.mem_then)));
    fill(buffer, columns.span, groups.map(|g| pair(g.first, g.count)));
    let halves = |two: &[u32]| {
        pair(two.first().copied().unwrap_or(0), two.get(1).copied().unwrap_or(u32::MAX))
    };
    fill(buffer, columns.members, rooms.members.chunks(2).map(halves));
    fill(buffer, columns.group_of, rooms.group_of.chunks(2).map(halves));
    fill(buffer, columns.qos_key, rooms.qos_rooms.iter().map(|r| pair(r.qos, r.uid)));
    fill(buffer, columns.qos_cpus, rooms.qos_rooms.iter().map(|r| u64::from(r.cpus)));
}

fn fill(buffer: &[AtomicU64], column: Column, values: impl Iterator<Item = u64>) {
    let words = buffer.get(column.at..).and_then(|rest| rest.get(..column.words)).unwrap_or(&[]);
    for (word, value) in words.iter().zip(values) {
        set(word, value);
    }
}

/// Checks that rooms are sound and fit the roster: what the module then relies
/// on was true when it was published.
pub(crate) fn validate(rooms: &Rooms, roster: &Roster) -> Result<(), RoomsFault> {
    let nodes = roster.nodes.len();
    if rooms.group_of.len() != nodes {
        return Err(RoomsFault::GroupOfLength { found: rooms.group_of.len(), nodes });
    }
    let mut listed = 0;
    for (group, g) in rooms.groups.iter().enumerate() {
        if usize::from(g.pset) >= roster.psets.len() {
            return Err(RoomsFault::Pset { group, pset: g.pset, count: roster.psets.len() });
        }
        if !g.phi.is_finite() {
            return Err(RoomsFault::Phi { group });
        }
        let end = u64::from(g.first) + u64::from(g.count);
        let Some(members) = rooms.members.get(g.first as usize..end as usize) else {
            let count = rooms.members.len();
            return Err(RoomsFault::Span { group, first: g.first, end, count });
        };
        let mut before = None;
        for &node in members {
            let given = rooms.group_of.get(node as usize).copied();
            if given != u32::try_from(group).ok() || before.is_some_and(|b| b >= node) {
                return Err(RoomsFault::Member { group, node });
            }
            before = Some(node);
        }
        listed += members.len();
    }
    let found = rooms.group_of.iter().filter(|&&group| group != NO_GROUP).count();
    if found != listed {
        return Err(RoomsFault::Unlisted { found, listed });
    }
    let pairs = rooms.qos_rooms.windows(2);
    if let Some(i) = { pairs }.position(|two| (two[0].uid, two[0].qos) >= (two[1].uid, two[1].qos))
    {
        return Err(RoomsFault::QosOrder { index: i + 1 });
    }
    let count = roster.qos.len();
    match rooms.qos_rooms.iter().position(|r| r.qos as usize >= count) {
        Some(index) => {
            let qos = rooms.qos_rooms.get(index).map_or(0, |r| r.qos);
            Err(RoomsFault::Qos { index, qos, count })
        }
        None => Ok(()),
    }
}
