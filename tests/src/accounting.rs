//! MariaDB and slurmdbd for clusters with accounting.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cluster::{DAEMON_DEADLINE, Daemons, TestCluster, check_alive};
use crate::process::CommandLine;
use crate::root::{RunAs, TEST_USERS, bare_env, lock_file};
use crate::spec::CLUSTER_NAME;
use crate::wait::wait_for;

/// The account that root and the test users belong to.
pub const ACCOUNT: &str = "test";

/// Starts both daemons, and makes the cluster, the account and its users.
pub(crate) fn start(
    cluster: &TestCluster,
    daemons: &mut Daemons,
    base: &Path,
    hostname: &str,
    slurmdbd_port: u16,
    database_port: u16,
) -> Result<()> {
    let data = cluster.dir().join("database");
    copy_template(cluster, base, &data)?;
    let data = data.display();
    let args = [
        "--no-defaults".to_string(),
        format!("--datadir={data}"),
        format!("--socket={data}/db.sock"),
        format!("--port={database_port}"),
        "--bind-address=127.0.0.1".to_string(),
        "--skip-name-resolve".to_string(),
        "--skip-log-bin".to_string(),
        "--innodb-buffer-pool-size=32M".to_string(),
        "--innodb-flush-log-at-trx-commit=0".to_string(),
        "--innodb-lock-wait-timeout=900".to_string(),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let user = cluster.slurm().uid_of("mysql")?.context("there is no user mysql")?;
    daemons.mariadb = Some(cluster.spawn(RunAs::Uid(user), "mariadb", "mariadbd", &args)?);

    let dir = cluster.dir().display();
    let text = format!(
        "AuthType=auth/munge\nAuthInfo=socket={dir}/munge.socket\nDbdHost={hostname}\n\
         DbdAddr=127.0.0.1\nDbdPort={slurmdbd_port}\nSlurmUser=root\nDebugLevel=info\n\
         LogFile={dir}/log/slurmdbd.log\nPidFile={dir}/slurmdbd.pid\n\
         StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n\
         StoragePort={database_port}\nStorageUser=root\nStorageLoc=slurm_acct_db\n"
    );
    let conf = cluster.write("slurmdbd.conf", &text)?;
    std::fs::set_permissions(&conf, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("chmod of {}", conf.display()))?;
    wait_for(DAEMON_DEADLINE, "MariaDB listens", || {
        Ok(std::net::TcpStream::connect(("127.0.0.1", database_port)).map(drop))
    })?;
    daemons.slurmdbd = Some(cluster.spawn(RunAs::Root, "slurmdbd-out", "slurmdbd", &["-D"])?);
    wait_for(DAEMON_DEADLINE, "slurmdbd takes the cluster", || {
        if let Some(slurmdbd) = &mut daemons.slurmdbd {
            check_alive(slurmdbd)?;
        }
        let out = cluster.run(RunAs::Root, "sacctmgr", &["-i", "add", "cluster", CLUSTER_NAME])?;
        Ok(if out.success() || out.stdout.contains("already exists") {
            Ok(())
        } else {
            Err(out.stdout + &out.stderr)
        })
    })?;
    cluster.cmd("sacctmgr", &["-i", "add", "account", ACCOUNT])?;
    let users: Vec<&str> = TEST_USERS.iter().map(|(name, _)| *name).chain(["root"]).collect();
    let users = users.join(",");
    let account = format!("account={ACCOUNT}");
    cluster.cmd("sacctmgr", &["-i", "add", "user", &users, &account])?;
    Ok(())
}

/// A fresh data folder: made once for each installation, then copied.
fn copy_template(cluster: &TestCluster, base: &Path, data: &Path) -> Result<()> {
    let template = base.join(format!("mariadb-{}", cluster.slurm().label()));
    {
        let _lock = lock_file(&base.join("mariadb.lock"))?;
        if !template.exists() {
            let new = template.with_extension("new");
            if new.exists() {
                std::fs::remove_dir_all(&new)
                    .with_context(|| format!("cannot remove {}", new.display()))?;
            }
            let datadir = format!("--datadir={}", new.display());
            cluster
                .slurm()
                .run(&[
                    "mariadb-install-db",
                    "--no-defaults",
                    // Also where the host's own name cannot be looked up.
                    "--force",
                    "--user=mysql",
                    &datadir,
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ])
                .context("cannot make a MariaDB data folder")?;
            std::fs::rename(&new, &template)
                .with_context(|| format!("cannot rename {}", new.display()))?;
        }
    }
    let [from, to] = [template.display().to_string(), data.display().to_string()];
    let mut line = CommandLine::new(["cp", "-a", "--reflink=auto", from.as_str(), to.as_str()]);
    line.env = bare_env();
    line.run()?.ok().context("cannot copy the MariaDB data folder")?;
    Ok(())
}
