//! The atomics that the whole crate uses: std's, or loom's in a model run
//! (`--cfg loom`). Nothing else in the crate names an atomic type.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A relaxed load.
///
/// Every load from the snapshot goes through here: the reader maps those pages
/// read-only, and only relaxed loads may be done on read-only memory (stronger
/// ones may be compiled to an instruction that writes). Order comes from
/// fences.
#[inline(always)]
pub(crate) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// A relaxed store.
#[inline(always)]
pub(crate) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Two 32-bit values in one word: `low` in bits 0..32.
#[inline(always)]
pub(crate) const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The low half of a word.
#[inline(always)]
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// The high half of a word.
#[inline(always)]
pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
