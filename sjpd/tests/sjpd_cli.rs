//! The options of `sjpd` that need no cluster: settings checked and printed,
//! and what the command line overrules.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

mod common;

use common::{Ran, Site, command};
use std::path::Path;

fn sjpd(args: &[&str]) -> Ran {
    Ran::of(command(Path::new(env!("CARGO_BIN_EXE_sjpd")), args).output().unwrap())
}

fn with(site: &Site, args: &[&str]) -> Ran {
    let config = site.config().display().to_string();
    sjpd(&[&["--config", &config], args].concat())
}

#[test]
fn check_config_accepts_what_is_right() {
    let ran = with(&Site::bare(), &["--check-config"]).ends(0).says(&["the settings are right"]);
    assert_eq!(ran.err, "");
}

#[test]
fn check_config_tells_notices_and_accepts() {
    let site = Site::with_settings("[cadence]\nscore_interval = 2\n");
    with(&site, &["--check-config"])
        .ends(0)
        .complains(&["sjp.toml:7:1: [cadence] score_interval: accepted from older files"]);
}

#[test]
fn check_config_tells_every_error_in_file_order() {
    let site = Site::with_settings("[pin]\nmax_agee = 3\nenabled = 1\n[nope]\n");
    let ran = with(&site, &["--check-config"]).ends(78);
    assert_eq!(ran.out, "");
    let lines: Vec<_> = ran.err.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:#?}");
    assert!(lines[0].contains("sjp.toml:7:1: [pin] max_agee: unknown key; nearest is max_age"));
    assert!(lines[1].contains("sjp.toml:8:11: [pin] enabled: a whole number is not allowed"));
    assert!(lines[2].contains("sjp.toml:9:2: [nope]: unknown section"));
}

#[test]
fn wrong_settings_stop_it_before_anything_else() {
    let site = Site::with_settings("[nope]\n");
    with(&site, &[]).ends(78).complains(&["[nope]: unknown section"]);
    assert_eq!(site.state_dir().read_dir().unwrap().count(), 0);
    sjpd(&["--config", "/nonexistent/sjp.toml"])
        .ends(78)
        .complains(&["/nonexistent/sjp.toml: cannot be read: no such file or directory"]);
}

#[test]
fn print_config_prints_what_is_in_force_as_a_file() {
    let site = Site::with_settings("[policy]\ntolerance = 0.5\n");
    let ran = with(&site, &["--print-config"]).ends(0);
    let dir = site.state_dir().display().to_string();
    let ran = ran.says(&["\ntolerance = 0.5\n", "default 0.25", &format!("state_dir = {dir:?}")]);
    // What it prints is a settings file with the same settings.
    std::fs::write(site.config(), &ran.out).unwrap();
    let again = with(&site, &["--print-config"]).ends(0);
    assert_eq!((again.out, again.err), (ran.out, String::new()));
}

#[test]
fn mode_and_state_dir_overrule_the_file() {
    let site = Site::bare();
    let args = ["--mode", "advise", "--state-dir", "/run/other", "--print-config"];
    with(&site, &args).ends(0).says(&["\nmode = \"advise\"\n", "\nstate_dir = \"/run/other\"\n"]);
    with(&site, &["--mode", "enforced"]).ends(64).complains(&["'enforced'", "'enforce'"]);
    with(&site, &["--state-dir", "run"]).ends(64).complains(&["\"run\" is a relative path"]);
    with(&site, &["--state-dir", ""]).ends(64).complains(&["--state-dir"]);
    with(&site, &["--state-dir", "~/x"]).ends(64).complains(&["~ is not expanded"]);
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for pair in [["--once", "--check-config"], ["--check-config", "--print-config"]] {
        sjpd(&pair).ends(64).complains(&["cannot be used with"]);
    }
    sjpd(&["--nope"]).ends(64).complains(&["--nope"]);
    sjpd(&["extra"]).ends(64).complains(&["extra"]);
}

#[test]
fn help_and_version() {
    sjpd(&["--help"]).ends(0).says(&["Usage: sjpd", "--dry-run", "Exit codes:"]);
    sjpd(&["--version"]).ends(0).says(&[concat!("sjpd ", env!("CARGO_PKG_VERSION"))]);
}
