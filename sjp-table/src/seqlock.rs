//! The sequence lock that guards a snapshot buffer or a roster slot: one
//! writer, any number of readers, nobody waits.
//!
//! The sequence word is odd while the writer is inside, and even (and two
//! higher) when it has left. Why a reader that sees the same even value before
//! and after has a consistent copy:
//!
//! - *Nothing newer.* Suppose a data load saw a store of a later write. That
//!   store follows, in the writer, `fence(Release)` which follows the store of
//!   the odd value. The data load precedes, in the reader, `fence(Acquire)`
//!   which precedes the second load of the sequence word. Release fence,
//!   relaxed store seen by a relaxed load, acquire fence: they synchronise, so
//!   the odd store happens before the second load, which must see it or
//!   something later; it cannot see the first value again.
//! - *Nothing older.* The first load saw the even value, stored with Release
//!   after all data of that write. The load is followed by `fence(Acquire)`:
//!   again they synchronise, so every data load sees at least that write.
//!
//! `Pair` puts two such buffers behind a generation word whose lowest bit names
//! the current one. The writer fills the other and then turns the generation,
//! so a writer that dies inside leaves the current buffer as it was, and a
//! reader is disturbed only if two publications pass while it reads. There the
//! sequence word is twice the generation that stands in the buffer: a reader
//! that was held up between generation and buffer, and finds a later
//! publication there, tries again. So a reader never goes back: what it takes
//! has the number that the generation word had, and that only grows.
//!
//! All data are atomics, so that the overlap which the check later rejects is
//! no data race. The readers' loads are relaxed because their pages are
//! mapped read-only (see `sync::get`).

use crate::sync::{AtomicU64, Ordering, fence, get, set};

/// Enters the writer's side; returns what [`end`] needs. A writer that dies in
/// between leaves the word odd: its buffer is unreadable from then on.
pub(crate) fn begin(sequence: &AtomicU64) -> u64 {
    begin_as(sequence, get(sequence).wrapping_add(1) | 1)
}

/// As [`begin`], with the odd value given.
fn begin_as(sequence: &AtomicU64, odd: u64) -> u64 {
    set(sequence, odd);
    fence(Ordering::Release);
    odd
}

/// Leaves the writer's side.
pub(crate) fn end(sequence: &AtomicU64, odd: u64) {
    sequence.store(odd.wrapping_add(1), Ordering::Release);
}

/// Enters the reader's side: the sequence, or `None` while a writer is inside.
#[inline]
pub(crate) fn enter(sequence: &AtomicU64) -> Option<u64> {
    let before = get(sequence);
    fence(Ordering::Acquire);
    (before & 1 == 0).then_some(before)
}

/// Whether what was read since [`enter`] is consistent.
#[inline]
pub(crate) fn unchanged(sequence: &AtomicU64, before: u64) -> bool {
    fence(Ordering::Acquire);
    get(sequence) == before
}

/// Two buffers with a sequence word each, and the generation that names the
/// current one.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) generation: &'a AtomicU64,
    pub(crate) sequences: [&'a AtomicU64; 2],
}

/// How one try of a read ended.
pub(crate) enum Try<R> {
    /// Consistent.
    Read(R),
    /// The writer came in between.
    Disturbed,
    /// Nothing was ever published.
    Empty,
}

/// The buffer of a generation, 0 or 1.
#[inline]
pub(crate) fn buffer_of(generation: u64) -> usize {
    (generation & 1) as usize
}

impl Pair<'_> {
    /// As [`Pair::publish`], by a writer that dies inside.
    pub(crate) fn publish_and_die(&self, store: impl FnOnce(usize)) {
        let generation = get(self.generation).wrapping_add(1);
        let buffer = buffer_of(generation);
        begin_as(self.sequences[buffer], generation.wrapping_mul(2).wrapping_sub(1));
        store(buffer);
    }

    /// Publishes: `store(buffer, generation)` fills the buffer that is not
    /// current, which then becomes current.
    pub(crate) fn publish(&self, store: impl FnOnce(usize, u64)) {
        let generation = get(self.generation).wrapping_add(1).max(1);
        let buffer = buffer_of(generation);
        let sequence = self.sequences[buffer];
        let odd = begin_as(sequence, generation.wrapping_mul(2).wrapping_sub(1));
        store(buffer, generation);
        end(sequence, odd);
        self.generation.store(generation, Ordering::Release);
    }

    /// One try: `read(buffer)` reads the current buffer; what it returns counts
    /// only if nothing changed.
    #[inline]
    pub(crate) fn attempt<R>(&self, read: impl FnOnce(usize) -> R) -> Try<R> {
        let generation = get(self.generation);
        // Whoever sees a generation sees its buffer complete.
        fence(Ordering::Acquire);
        if generation == 0 {
            return Try::Empty;
        }
        let buffer = buffer_of(generation);
        let sequence = self.sequences[buffer];
        let Some(before) = enter(sequence) else { return Try::Disturbed };
        if before != generation.wrapping_mul(2) {
            return Try::Disturbed;
        }
        let answer = read(buffer);
        if unchanged(sequence, before) { Try::Read(answer) } else { Try::Disturbed }
    }
}
