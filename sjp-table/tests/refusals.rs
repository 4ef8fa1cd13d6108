//! What a reader refuses to attach to, one test a reason. None of it may wait,
//! and nothing that the link points to may be changed by trying.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod common;

use common::{distinct_rooms, roster, small};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Uid, close, fchown, ftruncate, geteuid, mkfifo, pipe};
use sjp_table::layout::{LAYOUT_VERSION, header};
use sjp_table::{AttachError, HeaderError, Meta, Publisher, Reader};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

const SIZE_SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);
const ALL_SEALS: SealFlag = SIZE_SEALS.union(SealFlag::F_SEAL_SEAL);

/// A directory with a link `table` to a file of this process.
struct Link {
    dir: tempfile::TempDir,
}

impl Link {
    fn to(file: &impl AsRawFd) -> Self {
        Self::to_path(&own_path(file))
    }

    fn to_path(target: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        symlink(target, dir.path().join("table")).unwrap();
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("table")
    }

    fn attach(&self) -> Result<Reader, AttachError> {
        Reader::attach(&self.path())
    }

    fn refusal(&self) -> AttachError {
        let error = self.attach().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("table"), "the text names the link: {text}");
        error
    }
}

fn own_path(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

/// The bytes of a table with something published.
fn table_bytes() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    publisher.publish(&roster(9), 1, &distinct_rooms(9, 1), Meta::default()).unwrap();
    std::fs::read(publisher.link()).unwrap()
}

