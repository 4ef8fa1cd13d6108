//! Tests of reading, checking and writing sjp.toml.

use super::*;
use std::time::Duration;

const FILE: &str = "/etc/sjp/sjp.toml";

fn good(text: &str) -> (Config, Vec<String>) {
    match Config::parse(text, Path::new(FILE)) {
        Ok((config, notices)) => (config, notices.iter().map(ToString::to_string).collect()),
        Err(e) => panic!("{text}\nis refused:\n{e}"),
    }
}

fn bad(text: &str) -> Vec<String> {
    match Config::parse(text, Path::new(FILE)) {
        Ok((_, notices)) => panic!("{text}\nis accepted, with {notices:?}"),
        Err(e) => e.to_string().lines().map(str::to_owned).collect(),
    }
}

/// The one error of `text`, which must hold all `parts`.
fn bad_with(text: &str, parts: &[&str]) {
    let errors = bad(text);
    assert_eq!(errors.len(), 1, "{text}: {errors:#?}");
    for part in parts {
        assert!(errors[0].contains(part), "{text}: no {part:?} in {:?}", errors[0]);
    }
}

/// The one notice of `text`, which must hold all `parts`.
fn notice_with(text: &str, parts: &[&str]) -> Config {
    let (config, notices) = good(text);
    assert_eq!(notices.len(), 1, "{text}: {notices:#?}");
    for part in parts {
        assert!(notices[0].contains(part), "{text}: no {part:?} in {:?}", notices[0]);
    }
    config
}

fn sample() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/sjp.toml");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn sample_is_what_the_table_of_settings_says() {
    let expected = annotated(&Config::default());
    let sample = sample();
    for (i, (is, should)) in sample.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, should, "etc/sjp.toml line {}: run `sjp generate config etc`", i + 1);
    }
    assert_eq!(sample, expected);
}

#[test]
fn sample_parses_to_the_defaults_without_a_notice() {
    let (config, notices) = good(&sample());
    assert_eq!(config, Config::default());
    assert_eq!(notices, Vec::<String>::new());
}

#[test]
fn empty_file_means_the_defaults() {
    for text in ["", "\n", "# nothing\n", "\u{feff}", "[pin]\n"] {
        assert_eq!(good(text).0, Config::default());
    }
}

#[test]
fn defaults_are_the_known_ones() {
    let c = Config::default();
    assert_eq!(c.policy(), Policy::default());
    assert_eq!(c.general.state_dir, Path::new("/run/sjp"));
    assert_eq!(c.general.log_file, Path::new("/var/log/sjp/decisions.jsonl"));
    assert_eq!(c.general.text_log.0.as_deref(), Some(Path::new("/var/log/sjp/sjp.log")));
    assert_eq!(c.general.disable_file, Path::new("/etc/sjp/disable"));
    assert_eq!(c.cadence.node_poll_interval, Duration::from_secs(1));
    assert_eq!(c.cadence.queue_poll_interval, Duration::from_secs(8));
    assert_eq!(c.cadence.act_interval, Duration::from_secs(15));
    assert_eq!(c.cadence.policy_max_age, Duration::from_secs(300));
    assert_eq!(c.cadence.max_updates_per_second, 10.0);
    assert_eq!(c.policy.demand_median, 4267.0);
    assert_eq!(c.pin.release_after, Duration::from_secs(60));
    assert_eq!(c.starvation.fat, Duration::from_secs(3600));
    assert_eq!(c.starvation.slim, Duration::from_secs(4 * 3600));
    assert_eq!(c.recheck.interval, Duration::from_secs(60));
    assert!(c.recheck.open && c.starvation.enabled && !c.guard.enabled && !c.pin.wait_for_room);
    assert_eq!(c.limits.mode, LimitsMode::Off);
    assert_eq!(c.limits.flex_qos_name, "flex");
    assert_eq!(c.metrics.listen, None);
}

