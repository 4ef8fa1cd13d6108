//! The binary `sjpd` from start to end, over stand-ins for Slurm's commands
//! that print what real ones printed: signals, systemd's protocol, exit codes,
//! children, the lock, a file size limit.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use common::{Ran, Site, command};
use sjpd::status::Status;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VERSIONS: [&str; 3] = ["22.05", "24.11", "26.05"];
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for a condition; says what was waited for and the last state.
#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match done() {
            Ok(()) => return,
            Err(state) => {
                assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}; {state}");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What Slurm `version` printed: kept with the readers' tests.
fn captures(version: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["sjp-slurm/tests/assets/versions", "../shared/cases/versions"]
        .iter()
        .map(|place| root.join(place).join(version))
        .find(|dir| dir.join("scontrol-show-config.txt").exists())
        .unwrap_or_else(|| panic!("no captured output of Slurm {version}"))
}

/// A folder with stand-ins for Slurm's commands.
struct Stage {
    site: Site,
}

impl Stage {
    /// Stand-ins that print what Slurm `version` printed.
    fn new(version: &str, more: &str) -> Self {
        let captured = captures(version);
        let c = captured.display();
        let site = Site::bare();
        let d = site.dir.path().display().to_string();
        let script = |name: &str, body: String| {
            let path = site.dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        // `hang`: as a slurmctld that does not answer, with a child of its own.
        script(
            "scontrol",
            format!(
                "echo $$ >> {d}/started\n\
                 if [ -e {d}/hang ]; then sleep 600 & echo $! >> {d}/started; wait; fi\n\
                 case \"$*\" in\n\
                 *nodes*) exec cat {c}/scontrol-show-nodes-d-o.txt ;;\n\
                 *partitions*) exec cat {c}/scontrol-show-partitions-o.txt ;;\n\
                 *reservations*) exec cat {c}/scontrol-show-reservations-o.txt ;;\n\
                 *config*) exec cat {c}/scontrol-show-config.txt ;;\n\
                 *assoc_mgr*) exec cat {c}/assoc_mgr.txt ;;\n\
                 esac\n\
                 echo \"unexpected: $*\" >&2; exit 1"
            ),
        );
        script("squeue", "exit 0".into());
        script(
            "sacctmgr",
            format!(
                "case \"$*\" in *qos*) exec cat {c}/sacctmgr-qos.txt ;; esac\n\
                 exec cat {c}/sacctmgr-assoc.txt"
            ),
        );
        let stage = Self { site };
        stage.settings(more);
        stage
    }

    /// Writes the settings: observe, every path in the folder, and `more`
    /// keys of `[general]` with whatever sections follow.
    fn settings(&self, more: &str) {
        let d = self.site.dir.path().display();
        let text = format!(
            "[commands]\nscontrol = \"{d}/scontrol\"\nsqueue = \"{d}/squeue\"\n\
             sacctmgr = \"{d}/sacctmgr\"\ntimeout = 0.5\n\
             [general]\nstate_dir = \"{d}/state\"\nlog_file = \"{d}/log/d.jsonl\"\n\
             text_log = \"{d}/log/d.log\"\ndisable_file = \"{d}/disable\"\n{more}"
        );
        fs::write(self.site.config(), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let config = self.site.config().display().to_string();
        let args = [&["--config", &config], args].concat();
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_sjpd")), &args);
        command.env("PATH", "/usr/bin:/bin");
        command
    }

    fn start(&self) -> Sjpd {
        self.start_with(|_| {})
    }

    fn start_with(&self, change: impl FnOnce(&mut Command)) -> Sjpd {
        let mut command = self.command(&[]);
        let log = fs::File::create(self.path("stderr")).unwrap();
        command.stderr(Stdio::from(log));
        change(&mut command);
        Sjpd { child: command.spawn().unwrap(), log: self.path("stderr") }
    }

    fn status(&self) -> Result<Status, String> {
        Status::read(&self.path("state")).map_err(|e| e.to_string())
    }

    /// Pids of everything that the stand-in for scontrol started.
    fn started(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path("started")).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    }

    fn alive(&self) -> Vec<u32> {
        let lives = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        self.started().into_iter().filter(lives).collect()
    }
}

/// A running sjpd; killed when dropped.
struct Sjpd {
    child: Child,
    log: PathBuf,
}

impl Sjpd {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    fn ready(&self) {
        until("ready", || match self.log() {
            log if log.contains("ready") => Ok(()),
            log => Err(log),
        });
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for the end: the exit code and the log.
    #[track_caller]
    fn ended(mut self) -> (i32, String) {
        let mut code = None;
        until("the end", || match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                Ok(())
            }
            None => Err(self.log()),
        });
        (code.unwrap_or(-1), self.log())
    }
}

