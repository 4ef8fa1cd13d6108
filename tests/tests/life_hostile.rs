//! A table that is none, or whose bits are flipped, under a real slurmctld: place()
//! answers false, slurmctld lives, and each submission is accepted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use sjp_tests::forge::{
    Forged, TOTAL_WORD, VERSION_WORD, WORD, link_table, path_of, set_word, table_bytes, word,
};
use sjp_tests::{ClusterSpec, RunAs, TestCluster, job_submit_text, table_target, wait_for};

const SOON: Duration = Duration::from_secs(60);
/// How long flips may take to tell.
const LONG: Duration = Duration::from_secs(180);
/// The age of a table made by hand does not matter.
const LASTING: &str = "[pin]\nmax_age = 3600.0\n[cadence]\nqueue_poll_interval = 1.0\n";

fn start() -> TestCluster {
    ClusterSpec::new()
        .cloud_nodes("s[01-04]", 64, 256_000)
        .cloud_nodes("f[01-02]", 64, 1_024_000)
        .partition("slim", "s[01-04]", "Default=YES")
        .partition("fat", "f[01-02]", "")
        .with_sjp("", "")
        .start()
        .unwrap()
}

/// Has the module look for its table in another folder, where it looks at once.
fn look_in(cluster: &TestCluster, folder: &str) {
    let text = job_submit_text("", "");
    let changed = text.replace("@DIR@/run", &format!("@DIR@/{folder}"));
    assert_ne!(changed, text);
    cluster.write_job_submit(&changed).unwrap();
}

/// xorshift64*: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

