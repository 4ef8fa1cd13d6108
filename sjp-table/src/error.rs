//! What can go wrong, one variant a cause, with words for the log.

use crate::layout::Capacity;
use std::path::PathBuf;
use thiserror::Error;

/// A capacity that no table can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a table cannot hold {asked} {what}: 1 to {most}")]
pub struct CapacityError {
    /// Which capacity.
    pub what: &'static str,
    /// What was asked for.
    pub asked: u64,
    /// The limit.
    pub most: u64,
}

/// Why a header is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Too short to hold a header.
    #[error("{bytes} bytes are too few for a table")]
    Short {
        /// Bytes there are.
        bytes: usize,
    },
    /// Not a table.
    #[error("it does not begin with the magic of a table (found {found:#018x})")]
    Magic {
        /// First word.
        found: u64,
    },
    /// The publisher has not finished making it.
    #[error("it is still being made")]
    Unfinished,
    /// Another version of the layout.
    #[error("layout version {found}, this build reads {expected}: update both sides of sjp")]
    Version {
        /// Version in the table.
        found: u64,
        /// This build's.
        expected: u64,
    },
    /// Another byte order.
    #[error("written in another byte order (mark {found:#018x})")]
    ByteOrder {
        /// Mark in the table.
        found: u64,
    },
    /// Header of another size.
    #[error("header of {found} bytes, not {expected}")]
    HeaderBytes {
        /// Size in the table.
        found: u64,
        /// This build's.
        expected: u64,
    },
    /// Another encoding of the roster.
    #[error(
        "roster encoding {found:#018x}, this build reads {expected:#018x}: update both sides of sjp"
    )]
    Schema {
        /// Fingerprint in the table.
        found: u64,
        /// This build's.
        expected: u64,
    },
    /// A capacity out of range.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// A section is not where its capacities put it.
    #[error("{section} is said to begin at byte {found}, not {expected}")]
    Offset {
        /// Which section.
        section: &'static str,
        /// Offset in the table.
        found: u64,
        /// What follows from the capacities.
        expected: u64,
    },
    /// Another size than its capacities need.
    #[error("the header says {stated} bytes, its capacities need {expected}, there are {bytes}")]
    TotalBytes {
        /// Size in the header.
        stated: u64,
        /// What follows from the capacities.
        expected: u64,
        /// Size of the file.
        bytes: u64,
    },
}

/// Why the table cannot be attached. None of these harms anything, and all may
/// go away when sjpd starts or is updated.
#[derive(Debug, Error)]
pub enum AttachError {
    /// No link.
    #[error("{link}: no table there (is sjpd running?)")]
    NoTable {
        /// The link.
        link: PathBuf,
    },
    /// Something else stands where the link should be.
    #[error("{link}: not a symbolic link to a process's file: {found}")]
    NotALink {
        /// The link.
        link: PathBuf,
        /// What is there.
        found: String,
    },
    /// The publisher is gone.
    #[error("{link}: its publisher is gone ({target} is not there)")]
    Dangling {
        /// The link.
        link: PathBuf,
        /// Where it points to.
        target: PathBuf,
    },
    /// The publisher, or whoever has its number now, is not ours to look into.
    #[error(
        "{link}: the kernel does not let this process open {target}: sjpd has to run as the same \
         user and primary group, without capabilities of its own"
    )]
    Denied {
        /// The link.
        link: PathBuf,
        /// Where it points to.
        target: PathBuf,
    },
    /// The link points to something that is not a table.
    #[error("{link}: {target} is {found}, not a table")]
    NotMemfd {
        /// The link.
        link: PathBuf,
        /// Where it points to.
        target: PathBuf,
        /// What is there.
        found: String,
    },
    /// A system call failed.
    #[error("{link}: {what} failed")]
    System {
        /// The link.
        link: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: nix::Error,
    },
    /// Belongs to somebody else.
    #[error("{link}: belongs to uid {found}, not to uid {expected} or root")]
    Owner {
        /// The link.
        link: PathBuf,
        /// Owner.
        found: u32,
        /// Who may own it.
        expected: u32,
    },
    /// Others can open it.
    #[error("{link}: mode {mode:04o} lets others in")]
    Mode {
        /// The link.
        link: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// It could shrink under the reader.
    #[error("{link}: not sealed against a change of size")]
    Unsealed {
        /// The link.
        link: PathBuf,
    },
    /// Larger than any table.
    #[error("{link}: {bytes} bytes are no size of a table")]
    Size {
        /// The link.
        link: PathBuf,
        /// Size of the file.
        bytes: i64,
    },
    /// The header is refused.
    #[error("{link}: {fault}")]
    Header {
        /// The link.
        link: PathBuf,
        /// Why.
        fault: HeaderError,
    },
    /// The publisher has closed it.
    #[error("{link}: closed by its publisher")]
    Closed {
        /// The link.
        link: PathBuf,
    },
}

/// What is wrong with a table that was attached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// A count beyond its capacity.
    #[error("{found} {what} in room for {most}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The count.
        found: u64,
        /// The capacity.
        most: u64,
    },
    /// The rooms name a roster slot that does not exist, or holds another.
    #[error("roster {id:#x} is not in slot {slot}")]
    RosterSlot {
        /// The roster.
        id: u64,
        /// The slot.
        slot: u64,
    },
    /// The roster's checksum is wrong.
    #[error("the roster's checksum is wrong")]
    RosterChecksum,
    /// The roster cannot be decoded.
    #[error("the roster cannot be decoded: {0}")]
    RosterDecode(postcard::Error),
    /// The roster contradicts itself.
    #[error("the roster is unsound: {0}")]
    Roster(#[from] RosterFault),
    /// The ring's head is not a sequence number.
    #[error("the claims ring's head says {0}")]
    ClaimsHead(u64),
}

