//! Starts Slurm's commands: argument vectors, a clean environment, output
//! with a size cap, a timeout of its own, and no child left behind.
//!
//! This is one of the two users of processes; the other, the Actuator, goes
//! through this runner too.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How much of a command's error text is kept, in bytes.
const STDERR_CAP: usize = 16 * 1024;
/// What a command that was asked to stop (SIGTERM) gets before SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// Read size, bytes.
const CHUNK: usize = 64 * 1024;

/// Why a command gave no usable output. Each says which command it was.
#[derive(Debug, Error)]
pub enum RunError {
    /// It could not be started.
    #[error(
        "{command}: cannot start: {source}; is Slurm's client installed and in PATH, or named in [commands]?"
    )]
    Start {
        /// The command line.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It took too long and was stopped.
    #[error("{command}: no answer within {} s; slurmctld is slow or away", after.as_secs_f64())]
    Timeout {
        /// The command line.
        command: String,
        /// The time it was given.
        after: Duration,
    },
    /// It printed more than the cap.
    #[error("{command}: printed more than {} MB", cap / (1024 * 1024))]
    TooLong {
        /// The command line.
        command: String,
        /// The cap, bytes.
        cap: usize,
    },
    /// It ended with an error.
    #[error("{command}: {status}: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it said on stderr (or stdout), on one line.
        message: String,
    },
    /// Its output could not be read.
    #[error("{command}: cannot read its output: {source}")]
    Output {
        /// The command line.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its output is no UTF-8.
    #[error("{command}: output is not UTF-8 (byte {at})")]
    NotText {
        /// The command line.
        command: String,
        /// First bad byte.
        at: usize,
    },
}

impl RunError {
    /// What the command itself said, where it ran and failed.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Failed { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// What a command printed.
#[derive(Debug)]
pub struct Output<T> {
    /// Standard output.
    pub text: T,
    /// Standard error, on one line (some commands warn there and succeed).
    pub warnings: String,
}

/// Starts commands with one environment and one set of limits.
#[derive(Clone, Debug)]
pub struct Runner {
    env: Vec<(OsString, OsString)>,
    /// Time a command may take.
    pub timeout: Duration,
    /// Bytes that a command may print.
    pub cap: usize,
}

impl Runner {
    /// A runner whose children see PATH, `LC_ALL=C`, and TZ and SLURM_CONF
    /// where this process has them: nothing else, since variables such as
    /// `SQUEUE_FORMAT` or `SLURM_TIME_FORMAT` change what the commands print.
    #[must_use]
    pub fn from_env(timeout: Duration) -> Self {
        let mut env = vec![(OsString::from("LC_ALL"), OsString::from("C"))];
        let path = std::env::var_os("PATH")
            .unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into());
        env.push(("PATH".into(), path));
        for name in ["TZ", "SLURM_CONF"] {
            if let Some(value) = std::env::var_os(name) {
                env.push((name.into(), value));
            }
        }
        Self { env, timeout, cap: 512 * 1024 * 1024 }
    }

    /// Sets one more variable for all children.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.into()));
    }

    /// Runs `program` with `args` and returns what it printed.
    ///
    /// The child stands in a process group of its own. When the time is over,
    /// or when this future is dropped, the whole group is stopped and reaped.
    ///
    /// # Errors
    /// Where it cannot be started, fails, takes too long, prints too much or
    /// prints something that is not UTF-8.
    pub async fn run(&self, program: &Path, args: &[&str]) -> Result<Output<String>, RunError> {
        let Output { text, warnings } = self.run_bytes(program, args).await?;
        match String::from_utf8(text) {
            Ok(text) => Ok(Output { text, warnings }),
            Err(e) => Err(RunError::NotText {
                command: words(program, args),
                at: e.utf8_error().valid_up_to(),
            }),
        }
    }

    /// As [`Runner::run`], for output that need not be UTF-8.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub async fn run_bytes(
        &self,
        program: &Path,
        args: &[&str],
    ) -> Result<Output<Vec<u8>>, RunError> {
        let command = words(program, args);
        let started = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "this is the command runner")]
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| RunError::Start { command: command.clone(), source })?;
        // Dropped before `child`: while the child is not reaped its id, and
        // so the group's, cannot be another's.
        let group = Group::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (out, err) = tokio::join!(read(stdout, self.cap), read(stderr, STDERR_CAP));
            (out, err)
        };
        let (out, err) = match tokio::time::timeout(self.timeout, work).await {
            Ok(read) => read,
            Err(_) => {
                stop(&mut child, group).await;
                return Err(RunError::Timeout { command, after: self.timeout });
            }
        };
        if matches!(&out, Ok(text) if text.len() > self.cap) {
            stop(&mut child, group).await;
            return Err(RunError::TooLong { command, cap: self.cap });
        }
        let left = self.timeout.saturating_sub(started.elapsed()).max(GRACE);
        let status = match tokio::time::timeout(left, child.wait()).await {
            Ok(Ok(status)) => {
                group.disarm();
                status
            }
            Ok(Err(source)) => return Err(RunError::Output { command, source }),
            Err(_) => {
                stop(&mut child, group).await;
                return Err(RunError::Timeout { command, after: self.timeout });
            }
        };
        let out = out.map_err(|source| RunError::Output { command: command.clone(), source })?;
        let warnings = String::from_utf8_lossy(&err.unwrap_or_default()).into_owned();
        if !status.success() {
            let said = if warnings.trim().is_empty() {
                String::from_utf8_lossy(&out[..out.len().min(STDERR_CAP)]).into_owned()
            } else {
                warnings
            };
            let status = status.to_string();
            return Err(RunError::Failed { command, status, message: one_line(&said) });
        }
        Ok(Output { text: out, warnings: one_line(&warnings) })
    }
}

