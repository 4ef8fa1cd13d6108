//! Files made from the command lines and the table of settings: manual pages,
//! shell completions, the sample settings.

use super::{SJP_CODES, SJPD_CODES, SjpArgs, SjpdArgs, VERSION, exit::Exit};
use crate::config::{Config, annotated, manual};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::Path;

/// Writes sjpd.8, sjp.1, sjp-COMMAND.1 and sjp.toml.5 into `dir`.
///
/// # Errors
/// What the system said about the folder or a file.
pub fn manuals(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let see_sjpd = ".BR sjp (1),\n.BR sjp.toml (5)\n";
    let daemon = page(SjpdArgs::command(), "8", SJPD_CODES, see_sjpd)?;
    fs::write(dir.join("sjpd.8"), daemon)?;
    let see_sjp = ".BR sjpd (8),\n.BR sjp.toml (5)\n";
    let mut sjp = SjpArgs::command();
    sjp.build();
    fs::write(dir.join("sjp.1"), page(sjp.clone(), "1", SJP_CODES, see_sjp)?)?;
    for sub in sjp.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        let name = format!("sjp-{}", sub.get_name());
        let see = ".BR sjp (1),\n.BR sjpd (8),\n.BR sjp.toml (5)\n";
        let text = page(sub.clone(), "1", SJP_CODES, see)?;
        fs::write(dir.join(format!("{name}.1")), text)?;
    }
    fs::write(dir.join("sjp.toml.5"), manual(VERSION))
}

fn page(command: Command, section: &str, codes: &[(Exit, &str)], see: &str) -> io::Result<String> {
    // The codes have a section of their own.
    let command = command.after_help(None::<&str>);
    let man = clap_mangen::Man::new(command)
        .section(section)
        .date("")
        .source(format!("sjp {VERSION}"))
        .manual("sjp");
    let mut out = Vec::new();
    man.render(&mut out)?;
    // The page has no date, so that it is the same each time; its place in the
    // title line must be kept all the same.
    let out = String::from_utf8_lossy(&out);
    let mut out = out.replacen(&format!(" {section}  \""), &format!(" {section} \"\" \""), 1);
    let mut text = String::from(".SH \"EXIT STATUS\"\n");
    for (code, words) in codes {
        text.push_str(&format!(".TP\n.B {}\n{}\n", *code as u8, words.replace('-', "\\-")));
    }
    text.push_str(".SH FILES\n.TP\n.I /etc/sjp/sjp.toml\nsettings\n");
    text.push_str(".TP\n.I /run/sjp\nthe table and its way in, the lock, status.json\n");
    text.push_str(".SH \"SEE ALSO\"\n");
    text.push_str(see);
    out.push_str(&text);
    Ok(out)
}

/// Writes completions for bash, zsh and fish into `dir`, under the names those
/// shells look for.
///
/// # Errors
/// What the system said about the folder or a file.
pub fn completions(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, mut command) in [("sjpd", SjpdArgs::command()), ("sjp", SjpArgs::command())] {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command, name, dir)?;
        }
    }
    Ok(())
}

/// Writes sjp.toml with every key at its default into `dir`.
///
/// # Errors
/// What the system said about the folder or the file.
pub fn sample(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("sjp.toml"), annotated(&Config::default()))
}
