//! Stopping, starting, signalling the daemons of a running cluster, and waiting for
//! them.

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cluster::{DAEMON_DEADLINE, TestCluster, check_alive, tail};
use crate::commands::parse_record;
use crate::process::{Background, read_lossy};
use crate::root::RunAs;
use crate::wait::wait_for;

/// A daemon of the cluster, to be signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon<'a> {
    /// The controller.
    Slurmctld,
    /// The accounting daemon.
    Slurmdbd,
    /// The slurmd of a node.
    Slurmd(&'a str),
}

impl TestCluster {
    /// Waits until slurmctld answers.
    ///
    /// # Errors
    /// When it has ended, or does not answer in a minute.
    pub fn wait_slurmctld(&self) -> Result<()> {
        wait_for(DAEMON_DEADLINE, "slurmctld answers", || {
            if let Some(slurmctld) = &mut self.daemons().slurmctld {
                check_alive(slurmctld)
                    .with_context(|| tail(&self.log_file("slurmctld.log"), 15))?;
            }
            let ping = self.run(RunAs::Root, "scontrol", &["ping"])?;
            Ok(if ping.stdout.contains("is UP") { Ok(()) } else { Err(ping.stdout + &ping.stderr) })
        })
    }

    /// Waits until every node with a slurmd has registered and is up.
    ///
    /// # Errors
    /// When one is not in a minute.
    pub fn wait_all_usable(&self) -> Result<()> {
        self.wait_nodes_usable(&self.spec().slurmd_names()?)
    }

    /// Waits until these nodes have registered and are up.
    ///
    /// # Errors
    /// When they are not in a minute.
    pub fn wait_nodes_usable(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let list = names.join(",");
        wait_for(DAEMON_DEADLINE, "the nodes are up", || {
            let text = self.cmd("scontrol", &["show", "nodes", &list, "-o"])?;
            let waiting: Vec<String> = text
                .lines()
                .filter(|l| !l.trim().is_empty())
                .map(parse_record)
                .filter_map(|mut node| {
                    let state = node.remove("State").unwrap_or_default();
                    let words = ["UNKNOWN", "DOWN", "NOT_RESPONDING", "INVAL", "*"];
                    let bad = words.iter().any(|w| state.contains(w));
                    bad.then(|| {
                        let [name, reason] =
                            ["NodeName", "Reason"].map(|key| node.remove(key).unwrap_or_default());
                        format!("{name} {state} {reason}")
                    })
                })
                .collect();
            Ok(if waiting.is_empty() { Ok(()) } else { Err(waiting.join(", ")) })
        })
    }

    /// Stops slurmctld with SIGTERM and returns its exit code.
    ///
    /// # Errors
    /// When it is not running, or does not end in a minute.
    pub fn stop_slurmctld(&self) -> Result<i32> {
        let mut slurmctld =
            self.daemons().slurmctld.take().context("slurmctld is not running: nothing to stop")?;
        slurmctld.terminate(DAEMON_DEADLINE)
    }

    /// Kills slurmctld (-9).
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill9_slurmctld(&self) -> Result<()> {
        let mut slurmctld =
            self.daemons().slurmctld.take().context("slurmctld is not running: nothing to kill")?;
        slurmctld.kill9()
    }

    /// Starts slurmctld and waits until it answers.
    ///
    /// # Errors
    /// When it runs already, or does not come up.
    pub fn start_slurmctld(&self) -> Result<()> {
        if self.slurmctld_alive() {
            bail!("slurmctld is running already");
        }
        let slurmctld = self.spawn_slurmctld()?;
        self.daemons().slurmctld = Some(slurmctld);
        self.wait_slurmctld()
    }

    /// Stops and starts slurmctld; the state is kept.
    ///
    /// # Errors
    /// When it did not end with code 0, or does not come up.
    pub fn restart_slurmctld(&self) -> Result<()> {
        let code = self.stop_slurmctld()?;
        if code != 0 {
            bail!("slurmctld ended with code {code}");
        }
        self.start_slurmctld()
    }

    /// The pid of slurmctld, when it runs.
    pub fn slurmctld_pid(&self) -> Option<u32> {
        self.daemons().slurmctld.as_ref().map(Background::pid)
    }

    /// Whether the slurmctld that was started last has not ended.
    pub fn slurmctld_alive(&self) -> bool {
        self.daemons().slurmctld.as_mut().is_some_and(|d| matches!(d.ended(), Ok(None)))
    }

    /// What slurmctld has logged so far.
    pub fn slurmctld_log(&self) -> String {
        read_lossy(&self.log_file("slurmctld.log"))
    }

    /// Sends a signal to a daemon.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, daemon: Daemon<'_>, signal: Signal) -> Result<()> {
        let mut daemons = self.daemons();
        let process = match daemon {
            Daemon::Slurmctld => daemons.slurmctld.as_mut(),
            Daemon::Slurmdbd => daemons.slurmdbd.as_mut(),
            Daemon::Slurmd(node) => daemons.slurmds.get_mut(node),
        };
        process.with_context(|| format!("{daemon:?} is not running"))?.signal(signal)
    }

    /// Kills slurmdbd (-9).
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill9_slurmdbd(&self) -> Result<()> {
        let slurmdbd = self.daemons().slurmdbd.take();
        slurmdbd.context("slurmdbd is not running: nothing to kill")?.kill9()
    }

    /// Starts slurmdbd again and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_slurmdbd(&self) -> Result<()> {
        let slurmdbd = self.spawn(RunAs::Root, "slurmdbd-out", "slurmdbd", &["-D"])?;
        self.daemons().slurmdbd = Some(slurmdbd);
        wait_for(DAEMON_DEADLINE, "slurmdbd answers", || {
            let out = self.run(RunAs::Root, "sacctmgr", &["-nP", "show", "qos"])?;
            Ok(if out.success() { Ok(()) } else { Err(out.stderr) })
        })
    }

    /// Starts the slurmd of a node again after it was ended, and waits until the
    /// node is up.
    ///
    /// # Errors
    /// When the node does not come up.
    pub fn restart_slurmd(&self, node: &str) -> Result<()> {
        {
            let mut daemons = self.daemons();
            drop(daemons.slurmds.remove(node));
            let slurmd = self.spawn_slurmd(&daemons, node)?;
            daemons.slurmds.insert(node.into(), slurmd);
        }
        self.wait_nodes_usable(&[node.to_string()])
    }
}
