//! What a test cluster looks like: nodes, partitions, settings; and its slurm.conf.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

/// Device files that stand for GPUs.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Nodes of one kind.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    names: String,
    cpus: u32,
    mem_mb: u64,
    attributes: Vec<String>,
    gres: Option<String>,
    cloud: bool,
}

impl NodeSpec {
    /// Nodes with a slurmd each, such as `s[01-04]`; `mem_mb` is RealMemory in MB.
    pub fn new(names: &str, cpus: u32, mem_mb: u64) -> Self {
        NodeSpec {
            names: names.into(),
            cpus,
            mem_mb,
            attributes: Vec::new(),
            gres: None,
            cloud: false,
        }
    }

    /// Powered-down cloud nodes without slurmd: jobs are allocated and never run.
    pub fn cloud(names: &str, cpus: u32, mem_mb: u64) -> Self {
        NodeSpec { cloud: true, ..NodeSpec::new(names, cpus, mem_mb) }
    }

    /// Generic resources, such as `gpu:2` or `gpu:a100:2` (gres.conf is written too).
    pub fn gres(mut self, gres: &str) -> Self {
        self.gres = Some(gres.into());
        self
    }

    /// Features, such as `icelake,ib`.
    pub fn features(self, features: &str) -> Self {
        self.attribute(&format!("Features={features}"))
    }

    /// The node's weight.
    pub fn weight(self, weight: u32) -> Self {
        self.attribute(&format!("Weight={weight}"))
    }

    /// Threads in each core; CPUs are shared out over the cores.
    pub fn threads_per_core(self, threads: u32) -> Self {
        self.attribute(&format!("ThreadsPerCore={threads}"))
    }

    /// Sockets in each node.
    pub fn sockets(self, sockets: u32) -> Self {
        self.attribute(&format!("Sockets={sockets}"))
    }

    /// Any other node attribute of slurm.conf, such as `MemSpecLimit=1000`.
    pub fn attribute(mut self, attribute: &str) -> Self {
        self.attributes.push(attribute.into());
        self
    }

    /// The attributes after `NodeName=...`, with the cores per socket worked out.
    fn line(&self) -> Result<String> {
        let value = |key: &str| -> Result<Option<u32>> {
            let text = self.attributes.iter().find_map(|a| a.strip_prefix(key));
            text.map(|t| t.parse().with_context(|| format!("{key}{t}"))).transpose()
        };
        let mut line = format!("CPUs={} RealMemory={}", self.cpus, self.mem_mb);
        let (sockets, threads) = (value("Sockets=")?, value("ThreadsPerCore=")?);
        let cores_given = self.attributes.iter().any(|a| a.starts_with("CoresPerSocket="));
        if (sockets.is_some() || threads.is_some()) && !cores_given {
            let parts = sockets.unwrap_or(1) * threads.unwrap_or(1);
            if self.cpus.checked_rem(parts) != Some(0) {
                bail!("nodes {}: {} CPUs cannot be shared out by {parts}", self.names, self.cpus);
            }
            let _ = write!(line, " CoresPerSocket={}", self.cpus / parts);
            if sockets.is_none() {
                line.push_str(" Sockets=1");
            }
        }
        if let Some(gres) = &self.gres {
            let _ = write!(line, " Gres={gres}");
        }
        for attribute in &self.attributes {
            let _ = write!(line, " {attribute}");
        }
        Ok(line)
    }
}

/// A cluster to be started.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    nodes: Vec<NodeSpec>,
    partitions: Vec<(String, String, String)>,
    select_parameters: String,
    extra: Vec<String>,
    accounting: Option<String>,
    job_submit_lua: Option<String>,
    staged: bool,
    controllers: Vec<String>,
}

impl Default for ClusterSpec {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterSpec {
    /// A cluster without nodes and partitions.
    pub fn new() -> Self {
        ClusterSpec {
            nodes: Vec::new(),
            partitions: Vec::new(),
            select_parameters: "CR_Core_Memory".into(),
            extra: Vec::new(),
            accounting: None,
            job_submit_lua: None,
            staged: false,
            controllers: Vec::new(),
        }
    }