/// A memfd as the publisher makes it, but with these bytes and seals.
fn memfd_named(name: &str, bytes: &[u8], seals: SealFlag) -> OwnedFd {
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    fchmod(&file, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    std::fs::File::from(file.try_clone().unwrap()).write_all(bytes).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    file
}

fn memfd(bytes: &[u8], seals: SealFlag) -> OwnedFd {
    memfd_named("sjp-table", bytes, seals)
}

fn with_word(index: usize, value: u64) -> Vec<u8> {
    let mut bytes = table_bytes();
    bytes[index * 8..index * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// Why a sealed table with these bytes is refused.
fn header_refusal(bytes: &[u8]) -> HeaderError {
    let file = memfd(bytes, ALL_SEALS);
    match Link::to(&file).refusal() {
        AttachError::Header { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

#[test]
fn a_copy_of_a_table_is_accepted() {
    // The other tests change one thing each of this.
    let file = memfd(&table_bytes(), ALL_SEALS);
    let mut reader = Link::to(&file).attach().unwrap();
    assert_eq!(reader.roster().unwrap().nodes.len(), 9);
}

#[test]
fn no_link() {
    let dir = tempfile::tempdir().unwrap();
    let error = Reader::attach(&dir.path().join("table")).unwrap_err();
    assert!(matches!(error, AttachError::NoTable { .. }), "{error}");
    let error = Reader::attach(&dir.path().join("missing/table")).unwrap_err();
    assert!(matches!(error, AttachError::NoTable { .. }), "{error}");
}

#[test]
fn a_link_to_a_process_or_file_that_is_gone() {
    // A number that no other test's file can get after it is closed.
    let file = memfd(&table_bytes(), ALL_SEALS);
    let high = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(700)).unwrap();
    let link = Link::to(&high);
    assert!(link.attach().is_ok());
    close(high).unwrap();
    assert!(matches!(link.refusal(), AttachError::Dangling { .. }));
    // No process can have this number.
    let link = Link::to_path(Path::new("/proc/4294967295/fd/3"));
    assert!(matches!(link.refusal(), AttachError::Dangling { .. }));
}

#[test]
fn something_that_is_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    std::fs::write(&path, table_bytes()).unwrap();
    let error = Reader::attach(&path).unwrap_err();
    assert!(matches!(error, AttachError::NotALink { .. }), "{error}");
}

#[test]
fn a_link_to_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, table_bytes()).unwrap();
    for target in [
        plain.as_path(),
        Path::new("/dev/zero"),
        Path::new("/proc/self/fd/0"),
        Path::new("/proc/1/fd/"),
        Path::new("/proc/1/fd/0/../../maps"),
        Path::new("proc/1/fd/0"),
    ] {
        let error = Link::to_path(target).refusal();
        assert!(matches!(error, AttachError::NotALink { .. }), "{error}");
    }
}

#[test]
fn a_plain_file_of_a_process() {
    let dir = tempfile::tempdir().unwrap();
    // Even one whose name looks right to the end.
    let path = dir.path().join("memfd:sjp-table");
    std::fs::write(&path, table_bytes()).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let error = Link::to(&file).refusal();
    assert!(matches!(error, AttachError::NotMemfd { .. }), "{error}");
}

#[test]
fn a_fifo_a_pipe_a_device_and_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let opened = |path: &Path, flags| open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
    let (reading, _writing) = pipe().unwrap();
    for file in [
        opened(&fifo, OFlag::O_RDWR),
        opened(Path::new("/dev/null"), OFlag::O_RDWR),
        opened(dir.path(), OFlag::O_RDONLY),
        reading,
    ] {
        let error = Link::to(&file).refusal();
        assert!(matches!(error, AttachError::NotMemfd { .. }), "{error}");
    }
}

#[test]
fn a_memfd_that_is_no_table() {
    for name in ["other", "sjp-tables", "sjp"] {
        let file = memfd_named(name, &table_bytes(), ALL_SEALS);
        let error = Link::to(&file).refusal();
        assert!(matches!(error, AttachError::NotMemfd { .. }), "{error}");
    }
}

#[test]
fn a_table_that_could_change_its_size() {
    for seals in [
        SealFlag::empty(),
        SIZE_SEALS,
        SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL,
        SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL,
    ] {
        let file = memfd(&table_bytes(), seals);
        let error = Link::to(&file).refusal();
        assert!(matches!(error, AttachError::Unsealed { .. }), "{error}");
    }
}

#[test]
fn a_table_that_cannot_be_written_is_no_table_of_ours() {
    // Sealed against writing too, the claims ring cannot be mapped.
    let file = memfd(&table_bytes(), ALL_SEALS | SealFlag::F_SEAL_WRITE);
    let error = Link::to(&file).refusal();
    assert!(matches!(error, AttachError::System { source: Errno::EPERM, .. }), "{error}");
}

#[test]
fn a_table_that_others_may_open() {
    let file = memfd(&table_bytes(), ALL_SEALS);
    fchmod(&file, Mode::from_bits_truncate(0o640)).unwrap();
    let error = Link::to(&file).refusal();
    assert!(matches!(error, AttachError::Mode { mode: 0o640, .. }), "{error}");
}

#[test]
fn a_table_of_another_owner() {
    if !geteuid().is_root() {
        println!("not run as root: a file cannot be given away, so this is not tested here");
        return;
    }
    let file = memfd(&table_bytes(), ALL_SEALS);
    fchown(&file, Some(Uid::from_raw(12_345)), None).unwrap();
    let link = Link::to(&file);
    let error = link.refusal();
    assert!(matches!(error, AttachError::Owner { found: 12_345, expected: 0, .. }), "{error}");
    // Where that owner is expected, it is a table; root's is one for everybody.
    assert!(Reader::attach_owned_by(&link.path(), 12_345).is_ok());
    fchown(&file, Some(Uid::from_raw(0)), None).unwrap();
    assert!(Reader::attach_owned_by(&link.path(), 12_345).is_ok());
}

#[test]
fn wrong_magic() {
    let fault = header_refusal(&with_word(header::MAGIC, 0x1122_3344_5566_7788));
    assert_eq!(fault, HeaderError::Magic { found: 0x1122_3344_5566_7788 });
}

#[test]
fn unfinished() {
    assert_eq!(header_refusal(&with_word(header::VERSION, 0)), HeaderError::Unfinished);
}

#[test]
fn other_versions() {
    for found in [LAYOUT_VERSION - 1, LAYOUT_VERSION + 1, u64::MAX] {
        if found == 0 {
            continue;
        }
        let fault = header_refusal(&with_word(header::VERSION, found));
        assert_eq!(fault, HeaderError::Version { found, expected: LAYOUT_VERSION });
    }
}

#[test]
fn another_byte_order() {
    let fault = header_refusal(&with_word(header::BYTE_ORDER, 0x0807_0605_0403_0201));
    assert_eq!(fault, HeaderError::ByteOrder { found: 0x0807_0605_0403_0201 });
}

#[test]
fn another_header_size() {
    let fault = header_refusal(&with_word(header::HEADER_BYTES, 128));
    assert_eq!(fault, HeaderError::HeaderBytes { found: 128, expected: 256 });
}

#[test]
fn another_encoding_of_rosters() {
    let fault = header_refusal(&with_word(header::SCHEMA, 1));
    assert!(matches!(fault, HeaderError::Schema { found: 1, .. }), "{fault}");
}

#[test]
fn capacities_out_of_range() {
    for index in header::CAP_NODES..=header::CAP_CLAIMS {
        for value in [0, 1 << 40, u64::from(u32::MAX), u64::MAX] {
            let fault = header_refusal(&with_word(index, value));
            assert!(matches!(fault, HeaderError::Capacity(_)), "{index} {value}: {fault}");
        }
    }
    let fault = header_refusal(&with_word(header::CAP_CLAIMS, 63));
    assert!(matches!(fault, HeaderError::Capacity(_)), "{fault}");
}

#[test]
fn capacities_that_the_offsets_contradict() {
    let fault = header_refusal(&with_word(header::CAP_GROUPS, 32));
    assert!(matches!(fault, HeaderError::Offset { section: "rooms buffer 1", .. }), "{fault}");
}

#[test]
fn offsets_out_of_place() {
    for index in header::OFF_ROOMS_0..=header::OFF_CLAIMS {
        for value in [0, 8, u64::MAX] {
            let fault = header_refusal(&with_word(index, value));
            assert!(matches!(fault, HeaderError::Offset { .. }), "{index}: {fault}");
        }
    }
}

#[test]
fn sizes_that_disagree() {
    let fault = header_refusal(&with_word(header::TOTAL_BYTES, 4096));
    assert!(matches!(fault, HeaderError::TotalBytes { stated: 4096, .. }), "{fault}");
    let bytes = table_bytes();
    let fault = header_refusal(&bytes[..bytes.len() - 8]);
    assert!(matches!(fault, HeaderError::TotalBytes { .. }), "{fault}");
    let longer = [bytes.as_slice(), &[0; 8]].concat();
    let fault = header_refusal(&longer);
    assert!(matches!(fault, HeaderError::TotalBytes { .. }), "{fault}");
    for few in [0, 8, 248] {
        let fault = header_refusal(&bytes[..few]);
        assert_eq!(fault, HeaderError::Short { bytes: few });
    }
    let file = memfd(&bytes[..1001], ALL_SEALS);
    assert!(matches!(Link::to(&file).refusal(), AttachError::Size { bytes: 1001, .. }));
}

#[test]
fn a_closed_table() {
    let file = memfd(&with_word(header::CLOSED, 1), ALL_SEALS);
    assert!(matches!(Link::to(&file).refusal(), AttachError::Closed { .. }));
}

#[test]
fn nobody_can_cut_a_table_short() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    publisher.publish(&roster(9), 1, &distinct_rooms(9, 1), Meta::default()).unwrap();
    let mut reader = Reader::attach(&publisher.link()).unwrap();
    let file = open(&publisher.link(), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
    assert_eq!(ftruncate(&file, 0), Err(Errno::EPERM));
    assert_eq!(ftruncate(&file, 1 << 30), Err(Errno::EPERM));
    let cut = open(&publisher.link(), OFlag::O_RDWR | OFlag::O_TRUNC, Mode::empty());
    assert_eq!(cut.unwrap_err(), Errno::EPERM);
    let seals = fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE));
    assert_eq!(seals.unwrap_err(), Errno::EPERM);
    assert_eq!(reader.roster().unwrap().nodes.len(), 9);
}

