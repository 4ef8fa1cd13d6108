//! What the tests of the daemon's life need: commands of Slurm that can be made to
//! fail, submissions that only ask for an answer, a look into processes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::TestCluster;
use crate::lua::Answer;
use crate::process::read_lossy;
use crate::wait::wait_for;

/// How long placement may take to come back once nothing stands in its way.
const BACK: Duration = Duration::from_secs(60);

/// A submission that takes longer hangs.
pub const HANGS: Duration = Duration::from_secs(20);

/// scontrol, squeue and sacctmgr as sjpd is told to run them: each call is written
/// down, and then what the switches say, else the real command.
#[derive(Debug)]
pub struct Tampered {
    dir: PathBuf,
}

/// When somebody is killed at an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Before the command, which is never run.
    Lost,
    /// Before the command, which runs two seconds later all the same.
    Late,
    /// After the command, before it can be seen that it ended.
    After,
}

const WRAPPER: &str = r#"#!/bin/sh
d=@DIR@
name=$(basename "$0")
printf '%s %s\n' "$name" "$*" >> "$d/calls"
if [ -e "$d/hang" ]; then
    case "$name $*" in *"$(cat "$d/hang")"*) exec sleep 600 ;; esac
fi
if [ -e "$d/no-marks" ]; then
    # What squeue does with a column that it does not know.
    for word in "$@"; do
        shift
        case $word in *,admin_comment:*)
            word=$(printf '%s' "$word" | sed 's/,admin_comment:[^,]*//')
            echo "Invalid job format specification: admin_comment" >&2 ;;
        esac
        set -- "$@" "$word"
    done
fi
case "$name $*" in "squeue "*" -j "*)
    if [ -e "$d/look" ] && mv "$d/look" "$d/look.done"; then
        . "$d/look.done"
    fi ;;
esac
if [ "$1" = update ] || [ "$2" = modify ]; then
    if [ -s "$d/busy" ]; then
        sed -i 1d "$d/busy"
        echo "slurm_update error: Resource temporarily unavailable" >&2
        exit 1
    fi
    if [ -e "$d/before" ] && mv "$d/before" "$d/before.done"; then
        . "$d/before.done"
    fi
    crash=
    case "$*" in
        *"$(sed -n 2p "$d/crash" 2>/dev/null)"*)
            if mv "$d/crash" "$d/crash.done" 2>/dev/null; then
                crash=$(sed -n 1p "$d/crash.done")
                printf '%s: %s %s\n' "$crash" "$name" "$*" >> "$d/crashes"
            fi ;;
    esac
    case $crash in
        lost) kill -9 $PPID; exit 1 ;;
        late) kill -9 $PPID; sleep 2 ;;
    esac
    "$name" "$@"
    code=$?
    [ $code -ne 0 ] || printf '%s %s\n' "$name" "$*" >> "$d/made"
    [ "$crash" != after ] || kill -9 $PPID
    if [ -e "$d/after" ] && mv "$d/after" "$d/after.done"; then
        . "$d/after.done"
    fi
    exit $code
fi
exec "$name" "$@"
"#;

impl TestCluster {
    /// Writes the commands into the cluster's folder; sjp.toml gets
    /// [`Tampered::toml`].
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn tamper(&self) -> Result<Tampered> {
        let dir = self.dir().join("tampered");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let text = WRAPPER.replace("@DIR@", &dir.display().to_string());
        for name in ["scontrol", "squeue", "sacctmgr"] {
            let path = self.write(&format!("tampered/{name}"), &text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .with_context(|| format!("chmod of {}", path.display()))?;
        }
        Ok(Tampered { dir })
    }

    /// Submits a small held job, which takes no room and never runs, and returns
    /// what sjp answered for it.
    ///
    /// # Errors
    /// When it is refused, or hangs.
    pub fn probe(&self) -> Result<Answer> {
        let (answer, took) = self.timed_probe()?;
        if took > HANGS {
            bail!("a submission took {took:?}");
        }
        Ok(answer)
    }

    fn timed_probe(&self) -> Result<(Answer, Duration)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("probe-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let begin = Instant::now();
        self.sbatch(&["-H", "-J", &name, "-c1", "--mem=100M", "-t5", "--wrap=true"])?;
        let took = begin.elapsed();
        let answer = self.answer_for(&name).with_context(|| format!("no answer for {name}"))?;
        if !answer.ok {
            bail!("place() raised an error: {}", answer.reason);
        }
        Ok((answer, took))
    }

    /// Submits probes until the answer is as wanted, and returns it.
    ///
    /// # Errors
    /// When that is not so in a minute; the message shows the last answer.
    pub fn wait_answer(&self, what: &str, wanted: impl Fn(&Answer) -> bool) -> Result<Answer> {
        wait_for(BACK, what, || {
            let answer = self.probe()?;
            Ok(if wanted(&answer) { Ok(answer) } else { Err(format!("{answer:?}")) })
        })
    }

    /// Submits probes until one is placed.
    ///
    /// # Errors
    /// When none is in a minute.
    pub fn wait_placing(&self) -> Result<Answer> {
        self.wait_answer("jobs are placed", |a| a.placed)
    }

    /// Submits probes until one is not placed for this reason.
    ///
    /// # Errors
    /// When none is in a minute.
    pub fn wait_reason(&self, reason: &str) -> Result<Answer> {
        self.wait_answer(&format!("jobs are not placed: {reason}"), |a| {
            !a.placed && a.reason == reason
        })
    }

    /// Submits this many probes; returns the median and the longest time that sbatch
    /// took, and prints them.
    ///
    /// # Errors
    /// When one is refused, or hangs.
    pub fn measure_sbatch(&self, what: &str, count: usize) -> Result<(Duration, Duration)> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let (_, took) = self.timed_probe()?;
            if took > HANGS {
                bail!("{what}: a submission took {took:?}");
            }
            times.push(took);
        }
        times.sort_unstable();
        let longest = *times.last().context("no submission")?;
        let median = times[times.len() / 2];
        eprintln!("sbatch, {what}: median {median:.1?}, longest {longest:.1?} of {count}");
        Ok((median, longest))
    }

    /// Cancels every job that waits.
    ///
    /// # Errors
    /// When scancel fails.
    pub fn cancel_probes(&self) -> Result<()> {
        self.cmd("scancel", &["-t", "PENDING", "-u", "root"]).map(drop)
    }

    /// The fields of the decision log's entries of this event.
    pub fn events(&self, event: &str) -> Vec<serde_json::Value> {
        self.decisions().into_iter().filter(|e| e["event"] == event).collect()
    }
}