/// Every setting: a value of its own is read, printed, and read again the same.
#[test]
fn each_setting_reads_back_what_it_prints() {
    for setting in SETTINGS {
        let text = match setting.kind {
            Kind::Switch => match setting.value(&Config::default()) {
                Value::Switch(on) => (!on).to_string(),
                other => panic!("{other:?}"),
            },
            Kind::Choice(words) => format!("{:?}", words.last().unwrap()),
            Kind::Path | Kind::PathOrOff | Kind::Command => "\"/x/a \\\"b\\\" \\\\c\"".into(),
            Kind::Time { min, .. } => (min + 0.5).to_string(),
            Kind::Number { max, .. } => (max / 2.0 + 0.25).to_string(),
            Kind::Count { max, .. } => (max - 1).to_string(),
            Kind::Name => "\"other\"".into(),
            Kind::Names => "[\"b\", \"a\"]".into(),
            Kind::Demand => "[[1000, 0.25], [2000, 0.75]]".into(),
            Kind::Listen => "\"unix:/run/sjp/m.sock\"".into(),
        };
        let (config, _) = good(&format!("[{}]\n{} = {text}\n", setting.section, setting.key));
        assert_ne!(config, Config::default(), "{} = {text} changed nothing", setting.name());
        let (again, _) = good(&annotated(&config));
        assert_eq!(config, again, "{}", setting.name());
    }
}

#[test]
fn print_config_shows_the_values_in_force_and_keeps_the_defaults_in_the_comments() {
    let (config, _) = good("[pin]\nmin_gain = 1\n[policy]\ntolerance = 0.5\n");
    let text = annotated(&config);
    assert!(text.contains("\nmin_gain = 1.0\n"), "{text}");
    assert!(text.contains("\ntolerance = 0.5\n") && text.contains("default 0.25"), "{text}");
    let defaults = annotated(&Config::default());
    assert!(defaults.contains("\n# min_gain = 1.0\n"), "{defaults}");
}

#[test]
fn every_key_of_the_older_tool_is_known() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/config-keys.md");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return;
    };
    let mut seen = 0;
    for row in text.lines().filter(|l| l.starts_with("| ") && l.contains('.')) {
        let first = row.trim_start_matches("| ").split(" | ").next().unwrap();
        let mut section = String::new();
        for key in first.split(", ") {
            let key = key.trim_end_matches(".*");
            let full = match key.split_once('.') {
                Some((s, _)) if SECTIONS.iter().any(|known| known.name == s) => {
                    section = key.rsplit_once('.').unwrap().0.to_owned();
                    key.to_owned()
                }
                _ => format!("{section}.{}", key.trim_start_matches('.')),
            };
            let known = SETTINGS.iter().any(|s| format!("{}.{}", s.section, s.key) == full)
                || settings::WITHOUT_USE.iter().any(|(k, _)| *k == full);
            assert!(known, "{full} is not known");
            seen += 1;
        }
    }
    assert!(seen >= 40, "only {seen} keys found in {}", path.display());
}

#[test]
fn unknown_key_names_the_nearest_with_line_and_column() {
    let text = "[general]\nmode = \"advise\"\n\n[pin]\n  max_agee = 5\n";
    assert_eq!(
        bad(text),
        ["/etc/sjp/sjp.toml:5:3: [pin] max_agee: unknown key; nearest is max_age"]
    );
    bad_with("[pin]\nrelease = 5", &["[pin] release:", "nearest is release_after"]);
    bad_with("[pin]\ntolerance = 5", &["nearest is [policy] tolerance"]);
    bad_with("[cadence]\nNODE_POLL_INTERVAL = 5", &["nearest is node_poll_interval"]);
    bad_with("[recheck]\nzzzzqqqq = 5", &["[recheck] has interval, open"]);
    bad_with(
        "mode = \"observe\"",
        &[":1:1: mode: unknown key outside any section", "[general] mode"],
    );
    bad_with("zzzzqqqq = 1", &["unknown key outside any section"]);
    bad_with("[starvation.budget_hours]\nfatt = 1", &["nearest is budget_hours.fat"]);
    bad_with("[starvation]\nfat = 1", &["[starvation] fat:", "nearest is"]);
}