#[test]
fn whatever_stands_there_for_a_table() {
    let cluster = start();
    let sjpd = cluster.start_sjpd(LASTING).unwrap();
    cluster.wait_placing().unwrap();
    let pid = cluster.slurmctld_pid();
    let sound = table_bytes(&cluster.dir().join("run")).unwrap();
    // The table that the module has is closed: what it finds next is all it has.
    assert_eq!(sjpd.stop().unwrap(), 0);
    assert_eq!(cluster.probe().unwrap().reason, "no table");

    let folder = |name: &str| cluster.dir().join("hostile").join(name);
    let make = |name: &str| {
        let path = folder(name);
        std::fs::create_dir_all(&path).unwrap();
        path.join("table")
    };
    let plain = cluster.dir().join("hostile.plain");
    std::fs::write(&plain, &sound).unwrap();
    let fifo = cluster.dir().join("hostile.fifo");
    cluster.cmd("mkfifo", &[&fifo.display().to_string()]).unwrap();
    let plain_open = std::fs::File::open(&plain).unwrap();
    let fifo_open = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let zero_open = std::fs::File::open("/dev/zero").unwrap();
    let dir_open = std::fs::File::open(cluster.dir()).unwrap();

    // What stands in the folder itself.
    std::fs::create_dir_all(folder("nothing")).unwrap();
    std::fs::create_dir(make("directory")).unwrap();
    cluster.cmd("mkfifo", &[&make("fifo").display().to_string()]).unwrap();
    std::fs::copy(&plain, make("plain-file")).unwrap();
    symlink("/dev/zero", make("dev-zero")).unwrap();
    symlink(&plain, make("link-to-plain-file")).unwrap();
    symlink(folder("loop").join("table"), make("loop")).unwrap();
    symlink("/proc/self/mem", make("own-memory")).unwrap();
    symlink(format!("/proc/{}/fd/9999", std::process::id()), make("no-such-file")).unwrap();
    symlink("/proc/4194303/fd/3", make("no-such-process")).unwrap();
    let mut names: Vec<String> = [
        "nothing",
        "directory",
        "fifo",
        "plain-file",
        "dev-zero",
        "link-to-plain-file",
        "loop",
        "own-memory",
        "no-such-file",
        "no-such-process",
    ]
    .map(String::from)
    .to_vec();

    // Files that another process holds.
    let mut link = |name: &str, target: PathBuf| {
        link_table(&folder(name), &target).unwrap();
        names.push(name.to_string());
    };
    link("fd-of-plain-file", path_of(&plain_open));
    link("fd-of-fifo", path_of(&fifo_open));
    link("fd-of-dev-zero", path_of(&zero_open));
    link("fd-of-directory", path_of(&dir_open));
    link("fd-of-munged", a_socket_of_munged(&cluster));
    let forge = |name: &str, bytes: &[u8]| Forged::new(name, bytes, true).unwrap();
    let other_name = forge("other", &sound);
    let unsealed = Forged::new("sjp-table", &sound, false).unwrap();
    let open_to_all = forge("sjp-table", &sound).open_to_all().unwrap();
    let RunAs::Uid(uid) = RunAs::user(1) else { unreachable!("a user") };
    let of_a_user = forge("sjp-table", &sound).owned_by(uid).unwrap();
    let empty = forge("sjp-table", b"");
    let short = forge("sjp-table", &sound[..4096]);
    let odd = forge("sjp-table", &sound[..sound.len() - 1]);
    let mut long = sound.clone();
    long.extend_from_slice(&[0; 65_536]);
    let long = forge("sjp-table", &long);
    let with = |index: usize, value: u64| {
        let mut bytes = sound.clone();
        set_word(&mut bytes, index, value);
        forge("sjp-table", &bytes)
    };
    let old = with(VERSION_WORD, 0);
    let newer = with(VERSION_WORD, word(&sound, VERSION_WORD) + 1);
    let larger = with(TOTAL_WORD, u64::MAX);
    let mut random = Random(0x5eed_0001);
    let noise: Vec<u8> = (0..sound.len()).map(|_| random.next() as u8).collect();
    let noise_only = forge("sjp-table", &noise);
    // The first page is sound, all that follows is not.
    let mut behind = noise.clone();
    behind[..32 * WORD].copy_from_slice(&sound[..32 * WORD]);
    let behind = forge("sjp-table", &behind);
    link("other-name", other_name.path());
    link("unsealed", unsealed.path());
    link("open-to-all", open_to_all.path());
    link("of-a-user", of_a_user.path());
    link("empty", empty.path());
    link("short", short.path());
    link("odd", odd.path());
    link("long", long.path());
    link("old-layout", old.path());
    link("newer-layout", newer.path());
    link("larger-than-the-file", larger.path());
    link("noise", noise_only.path());
    link("noise-behind-a-sound-header", behind.path());

    for name in &names {
        look_in(&cluster, &format!("hostile/{name}"));
        let first = cluster.probe().unwrap();
        let (median, longest) = cluster.measure_sbatch(name, 3).unwrap();
        eprintln!("{name}: {} ({median:?}, {longest:?})", first.reason);
        assert!(!first.placed, "{name}: {first:?}");
        let wanted: &[&str] = match name.as_str() {
            "noise-behind-a-sound-header" => &["error", "no table", "stale"],
            _ => &["no table"],
        };
        assert!(wanted.contains(&first.reason.as_str()), "{name}: {first:?}");
        assert!(cluster.slurmctld_alive() && cluster.slurmctld_pid() == pid, "{name}");
    }
    // The way there is not what is refused: a sound table is used. It was closed when
    // it was copied only if sjpd had left it.
    let copy = forge("sjp-table", &sound);
    link_table(&folder("sound"), &copy.path()).unwrap();
    look_in(&cluster, "hostile/sound");
    let answer = cluster.probe().unwrap();
    assert!(answer.placed, "{answer:?}");
    cluster.stop().unwrap();
}

/// An open socket of a process that has nothing to do with sjp.
fn a_socket_of_munged(cluster: &TestCluster) -> PathBuf {
    let text = std::fs::read_to_string(cluster.dir().join("munged.pid")).unwrap();
    let dir = Path::new("/proc").join(text.trim()).join("fd");
    let mut entries = std::fs::read_dir(&dir).unwrap().flatten().map(|e| e.path());
    let socket = entries.find(|path| {
        std::fs::read_link(path).is_ok_and(|to| to.display().to_string().starts_with("socket:"))
    });
    socket.unwrap()
}

