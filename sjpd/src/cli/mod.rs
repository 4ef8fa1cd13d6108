//! The command lines of `sjpd` and `sjp`, their exit codes, manual pages and
//! shell completions.

mod exit;
mod generate;
mod sjp;
mod sjpd;

pub use exit::{Exit, SJP_CODES, SJPD_CODES};
pub use generate::{completions, manuals, sample};
pub use sjp::{Generate, ParseArgs, PlaceArgs, SjpArgs, SjpCommand, TableArgs, UndoArgs};
pub use sjpd::SjpdArgs;

use clap::{CommandFactory, FromArgMatches, Parser};
use sjp_core::config::Mode;
use std::path::PathBuf;

/// The version that both binaries report.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Reads this process's command line. Help and version go to standard output
/// and end with success; a wrong command line is told on standard error and
/// ends with `Exit::Usage`.
///
/// # Errors
/// The code to end with.
pub fn parse<T: Parser + CommandFactory + FromArgMatches>() -> Result<T, Exit> {
    T::try_parse().map_err(|e| {
        // Nobody may be reading: that is no error worth telling.
        let _ = e.print();
        if e.use_stderr() { Exit::Usage } else { Exit::Ok }
    })
}

/// `--mode`, in clap's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArg {
    /// Read and log only.
    Observe,
    /// Choose partitions at submission.
    Advise,
    /// Also pin, and keep waiting jobs current.
    Enforce,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Observe => Self::Observe,
            ModeArg::Advise => Self::Advise,
            ModeArg::Enforce => Self::Enforce,
        }
    }
}

/// An absolute path on the command line, by the rules of sjp.toml.
fn absolute(given: &str) -> Result<PathBuf, String> {
    crate::config::check_path(given)?;
    Ok(given.into())
}
