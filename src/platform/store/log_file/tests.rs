//! Compares the reader with sled itself: over sound databases both find the same rows, and over damaged ones the reader has
//! told of it whenever sled panics, refuses, or has other rows.

use super::{
    LogFile,
    damage::Damages,
    decode::{Link, Node, NodeData},
    messages::{MessageKind, SEGMENT_HEADER},
    recovery::{self, LogEnd},
    segments::{SlotBytes, Slots},
    snapshot,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const JOB: &str = "SVC_TEST_LOG_FILE_JOB";
const DATABASE: &str = "SVC_TEST_LOG_FILE_DATABASE";
const SEED: &str = "SVC_TEST_LOG_FILE_SEED";
const GROUPS: &str = "SVC_TEST_LOG_FILE_GROUPS";

const SEGMENT: u64 = 512 * 1024;

/// The key under which each group has its number.
const NUMBER: &[u8] = b"C";

type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// A generator of numbers that gives the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// Groups of writes and deletes that come out the same for the same seed.
struct Workload {
    dice: Dice,
    rows: RowMap,
    number: u64,
    keys: u64,
}

impl Workload {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let keys = [400, 3000, 12_000][dice.below(3) as usize];
        Self { dice, rows: RowMap::new(), number: 0, keys }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.dice.below(self.keys);
        match number % 3 {
            0 => format!("event/{number:08}/of a space").into_bytes(),
            1 => [b"q", &number.to_be_bytes()[..]].concat(),
            _ => format!("k{number}").into_bytes(),
        }
    }

    /// The next group. Phases in which most is deleted make sled merge pages and free segments.
    fn next(&mut self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        self.number += 1;
        let writes = if self.dice.below(60) == 0 { 400 + self.dice.below(1200) } else { 1 + self.dice.below(40) };
        let deleted = [1, 3, 7][(self.number / 100 % 3) as usize];
        let mut group = BTreeMap::new();
        for _ in 0..writes {
            let key = self.key();
            let is_deleted = self.dice.below(10) < deleted;
            let longest = if self.dice.below(4) == 0 { 4096 } else { 120 };
            let length = self.dice.below(longest);
            group.insert(key, (!is_deleted).then(|| self.dice.bytes(length)));
        }
        group.insert(NUMBER.to_vec(), Some(self.number.to_be_bytes().to_vec()));
        for (key, value) in &group {
            match value {
                Some(value) => _ = self.rows.insert(key.clone(), value.clone()),
                None => _ = self.rows.remove(key),
            }
        }
        group
    }
}

fn rows_after(seed: u64, groups: u64) -> RowMap {
    let mut workload = Workload::new(seed);
    for _ in 0..groups {
        workload.next();
    }
    workload.rows
}