    /// Many nodes without a slurmd, for measurements: nine in ten in `slim` (64 CPUs,
    /// 256,000 MB), the rest in `fat` (1,024,000 MB), at least one each, with sjp's
    /// script and a queue that may be long.
    pub fn many_nodes(nodes: usize) -> Self {
        let fat = (nodes / 10).max(1);
        let (slim, fat) = (format!("s[1-{}]", nodes.max(2) - fat), format!("f[1-{fat}]"));
        Self::new()
            .cloud_nodes(&slim, 64, 256_000)
            .cloud_nodes(&fat, 64, 1_024_000)
            .partition("slim", &slim, "Default=YES")
            .partition("fat", &fat, "")
            .slurm_conf("SlurmctldDebug=info\nMaxJobCount=100000")
            .with_sjp("", "")
    }

    /// A small usual cluster: `s[01-02]` (16 CPUs, 32 GB) in the default partition
    /// `slim`, `f01` (16 CPUs, 256 GB) in `fat`.
    pub fn slim_and_fat() -> Self {
        ClusterSpec::new()
            .nodes("s[01-02]", 16, 32_000)
            .nodes("f01", 16, 256_000)
            .partition("slim", "s[01-02]", "Default=YES")
            .partition("fat", "f01", "")
    }

    /// Adds nodes with a slurmd each; `mem_mb` is RealMemory in MB.
    pub fn nodes(self, names: &str, cpus: u32, mem_mb: u64) -> Self {
        self.node_spec(NodeSpec::new(names, cpus, mem_mb))
    }

    /// Adds powered-down cloud nodes: jobs are allocated there and never run.
    pub fn cloud_nodes(self, names: &str, cpus: u32, mem_mb: u64) -> Self {
        self.node_spec(NodeSpec::cloud(names, cpus, mem_mb))
    }

    /// Adds nodes with more attributes.
    pub fn node_spec(mut self, nodes: NodeSpec) -> Self {
        self.nodes.push(nodes);
        self
    }

    /// Adds a partition; `attributes` as in slurm.conf.
    pub fn partition(mut self, name: &str, nodes: &str, attributes: &str) -> Self {
        self.partitions.push((name.into(), nodes.into(), attributes.into()));
        self
    }

    /// SelectTypeParameters (the default is `CR_Core_Memory`).
    pub fn select_parameters(mut self, parameters: &str) -> Self {
        self.select_parameters = parameters.into();
        self
    }

    /// Adds lines to slurm.conf; a key that has a default here replaces it.
    pub fn slurm_conf(mut self, lines: &str) -> Self {
        self.extra.extend(lines.lines().map(str::trim).filter(|l| !l.is_empty()).map(Into::into));
        self
    }

    /// With MariaDB, slurmdbd and AccountingStorageEnforce as given (`""` is none).
    ///
    /// The account `test` is made, with root and the test users in it.
    pub fn with_accounting(mut self, enforce: &str) -> Self {
        self.accounting = Some(enforce.into());
        self
    }

    /// JobSubmitPlugins=lua with this text as job_submit.lua.
    pub fn job_submit_lua(mut self, text: &str) -> Self {
        self.job_submit_lua = Some(text.into());
        self
    }

    /// With a job_submit.lua that asks sjp about every job
    /// ([`job_submit_text`](crate::job_submit_text) of `before` and `after`), and the
    /// modules that it needs, which `make stage` builds.
    pub fn with_sjp(mut self, before: &str, after: &str) -> Self {
        self.staged = true;
        self.job_submit_lua(&crate::lua::job_submit_text(before, after))
    }

    pub(crate) fn set_controllers(&mut self, names: &[&str]) {
        self.controllers = names.iter().map(|n| (*n).to_string()).collect();
    }

    /// Names of the controllers' hosts; empty: there is one, on this host.
    pub(crate) fn controller_names(&self) -> &[String] {
        &self.controllers
    }

    /// Whether the modules are wanted.
    pub(crate) fn staged(&self) -> bool {
        self.staged
    }

    /// The text of job_submit.lua, if there is one.
    pub(crate) fn lua(&self) -> Option<&str> {
        self.job_submit_lua.as_deref()
    }

    /// AccountingStorageEnforce, when there is accounting.
    pub(crate) fn accounting(&self) -> Option<&str> {
        self.accounting.as_deref()
    }

    /// The names of the nodes that have a slurmd.
    pub(crate) fn slurmd_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for nodes in self.nodes.iter().filter(|n| !n.cloud) {
            names.extend(expand(&nodes.names)?);
        }
        Ok(names)
    }

