//! The command line of `sjp`.

#![allow(rustdoc::broken_intra_doc_links)] // [section] names a section of sjp.toml

use super::exit;
use crate::config::Source;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Shows what sjp does on this cluster, and what it would do
///
/// Reads what sjpd publishes. Only `sjp undo` changes anything.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sjp",
    version,
    after_help = exit::help(exit::SJP_CODES),
    max_term_width = 90,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct SjpArgs {
    /// Settings; without this, /etc/sjp/sjp.toml if it exists
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// What to show
    #[command(subcommand)]
    pub command: SjpCommand,
}

impl SjpArgs {
    /// Where the settings come from.
    #[must_use]
    pub fn source(&self) -> Source {
        Source { file: self.config.clone(), ..Source::default() }
    }
}

/// The commands of `sjp`.
#[derive(Clone, Debug, Subcommand)]
pub enum SjpCommand {
    /// Is sjpd alive, and does sjp place jobs? A monitoring check by its exit code
    ///
    /// Anyone may ask. The first line says how things stand and why.
    Status,

    /// What sjpd has published: nodes, their room, partitions
    ///
    /// Placeable: the CPUs that the work of [policy] demand could use there.
    /// Stranded: free CPUs that a job of [policy] demand_median cannot use for
    /// want of memory. Only root and SlurmUser can read the table.
    Table(TableArgs),

    /// Where a job would be placed now, why, and what came next
    ///
    /// Claims nothing, writes nothing. Only root and SlurmUser can read the table.
    Place(PlaceArgs),

    /// What the readers make of captured output of Slurm's commands
    ///
    /// Reads what scontrol show, squeue, sinfo and sacctmgr print, as text or
    /// JSON. Times without a zone are taken as local (TZ). Unreadable records
    /// are listed as errors; the good ones are kept.
    Parse(ParseArgs),

    /// Take back every change of sjp's that still stands on waiting jobs
    ///
    /// Pins come off, partitions become those that the job named (else the default
    /// one) where they would take it, a QOS given for flex goes back, and the mark in
    /// the AdminComment goes. What somebody else has changed since stays. The same as
    /// sjpd --undo: as root or SlurmUser, on the host of the slurmctld that acts, and not
    /// while an sjpd runs in mode enforce, which would do it all again: switch it off
    /// first ([general] disable_file or mode).
    Undo(UndoArgs),

    /// Write manual pages, shell completions or the sample settings into a folder
    #[command(hide = true)]
    Generate {
        /// What to write
        #[arg(value_enum)]
        what: Generate,
        /// The folder; made if it is not there
        dir: PathBuf,
    },
}

/// What `sjp generate` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Generate {
    /// sjpd.8, sjp.1 and the pages of its commands, sjp.toml.5.
    Man,
    /// Completions for bash, zsh and fish.
    Completions,
    /// sjp.toml with every key at its default.
    Config,
}

/// `sjp table`.
#[derive(Clone, Debug, Default, Args)]
pub struct TableArgs {
    /// Just these nodes (a host list: n1, n[1-4])
    #[arg(long, value_name = "NODES")]
    pub node: Option<String>,

    /// Just the nodes of this partition
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
}

/// `sjp place`.
#[derive(Clone, Debug, Default, Args)]
pub struct PlaceArgs {
    /// CPUs in all; with --tasks, CPUs for each task
    #[arg(long, short = 'c', value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub cpus: u32,

    /// Memory on each node: a number of MB, or with K, M, G or T; 0 is all of a node's
    #[arg(long, value_name = "SIZE", conflicts_with = "mem_per_cpu")]
    pub mem: Option<String>,

    /// Memory for each CPU
    #[arg(long, value_name = "SIZE")]
    pub mem_per_cpu: Option<String>,

    /// Time limit as in Slurm: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, or UNLIMITED
    #[arg(long, short = 't', value_name = "TIME")]
    pub time: Option<String>,

    /// Tasks
    #[arg(long, short = 'n', value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: u32,

    /// Nodes (one number); more than one is not placed
    #[arg(long, short = 'N', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub nodes: Option<u32>,

    /// Partitions the user names, separated by commas
    #[arg(long, short = 'p', value_name = "PARTITIONS")]
    pub partition: Option<String>,

    /// User (name or uid); without this, a user whom nothing restricts
    #[arg(long, short = 'u', value_name = "USER")]
    pub user: Option<String>,

    /// Account
    #[arg(long, short = 'A', value_name = "ACCOUNT")]
    pub account: Option<String>,

    /// QOS
    #[arg(long, short = 'q', value_name = "QOS")]
    pub qos: Option<String>,

    /// Nodes the user names (a host list)
    #[arg(long, short = 'w', value_name = "NODES")]
    pub nodelist: Option<String>,

    /// Nodes the user excludes (a host list)
    #[arg(long, short = 'x', value_name = "NODES")]
    pub exclude: Option<String>,
}

/// `sjp undo`.
#[derive(Clone, Debug, Default, Args)]
pub struct UndoArgs {
    /// Say what would be undone, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `sjp parse`.
#[derive(Clone, Debug, Args)]
pub struct ParseArgs {
    /// nodes, partitions, config, reservations, jobs, qos or assoc
    #[arg(value_name = "KIND", value_parser = ["nodes", "partitions", "config", "reservations", "jobs", "qos", "assoc"], hide_possible_values = true)]
    pub kind: String,

    /// The captured output; without this, or with -, standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}
