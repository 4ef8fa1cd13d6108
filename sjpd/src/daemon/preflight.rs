//! What is checked and told before the first table: whom this run serves, what
//! it may change, and what it leaves out.

use super::world::World;
use crate::config::{Config, LimitsMode};
use crate::journal::Entry;
use crate::ports::Kind;
use crate::slurm::accounting::Enforced;
use sjp_core::config::Mode;
use sjp_core::publication::{PartitionRule, Roster};
use sjp_core::units::MemPer;
use std::path::Path;

/// The oldest and the newest Slurm release that the readers were held against.
const TESTED: (u32, u32) = (2205, 2605);

/// What this process is, as far as it matters.
#[derive(Clone, Debug)]
pub struct Me {
    /// Effective user id.
    pub uid: u32,
    /// Its name, where it has one.
    pub user: Option<String>,
    /// `--dry-run`.
    pub dry_run: bool,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether somebody should do something about it.
    pub warning: bool,
    /// In words.
    pub words: String,
}

/// Everything that preflight has to say.
#[must_use]
pub fn findings(world: &World, roster: &Roster, config: &Config, me: &Me) -> Vec<Finding> {
    let mut list = Vec::new();
    let mut say = |warning, words: String| list.push(Finding { warning, words });
    say(false, may_change(config.general.mode, me.dry_run));
    slurm_user(world, me, &mut say);
    slurm_itself(world, &mut say);
    controllers(world, config, &mut say);
    memory(world, roster, &mut say);
    partitions(world, roster, &mut say);
    limits(world, roster, config, me, &mut say);
    list
}

/// The findings as entries of the decision log.
#[must_use]
pub fn entries(findings: &[Finding]) -> Vec<Entry> {
    findings
        .iter()
        .map(|f| {
            let entry = Entry::new("preflight", f.words.clone());
            if f.warning { entry.with("warning", true) } else { entry }
        })
        .collect()
}

/// What a run in this mode may change.
#[must_use]
pub fn may_change(mode: Mode, dry_run: bool) -> String {
    let words = match (mode, dry_run) {
        (_, true) => {
            "--dry-run: nothing is changed; the table says observe, and what would be done is logged"
        }
        (Mode::Observe, _) => {
            "mode observe: nothing new is changed, what would be done is logged; what an earlier mode \
             enforce left on waiting jobs is taken back"
        }
        (Mode::Advise, _) => {
            "mode advise: place() sets the partitions (and the AdminComment) of jobs being submitted; \
             what an earlier mode enforce left on waiting jobs is taken back"
        }
        (Mode::Enforce, _) => {
            "mode enforce: place() sets partitions, required node and AdminComment of jobs being \
             submitted; sjpd takes pins back from waiting jobs whose AdminComment says that sjp set them"
        }
    };
    words.to_owned()
}

fn slurm_user(world: &World, me: &Me, say: &mut impl FnMut(bool, String)) {
    let user = &world.config.slurm_user;
    let (name, uid) = split_user(user);
    let same = match uid {
        Some(uid) => uid == me.uid,
        None => me.user.as_deref() == Some(name),
    };
    let mine = me.user.clone().unwrap_or_else(|| me.uid.to_string());
    if user.is_empty() {
        say(
            true,
            "Slurm does not say its SlurmUser: whether slurmctld can read the table is unknown"
                .into(),
        );
    } else if same {
        say(false, format!("sjpd runs as {mine}, as slurmctld does: it can read the table"));
    } else if uid == Some(0) || name == "root" {
        say(
            false,
            format!(
                "sjpd runs as {mine} and slurmctld as root: it can read the table where it accepts {mine} as its owner"
            ),
        );
    } else {
        say(
            true,
            format!(
                "sjpd runs as {mine}, but slurmctld as {name}: slurmctld cannot read the table, and \
                 place() will answer \"no table\"; run sjpd as {name} (User= in sjpd.service)"
            ),
        );
    }
}

/// `slurm(64030)` in its parts.
fn split_user(text: &str) -> (&str, Option<u32>) {
    match text.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')').parse().ok()),
        None => (text, None),
    }
}

