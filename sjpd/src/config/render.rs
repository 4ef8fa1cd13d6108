//! Settings as text: the annotated file (etc/sjp.toml, `--print-config`) and
//! the manual page, both from the table of settings.

use super::settings::{Config, RENAMED, SECTIONS, SETTINGS, Setting, Use, WITHOUT_USE};
use super::value::Value;
use std::fmt::Write as _;

/// Width of comment lines, in characters.
const WIDTH: usize = 88;

const HEAD: &str = "\
# sjp.toml: the settings of sjpd and sjp. Every key is here, with its default.
# `sjpd --check-config` checks a file; SIGHUP makes sjpd read it again.
";

/// The whole file, each key with a line on what it does, what is allowed and
/// its default. With `Config::default()` this is etc/sjp.toml.
#[must_use]
pub fn annotated(config: &Config) -> String {
    let defaults = Config::default();
    let mut out = String::from(HEAD);
    for section in SECTIONS {
        out.push('\n');
        comment(&mut out, &one_line(section.about));
        let _ = writeln!(out, "[{}]", section.name);
        for setting in settings_of(section.name) {
            let allowed =
                format!("{}; {}.", setting.kind.allowed(), default_words(setting, &defaults));
            let help = one_line(setting.help);
            let both = format!("{help} ({})", allowed.trim_end_matches('.'));
            if both.chars().count() + 2 <= WIDTH {
                comment(&mut out, &both);
            } else {
                comment(&mut out, &help);
                comment(&mut out, &format!("({})", allowed.trim_end_matches('.')));
            }
            match setting.value(config) {
                Value::Unset => {
                    let _ = writeln!(out, "# {} = {}", setting.key, setting.example);
                }
                value => {
                    let _ = writeln!(out, "{} = {}", setting.key, setting.kind.toml(&value));
                }
            }
        }
    }
    out.push('\n');
    let dead: Vec<_> = WITHOUT_USE.iter().map(|(key, _)| *key).collect();
    comment(&mut out, &format!("Accepted from older files, without effect: {}.", dead.join(", ")));
    let old: Vec<_> = RENAMED.iter().map(|(old, new)| format!("{old} (now {new})")).collect();
    comment(&mut out, &format!("Older names that still count: {}.", old.join(", ")));
    out
}

fn settings_of(section: &'static str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |s| s.section == section)
}

/// Doc lines joined: one line, no double spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn default_words(setting: &Setting, defaults: &Config) -> String {
    match setting.value(defaults) {
        Value::Unset => "default: unset".into(),
        Value::Demand(_) => "default: a mix seen at several sites".into(),
        value => format!("default {}", setting.kind.toml(&value)),
    }
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// The manual page sjp.toml(5), as roff.
#[must_use]
pub fn manual(version: &str) -> String {
    let defaults = Config::default();
    let mut out = format!(".TH sjp.toml 5 \"\" \"sjp {version}\" \"File formats\"\n");
    out.push_str(".SH NAME\nsjp.toml \\- settings of sjpd and sjp\n");
    out.push_str(".SH SYNOPSIS\n/etc/sjp/sjp.toml\n.SH DESCRIPTION\n");
    out.push_str(
        "The settings of sjpd, and what sjp needs of them, as TOML. A file that is not there\n\
         means the defaults. Unknown keys, wrong types and values out of range are errors, all\n\
         reported at once with file, line and column; sjpd then does not start, or on SIGHUP\n\
         keeps the settings it has. Check a file with\n.B sjpd \\-\\-check\\-config\n\
         and see what is in force with\n.BR \"sjpd \\-\\-print\\-config\" .\n",
    );
    for section in SECTIONS {
        let _ = writeln!(out, ".SH [{}]", roff(section.name));
        let _ = writeln!(out, "{}", roff(&one_line(section.about)));
        for setting in settings_of(section.name) {
            let _ = writeln!(out, ".TP\n.B {}", roff(setting.key));
            let _ = writeln!(out, "{}", roff(&one_line(setting.help)));
            let _ = writeln!(
                out,
                "Allowed: {}; {}.",
                roff(&setting.kind.allowed()),
                roff(&match setting.value(&defaults) {
                    value @ Value::Demand(_) =>
                        format!("default {}", one_line(&setting.kind.toml(&value))),
                    _ => default_words(setting, &defaults),
                })
            );
            if setting.used == Use::NotYet {
                out.push_str("Checked, but without effect in this version.\n");
            }
        }
    }
    out.push_str(".SH OLDER FILES\nAccepted without effect, with a notice:\n");
    for (key, why) in WITHOUT_USE {
        let _ = writeln!(out, ".TP\n.B {}\n{}.", roff(key), roff(why));
    }
    out.push_str(".PP\nOlder names that still count, with a notice:\n");
    for (old, new) in RENAMED {
        let _ = writeln!(out, ".TP\n.B {}\nnow {}", roff(old), roff(new));
    }
    out.push_str(".SH SEE ALSO\n.BR sjpd (8),\n.BR sjp (1)\n");
    out
}

/// Text as roff takes it: no line begins with a control character.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
