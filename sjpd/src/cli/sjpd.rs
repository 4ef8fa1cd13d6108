//! The command line of `sjpd`.

#![allow(rustdoc::broken_intra_doc_links)] // [section] names a section of sjp.toml

use super::{ModeArg, absolute, exit};
use crate::config::Source;
use clap::Parser;
use std::path::PathBuf;

/// Keeps the table that slurmctld places jobs by, and sjp's waiting jobs current
///
/// Reads the cluster every second, publishes it for the Lua module inside
/// slurmctld, and in mode enforce releases and moves sjp's own waiting jobs.
/// Runs in the foreground, as SlurmUser. SIGHUP re-reads the settings, SIGTERM
/// and SIGINT stop it.
#[derive(Clone, Debug, Parser)]
#[command(name = "sjpd", version, after_help = exit::help(exit::SJPD_CODES), max_term_width = 90)]
pub struct SjpdArgs {
    /// Settings; without this, /etc/sjp/sjp.toml if it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Overrules [general] mode
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeArg>,

    /// Log every change to the cluster, make none
    #[arg(long)]
    pub dry_run: bool,

    /// Overrules [general] state_dir; an absolute path
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub state_dir: Option<PathBuf>,

    /// Read everything once, say what was seen and what would be done, and stop; changes nothing
    #[arg(long, conflicts_with_all = ["check_config", "print_config"])]
    pub once: bool,

    /// Take back every change of sjp's that still stands on waiting jobs, say what is done, and stop;
    /// with --dry-run, only say it. Not while an sjpd runs in mode enforce
    #[arg(long, conflicts_with_all = ["once", "check_config", "print_config"])]
    pub undo: bool,

    /// Check the settings, tell all errors and notices, and stop
    #[arg(long, conflicts_with = "print_config")]
    pub check_config: bool,

    /// Print the settings in force, each with what it does, and stop
    #[arg(long)]
    pub print_config: bool,
}

impl SjpdArgs {
    /// Where the settings come from.
    #[must_use]
    pub fn source(&self) -> Source {
        Source {
            file: self.config.clone(),
            mode: self.mode.map(Into::into),
            state_dir: self.state_dir.clone(),
        }
    }
}
