//! `scontrol show config`, and slurm.conf itself.

use crate::{Parsed, Problem, partitions};
use sjp_core::cluster::SlurmConfig;
use sjp_core::hostlist;

/// Arguments for scontrol.
pub const ARGS: &[&str] = &["show", "config"];

/// Reads the output of `scontrol show config`: one record.
#[must_use]
pub fn read(text: &str) -> Parsed<SlurmConfig> {
    let mut out = Parsed::default();
    if !text.trim_start().starts_with("Configuration data as of") {
        out.error(1, Problem::Unknown { want: "the output of scontrol show config" }, text);
        return out;
    }
    let mut all = Vec::with_capacity(256);
    for line in text.lines().skip(1) {
        // Cgroup and other settings follow after a blank line.
        if line.trim().is_empty() && !all.is_empty() {
            break;
        }
        if let Some((key, value)) = line.split_once('=') {
            all.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    match assemble(all) {
        Ok(config) => out.records.push(config),
        Err(what) => out.error(0, what, ""),
    }
    out
}

fn assemble(all: Vec<(String, String)>) -> Result<SlurmConfig, Problem> {
    let get = |name: &str| {
        all.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v.as_str())
    };
    let text = |name: &str| {
        let value = get(name);
        if crate::unset(value) { String::new() } else { value.to_owned() }
    };
    let memory = |per_cpu: &str, per_node: &str| {
        let cpu = partitions::memory(per_cpu, get(per_cpu))?;
        if cpu == sjp_core::units::MemPer::Unset {
            partitions::memory(per_node, get(per_node))
        } else {
            Ok(cpu)
        }
    };
    Ok(SlurmConfig {
        cluster: text("ClusterName"),
        version: text("SLURM_VERSION"),
        select_type: text("SelectType"),
        select_params: crate::list(get("SelectTypeParameters")),
        def_mem: memory("DefMemPerCPU", "DefMemPerNode")?,
        max_mem: memory("MaxMemPerCPU", "MaxMemPerNode")?,
        enforce_part_limits: text("EnforcePartLimits"),
        accounting_enforce: crate::list(get("AccountingStorageEnforce")),
        slurm_user: text("SlurmUser"),
        controllers: all
            .iter()
            .filter(|(k, v)| is_controller(k) && !crate::unset(v))
            .map(|(_, v)| v.split('(').next().unwrap_or(v).to_owned())
            .collect(),
        job_submit_plugins: crate::list(get("JobSubmitPlugins")),
        all,
    })
}

/// `SlurmctldHost`, `SlurmctldHost[0]`, and `ControlMachine` of old.
fn is_controller(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key == "controlmachine" || key == "slurmctldhost" || key.starts_with("slurmctldhost[")
}

/// A line of slurm.conf that defines something by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Definition {
    /// The names defined, expanded.
    pub names: Vec<String>,
    /// The line's other keys and values, as written.
    pub values: Vec<(String, String)>,
}

/// slurm.conf, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfFile {
    /// The settings.
    pub config: SlurmConfig,
    /// `NodeName=` lines.
    pub nodes: Vec<Definition>,
    /// `NodeSet=` lines.
    pub node_sets: Vec<Definition>,
    /// `PartitionName=` lines.
    pub partitions: Vec<Definition>,
    /// `Include` lines: files that were not read.
    pub includes: Vec<String>,
}

/// Reads slurm.conf: one record. Keys are of any case; included files are
/// named in a warning, as nothing is read but the text given.
#[must_use]
pub fn read_file(text: &str) -> Parsed<ConfFile> {
    let mut out = Parsed::default();
    let mut file = ConfFile::default();
    let mut all = Vec::new();
    let mut joined = String::new();
    let mut first = 1;
    for (index, line) in text.lines().enumerate() {
        if joined.is_empty() {
            first = index + 1;
        }
        let line = uncommented(line);
        if let Some(begun) = line.trim_end().strip_suffix('\\') {
            joined.push_str(begun);
            joined.push(' ');
            continue;
        }
        joined.push_str(line);
        let whole = std::mem::take(&mut joined);
        let whole = whole.trim();
        if whole.is_empty() {
            continue;
        }
        if whole.get(..8).is_some_and(|w| w.eq_ignore_ascii_case("include ")) {
            let name = whole[8..].trim().to_owned();
            out.warn(first, format!("{name} is included here and was not read"));
            file.includes.push(name);
            continue;
        }
        let pairs = match pairs(whole) {
            Ok(pairs) => pairs,
            Err(what) => {
                out.error(first, what, whole);
                continue;
            }
        };
        let (key, value) = &pairs[0];
        let list = match key.to_ascii_lowercase().as_str() {
            "nodename" => &mut file.nodes,
            "nodeset" => &mut file.node_sets,
            "partitionname" => &mut file.partitions,
            "downnodes" | "frontendname" => continue,
            _ => {
                all.extend(pairs);
                continue;
            }
        };
        match hostlist::expand(value) {
            Ok(names) => list.push(Definition { names, values: pairs[1..].to_vec() }),
            Err(source) => out.error(first, Problem::Hostlist { key: "NodeName", source }, whole),
        }
    }
    match assemble(all) {
        Ok(config) => file.config = config,
        Err(what) => out.error(0, what, ""),
    }
    out.records.push(file);
    out
}

