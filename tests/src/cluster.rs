//! A throwaway real Slurm cluster: how it is started, watched and taken down.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::lua::DIR_MARK;
use crate::ports::Ports;
use crate::process::{Background, CommandLine, Output, read_lossy};
use crate::root::{RunAs, Slurm, bare_env, lock_file};
use crate::spec::{ClusterSpec, Place};
use crate::wait::wait_for;
use crate::{accounting, leftovers};

/// The longest a daemon may take to start or to stop.
pub(crate) const DAEMON_DEADLINE: Duration = Duration::from_secs(60);

/// How often a start is tried again with other ports.
const START_TRIES: usize = 3;

/// A running Slurm cluster in a temporary folder.
///
/// Dropped, it is taken down and its folder removed; after a panic, or with
/// `SJP_TEST_KEEP=1`, the folder stays and the ends of its logs are printed.
#[derive(Debug)]
pub struct TestCluster {
    spec: ClusterSpec,
    slurm: Slurm,
    version: String,
    dir: PathBuf,
    daemons: Mutex<Daemons>,
    keep: AtomicBool,
    /// Held while this process uses the folder.
    _owner: Flock<File>,
}

#[derive(Debug, Default)]
pub(crate) struct Daemons {
    pub munged: Option<Background>,
    pub mariadb: Option<Background>,
    pub slurmdbd: Option<Background>,
    pub slurmctld: Option<Background>,
    /// The namespace that slurmds, job steps and jobs live and die in.
    pub namespace: Option<Background>,
    pub slurmds: BTreeMap<String, Background>,
    /// Reserved as long as the daemons live.
    ports: Ports,
}

impl ClusterSpec {
    /// Starts the cluster: about 5 s until every node is idle.
    ///
    /// # Errors
    /// When a daemon does not start; the message holds the ends of the logs, and
    /// the folder stays.
    pub fn start(self) -> Result<TestCluster> {
        TestCluster::start(self)
    }
}

impl TestCluster {
    /// Starts the cluster that `spec` describes.
    ///
    /// # Errors
    /// See [`ClusterSpec::start`].
    pub fn start(spec: ClusterSpec) -> Result<Self> {
        let slurm = Slurm::from_env()?;
        let base = base_dir();
        slurm.prepare(&base)?;
        let version = slurm.version()?;
        let (dir, owner) = make_dir(&base)?;
        let cluster = TestCluster {
            spec,
            slurm,
            version,
            dir,
            daemons: Mutex::default(),
            keep: AtomicBool::new(false),
            _owner: owner,
        };
        for attempt in 1.. {
            let Err(error) = cluster.start_daemons(&base) else { break };
            let clash = cluster.log_tails(50).contains("Address already in use");
            cluster.kill_daemons();
            if !clash || attempt == START_TRIES {
                cluster.keep();
                return Err(error.context("the test cluster did not start"));
            }
        }
        Ok(cluster)
    }

    /// The cluster's folder, readable by every user.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The slurm.conf (what `SLURM_CONF` is set to).
    pub fn conf_path(&self) -> PathBuf {
        self.dir.join("slurm.conf")
    }

    /// The job_submit.lua, which is there when the spec asked for one.
    pub fn job_submit_path(&self) -> PathBuf {
        self.dir.join("job_submit.lua")
    }

    /// The Slurm installation that the cluster runs on.
    pub fn slurm(&self) -> &Slurm {
        &self.slurm
    }

