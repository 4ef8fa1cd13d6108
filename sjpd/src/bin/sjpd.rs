//! The daemon: see `sjpd --help`.

use sjpd::cli::{SjpdArgs, parse};
use std::process::ExitCode;

fn main() -> ExitCode {
    match parse::<SjpdArgs>() {
        Ok(args) => sjpd::start::main(&args).into(),
        Err(exit) => exit.into(),
    }
}
