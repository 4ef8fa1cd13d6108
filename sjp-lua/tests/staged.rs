//! The modules as they are installed, loaded by sjp.lua in the real
//! interpreters: lua5.1, lua5.3 and lua5.4.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/cluster.rs"]
#[allow(dead_code, reason = "part of it is used")]
mod cluster;
#[path = "common/stage.rs"]
mod stage;

use cluster::Cluster;
use sjp_table::{Capacity, Meta, Publisher};
use stage::{loader, stage};
use std::path::Path;
use std::process::Output;

const VERSIONS: [&str; 3] = ["5.1", "5.3", "5.4"];

/// A job_desc that behaves as Slurm's, and a `slurm` that logs to stdout.
const PRELUDE: &str = r#"
slurm = {
    log_info = function(...) print("info", string.format(...)) end,
    log_error = function(...) print("error", string.format(...)) end,
}
function desc(store)
    store.script = "batch"
    return setmetatable({}, {
        __index = function(_, k) return store[k] end,
        __newindex = function(_, k, v) assert(type(v) == "string"); store[k] = v end,
    }), store
end
"#;

/// Runs a program with these arguments in this folder, with a clean
/// environment.
#[allow(clippy::disallowed_methods, reason = "the tests' own interpreters and readers of files")]
fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let outcome = std::process::Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/local/bin")
        .output();
    outcome.unwrap_or_else(|error| {
        panic!(
            "{program} does not run ({error}): these tests need lua5.1, lua5.3, lua5.4 and binutils"
        )
    })
}

/// What a script prints; it must end well.
fn lua(version: &str, folder: &Path, script: &str) -> String {
    let script = format!("{PRELUDE}{script}");
    let output = run(&format!("lua{version}"), &["-e", &script], folder);
    assert!(
        output.status.success(),
        "lua{version} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A published cluster, alive as long as this is.
fn published() -> (tempfile::TempDir, Publisher) {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::slim_and_fat();
    let roster = cluster.roster();
    let rooms = cluster.rooms(&roster);
    let mut publisher =
        Publisher::create(dir.path(), Capacity::for_size(cluster.nodes.len())).unwrap();
    let meta = Meta { data_time_ns: sjp_table::now_ns(), claims_taken: 0 };
    publisher.publish(&roster, 1, &rooms, meta).unwrap();
    (dir, publisher)
}

fn require(path: &str) -> String {
    format!("package.path = {path:?} .. package.path; local sjp = require('sjp')\n")
}

#[test]
fn the_module_places_in_every_interpreter() {
    let stage = stage();
    for version in VERSIONS {
        let (dir, mut publisher) = published();
        let place = format!(
            "{}sjp.config.state_dir = {dir:?}; sjp.config.disable_file = ''
             local d, store = desc({{min_cpus = 4, min_mem_per_node = 8000, time_limit = 60}})
             print(sjp.version, sjp.place(d, 1000, {{slim = {{}}, fat = {{}}}}))
             print(store.partition, store.req_nodes, store.admin_comment)
             print(sjp.place(nil))",
            require(&format!("{}/?.lua;", stage.display())),
            dir = dir.path()
        );
        let printed = lua(version, Path::new("/"), &place);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[0], format!("{}\ttrue\tnil", env!("CARGO_PKG_VERSION")), "lua{version}");
        assert!(
            lines[1].starts_with("slim\tslim1\tsjp:pin=slim1;from=fat,slim;job=4c,7.8G,"),
            "{}",
            lines[1]
        );
        assert!(lines[2].starts_with("error\tsjp: place("), "{}", lines[2]);
        assert_eq!(lines[3], "false\terror");
        assert_eq!(publisher.claims_since(0).unwrap().list.len(), 1);
    }
}

#[test]
fn the_loader_finds_the_module_beside_itself() {
    let stage = stage();
    let show = "print(sjp.interface, sjp.place({}, 0))";
    for version in VERSIONS {
        // A relative folder.
        assert_eq!(
            lua(version, &stage, &format!("{}{show}", require("./?.lua;"))),
            "1\tfalse\tno table\n"
        );
        let parent = stage.parent().unwrap();
        assert_eq!(
            lua(version, parent, &format!("{}{show}", require("sjp/?.lua;"))),
            "1\tfalse\tno table\n"
        );
        // A linked folder.
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&stage, dir.path().join("here")).unwrap();
        let path = format!("{}/here/?.lua;", dir.path().display());
        assert_eq!(
            lua(version, Path::new("/"), &format!("{}{show}", require(&path))),
            "1\tfalse\tno table\n"
        );
        // Only sjp.lua is linked: by package.cpath.
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(stage.join("sjp.lua"), dir.path().join("sjp.lua")).unwrap();
        let script = format!(
            "package.cpath = '{}/?.so;' .. package.cpath\n{}{show}",
            stage.display(),
            require(&format!("{}/?.lua;", dir.path().display()))
        );
        assert_eq!(lua(version, Path::new("/"), &script), "1\tfalse\tno table\n");
    }
}