#[test]
fn bits_that_flip_while_jobs_are_submitted() {
    // At least so many submissions and flips, and until a flip has told: how many of
    // the one come in a second of the other is up to the machine.
    const SUBMISSIONS: usize = 200;
    const FLIPS: u64 = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    let cluster = start();
    let mut sjpd = cluster.start_sjpd("[cadence]\nqueue_poll_interval = 1.0\n").unwrap();
    cluster.wait_placing().unwrap();
    let pid = cluster.slurmctld_pid();
    let run = cluster.dir().join("run");
    let bytes = table_bytes(&run).unwrap();
    // The heads of all sections, where the counts and indices are; the header itself
    // only towards the end, since a flip there ends this table for good.
    let sections: Vec<usize> = (13..=17).map(|i| word(&bytes, i) as usize).collect();
    let header_too = AtomicBool::new(false);
    let flips = AtomicU64::new(0);
    let (stop, stopped) = channel::<()>();
    let mut answers = std::collections::BTreeMap::<String, usize>::new();
    std::thread::scope(|scope| {
        let (flips, sections, bytes, run) = (&flips, &sections, &bytes, &run);
        let header_too = &header_too;
        scope.spawn(move || {
            let mut random = Random(0x5eed_0002);
            let file = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(table_target(run).unwrap())
                .unwrap();
            let flip = |at: u64, bit: u8| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ bit], at).unwrap();
                flips.fetch_add(1, Ordering::Relaxed);
            };
            let mut flipped = Vec::new();
            // The sender goes when the submissions are done, or failed.
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                // Back, or one bad bit would be the end of the first table.
                for (at, bit) in flipped.drain(..) {
                    flip(at, bit);
                }
                for _ in 0..1 + random.below(3) {
                    let header = random.below(8) == 0 && header_too.load(Ordering::Relaxed);
                    let section = if header { 0 } else { sections[random.below(sections.len())] };
                    let at = (section + random.below(512)).min(bytes.len() - 1) as u64;
                    let bit = 1 << random.below(8);
                    flip(at, bit);
                    flipped.push((at, bit));
                }
            }
        });
        let _stop = stop;
        let end = Instant::now() + LONG;
        for n in 0.. {
            let enough = n >= SUBMISSIONS && flips.load(Ordering::Relaxed) >= FLIPS;
            if enough && (answers.len() > 1 || Instant::now() > end) {
                break;
            }
            let name = format!("flip-{n}");
            // Held every other time: the others may be pinned.
            let mut args = vec!["-J", &name, "-c1", "--mem=100M", "-t5", "--wrap=true"];
            if n % 2 == 0 {
                args.push("-H");
            }
            args.rotate_right(usize::from(n % 2 == 0));
            cluster.sbatch(&args).unwrap();
            let answer = cluster.answer_for(&name).unwrap();
            assert!(answer.ok, "{answer:?}");
            let key = if answer.placed { "placed".to_string() } else { answer.reason };
            *answers.entry(key).or_default() += 1;
            assert!(cluster.slurmctld_alive(), "after {n} submissions");
        }
    });
    eprintln!("{} flips, answers: {answers:?}", flips.load(Ordering::Relaxed));
    assert!(answers.len() > 1, "no flip had any effect: {answers:?}");
    assert_eq!(cluster.slurmctld_pid(), pid);
    // The next sjpd has a table that nobody has touched.
    eprintln!("sjpd ended: {:?}", sjpd.ended().unwrap());
    drop(sjpd);
    let sjpd = cluster.start_sjpd("").unwrap();
    wait_for(SOON, "jobs are placed", || {
        let answer = cluster.probe().unwrap();
        Ok(if answer.placed { Ok(()) } else { Err(format!("{answer:?}")) })
    })
    .unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
