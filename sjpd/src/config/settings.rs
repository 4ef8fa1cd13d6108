//! The table of settings: every key of sjp.toml once, with its type, default,
//! range and a line of help. The structs, the defaults, the checks,
//! etc/sjp.toml, `--print-config` and the manual page are all made from it.

#![allow(rustdoc::broken_intra_doc_links)] // [section] names a section of sjp.toml

use super::value::{
    Field, Kind, Listen, MaybeFile, TimeUnit, Value, Words, choice, hours, number, seconds, words,
};
use sjp_core::config::{Demand, Mode, NoRoom, Policy, Tie, UserChoice};
use std::path::PathBuf;
use std::time::Duration;

/// Whether this version does anything with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It has an effect.
    Used,
    /// It is checked; a value other than the default gives a notice.
    NotYet,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Section, as in `[limits]`.
    pub section: &'static str,
    /// Key within the section; `budget_hours.fat` is a key of a table in it.
    pub key: &'static str,
    /// Type, unit and range.
    pub kind: Kind,
    /// A line of help.
    pub help: &'static str,
    /// Whether it has an effect.
    pub used: Use,
    /// What a commented line shows where the default is to be unset.
    pub example: &'static str,
    pub(super) get: fn(&Config) -> Value,
    pub(super) set: fn(&mut Config, Value) -> bool,
}

impl Setting {
    /// The value it has in `config`.
    #[must_use]
    pub fn value(&self, config: &Config) -> Value {
        (self.get)(config)
    }

    /// `[section] key`, as errors name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("[{}] {}", self.section, self.key)
    }
}

/// One section.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
}

macro_rules! sections {
    ($(
        $(#[doc = $about:literal])+
        $section:ident: $struct:ident {$(
            $(#[doc = $help:literal])+
            $field:ident $key:literal: $ty:ty = $default:expr,
            $kind:expr $(, = $example:literal)? $(, $used:ident)?;
        )+}
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $struct {$(
                $(#[doc = $help])+
                pub $field: $ty,
            )+}

            impl Default for $struct {
                fn default() -> Self {
                    Self {$( $field: $default, )+}
                }
            }
        )+

        /// All settings of sjp.toml, checked.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {$(
            $(#[doc = $about])+
            pub $section: $struct,
        )+}

        /// The sections, in the order of etc/sjp.toml.
        pub static SECTIONS: &[Section] = &[$(
            Section { name: stringify!($section), about: concat!($($about),+) },
        )+];

        /// The settings, in the order of etc/sjp.toml.
        pub static SETTINGS: &[Setting] = &[$($(
            Setting {
                section: stringify!($section),
                key: $key,
                kind: $kind,
                help: concat!($($help),+),
                used: sections!(@used $($used)?),
                example: sections!(@example $($example)?),
                get: |config| Field::show(&config.$section.$field),
                set: |config, value| match Field::take(value) {
                    Some(value) => {
                        config.$section.$field = value;
                        true
                    }
                    None => false,
                },
            },
        )+)+];
    };
    (@used) => { Use::Used };
    (@used $used:ident) => { Use::$used };
    (@example) => { "" };
    (@example $example:literal) => { $example };
}

/// On which host sjpd acts, where there are several slurmctld hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// Where the acting slurmctld is.
    Auto,
    /// On this one.
    Always,
    /// Not on this one.
    Never,
}
words!(Active: "auto" => Auto, "always" => Always, "never" => Never);

/// How much sjpd tells its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words say it
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}
words!(LogLevel: "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug, "trace" => Trace);

impl LogLevel {
    /// The word, as tracing's filters spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        super::value::word_of(self)
    }
}

/// What is done for jobs that only a CPU cap of their QOS holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsMode {
    /// Nothing.
    Off,
    /// Caps are raised in short pulses.
    Global,
    /// Single jobs move to a flex QOS.
    Flex,
}
words!(LimitsMode: "off" => Off, "global" => Global, "flex" => Flex);

impl LimitsMode {
    /// The word, as the settings spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        super::value::word_of(self)
    }
}

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

const DAY: f64 = 86_400.0;

