//! Units and limits: CPUs, memory and time limits as types of their own, so
//! that a bare integer can never be taken for the wrong one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number of CPUs, as Slurm counts them (hardware threads where a node has
/// `ThreadsPerCore` above one).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cpus(pub u32);

/// An amount of memory in MB (Slurm's MB: 1,048,576 bytes).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemMb(pub u64);

impl Cpus {
    /// These CPUs less `other`, never below zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Rounded up to a multiple of `step` (a node's threads per core).
    #[must_use]
    pub fn round_up(self, step: u32) -> Self {
        match step {
            0 | 1 => self,
            _ => Self(self.0.div_ceil(step).saturating_mul(step)),
        }
    }
}

impl MemMb {
    /// This memory less `other`, never below zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This memory for each of `cpus` CPUs.
    #[must_use]
    pub fn times(self, cpus: Cpus) -> Self {
        Self(self.0.saturating_mul(u64::from(cpus.0)))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}c", self.0)
    }
}

/// `512M` below one GB, else whole or one-decimal gigabytes: `16G`, `1.5G`.
impl fmt::Display for MemMb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            m if m < 1024 => write!(f, "{m}M"),
            m if m % 1024 == 0 => write!(f, "{}G", m / 1024),
            m => {
                // In whole numbers: this is written while a submission waits.
                let tenths = tenths(m, 1024);
                write!(f, "{}.{}G", tenths / 10, tenths % 10)
            }
        }
    }
}

/// `number / by` in tenths, rounded to the nearest; 0 where `by` is 0.
#[must_use]
pub fn tenths(number: u64, by: u64) -> u64 {
    let number = number.saturating_mul(10).saturating_add(by / 2);
    number.checked_div(by).unwrap_or_default()
}

/// A limit that Slurm prints as a number or as `UNLIMITED`, or that nobody set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// Not given.
    #[default]
    Unset,
    /// `UNLIMITED` / `INFINITE`.
    Unlimited,
    /// A number, in the unit of the field that holds it.
    At(u32),
}

impl Limit {
    /// The number, where there is one.
    #[must_use]
    pub fn number(self) -> Option<u32> {
        match self {
            Self::At(n) => Some(n),
            Self::Unset | Self::Unlimited => None,
        }
    }

    /// Whether `n` exceeds this limit.
    #[must_use]
    pub fn exceeded_by(self, n: u32) -> bool {
        self.number().is_some_and(|limit| n > limit)
    }
}

/// Memory that Slurm states for each CPU or for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemPer {
    /// Not given, or unlimited where the field is a limit.
    #[default]
    Unset,
    /// MB for each CPU (`--mem-per-cpu`, `DefMemPerCPU`, `MaxMemPerCPU`).
    Cpu(MemMb),
    /// MB on each node (`--mem`, `DefMemPerNode`, `MaxMemPerNode`).
    Node(MemMb),
}
