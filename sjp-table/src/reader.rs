//! The reader inside slurmctld (and in `sjp`): attach, read, write claims.
//! Nothing here waits, and after attaching nothing is a system call.

use crate::attach;
use crate::claims::{Claims, Ring};
use crate::engine::{RosterCache, Table};
use crate::error::{AttachError, Damage, PushError, ReadError};
use crate::layout::{Capacity, Layout};
use crate::map::{Access, Mapping};
use crate::rooms::TableView;
use nix::unistd::geteuid;
use sjp_core::publication::{Claim, Roster};
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// A table that somebody else publishes.
pub struct Reader {
    snapshot: Mapping,
    ring: Mapping,
    layout: Layout,
    cache: RosterCache,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("capacity", &self.layout.capacity).finish_non_exhaustive()
    }
}

impl Reader {
    /// Attaches to the table behind `link` (`STATE_DIR/table`), which must
    /// belong to this process's effective user or to root. Never waits.
    ///
    /// # Errors
    /// One variant for each reason to refuse; none does harm.
    pub fn attach(link: &Path) -> Result<Self, AttachError> {
        Self::attach_owned_by(link, geteuid().as_raw())
    }

    /// As [`Reader::attach`], for a command that root runs: the table may belong
    /// to `owner` (whoever owns the state directory) or to root.
    ///
    /// # Errors
    /// As [`Reader::attach`].
    pub fn attach_owned_by(link: &Path, owner: u32) -> Result<Self, AttachError> {
        let found = attach::open_table(link, owner)?;
        let layout = found.layout;
        let map = |from, words, access| {
            Mapping::new(found.file.as_fd(), from, words, access).map_err(|source| {
                AttachError::System { link: link.to_path_buf(), what: "mapping it", source }
            })
        };
        let reader = Self {
            snapshot: map(0, layout.snapshot_words(), Access::Read)?,
            ring: map(layout.ring, layout.ring_words, Access::ReadWrite)?,
            layout,
            cache: RosterCache::default(),
        };
        if reader.is_closed() {
            return Err(AttachError::Closed { link: link.to_path_buf() });
        }
        Ok(reader)
    }

    fn table(&self) -> Option<Table<'_>> {
        Table::new(self.snapshot.words(), self.ring.words(), &self.layout)
    }

    fn claims_ring(&self) -> Option<Ring<'_>> {
        Ring::new(self.ring.words(), self.layout.capacity.claims)
    }

    /// Reads the current publication where it stands. `read` may run up to
    /// [`crate::MAX_TRIES`] times, the answers but the last thrown away; the
    /// values it sees may then be any mixture, so it must bear every number
    /// (indices past the end answer `None`) and bound its own work.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn read<R>(&self, read: impl FnMut(&TableView<'_>) -> R) -> Result<R, ReadError> {
        self.table().ok_or(ReadError::Closed)?.read(read)
    }

    /// As [`Reader::read`], with the roster that the publication's indices refer
    /// to. The roster is decoded once an id, and its indices were checked.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn read_with_roster<R>(
        &mut self,
        mut read: impl FnMut(&TableView<'_>, &Roster) -> R,
    ) -> Result<R, ReadError> {
        let Self { snapshot, ring, layout, cache } = self;
        Table::new(snapshot.words(), ring.words(), layout)
            .ok_or(ReadError::Closed)?
            .read_with_roster(cache, |view, roster| read(view, roster))
    }

    /// The roster of the current publication.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn roster(&mut self) -> Result<Arc<Roster>, ReadError> {
        let Self { snapshot, ring, layout, cache } = self;
        Table::new(snapshot.words(), ring.words(), layout)
            .ok_or(ReadError::Closed)?
            .read_with_roster(cache, |_, roster| Arc::clone(roster))
    }

    /// Writes a claim and returns its sequence number (`claim.seq` is not
    /// looked at). Never waits.
    ///
    /// # Errors
    /// [`PushError`]: after `Closed`, attach again and push the same claim.
    pub fn push_claim(&self, claim: &Claim) -> Result<u64, PushError> {
        self.table().ok_or(PushError::Closed)?.push(claim)
    }

    /// Appends the claims after sequence number `after` (ascending) and returns
    /// how many could not be read: overwritten, or left half-written. Costs as
    /// much as there are new ones. What the module folds into the rooms of a
    /// view is `claims_since(view.meta().claims_taken, ..)`.
    ///
    /// # Errors
    /// The ring holds nonsense.
    pub fn claims_since(&self, after: u64, list: &mut Vec<Claim>) -> Result<u64, Damage> {
        let ring = self.claims_ring().ok_or(Damage::ClaimsHead(0))?;
        ring.since(after, u64::MAX, list).map(|look| look.lost)
    }

    /// The claims after `after`, for reports.
    ///
    /// # Errors
    /// The ring holds nonsense.
    pub fn claims(&self, after: u64) -> Result<Claims, Damage> {
        let ring = self.claims_ring().ok_or(Damage::ClaimsHead(0))?;
        let mut list = Vec::new();
        let look = ring.since(after, u64::MAX, &mut list)?;
        Ok(Claims { list, upto: look.upto, lost: look.lost })
    }

    /// Whether the publisher has left the table: attach again.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        use crate::layout::header;
        self.snapshot.words().get(header::CLOSED).is_none_or(|word| crate::sync::get(word) != 0)
    }

    /// The publisher's process id.
    #[must_use]
    pub fn publisher_pid(&self) -> u32 {
        self.table().map_or(0, |table| table.pid())
    }

    /// The publisher's last sign of life, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn heartbeat_ns(&self) -> u64 {
        self.table().map_or(0, |table| table.heartbeat_ns())
    }

    /// How much the table can hold.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.layout.capacity
    }
}
