//! Holds a small cluster open for a look, until its standard input ends.
//!
//! `cargo run -p sjp-tests --bin hold -- [--accounting ENFORCE] [--sjp] [--job]
//! [SLURM.CONF LINE]...` prints the SLURM_CONF to use; close it with Ctrl-D.

use std::io::Read as _;
use std::time::Instant;

use anyhow::{Context, Result};
use sjp_tests::ClusterSpec;

fn main() -> Result<()> {
    let begin = Instant::now();
    let mut spec = ClusterSpec::slim_and_fat();
    let mut job = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        spec = match arg.as_str() {
            "--accounting" => spec.with_accounting(&args.next().context("--accounting ENFORCE")?),
            "--sjp" => spec.with_sjp("", ""),
            "--job" => {
                job = true;
                spec
            }
            line => spec.slurm_conf(line),
        };
    }
    let cluster = spec.start()?;
    if job {
        cluster.fill_node("s01", 1, 100)?;
    }
    println!("Slurm {} runs after {:.1?}", cluster.version(), begin.elapsed());
    println!("export SLURM_CONF={}", cluster.conf_path().display());
    let mut rest = String::new();
    std::io::stdin().read_to_string(&mut rest).context("reading standard input")?;
    cluster.stop()
}
