//! The claims ring: any number of writers, who never wait, and readers who
//! never believe a half-written slot. Pure: works on any words.
//!
//! A writer draws a sequence number from the head (one atomic addition) and
//! owns the slot that the number falls on. The slot's state word is twice the
//! number, plus one while the slot is being written; the number in it only
//! ever grows, by compare-and-swap, so a writer that was overtaken by a whole
//! ring notices and gives up. The data follow the rules of `seqlock`, and a checksum over
//! number and data catches what that cannot: two writers in one slot, one of
//! them asleep since the ring went round.
//!
//! A writer that dies half-way leaves its state word odd. That slot is
//! unreadable until the ring comes round to it; all others are untouched.

use crate::codec::Checksum;
use crate::error::{Damage, PushError};
use crate::layout::ring;
use crate::sync::{AtomicU64, Ordering, fence, get, high, low, pair, set};
use sjp_core::publication::Claim;

/// Sequence numbers end here; a head beyond is damage. At a million claims a
/// second it would take a hundred thousand years.
const MAX_SEQ: u64 = 1 << 62;

/// What a look at the ring found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The claims, ascending by `seq`.
    pub list: Vec<Claim>,
    /// Everything up to here is in `list` or lost: ask with this number next.
    pub upto: u64,
    /// Claims that were overwritten before they were read, or that a writer
    /// which died left unreadable.
    pub lost: u64,
}

/// How a look over the ring ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// See [`Claims::upto`].
    pub(crate) upto: u64,
    /// See [`Claims::lost`].
    pub(crate) lost: u64,
    /// The first slot that is still being written.
    pub(crate) pending: Option<u64>,
}

/// What a slot holds of the claim that is looked for.
enum Slot {
    Claim(Claim),
    /// Handed out, and not written yet.
    Pending,
    /// Overwritten, or spoilt.
    Lost,
}

/// The ring over its words.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    head: &'a AtomicU64,
    slots: &'a [AtomicU64],
    capacity: u64,
}

/// A slot that a writer owns; dropped unfinished, it stays unreadable, as if
/// the writer had died.
pub(crate) struct Reserved<'a> {
    pub(crate) seq: u64,
    slot: &'a [AtomicU64],
}

impl<'a> Ring<'a> {
    /// The ring in its section of the table; `None` where the section is too
    /// short, which a checked layout rules out.
    pub(crate) fn new(section: &'a [AtomicU64], capacity: u32) -> Option<Self> {
        let head = section.get(ring::HEAD)?;
        let words = (capacity as usize).checked_mul(ring::SLOT_WORDS)?;
        let slots = section.get(ring::WORDS..)?.get(..words)?;
        capacity.is_power_of_two().then_some(Self { head, slots, capacity: capacity.into() })
    }

