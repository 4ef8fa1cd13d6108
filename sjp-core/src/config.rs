//! The settings that decisions depend on: the pure part of sjp.toml. Reading
//! and checking the file is sjpd's business.

use serde::{Deserialize, Serialize};

/// What sjp may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Reads and logs; changes nothing.
    #[default]
    Observe,
    /// Chooses partitions at submission.
    Advise,
    /// Also pins, and keeps waiting jobs current.
    Enforce,
}

/// Whether a user's own choice is followed or overruled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserChoice {
    /// Narrow to it, never widen.
    #[default]
    Follow,
    /// As if it had not been given.
    Ignore,
}

/// What happens to a job that no node has room for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoRoom {
    /// `place()` answers false, "no room".
    #[default]
    Leave,
    /// Every open partition that can hold the job.
    Open,
}

/// How nodes that cost the same are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tie {
    /// Nearest free memory per CPU.
    #[default]
    Ratio,
    /// That while memory is the scarcer resource, else fewest free CPUs.
    Scarce,
}

/// One kind of work that arrives: MB per CPU and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// MB per CPU, above zero.
    pub mb_per_cpu: f64,
    /// Weight; the weights of a mix add up to one.
    pub weight: f64,
}

/// Everything of sjp.toml that a placement depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// `[general] mode`.
    pub mode: Mode,
    /// `[policy] demand`, normalised.
    pub demand: Vec<Demand>,
    /// `[policy] tolerance`, CPUs per job CPU.
    pub tolerance: f64,
    /// `[policy] always_place`.
    pub always_place: bool,
    /// `[policy] no_room`.
    pub no_room: NoRoom,
    /// `[policy] user_partition`.
    pub user_partition: UserChoice,
    /// `[policy] user_nodes`.
    pub user_nodes: UserChoice,
    /// `[pin] enabled`.
    pub pin: bool,
    /// `[pin] min_gain_share`, CPUs per job CPU.
    pub min_gain_share: f64,
    /// `[pin] min_gain`, CPUs; where set it replaces `min_gain_share`.
    pub min_gain: Option<f64>,
    /// `[pin] min_ratio_gain`, in ln(MB per CPU).
    pub min_ratio_gain: f64,
    /// `[pin] tie`.
    pub tie: Tie,
    /// `[pin] max_age`, milliseconds, not above `[cadence] policy_max_age`.
    pub max_age_ms: u64,
    /// `[topology] batch_partitions`; empty: all.
    pub batch_partitions: Vec<String>,
    /// `[topology] exclude_partitions`.
    pub exclude_partitions: Vec<String>,
    /// `[topology] exclude_interactive`.
    pub exclude_interactive: bool,
    /// `[topology] exclude_gpu_nodes`.
    pub exclude_gpu_nodes: bool,
}

impl Default for Policy {
    fn default() -> Self {
        let mix = [
            (800.0, 0.10),
            (1280.0, 0.15),
            (4267.0, 0.25),
            (7680.0, 0.25),
            (14178.0, 0.15),
            (30720.0, 0.10),
        ];
        Self {
            mode: Mode::Observe,
            demand: mix.iter().map(|&(mb_per_cpu, weight)| Demand { mb_per_cpu, weight }).collect(),
            tolerance: 0.25,
            always_place: false,
            no_room: NoRoom::Leave,
            user_partition: UserChoice::Follow,
            user_nodes: UserChoice::Follow,
            pin: true,
            min_gain_share: 0.1,
            min_gain: None,
            min_ratio_gain: 0.1,
            tie: Tie::Ratio,
            max_age_ms: 10_000,
            batch_partitions: Vec::new(),
            exclude_partitions: Vec::new(),
            exclude_interactive: true,
            exclude_gpu_nodes: true,
        }
    }
}