    /// Slurm's version, such as `22.05.8`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Year and month of the version, such as `(22, 5)`.
    ///
    /// # Panics
    /// When Slurm's version does not begin with two numbers.
    pub fn release(&self) -> (u32, u32) {
        let mut parts = self.version.split('.').map(|p| p.parse().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(year), Some(month)) => (year, month),
            _ => panic!("no release in the version {:?}", self.version),
        }
    }

    /// What the cluster was started from.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Keeps the folder when the cluster is dropped, and prints where it is.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    pub(crate) fn daemons(&self) -> MutexGuard<'_, Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(name)
    }

    /// A command line that runs where the daemons run, as `user`.
    pub(crate) fn command_line(&self, user: RunAs, program: &str, args: &[&str]) -> CommandLine {
        let argv = std::iter::once(program).chain(args.iter().copied());
        let mut line = self.slurm.command(user, argv);
        line.env = bare_env();
        line.env.push(("SLURM_CONF".into(), self.conf_path().into_os_string()));
        line.dir = Some(self.dir.join("work"));
        if let Slurm::Chroot(_) = self.slurm {
            // chroot(8) begins in `/`; env takes the command into the work folder.
            let work = self.dir.join("work").display().to_string();
            let argv =
                ["env", "-C", work.as_str(), program].into_iter().chain(args.iter().copied());
            line.argv = self.slurm.command(user, argv).argv;
        }
        line
    }

    /// Starts a program in the background with both outputs in `log/NAME.log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        &self,
        user: RunAs,
        name: &str,
        program: &str,
        args: &[&str],
    ) -> Result<Background> {
        let line = self.command_line(user, program, args);
        Background::start(name, line, &self.log_file(&format!("{name}.log")))
    }

    fn start_daemons(&self, base: &Path) -> Result<()> {
        let mut daemons = self.daemons();
        let names = self.spec.slurmd_names()?;
        let mut ports = Ports::default();
        let mut take = || ports.take(&base.join("ports"));
        let (slurmctld_port, slurmdbd_port, database_port) = (take()?, take()?, take()?);
        let slurmd_ports = names.iter().map(|_| take()).collect::<Result<Vec<_>>>()?;
        daemons.ports = ports;
        let hostname = hostname()?;
        let place = Place {
            dir: &self.dir.display().to_string(),
            hostname: &hostname,
            slurmctld_port,
            slurmdbd_port,
            slurmd_ports: &slurmd_ports,
        };
        self.write("slurm.conf", &self.spec.slurm_conf_text(&place)?)?;
        self.write("gres.conf", &self.spec.gres_conf())?;
        self.write("cgroup.conf", "# No cgroups are used.\n")?;
        for name in &names {
            let spool = self.dir.join("spool").join(name);
            std::fs::create_dir_all(&spool)
                .with_context(|| format!("cannot make {}", spool.display()))?;
        }
        if let Some(text) = self.spec.lua() {
            self.write("job_submit.lua", &text.replace(DIR_MARK, place.dir))?;
        }
        if self.spec.staged() {
            self.stage()?;
        }
        self.start_munged(&mut daemons)?;
        if self.spec.accounting().is_some() {
            accounting::start(self, &mut daemons, base, &hostname, slurmdbd_port, database_port)?;
        }
        daemons.slurmctld = Some(self.spawn_slurmctld()?);
        daemons.namespace = self.start_namespace()?;
        for name in &names {
            let slurmd = self.spawn_slurmd(&daemons, name)?;
            daemons.slurmds.insert(name.clone(), slurmd);
        }
        drop(daemons);
        self.wait_slurmctld()?;
        self.wait_nodes_usable(&names)
    }

    /// Writes a file of the cluster's folder, through a rename.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        let new = self.dir.join(format!("{name}.new"));
        std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        std::fs::rename(&new, &path)
            .with_context(|| format!("cannot rename {} to {}", new.display(), path.display()))?;
        Ok(path)
    }

    fn start_munged(&self, daemons: &mut Daemons) -> Result<()> {
        let key = self.dir.join("munge.key");
        let random = {
            use std::io::Read as _;
            let mut bytes = vec![0u8; 128];
            let mut source = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
            source.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
            bytes
        };
        std::fs::write(&key, random).with_context(|| format!("cannot write {}", key.display()))?;
        std::fs::set_permissions(&key, Permissions::from_mode(0o600))
            .with_context(|| format!("chmod of {}", key.display()))?;
        let at = |name: &str| self.dir.join(name).display().to_string();
        let socket = at("munge.socket");
        let args = [
            "--foreground".to_string(),
            "--force".to_string(),
            format!("--key-file={}", at("munge.key")),
            format!("--socket={socket}"),
            format!("--pid-file={}", at("munged.pid")),
            format!("--seed-file={}", at("munged.seed")),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut munged = self.spawn(RunAs::Root, "munged", "munged", &args)?;
        wait_for(DAEMON_DEADLINE, "munged makes its socket", || {
            check_alive(&mut munged)?;
            Ok(if Path::new(&socket).exists() { Ok(()) } else { Err("no socket") })
        })?;
        daemons.munged = Some(munged);
        Ok(())
    }

    pub(crate) fn spawn_slurmctld(&self) -> Result<Background> {
        if let Some(primary) = self.spec.controller_names().first() {
            return self.spawn_controller(primary);
        }
        let conf = self.conf_path().display().to_string();
        self.spawn(RunAs::Root, "slurmctld-out", "slurmctld", &["-D", "-f", &conf])
    }

    /// A PID namespace for the slurmds: whatever ends the test, jobs end with it.
    ///
    /// `None` where the system does not allow one; stray job steps are then looked
    /// for when the cluster is taken down.
    fn start_namespace(&self) -> Result<Option<Background>> {
        let proc_dir = self.slurm.root().join("proc").display().to_string();
        let unshare = |command: &[&str]| {
            let mount = format!("--mount-proc={proc_dir}");
            let words = ["unshare", "--pid", "--fork", "--kill-child=KILL", mount.as_str()];
            let mut line = CommandLine::new(words.into_iter().chain(command.iter().copied()));
            line.env = bare_env();
            line
        };
        if !unshare(&["true"]).run()?.success() {
            return Ok(None);
        }
        let line = unshare(&["sleep", "infinity"]);
        let namespace = Background::start("namespace", line, &self.log_file("namespace.log"))?;
        wait_for(DAEMON_DEADLINE, "the namespace has its first process", || {
            let sleeping = namespace.child_pid()?.filter(|pid| {
                read_lossy(Path::new(&format!("/proc/{pid}/comm"))).trim_end() == "sleep"
            });
            Ok(sleeping.ok_or("no process"))
        })?;
        Ok(Some(namespace))
    }

    pub(crate) fn spawn_slurmd(&self, daemons: &Daemons, node: &str) -> Result<Background> {
        let conf = self.conf_path().display().to_string();
        let mut line =
            self.command_line(RunAs::Root, "slurmd", &["-D", "-N", node, "-f", conf.as_str()]);
        if let Some(namespace) = &daemons.namespace {
            let pid = namespace.child_pid()?.context("the namespace has ended")?.to_string();
            // Root and working folder too: with the mount namespace alone, a test that
            // runs in a chroot would find its slurmds outside.
            let words = ["nsenter", "-t", pid.as_str(), "--pid", "--mount", "--root", "--wd"];
            line = line.prefixed(words);
        }
        let name = format!("slurmd-out-{node}");
        Background::start(&name, line, &self.log_file(&format!("{name}.log")))
    }

    /// Runs a program to its end where the daemons run, with a clean environment
    /// and `SLURM_CONF`, in the cluster's `work` folder.
    ///
    /// # Errors
    /// When it cannot be started; not when it fails.
    pub fn run(&self, user: RunAs, program: &str, args: &[&str]) -> Result<Output> {
        self.command_line(user, program, args).run()
    }

    /// Takes the cluster down in good order.
    ///
    /// # Errors
    /// When slurmctld had died, or did not end with code 0 (a module that breaks it
    /// on the way out counts).
    pub fn stop(self) -> Result<()> {
        let stopped = match self.daemons().slurmctld.take() {
            None => Ok(()),
            Some(mut slurmctld) => match slurmctld.ended()? {
                Some(code) => Err(anyhow::anyhow!("slurmctld had ended with code {code}")),
                None => slurmctld.terminate(DAEMON_DEADLINE).and_then(|code| match code {
                    0 => Ok(()),
                    code => Err(anyhow::anyhow!("slurmctld ended with code {code}")),
                }),
            },
        };
        if stopped.is_err() {
            self.keep();
        }
        stopped
    }

    fn kill_daemons(&self) {
        let mut daemons = std::mem::take(&mut *self.daemons());
        drop(daemons.slurmctld.take());
        if let Some(mut namespace) = daemons.namespace.take() {
            // With its first process the whole namespace goes, and unshare after it.
            let gone = namespace
                .kill_child()
                .and_then(|()| namespace.wait(DAEMON_DEADLINE))
                .with_context(|| "the jobs' namespace does not go away");
            if let Err(error) = gone {
                eprintln!("sjp-tests: {error:#}");
            }
        }
        drop(daemons);
        leftovers::kill_strays(&self.conf_path());
    }

    /// The ends of all logs of the cluster.
    pub fn log_tails(&self, lines: usize) -> String {
        let Ok(entries) = std::fs::read_dir(self.dir.join("log")) else { return String::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.sort();
        paths.iter().map(|p| tail(p, lines)).filter(|t| !t.is_empty()).collect()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.kill_daemons();
        let kept = self.keep.load(Ordering::Relaxed)
            || std::thread::panicking()
            || std::env::var_os("SJP_TEST_KEEP").is_some_and(|v| v == "1");
        if !kept {
            if let Err(error) = std::fs::remove_dir_all(&self.dir) {
                eprintln!("sjp-tests: cannot remove {}: {error}", self.dir.display());
            }
            return;
        }
        // Without the mark, the next test run would take the folder for a leftover.
        let _ = std::fs::write(self.dir.join(leftovers::KEEP_MARK), "");
        let dir = self.dir.display();
        eprintln!("---- Slurm {} test cluster in {dir}: ends of the logs", self.version);
        eprint!("{}", self.log_tails(25));
        eprintln!("---- kept for a look: {dir}/slurm.conf, {dir}/log/, job output in {dir}/work");
        eprintln!("     remove it with: rm -r {dir}");
    }
}

/// Fails when a process has ended.
pub(crate) fn check_alive(process: &mut Background) -> Result<()> {
    match process.ended()? {
        None => Ok(()),
        Some(code) => {
            bail!("{} ended with code {code}\n{}", process.name(), tail(process.log_path(), 15))
        }
    }
}

/// The last lines of a file, under its name; empty when it is empty.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = read_lossy(path);
    if text.trim().is_empty() {
        return String::new();
    }
    let all: Vec<&str> = text.lines().collect();
    let end = all[all.len().saturating_sub(lines)..].join("\n");
    format!("== {}\n{end}\n", path.display())
}