/// Why there is no answer from the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The publisher was in the way at every try.
    #[error("the table changed during each of the tries")]
    Busy,
    /// Nothing has been published yet.
    #[error("nothing has been published yet")]
    Empty,
    /// The publisher has left the table: attach again.
    #[error("the table was closed")]
    Closed,
    /// The table holds nonsense.
    #[error("the table is damaged: {0}")]
    Damaged(#[from] Damage),
}

/// Why a claim was not written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// The publisher has left the table: attach again and push the same claim
    /// (same id) there. It may have been carried over already; who reads
    /// claims drops the second of an id.
    #[error("the table was closed")]
    Closed,
    /// Another writer is a whole ring ahead in the same slot.
    #[error("another claim has taken the slot")]
    Overtaken,
    /// The table holds nonsense.
    #[error("the table is damaged: {0}")]
    Damaged(#[from] Damage),
}

/// Why a table could not be made.
#[derive(Debug, Error)]
pub enum CreateError {
    /// A capacity is out of range.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// A system call failed.
    #[error("making the table: {what} failed")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: nix::Error,
    },
    /// The link could not be put in place.
    #[error("making the table: {what} {path} failed")]
    Link {
        /// What was tried.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Why nothing was published. The table still shows what it showed before.
#[derive(Debug, Error)]
pub enum PublishError {
    /// A section is too small: make a larger table with
    /// `needed.with_head_room()`.
    #[error("the table is too small: it takes {needed:?}")]
    Full {
        /// The least capacity that holds it.
        needed: Capacity,
    },
    /// More than any table holds.
    #[error(transparent)]
    TooLarge(#[from] CapacityError),
    /// The roster contradicts itself: an error in who made it.
    #[error("the roster is unsound: {0}")]
    Roster(#[from] RosterFault),
    /// The rooms contradict themselves or the roster: an error in who made them.
    #[error("the rooms are unsound: {0}")]
    Rooms(#[from] RoomsFault),
    /// The roster cannot be encoded.
    #[error("the roster cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// The table is closed.
    #[error("the table is closed")]
    Closed,
    /// The larger table could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// What is wrong with a roster.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RosterFault {
    /// A list is longer than a table can hold.
    #[error("{count} {what}, at most {most}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        count: usize,
        /// Limit.
        most: usize,
    },
    /// A name cannot be read (a damaged name table).
    #[error("name {index} of the nodes is unreadable")]
    NodeName {
        /// Node index.
        index: usize,
    },
    /// Names are not in ascending order, or one stands twice.
    #[error("{what} are not sorted at {index}")]
    Order {
        /// Which list.
        what: &'static str,
        /// Index of the entry that is not above the one before it.
        index: usize,
    },
    /// `kind_of` has another length than the nodes.
    #[error("{found} kinds of node for {nodes} nodes")]
    KindOfLength {
        /// Length of `kind_of`.
        found: usize,
        /// Nodes.
        nodes: usize,
    },
    /// An index beyond its list.
    #[error("{what} {index} refers to {found} of {count}")]
    Index {
        /// What refers.
        what: &'static str,
        /// Its index.
        index: usize,
        /// What it refers to.
        found: usize,
        /// How many there are.
        count: usize,
    },
    /// A setting that is not a usable number.
    #[error("setting {0} is not a usable number")]
    Setting(&'static str),
}

/// What is wrong with rooms.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RoomsFault {
    /// `group_of` has another length than the roster's nodes.
    #[error("group_of has {found} entries for {nodes} nodes")]
    GroupOfLength {
        /// Its length.
        found: usize,
        /// Nodes.
        nodes: usize,
    },
    /// A group's members lie outside `members`.
    #[error("group {group} has members {first} to {end} of {count}")]
    Span {
        /// Group.
        group: usize,
        /// First.
        first: u32,
        /// One past the last.
        end: u64,
        /// Members there are.
        count: usize,
    },
    /// A group's pset is not in the roster.
    #[error("group {group} has pset {pset} of {count}")]
    Pset {
        /// Group.
        group: usize,
        /// Its pset.
        pset: u16,
        /// Psets there are.
        count: usize,
    },
    /// A member that `group_of` does not give to this group, or that does not
    /// exist, or that is not above the one before it.
    #[error("group {group} has node {node} as a member, against group_of or the order")]
    Member {
        /// Group.
        group: usize,
        /// Node.
        node: u32,
    },
    /// Nodes that `group_of` gives to a group which does not list them.
    #[error("group_of gives {found} nodes to groups, which list {listed}")]
    Unlisted {
        /// By `group_of`.
        found: usize,
        /// By the groups.
        listed: usize,
    },
    /// `phi` is not a finite number.
    #[error("group {group}: phi is not a number")]
    Phi {
        /// Group.
        group: usize,
    },
    /// QOS rooms are not sorted, or one stands twice.
    #[error("qos_rooms are not sorted at {index}")]
    QosOrder {
        /// Index.
        index: usize,
    },
    /// A QOS that is not in the roster.
    #[error("qos_rooms {index} refers to QOS {qos} of {count}")]
    Qos {
        /// Index.
        index: usize,
        /// Its QOS.
        qos: u32,
        /// QOS there are.
        count: usize,
    },
}
