//! The demo's cluster, what fills it, and the jobs that are submitted.

use sjp_tests::{ClusterSpec, NodeSpec};

/// A job_submit.lua that changes nothing: Slurm as it is without sjp.
pub const PLAIN: &str = "function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
";

/// What runs already: node, CPUs, MB.
pub const FILLED: [(&str, u32, u64); 5] = [
    ("s01", 8, 28_672),
    ("s02", 4, 4_096),
    ("s04", 12, 8_192),
    ("f01", 8, 28_672),
    ("f02", 14, 102_400),
];

/// The cluster in a few lines of text.
pub const DESCRIBED: [&str; 8] = [
    "partition  node      CPUs free   memory free",
    "slim       s01         8 of 16     4 of  32 GB   (short of memory)",
    "           s02        12 of 16    28 of  32 GB",
    "           s03        16 of 16    32 of  32 GB",
    "           s04         4 of 16    24 of  32 GB   (short of CPUs)",
    "fat        f01         8 of 16   228 of 256 GB",
    "           f02         2 of 16   156 of 256 GB",
    "gpu        g01         8 of  8    32 of  32 GB   (1 GPU)",
];

/// The cluster: four slim nodes, two fat ones, one with a GPU.
pub fn cluster() -> ClusterSpec {
    ClusterSpec::new()
        .nodes("s[01-04]", 16, 32_768)
        .nodes("f[01-02]", 16, 262_144)
        .node_spec(NodeSpec::new("g01", 8, 32_768).gres("gpu:1"))
        .partition("slim", "s[01-04]", "Default=YES")
        .partition("fat", "f[01-02]", "")
        .partition("gpu", "g01", "")
        .slurm_conf("SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1")
        .job_submit_lua(PLAIN)
}

/// One line of the job mix.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Its name in the table, and the jobs' name.
    pub name: &'static str,
    /// What it asks for, in words.
    pub asks: &'static str,
    /// What sbatch is given besides name, output, time limit and script.
    pub args: &'static [&'static str],
    /// Submitted so many times, one right after the other.
    pub copies: usize,
    /// Jobs in each submission (more than 1: an array).
    pub tasks: usize,
}

impl Ask {
    const fn new(name: &'static str, asks: &'static str, args: &'static [&'static str]) -> Self {
        Ask { name, asks, args, copies: 1, tasks: 1 }
    }

    /// How many jobs it makes.
    pub fn jobs(&self) -> usize {
        self.copies * self.tasks
    }
}

/// The job mix, in the order in which it is submitted.
pub fn asks() -> Vec<Ask> {
    vec![
        Ask::new("lean", "4 CPUs, 1.6 GB", &["-c4", "--mem=1600M"]),
        Ask::new("medium", "4 CPUs, 8 GB", &["-c4", "--mem=8G"]),
        Ask::new("heavy", "4 CPUs, 22 GB", &["-c4", "--mem=22G"]),
        Ask::new("huge", "2 CPUs, 100 GB", &["-c2", "--mem=100G"]),
        Ask {
            tasks: 3,
            ..Ask::new("array", "array of 3: 1 CPU, 1 GB", &["--array=1-3", "-c1", "--mem=1G"])
        },
        Ask::new("tasks", "4 tasks: 1 CPU, 1.5 GB", &["-n4", "--mem-per-cpu=1536M"]),
        Ask::new("own-node", "-w s03: 2 CPUs, 2 GB", &["-w", "s03", "-c2", "--mem=2G"]),
        Ask::new("own-part", "-p fat: 2 CPUs, 20 GB", &["-p", "fat", "-c2", "--mem=20G"]),
        Ask::new("two-node", "-N2: 1 CPU, 1 GB on each", &["-N2", "-n2", "--mem=1G"]),
        Ask::new("gpu", "-p gpu: 1 CPU, 1 GPU", &["-p", "gpu", "--gres=gpu:1", "--mem=1G"]),
        Ask { copies: 6, ..Ask::new("burst", "6 jobs: 2 CPUs, 3 GB", &["-c2", "--mem=3G"]) },
        Ask::new("wide", "16 CPUs, 30 GB", &["-c16", "--mem=30G"]),
    ]
}
