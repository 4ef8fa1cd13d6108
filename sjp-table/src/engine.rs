//! The protocols over the words of a checked table: publish, read, roster.
//! Pure: the words may be a mapping or ordinary memory, so that tests, model
//! runs and fuzzing go through the code that slurmctld runs.

use crate::MAX_TRIES;
use crate::claims::Ring;
use crate::codec::{self, Checksum};
use crate::error::{Damage, PushError, ReadError};
use crate::layout::{Layout, WORD, header, rooms as rooms_head, roster as roster_head};
use crate::rooms::{self, Meta, Stamp, TableView};
use crate::seqlock::{self, Pair, Try};
use crate::sync::{AtomicU64, Ordering, fence, get, set};
use sjp_core::publication::{Claim, Rooms, Roster};
use std::sync::Arc;

/// A table whose layout was checked against the words there are.
pub(crate) struct Table<'a> {
    layout: &'a Layout,
    header: &'a [AtomicU64],
    pair: Pair<'a>,
    buffers: [&'a [AtomicU64]; 2],
    slots: [&'a [AtomicU64]; 2],
    pub(crate) ring: Ring<'a>,
}

/// The roster that was decoded last, or why it could not be: nonsense is not
/// decoded again at every call.
#[derive(Default)]
pub(crate) struct RosterCache(Option<(u64, Result<Arc<Roster>, Damage>)>);

impl<'a> Table<'a> {
    /// Over the snapshot part and the ring; `None` where they are shorter than
    /// the layout says.
    pub(crate) fn new(
        snapshot: &'a [AtomicU64],
        ring: &'a [AtomicU64],
        layout: &'a Layout,
    ) -> Option<Self> {
        let part = |at: usize, words: usize| snapshot.get(at..)?.get(..words);
        let header = part(0, header::WORDS)?;
        let buffers = [
            part(layout.rooms[0], layout.rooms_words)?,
            part(layout.rooms[1], layout.rooms_words)?,
        ];
        let slots = [
            part(layout.roster[0], layout.roster_words)?,
            part(layout.roster[1], layout.roster_words)?,
        ];
        let pair = Pair {
            generation: header.get(header::GENERATION)?,
            sequences: [
                buffers[0].get(rooms_head::SEQUENCE)?,
                buffers[1].get(rooms_head::SEQUENCE)?,
            ],
        };
        let ring = Ring::new(ring, layout.capacity.claims)?;
        Some(Self { layout, header, pair, buffers, slots, ring })
    }

    fn header_word(&self, index: usize) -> u64 {
        self.header.get(index).map_or(0, get)
    }

    /// Whether the publisher has left the table.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.header_word(header::CLOSED) != 0
    }

    /// The publisher's process id.
    pub(crate) fn pid(&self) -> u32 {
        u32::try_from(self.header_word(header::PID)).unwrap_or(0)
    }

    /// The publisher's last sign of life.
    pub(crate) fn heartbeat_ns(&self) -> u64 {
        self.header_word(header::HEARTBEAT_NS)
    }

    /// Writer: a sign of life.
    pub(crate) fn set_heartbeat(&self, now_ns: u64) {
        if let Some(word) = self.header.get(header::HEARTBEAT_NS) {
            set(word, now_ns);
        }
    }

    /// Writer: leaves the table. What writers of claims stored before they saw
    /// this can be read afterwards.
    pub(crate) fn close(&self) {
        if let Some(word) = self.header.get(header::CLOSED) {
            word.store(1, Ordering::Release);
        }
        // Against the fence in `push`: one of the two sides sees the
        // other's store.
        fence(Ordering::SeqCst);
    }

    /// Reader: writes a claim, and confirms that the table is not closed.
    pub(crate) fn push(&self, claim: &Claim) -> Result<u64, PushError> {
        if self.is_closed() {
            return Err(PushError::Closed);
        }
        let seq = self.ring.push(claim)?;
        // Against the fence in `close`: either the publisher sees this claim when
        // it empties the ring, or the table is seen closed here.
        fence(Ordering::SeqCst);
        if self.is_closed() { Err(PushError::Closed) } else { Ok(seq) }
    }

    /// Writer: how many publications there were.
    pub(crate) fn generation(&self) -> u64 {
        get(self.pair.generation)
    }

    /// Writer: stores an encoded roster into a slot that no current publication
    /// refers to.
    pub(crate) fn store_roster(&self, slot: usize, id: u64, bytes: &[u8]) {
        let Some([sequence, words @ ..]) = self.slots.get(slot).copied() else { return };
        let Some((head, data)) = words.split_at_checked(roster_head::WORDS - 1) else { return };
        let put = |index: usize, value| {
            if let Some(word) = head.get(index - 1) {
                set(word, value);
            }
        };
        let odd = seqlock::begin(sequence);
        let mut sum = Checksum::new().word(id).word(bytes.len() as u64);
        for (word, value) in data.iter().zip(codec::words_of(bytes)) {
            set(word, value);
            sum = sum.word(value);
        }
        put(roster_head::ID, id);
        put(roster_head::LENGTH, bytes.len() as u64);
        put(roster_head::CHECKSUM, sum.done());
        seqlock::end(sequence, odd);
    }

    /// Writer: publishes rooms that fit.
    pub(crate) fn publish(
        &self,
        rooms: &Rooms,
        meta: Meta,
        roster_id: u64,
        roster_slot: usize,
        now_ns: u64,
    ) {
        self.pair.publish(|buffer, generation| {
            let stamp = Stamp {
                meta,
                roster_id,
                roster_slot: roster_slot as u64,
                generation,
                published_ns: now_ns,
            };
            if let Some(buffer) = self.buffers.get(buffer) {
                rooms::store(buffer, self.layout, rooms, &stamp);
            }
        });
        self.set_heartbeat(now_ns);
    }

    /// Reader: one try. `read` may be called on values that are thrown away.
    #[inline]
    fn attempt<R>(
        &self,
        read: impl FnOnce(&TableView<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if self.is_closed() {
            return Err(Failure::Final(ReadError::Closed));
        }
        let tried = self.pair.attempt(|buffer| {
            let view = TableView::open(self.buffers[buffer], self.layout)
                .map_err(|damage| Failure::Final(damage.into()))?;
            read(&view)
        });
        match tried {
            Try::Read(answer) => answer,
            Try::Disturbed => Err(Failure::Again(ReadError::Busy)),
            Try::Empty => Err(Failure::Final(ReadError::Empty)),
        }
    }

    fn tries<R>(&self, mut one: impl FnMut() -> Result<R, Failure>) -> Result<R, ReadError> {
        let mut last = ReadError::Busy;
        for _ in 0..MAX_TRIES {
            match one() {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error)) => last = error,
            }
        }
        Err(last)
    }

    /// Reader: reads the current publication.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        mut read: impl FnMut(&TableView<'_>) -> R,
    ) -> Result<R, ReadError> {
        self.tries(|| self.attempt(|view| Ok(read(view))))
    }

    /// Reader: reads the current publication with its roster.
    #[inline]
    pub(crate) fn read_with_roster<R>(
        &self,
        cache: &mut RosterCache,
        mut read: impl FnMut(&TableView<'_>, &Arc<Roster>) -> R,
    ) -> Result<R, ReadError> {
        self.tries(|| {
            self.attempt(|view| {
                let roster = self.roster(cache, view.roster_id(), view.roster_slot())?;
                if roster.nodes.len() != view.node_count() {
                    return Err(Failure::Final(ReadError::Damaged(Damage::Count {
                        what: "nodes",
                        found: view.node_count() as u64,
                        most: roster.nodes.len() as u64,
                    })));
                }
                Ok(read(view, roster))
            })
        })
    }

    fn roster<'c>(
        &self,
        cache: &'c mut RosterCache,
        id: u64,
        slot: u64,
    ) -> Result<&'c Arc<Roster>, Failure> {
        if cache.0.as_ref().is_none_or(|(cached, _)| *cached != id) {
            let bytes = self.roster_bytes(id, slot)?;
            let decoded = bytes.and_then(|bytes| {
                let roster = codec::decode(&bytes).map_err(Damage::RosterDecode)?;
                codec::validate(&roster)?;
                Ok(Arc::new(roster))
            });
            cache.0 = Some((id, decoded));
        }
        match &cache.0 {
            Some((_, Ok(roster))) => Ok(roster),
            Some((_, Err(damage))) => Err(Failure::Final(damage.clone().into())),
            None => Err(Failure::Again(ReadError::Busy)),
        }
    }

    /// A consistent copy of the roster's bytes. The outer error says that the
    /// slot is not (or no longer) this roster's: a later try may find it. The
    /// inner one is damage that stays.
    fn roster_bytes(&self, id: u64, slot: u64) -> Result<Result<Vec<u8>, Damage>, Failure> {
        let elsewhere = Failure::Again(ReadError::Damaged(Damage::RosterSlot { id, slot }));
        let words = usize::try_from(slot).ok().and_then(|slot| self.slots.get(slot).copied());
        let Some(words) = words else { return Err(elsewhere) };
        let Some((head, data)) = words.split_at_checked(roster_head::WORDS) else {
            return Err(elsewhere);
        };
        let word = |index: usize| head.get(index).map_or(0, get);
        let Some(sequence) = head.first() else { return Err(elsewhere) };
        let Some(before) = seqlock::enter(sequence) else {
            return Err(Failure::Again(ReadError::Busy));
        };
        if word(roster_head::ID) != id {
            return Err(elsewhere);
        }
        let (found, sum) = (word(roster_head::LENGTH), word(roster_head::CHECKSUM));
        let most = u64::from(self.layout.capacity.roster_bytes);
        let copied = if found > most {
            Err(Damage::Count { what: "bytes of roster", found, most })
        } else {
            copy(data, found as usize, Checksum::new().word(id).word(found), sum)
        };
        if seqlock::unchanged(sequence, before) {
            Ok(copied)
        } else {
            Err(Failure::Again(ReadError::Busy))
        }
    }
}

fn copy(
    data: &[AtomicU64],
    length: usize,
    mut sum: Checksum,
    expected: u64,
) -> Result<Vec<u8>, Damage> {
    let mut bytes = Vec::with_capacity(length.next_multiple_of(WORD));
    for word in data.iter().take(length.div_ceil(WORD)) {
        let value = get(word);
        sum = sum.word(value);
        bytes.extend_from_slice(&value.to_ne_bytes());
    }
    bytes.truncate(length);
    if sum.done() == expected { Ok(bytes) } else { Err(Damage::RosterChecksum) }
}

/// How a try failed.
enum Failure {
    /// Another try may do.
    Again(ReadError),
    /// It would fail again.
    Final(ReadError),
}