/// The folder that holds all test clusters: `SJP_TEST_DIR`, or one in the temporary
/// folder.
fn base_dir() -> PathBuf {
    std::env::var_os("SJP_TEST_DIR")
        .map_or_else(|| std::env::temp_dir().join("sjp-tests"), PathBuf::from)
}

fn hostname() -> Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(name.trim().split('.').next().unwrap_or("localhost").to_string())
}

/// A new folder for a cluster, owned by this process; leftovers of others go.
fn make_dir(base: &Path) -> Result<(PathBuf, Flock<File>)> {
    let _lock = lock_file(&base.join("prepare.lock"))?;
    leftovers::sweep(base);
    let dir = tempfile::Builder::new()
        .prefix(leftovers::PREFIX)
        .tempdir_in(base)
        .with_context(|| format!("cannot make a folder in {}", base.display()))?
        .keep();
    for (name, mode) in
        [(".", 0o755), ("log", 0o755), ("state", 0o700), ("spool", 0o755), ("work", 0o1777)]
    {
        let path = dir.join(name);
        std::fs::create_dir_all(&path)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(mode)))
            .with_context(|| format!("cannot make {}", path.display()))?;
    }
    let path = dir.join(leftovers::OWNER_LOCK);
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let owner = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| error)
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok((dir, owner))
}