fn open_sled(path: &Path) -> sled::Db {
    loop {
        match sled::Config::new().path(path).cache_capacity(64 << 20).open() {
            Ok(tree) => return tree,
            // The lock of the handle before may be held a moment longer.
            Err(sled::Error::Io(_)) => thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Does nothing by itself. The other tests start this program again with a job for it, because a database of a killed
/// process needs a process that is killed, and a panic of sled leaves threads behind.
#[test]
fn a_job_in_a_process_of_its_own() {
    let Ok(job) = std::env::var(JOB) else { return };
    let path = std::env::var_os(DATABASE).unwrap();
    let path = Path::new(&path);
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    if job == "open" {
        let rows: RowMap =
            open_sled(path).iter().map(|row| row.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        println!("rows {}", digest(&rows));
        std::process::exit(0);
    }
    let mut workload = Workload::new(number(SEED));
    let mut tree = open_sled(path);
    for group in 1..=number(GROUPS) {
        let mut batch = sled::Batch::default();
        for (key, value) in workload.next() {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        tree.apply_batch(batch).unwrap();
        tree.flush().unwrap();
        println!("group {group}");
        if group % 250 == 0 {
            drop(tree);
            tree = open_sled(path);
        }
    }
}

fn start_job(job: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("{}::a_job_in_a_process_of_its_own", module_path!().split_once("::").unwrap().1);
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(JOB, job).env(DATABASE, path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The rows that sled finds, as their digest, or `None` if it panics, refuses or does not come to an end.
fn opened_by_sled(path: &Path) -> Option<String> {
    let mut child = start_job("open", path).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    output.lines().find_map(|line| line.split_once("rows ").map(|(_, digest)| digest.to_owned()))
}

fn digest(rows: &RowMap) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for (key, value) in rows {
        for part in [key, value] {
            hasher.update(&part.len().to_be_bytes());
            hasher.update(part);
        }
    }
    format!("{}/{:08x}", rows.len(), hasher.finalize())
}

fn read(path: &Path) -> (LogFile, RowMap) {
    let before = files(path);
    let log = LogFile::read(path, LogEnd::FirstUnreadable).unwrap();
    let mut rows = RowMap::new();
    let read = log.rows(|key, value| assert_eq!(rows.insert(key.to_vec(), value.to_vec()), None, "visited twice"));
    assert_eq!(read.unwrap().rows, rows.len() as u64);
    for key in rows.keys().step_by(50).map(Vec::as_slice).chain([NUMBER]) {
        assert_eq!(log.get(key).unwrap().as_ref(), rows.get(key));
    }
    assert!(before == files(path), "the reader changed a file");
    (log, rows)
}

fn files(path: &Path) -> BTreeMap<String, u32> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|file| (file.file_name().into_string().unwrap(), crc32fast::hash(&fs::read(file.path()).unwrap())))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("blobs")).unwrap();
    for name in files(from).into_keys().filter(|name| !name.ends_with(".generating")) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the child has not been waited for, so the id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Runs a workload and calls `visit` with copies of its database as a kill would leave them: the writing process is stopped
/// for each. The last one is of the closed database. The groups are those that were confirmed by then.
fn run(seed: u64, groups: u64, copies: u64, mut visit: impl FnMut(&Path, u64)) {
    let directory = TempDir::new().unwrap();
    let (live, killed) = (directory.path().join("live"), directory.path().join("copy"));
    let mut job = start_job("write", &live);
    let mut child = job.env(SEED, seed.to_string()).env(GROUPS, groups.to_string()).spawn().unwrap();
    let mut dice = Dice::new(seed + 1);
    let mut next = groups / copies;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, group)) = line.split_once("group ") else { continue };
        let group: u64 = group.parse().unwrap();
        if group == next && group < groups {
            next += groups / copies;
            thread::sleep(Duration::from_micros(dice.below(3000)));
            signal(&child, libc::SIGSTOP);
            // A write that has begun comes to its end, as it does in a process that is killed.
            thread::sleep(Duration::from_millis(10));
            copy(&live, &killed);
            signal(&child, libc::SIGCONT);
            visit(&killed, group);
        }
    }
    assert!(child.wait().unwrap().success());
    visit(&live, groups);
}

fn number(rows: &RowMap) -> u64 {
    rows.get(NUMBER).map_or(0, |value| u64::from_be_bytes(value.as_slice().try_into().unwrap()))
}

#[test]
fn the_reader_finds_in_a_sound_database_what_sled_finds_and_no_damage() {
    for seed in 1..=2 {
        run(seed, 500, 8, |path, confirmed| {
            let (log, rows) = read(path);
            assert_eq!(log.damages(), [], "seed {seed}");
            assert!(number(&rows) >= confirmed, "{} of {confirmed}", number(&rows));
            assert!(rows == rows_after(seed, number(&rows)), "seed {seed} group {}", number(&rows));
            assert_eq!(opened_by_sled(path), Some(digest(&rows)), "seed {seed}");
        });
    }
}

#[test]
fn the_reader_tells_of_damage_whenever_sled_fails_or_finds_other_rows() {
    let (mut reported, mut younger) = (0, 0);
    for seed in 11..=12 {
        let mut dice = Dice::new(seed);
        run(seed, 350, 2, |path, _| {
            let (log, original) = read(path);
            assert_eq!(log.damages(), []);
            let work = TempDir::new().unwrap();
            let copied = work.path().join("copy");
            for _ in 0..12 {
                copy(path, &copied);
                let what = damage(&copied, &mut dice);
                let (log, rows) = read(&copied);
                let found = opened_by_sled(&copied);
                // Groups that are gone at the end show in the number of the last one, which is noted elsewhere.
                let is_younger = number(&rows) < number(&original) && rows == rows_after(seed, number(&rows));
                if log.damages().is_empty() {
                    assert_eq!(found, Some(digest(&rows)), "seed {seed}: {what}");
                    assert!(rows == original || is_younger, "seed {seed}: {what}");
                    younger += u32::from(is_younger);
                } else {
                    reported += 1;
                    for damage in log.damages() {
                        assert!(!damage.to_string().contains('\n'), "{damage}");
                    }
                    let kept = rows.iter().filter(|(key, value)| original.get(*key) == Some(value)).count();
                    let lost = "snap conf".split(' ').all(|file| !what.contains(file)) && !what.contains("cut");
                    assert!(
                        !lost || kept * 2 > original.len(),
                        "seed {seed}: {what}: only {kept} of {}",
                        original.len()
                    );
                }
            }
        });
    }
    assert!(reported > 3 && reported + younger > 15, "{reported} were reported, and {younger} are younger");
}

/// Damages the database in one place and says how.
fn damage(path: &Path, dice: &mut Dice) -> String {
    let log = File::options().read(true).write(true).open(path.join("db")).unwrap();
    let length = log.metadata().unwrap().len();
    let mut at = dice.below(length);
    let block = [512, 4096][dice.below(2) as usize];
    let aligned = at / block * block;
    let count = block.min(length - aligned) as usize;
    let flip = |file: &File, at: u64, bit: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
    };
    match dice.below(10) {
        kind @ 0..=1 => {
            // Every other one near the header of a segment.
            if kind == 0 {
                at = (at / SEGMENT * SEGMENT + dice.below(60)).min(length - 1);
            }
            flip(&log, at, dice.below(8));
            format!("flip a bit of {at}")
        }
        2 => {
            log.write_all_at(&vec![0; count], aligned).unwrap();
            format!("zero {count} at {aligned}")
        }
        3 => {
            log.write_all_at(&vec![0; count], at / SEGMENT * SEGMENT).unwrap();
            format!("zero {count} of the segment at {at}")
        }
        4..=5 => {
            log.write_all_at(&dice.bytes(count as u64), aligned).unwrap();
            format!("garbage {count} at {aligned}")
        }
        6 => {
            log.set_len(at).unwrap();
            format!("cut at {at}")
        }
        7 => {
            let other = dice.below(length) / block * block;
            let (mut one, mut two) = (vec![0; count], vec![0; count]);
            log.read_exact_at(&mut one, aligned).unwrap();
            let read = log.read_at(&mut two, other).unwrap();
            log.write_all_at(&two[..read], aligned).unwrap();
            log.write_all_at(&one[..read], other).unwrap();
            format!("swap {read} of {aligned} and {other}")
        }
        kind => {
            let name = files(path).into_keys().find(|name| name.starts_with(["conf", "snap."][kind as usize - 8]));
            let Some(name) = name else { return "nothing".to_owned() };
            let file = File::options().read(true).write(true).open(path.join(&name)).unwrap();
            let length = file.metadata().unwrap().len();
            let at = dice.below(length);
            match dice.below(3) {
                0 => fs::remove_file(path.join(&name)).unwrap(),
                1 => file.set_len(at).unwrap(),
                _ => flip(&file, at, dice.below(8)),
            }
            format!("{name} at {at}")
        }
    }
}