#[test]
fn unknown_section_names_the_nearest() {
    bad_with("\n[polcy]\ntolerance = 1", &[":2:2: [polcy]: unknown section; nearest is [policy]"]);
    bad_with("[zzzzqqqq]\na = 1", &["[zzzzqqqq]: unknown section; the sections are [general]"]);
    bad_with("[[pin]]\nenabled = true", &["[pin]", "not a list"]);
    bad_with("pin = true", &[":1:7: pin: is a section: write [pin] with its keys below it"]);
    bad_with("[starvation]\nbudget_hours = 3", &["[starvation] budget_hours: is a table"]);
    bad_with("[pin.deep]\nx = 1", &["[pin] deep", "unknown key"]);
}

#[test]
fn all_errors_at_once_in_file_order() {
    let text = "[pin]\nmax_age = \"x\"\nenabled = 1\n[general]\nmode = \"enforced\"\n\
                state_dir = \"run\"\n[nope]\n[cadence]\nnode_poll_interval = 0\n";
    let errors = bad(text);
    let lines: Vec<_> = errors.iter().map(|e| e.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["2", "3", "5", "6", "7", "9"], "{errors:#?}");
}

#[test]
fn wrong_types_say_what_is_allowed() {
    for (text, parts) in [
        ("[pin]\nenabled = 1", ["a whole number is not allowed", "true or false"]),
        ("[pin]\nenabled = \"yes\"", ["a string is not allowed", "true or false"]),
        ("[pin]\nmax_age = true", ["true or false is not allowed", "seconds, 0.5 to 86400"]),
        ("[pin]\nmax_age = \"10\"", ["write it without the quotes", "seconds"]),
        ("[pin]\nmax_age = 2024-01-01", ["a date is not allowed", "seconds"]),
        ("[pin]\nmax_age = [1]", ["a list is not allowed", "seconds"]),
        ("[pin]\nmax_age = {a = 1}", ["a table is not allowed", "seconds"]),
        ("[general]\nmode = 3", ["a whole number is not allowed", "\"observe\", \"advise\" or"]),
        ("[general]\nstate_dir = 3", ["a whole number is not allowed", "an absolute path"]),
        ("[topology]\nbatch_partitions = \"a\"", ["a string is not allowed", "list of names"]),
        (
            "[topology]\nbatch_partitions = [1]",
            ["a whole number is not allowed in the list", "names"],
        ),
        ("[limits]\nhysteresis = 5.5", ["5.5 is not a whole number", "checks, 1 to 10000"]),
        ("[policy]\ndemand = 4", ["a whole number is not allowed", "[MB per CPU, weight]"]),
    ] {
        bad_with(text, &parts);
    }
}

#[test]
fn out_of_range_is_refused() {
    for text in [
        "[cadence]\nnode_poll_interval = 0.19",
        "[cadence]\nnode_poll_interval = -1",
        "[cadence]\nnode_poll_interval = nan",
        "[cadence]\nnode_poll_interval = inf",
        "[cadence]\nnode_poll_interval = 1e300",
        "[cadence]\nnode_poll_interval = 99999999999999999999999999",
        "[cadence]\nqueue_poll_interval = 0",
        "[cadence]\npolicy_max_age = 9223372036854775807",
        "[cadence]\nmax_updates_per_second = 0",
        "[pin]\nrelease_after = 1e12",
        "[pin]\nmin_gain = -0.1",
        "[pin]\nmin_gain_share = -inf",
        "[policy]\ntolerance = -0.5",
        "[policy]\ndemand_median = 0",
        "[recheck]\ninterval = 0.5",
        "[starvation]\nbudget_hours.fat = 0",
        "[starvation]\nfat_ratio_threshold = 0",
        "[limits]\nmin_idle_share = 1.01",
        "[limits]\nceiling = 0.5",
        "[limits]\nhysteresis = 0",
        "[limits]\nhysteresis = -3",
        "[limits]\npulse_seconds = 0",
        "[commands]\ntimeout = 0",
    ] {
        bad_with(text, &["is not allowed; allowed: "]);
    }
}

