//! docs/configuration.md: its tables are made from the table of settings, so
//! that the document cannot fall behind. `SJP_BLESS=1` writes them.

use sjpd::config::{Config, SECTIONS, SETTINGS, Setting, Use, Value};
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- made by sjpd/tests/configuration_md.rs: begin -->\n";
const END: &str = "<!-- made by sjpd/tests/configuration_md.rs: end -->\n";

/// Everything between the two marks.
fn tables() -> String {
    let defaults = Config::default();
    let mut out = String::new();
    for section in SECTIONS {
        let _ = writeln!(out, "\n## [{}]\n\n{}\n", section.name, words(section.about));
        out.push_str("| key | default | allowed | what it does |\n|---|---|---|---|\n");
        for setting in SETTINGS.iter().filter(|s| s.section == section.name) {
            let mut help = words(setting.help);
            if setting.used == Use::NotYet {
                help.push_str(" *Checked, but without effect in this version.*");
            }
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                setting.key,
                default(setting, &defaults),
                cell(&setting.kind.allowed()),
                cell(&help)
            );
        }
    }
    out.push('\n');
    out
}

fn default(setting: &Setting, defaults: &Config) -> String {
    match setting.value(defaults) {
        Value::Unset => "unset".into(),
        value => format!("`{}`", words(&setting.kind.toml(&value))),
    }
}

/// Doc lines joined.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[test]
fn the_document_has_every_setting_as_it_is() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the begin mark");
    let (found, after) = rest.split_once(END).expect("the end mark");
    let wanted = tables();
    if std::env::var_os("SJP_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        found, wanted,
        "docs/configuration.md: run this test with SJP_BLESS=1 if the settings are meant so"
    );
}
