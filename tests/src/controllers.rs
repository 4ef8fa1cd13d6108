//! Several slurmctld on one machine, each on a host of its own as far as Slurm can
//! tell: a UTS namespace gives it its name, a mount namespace its `run` folder and
//! an /etc/hosts in which the names have loopback addresses of their own.
//!
//! They share slurm.conf and StateSaveLocation, as Slurm wants it. sjpd on such a
//! host has a state folder of its own at the path that all of them know.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cluster::TestCluster;
use crate::process::{Background, CommandLine, Output};
use crate::root::RunAs;
use crate::sjpd::{Sjpd, sjp_toml};
use crate::spec::ClusterSpec;

const ENTER: &str = r#"hostname "$1" && mount --bind "$2" "$3" && mount --bind "$4" "$5" || exit 70
shift 5
exec "$@""#;

impl ClusterSpec {
    /// Controllers on hosts of these names, the primary first, which is started with
    /// the cluster; a backup takes over after `timeout` seconds.
    pub fn controllers(mut self, names: &[&str], timeout: u32) -> Self {
        let hosts: Vec<String> =
            (1..).zip(names).map(|(i, n)| format!("SlurmctldHost={n}(127.0.0.{i})\n")).collect();
        self.set_controllers(names);
        self.slurm_conf(&format!(
            "{}CommunicationParameters=NoCtldInAddrAny\nSlurmctldTimeout={timeout}\n",
            hosts.concat()
        ))
    }
}

impl TestCluster {
    /// The state folder of sjpd on this host, as it is called from outside.
    pub fn state_dir_on(&self, host: &str) -> PathBuf {
        self.dir().join(format!("run-{host}"))
    }

    /// A command line that runs on this host.
    fn on_host(&self, host: &str, line: CommandLine) -> Result<CommandLine> {
        let controllers = self.spec().controller_names();
        let hosts: String = (1..)
            .zip(controllers)
            .map(|(i, name)| format!("127.0.0.{i} {name}\n"))
            .chain(["127.0.0.1 localhost\n".to_string()])
            .collect();
        let hosts = self.write("hosts", &hosts)?;
        let (run, state) = (self.dir().join("run"), self.state_dir_on(host));
        for dir in [&run, &state] {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let inside = |path: &str| {
            let path = self.slurm().root().join(path.trim_start_matches('/'));
            path.display().to_string()
        };
        let words = [
            "unshare".to_string(),
            "--uts".into(),
            "--mount".into(),
            "sh".into(),
            "-c".into(),
            ENTER.into(),
            "sh".into(),
            host.into(),
            hosts.display().to_string(),
            inside("/etc/hosts"),
            state.display().to_string(),
            inside(&run.display().to_string()),
        ];
        Ok(line.prefixed(words))
    }

    /// Starts the slurmctld of this host; what it takes over is up to it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_controller(&self, host: &str) -> Result<Background> {
        let text = std::fs::read_to_string(self.conf_path()).context("reading slurm.conf")?;
        let own = format!("slurmctld-{host}");
        let text = text.replace("/slurmctld.pid", &format!("/{own}.pid"));
        let text = if self.spec().controller_names().first().is_some_and(|first| first == host) {
            text
        } else {
            text.replace("/slurmctld.log", &format!("/{own}.log"))
        };
        let conf = self.write(&format!("slurm-{host}.conf"), &text)?.display().to_string();
        let line = self.command_line(RunAs::Root, "slurmctld", &["-D", "-f", &conf]);
        let line = self.on_host(host, line)?;
        Background::start(&own, line, &self.log_file(&format!("{own}-out.log")))
    }

    fn sjp_toml_on(&self, host: &str) -> String {
        self.dir().join(format!("sjp-{host}.toml")).display().to_string()
    }

    /// Starts sjpd on this host, with an sjp.toml and a decision log of its own, and
    /// waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready in 30 s.
    pub fn start_sjpd_on(&self, host: &str, overrides: &str) -> Result<Sjpd> {
        let mut table: toml::Table =
            sjp_toml(self.dir(), overrides)?.parse().context("what was just written")?;
        if let Some(toml::Value::Table(general)) = table.get_mut("general") {
            for (key, name) in [("log_file", "jsonl"), ("text_log", "log")] {
                let path = self.log_file(&format!("decisions-{host}.{name}"));
                general.insert(key.into(), toml::Value::String(path.display().to_string()));
            }
        }
        let text = toml::to_string(&table).context("writing sjp.toml")?;
        self.write(&format!("sjp-{host}.toml"), &text)?;
        let bin = self.program("SJPD_BIN", "sjpd")?;
        let line = self.command_line(RunAs::Root, &bin, &["--config", &self.sjp_toml_on(host)]);
        let line = self.on_host(host, line)?;
        let name = format!("sjpd-{host}");
        let process = Background::start(&name, line, &self.log_file(&format!("{name}.log")))?;
        let mut sjpd = Sjpd::new(process, self.state_dir_on(host));
        sjpd.wait_ready()?;
        Ok(sjpd)
    }

    /// Runs `sjp` on this host.
    ///
    /// # Errors
    /// When it cannot be started; not when it fails.
    pub fn sjp_on(&self, host: &str, args: &[&str]) -> Result<Output> {
        let bin = self.program("SJP_BIN", "sjp")?;
        let toml = self.sjp_toml_on(host);
        let args: Vec<&str> =
            ["--config", toml.as_str()].into_iter().chain(args.iter().copied()).collect();
        self.on_host(host, self.command_line(RunAs::Root, &bin, &args))?.run()
    }

    /// The decision log of the sjpd on this host.
    pub fn decisions_on(&self, host: &str) -> Vec<serde_json::Value> {
        self.decisions_in(&format!("decisions-{host}.jsonl"))
    }
}
