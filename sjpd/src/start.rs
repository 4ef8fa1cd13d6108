//! What the binary does before and around the daemon: settings, logging,
//! signals, exit codes.

use crate::actuator::CommandActuator;
use crate::cli::{Exit, SjpdArgs};
use crate::config::{Config, Notice, annotated};
use crate::daemon::preflight::Me;
use crate::daemon::{Control, DaemonError, Setup, once, run};
use crate::lock::LockError;
use crate::logging;
use crate::slurm::SlurmCommands;
use std::io::{self, Write as _};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Runs sjpd as its command line says.
#[must_use]
pub fn main(args: &SjpdArgs) -> Exit {
    let (config, notices) = match args.source().load() {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return Exit::Config;
        }
    };
    if args.undo {
        return crate::undo::main(&args.source(), args.dry_run, false);
    }
    if args.check_config || args.print_config {
        return show(args, &config, &notices);
    }
    let log_level = logging::start(config.general.log_level.word());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            return Exit::Warning;
        }
    };
    let cluster = Arc::new(SlurmCommands::new(&config));
    if args.once {
        let report = runtime.block_on(once(cluster, &config, &me(args.dry_run)));
        let ok = report.ok();
        return match write!(io::stdout(), "{report}") {
            Ok(()) if ok => Exit::Ok,
            _ => Exit::Warning,
        };
    }
    let actuator = Arc::new(CommandActuator::from_config(&config));
    let setup = Setup {
        source: args.source(),
        config,
        notices,
        dry_run: args.dry_run,
        cluster,
        actuator,
        log_level,
    };
    let ended = runtime.block_on(async {
        let controls = controls().map_err(|error| {
            tracing::error!(%error, "cannot listen for signals");
            Exit::Warning
        })?;
        run(setup, controls).await.map_err(|error| {
            tracing::error!("{error}");
            match error {
                DaemonError::Lock(LockError::Held { .. }) => Exit::Held,
                DaemonError::Lock(_) | DaemonError::Table(_) => Exit::Warning,
            }
        })
    });
    // A thread that waits for a file system that hangs is not waited for.
    runtime.shutdown_background();
    match ended {
        Ok(()) => Exit::Ok,
        Err(exit) => exit,
    }
}

/// `--check-config` and `--print-config`.
fn show(args: &SjpdArgs, config: &Config, notices: &[Notice]) -> Exit {
    for notice in notices {
        eprintln!("{notice}");
    }
    let text = if args.print_config {
        annotated(config)
    } else {
        format!("{}: the settings are right\n", args.source().path().display())
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("cannot write: {error}");
            Exit::Warning
        }
        _ => Exit::Ok,
    }
}

/// Who runs this.
fn me(dry_run: bool) -> Me {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|u| u.name);
    Me { uid: uid.as_raw(), user, dry_run }
}

/// Signals as what the daemon understands.
fn controls() -> io::Result<mpsc::Receiver<Control>> {
    let mut reload = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A file size limit (EFBIG) must not kill: caught, the write says so.
    let mut too_large = signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32))?;
    // One of each may wait: several are the same as one.
    let (send, receive) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let control = tokio::select! {
                _ = reload.recv() => Control::Reload,
                _ = terminate.recv() => Control::Stop,
                _ = interrupt.recv() => Control::Stop,
                _ = too_large.recv() => continue,
            };
            if send.send(control).await.is_err() {
                return;
            }
        }
    });
    Ok(receive)
}
