//! The shared-memory table between sjpd and the Lua module inside slurmctld:
//! one sealed memfd with two snapshot buffers, two roster slots and a ring of
//! claims. `docs/table.md` has the layout byte by byte.
//!
//! - sjpd: [`Publisher::create`], [`Publisher::publish`],
//!   [`Publisher::claims_since`].
//! - the module: [`Reader::attach`], [`Reader::read_with_roster`],
//!   [`Reader::push_claim`].
//!
//! The reader trusts nothing that it reads: whatever bytes stand in the table,
//! it answers with a value or an error, never reads outside, never loops
//! without a bound, never waits and never panics. All unsafe code of the
//! project is in `map.rs`; `SAFETY.md` says what is assumed of slurmctld.

#![cfg_attr(loom, allow(dead_code, reason = "the models use a part of the crate"))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("sjp-table needs 64-bit atomics");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("sjp-table needs 64-bit addresses");

mod claims;
mod codec;
mod engine;
mod error;
mod header;
pub mod layout;
mod rooms;
mod seqlock;
mod sync;

#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod publisher;
#[cfg(not(loom))]
mod reader;

#[doc(hidden)]
pub mod parts;

pub use claims::Claims;
pub use error::{
    AttachError, CapacityError, CreateError, Damage, HeaderError, PublishError, PushError,
    ReadError, RoomsFault, RosterFault,
};
pub use layout::Capacity;
pub use rooms::{Meta, TableView};

#[cfg(not(loom))]
pub use publisher::Publisher;
#[cfg(not(loom))]
pub use reader::Reader;

/// How often a read of the snapshot is tried before it answers
/// [`ReadError::Busy`].
pub const MAX_TRIES: usize = 5;

/// The name of the link in the state directory.
pub const LINK_NAME: &str = "table";

/// CLOCK_MONOTONIC in nanoseconds: the clock of [`Meta::data_time_ns`] and of
/// the heartbeat. It is the same in all processes of one boot.
#[cfg(not(loom))]
#[must_use]
pub fn now_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    // It cannot fail for CLOCK_MONOTONIC; a zero would read as very old data.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(t.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    })
}