    fn slot(&self, seq: u64) -> &'a [AtomicU64] {
        // Below the capacity, which was a u32.
        let index = (seq.wrapping_sub(1) & (self.capacity - 1)) as usize;
        let from = index * ring::SLOT_WORDS;
        self.slots.get(from..from + ring::SLOT_WORDS).unwrap_or(&[])
    }

    /// The last sequence number handed out.
    pub(crate) fn head(&self) -> Result<u64, Damage> {
        let head = get(self.head);
        fence(Ordering::Acquire);
        if head > MAX_SEQ { Err(Damage::ClaimsHead(head)) } else { Ok(head) }
    }

    /// Writes a claim; `claim.seq` is given by the ring and returned.
    pub(crate) fn push(&self, claim: &Claim) -> Result<u64, PushError> {
        let reserved = self.reserve()?;
        reserved.fill(claim);
        reserved.finish()
    }

    /// Draws a number and takes its slot.
    pub(crate) fn reserve(&self) -> Result<Reserved<'a>, PushError> {
        self.head()?;
        let seq = self.head.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if seq == 0 || seq > MAX_SEQ {
            return Err(Damage::ClaimsHead(seq).into());
        }
        self.take(seq)
    }

    fn take(&self, seq: u64) -> Result<Reserved<'a>, PushError> {
        let slot = self.slot(seq);
        let state = slot.get(ring::STATE).ok_or(PushError::Overtaken)?;
        let before = get(state);
        if before >> 1 >= seq {
            return Err(PushError::Overtaken);
        }
        // Tried once: whoever changed it meanwhile has a number a ring ahead.
        state
            .compare_exchange(before, seq << 1 | 1, Ordering::Relaxed, Ordering::Relaxed)
            .map_err(|_| PushError::Overtaken)?;
        fence(Ordering::Release);
        Ok(Reserved { seq, slot })
    }

    /// Puts a claim into a fresh ring under the number it had in another.
    pub(crate) fn carry_over(&self, claim: &Claim) -> Result<u64, PushError> {
        let reserved = self.take(claim.seq)?;
        reserved.fill(claim);
        reserved.finish()
    }

    /// Lets a fresh ring go on counting where another one stands.
    pub(crate) fn start_at(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    fn read(&self, seq: u64) -> Slot {
        let [state, data @ .., sum] = self.slot(seq) else { return Slot::Lost };
        let before = get(state);
        fence(Ordering::Acquire);
        match (before >> 1).cmp(&seq) {
            std::cmp::Ordering::Less => return Slot::Pending,
            std::cmp::Ordering::Greater => return Slot::Lost,
            std::cmp::Ordering::Equal if before & 1 == 1 => return Slot::Pending,
            std::cmp::Ordering::Equal => {}
        }
        let mut words = [0; ring::CHECKSUM - 1];
        for (copy, word) in words.iter_mut().zip(data) {
            *copy = get(word);
        }
        let sum = get(sum);
        fence(Ordering::Acquire);
        if get(state) != before || sum != checksum(seq, &words) {
            return Slot::Lost;
        }
        let [id, roster, time, uid_node, cpus_mem, limit_flags] = words;
        Slot::Claim(Claim {
            seq,
            id,
            roster,
            time,
            uid: low(uid_node),
            node: high(uid_node),
            cpus: low(cpus_mem),
            mem: high(cpus_mem),
            limit: low(limit_flags),
            flags: high(limit_flags),
        })
    }

    /// Appends the claims after `after` to `list`. Work is proportional to
    /// their number, and never more than the ring holds. With `skip`, slots
    /// being written up to that number are passed over as lost; at the first
    /// one beyond it stops.
    pub(crate) fn since(
        &self,
        after: u64,
        skip: u64,
        list: &mut Vec<Claim>,
    ) -> Result<Look, Damage> {
        let head = self.head()?;
        if after >= head {
            return Ok(Look { upto: after, ..Look::default() });
        }
        let oldest = head.saturating_sub(self.capacity).max(after);
        let mut look = Look { upto: oldest, lost: oldest - after, pending: None };
        for seq in oldest + 1..=head {
            match self.read(seq) {
                Slot::Claim(claim) => list.push(claim),
                Slot::Lost => look.lost += 1,
                Slot::Pending if seq <= skip => look.lost += 1,
                Slot::Pending => {
                    look.pending = Some(seq);
                    break;
                }
            }
            look.upto = seq;
        }
        Ok(look)
    }
}

impl Reserved<'_> {
    /// Stores the data.
    pub(crate) fn fill(&self, claim: &Claim) {
        let words = [
            claim.id,
            claim.roster,
            claim.time,
            pair(claim.uid, claim.node),
            pair(claim.cpus, claim.mem),
            pair(claim.limit, claim.flags),
        ];
        for (word, value) in self.slot.iter().skip(ring::ID).zip(words) {
            set(word, value);
        }
        if let Some(word) = self.slot.get(ring::CHECKSUM) {
            set(word, checksum(self.seq, &words));
        }
    }

    /// Makes the claim readable.
    pub(crate) fn finish(self) -> Result<u64, PushError> {
        let state = self.slot.get(ring::STATE).ok_or(PushError::Overtaken)?;
        let (odd, even) = (self.seq << 1 | 1, self.seq << 1);
        state
            .compare_exchange(odd, even, Ordering::Release, Ordering::Relaxed)
            .map(|_| self.seq)
            .map_err(|_| PushError::Overtaken)
    }
}

fn checksum(seq: u64, words: &[u64]) -> u64 {
    words.iter().fold(Checksum::new().word(seq), |sum, &word| sum.word(word)).done()
}