#[test]
fn without_a_module_the_loader_still_answers() {
    let answer = "false\tno native module\nfalse\tno native module\n";
    let show = "print(sjp.place({}, 0)); print(sjp.open())\nassert(type(sjp.version) == 'string' and sjp.config.state_dir == '/run/sjp')";
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("sjp_native-{version}.so"));
        std::fs::copy(loader(), dir.path().join("sjp.lua")).unwrap();
        let script = format!("package.cpath = ''\n{}{show}", require("./?.lua;"));
        let expect = |what: &str| {
            let printed = lua(version, dir.path(), &script);
            let (said, rest) = printed.split_once('\n').unwrap();
            assert!(
                said.starts_with("info\tsjp: jobs are not placed") && said.contains(what),
                "{said}"
            );
            assert_eq!(rest, answer, "lua{version}");
        };
        expect(&format!("no sjp_native-{version}.so in ./"));
        std::fs::write(&file, "not a library").unwrap();
        expect("does not load");
        // Made for another Lua.
        let other = if version == "5.1" { "5.4" } else { "5.1" };
        std::fs::remove_file(&file).unwrap();
        std::fs::copy(stage().join(format!("sjp_native-{other}.so")), &file).unwrap();
        expect("does not load");
        // Without a `slurm` to log to, or with a Lua that may not load C.
        let quiet = format!("slurm = nil\n{script}");
        assert_eq!(lua(version, dir.path(), &quiet), answer);
        let bare = format!("slurm = nil; package.loadlib = nil; debug = nil; io = nil\n{script}");
        assert_eq!(lua(version, dir.path(), &bare), answer);
    }
}

#[test]
fn a_module_of_another_release_is_not_used() {
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(loader()).unwrap();
        assert_eq!(text.matches("local INTERFACE = 1\n").count(), 1);
        let text = text.replace("local INTERFACE = 1\n", "local INTERFACE = 2\n");
        std::fs::write(dir.path().join("sjp.lua"), text).unwrap();
        let module = format!("sjp_native-{version}.so");
        std::fs::copy(stage().join(&module), dir.path().join(&module)).unwrap();
        let printed = lua(
            version,
            dir.path(),
            &format!("package.cpath = ''\n{}print(sjp.place({{}}, 0))", require("./?.lua;")),
        );
        assert!(printed.contains("install both from the same release"), "{printed}");
        assert!(printed.ends_with("false\tno native module\n"), "{printed}");
    }
}

#[test]
fn loader_and_module_agree_on_release_and_interface() {
    let text = std::fs::read_to_string(loader()).unwrap();
    assert!(text.contains(&format!("\nlocal VERSION = \"{}\"\n", env!("CARGO_PKG_VERSION"))));
    assert!(text.contains(&format!("\nlocal INTERFACE = {}\n", sjp_native::INTERFACE)));
}

#[test]
fn the_example_script_runs() {
    let stage = stage();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/job_submit.lua");
    for version in VERSIONS {
        let (dir, _publisher) = published();
        let script = format!(
            "slurm.SUCCESS = 0
             package.path = '{}/?.lua;' .. package.path; local sjp = require('sjp')
             sjp.config.state_dir = {dir:?}; sjp.config.disable_file = ''
             dofile({example:?})
             local d, store = desc({{min_cpus = 16, min_mem_per_node = 1000, time_limit = 60}})
             local parts = {{slim = {{}}, fat = {{}}}}
             local seen = {{}}
             for i = 1, 5 do
                 d, store = desc({{min_cpus = 16, min_mem_per_node = 1000, time_limit = 60}})
                 assert(slurm_job_submit(d, parts, 1000) == 0)
                 seen[i] = store.admin_comment:match('^sjp:(%a+)=')
             end
             print(table.concat(seen, ' '))
             assert(slurm_job_modify(d, {{}}, parts, 0) == 0)",
            stage.display(),
            dir = dir.path(),
        );
        let printed = lua(version, Path::new("/"), &script);
        let seen: Vec<&str> = printed.split_whitespace().collect();
        // Four nodes are free: then the job waits for every partition.
        assert_eq!(seen.len(), 5, "{printed}");
        assert!(seen[..4].iter().all(|&mark| mark == "pin" || mark == "placed"), "{printed}");
        assert_eq!(seen[4], "open", "{printed}");

        // Without sjp: the site's jobs go on.
        let script = format!(
            "slurm.SUCCESS = 0; package.path = ''; package.loaded.sjp = nil
             package.preload.sjp = function() error('gone') end
             dofile({example:?}); assert(slurm_job_submit(desc({{}}), {{}}, 0) == 0)"
        );
        let printed = lua(version, Path::new("/"), &script);
        assert!(printed.starts_with("error\tjob_submit: sjp does not load"), "{printed}");
    }
}

#[test]
fn nothing_but_the_entry_point_is_exported() {
    let stage = stage();
    for version in VERSIONS {
        let file = stage.join(format!("sjp_native-{version}.so"));
        let file = file.to_str().unwrap();
        let symbols = run("nm", &["-D", "--defined-only", file], Path::new("/"));
        let symbols = String::from_utf8(symbols.stdout).unwrap();
        let names: Vec<&str> =
            symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
        assert_eq!(names, ["luaopen_sjp_native"], "{file}");

        let dynamic = run("readelf", &["-W", "-d", file], Path::new("/"));
        let dynamic = String::from_utf8(dynamic.stdout).unwrap();
        let needed: Vec<&str> = dynamic.lines().filter(|l| l.contains("(NEEDED)")).collect();
        assert!(!needed.is_empty() && !needed.iter().any(|l| l.contains("lua")), "{needed:?}");
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
}