impl Drop for Sjpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGTERM};

/// What was told to systemd so far.
struct Systemd {
    socket: UnixDatagram,
    told: String,
}

impl Systemd {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, told: String::new() }
    }

    #[track_caller]
    fn hears(&mut self, word: &str) {
        until(word, || {
            let mut bytes = [0; 4096];
            while let Ok(n) = self.socket.recv(&mut bytes) {
                self.told.push_str(&String::from_utf8_lossy(&bytes[..n]));
                self.told.push('\n');
            }
            match self.told.find(word) {
                Some(at) => {
                    self.told.drain(..at + word.len());
                    Ok(())
                }
                None => Err(self.told.clone()),
            }
        });
    }
}

#[test]
fn it_is_ready_reloads_lives_and_stops_as_systemd_wants_it() {
    for version in VERSIONS {
        let stage = Stage::new(version, "");
        let mut systemd = Systemd::at(&stage.path("notify"));
        let sjpd = stage.start_with(|command| {
            command.env("NOTIFY_SOCKET", stage.path("notify")).env("WATCHDOG_USEC", "400000");
        });
        systemd.hears("READY=1");
        let link = fs::read_link(stage.path("state/table")).unwrap();
        assert!(link.starts_with(format!("/proc/{}/fd", sjpd.child.id())), "{link:?}");
        systemd.hears("WATCHDOG=1");
        systemd.hears("WATCHDOG=1");
        sjpd.signal(SIGHUP);
        systemd.hears("RELOADING=1");
        systemd.hears("READY=1");
        sjpd.signal(SIGTERM);
        systemd.hears("STOPPING=1");
        let (code, log) = sjpd.ended();
        assert_eq!(code, 0, "{log}");
        let left: Vec<_> =
            stage.path("state").read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"], "{version}");
        let words = fs::read_to_string(stage.path("log/d.log")).unwrap();
        for part in ["sjpd 0", &format!("Slurm {version}"), "places into", "sjpd stops"] {
            assert!(words.contains(part), "no {part:?} in:\n{words}");
        }
    }
}

#[test]
fn an_interrupt_stops_it_too() {
    let stage = Stage::new("22.05", "");
    let sjpd = stage.start();
    sjpd.ready();
    sjpd.signal(SIGINT);
    assert_eq!(sjpd.ended().0, 0);
}

#[test]
fn a_second_one_says_who_holds_the_folder_and_a_killed_one_holds_it_no_more() {
    let stage = Stage::new("22.05", "");
    let first = stage.start();
    first.ready();
    let second = Ran::of(stage.command(&[]).output().unwrap());
    second.ends(75).complains(&[
        "another sjpd holds",
        &format!("pid {}", first.child.id()),
        "since 20",
    ]);
    first.signal(SIGKILL);
    first.ended();
    let third = stage.start();
    third.ready();
    third.signal(SIGTERM);
    assert_eq!(third.ended().0, 0);
}