/// A power cut can tear the write of a new segment over a freed one, so that no message of the new one is whole.
#[test]
fn a_torn_write_is_no_damage_over_a_freed_segment_and_damage_over_one_in_use() {
    let (mut freed, mut in_use) = (0, 0);
    run(21, 450, 6, |path, _| {
        let (log, rows) = read(path);
        assert_eq!(log.damages(), []);
        let mut damages = Damages::default();
        let snapshot = snapshot::read(path, &mut damages).unwrap().unwrap_or_default();
        let first = snapshot.stable / SEGMENT * SEGMENT;
        let slots = Slots::new(File::open(path.join("db")).unwrap()).unwrap();
        let table = recovery::recover(&slots, Some(snapshot), LogEnd::FirstUnreadable, &mut damages).unwrap().table;
        let used: BTreeSet<u64> =
            table.iter().flat_map(|(_, page)| page.parts()).map(|part| part.offset / SEGMENT).collect();
        let headers = (0..slots.count()).filter_map(|slot| Some((slot, slots.header(slot).unwrap()?.lsn)));
        let headers: Vec<(u64, u64)> = headers.collect();
        let newest = headers.iter().map(|(_, lsn)| *lsn).max().unwrap();
        let directory = TempDir::new().unwrap();
        let torn = directory.path().join("torn");
        for (slot, _) in headers.into_iter().filter(|(_, lsn)| (first..newest).contains(lsn)) {
            copy(path, &torn);
            // The beginning of a node of the next segment but one, and the sector of another.
            let segment = newest / SEGMENT + 2;
            assert!(segment <= 240, "the number takes one byte");
            let sector = [&[1, 2, 3, 4, 8, 250, 0, 9, 0, segment as u8, 3][..], &[7; 501]].concat();
            let file = File::options().write(true).open(torn.join("db")).unwrap();
            file.write_all_at(&sector, slot * SEGMENT + 512).unwrap();
            file.write_all_at(&[9; 512], slot * SEGMENT + 4096).unwrap();
            let (log, found) = read(&torn);
            // Groups that are gone at the end show in the number of the last one, which is noted elsewhere.
            let is_younger = number(&found) < number(&rows) && found == rows_after(21, number(&found));
            if used.contains(&slot) {
                in_use += 1;
                assert!(is_younger || !log.damages().is_empty());
            } else if opened_by_sled(&torn) == Some(digest(&rows)) {
                freed += 1;
                assert_eq!(log.damages(), []);
                assert!(found == rows);
            } else {
                // It holds nothing, and sled does not find what follows it in the log.
                assert!(is_younger || !log.damages().is_empty());
            }
        }
    });
    assert!(freed > 0 && in_use > 0, "{freed} segments were freed and {in_use} in use");
}