fn slurm_itself(world: &World, say: &mut impl FnMut(bool, String)) {
    let c = &world.config;
    match release(&c.version) {
        Some(r) if r < TESTED.0 => say(
            true,
            format!(
                "Slurm {}: older than 22.05, the oldest release sjp was held against",
                c.version
            ),
        ),
        Some(r) if r > TESTED.1 => say(
            true,
            format!(
                "Slurm {}: newer than 26.05, the newest release sjp was held against",
                c.version
            ),
        ),
        Some(_) => say(false, format!("cluster {}, Slurm {}", c.cluster, c.version)),
        None => say(true, format!("Slurm's version {:?} is not understood", c.version)),
    }
    if !c.nodes_shared() {
        say(
            true,
            format!(
                "SelectType={}: nodes are not shared, so there is nothing to place",
                c.select_type
            ),
        );
    }
    if !c.job_submit_plugins.iter().any(|p| p == "lua") {
        say(
            true,
            "JobSubmitPlugins does not name lua: nothing asks sjp for a place; slurm.conf needs JobSubmitPlugins=lua"
                .into(),
        );
    }
}

/// With several controllers, what one sjpd records another must find.
fn controllers(world: &World, config: &Config, say: &mut impl FnMut(bool, String)) {
    let list = &world.config.controllers;
    if list.len() < 2 {
        return;
    }
    say(
        false,
        format!(
            "Slurm has {} controllers ({}): sjpd runs on each, and acts where the acting one is",
            list.len(),
            list.join(", ")
        ),
    );
    let state = world.config.all.iter().find(|(key, _)| key == "StateSaveLocation");
    let shared = state.is_some_and(|(_, dir)| config.limits.state_file.starts_with(dir));
    if config.limits.mode == LimitsMode::Global && !shared {
        say(
            true,
            format!(
                "[limits] state_file {} is not in StateSaveLocation: where the other controllers' hosts \
                 cannot read it, a fail-over during a pulse leaves caps raised",
                config.limits.state_file.display()
            ),
        );
    }
}

/// 2205 for `22.05.8`.
#[must_use]
pub fn release(version: &str) -> Option<u32> {
    let mut parts = version.trim().split('.');
    let year: u32 = parts.next()?.parse().ok()?;
    let month: u32 = parts.next()?.parse().ok()?;
    Some(year * 100 + month)
}

fn memory(world: &World, roster: &Roster, say: &mut impl FnMut(bool, String)) {
    let c = &world.config;
    let params = c.select_params.join(",");
    if !c.memory_consumable() {
        say(
            true,
            format!(
                "SelectTypeParameters={params}: Slurm does not manage memory; jobs are placed by CPUs alone"
            ),
        );
        return;
    }
    let unset = world.nodes.iter().filter(|n| n.mem.is_none()).count();
    if unset > 0 {
        say(true, format!("{unset} nodes have no RealMemory: their memory is not looked at"));
    }
    let without: Vec<&str> = roster
        .partitions
        .iter()
        .filter(|p| p.open && p.def_mem == MemPer::Unset)
        .map(|p| p.name.as_str())
        .collect();
    if !without.is_empty() {
        say(
            false,
            format!(
                "no DefMemPerCPU or DefMemPerNode for {}: jobs without a memory request are placed by \
                 partition there, and not pinned",
                some(&without)
            ),
        );
    }
}

fn partitions(world: &World, roster: &Roster, say: &mut impl FnMut(bool, String)) {
    let open: Vec<&str> =
        roster.partitions.iter().filter(|p| p.open).map(|p| p.name.as_str()).collect();
    if open.is_empty() {
        say(true, "no partition is placed into".into());
    } else {
        say(false, format!("places into {}", some(&open)));
    }
    for p in roster.partitions.iter().filter(|p| !p.open) {
        say(false, format!("leaves out partition {}: {}", p.name, p.closed_because));
    }
    for p in roster.partitions.iter().filter(|p| p.open && p.only_if_named) {
        say(
            false,
            format!(
                "partition {}: only for jobs that name it, since its QOS can refuse jobs",
                p.name
            ),
        );
    }
    let named = |list: &[String]| -> Vec<String> {
        list.iter().filter(|n| !world.partitions.iter().any(|p| p.name == **n)).cloned().collect()
    };
    let policy = &roster.policy;
    for (key, list) in [
        ("batch_partitions", named(&policy.batch_partitions)),
        ("exclude_partitions", named(&policy.exclude_partitions)),
    ] {
        if !list.is_empty() {
            say(
                true,
                format!("[topology] {key} names no partition of this cluster: {}", list.join(", ")),
            );
        }
    }
    let gpu = world.nodes.iter().filter(|n| n.gpus.total > 0).count();
    if policy.exclude_gpu_nodes && gpu > 0 {
        say(false, format!("leaves out {gpu} nodes with GPUs ([topology] exclude_gpu_nodes)"));
    }
    let usable = world.nodes.iter().filter(|n| n.usable).count();
    say(usable == 0, format!("{usable} of {} nodes are usable", world.nodes.len()));
}