impl Tampered {
    /// What sjp.toml needs, with more lines for its section `[commands]`.
    pub fn toml(&self, more: &str) -> String {
        let at = |name: &str| self.dir.join(name).display().to_string();
        format!(
            "[commands]\nscontrol = {:?}\nsqueue = {:?}\nsacctmgr = {:?}\n{more}\n",
            at("scontrol"),
            at("squeue"),
            at("sacctmgr")
        )
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        std::fs::rename(&new, &path).with_context(|| format!("cannot make {}", path.display()))
    }

    /// Calls whose command line holds `words` hang from now on.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn hang(&self, words: &str) -> Result<()> {
        self.put("hang", words)
    }

    /// No call hangs any more.
    ///
    /// # Errors
    /// When the switch cannot be removed.
    pub fn hang_no_more(&self) -> Result<()> {
        std::fs::remove_file(self.dir.join("hang")).context("removing the switch")
    }

    /// squeue has no column for the AdminComment from now on.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn no_marks(&self) -> Result<()> {
        self.put("no-marks", "")
    }

    /// The next `times` updates fail with EAGAIN.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn busy(&self, times: usize) -> Result<()> {
        self.put("busy", &"busy\n".repeat(times))
    }

    /// Runs these shell commands before the next update.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn before_update(&self, commands: &str) -> Result<()> {
        self.put("before", commands)
    }

    /// Runs these shell commands right before the next look at a single job, which
    /// goes before each update of it: after sjpd has decided.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn before_look(&self, commands: &str) -> Result<()> {
        self.put("look", commands)
    }

    /// Runs these shell commands after the next update.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn after_update(&self, commands: &str) -> Result<()> {
        self.put("after", commands)
    }

    /// Kills (-9) whoever runs the next update whose arguments hold `words`.
    ///
    /// # Errors
    /// When the switch cannot be written.
    pub fn crash(&self, when: Crash, words: &str) -> Result<()> {
        let word = match when {
            Crash::Lost => "lost",
            Crash::Late => "late",
            Crash::After => "after",
        };
        self.put("crash", &format!("{word}\n{words}\n"))
    }

    /// Whether the next update still is the one to crash at.
    pub fn crash_is_ahead(&self) -> bool {
        self.dir.join("crash").exists()
    }

    /// The updates at which somebody was killed: when, and the command line.
    pub fn crashes(&self) -> Vec<String> {
        read_lossy(&self.dir.join("crashes")).lines().map(str::to_string).collect()
    }

    /// Every call so far: the command and its arguments.
    pub fn calls(&self) -> Vec<String> {
        read_lossy(&self.dir.join("calls")).lines().map(str::to_string).collect()
    }

    /// The updates that slurmctld has made so far; it may have said EAGAIN before, as
    /// 24.11 and 26.05 do to new partitions on a cluster without accounting.
    pub fn made(&self) -> Vec<String> {
        read_lossy(&self.dir.join("made")).lines().map(str::to_string).collect()
    }
}

/// The processes that `pid` has started and not reaped.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .flat_map(|task| {
            let text = read_lossy(&task.path().join("children"));
            text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// What a process holds open: where its descriptors lead.
///
/// # Errors
/// When the process has ended.
pub fn open_files(pid: u32) -> Result<Vec<PathBuf>> {
    let dir = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&dir).with_context(|| format!("reading {dir}"))?;
    // One that was closed meanwhile counts no more.
    Ok(entries.flatten().filter_map(|e| std::fs::read_link(e.path()).ok()).collect())
}

/// What a process has mapped whose line in /proc/PID/maps holds `words`.
///
/// # Errors
/// When the process has ended.
pub fn mappings(pid: u32, words: &str) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/maps");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    Ok(text.lines().filter(|l| l.contains(words)).map(str::to_string).collect())
}

/// The file behind the link to the table, and whose process holds it.
///
/// # Errors
/// When there is no such link.
pub fn table_target(state_dir: &Path) -> Result<PathBuf> {
    let link = state_dir.join("table");
    std::fs::read_link(&link).with_context(|| format!("reading {}", link.display()))
}