/// The command line for people: arguments with blanks are quoted.
#[must_use]
pub fn words(program: &Path, args: &[&str]) -> String {
    let mut line =
        program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for arg in args {
        line.push(' ');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,.:/@%+[]~".contains(c);
        if !arg.is_empty() && arg.chars().all(plain) {
            line.push_str(arg);
        } else {
            line.push('\'');
            line.push_str(&arg.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

/// Text on one line, without control characters, trimmed.
fn one_line(text: &str) -> String {
    let line: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    line.join("; ").replace(|c: char| c.is_control(), " ")
}

/// Reads to the end, but not (much) more than `cap` bytes: a result longer
/// than `cap` says that there was more.
async fn read(from: Option<impl AsyncRead + Unpin>, cap: usize) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return Ok(kept) };
    let mut chunk = vec![0; CHUNK];
    loop {
        let n = from.read(&mut chunk).await?;
        if n == 0 || kept.len() > cap {
            return Ok(kept);
        }
        kept.extend_from_slice(&chunk[..n]);
    }
}

/// Asks the group to stop, then makes it, and reaps the child.
async fn stop(child: &mut Child, group: Group) {
    group.signal(nix::sys::signal::Signal::SIGTERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        group.signal(nix::sys::signal::Signal::SIGKILL);
        if let Err(error) = child.wait().await {
            tracing::warn!(%error, "cannot wait for a stopped command");
        }
    }
    group.disarm();
}

/// A child's process group: killed when dropped, unless disarmed.
struct Group(Option<nix::unistd::Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).filter(|&id| id > 1);
        Self(id.map(nix::unistd::Pid::from_raw))
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        if let Some(group) = self.0 {
            // ESRCH: it is gone already.
            let _ = nix::sys::signal::killpg(group, signal);
        }
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(millis: u64) -> Runner {
        Runner::from_env(Duration::from_millis(millis))
    }

    fn alive(pid: i32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    async fn until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < deadline, "not within 10 s: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn children_see_a_clean_environment_and_no_stdin() {
        let out = runner(10_000).run(Path::new("env"), &[]).await.expect("env runs");
        let names: Vec<&str> = out.text.lines().filter_map(|l| l.split('=').next()).collect();
        for name in &names {
            assert!(["PATH", "LC_ALL", "TZ", "SLURM_CONF"].contains(name), "{name} leaked");
        }
        assert!(out.text.contains("LC_ALL=C"), "{}", out.text);
        let out = runner(10_000).run(Path::new("cat"), &[]).await.expect("cat ends at once");
        assert_eq!(out.text, "");
    }

    #[tokio::test]
    async fn failures_say_what_was_run_and_what_it_said() {
        let missing = runner(1000).run(Path::new("no-such-slurm-command"), &["show"]).await;
        let text = missing.expect_err("no such command").to_string();
        assert!(text.starts_with("no-such-slurm-command show: cannot start"), "{text}");
        let failed = runner(10_000).run(Path::new("ls"), &["/no/such/dir here"]).await;
        let text = failed.expect_err("ls fails").to_string();
        assert!(text.contains("ls '/no/such/dir here': exit status"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[tokio::test]
    async fn a_slow_command_is_stopped_with_all_its_children() {
        // The shell stands in for a command that starts a child and ignores
        // SIGTERM; it is test data here, not a way to start things.
        let dir = tempfile::tempdir().expect("a folder");
        let pids = dir.path().join("pids");
        let script = format!(
            "trap '' TERM; sleep 1000 & echo $$ $! > {}; while :; do sleep 1000; done",
            pids.display()
        );
        let error = runner(300).run(Path::new("sh"), &["-c", &script]).await.expect_err("slow");
        assert!(matches!(error, RunError::Timeout { .. }), "{error}");
        let text = std::fs::read_to_string(&pids).expect("pids were written");
        for pid in text.split_whitespace() {
            let pid: i32 = pid.parse().expect("a pid");
            until("the group is gone", || !alive(pid)).await;
        }
    }

    #[tokio::test]
    async fn a_dropped_run_leaves_no_child() {
        let dir = tempfile::tempdir().expect("a folder");
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
        let runner = runner(60_000);
        let task =
            tokio::spawn(
                async move { runner.run(Path::new("sh"), &["-c", &script]).await.map(|_| ()) },
            );
        until("the child wrote its pids", || {
            std::fs::read_to_string(&pids).is_ok_and(|t| t.ends_with('\n'))
        })
        .await;
        task.abort();
        let text = std::fs::read_to_string(&pids).expect("pids");
        for pid in text.split_whitespace() {
            let pid: i32 = pid.parse().expect("a pid");
            until("the group is gone", || !alive(pid)).await;
        }
    }

    #[tokio::test]
    async fn output_beyond_the_cap_is_an_error_and_the_command_stops() {
        let mut runner = runner(20_000);
        runner.cap = 1 << 20;
        let error = runner.run(Path::new("yes"), &[]).await.expect_err("endless");
        assert!(matches!(error, RunError::TooLong { .. }), "{error}");
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_an_error() {
        let error = runner(10_000).run(Path::new("printf"), &[r"ok\377"]).await;
        let error = error.expect_err("0xff is not UTF-8");
        assert!(matches!(error, RunError::NotText { at: 2, .. }), "{error}");
    }

    #[test]
    fn command_lines_are_quoted_for_people() {
        let line = words(Path::new("/usr/bin/scontrol"), &["update", "jobid=7", "x=a b'c"]);
        assert_eq!(line, r"scontrol update jobid=7 'x=a b'\''c'");
    }
}
