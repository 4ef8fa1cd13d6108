//! Slurm's rules of admission, written down once more and plainly: what sjp sets is
//! held against these, not against its own.

use crate::job::Sim;
use crate::slurm::Slurm;
use sjp_core::cluster::{Names, Partition};
use sjp_core::units::{Cpus, Limit, MemPer};

/// What a partition looks at.
#[derive(Clone, Debug)]
pub struct Ask {
    pub uid: u32,
    pub account: &'static str,
    pub qos: String,
    pub cpus: u32,
    /// `Unset`: all that a node has. What a job leaves to its partition is settled when
    /// it is submitted: that of the first.
    pub mem: MemPer,
    pub limit: Limit,
}

impl Ask {
    pub fn of(job: &Sim) -> Self {
        Self {
            uid: job.uid,
            account: job.account,
            qos: job.qos.clone(),
            cpus: job.cpus,
            mem: job.mem,
            limit: job.limit,
        }
    }
}

fn lets(names: &Names, name: &str) -> bool {
    match names {
        Names::All => true,
        Names::Listed(list) => list.iter().any(|n| n == name),
    }
}

/// Users of group "chemists".
pub fn chemist(uid: u32) -> bool {
    uid == 1
}

/// Whether Slurm lets the user into the partition at all, by groups.
pub fn groups(partition: &Partition, uid: u32) -> bool {
    lets(&partition.allow_groups, "chemists") && chemist(uid)
        || partition.allow_groups == Names::All
}

/// What the partition allows, which is looked at again before a job starts.
pub fn limits(partition: &Partition, ask: &Ask) -> Result<(), String> {
    if !lets(&partition.allow_accounts, ask.account) {
        return Err("account".into());
    }
    if !lets(&partition.allow_qos, &ask.qos) {
        return Err(format!("QOS {}", ask.qos));
    }
    let minutes = match ask.limit {
        Limit::At(minutes) => Some(minutes),
        Limit::Unlimited => Some(u32::MAX),
        Limit::Unset => None,
    };
    if let (Limit::At(most), Some(minutes)) = (partition.max_time, minutes)
        && minutes > most
    {
        return Err(format!("{minutes} min above {most}"));
    }
    if let Limit::At(most) = partition.max_cpus_per_node
        && ask.cpus > most
    {
        return Err(format!("{} CPUs above {most}", ask.cpus));
    }
    if let MemPer::Cpu(most) = partition.max_mem {
        let asks = match ask.mem {
            MemPer::Cpu(mb) => mb.times(Cpus(ask.cpus)).0,
            MemPer::Node(mb) => mb.0,
            MemPer::Unset => 0,
        };
        if asks > most.times(Cpus(ask.cpus)).0 {
            return Err(format!("{asks} MB above {} for each CPU", most.0));
        }
    }
    Ok(())
}

/// Whether Slurm takes the job when it is submitted into this partition.
pub fn accepts(slurm: &Slurm, partition: &Partition, ask: &Ask) -> Result<(), String> {
    if !matches!(partition.state.as_str(), "UP" | "DOWN") {
        return Err(format!("state {}", partition.state));
    }
    if !groups(partition, ask.uid) {
        return Err("group".into());
    }
    if slurm.bound.iter().any(|(uid, only)| *uid == ask.uid && *only != partition.name) {
        return Err("association".into());
    }
    limits(partition, ask)?;
    let big_enough =
        slurm.nodes.iter().filter(|n| n.partitions.contains(&partition.name)).any(|n| {
            let whole = Cpus(ask.cpus).round_up(n.threads_per_core);
            let counted = if slurm.config.whole_cores() { whole } else { Cpus(ask.cpus) };
            let mem = match ask.mem {
                MemPer::Cpu(mb) => mb.times(counted).0,
                MemPer::Node(mb) => mb.0,
                MemPer::Unset => 0,
            };
            whole <= n.cpus && n.mem.is_none_or(|has| mem <= has.0)
        });
    if big_enough { Ok(()) } else { Err("no node is big enough".into()) }
}

/// Whether Slurm takes a submission into all of these, as EnforcePartLimits=ALL has it.
pub fn accepts_list(slurm: &Slurm, list: &[String], ask: &Ask) -> Result<(), String> {
    if list.is_empty() {
        return Err("no partition".into());
    }
    if list.len() > 1 && slurm.bound.iter().any(|(uid, _)| *uid == ask.uid) {
        return Err("a list, and an association for one partition".into());
    }
    for name in list {
        let partition = slurm.partition(name).ok_or(format!("{name}: no such partition"))?;
        accepts(slurm, partition, ask).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}
