//! The command lines: help as recorded, options, exit codes, and the files that
//! `sjp generate` writes.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use clap::CommandFactory as _;
use common::{Site, run};
use sjpd::cli::{Exit, SJP_CODES, SJPD_CODES, SjpArgs, SjpdArgs};
use std::fs;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares with the recorded text; with `SJP_BLESS` set, records it.
#[track_caller]
fn is_recorded(name: &str, text: &str) {
    let file = golden(name);
    if std::env::var_os("SJP_BLESS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let recorded = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        text,
        recorded,
        "{}: run the test with SJP_BLESS=1 if this is meant",
        file.display()
    );
}

#[test]
fn help_is_as_recorded() {
    let mut sjp = SjpArgs::command().term_width(90);
    sjp.build();
    is_recorded("sjp.txt", &sjp.render_long_help().to_string());
    for name in ["status", "table", "place", "parse", "undo"] {
        let sub = sjp.find_subcommand_mut(name).unwrap();
        is_recorded(&format!("sjp-{name}.txt"), &sub.render_long_help().to_string());
    }
    let mut sjpd = SjpdArgs::command().term_width(90);
    is_recorded("sjpd.txt", &sjpd.render_long_help().to_string());
}

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [&["--help"][..], &["-h"], &["help", "place"], &["place", "--help"]] {
        let ran = run(args).ends(0).says(&["Usage: sjp"]);
        assert_eq!(ran.err, "");
    }
    run(&["--help"]).ends(0).says(&["Exit codes:", "  77  no rights"]);
    run(&["--version"]).ends(0).says(&[concat!("sjp ", env!("CARGO_PKG_VERSION"))]);
}

#[test]
fn wrong_command_lines_end_with_64_on_standard_error() {
    for (args, part) in [
        (&[][..], "Usage: sjp"),
        (&["stauts"], "similar subcommand exists: 'status'"),
        (&["table", "--nod", "x"], "'--node'"),
        (&["place", "--cpus", "many"], "--cpus"),
        (&["parse"], "<KIND>"),
        (&["parse", "nods"], "'nodes'"),
        (&["table", "--config"], "--config <FILE>"),
    ] {
        let ran = run(args).ends(64).complains(&[part]);
        assert_eq!(ran.out, "", "{args:?}");
        assert!(!ran.err.contains('\u{1b}'), "colours for no terminal: {ran:#?}");
    }
}

#[test]
fn config_is_taken_before_and_after_the_command() {
    let site = Site::bare();
    let config = site.config().display().to_string();
    let state = site.state_dir().display().to_string();
    for args in [["--config", &config, "status"], ["status", "--config", &config]] {
        run(&args).ends(2).says(&[&state]);
    }
}

#[test]
fn codes_are_those_of_monitoring_checks() {
    let status = [Exit::Ok, Exit::Warning, Exit::Critical, Exit::Unknown];
    assert_eq!(status.map(|e| e as u8), [0, 1, 2, 3]);
    for codes in [SJP_CODES, SJPD_CODES] {
        assert!(codes.windows(2).all(|w| w[0].0 < w[1].0), "in order, each once");
    }
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("share/man");
    run(&["generate", "man", man.to_str().unwrap()]).ends(0);
    let page = |name: &str| fs::read_to_string(man.join(name)).unwrap();
    for (name, title) in [
        ("sjp.1", ".TH sjp 1 \"\" \"sjp "),
        ("sjp-status.1", ".TH sjp-status 1 \"\" \"sjp "),
        ("sjp-table.1", ".TH sjp-table 1 \"\" \"sjp "),
        ("sjp-place.1", ".TH sjp-place 1 \"\" \"sjp "),
        ("sjp-parse.1", ".TH sjp-parse 1 \"\" \"sjp "),
        ("sjp-undo.1", ".TH sjp-undo 1 \"\" \"sjp "),
        ("sjpd.8", ".TH sjpd 8 \"\" \"sjp "),
        ("sjp.toml.5", ".TH sjp.toml 5"),
    ] {
        assert!(page(name).contains(title), "{name}: {}", page(name));
        if !name.ends_with('5') {
            assert!(page(name).contains(".SH \"EXIT STATUS\""), "{name}");
        }
    }
    assert!(!man.join("sjp-generate.1").exists());
    assert!(page("sjp.toml.5").contains("node_poll_interval"));
    assert!(page("sjpd.8").contains("\\-\\-dry\\-run"));
}

#[test]
fn completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    run(&["generate", "completions", dir.path().to_str().unwrap()]).ends(0);
    for (name, part) in [
        ("sjp.bash", "--mem-per-cpu"),
        ("_sjp", "--mem-per-cpu"),
        ("sjp.fish", "mem-per-cpu"),
        ("sjpd.bash", "--print-config"),
        ("_sjpd", "--print-config"),
        ("sjpd.fish", "print-config"),
    ] {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.contains(part), "{name}");
    }
}

#[test]
fn sample_settings_are_written() {
    let dir = tempfile::tempdir().unwrap();
    run(&["generate", "config", dir.path().to_str().unwrap()]).ends(0);
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/sjp.toml");
    let written = fs::read_to_string(dir.path().join("sjp.toml")).unwrap();
    assert_eq!(written, fs::read_to_string(sample).unwrap());
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    run(&["generate", "man", "/proc/nowhere"])
        .ends(2)
        .complains(&["cannot write into /proc/nowhere"]);
}