#[test]
fn zero_is_off_where_it_says_so() {
    let (config, _) = good("[recheck]\ninterval = 0");
    assert_eq!(config.recheck.interval, Duration::ZERO);
}

#[test]
fn integers_and_floats_stand_for_each_other_where_the_value_allows() {
    let (config, _) = good("[cadence]\nnode_poll_interval = 2\n[policy]\ntolerance = 1\n");
    assert_eq!(config.cadence.node_poll_interval, Duration::from_secs(2));
    assert_eq!(config.policy.tolerance, 1.0);
    let (config, _) = good("[limits]\nhysteresis = 7.0\n[pin]\nrelease_after = 0x20\n");
    assert_eq!(config.limits.hysteresis, 7);
    assert_eq!(config.pin.release_after, Duration::from_secs(32));
    assert_eq!(good("[pin]\nrelease_after = 1_000").0.pin.release_after, Duration::from_secs(1000));
}

#[test]
fn demand_takes_pairs_and_tables() {
    let pairs = good("[policy]\ndemand = [[800, 0.1], [4000.0, 0.9]]").0;
    let tables = good(
        "[[policy.demand]]\nmb_per_cpu = 800\nweight = 0.1\n\
                       [[policy.demand]]\nmb_per_cpu = 4000\nweight = 0.9\n",
    )
    .0;
    assert_eq!(pairs.policy.demand, tables.policy.demand);
    assert_eq!(pairs.policy.demand.len(), 2);
    let scaled = notice_with("[policy]\ndemand = [[800, 1], [4000, 3]]", &["add up to 4"]);
    assert_eq!(scaled.policy.demand[1].weight, 0.75);
    notice_with("[policy]\ndemand = [[800, 0.5], [800, 0.5]]", &["800 MB per CPU is listed twice"]);
}

#[test]
fn bad_demand_is_refused_with_its_line() {
    for (text, part) in [
        ("[]", "0 pairs are not allowed"),
        ("[[800, 0]]", "weight 0 is not allowed"),
        ("[[800, -1]]", "weight -1 is not allowed"),
        ("[[800, nan]]", "weight NaN is not allowed"),
        ("[[0, 1]]", "0 MB per CPU is not allowed"),
        ("[[inf, 1]]", "inf MB per CPU is not allowed"),
        ("[[800]]", "a pair of 1 values"),
        ("[[800, 1, 2]]", "a pair of 3 values"),
        ("[[\"800\", 1]]", "a string is not allowed"),
        ("[800, 1]", "a whole number is not allowed in the list"),
        ("[{mb_per_cpu = 1}]", "weight is missing"),
        ("[{weight = 1}]", "mb_per_cpu is missing"),
        ("[{mb = 1, weight = 1}]", "\"mb\" is unknown here"),
    ] {
        let errors = bad(&format!("[policy]\ndemand = {text}"));
        assert!(errors[0].contains(":2:") && errors[0].contains(part), "{text}: {errors:#?}");
    }
    let many = vec!["[1, 1]"; MAX_DEMAND + 1].join(",");
    bad_with(&format!("[policy]\ndemand = [{many}]"), &["65 pairs are not allowed"]);
    let errors = bad("[policy]\ndemand = [\n  [800, 0.5],\n  [0, 0.5],\n  [9, -1],\n]\n");
    assert_eq!(errors.len(), 2);
    assert!(errors[0].contains(":4:3:") && errors[1].contains(":5:3:"), "{errors:#?}");
}

