//! What Slurm prints, read into the records of [`sjp_core::cluster`].
//!
//! Text (or JSON bytes) in; records, errors and warnings out. Nothing here
//! runs a command, reads a file or a clock, or asks the environment: which
//! arguments and which environment make Slurm print what a reader reads stands
//! beside the reader as constants, and the time zone in which Slurm printed is
//! an argument.
//!
//! Readers never fail as a whole for one bad record: what cannot be read is an
//! error with its line and text, and the good records are kept.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod any;
pub mod array;
pub mod capture;
pub mod config;
pub mod job_text;
pub mod json;
pub mod nodes;
pub mod partitions;
pub mod reservations;
pub mod squeue;
pub mod state;
pub mod time;
pub mod tres;

mod record;

use serde::{Serialize, Serializer};

/// Environment for every Slurm command whose output is read here, besides an
/// otherwise clean environment: times as Unix seconds, array task lists uncut.
pub const ENV: &[(&str, &str)] =
    &[("SLURM_TIME_FORMAT", "%s"), ("SLURM_BITSTR_LEN", "0"), ("LC_ALL", "C")];

/// What a reader made of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parsed<T> {
    /// The records that could be read, in the order printed.
    pub records: Vec<T>,
    /// What could not be read.
    pub errors: Vec<ReadError>,
    /// What was read but does not fit together.
    pub warnings: Vec<Warning>,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { records: Vec::new(), errors: Vec::new(), warnings: Vec::new() }
    }
}

impl<T> Parsed<T> {
    fn error(&mut self, line: usize, what: Problem, text: &str) {
        self.errors.push(ReadError { line, what, text: excerpt(text) });
    }

    fn warn(&mut self, line: usize, text: String) {
        self.warnings.push(Warning { line, text });
    }
}

/// A place that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("line {line}: {what}: {text:?}")]
pub struct ReadError {
    /// Line, from 1; 0 where the output as a whole is meant.
    pub line: usize,
    /// What is wrong.
    #[serde(serialize_with = "as_text")]
    pub what: Problem,
    /// The start of the text that could not be read.
    pub text: String,
}

/// Something read that does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Line of the record, from 1.
    pub line: usize,
    /// What does not fit.
    pub text: String,
}

fn as_text<S: Serializer>(what: &Problem, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(what)
}

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Neither the form a reader knows nor anything near it.
    #[error("this is not {want}")]
    Unknown {
        /// What was looked for.
        want: &'static str,
    },
    /// A record lacks a value that it cannot do without.
    #[error("{key} is missing")]
    Missing {
        /// Slurm's name of the value.
        key: &'static str,
    },
    /// A value is not of its kind.
    #[error("{key}={value:?} is not {want}")]
    Value {
        /// Slurm's name of the value.
        key: &'static str,
        /// The value as printed.
        value: String,
        /// What it should be.
        want: &'static str,
    },
    /// A time without a date.
    #[error(
        "{key}={value:?} is not a full time: read again with SLURM_TIME_FORMAT unset or \"standard\""
    )]
    RelativeTime {
        /// Slurm's name of the value.
        key: &'static str,
        /// The value as printed.
        value: String,
    },
    /// A list of nodes that cannot be expanded.
    #[error("{key}: {source}")]
    Hostlist {
        /// Slurm's name of the value.
        key: &'static str,
        /// What is wrong with it.
        source: sjp_core::hostlist::HostlistError,
    },
    /// A row with more or fewer cells than columns.
    #[error("the row has {found} cells where {want} are expected")]
    Cells {
        /// Cells found.
        found: usize,
        /// Cells expected.
        want: usize,
    },
    /// A value that Slurm cut to the width of its column.
    #[error("{key} {value:?} was cut to the width of its column: {advice}")]
    Cut {
        /// The column.
        key: String,
        /// The value as printed.
        value: String,
        /// How to get it whole.
        advice: &'static str,
    },
    /// Nothing says what the columns are.
    #[error("no header says which column is which: {advice}")]
    NoHeader {
        /// How to get one.
        advice: &'static str,
    },
    /// Two records for the same thing: one may be made of somebody's text.
    #[error("{key} {value:?} occurs more than once: none of them is taken")]
    Twice {
        /// Slurm's name of the value.
        key: &'static str,
        /// The value that came twice.
        value: String,
    },
    /// A squeue that does not know the `admin_comment` column.
    #[error("this squeue has no admin_comment column: ask without it, and read marks from JSON")]
    NoMarks,
    /// A job's text record in which users' text may pass for a value.
    #[error(
        "{key} occurs {times} times in the record, so that users' text cannot be told from it: \
         read this job from JSON"
    )]
    Forgeable {
        /// Slurm's name of the value.
        key: &'static str,
        /// How often it occurs.
        times: usize,
    },
    /// The error that Slurm itself put into its JSON.
    #[error("Slurm reports an error")]
    Slurm,
    /// Text that is no JSON, or ends early.
    #[error("broken JSON at column {column}: {message}")]
    Json {
        /// Column, from 1.
        column: usize,
        /// What the JSON reader says.
        message: String,
    },
}

/// The start of a text, for errors: enough to find it again, on one line.
fn excerpt(text: &str) -> String {
    const MOST: usize = 160;
    let mut out: String = text.chars().take(MOST).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

/// The CPUs of a core: a node with no more CPUs than cores counts each core as one,
/// whatever threads it has. `cores` is 0 where they are not known.
fn used_threads(threads: u32, cpus: u32, cores: u32) -> u32 {
    if cpus <= cores { 1 } else { threads }
}

/// Whether a value says that there is none.
fn unset(value: &str) -> bool {
    matches!(value, "" | "(null)" | "N/A" | "n/a" | "None" | "NONE" | "none" | "null")
}

/// A comma-separated value; none where it is unset.
fn list(value: &str) -> Vec<String> {
    if unset(value) {
        return Vec::new();
    }
    value.split(',').map(str::trim).filter(|v| !v.is_empty()).map(str::to_owned).collect()
}
