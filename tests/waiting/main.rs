//! Jobs of sjp's that wait, on a real Slurm: chosen again, opened, pinned to wait for
//! room, widened; a thousand of them at once; and what a user's later choice does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod choice;
mod common;
mod many;
mod moves;
mod room;