#[test]
fn paths_must_be_absolute() {
    for (given, part) in [
        ("", "an empty path"),
        ("run/sjp", "a relative path"),
        ("./x", "a relative path"),
        ("~/sjp", "~ is not expanded"),
        ("/run/\\u0007", "a control character"),
        ("/run/\\u0000x", "a control character"),
    ] {
        bad_with(&format!("[general]\nstate_dir = \"{given}\""), &[part, "an absolute path"]);
        bad_with(&format!("[commands]\nsqueue = \"{given}\""), &[part]);
    }
    bad_with("[general]\nlog_file = \"\"", &["an empty path"]);
    let (config, _) = good("[general]\ntext_log = \"\"");
    assert_eq!(config.general.text_log.0, None);
    assert_eq!(good(&annotated(&config)).0, config);
}

#[test]
fn two_settings_cannot_name_one_file() {
    bad_with(
        "[general]\nlog_file = \"/var/log/x\"\ntext_log = \"/var/log/x\"",
        &[":2:12:", "[general] log_file: /var/log/x is what general.text_log names too"],
    );
    bad_with("[general]\ndisable_file = \"/run/sjp\"", &["[general] disable_file"]);
}

#[test]
fn names_are_names() {
    bad_with("[topology]\nexclude_partitions = [\"a,b\"]", &["holds a comma"]);
    bad_with("[topology]\nexclude_partitions = [\"a b\"]", &["holds white space"]);
    bad_with("[topology]\nexclude_partitions = [\"\"]", &["an empty name"]);
    bad_with("[limits]\nflex_qos_name = \"\"", &["an empty name"]);
    let config =
        notice_with("[topology]\nbatch_partitions = [\"a\", \"b\", \"a\"]", &["listed twice"]);
    assert_eq!(config.topology.batch_partitions, ["a", "b"]);
}

#[test]
fn choices_name_the_nearest_word() {
    bad_with(
        "[general]\nmode = \"enforec\"",
        &["nearest is \"enforce\"", "\"observe\", \"advise\""],
    );
    bad_with("[general]\nmode = \"zzzz\"", &["\"zzzz\" is not known; allowed:"]);
    bad_with("[general]\nmode = \"Enforce\"", &["nearest is \"enforce\""]);
    bad_with("[policy]\nno_room = \"\\u001b[31m\"", &["\\u{1b}[31m"]);
}

#[test]
fn metrics_listen_on_loopback_only() {
    let listen = |text: &str| good(&format!("[metrics]\nlisten = \"{text}\"")).0.metrics.listen;
    assert_eq!(listen(""), None);
    assert_eq!(listen("127.0.0.1:9123"), Some(Listen::Tcp("127.0.0.1:9123".parse().unwrap())));
    assert_eq!(listen("[::1]:9123"), Some(Listen::Tcp("[::1]:9123".parse().unwrap())));
    assert_eq!(listen("unix:/run/m"), Some(Listen::Unix("/run/m".into())));
    bad_with("[metrics]\nlisten = \"0.0.0.0:9123\"", &["not a loopback address"]);
    bad_with("[metrics]\nlisten = \"127.0.0.1\"", &["neither an IP address with a port"]);
    bad_with("[metrics]\nlisten = \"127.0.0.1:0\"", &["has no port"]);
    bad_with("[metrics]\nlisten = \"unix:m\"", &["relative path"]);
    bad_with("[metrics]\nlisten = 9123", &["a whole number is not allowed"]);
}

