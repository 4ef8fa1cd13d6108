//! The publisher inside sjpd: makes the table, publishes, reads the claims.

use crate::attach::MEMFD_NAME;
use crate::claims::Claims;
use crate::engine::Table;
use crate::error::{CreateError, Damage, PublishError};
use crate::layout::{
    Capacity, Layout, MAX_GROUPS, MAX_NODES, MAX_QOS_ROOMS, MAX_ROSTER_BYTES, WORD,
};
use crate::map::{Access, Mapping, SEALS};
use crate::rooms::{self, Meta};
use crate::{CapacityError, LINK_NAME, codec, header, now_ns};
use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::ftruncate;
use sjp_core::publication::{Claim, Rooms, Roster};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// How long a slot may stay half-written before its writer is taken for dead,
/// in nanoseconds: a second.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The table's only writer. Dropping it closes the table.
pub struct Publisher {
    state_dir: PathBuf,
    memory: Memory,
    /// Id and slot of the roster of the current publication.
    roster: Option<(u64, usize)>,
    /// The highest [`Claims::upto`] that was answered.
    seen: u64,
    /// A slot that is being written, and since when.
    pending: Option<(u64, u64)>,
    closed: bool,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("link", &self.link())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The sealed memfd and its mapping.
struct Memory {
    file: OwnedFd,
    mapping: Mapping,
    layout: Layout,
}

impl Memory {
    fn new(capacity: Capacity) -> Result<Self, CreateError> {
        let claims = capacity.claims.checked_next_power_of_two().unwrap_or(u32::MAX);
        let layout = Layout::new(Capacity { claims, ..capacity })?;
        let system = |what| move |source| CreateError::System { what, source };
        let file = memfd_create(MEMFD_NAME, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(system("memfd_create"))?;
        fchmod(&file, Mode::S_IRUSR | Mode::S_IWUSR).map_err(system("fchmod"))?;
        // The limits on capacities keep it far below any limit of the type.
        let bytes = i64::try_from(layout.total_bytes()).unwrap_or(i64::MAX);
        ftruncate(&file, bytes).map_err(system("ftruncate"))?;
        // All pages exist from now on: a reader's first touch never has to find
        // memory for one.
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(system("fallocate"))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS)).map_err(system("sealing"))?;
        let mapping = Mapping::new(file.as_fd(), 0, layout.total_words(), Access::ReadWrite)
            .map_err(system("mmap"))?;
        header::write(mapping.words(), &layout, std::process::id(), now_ns());
        Ok(Self { file, mapping, layout })
    }

    fn table(&self) -> Option<Table<'_>> {
        let (snapshot, ring) = self.mapping.words().split_at_checked(self.layout.ring)?;
        Table::new(snapshot, ring, &self.layout)
    }

    /// What the link to this table says.
    fn target(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Puts the link in place, over whatever link stands there.
    fn link_from(&self, state_dir: &Path) -> Result<(), CreateError> {
        let temporary = state_dir.join(format!(".{LINK_NAME}.{}", std::process::id()));
        let failed = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| CreateError::Link { what, path, source }
        };
        // Left over from a process of the same number, or not there.
        let _ = std::fs::remove_file(&temporary);
        symlink(self.target(), &temporary).map_err(failed("linking", &temporary))?;
        let link = state_dir.join(LINK_NAME);
        std::fs::rename(&temporary, &link).map_err(|source| {
            let _ = std::fs::remove_file(&temporary);
            failed("renaming to", &link)(source)
        })
    }
}

impl Publisher {
    /// Makes a table and puts the link `state_dir/table` in its place. Readers
    /// see nothing until the first [`Publisher::publish`].
    ///
    /// # Errors
    /// A capacity out of range, or a system call that failed.
    pub fn create(state_dir: &Path, capacity: Capacity) -> Result<Self, CreateError> {
        let memory = Memory::new(capacity)?;
        memory.link_from(state_dir)?;
        Ok(Self {
            state_dir: state_dir.to_path_buf(),
            memory,
            roster: None,
            seen: 0,
            pending: None,
            closed: false,
        })
    }