#[test]
fn only_its_owner_can_open_a_table_and_no_child_inherits_it() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::create(dir.path(), small()).unwrap();
    let file = std::fs::File::open(publisher.link()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let target = std::fs::read_link(publisher.link()).unwrap();
    let number = target.file_name().unwrap().to_str().unwrap();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap().trim();
    let flags = i32::from_str_radix(flags, 8).unwrap();
    assert_ne!(flags & nix::libc::O_CLOEXEC, 0, "closed on exec");
    // The whole file has its pages: nobody's first touch has to find memory.
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata().unwrap();
    assert!(meta.blocks() * 512 >= meta.len(), "no holes");
}

#[test]
fn the_link_changes_in_one_step() {
    // While links are replaced, a reader always finds one of the tables.
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let (roster, rooms) = (roster(9), distinct_rooms(9, 1));
    publisher.publish(&roster, 1, &rooms, Meta::default()).unwrap();
    let link = publisher.link();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut attached = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                match Reader::attach(&link) {
                    Ok(_) => attached += 1,
                    Err(error @ (AttachError::NoTable { .. } | AttachError::NotALink { .. })) => {
                        panic!("{error}")
                    }
                    // Between reading the link and opening, the old table went
                    // (and another test's file may have its number).
                    Err(_) => {}
                }
            }
            attached
        });
        for _ in 0..300 {
            publisher.replace(small(), &roster, 1, &rooms, Meta::default()).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reading.join().unwrap() > 0);
    });
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary links stay behind");
}

#[test]
fn nothing_is_written_to_what_a_link_points_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("victim");
    let bytes = table_bytes();
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let _ = Link::to(&file).refusal();
    let _ = Link::to_path(&path).refusal();
    let mut now = vec![0; bytes.len()];
    file.read_exact_at(&mut now, 0).unwrap();
    assert!(now == bytes && file.metadata().unwrap().modified().unwrap() == before);
}
