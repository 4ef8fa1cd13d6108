//! sjpd on a test cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cluster::TestCluster;
use crate::lua::{build_dir, install};
use crate::process::{Background, read_lossy};
use crate::root::{RunAs, Slurm};
use crate::wait::wait_for;

/// The longest sjpd may take to be ready, or to end.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running sjpd. Dropped, it is killed.
#[derive(Debug)]
pub struct Sjpd {
    process: Background,
    state_dir: PathBuf,
    /// Where its log began in the file, which several runs share.
    log_begin: usize,
}

/// A setting of sjp.toml in the cluster's folder: mode enforce, everything else at
/// its default, every path inside the folder; then `overrides` (TOML), which wins.
///
/// # Errors
/// When `overrides` is no TOML.
pub fn sjp_toml(dir: &Path, overrides: &str) -> Result<String> {
    let at = |name: &str| toml::Value::String(dir.join(name).display().to_string());
    let mut general = toml::Table::new();
    general.insert("mode".into(), toml::Value::String("enforce".into()));
    general.insert("state_dir".into(), at("run"));
    general.insert("log_file".into(), at("log/sjp-decisions.jsonl"));
    general.insert("text_log".into(), at("log/sjp-decisions.log"));
    general.insert("disable_file".into(), at("disable"));
    let mut limits = toml::Table::new();
    limits.insert("state_file".into(), at("limits.json"));
    let mut table = toml::Table::new();
    table.insert("general".into(), toml::Value::Table(general));
    table.insert("limits".into(), toml::Value::Table(limits));
    let overrides: toml::Table = overrides.parse().context("the overrides for sjp.toml")?;
    merge(&mut table, overrides);
    toml::to_string(&table).context("writing sjp.toml")
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// A program of the project: what the variable names, or the one of this build.
fn program(variable: &str, name: &str) -> Result<PathBuf> {
    let path = match std::env::var_os(variable).filter(|v| !v.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => build_dir()?.join(name),
    };
    if !path.exists() {
        bail!("no {}: build it (`cargo build -p sjpd`), or set {variable}", path.display());
    }
    Ok(path)
}

impl TestCluster {
    /// The path of sjp.toml, once it was written.
    pub fn sjp_toml_path(&self) -> PathBuf {
        self.dir().join("sjp.toml")
    }

    /// Writes sjp.toml (see [`sjp_toml`]).
    ///
    /// # Errors
    /// When `overrides` is no TOML.
    pub fn write_sjp_toml(&self, overrides: &str) -> Result<PathBuf> {
        self.write("sjp.toml", &sjp_toml(self.dir(), overrides)?)
    }

    /// The path of a program of the project as the cluster sees it.
    pub(crate) fn program(&self, variable: &str, name: &str) -> Result<String> {
        let path = program(variable, name)?;
        if *self.slurm() == Slurm::Native {
            return Ok(path.display().to_string());
        }
        // A folder of its own: `sjp` beside slurm.conf is the one with sjp.lua.
        let bin = self.dir().join("bin");
        std::fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
        let inside = bin.join(name);
        if !inside.exists() {
            install(&path, &inside)?;
        }
        Ok(inside.display().to_string())
    }

    /// Writes sjp.toml with `overrides`, starts sjpd (`SJPD_BIN`, or the one of this
    /// build) and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready in 30 s.
    pub fn start_sjpd(&self, overrides: &str) -> Result<Sjpd> {
        self.write_sjp_toml(overrides)?;
        let mut sjpd = self.spawn_sjpd(&[])?;
        sjpd.wait_ready()?;
        Ok(sjpd)
    }

    /// Starts sjpd with the sjp.toml that is there and more arguments; does not wait.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_sjpd(&self, args: &[&str]) -> Result<Sjpd> {
        let state_dir = self.dir().join("run");
        std::fs::create_dir_all(&state_dir)
            .with_context(|| format!("cannot make {}", state_dir.display()))?;
        let toml = self.sjp_toml_path().display().to_string();
        let bin = self.program("SJPD_BIN", "sjpd")?;
        let args: Vec<&str> =
            ["--config", toml.as_str()].into_iter().chain(args.iter().copied()).collect();
        let log_begin = read_lossy(&self.log_file("sjpd.log")).len();
        let process = self.spawn(RunAs::Root, "sjpd", &bin, &args)?;
        Ok(Sjpd { process, state_dir, log_begin })
    }

    /// Starts another sjpd, with the overrides of sjp.toml, whose state folder and logs
    /// are `<name>` and `<name>.jsonl`; waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready in 30 s.
    pub fn start_other_sjpd(&self, name: &str, overrides: &str) -> Result<Sjpd> {
        let state_dir = self.dir().join(name);
        let at = |file: String| self.log_file(&file).display().to_string();
        let own = format!(
            "[general]\nstate_dir = {:?}\nlog_file = {:?}\ntext_log = {:?}\n\
             [limits]\nstate_file = {:?}\n",
            state_dir.display().to_string(),
            at(format!("{name}.jsonl")),
            at(format!("{name}.log")),
            self.dir().join(format!("{name}.json")).display().to_string(),
        );
        let mut table: toml::Table = own.parse().context("the paths of another sjpd")?;
        merge(&mut table, overrides.parse().context("the overrides for sjp.toml")?);
        let text = sjp_toml(self.dir(), &toml::to_string(&table)?)?;
        let toml = self.write(&format!("{name}.toml"), &text)?.display().to_string();
        std::fs::create_dir_all(&state_dir)
            .with_context(|| format!("cannot make {}", state_dir.display()))?;
        let bin = self.program("SJPD_BIN", "sjpd")?;
        let process = self.spawn(RunAs::Root, name, &bin, &["--config", toml.as_str()])?;
        let mut sjpd = Sjpd { process, state_dir, log_begin: 0 };
        sjpd.wait_ready()?;
        Ok(sjpd)
    }

    /// Runs the admin command `sjp` (`SJP_BIN`, or the one of this build) with the
    /// cluster's sjp.toml.
    ///
    /// # Errors
    /// When it cannot be started; not when it fails.
    pub fn sjp(&self, args: &[&str]) -> Result<crate::Output> {
        let toml = self.sjp_toml_path().display().to_string();
        let bin = self.program("SJP_BIN", "sjp")?;
        let args: Vec<&str> =
            ["--config", toml.as_str()].into_iter().chain(args.iter().copied()).collect();
        self.run(RunAs::Root, &bin, &args)
    }

    /// The decision log, one JSON value a line; lines not yet whole are left out.
    pub fn decisions(&self) -> Vec<serde_json::Value> {
        self.decisions_in("sjp-decisions.jsonl")
    }

    /// The same of another decision log in the folder of logs.
    pub fn decisions_in(&self, name: &str) -> Vec<serde_json::Value> {
        let text = read_lossy(&self.log_file(name));
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }
}