    /// The text of gres.conf.
    pub(crate) fn gres_conf(&self) -> String {
        let mut text = "# Generic resources, if any.\n".to_string();
        for nodes in &self.nodes {
            for item in nodes.gres.iter().flat_map(|g| g.split(',')) {
                let words: Vec<&str> = item.split(':').collect();
                let (name, kind, count) = match words.as_slice() {
                    [name] => (name, None, "1"),
                    [name, count] => (name, None, *count),
                    [name, kind, count, ..] => (name, Some(kind), *count),
                    [] => continue,
                };
                let mut line = format!("Name={name}");
                if let Some(kind) = kind {
                    let _ = write!(line, " Type={kind}");
                }
                match count.parse() {
                    // slurmd counts only those GPUs that have a device file.
                    Ok(number) if *name == "gpu" && number <= DEVICES.len() => {
                        let _ = write!(line, " File={}", DEVICES[..number].join(","));
                    }
                    _ => {
                        let _ = write!(line, " Count={count}");
                    }
                }
                let _ = writeln!(text, "NodeName={} {line}", nodes.names);
            }
        }
        text
    }

    /// The text of slurm.conf.
    pub(crate) fn slurm_conf_text(&self, place: &Place<'_>) -> Result<String> {
        let dir = place.dir;
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: String| settings.push((key.into(), value));
        set("ClusterName", CLUSTER_NAME.into());
        set("SlurmctldHost", format!("{}(127.0.0.1)", place.hostname));
        set("SlurmctldPort", place.slurmctld_port.to_string());
        set("SlurmUser", "root".into());
        set("SlurmdUser", "root".into());
        set("AuthType", "auth/munge".into());
        set("AuthInfo", format!("socket={dir}/munge.socket"));
        set("StateSaveLocation", format!("{dir}/state"));
        set("SlurmdSpoolDir", format!("{dir}/spool/%n"));
        set("SlurmctldPidFile", format!("{dir}/slurmctld.pid"));
        set("SlurmdPidFile", format!("{dir}/spool/slurmd-%n.pid"));
        set("SlurmctldLogFile", format!("{dir}/log/slurmctld.log"));
        set("SlurmdLogFile", format!("{dir}/log/slurmd-%n.log"));
        set("SlurmctldDebug", "debug".into());
        set("SlurmdDebug", "info".into());
        set("SlurmctldTimeout", "60".into());
        set("SlurmdTimeout", "300".into());
        set("MessageTimeout", "30".into());
        set("ProctrackType", "proctrack/linuxproc".into());
        set("TaskPlugin", "task/none".into());
        set("JobAcctGatherType", "jobacct_gather/none".into());
        set("MpiDefault", "none".into());
        set("SwitchType", "switch/none".into());
        set("SlurmdParameters", "config_overrides".into());
        set("DebugFlags", "NO_CONF_HASH".into());
        set("ReturnToService", "2".into());
        set("SchedulerType", "sched/backfill".into());
        set("SchedulerParameters", "sched_min_interval=0,batch_sched_delay=0,bf_interval=3".into());
        set("SelectType", "select/cons_tres".into());
        set("SelectTypeParameters", self.select_parameters.clone());
        set("PriorityType", "priority/multifactor".into());
        set("KillWait", "1".into());
        set("InactiveLimit", "0".into());
        if self.nodes.iter().any(|n| n.cloud) {
            set("SuspendProgram", "/bin/true".into());
            set("ResumeProgram", "/bin/true".into());
            set("ResumeTimeout", "36000".into());
            set("SuspendTime", "-1".into());
            set("PrivateData", "cloud".into());
        }
        if self.job_submit_lua.is_some() {
            set("JobSubmitPlugins", "lua".into());
        }
        if let Some(enforce) = &self.accounting {
            set("AccountingStorageType", "accounting_storage/slurmdbd".into());
            set("AccountingStorageHost", "127.0.0.1".into());
            set("AccountingStoragePort", place.slurmdbd_port.to_string());
            set("AccountingStoragePass", format!("{dir}/munge.socket"));
            if !enforce.is_empty() {
                set("AccountingStorageEnforce", enforce.clone());
            }
        }
        let gres = self.gres_types();
        if !gres.is_empty() {
            set("GresTypes", gres.join(","));
        }
        let mut text = String::new();
        for (key, value) in &settings {
            let replaced = self.extra.iter().any(|line| {
                line.split_once('=').is_some_and(|(k, _)| k.trim().eq_ignore_ascii_case(key))
            });
            if !replaced {
                let _ = writeln!(text, "{key}={value}");
            }
        }
        for line in &self.extra {
            let _ = writeln!(text, "{line}");
        }
        self.write_nodes(&mut text, place)?;
        for (name, nodes, attributes) in &self.partitions {
            let state = if attributes.contains("State=") { "" } else { " State=UP" };
            let _ = writeln!(text, "PartitionName={name} Nodes={nodes}{state} {attributes}");
        }
        Ok(text)
    }

