//! The admin command `sjp`: shows what sjp does, and what it would do.
#![forbid(unsafe_code)]

use sjpd::cli::{self, Exit, SjpArgs};
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit: Exit = match cli::parse::<SjpArgs>() {
        Ok(args) => sjpd::commands::run(&args),
        Err(exit) => exit,
    };
    exit.into()
}