#[test]
fn older_names_and_dead_keys_give_a_notice() {
    let c = notice_with(
        "[limits]\nraise_above = 0.25",
        &[":2:15: [limits] raise_above", "min_idle_share"],
    );
    assert_eq!(c.limits.min_idle_share, 0.25);
    let (c, notices) = good("[limits]\nraise_above = 0.4");
    assert_eq!(c.limits.min_idle_share, 0.4);
    assert!(notices.iter().any(|n| n.contains("older name")), "{notices:?}");
    let (c, notices) = good("[limits]\nraise_above = 0.4\nmin_idle_share = 0.25");
    assert_eq!(c.limits.min_idle_share, 0.25);
    assert!(notices[0].contains("is given too and counts"), "{notices:?}");
    let c = notice_with(
        "[starvation.budget_hours]\nfat = 1\nslim = 4\nfat_ratio_threshold = 6000",
        &["budget_hours.fat_ratio_threshold", "older name of [starvation] fat_ratio_threshold"],
    );
    assert_eq!(c.starvation.fat_ratio_threshold, 6000.0);
    bad_with("[limits]\nraise_above = 2", &["[limits] raise_above: 2 is not allowed"]);
    notice_with("[cadence]\nscore_interval = 2", &["[cadence] score_interval", "without effect"]);
    notice_with("[policy.buckets]\nsmall = 3\n[policy.buckets.x]\ny = 1", &["[policy] buckets"]);
    notice_with("[policy]\nbuckets = []", &["[policy] buckets", "without effect"]);
}

#[test]
fn a_setting_without_effect_gives_a_notice_only_when_changed() {
    let unused: Vec<_> = SETTINGS.iter().filter(|s| s.used == Use::NotYet).collect();
    for s in &unused {
        let text =
            format!("[{}]\n{} = {}", s.section, s.key, s.kind.toml(&s.value(&Config::default())));
        assert_eq!(good(&text).1, Vec::<String>::new());
    }
    if unused.iter().any(|s| s.name() == "[pin] time_aware") {
        notice_with(
            "[pin]\ntime_aware = true",
            &["[pin] time_aware: has no effect in this version"],
        );
    }
}

#[test]
fn settings_that_do_not_fit_together_give_notices() {
    for (text, part) in [
        ("[pin]\nmax_age = 400\n", "is above [cadence] policy_max_age (300 s), which counts"),
        ("[cadence]\nnode_poll_interval = 6\n", "give at least 12 s"),
        ("[pin]\nwait_for_room = true\n", "has no effect without [policy] always_place = true"),
        (
            "[policy]\nalways_place = true\nno_room = \"open\"\n",
            "[policy] always_place: has no effect",
        ),
        ("[pin]\nmin_gain = 1\nmin_gain_share = 0.1\n", "[pin] min_gain_share: has no effect"),
        ("[recheck]\ninterval = 0\nopen = true\n", "[recheck] open: has no effect"),
        ("[limits]\nmode = \"global\"\nlower_below = 0.3\n", "a pulse would end as it begins"),
        ("[topology]\nbatch_partitions = [\"interactive\"]\n", "stays excluded"),
        (
            "[topology]\nbatch_partitions = [\"a\"]\nexclude_partitions = [\"a\"]\n",
            "\"a\" is in batch_partitions too",
        ),
    ] {
        let (_, notices) = good(text);
        assert_eq!(notices.iter().filter(|n| n.contains(part)).count(), 1, "{text}{notices:#?}");
    }
    let (config, _) = good("[pin]\nmax_age = 400\n");
    assert_eq!(config.policy().max_age_ms, 300_000);
}