    /// The link that readers attach to.
    #[must_use]
    pub fn link(&self) -> PathBuf {
        self.state_dir.join(LINK_NAME)
    }

    /// How much the table can hold.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.memory.layout.capacity
    }

    /// Bytes of the whole table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.layout.total_words() * WORD
    }

    /// Publishes. `roster_id` names the roster and must change whenever it does:
    /// the roster is encoded and checked only when the id is a new one.
    ///
    /// # Errors
    /// Nothing was published, and readers keep what they had: the table is too
    /// small ([`PublishError::Full`]: call [`Publisher::replace`]), or roster or
    /// rooms are unsound.
    pub fn publish(
        &mut self,
        roster: &Roster,
        roster_id: u64,
        rooms: &Rooms,
        meta: Meta,
    ) -> Result<(), PublishError> {
        if self.closed {
            return Err(PublishError::Closed);
        }
        let have = self.capacity();
        rooms::validate(rooms, roster)?;
        let new_roster = match self.roster {
            Some((id, _)) if id == roster_id => None,
            _ => Some(encoded(roster)?),
        };
        let bytes = new_roster.as_ref().map_or(0, Vec::len);
        let needed = needed(rooms, bytes)?;
        if !have.holds(needed) {
            return Err(PublishError::Full { needed: needed.max(have) });
        }
        let Some(table) = self.memory.table() else { return Err(PublishError::Closed) };
        let slot = match (&new_roster, self.roster) {
            (None, Some((_, slot))) => slot,
            (Some(bytes), current) => {
                // Not the slot that the current publication refers to.
                let slot = current.map_or(0, |(_, slot)| 1 - slot);
                table.store_roster(slot, roster_id, bytes);
                slot
            }
            (None, None) => return Err(PublishError::Closed),
        };
        table.publish(rooms, meta, roster_id, slot, now_ns());
        self.roster = Some((roster_id, slot));
        Ok(())
    }

    /// As [`Publisher::publish`], and where the table is too small, into a
    /// larger one. Answers whether the table was replaced.
    ///
    /// # Errors
    /// As [`Publisher::publish`], save `Full`.
    pub fn publish_or_grow(
        &mut self,
        roster: &Roster,
        roster_id: u64,
        rooms: &Rooms,
        meta: Meta,
    ) -> Result<bool, PublishError> {
        match self.publish(roster, roster_id, rooms, meta) {
            Ok(()) => Ok(false),
            Err(PublishError::Full { needed }) => {
                let capacity = needed.with_head_room();
                self.replace(capacity, roster, roster_id, rooms, meta).map(|()| true)
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes into a new table: once that is complete the link is turned to
    /// it, and then the old table is closed. Claims go on counting, and those
    /// that the rooms do not account for are carried over, so that none is lost
    /// and none counted twice.
    ///
    /// # Errors
    /// As [`Publisher::publish`]; the old table stands.
    pub fn replace(
        &mut self,
        capacity: Capacity,
        roster: &Roster,
        roster_id: u64,
        rooms: &Rooms,
        meta: Meta,
    ) -> Result<(), PublishError> {
        if self.closed {
            return Err(PublishError::Closed);
        }
        rooms::validate(rooms, roster)?;
        let bytes = encoded(roster)?;
        let memory = Memory::new(capacity)?;
        let needed = needed(rooms, bytes.len())?;
        if !memory.layout.capacity.holds(needed) {
            return Err(PublishError::Full { needed: needed.max(memory.layout.capacity) });
        }
        let (Some(old), Some(new)) = (self.memory.table(), memory.table()) else {
            return Err(PublishError::Closed);
        };
        // A ring that holds nonsense is left behind with its table, but not the
        // count.
        let head = old.ring.head().unwrap_or(self.seen.max(meta.claims_taken));
        let mut claims = Vec::new();
        let _ = old.ring.since(meta.claims_taken, u64::MAX, &mut claims);
        new.ring.start_at(head);
        let mut carried = Vec::new();
        for claim in claims.iter().filter(|claim| claim.seq <= head) {
            if new.ring.carry_over(claim).is_ok() {
                carried.push(claim.seq);
            }
        }
        new.store_roster(0, roster_id, &bytes);
        new.publish(rooms, meta, roster_id, 0, now_ns());
        memory.link_from(&self.state_dir)?;
        old.close();

        // What came in meanwhile. Who pushed it either is seen here, or sees
        // that the table is closed and pushes it again.
        claims.clear();
        let _ = old.ring.since(meta.claims_taken, u64::MAX, &mut claims);
        for claim in claims.iter().filter(|claim| carried.binary_search(&claim.seq).is_err()) {
            let _ = new.ring.push(claim);
        }
        self.memory = memory;
        self.roster = Some((roster_id, 0));
        self.pending = None;
        Ok(())
    }

    /// A sign of life, for a publisher that has nothing new to say.
    pub fn heartbeat(&self) {
        if let Some(table) = self.memory.table() {
            table.set_heartbeat(now_ns());
        }
    }

    /// How many times was published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.memory.table().map_or(0, |table| table.generation())
    }

    /// The claims after sequence number `after`. Call again with `upto`, and
    /// publish it as [`Meta::claims_taken`] once the rooms account for them.
    /// A slot that is being written holds the rest back; after a second its
    /// writer is taken for dead and the claim for lost.
    ///
    /// # Errors
    /// The ring holds nonsense: make a new table.
    pub fn claims_since(&mut self, after: u64) -> Result<Claims, Damage> {
        self.claims_at(after, now_ns())
    }

    fn claims_at(&mut self, after: u64, now_ns: u64) -> Result<Claims, Damage> {
        let table = self.memory.table().ok_or(Damage::ClaimsHead(0))?;
        let mut list: Vec<Claim> = Vec::new();
        let mut look = table.ring.since(after, 0, &mut list)?;
        if let Some(seq) = look.pending {
            match self.pending {
                Some((stuck, since)) if stuck == seq => {
                    if now_ns.saturating_sub(since) >= PATIENCE_NS {
                        list.clear();
                        look = table.ring.since(after, seq, &mut list)?;
                    }
                }
                _ => self.pending = Some((seq, now_ns)),
            }
        }
        self.seen = self.seen.max(look.upto);
        Ok(Claims { list, upto: look.upto, lost: look.lost })
    }

    /// Closes the table: readers let go of it at their next call, and nothing
    /// more can be published. Removes the link if it is still this table's.
    pub fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        if let Some(table) = self.memory.table() {
            table.close();
        }
        let link = self.link();
        if std::fs::read_link(&link).is_ok_and(|target| target == self.memory.target()) {
            let _ = std::fs::remove_file(&link);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}

/// A checked roster's bytes.
fn encoded(roster: &Roster) -> Result<Vec<u8>, PublishError> {
    codec::validate(roster)?;
    codec::encode(roster).map_err(PublishError::Encode)
}

/// The least capacity that holds these rooms and a roster of so many bytes.
fn needed(rooms: &Rooms, roster_bytes: usize) -> Result<Capacity, CapacityError> {
    let fit = |what, count: usize, most: u32| {
        u32::try_from(count).ok().filter(|&count| count <= most).ok_or(CapacityError {
            what,
            asked: count as u64,
            most: most.into(),
        })
    };
    Ok(Capacity {
        nodes: fit("nodes", rooms.group_of.len().max(rooms.members.len()), MAX_NODES)?,
        groups: fit("groups", rooms.groups.len(), MAX_GROUPS)?,
        qos_rooms: fit("QOS rooms", rooms.qos_rooms.len(), MAX_QOS_ROOMS)?,
        roster_bytes: fit("bytes of roster", roster_bytes, MAX_ROSTER_BYTES)?,
        claims: 1,
    })
}