/// A line without its comment (`#`, unless it is written `\#`).
fn uncommented(line: &str) -> &str {
    let mut from = 0;
    while let Some(at) = line[from..].find('#') {
        let at = from + at;
        if at == 0 || line.as_bytes()[at - 1] != b'\\' {
            return &line[..at];
        }
        from = at + 1;
    }
    line
}

/// `Key=value Key="value with blanks"`, at least one.
fn pairs(line: &str) -> Result<Vec<(String, String)>, Problem> {
    let mut pairs = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let (key, after) = rest
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty() && !key.trim().contains(char::is_whitespace))
            .ok_or(Problem::Unknown { want: "a line of slurm.conf (Key=value)" })?;
        let after = after.trim_start_matches(' ');
        let (value, more) = match after.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or(Problem::Unknown { want: "a closed quotation in slurm.conf" })?,
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        pairs.push((key.trim().to_owned(), value.to_owned()));
        rest = more;
    }
    if pairs.is_empty() {
        return Err(Problem::Unknown { want: "a line of slurm.conf (Key=value)" });
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sjp_core::units::{MemMb, MemPer};

    #[test]
    fn values_that_placement_needs() {
        let text = "Configuration data as of 2026-11-30T16:40:17\n\
            AccountingStorageEnforce = associations,limits\n\
            ClusterName             = bar\n\
            DefMemPerNode           = UNLIMITED\n\
            DefMemPerCPU            = 2000\n\
            EnforcePartLimits       = ALL\n\
            JobSubmitPlugins        = lua,throttle\n\
            PriorityFlags           =\n\
            SelectType              = select/cons_tres\n\
            SelectTypeParameters    = CR_CORE_MEMORY,CR_ONE_TASK_PER_CORE\n\
            SlurmUser               = slurm(64030)\n\
            SlurmctldHost[0]        = ctl1(10.0.0.1)\n\
            SlurmctldHost[1]        = ctl2\n\
            SLURM_VERSION           = 22.05.8\n\
            \n\
            Cgroup Support Configuration:\n\
            ClusterName             = other\n";
        let parsed = read(text);
        assert!(parsed.errors.is_empty());
        let c = &parsed.records[0];
        assert_eq!((c.cluster.as_str(), c.version.as_str()), ("bar", "22.05.8"));
        assert_eq!(c.def_mem, MemPer::Cpu(MemMb(2000)));
        assert_eq!(c.max_mem, MemPer::Unset);
        assert_eq!(c.controllers, ["ctl1", "ctl2"]);
        assert_eq!(c.job_submit_plugins, ["lua", "throttle"]);
        assert!(c.memory_consumable() && c.whole_cores() && c.nodes_shared());
        assert!(c.all.contains(&("PriorityFlags".into(), String::new())));
    }

    #[test]
    fn slurm_conf() {
        let text = "# a comment\nClusterName=bar # another\nselecttype = select/linear\n\
            NodeName=n[1-2] \\\n  CPUs=4 \\\n  Features=\"a b\"\nNodeName=DEFAULT CPUs=1\n\
            NodeSet=all Nodes=ALL\nPartitionName=p Nodes=all State=UP\nInclude more.conf\nbroken\n";
        let parsed = read_file(text);
        let file = &parsed.records[0];
        assert_eq!(file.config.cluster, "bar");
        assert_eq!(file.config.select_type, "select/linear");
        assert_eq!(file.nodes[0].names, ["n1", "n2"]);
        assert_eq!(
            file.nodes[0].values,
            [("CPUs".into(), "4".into()), ("Features".into(), "a b".into())]
        );
        assert_eq!((file.node_sets.len(), file.partitions.len()), (1, 1));
        assert_eq!(file.includes, ["more.conf"]);
        assert_eq!(parsed.errors.len(), 1);
        assert_eq!(parsed.errors[0].line, 11);
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(read("NodeName=x").errors.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Include |NodeName=|#|\\\\|\"|=|\n|.){0,60}") {
            let _ = read_file(&text);
            let _ = read(&text);
            let _ = read(&format!("Configuration data as of x\n{text}"));
        }
    }
}
