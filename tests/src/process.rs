//! Starting processes: short commands with captured output, and background
//! processes that cannot outlive the test process.
//!
//! Background processes get `setpriv --pdeathsig KILL`. The kernel binds that
//! signal to the *thread* that forked, so all of them are started by one thread
//! that lives as long as the test process: a test thread that ends does not take
//! a shared cluster with it, and a test process that is killed takes all of it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::wait_for;

/// The longest a short command may take, in seconds (then `timeout` ends it).
pub(crate) const COMMAND_TIMEOUT_S: u32 = 120;

/// What a command printed, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; 128 + signal number when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Whether the exit code was 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }

    /// The standard output.
    ///
    /// # Errors
    /// When the exit code was not 0; the message holds both outputs.
    pub fn ok(self) -> Result<String> {
        if self.code != 0 {
            bail!(
                "`{}` ended with code {}\nstderr: {}\nstdout: {}",
                self.command,
                self.code,
                self.stderr.trim_end(),
                self.stdout.trim_end()
            );
        }
        Ok(self.stdout)
    }
}

/// A command line with its environment and folder, independent of how it is run.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    pub argv: Vec<OsString>,
    pub env: Vec<(String, OsString)>,
    pub dir: Option<PathBuf>,
}

impl CommandLine {
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        CommandLine { argv: argv.into_iter().map(Into::into).collect(), env: Vec::new(), dir: None }
    }

    pub fn prefixed<S: Into<OsString>>(mut self, prefix: impl IntoIterator<Item = S>) -> Self {
        let mut argv: Vec<OsString> = prefix.into_iter().map(Into::into).collect();
        argv.append(&mut self.argv);
        self.argv = argv;
        self
    }

    pub fn shown(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|a| a.to_string_lossy()).collect();
        words.join(" ")
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where the test harness starts processes"
    )]
    fn command(&self) -> Result<Command> {
        let Some((program, args)) = self.argv.split_first() else {
            bail!("an empty command line");
        };
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(self.env.iter().map(|(k, v)| (k, v)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        Ok(command)
    }

    /// Runs to the end (at most [`COMMAND_TIMEOUT_S`]) and captures both outputs.
    pub fn run(self) -> Result<Output> {
        let shown = self.shown();
        let limit = format!("{COMMAND_TIMEOUT_S}");
        let line = self.prefixed(["timeout", "-k", "5", limit.as_str()]);
        let out = line
            .command()?
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start `{shown}`"))?;
        Ok(Output {
            command: shown,
            code: exit_code(out.status),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

struct SpawnRequest {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// The thread that starts every background process.
fn spawner() -> Result<Sender<SpawnRequest>> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    if let Some(sender) = SPAWNER.get() {
        return Ok(sender.clone());
    }
    let (sender, requests) = channel::<SpawnRequest>();
    std::thread::Builder::new()
        .name("sjp-spawner".into())
        .spawn(move || {
            for mut request in requests {
                // A caller that has gone has dropped the receiver: nothing to tell.
                let _ = request.answer.send(request.command.spawn());
            }
        })
        .context("cannot start the thread that starts processes")?;
    // Two callers at once: the loser's thread ends when its channel closes.
    Ok(SPAWNER.get_or_init(|| sender).clone())
}

/// A background process. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    log: PathBuf,
    /// Whether `child` is only the `nsenter` in front of the real process.
    behind_nsenter: bool,
}

impl Background {
    /// Starts `line`; both outputs are appended to `log`.
    pub(crate) fn start(name: &str, line: CommandLine, log: &Path) -> Result<Self> {
        let behind_nsenter = line.argv.first().is_some_and(|a| a == "nsenter");
        let shown = line.shown();
        let out = append(log)?;
        let err = out.try_clone().context("cannot duplicate a log file handle")?;
        let mut command = line.prefixed(["setpriv", "--pdeathsig", "KILL"]).command()?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let (answer, child) = channel();
        spawner()?
            .send(SpawnRequest { command, answer })
            .map_err(|_| anyhow::anyhow!("the thread that starts processes has ended"))?;
        let child = child
            .recv()
            .context("the thread that starts processes has ended")?
            .with_context(|| format!("cannot start `{shown}`"))?;
        Ok(Background { name: name.into(), child, log: log.into(), behind_nsenter })
    }

    /// The name used in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that both outputs go to.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The process id, as the test process sees it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pid of its first child process, if it has one.
    pub(crate) fn child_pid(&self) -> Result<Option<u32>> {
        let own = self.child.id();
        let path = format!("/proc/{own}/task/{own}/children");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let word = text.split_ascii_whitespace().next();
        word.map(|w| w.parse().with_context(|| format!("a pid in {path}"))).transpose()
    }

    /// Kills its first child process.
    pub(crate) fn kill_child(&self) -> Result<()> {
        let Some(pid) = self.child_pid()? else { return Ok(()) };
        let pid = Pid::from_raw(i32::try_from(pid).context("a pid beyond i32")?);
        kill(pid, Signal::SIGKILL).with_context(|| format!("killing {pid}"))
    }

    /// The pid that signals go to: the process behind `nsenter` where there is one.
    fn signal_target(&self) -> Result<Pid> {
        let own = self.child.id();
        let behind = if self.behind_nsenter { self.child_pid()? } else { None };
        let pid = behind.unwrap_or(own);
        Ok(Pid::from_raw(i32::try_from(pid).context("a pid beyond i32")?))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process has ended already.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(code) = self.ended()? {
            bail!("{} has ended already, with code {code}", self.name);
        }
        let pid = self.signal_target()?;
        kill(pid, signal).with_context(|| format!("sending {signal} to {} ({pid})", self.name))
    }

    /// The exit code, once it has ended (128 + signal number when killed).
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&mut self) -> Result<Option<i32>> {
        let status =
            self.child.try_wait().with_context(|| format!("asking about {}", self.name))?;
        Ok(status.map(exit_code))
    }

    /// Waits for the end and returns the exit code.
    ///
    /// # Errors
    /// When it has not ended by the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Result<i32> {
        let what = format!("{} ends", self.name);
        wait_for(deadline, &what, || Ok(self.ended()?.ok_or_else(|| "still running".to_string())))
    }

    /// Sends SIGTERM (and SIGCONT, in case it is stopped) and waits for the end.
    ///
    /// # Errors
    /// When it has not ended by the deadline.
    pub fn terminate(&mut self, deadline: Duration) -> Result<i32> {
        if let Some(code) = self.ended()? {
            return Ok(code);
        }
        self.signal(Signal::SIGTERM)?;
        // It may end between the two signals: then there is nothing to continue.
        let _ = self.signal(Signal::SIGCONT);
        self.wait(deadline)
    }

    /// Kills it (-9) and reaps it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill9(&mut self) -> Result<()> {
        if self.ended()?.is_none() {
            if self.behind_nsenter {
                self.signal(Signal::SIGKILL)?;
            }
            self.child.kill().with_context(|| format!("killing {}", self.name))?;
            self.child.wait().with_context(|| format!("waiting for {}", self.name))?;
        }
        Ok(())
    }

    /// The whole log as text; empty when there is none.
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.kill9() {
            eprintln!("sjp-tests: {error:#}");
        }
    }
}

/// Opens a log file for appending.
pub(crate) fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// A file as text; empty when it is not there.
pub(crate) fn read_lossy(path: &Path) -> String {
    std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
}

/// Clock ticks a second, in which /proc counts CPU time (USER_HZ on Linux).
const TICKS: f64 = 100.0;

/// CPU time that a process has used, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuSeconds {
    /// The process itself.
    pub own: f64,
    /// The children that it has waited for.
    pub children: f64,
}

/// CPU time of a process and of the children it has waited for.
///
/// # Errors
/// When it has ended.
pub fn cpu_seconds(pid: u32) -> Result<CpuSeconds> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name in parentheses may hold blanks; what follows does not.
    let fields = text.rsplit_once(')').with_context(|| format!("no name in {path}"))?.1;
    let ticks: Vec<f64> =
        fields.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
    let at = |i: usize| ticks.get(i).copied().unwrap_or(0.0) / TICKS;
    Ok(CpuSeconds { own: at(11) + at(12), children: at(13) + at(14) })
}
