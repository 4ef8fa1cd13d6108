//! Which Slurm the tests run: the system's own, or one inside a debootstrap folder.
//!
//! `SJP_SLURM_ROOT=DIR` chooses the folder: every daemon and command then runs
//! through `chroot DIR`, with /proc, /dev, /sys and the folder that holds the test
//! clusters mounted at the same paths inside.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::process::CommandLine;

/// Ordinary users that jobs can be submitted as; made when they are not there.
pub const TEST_USERS: [(&str, u32); 3] = [("sjpt1", 26101), ("sjpt2", 26102), ("sjpt3", 26103)];

/// The Slurm installation in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slurm {
    /// The one of this system.
    Native,
    /// The one inside this folder.
    Chroot(PathBuf),
}

/// Who a command runs as: a user id with the group of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// root, as which the daemons run too.
    Root,
    /// One of [`TEST_USERS`], or any other uid.
    Uid(u32),
}

impl RunAs {
    /// One of [`TEST_USERS`] by number, 1 to 3.
    ///
    /// # Panics
    /// For any other number.
    pub fn user(number: usize) -> Self {
        assert!((1..=TEST_USERS.len()).contains(&number), "test users are 1 to 3, not {number}");
        RunAs::Uid(TEST_USERS[number - 1].1)
    }
}

impl Slurm {
    /// What `SJP_SLURM_ROOT` asks for.
    ///
    /// # Errors
    /// When it names no folder with a slurmctld in it.
    pub fn from_env() -> Result<Self> {
        let Some(dir) = std::env::var_os("SJP_SLURM_ROOT").filter(|v| !v.is_empty()) else {
            return Ok(Slurm::Native);
        };
        let dir = PathBuf::from(dir);
        if !dir.join("usr/sbin/slurmctld").exists() {
            bail!(
                "SJP_SLURM_ROOT={}: no usr/sbin/slurmctld there; tests/debian13.sh makes such a folder",
                dir.display()
            );
        }
        Ok(Slurm::Chroot(dir))
    }

    /// A short name for cache folders.
    pub(crate) fn label(&self) -> String {
        match self {
            Slurm::Native => "native".into(),
            Slurm::Chroot(dir) => dir.display().to_string().replace('/', "_"),
        }
    }

    /// The folder that is `/` for the daemons.
    pub fn root(&self) -> &Path {
        match self {
            Slurm::Native => Path::new("/"),
            Slurm::Chroot(dir) => dir,
        }
    }

    /// The command line that runs `argv` there as `user`.
    pub(crate) fn command<S: Into<OsString>>(
        &self,
        user: RunAs,
        argv: impl IntoIterator<Item = S>,
    ) -> CommandLine {
        let mut line = CommandLine::new(argv);
        if let RunAs::Uid(uid) = user {
            // A change of user clears the parent-death signal: it is set again.
            line = line.prefixed([
                "setpriv".to_string(),
                format!("--reuid={uid}"),
                format!("--regid={uid}"),
                "--clear-groups".to_string(),
                "--pdeathsig=KILL".to_string(),
            ]);
        }
        match self {
            Slurm::Native => line,
            Slurm::Chroot(dir) => line.prefixed([OsString::from("chroot"), dir.into()]),
        }
    }

    /// The uid of a user there.
    pub(crate) fn uid_of(&self, name: &str) -> Result<Option<u32>> {
        let passwd = self.root().join("etc/passwd");
        let text = std::fs::read_to_string(&passwd)
            .with_context(|| format!("cannot read {}", passwd.display()))?;
        let line = text.lines().find(|l| l.split(':').next() == Some(name));
        let Some(line) = line else { return Ok(None) };
        let uid = line.split(':').nth(2).and_then(|word| word.parse().ok());
        let uid = uid.with_context(|| format!("no uid in {line:?} of {}", passwd.display()))?;
        Ok(Some(uid))
    }

    /// Runs a short command as root with a bare environment.
    pub(crate) fn run(&self, argv: &[&str]) -> Result<String> {
        let mut line = self.command(RunAs::Root, argv.iter().copied());
        line.env = bare_env();
        line.run()?.ok()
    }

    /// The version, such as `22.05.8`.
    ///
    /// # Errors
    /// When slurmctld cannot be run.
    pub fn version(&self) -> Result<String> {
        let text = self.run(&["slurmctld", "-V"])?;
        let word = text.split_ascii_whitespace().last();
        word.map(str::to_string).with_context(|| format!("no version in {text:?}"))
    }

    /// Makes the test users, and for a folder the mounts; `base` holds the clusters.
    pub(crate) fn prepare(&self, base: &Path) -> Result<()> {
        if !nix::unistd::geteuid().is_root() {
            bail!("the tests start Slurm's daemons and submit as several users: run them as root");
        }
        for (dir, mode) in [(base.to_path_buf(), 0o755), (base.join("ports"), 0o700)] {
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))
                .with_context(|| format!("chmod of {}", dir.display()))?;
        }
        let _lock = lock_file(&base.join("prepare.lock"))?;
        if let Slurm::Chroot(dir) = self {
            for (source, options) in [
                (Path::new("/proc"), "rbind"),
                (Path::new("/sys"), "rbind"),
                (Path::new("/dev"), "rbind"),
                (base, "bind"),
            ] {
                bind(source, dir, options)?;
            }
        }
        self.make_users()
    }

    fn make_users(&self) -> Result<()> {
        for (name, uid) in TEST_USERS {
            match self.uid_of(name)? {
                Some(there) if there == uid => {}
                Some(there) => {
                    bail!("user {name} has uid {there} instead of {uid}: userdel {name}")
                }
                None => {
                    let uid = uid.to_string();
                    self.run(&["groupadd", "--force", "--gid", &uid, name])?;
                    self.run(&[
                        "useradd",
                        "--no-create-home",
                        "--shell",
                        "/bin/sh",
                        "--uid",
                        &uid,
                        "--gid",
                        &uid,
                        name,
                    ])
                    .with_context(|| format!("cannot make the test user {name}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Mounts `source` at the same path inside `root`, unless it is mounted already.
fn bind(source: &Path, root: &Path, how: &str) -> Result<()> {
    let relative = source.strip_prefix("/").unwrap_or(source);
    let target = root.join(relative);
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    let shown = target.display().to_string();
    if mounts.lines().any(|l| l.split(' ').nth(1) == Some(shown.as_str())) {
        return Ok(());
    }
    std::fs::create_dir_all(&target).with_context(|| format!("cannot make {shown}"))?;
    let source = source.display().to_string();
    // rslave: what is unmounted inside never goes away outside.
    let flag = format!("--{how}");
    let line = ["mount", flag.as_str(), "--make-rslave", source.as_str(), shown.as_str()];
    let mut line = CommandLine::new(line);
    line.env = bare_env();
    line.run()?.ok().with_context(|| format!("cannot mount {source} at {shown}"))?;
    Ok(())
}

/// Waits for an exclusive lock on a file, which is made when it is not there.
pub(crate) fn lock_file(path: &Path) -> Result<Flock<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .with_context(|| format!("cannot lock {}", path.display()))
}

/// The environment that every command gets: nothing of the caller's.
pub(crate) fn bare_env() -> Vec<(String, OsString)> {
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("LC_ALL", "C"),
        ("HOME", "/"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_string(), OsString::from(v)))
    .collect()
}