#[test]
fn a_slurmctld_that_hangs_makes_no_pile_and_a_stop_leaves_nothing_running() {
    let stage = Stage::new("22.05", "");
    let sjpd = stage.start();
    sjpd.ready();
    fs::write(stage.path("hang"), "").unwrap();
    until("nodes time out", || match stage.status()?.nodes.error {
        Some(error) if error.contains("no answer within 0.5 s") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Of each kind one shell and its child, or less.
    let alive = stage.alive();
    assert!(alive.len() <= 2 * 5, "{alive:?}");
    let before = stage.started().len();
    until("a reading hangs again", || match stage.alive().len() {
        0 => Err(format!("{} started", stage.started().len() - before)),
        _ => Ok(()),
    });
    sjpd.signal(SIGTERM);
    assert_eq!(sjpd.ended().0, 0);
    until("nothing runs any more", || match stage.alive() {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:?}")),
    });
}

#[test]
fn commands_that_are_missing_are_told_and_waited_for() {
    let stage = Stage::new("22.05", "");
    fs::rename(stage.path("scontrol"), stage.path("elsewhere")).unwrap();
    let sjpd = stage.start();
    until("the error is told", || match stage.status()?.nodes.error {
        Some(error) if error.contains("cannot start") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(!sjpd.log().contains("ready"));
    fs::rename(stage.path("elsewhere"), stage.path("scontrol")).unwrap();
    sjpd.ready();
    sjpd.signal(SIGTERM);
    assert_eq!(sjpd.ended().0, 0);
}

#[test]
fn a_file_size_limit_costs_lines_of_the_log_and_nothing_else() {
    let stage = Stage::new("22.05", "");
    let sjpd = stage.start();
    sjpd.ready();
    let size = stage.path("log/d.jsonl").metadata().unwrap().len();
    let limit = format!("--fsize={}", size.max(4096));
    let pid = format!("--pid={}", sjpd.child.id());
    let limited = command(Path::new("/usr/bin/prlimit"), &[&pid, &limit]).status().unwrap();
    assert!(limited.success());
    until("lines are dropped", || {
        sjpd.signal(SIGHUP);
        std::thread::sleep(Duration::from_millis(100));
        let log = stage.status()?.log;
        if log.dropped > 0 { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let log = fs::read_to_string(stage.path("log/d.jsonl")).unwrap();
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("no torn line");
    }
    let written = stage.status().unwrap().written;
    until("it goes on", || match stage.status()?.written {
        later if later > written + 1.0 => Ok(()),
        same => Err(format!("{same}")),
    });
    fs::rename(stage.path("log/d.jsonl"), stage.path("log/d.jsonl.1")).unwrap();
    sjpd.signal(SIGHUP);
    until("the gap is told", || {
        match fs::read_to_string(stage.path("log/d.jsonl")).unwrap_or_default() {
            log if log.contains("\"event\":\"gap\"") && log.contains("File too large") => Ok(()),
            log => Err(log),
        }
    });
    sjpd.signal(SIGTERM);
    assert_eq!(sjpd.ended().0, 0);
}

#[test]
fn once_reads_tells_and_leaves_no_trace() {
    for version in VERSIONS {
        let stage = Stage::new(version, "mode = \"enforce\"\n");
        let ran = Ran::of(stage.command(&["--once"]).output().unwrap()).ends(0);
        let slurm = format!("Slurm {version}");
        ran.says(&[
            "nodes: 5 nodes",
            &slurm,
            "mode enforce",
            "leaves out partition closed",
            "would publish: 5 nodes",
        ]);
        assert_eq!(stage.path("state").read_dir().unwrap().count(), 0);
        assert!(!stage.path("log").exists());
    }
    let stage = Stage::new("22.05", "");
    fs::remove_file(stage.path("scontrol")).unwrap();
    let ran = Ran::of(stage.command(&["--once"]).output().unwrap()).ends(1);
    ran.says(&["nodes: failed: ", "would publish nothing"]);
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let stage = Stage::new("22.05", "");
    let sjpd = stage.start_with(|command| {
        command.env("JOURNAL_STREAM", "8:1");
    });
    sjpd.ready();
    let log = sjpd.log();
    assert!(log.lines().all(|l| l.starts_with("<6>") || l.starts_with("<4>")), "{log}");
    sjpd.signal(SIGTERM);
    sjpd.ended();
}

#[test]
fn a_closed_pipe_ends_once_quietly() {
    let stage = Stage::new("22.05", "");
    let mut child =
        stage.command(&["--once"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    child.wait().unwrap();
    assert!(!err.contains("panicked"), "{err}");
}