/// Makes a database of one segment: some groups, an opening of it anew if `reopened`, and more groups. Returns the rows after each group.
fn one_segment(path: &Path, seed: u64, reopened: bool) -> Vec<RowMap> {
    let mut dice = Dice::new(seed);
    let mut rows = RowMap::new();
    let mut after_groups = Vec::new();
    let mut tree = open_sled(path);
    for group in 1..=4_u64 {
        let mut batch = sled::Batch::default();
        for _ in 0..60 {
            let key = format!("{}/{:04}", ["event", "user", "sink"][dice.below(3) as usize], dice.below(5000));
            let value = dice.bytes(120);
            batch.insert(key.as_bytes(), &*value);
            rows.insert(key.into_bytes(), value);
        }
        let number = group.to_be_bytes().to_vec();
        batch.insert(NUMBER, &*number);
        rows.insert(NUMBER.to_vec(), number);
        tree.apply_batch(batch).unwrap();
        tree.flush().unwrap();
        after_groups.push(rows.clone());
        if group == 2 && reopened {
            drop(tree);
            tree = open_sled(path);
        }
    }
    drop(tree);
    drop(open_file_lock(path));
    after_groups
}

/// Waits for sled's threads, which end a moment after its handle.
fn open_file_lock(path: &Path) -> File {
    let file = File::open(path.join("db")).unwrap();
    while file.try_lock().is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    file
}

/// The messages of the first segment: place, length, and the number of rows in it.
fn messages(path: &Path) -> Vec<(usize, usize, usize)> {
    let slots = Slots::new(File::open(path.join("db")).unwrap()).unwrap();
    let mut bytes = SlotBytes::default();
    slots.read(0, &mut bytes).unwrap();
    let mut found = Vec::new();
    bytes.walk(0, SEGMENT_HEADER, |at, message| {
        let rows = match message.kind {
            MessageKind::Node => match Node::decode(message.body).unwrap().data {
                NodeData::Leaf(rows) => rows.len(),
                NodeData::Index(_) => 0,
            },
            MessageKind::Link => usize::from(matches!(Link::decode(message.body), Ok(Link::Set(..) | Link::Delete(_)))),
            _ => 0,
        };
        found.push((at, message.len, rows));
        true
    });
    found
}