#[test]
fn what_is_not_toml_is_an_error_with_its_place() {
    bad_with("[pin]\nmax_age = \n", &["/etc/sjp/sjp.toml:2:", "not TOML"]);
    bad_with("[pin]\nmax_age = 3\nmax_age = 4\n", &[":3:1:", "duplicate key", "max_age"]);
    bad_with("[pin]\nmax_age = 3\n[pin]\nenabled = true\n", &[":3:", "duplicate key"]);
    let errors = bad("[pin\nmax_age = 3\n[general]\nmode = \"nope\"\nx = = 3\n");
    assert!(errors.len() >= 3, "{errors:#?}");
    assert!(errors.iter().any(|e| e.contains("\"nope\" is not known")), "{errors:#?}");
    let deep = format!("[pin]\nx = {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(!bad(&deep).is_empty());
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let load = |path: &Path| match Config::load(path) {
        Ok(_) => panic!("{} is accepted", path.display()),
        Err(e) => e.to_string(),
    };
    let missing = dir.path().join("none.toml");
    assert!(load(&missing).ends_with("none.toml: cannot be read: no such file or directory"));
    let source = Source { file: Some(missing), ..Source::default() };
    assert!(source.load().is_err());
    assert!(load(dir.path()).contains("is not a regular file"));
    assert!(load(Path::new("/dev/null")).contains("is not a regular file"));
    let file = dir.path().join("x.toml");
    std::fs::write(&file, b"[pin]\n# \xff\n").unwrap();
    assert!(load(&file).contains("line 2 is not UTF-8"));
    std::fs::write(&file, vec![b'#'; 2 << 20]).unwrap();
    assert!(load(&file).contains("larger than 1 MB"));
}

#[test]
fn command_line_overrules_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    std::fs::write(&file, "[general]\nmode = \"advise\"\nstate_dir = \"/a\"\n").unwrap();
    let mut source = Source { file: Some(file), ..Source::default() };
    let (config, _) = source.load().unwrap();
    assert_eq!((config.general.mode, config.policy().mode), (Mode::Advise, Mode::Advise));
    source.mode = Some(Mode::Enforce);
    source.state_dir = Some("/b".into());
    let (config, _) = source.load().unwrap();
    assert_eq!(config.policy().mode, Mode::Enforce);
    assert_eq!(config.general.state_dir, Path::new("/b"));
}

#[test]
fn commands_are_found_in_path() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    std::fs::create_dir_all(a.join("scontrol")).unwrap();
    std::fs::create_dir(&b).unwrap();
    std::fs::write(b.join("scontrol"), "").unwrap();
    std::fs::set_permissions(b.join("scontrol"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let search = std::env::join_paths([Path::new("relative"), &a, &b]).unwrap();
    let mut commands = Commands::default();
    assert_eq!(commands.path("scontrol", &search), Some(b.join("scontrol")));
    assert_eq!(commands.path("squeue", &search), None);
    commands.squeue = Some("/opt/slurm/bin/squeue".into());
    assert_eq!(commands.path("squeue", &search), Some("/opt/slurm/bin/squeue".into()));
}

#[test]
fn manual_page_names_every_setting() {
    let page = manual("0.0");
    for setting in SETTINGS {
        let key = format!("\n.B {}\n", setting.key.replace('-', "\\-"));
        assert!(page.contains(&key), "{}", setting.name());
    }
    assert!(page.starts_with(".TH sjp.toml 5"));
}

proptest::proptest! {
    /// Whatever stands in the file: settings or errors with a place in it.
    #[test]
    fn no_text_makes_it_panic(cut in 0..6000_usize, put in ".{0,12}", rest in 0..200_usize) {
        let sample = annotated(&Config::default());
        let at = (0..=cut.min(sample.len())).rev().find(|i| sample.is_char_boundary(*i)).unwrap();
        let on = (at + rest).min(sample.len());
        let text = format!("{}{put}{}", &sample[..at], sample.get(on..).unwrap_or_default());
        if let Err(errors) = Config::parse(&text, Path::new(FILE)) {
            proptest::prop_assert!(!errors.0.is_empty());
            for e in &errors.0 {
                proptest::prop_assert!(e.line >= 1 && e.line <= text.split('\n').count() + 1);
                proptest::prop_assert!(!e.to_string().chars().any(|c| c.is_control()), "{e}");
            }
            let lines: Vec<_> = errors.0.iter().map(|e| (e.line, e.column)).collect();
            proptest::prop_assert!(lines.is_sorted());
        }
    }
}
