//! A day in minutes: the same 24 hours of users' jobs and admins' work on a throwaway
//! real Slurm with slurmdbd, without sjp, with sjp and a flex QOS, with sjp and pulses
//! of the caps; each on a fresh cluster.
//!
//! `cargo run -p sjp-tests --bin sjpd-day -- [MINUTES [SEED [PASSES]]]` (6 minutes, seed
//! 1, `without,flex,global`; a pass `off` is sjp without limits) prints tables for
//! docs/benchmarks.md. It needs root, a build of sjpd and the modules (`make stage`,
//! `cargo build -p sjpd`). Run times, and sjp's intervals as far as they go, are as much
//! shorter as the day is; Slurm's time limits are whole minutes, and its own work for
//! each job takes as long as ever: the fewer minutes, the less like a day.

#[path = "../day/pass.rs"]
mod pass;
#[path = "../day/sdiag.rs"]
mod sdiag;
#[path = "../day/table.rs"]
mod table;
#[path = "../day/tally.rs"]
mod tally;
#[path = "../day/workload.rs"]
mod workload;

use anyhow::{Context, Result, bail};

use pass::Kind;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let minutes = args.next().unwrap_or_else(|| "6".into());
    let minutes: f64 = minutes.parse().with_context(|| format!("MINUTES: {minutes:?}"))?;
    if !(1.0..=1440.0).contains(&minutes) {
        bail!("MINUTES: {minutes}: from 1 to 1440");
    }
    let seed = args.next().unwrap_or_else(|| "1".into());
    let seed: u64 = seed.parse().with_context(|| format!("SEED: {seed:?}"))?;
    let kinds = args.next().unwrap_or_else(|| "without,flex,global".into());
    let kinds: Vec<Kind> = kinds.split(',').map(kind).collect::<Result<_>>()?;

    let events = workload::day(seed);
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut passes = Vec::new();
    for kind in kinds {
        let pass = pass::run(kind, &events, minutes)?;
        eprintln!("sjpd-day: {} took {:.0} s; load {}", pass.name, pass.seconds, load().trim());
        for failure in pass.tally.iter().flat_map(|t| &t.failures) {
            eprintln!("sjpd-day: failed: {failure}");
        }
        passes.push(pass);
    }
    let slurm = passes.first().map(|p| p.slurm.as_str()).unwrap_or_default();
    println!(
        "Slurm {slurm}, {} nodes, seed {seed}; 24 hours in {minutes} minutes ({:.0} times \
         faster); load {}\n",
        workload::SLIM.0 + workload::FAT.0,
        workload::DAY / minutes,
        load().trim()
    );
    print!("{}", table::tables(&passes));
    Ok(())
}

/// A pass by its word.
fn kind(word: &str) -> Result<Kind> {
    match word {
        "without" => Ok(Kind::Without),
        "off" => Ok(Kind::With("off")),
        "flex" => Ok(Kind::With("flex")),
        "global" => Ok(Kind::With("global")),
        _ => bail!("PASSES: {word:?}: without, off, flex or global, with commas between"),
    }
}
