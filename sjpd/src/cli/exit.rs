//! Exit codes, once: used by both binaries, and told in help and manual.

use std::process::ExitCode;

/// How a run of `sjp` or `sjpd` ends. The first four are those of monitoring
/// checks, so that `sjp status` is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// All well; the question was answered.
    Ok = 0,
    /// `status`: works, but something wants a look. Elsewhere: answered in part.
    Warning = 1,
    /// `status`: sjp places nothing. Elsewhere: the question has no answer.
    Critical = 2,
    /// `status`: cannot tell.
    Unknown = 3,
    /// The command line is wrong.
    Usage = 64,
    /// The input cannot be read.
    Input = 65,
    /// Another sjpd holds the state folder.
    Held = 75,
    /// No rights.
    NoRights = 77,
    /// The settings are wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What the codes of `sjp` mean, for help and manual.
pub const SJP_CODES: &[(Exit, &str)] = &[
    (Exit::Ok, "status: all well; place: there is a place; else: answered"),
    (
        Exit::Warning,
        "status: works, but wants a look; parse: some records unreadable; undo: something is left",
    ),
    (Exit::Critical, "status: sjp places nothing; place: no place; table: no table or node"),
    (Exit::Unknown, "status: cannot tell"),
    (Exit::Usage, "the command line is wrong"),
    (Exit::Input, "parse: nothing could be read"),
    (Exit::Held, "undo: an sjpd in mode enforce runs, or another host's acts"),
    (Exit::NoRights, "no rights to read the table, or to undo (root and SlurmUser have them)"),
    (Exit::Config, "the settings are wrong"),
];

/// What the codes of `sjpd` mean, for help and manual.
pub const SJPD_CODES: &[(Exit, &str)] = &[
    (Exit::Ok, "stopped as asked; with --check-config: the settings are right"),
    (
        Exit::Warning,
        "stopped by an error, which is logged; with --once: not all could be read; with --undo: \
         something is left",
    ),
    (Exit::Usage, "the command line is wrong"),
    (Exit::Held, "another sjpd holds the state folder; with --undo: one that acts runs"),
    (Exit::NoRights, "with --undo: neither root nor SlurmUser"),
    (Exit::Config, "the settings are wrong"),
];

/// The codes as a paragraph of help.
#[must_use]
pub fn help(codes: &[(Exit, &str)]) -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, words) in codes {
        text.push_str(&format!("  {:>2}  {words}\n", *code as u8));
    }
    text.truncate(text.trim_end().len());
    text
}
