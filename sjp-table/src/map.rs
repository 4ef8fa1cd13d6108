//! The mapping: all unsafe code of the project. A [`Mapping`] lends its pages as
//! a slice of atomics; everything else in the crate is safe code over slices.
//! `SAFETY.md` says what is assumed of the processes around it.

use crate::layout::WORD;
use crate::sync::AtomicU64;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc::c_void;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// The seals without which nothing is mapped: the file's size stands for good.
pub(crate) const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// Whether the mapping may be written through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Loads only; and of those only relaxed ones (see `sync::get`).
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// Whole pages of a sealed file, shared with other processes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: a mapping is plain memory that no thread owns; it is reached only as
// `&[AtomicU64]`, and unmapped once, by whoever drops it.
unsafe impl Send for Mapping {}
// SAFETY: as above: shared access is access to atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `words` words of the file from word `from` on (a multiple of the
    /// page size).
    ///
    /// # Errors
    /// `EPERM` where the file is not sealed against a change of size, `ENXIO`
    /// where the range is empty or not within the file, or what mmap says.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        from: usize,
        words: usize,
        access: Access,
    ) -> Result<Self, Errno> {
        let seals = SealFlag::from_bits_retain(fcntl(file, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SEALS) {
            return Err(Errno::EPERM);
        }
        let offset = from.checked_mul(WORD).ok_or(Errno::ENXIO)?;
        let bytes = words.checked_mul(WORD).and_then(NonZeroUsize::new).ok_or(Errno::ENXIO)?;
        let end = offset.checked_add(bytes.get()).and_then(|end| i64::try_from(end).ok());
        let size = fstat(file)?.st_size;
        if end.is_none_or(|end| end > size) {
            return Err(Errno::ENXIO);
        }
        let offset = i64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let protection = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        // SAFETY: without an address the kernel picks one that nothing uses, so
        // no existing memory is touched.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, file, offset)? };
        Ok(Self { start, bytes })
    }

    /// The mapped words.
    ///
    /// On a mapping for [`Access::Read`] a store is a fault: only `publisher`
    /// stores into the snapshot, and it maps everything for writing.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let words = self.bytes.get() / WORD;
        // SAFETY: `start` is page-aligned and `bytes` long, mapped until `self`
        // is dropped, which the returned borrow outlives not. The file cannot
        // become shorter than the mapping (sealed, checked in `new`), so every
        // page stays readable. All bit patterns are valid for an AtomicU64, and
        // every access by any process that keeps to this crate is atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned; all borrows of it have
        // ended with `self`. An error would leave it mapped, which harms nothing.
        let _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}