fn copy_with_changed_byte(path: &Path, copied: &Path, at: u64) {
    copy(path, copied);
    let file = File::options().read(true).write(true).open(copied.join("db")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// sled writes parts of its log at the same time, so that a kill may leave a later one without an earlier one.
#[test]
fn groups_behind_the_first_unreadable_place_are_left_out_and_are_no_damage() {
    let directory = TempDir::new().unwrap();
    let (path, copied) = (directory.path().join("whole"), directory.path().join("copy"));
    let after_groups = one_segment(&path, 33, false);
    let mut numbers = BTreeSet::new();
    for (at, length, _) in messages(&path) {
        copy_with_changed_byte(&path, &copied, (at + length / 2) as u64);
        let (log, rows) = read(&copied);
        assert_eq!(log.damages(), [], "byte {at}");
        let group = number(&rows);
        assert!(group == 0 || rows == after_groups[group as usize - 1], "byte {at}: group {group}");
        if numbers.insert(group) {
            let opened = directory.path().join(format!("opened{group}"));
            copy(&copied, &opened);
            assert_eq!(opened_by_sled(&opened), Some(digest(&rows)), "byte {at}");
        }
        // They are damage if each group was on disk before the next: two of them show that the place was.
        let log = LogFile::read(&copied, LogEnd::FirstUnreadableUnlessBatchesFollow).unwrap();
        match group {
            0..=1 => assert_ne!(log.damages(), [], "byte {at}"),
            3 => assert_eq!(log.damages(), [], "byte {at}"),
            _ => {}
        }
    }
    assert_eq!(numbers, (0..4).collect());
}

#[test]
fn a_damaged_message_of_the_last_segment_costs_no_row_that_another_message_has() {
    for (seed, reopened) in [(31, false), (32, true)] {
        let directory = TempDir::new().unwrap();
        let (path, copied) = (directory.path().join("whole"), directory.path().join("copy"));
        let original = one_segment(&path, seed, reopened).pop().unwrap();
        let messages = messages(&path);
        assert!(messages.len() > 100 && fs::metadata(path.join("db")).unwrap().len() <= SEGMENT);
        for (at, length, rows_of_message) in messages {
            let middle = (at + length / 2) as u64;
            copy_with_changed_byte(&path, &copied, middle);
            let log = LogFile::read(&copied, LogEnd::LastReadable).unwrap();
            let mut rows = RowMap::new();
            log.rows(|key, value| assert_eq!(rows.insert(key.to_vec(), value.to_vec()), None)).unwrap();
            let missing = original.iter().filter(|(key, value)| rows.get(*key) != Some(value)).count();
            let what = format!("seed {seed}: byte {middle}");
            assert!(missing <= rows_of_message, "{what}: {missing} rows are missing, and it had {rows_of_message}");
            assert!(missing == 0 || !log.damages().is_empty(), "{what}");
        }
    }
}

#[test]
fn bytes_that_mean_nothing_are_reported_and_do_no_harm() {
    let directory = TempDir::new().unwrap();
    let mut dice = Dice::new(5);
    for round in 0..30 {
        let length = dice.below(2 * SEGMENT);
        let mut log = dice.bytes(length);
        if round % 2 == 0 {
            // The beginnings of messages, all with a wrong checksum and a length that is possible.
            for message in log.chunks_exact_mut(8) {
                message.copy_from_slice(&[0, 0, 0, 0, 8, 250, 0, 1]);
            }
        }
        fs::write(directory.path().join("db"), log).unwrap();
        fs::write(directory.path().join("snap.0000000000000001"), dice.bytes(200)).unwrap();
        let log = LogFile::read(directory.path(), LogEnd::FirstUnreadable).unwrap();
        assert!(!log.damages().is_empty());
        assert_eq!(log.rows(|_, _| ()).unwrap().rows, 0);
    }
}

#[test]
fn a_directory_without_a_log_is_an_empty_database() {
    let directory = TempDir::new().unwrap();
    let log = LogFile::read(directory.path(), LogEnd::FirstUnreadable).unwrap();
    assert_eq!((log.damages(), log.file_bytes()), (&[][..], 0));
    assert_eq!(log.get(NUMBER).unwrap(), None);
    fs::write(directory.path().join("snap.0000000000000001"), "x").unwrap();
    assert_eq!(
        LogFile::read(directory.path(), LogEnd::FirstUnreadable).unwrap().damages()[0].to_string(),
        "`db`: the file is missing"
    );
}