impl Sjpd {
    pub(crate) fn new(process: Background, state_dir: PathBuf) -> Self {
        Self { process, state_dir, log_begin: 0 }
    }

    /// Waits until the table can be opened and the log says "ready".
    ///
    /// # Errors
    /// When it ended, or is not ready in 30 s; the message holds its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        let table = self.state_dir.join("table");
        let waited = wait_for(DEADLINE, "sjpd is ready", || {
            if let Some(code) = self.process.ended()? {
                bail!("sjpd ended with code {code}");
            }
            let table_there = std::fs::metadata(&table).is_ok();
            let said = self.log().contains("ready");
            Ok(if table_there && said {
                Ok(())
            } else {
                Err(format!("table there: {table_there}, log says ready: {said}"))
            })
        });
        waited.with_context(|| format!("its log:\n{}", self.log()))
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The exit code, once it has ended.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&mut self) -> Result<Option<i32>> {
        self.process.ended()
    }

    /// Waits for its end and returns the exit code.
    ///
    /// # Errors
    /// When it has not ended in 30 s.
    pub fn wait(&mut self) -> Result<i32> {
        self.process.wait(DEADLINE)
    }

    /// Ends it with SIGTERM and returns the exit code.
    ///
    /// # Errors
    /// When it has not ended in 30 s.
    pub fn stop(mut self) -> Result<i32> {
        self.process.terminate(DEADLINE)
    }

    /// Kills it (-9).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill9(mut self) -> Result<()> {
        self.process.kill9()
    }

    /// Sends it a signal, such as SIGSTOP, SIGCONT or SIGHUP.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// What this run of it has logged so far.
    pub fn log(&self) -> String {
        self.process.log().get(self.log_begin..).unwrap_or_default().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_win_and_the_rest_stays() {
        let text = sjp_toml(Path::new("/d"), "[general]\nmode = \"advise\"\n[pin]\nmax_age = 3.0");
        let table: toml::Table = text.unwrap().parse().unwrap();
        assert_eq!(table["general"]["mode"].as_str(), Some("advise"));
        assert_eq!(table["general"]["state_dir"].as_str(), Some("/d/run"));
        assert_eq!(table["pin"]["max_age"].as_float(), Some(3.0));
    }
}
