//! What the tests of the binaries share: a state directory with a published
//! table and a status, and a way to run `sjp`.
#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

use serde_json::Value;
use sjp_core::cluster::{Node, Partition, SlurmConfig};
use sjp_core::config::{Mode, Policy};
use sjp_core::ledger::Ledger;
use sjp_core::publication::{Claim, Rooms, Roster};
use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::units::{Cpus, Limit, MemMb};
use sjp_table::{Capacity, Meta, Publisher, Reader, now_ns};
use sjpd::status::{Poll, Status, process_start};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// `sjp` with these arguments, in an empty environment.
pub fn sjp(args: &[&str]) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_sjp")), args)
}

/// A program with these arguments, in an empty environment.
#[allow(clippy::disallowed_methods)] // tests start the binaries they test
pub fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

/// Runs `sjp` to its end.
pub fn run(args: &[&str]) -> Ran {
    Ran::of(sjp(args).output().unwrap())
}

/// Runs `sjp` with this on standard input.
pub fn run_with(args: &[&str], input: &[u8]) -> Ran {
    let mut child: Child = sjp(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

/// What a run said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }

    #[track_caller]
    pub fn complains(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.out) {
            Ok(value) => value,
            Err(e) => panic!("no JSON: {e}: {self:#?}"),
        }
    }
}

pub fn node(name: &str, partitions: &[&str], cpus: u32, mem: u64, used: (u32, u64)) -> Node {
    Node {
        name: name.to_owned(),
        state: vec!["IDLE".to_owned()],
        usable: true,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(cpus),
        cpus_alloc: Cpus(used.0),
        mem: Some(MemMb(mem)),
        mem_alloc: MemMb(used.1),
        threads_per_core: 1,
        weight: 1,
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..Node::default()
    }
}

pub fn partition(name: &str, tier: u32) -> Partition {
    Partition {
        name: name.to_owned(),
        state: "UP".to_owned(),
        tier,
        max_time: Limit::At(14 * 1440),
        default_time: Limit::At(60),
        max_nodes: Limit::Unlimited,
        over_subscribe: "NO".to_owned(),
        ..Partition::default()
    }
}

/// A cluster as sjpd would read it.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub config: SlurmConfig,
    pub policy: Policy,
}

impl Cluster {
    /// slim: s01 (40 of 64 CPUs and 200,000 of 256,000 MB used), s02 (empty),
    /// s03 (down). fat: f01, 64 CPUs and 1,024,000 MB, empty. old: closed.
    pub fn slim_and_fat() -> Self {
        let mut down = node("s03", &["slim"], 64, 256_000, (0, 0));
        down.usable = false;
        let mut old = partition("old", 1);
        old.state = "DOWN".into();
        Self {
            nodes: vec![
                node("s01", &["slim"], 64, 256_000, (40, 200_000)),
                node("s02", &["slim"], 64, 256_000, (0, 0)),
                down,
                node("f01", &["fat"], 64, 1_024_000, (0, 0)),
            ],
            partitions: vec![partition("slim", 10), partition("fat", 8), old],
            config: SlurmConfig {
                select_type: "select/cons_tres".to_owned(),
                select_params: vec!["CR_CPU_MEMORY".to_owned()],
                ..SlurmConfig::default()
            },
            policy: Policy { mode: Mode::Enforce, ..Policy::default() },
        }
    }

    fn roster(&self) -> Roster {
        build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &self.partitions,
            config: &self.config,
            qos: &[],
            bound_users: &[],
            policy: &self.policy,
        })
    }

    fn rooms(&self, roster: &Roster) -> Rooms {
        build_rooms(
            roster,
            &RoomsInput {
                nodes: &self.nodes,
                nodes_asked_at: 0.0,
                reservations: &[],
                jobs: &[],
                ledger: &Ledger::new(),
                qos: &[],
                config: &self.config,
                now: now() as i64,
                extra: Extra::default(),
            },
        )
    }
}

/// Unix seconds.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

const CAPACITY: Capacity =
    Capacity { nodes: 64, groups: 64, qos_rooms: 64, roster_bytes: 65_536, claims: 64 };

/// A state directory with a settings file, and what is published there.
pub struct Site {
    pub dir: TempDir,
    pub publisher: Option<Publisher>,
    pub roster: Roster,
}

impl Site {
    /// Settings, and nothing else.
    pub fn bare() -> Self {
        Self::with_settings("")
    }

    pub fn with_settings(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let site = Self { dir, publisher: None, roster: Roster::default() };
        std::fs::create_dir(site.state_dir()).unwrap();
        let path = |name: &str| site.dir.path().join(name).display().to_string();
        let text = format!(
            "[general]\nstate_dir = \"{}\"\nlog_file = \"{}\"\ntext_log = \"\"\n\
             disable_file = \"{}\"\n{more}",
            path("state"),
            path("log"),
            path("disable")
        );
        std::fs::write(site.config(), text).unwrap();
        site
    }

    /// A table in which nothing has been published.
    pub fn publish_nothing(&mut self) {
        self.publisher = Some(Publisher::create(&self.state_dir(), CAPACITY).unwrap());
    }

    /// A table of `cluster`, whose node data was asked for `age` seconds ago.
    pub fn publish(&mut self, cluster: &Cluster, age: u64) {
        let roster = cluster.roster();
        let rooms = cluster.rooms(&roster);
        let mut publisher = Publisher::create(&self.state_dir(), CAPACITY).unwrap();
        let meta =
            Meta { data_time_ns: now_ns().saturating_sub(age * 1_000_000_000), claims_taken: 0 };
        publisher.publish(&roster, 1, &rooms, meta).unwrap();
        self.publisher = Some(publisher);
        self.roster = roster;
    }

    /// Room promised on `node`, as the Lua module would write it.
    pub fn claim(&self, node: &str, cpus: u32, mem: u32) {
        let reader = Reader::attach(&self.state_dir().join("table")).unwrap();
        let node = u32::try_from(self.roster.nodes.find(node).unwrap()).unwrap();
        let claim = Claim { id: 7, roster: 1, node, cpus, mem, ..Claim::default() };
        reader.push_claim(&claim).unwrap();
    }

    /// A status as a healthy sjpd in this very process would write it.
    pub fn healthy() -> Status {
        let poll = |interval| Poll {
            asked_at: Some(now() - 0.5),
            ok_at: Some(now() - 0.4),
            took: Some(0.1),
            interval,
            ..Poll::default()
        };
        let mut status = Status {
            format: sjpd::status::FORMAT,
            written: now(),
            pid: std::process::id(),
            pid_start: process_start(std::process::id()).unwrap(),
            version: "0.1.0".into(),
            started: now() - 600.0,
            mode: "enforce".into(),
            active: true,
            nodes: poll(1.0),
            queue: poll(8.0),
            config: poll(60.0),
            reservations: poll(20.0),
            qos: poll(15.0),
            ..Status::default()
        };
        status.counts.nodes = 4;
        status.counts.usable = 3;
        status.counts.partitions = 3;
        status.counts.open_partitions = 2;
        status
    }

    pub fn write(&self, status: &Status) {
        status.write(&self.state_dir()).unwrap();
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("sjp.toml")
    }

    /// Runs `sjp --config FILE` and these arguments.
    pub fn run(&self, args: &[&str]) -> Ran {
        let config = self.config().display().to_string();
        run(&[&["--config", &config], args].concat())
    }
}