/// What `[limits]` needs of accounting.
fn limits(
    world: &World,
    roster: &Roster,
    config: &Config,
    me: &Me,
    say: &mut impl FnMut(bool, String),
) {
    let limits = &config.limits;
    let mode = limits.mode.word();
    if limits.mode == LimitsMode::Off || config.general.mode != Mode::Enforce {
        return;
    }
    if !Enforced::from(&world.config).limits {
        say(
            true,
            format!(
                "[limits] mode {mode} has no effect: AccountingStorageEnforce has no limits, so that \
                 no CPU cap of a QOS holds a job"
            ),
        );
        return;
    }
    // Before QOS were read nothing can be said of them.
    let known = world.asked(Kind::Qos).is_some();
    let flex = limits.flex_qos_name.as_str();
    if limits.mode == LimitsMode::Flex && known {
        let here = world.qos.iter().any(|q| q.name.eq_ignore_ascii_case(flex));
        if here {
            say(
                false,
                format!(
                    "moves jobs that only a CPU cap of their QOS holds to QOS {flex} and back, while \
                     {:.0} % of the placeable capacity is idle",
                    limits.min_idle_share * 100.0
                ),
            );
        } else {
            say(
                true,
                format!(
                    "[limits] flex_qos_name: there is no QOS {flex}, so that no job moves; make it: \
                     sacctmgr add qos {flex}"
                ),
            );
        }
        let refuse = |p: &&PartitionRule| p.open && !p.qos.admits(Some(flex));
        let without: Vec<&str> =
            roster.partitions.iter().filter(refuse).map(|p| p.name.as_str()).collect();
        if here && !without.is_empty() {
            let list = some(&without);
            say(
                false,
                format!("jobs in {list} do not move: AllowQos or DenyQos leave QOS {flex} out"),
            );
        }
    }
    if limits.mode == LimitsMode::Global {
        say(
            false,
            format!(
                "raises the CPU caps of a QOS to {} times for {} s where only they hold jobs, while \
                 {:.0} % of the placeable capacity is idle",
                limits.ceiling,
                limits.pulse_seconds.as_secs_f64(),
                limits.min_idle_share * 100.0
            ),
        );
        let (name, uid) = split_user(&world.config.slurm_user);
        let slurm = uid.map_or_else(|| me.user.as_deref() == Some(name), |uid| uid == me.uid);
        if me.uid != 0 && !slurm {
            let user = me.user.clone().unwrap_or_else(|| me.uid.to_string());
            say(
                true,
                format!(
                    "sjpd runs as {user}, not as SlurmUser: slurmdbd lets it change caps only as an \
                     Administrator: sacctmgr modify user {user} set adminlevel=Administrator"
                ),
            );
        }
        let dir = limits.state_file.parent().unwrap_or(Path::new("/"));
        if let Err(error) = nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK) {
            say(
                true,
                format!(
                    "[limits] state_file: {} cannot be written to ({}): no caps are raised, since \
                     they could not be recorded",
                    dir.display(),
                    error.desc()
                ),
            );
        }
    }
}