    fn write_nodes(&self, text: &mut String, place: &Place<'_>) -> Result<()> {
        let mut ports = place.slurmd_ports.iter();
        for nodes in &self.nodes {
            let line = nodes.line()?;
            if nodes.cloud {
                let _ = writeln!(text, "NodeName={} State=CLOUD {line}", nodes.names);
                continue;
            }
            for name in expand(&nodes.names)? {
                let port = ports.next().context("fewer ports than nodes")?;
                let _ = writeln!(
                    text,
                    "NodeName={name} NodeAddr=127.0.0.1 NodeHostname={} Port={port} {line}",
                    place.hostname
                );
            }
        }
        Ok(())
    }

    fn gres_types(&self) -> Vec<String> {
        let mut types: Vec<String> = Vec::new();
        for item in self.nodes.iter().filter_map(|n| n.gres.as_deref()).flat_map(|g| g.split(',')) {
            let name = item.split(':').next().unwrap_or(item).to_string();
            if !types.contains(&name) {
                types.push(name);
            }
        }
        types
    }
}

/// ClusterName of every test cluster.
pub const CLUSTER_NAME: &str = "sjptest";

/// Where a cluster lives: folder, host and ports.
pub(crate) struct Place<'a> {
    pub dir: &'a str,
    pub hostname: &'a str,
    pub slurmctld_port: u16,
    pub slurmdbd_port: u16,
    pub slurmd_ports: &'a [u16],
}

/// The names in a list such as `s[01-04,07],f01` (one bracket in each name).
pub(crate) fn expand(list: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = match (rest.find(','), rest.find('[')) {
            (Some(comma), Some(open)) if open < comma => rest
                .find(']')
                .map(|close| rest[close..].find(',').map_or(rest.len(), |offset| close + offset)),
            (Some(comma), _) => Some(comma),
            (None, _) => Some(rest.len()),
        };
        let end = end.with_context(|| format!("node list {list:?}: a bracket is not closed"))?;
        let item = &rest[..end];
        rest = rest[end..].strip_prefix(',').unwrap_or(&rest[end..]);
        let Some((head, tail)) = item.split_once('[') else {
            names.push(item.to_string());
            continue;
        };
        let (ranges, tail) = tail
            .split_once(']')
            .with_context(|| format!("node list {list:?}: a bracket is not closed"))?;
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let first: u32 = low.parse().with_context(|| format!("node list {list:?}: {low:?}"))?;
            let last: u32 =
                high.parse().with_context(|| format!("node list {list:?}: {high:?}"))?;
            for number in first..=last {
                names.push(format!("{head}{number:0width$}{tail}", width = low.len()));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists_are_expanded() {
        assert_eq!(expand("s[01-02,07],f1").unwrap(), ["s01", "s02", "s07", "f1"]);
        assert_eq!(expand("a,b[9-10]-x").unwrap(), ["a", "b9-x", "b10-x"]);
        assert!(expand("s[01").is_err());
        assert!(expand("s[a-b]").is_err());
    }

    #[test]
    fn lines_of_the_test_replace_defaults() {
        let spec = ClusterSpec::slim_and_fat()
            .slurm_conf("DebugFlags=Backfill\n\nEnforcePartLimits=ALL")
            .node_spec(NodeSpec::new("g1", 8, 1000).threads_per_core(2).gres("gpu:a100:2"));
        let place = Place {
            dir: "/d",
            hostname: "h",
            slurmctld_port: 1,
            slurmdbd_port: 2,
            slurmd_ports: &[3, 4, 5, 6],
        };
        let text = spec.slurm_conf_text(&place).unwrap();
        assert!(text.contains("DebugFlags=Backfill\n") && !text.contains("NO_CONF_HASH"));
        assert!(text.contains(
            "NodeName=g1 NodeAddr=127.0.0.1 NodeHostname=h Port=6 CPUs=8 RealMemory=1000 \
             CoresPerSocket=4 Sockets=1 Gres=gpu:a100:2 ThreadsPerCore=2"
        ));
        assert!(
            spec.gres_conf()
                .ends_with("\nNodeName=g1 Name=gpu Type=a100 File=/dev/null,/dev/zero\n")
        );
    }
}