sections! {
    /// What sjpd may do, and where its files are.
    general: General {
        /// observe: read and log only; advise: choose partitions; enforce: also pin, and keep waiting jobs current.
        mode "mode": Mode = Mode::Observe, choice::<Mode>();
        /// With several slurmctld hosts: act where the active controller is local, always, or never.
        active "active": Active = Active::Auto, choice::<Active>();
        /// The table and its way in, the lock, the status.
        state_dir "state_dir": PathBuf = "/run/sjp".into(), Kind::Path;
        /// Decision log, JSON lines.
        log_file "log_file": PathBuf = "/var/log/sjp/decisions.jsonl".into(), Kind::Path;
        /// The same in words.
        text_log "text_log": MaybeFile = MaybeFile(Some("/var/log/sjp/sjp.log".into())), Kind::PathOrOff;
        /// While this file exists, place() answers false, from the next submission.
        disable_file "disable_file": PathBuf = "/etc/sjp/disable".into(), Kind::Path;
        /// What sjpd tells the journal; RUST_LOG, where set, overrules it.
        log_level "log_level": LogLevel = LogLevel::Info, choice::<LogLevel>();
    }

    /// How often slurmctld is asked, and how fast it is told. The next poll of a
    /// kind waits at least as long as the last one took, times a factor.
    cadence: Cadence {
        /// Nodes and partitions.
        node_poll_interval "node_poll_interval": Duration = secs(1), seconds(0.2, 3600.0);
        /// The queue; sooner after a claim.
        queue_poll_interval "queue_poll_interval": Duration = secs(8), seconds(0.2, 3600.0);
        /// Slurm's configuration.
        config_poll_interval "config_poll_interval": Duration = secs(60), seconds(1.0, DAY);
        /// Reservations.
        reservation_poll_interval "reservation_poll_interval": Duration = secs(20), seconds(1.0, DAY);
        /// CPU caps of QOS and their use.
        qos_poll_interval "qos_poll_interval": Duration = secs(15), seconds(1.0, DAY);
        /// How often QOS caps are looked after ([limits]).
        act_interval "act_interval": Duration = secs(15), seconds(1.0, 3600.0);
        /// Tables that nobody has written for longer are not used at all.
        policy_max_age "policy_max_age": Duration = secs(300), seconds(1.0, DAY);
        /// Changes sent to slurmctld, at most.
        max_updates_per_second "max_updates_per_second": f64 = 10.0, number("changes a second", 0.1, 1000.0);
    }

    /// Which partitions and nodes are considered.
    topology: Topology {
        /// Just these partitions; empty: discover them.
        batch_partitions "batch_partitions": Vec<String> = Vec::new(), Kind::Names;
        /// Partitions that are never assigned.
        exclude_partitions "exclude_partitions": Vec<String> = Vec::new(), Kind::Names;
        /// Leave out the partition named interactive.
        exclude_interactive "exclude_interactive": bool = true, Kind::Switch;
        /// Leave out nodes with GPUs.
        exclude_gpu_nodes "exclude_gpu_nodes": bool = true, Kind::Switch;
    }

    /// How partitions are chosen.
    policy: PolicySection {
        /// The work that typically arrives: [MB per CPU, weight]. `sjp fit` measures it.
        demand "demand": Vec<Demand> = Policy::default().demand, Kind::Demand;
        /// The typical job, for the figure of stranded CPUs.
        demand_median "demand_median": f64 = 4267.0, number("MB per CPU", 1.0, 1e9);
        /// Partitions within this loss of the cheapest are admitted too.
        tolerance "tolerance": f64 = 0.25, number("CPUs per job CPU", 0.0, 1e6);
        /// Place by shape when no node has room, as if the cluster were empty.
        always_place "always_place": bool = false, Kind::Switch;
        /// When no node has room: leave the job to the site's rules, or open every partition that can hold it.
        no_room "no_room": NoRoom = NoRoom::Leave, choice::<NoRoom>();
        /// The user's --partition: narrows the choice, or is overruled.
        user_partition "user_partition": UserChoice = UserChoice::Follow, choice::<UserChoice>();
        /// The user's --nodelist and --exclude: narrow the choice, or are dropped.
        user_nodes "user_nodes": UserChoice = UserChoice::Follow, choice::<UserChoice>();
    }

    /// How the node is chosen for a job that can start now.
    pin: Pin {
        /// Choose nodes (mode enforce).
        enabled "enabled": bool = true, Kind::Switch;
        /// Nodes within this loss of the least count as equal.
        min_gain_share "min_gain_share": f64 = 0.1, number("CPUs per job CPU", 0.0, 1e6);
        /// The same in CPUs, whatever the size of the job; where set, it replaces min_gain_share.
        min_gain "min_gain": Option<f64> = None, number("CPUs", 0.0, 1e6), = "1.0";
        /// Least advantage in memory per CPU that is worth a pin.
        min_ratio_gain "min_ratio_gain": f64 = 0.1, number("ln(memory per CPU)", 0.0, 100.0);
        /// Among equal nodes: the nearest memory per CPU; or that only while memory is scarcer than CPUs.
        tie "tie": Tie = Tie::Ratio, choice::<Tie>();
        /// How long a pin lasts while the job is pending.
        release_after "release_after": Duration = secs(60), seconds(1.0, 30.0 * DAY);
        /// Age of the node data itself (not of the last write) up to which place() answers.
        max_age "max_age": Duration = secs(10), seconds(0.5, DAY);
        /// Weigh end times.
        time_aware "time_aware": bool = false, Kind::Switch, NotYet;
        /// With always_place: pin a job that no node has room for to the node that will have room first.
        wait_for_room "wait_for_room": bool = false, Kind::Switch;
    }

    /// Jobs of sjp's that wait are chosen again (mode enforce).
    recheck: Recheck {
        /// How often.
        interval "interval": Duration = secs(60),
            Kind::Time { unit: TimeUnit::Seconds, min: 1.0, max: DAY, zero_is_off: true };
        /// Give a job for which no node in its partitions has room all open partitions back.
        open "open": bool = true, Kind::Switch;
    }

    /// Jobs of sjp's that wait longer than their budget get every partition that
    /// can hold them (mode enforce).
    starvation: Starvation {
        /// Widen.
        enabled "enabled": bool = true, Kind::Switch;
        /// Budget of fat jobs, since they became eligible.
        fat "budget_hours.fat": Duration = secs(3600),
            hours(0.01, 8760.0);
        /// Budget of the others.
        slim "budget_hours.slim": Duration = secs(4 * 3600),
            hours(0.01, 8760.0);
        /// Memory per CPU from which a job is fat.
        fat_ratio_threshold "fat_ratio_threshold": f64 = 6000.0, number("MB per CPU", 1.0, 1e9);
    }

    /// Jobs that only a CPU cap of their QOS holds, while much is idle (mode enforce).
    limits: Limits {
        /// off; global: raise the caps in short pulses; flex: move single jobs to a flex QOS.
        mode "mode": LimitsMode = LimitsMode::Off, choice::<LimitsMode>();
        /// The caps to go back to, while they are raised.
        state_file "state_file": PathBuf = "/var/lib/sjp/limits.json".into(), Kind::Path;
        /// Raised caps.
        ceiling "ceiling": f64 = 2.0, number("times the cap", 1.0, 100.0);
        /// Idle share of the placeable capacity that is needed before anything is done.
        min_idle_share "min_idle_share": f64 = 0.25, number("share", 0.0, 1.0);
        /// Unpinned jobs that wait for room use up the idle share.
        count_pending "count_pending": bool = false, Kind::Switch;
        /// A pulse ends early when the idle share falls below this.
        lower_below "lower_below": f64 = 0.10, number("share", 0.0, 1.0);
        /// Checks in a row before a pulse.
        hysteresis "hysteresis": u32 = 5, Kind::Count { unit: "checks", min: 1, max: 10_000 };
        /// Length of a pulse.
        pulse_seconds "pulse_seconds": Duration = secs(60), seconds(1.0, DAY);
        /// Rest after a pulse, or after a job came back from the flex QOS.
        cooldown_seconds "cooldown_seconds": Duration = secs(300), seconds(0.0, 30.0 * DAY);
        /// The flex QOS.
        flex_qos_name "flex_qos_name": String = "flex".into(), Kind::Name;
        /// A moved job that still waits after this goes back to its own QOS.
        flex_revert_after "flex_revert_after": Duration = secs(60), seconds(1.0, 30.0 * DAY);
    }

    /// Keep part of the fat partitions from long light jobs, as much as heavy
    /// demand needs.
    guard: Guard {
        /// Guard them.
        enabled "enabled": bool = false, Kind::Switch, NotYet;
        /// A partition is fat from this many times the nodes' median memory per CPU.
        fat_factor "fat_factor": f64 = 1.5, number("times the median", 1.0, 1000.0), NotYet;
        /// A light job is long when its time limit is above this.
        long "long_hours": Duration = secs(4 * 3600), hours(0.0, 8760.0), NotYet;
        /// Heavy demand is averaged over this time.
        average "average_hours": Duration = secs(24 * 3600), hours(0.1, 8760.0), NotYet;
        /// One user counts as heavy demand for at most this share of the fat CPUs.
        user_share "user_share": f64 = 1.0, number("share", 0.0, 1.0), NotYet;
    }

    /// Figures for monitoring, as OpenMetrics.
    metrics: Metrics {
        /// Where they are served: a loopback address, or a Unix socket.
        listen "listen": Option<Listen> = None, Kind::Listen, NotYet;
    }

    /// The Slurm commands that sjpd runs.
    commands: Commands {
        /// scontrol.
        scontrol "scontrol": Option<PathBuf> = None, Kind::Command, = "\"/usr/bin/scontrol\"";
        /// squeue.
        squeue "squeue": Option<PathBuf> = None, Kind::Command, = "\"/usr/bin/squeue\"";
        /// sacctmgr.
        sacctmgr "sacctmgr": Option<PathBuf> = None, Kind::Command, = "\"/usr/bin/sacctmgr\"";
        /// A command that takes longer is stopped, and counts as failed.
        timeout "timeout": Duration = secs(10), seconds(0.1, 600.0);
    }
}

/// Keys of older files that do nothing here: accepted with a notice.
/// `policy.buckets` stands for everything below it.
pub(super) const WITHOUT_USE: &[(&str, &str)] = &[
    ("cadence.score_interval", "the loss is computed at each placement"),
    ("policy.buckets", "placement evaluates each job's exact shape"),
];

/// Older names: accepted with a notice, where the present name is not given.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("limits.raise_above", "limits.min_idle_share"),
    ("starvation.budget_hours.fat_ratio_threshold", "starvation.fat_ratio_threshold"),
];
