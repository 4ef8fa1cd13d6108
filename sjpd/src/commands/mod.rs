//! The commands of `sjp`: each takes its arguments and the settings, and
//! answers with text or JSON and an exit code. Only `undo` changes anything.

mod live;
mod parse;
mod place;
mod status;
mod table;
mod text;

use crate::cli::{self, Exit, Generate, SjpArgs, SjpCommand};
use crate::config::Config;
use serde_json::{Value, json};
use std::io::{self, Write as _};
pub use text::safe as one_line;

/// What a command has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How to end.
    pub exit: Exit,
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
}

impl Answer {
    fn ok(out: String) -> Self {
        Self { exit: Exit::Ok, out, err: String::new() }
    }

    fn json(exit: Exit, value: &Value) -> Self {
        Self { exit, out: text::json(value), err: String::new() }
    }

    /// The question has no answer.
    fn failed(exit: Exit, json: bool, why: &str) -> Self {
        let out = if json { text::json(&json!({ "error": why })) } else { String::new() };
        Self { exit, out, err: format!("sjp: {}\n", text::lines(why)) }
    }
}

/// Runs one command and prints its answer.
#[must_use]
pub fn run(args: &SjpArgs) -> Exit {
    let answer = answer(args);
    // Nobody may be reading any more: that is no error worth telling.
    let _ = io::stderr().lock().write_all(answer.err.as_bytes());
    let mut out = io::stdout().lock();
    match out.write_all(answer.out.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "sjp: cannot write the answer: {e}");
            answer.exit.max(Exit::Critical)
        }
        _ => answer.exit,
    }
}

/// What one command has to say.
#[must_use]
pub fn answer(args: &SjpArgs) -> Answer {
    let json = args.json;
    let with_config = |run: &dyn Fn(&Config) -> Answer| match args.source().load() {
        Ok((config, _)) => run(&config),
        Err(e) => Answer::failed(Exit::Config, json, &e.to_string()),
    };
    match &args.command {
        SjpCommand::Status => status::answer(&args.source(), json),
        SjpCommand::Table(table) => with_config(&|config| table::answer(config, table, json)),
        SjpCommand::Place(job) => with_config(&|config| place::answer(config, job, json)),
        SjpCommand::Parse(what) => parse::answer(what, json),
        // It takes its time, and says what it does as it does it.
        SjpCommand::Undo(undo) => Answer {
            exit: crate::undo::main(&args.source(), undo.dry_run, json),
            out: String::new(),
            err: String::new(),
        },
        SjpCommand::Generate { what, dir } => {
            let done = match what {
                Generate::Man => cli::manuals(dir),
                Generate::Completions => cli::completions(dir),
                Generate::Config => cli::sample(dir),
            };
            match done {
                Ok(()) => Answer::ok(String::new()),
                Err(e) => {
                    let why = format!("cannot write into {}: {e}", dir.display());
                    Answer::failed(Exit::Critical, json, &why)
                }
            }
        }
    }
}
