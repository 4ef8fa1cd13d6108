//! From the cluster as Slurm describes it to what is published: the roster
//! (rarely) and the rooms (every second).

mod rooms;
mod roster;

pub use rooms::{
    Extra, Moving, RoomsInput, asked_mem, build_rooms, is_tied, job_share, planned_at,
};
pub use roster::{RosterInput, build_roster};

#[cfg(test)]
mod tests;
