//! What can go wrong in a call: place() answers false, "error", and
//! slurmctld's log gets the text.

/// Why a call answers "error".
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An argument of another type.
    #[error(
        "{function}(job_desc, submit_uid [, part_list]): {argument} is {got}, expected {want}; \
         pass on what slurm_job_submit was given"
    )]
    Argument {
        /// `place` or `open`.
        function: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// Type found.
        got: &'static str,
        /// Type expected.
        want: &'static str,
    },
    /// A field of job_desc of another type.
    #[error("job_desc.{field} is a {got}, expected {want}; the job is left as it came")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Type found.
        got: &'static str,
        /// Type expected.
        want: &'static str,
    },
    /// A string of job_desc that is not UTF-8.
    #[error("job_desc.{field} is not UTF-8; the job is left as it came")]
    NotUtf8 {
        /// Name of the field.
        field: &'static str,
    },
    /// Lua raised while a job was read.
    #[error("reading {what} raised an error: {source}")]
    Reading {
        /// What was read.
        what: &'static str,
        /// What Lua said.
        source: mlua::Error,
    },
    /// Lua raised while fields were written; they were put back.
    #[error("writing job_desc raised an error, the fields were put back: {0}")]
    Writing(String),
    /// A setting in sjp.config of another type.
    #[error("sjp.config.{key} is a {got}, expected {want}; nothing is placed until it is mended")]
    Config {
        /// The key.
        key: &'static str,
        /// Type found.
        got: &'static str,
        /// Type expected.
        want: &'static str,
    },
    /// The table is there and cannot be used.
    #[error("the table in {state_dir} cannot be used: {why}")]
    Table {
        /// `sjp.config.state_dir`.
        state_dir: String,
        /// What the reader said.
        why: String,
    },
    /// Neither there nor absent.
    #[error("cannot tell whether {path} exists ({why}): nothing is placed, as if it did")]
    DisableFile {
        /// `sjp.config.disable_file`.
        path: String,
        /// What the system said.
        why: String,
    },
    /// Another thread is inside.
    #[error("called while another call was running; this call gave up instead of waiting")]
    Busy,
    /// A panic was caught.
    #[error("a fault inside the native module was caught: {0}; please report it")]
    Panic(String),
}

impl Failure {
    /// How many kinds there are.
    pub(crate) const KINDS: usize = 10;

    /// The kind, for the limit on log lines.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::Argument { .. } => 0,
            Self::Field { .. } => 1,
            Self::NotUtf8 { .. } => 2,
            Self::Reading { .. } => 3,
            Self::Writing(_) => 4,
            Self::Config { .. } => 5,
            Self::Table { .. } => 6,
            Self::DisableFile { .. } => 7,
            Self::Busy => 8,
            Self::Panic(_) => 9,
        }
    }
}