/// A list that stays readable.
fn some(names: &[&str]) -> String {
    const MOST: usize = 20;
    if names.len() <= MOST {
        return names.join(", ");
    }
    format!("{} and {} more", names[..MOST].join(", "), names.len() - MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::world::Reading;
    use crate::ports::Records;
    use sjp_core::cluster::QosCaps;
    use sjp_core::cluster::{Node, Partition, SlurmConfig};
    use sjp_core::publish::{RosterInput, build_roster};

    fn world() -> World {
        World {
            config: SlurmConfig {
                cluster: "c".into(),
                version: "22.05.8".into(),
                select_type: "select/cons_tres".into(),
                select_params: vec!["CR_CPU_MEMORY".into()],
                slurm_user: "slurm(64030)".into(),
                job_submit_plugins: vec!["lua".into()],
                ..SlurmConfig::default()
            },
            nodes: vec![Node {
                name: "n1".into(),
                usable: true,
                mem: Some(sjp_core::units::MemMb(1000)),
                partitions: vec!["batch".into(), "interactive".into()],
                ..Node::default()
            }],
            partitions: ["batch", "interactive"]
                .map(|name| Partition {
                    name: name.into(),
                    state: "UP".into(),
                    over_subscribe: "NO".into(),
                    nodes: vec!["n1".into()],
                    ..Partition::default()
                })
                .into(),
            ..World::new()
        }
    }

    fn me(uid: u32) -> Me {
        Me { uid, user: None, dry_run: false }
    }

    fn told(world: &World, config: &Config, me: &Me) -> Vec<Finding> {
        let policy = config.policy();
        let roster = build_roster(&RosterInput {
            nodes: &world.nodes,
            partitions: &world.partitions,
            config: &world.config,
            qos: &[],
            bound_users: &[],
            policy: &policy,
        });
        findings(world, &roster, config, me)
    }

    fn warnings(list: &[Finding]) -> Vec<&str> {
        list.iter().filter(|f| f.warning).map(|f| f.words.as_str()).collect()
    }

    #[test]
    fn a_sound_cluster_gives_no_warning_and_says_what_is_left_out() {
        let list = told(&world(), &Config::default(), &me(64030));
        assert_eq!(warnings(&list), [""; 0]);
        let all: Vec<&str> = list.iter().map(|f| f.words.as_str()).collect();
        let all = all.join("\n");
        for part in ["mode observe", "places into batch", "leaves out partition interactive: "] {
            assert!(all.contains(part), "{part} is not in:\n{all}");
        }
    }

    #[test]
    fn what_keeps_sjp_from_working_is_a_warning() {
        type Spoil = fn(&mut World, &mut Config);
        let cases: [(&str, u32, Spoil); 8] = [
            ("slurmctld as slurm", 1000, |_, _| {}),
            ("nothing to place", 64030, |w, _| w.config.select_type = "select/linear".into()),
            ("does not name lua", 64030, |w, _| w.config.job_submit_plugins.clear()),
            ("does not manage memory", 64030, |w, _| {
                w.config.select_params = vec!["CR_CPU".into()]
            }),
            ("older than 22.05", 64030, |w, _| w.config.version = "20.11.9".into()),
            ("names no partition", 64030, |_, c| c.topology.exclude_partitions = vec!["x".into()]),
            ("is not in StateSaveLocation", 64030, |w, c| {
                w.config.controllers = vec!["a".into(), "b".into()];
                c.limits.mode = LimitsMode::Global;
            }),
            ("0 of 1 nodes", 64030, |w, _| w.nodes[0].usable = false),
        ];
        for (part, uid, spoil) in cases {
            let (mut world, mut config) = (world(), Config::default());
            spoil(&mut world, &mut config);
            let list = told(&world, &config, &me(uid));
            assert!(warnings(&list).iter().any(|w| w.contains(part)), "{part}: {list:?}");
        }
    }

    #[test]
    fn what_limits_need_is_told() {
        let with = |mode: LimitsMode, change: fn(&mut World, &mut Config)| {
            let (mut world, mut config) = (world(), Config::default());
            config.general.mode = Mode::Enforce;
            config.limits.mode = mode;
            config.limits.state_file = "/no-such-folder/limits.json".into();
            world.config.accounting_enforce = vec!["limits".into()];
            let storage = ("AccountingStorageType".into(), "accounting_storage/slurmdbd".into());
            world.config.all.push(storage);
            let asked = crate::daemon::world::Asked { mono_ns: 1, unix: 1.0 };
            world.take(Reading::Qos(Records::default()), asked, std::time::Duration::ZERO);
            change(&mut world, &mut config);
            let list = told(&world, &config, &me(64030));
            list.into_iter().map(|f| f.words).collect::<Vec<_>>().join("\n")
        };
        let flex = |w: &mut World, _: &mut Config| {
            w.qos = vec![QosCaps { name: "flex".into(), ..QosCaps::default() }];
            w.partitions[0].deny_qos = vec!["flex".into()];
        };
        use LimitsMode::{Flex, Global, Off};
        let missing = with(Flex, |_, _| {});
        assert!(missing.contains("there is no QOS flex"), "{missing}");
        let found = with(Flex, flex);
        assert!(found.contains("to QOS flex and back") && found.contains("jobs in batch do not"));
        let none = with(Global, |w, _| w.config.accounting_enforce.clear());
        assert!(none.contains("[limits] mode global has no effect"), "{none}");
        let global = with(Global, |w, _| w.config.slurm_user = "other(5)".into());
        assert!(global.contains("adminlevel=Administrator"), "{global}");
        assert!(global.contains("/no-such-folder cannot be written to"), "{global}");
        let off = with(Off, flex) + &with(Flex, |_, c| c.general.mode = Mode::Observe);
        assert!(!off.contains("flex"), "{off}");
    }

    #[test]
    fn the_mode_says_what_may_change() {
        assert!(may_change(Mode::Enforce, false).contains("takes pins back"));
        assert!(may_change(Mode::Enforce, true).contains("nothing is changed"));
        assert!(may_change(Mode::Observe, false).contains("nothing new is changed"));
    }
}
