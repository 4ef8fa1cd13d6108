//! The port through which a cluster is read. Adapters: Slurm's commands, and
//! whatever else can answer, such as a simulated cluster.

use crate::config::Config;
use sjp_core::cluster::{Job, MarkedJob, Node, Partition, QosCaps, Reservation, SlurmConfig};
use sjp_core::limits::pulse::Caps;
use std::fmt;
use std::future::Future;
use thiserror::Error;

/// Records of one kind, and what could not be read among them. A record that
/// does not parse is told, never dropped in silence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records<T> {
    /// The good ones.
    pub list: Vec<T>,
    /// One line for each bad one.
    pub errors: Vec<String>,
}

/// A user whose associations name partitions: uid, account, partitions.
pub type BoundUser = (u32, Option<String>, Vec<String>);

/// What one association lets a user use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserQos {
    /// User id.
    pub uid: u32,
    /// User name.
    pub user: String,
    /// Account.
    pub account: String,
    /// The partition that it is for; `None`: any.
    pub partition: Option<String>,
    /// QOS that it lets the user use.
    pub qos: Vec<String>,
}

/// What associations say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Associations {
    /// Users bound to partitions.
    pub bound: Vec<BoundUser>,
    /// Who may use which QOS; `None` where nobody needs to know.
    pub qos: Option<Vec<UserQos>>,
    /// One line for each row that could not be read.
    pub errors: Vec<String>,
}

/// Why a reading gave nothing.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The command behind it failed.
    #[error(transparent)]
    Run(#[from] crate::slurm::RunError),
    /// Its output could not be read at all.
    #[error("{what}: {why}")]
    Unreadable {
        /// What was read.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// The reading stopped in the middle (a defect, or the end of sjpd).
    #[error("reading {0} was cut off")]
    CutOff(Kind),
}

/// The kinds of reading: at most one of each is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// Slurm's settings.
    Config,
    /// Reservations.
    Reservations,
    /// Jobs.
    Queue,
    /// CPU caps of QOS.
    Qos,
    /// Associations.
    Associations,
    /// AdminComments.
    Marks,
    /// CPU caps of QOS as the database has them now.
    Limits,
    /// Which controller acts.
    Controller,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Nodes,
        Self::Partitions,
        Self::Config,
        Self::Reservations,
        Self::Queue,
        Self::Qos,
        Self::Associations,
        Self::Marks,
        Self::Limits,
        Self::Controller,
    ];

    /// A word or two for logs and the status.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Partitions => "partitions",
            Self::Config => "config",
            Self::Reservations => "reservations",
            Self::Queue => "queue",
            Self::Qos => "qos",
            Self::Associations => "associations",
            Self::Marks => "marks",
            Self::Limits => "qos limits",
            Self::Controller => "controller",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A cluster that can be read. Every method is one reading; how often, and how
/// long after a failure, is the caller's business.
pub trait Cluster: Send + Sync + 'static {
    /// All nodes.
    fn nodes(&self) -> impl Future<Output = Result<Records<Node>, ReadError>> + Send;

    /// All partitions.
    fn partitions(&self) -> impl Future<Output = Result<Records<Partition>, ReadError>> + Send;

    /// Slurm's settings.
    fn config(&self) -> impl Future<Output = Result<SlurmConfig, ReadError>> + Send;

    /// All reservations.
    fn reservations(&self) -> impl Future<Output = Result<Records<Reservation>, ReadError>> + Send;

    /// All jobs, without anything that users write.
    fn queue(&self) -> impl Future<Output = Result<Records<Job>, ReadError>> + Send;

    /// AdminComments of these jobs, from where users cannot write; the answer
    /// may tell of more jobs. Jobs that are gone are left out.
    fn marks(
        &self,
        jobs: &[u32],
    ) -> impl Future<Output = Result<Records<MarkedJob>, ReadError>> + Send;

    /// CPU caps of QOS, with their use.
    fn qos_caps(&self) -> impl Future<Output = Result<Records<QosCaps>, ReadError>> + Send;

    /// CPU caps of every QOS, by name, as they are set now.
    fn qos_limits(&self)
    -> impl Future<Output = Result<Records<(String, Caps)>, ReadError>> + Send;

    /// What associations say of users.
    fn associations(&self) -> impl Future<Output = Result<Associations, ReadError>> + Send;

    /// Which controller acts, by index in `SlurmConfig::controllers`. Asked only
    /// where there are several.
    fn acting_controller(&self) -> impl Future<Output = Result<usize, ReadError>> + Send {
        async { Ok(0) }
    }

    /// Whether this run means to change the cluster: from the next reading of the
    /// settings on it is the only one of its host that does, if it can be.
    fn means_to_act(&self, _acts: bool) {}

    /// Another run on this host that changes the cluster, as the last reading of the
    /// settings found; `None`: there is none, or it cannot be told.
    fn rival(&self) -> Option<String> {
        None
    }

    /// How many jobs' marks are worth asking for at once.
    fn marks_at_once(&self) -> usize {
        usize::MAX
    }

    /// Takes over changed settings.
    fn settings_changed(&self, _config: &Config) {}
}
