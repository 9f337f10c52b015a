//! Cut, flipped, missing and foreign bytes: what was synced is there, or the log is refused with the place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seendb::persist::files::Files;
use seendb::persist::log::damage::Kind;
use seendb::persist::log::{Base, Damage, LogError, LogReader, LogWriter, repair};
use seendb::persist::simulated::{Failure, Fault, SimulatedFiles};

const FOLDER: &str = "/log";

fn shared(disk: &SimulatedFiles) -> Arc<dyn Files> {
    Arc::new(disk.clone())
}

fn path(file: &str) -> PathBuf {
    Path::new(FOLDER).join(file)
}

/// A log of three segments; each batch is synced before the next. If it is closed, a mark tells so of the last one too.
fn small_log(closed: bool) -> (SimulatedFiles, Vec<u8>) {
    let disk = SimulatedFiles::new(3);
    let mut writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, 296).unwrap();
    let mut all = Vec::new();
    for n in 1..=9_u8 {
        let records = vec![n; 25 + usize::from(n)];
        writer.append(&records).unwrap();
        writer.sync().unwrap();
        all.extend(records);
    }
    assert_eq!(writer.manifest().segments.len(), 3);
    if closed {
        writer.close().unwrap();
    }
    (disk, all)
}

/// What is read, and how it ended.
fn read(disk: &SimulatedFiles) -> (Vec<u8>, Result<Option<Damage>, LogError>) {
    let mut records = Vec::new();
    let mut reader = match LogReader::open(shared(disk), Path::new(FOLDER)) {
        Ok(reader) => reader.expect("the manifest is there"),
        Err(error) => return (records, Err(error)),
    };
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => records.extend(batch.records),
            Ok(None) => return (records, Ok(reader.torn_tail().cloned())),
            Err(error) => return (records, Err(error)),
        }
    }
}

fn refused(outcome: Result<Option<Damage>, LogError>) -> Damage {
    match outcome {
        Err(LogError::Damaged(damage)) => *damage,
        other => panic!("{other:?}"),
    }
}

/// After a repair the log is read without complaint, gives what was whole, and can be continued; nothing is thrown away.
fn repaired(disk: &SimulatedFiles, whole: &[u8]) {
    let disk = disk.copy();
    let (report, kept) = repair::fix(&shared(&disk), Path::new(FOLDER)).unwrap().expect("there is a log");
    assert!(kept.iter().all(|name| name.ends_with(repair::SUFFIX) && disk.content(&path(name)).is_some()));
    let disk = disk.after_power_loss(1);
    let (records, outcome) = read(&disk);
    assert_eq!(outcome.unwrap(), None);
    assert!(records.starts_with(whole), "{report:?}");
    let end = LogReader::open(shared(&disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
    let mut writer = LogWriter::open(shared(&disk), Path::new(FOLDER), end, 256).unwrap();
    writer.append(b"more").unwrap();
    writer.close().unwrap();
    assert_eq!(read(&disk).0, [&records[..], b"more"].concat());
}

#[test]
fn every_flipped_byte_is_refused_or_cut_or_does_not_matter() {
    for closed in [false, true] {
        let (disk, all) = small_log(closed);
        let (mut refusals, mut cuts) = (0, 0);
        for file in ["segment-1.log", "segment-2.log", "segment-3.log"] {
            let content = disk.content(&path(file)).unwrap();
            for at in 0..content.len() {
                let mut flipped = content.clone();
                flipped[at] ^= 0x10;
                let disk = disk.copy();
                disk.set_content(&path(file), Some(&flipped));
                let (records, outcome) = read(&disk);
                assert!(all.starts_with(&records));
                match outcome {
                    Err(_) => {
                        let damage = refused(outcome);
                        assert_eq!((&damage.file[..], damage.position), (file, records.len() as u64));
                        assert!(damage.offset <= at as u64 && !damage.is_torn_tail());
                        refusals += 1;
                    }
                    Ok(torn) if records.len() < all.len() => {
                        assert_eq!(records.len(), all.len() - 34, "only the last batch is cut");
                        assert!(!closed, "and only if nothing tells that it was synced");
                        assert!(torn.is_some_and(|torn| torn.bytes > 0 && torn.position == records.len() as u64));
                        cuts += 1;
                    }
                    // Padding, the mark at the end, and room that is reserved.
                    Ok(_) => {}
                }
                repaired(&disk, &records);
            }
        }
        assert!(refusals > 400 && (cuts == 32 + 34) != closed, "{refusals} refused, {cuts} cut");
    }
}

#[test]
fn every_cut_of_the_last_segment_leaves_what_is_before_it() {
    let (disk, all) = small_log(false);
    let file = path("segment-3.log");
    let content = disk.content(&file).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for length in (0..content.len()).rev() {
        disk.set_content(&file, Some(&content[..length]));
        let (records, outcome) = read(&disk);
        assert!(all.starts_with(&records));
        if length < 64 {
            assert_eq!(refused(outcome).kind, Kind::Header("is shorter than a segment's header"));
        } else {
            let torn = outcome.unwrap();
            // No word about it only between two batches, and in the room behind the last one.
            let silent = torn.is_none();
            assert!(silent || torn.is_some_and(|torn| torn.offset + torn.bytes <= length as u64));
            assert!(!silent || records.len() == all.len() || length == 64 || content[length..].iter().any(|b| *b != 0));
        }
        lengths.insert(records.len());
        repaired(&disk, &records);
    }
    assert_eq!(lengths.len(), 4, "three batches, gone one by one: {lengths:?}");
}

#[test]
fn garbage_behind_the_end_is_dropped_and_said() {
    let (disk, all) = small_log(false);
    let file = path("segment-3.log");
    let content = disk.content(&file).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    let mut garbage = content.clone();
    garbage[end.next_multiple_of(8) as usize..][..9].copy_from_slice(b"garbage!!");
    disk.set_content(&file, Some(&garbage));
    let (records, outcome) = read(&disk);
    assert_eq!(records, all);
    let said = outcome.unwrap().unwrap().to_string();
    let offset = end.next_multiple_of(8);
    assert_eq!(said, format!("segment-3.log: torn tail at offset {offset} (log position 270): 9 bytes"));
}

#[test]
fn valid_batches_above_a_torn_one_are_cut_and_counted() {
    let disk = SimulatedFiles::new(3);
    let mut writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, 4096).unwrap();
    for n in 1..=5_u8 {
        writer.append(&[n; 40]).unwrap();
    }
    let file = path("segment-1.log");
    let mut content = disk.content(&file).unwrap();
    content[64 + 72 + 40] ^= 1;
    disk.set_content(&file, Some(&content));
    let (records, outcome) = read(&disk);
    assert_eq!(records, [1; 40]);
    let torn = outcome.unwrap().unwrap();
    assert_eq!((torn.valid_batches, torn.valid_bytes, torn.known_synced), (3, 120, 0));
    assert!(torn.to_string().ends_with("among them 3 valid batches with 120 bytes of records behind a gap"), "{torn}");
    repaired(&disk, &[1; 40]);
    // They do not come back when new batches stand where the torn one was.
    let end = LogReader::open(shared(&disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
    let mut writer = LogWriter::open(shared(&disk), Path::new(FOLDER), end, 4096).unwrap();
    writer.append(&[9; 40]).unwrap();
    writer.sync().unwrap();
    assert_eq!(read(&disk).0, [[1; 40], [9; 40]].concat());
}

#[test]
fn a_refusal_says_where_and_how_much_can_be_saved() {
    let (disk, _) = small_log(true);
    let file = path("segment-2.log");
    let mut content = disk.content(&file).unwrap();
    content[100] ^= 1;
    disk.set_content(&file, Some(&content));
    let said = refused(read(&disk).1).to_string();
    assert_eq!(
        said,
        "segment-2.log: damage at offset 64 (log position 81); records up to position 270 had been synced; behind it are \
         5 valid batches with 160 bytes of records"
    );
    let report = repair::check(shared(&disk), Path::new(FOLDER)).unwrap().unwrap();
    assert_eq!((report.batches, report.bytes, report.position), (3, 81, 81));
    let (_, kept) = repair::fix(&shared(&disk), Path::new(FOLDER)).unwrap().unwrap();
    assert_eq!(kept, ["segment-2.log.64.damaged", "segment-3.log.damaged"]);
}

#[test]
fn segments_that_are_missing_or_of_another_log() {
    let (disk, all) = small_log(true);
    let (other, _) = small_log(true);
    for (file, whole) in [("segment-1.log", 0), ("segment-2.log", 81), ("segment-3.log", 171)] {
        let foreign = other.content(&path(file)).unwrap();
        let own_header = [&disk.content(&path(file)).unwrap()[..64], &foreign[64..]].concat();
        for (content, kind) in [
            (None, Kind::Missing),
            (Some(&b""[..]), Kind::Header("is shorter than a segment's header")),
            (Some(&[0; 256]), Kind::Header("has a damaged header")),
            (Some(&foreign), Kind::Header("belongs to another log")),
            (Some(&own_header), Kind::Batch),
        ] {
            let disk = disk.copy();
            disk.set_content(&path(file), content);
            let (records, outcome) = read(&disk);
            assert_eq!(records, all[..whole]);
            if kind == Kind::Batch && file == "segment-3.log" {
                // As a disk would give it that never had what was written, and lies about syncs.
                assert!(outcome.unwrap().is_some_and(|torn| torn.bytes > 0 && torn.valid_batches == 0));
            } else {
                assert_eq!(refused(outcome).kind, kind);
            }
            repaired(&disk, &records);
        }
    }
}

#[test]
fn a_header_alone_is_made_again() {
    let (disk, all) = small_log(true);
    for file in ["segment-1.log", "segment-3.log"] {
        let mut content = disk.content(&path(file)).unwrap();
        content[20] ^= 1;
        disk.set_content(&path(file), Some(&content));
    }
    assert_eq!(refused(read(&disk).1).kind, Kind::Header("has a damaged header"));
    let (_, kept) = repair::fix(&shared(&disk), Path::new(FOLDER)).unwrap().unwrap();
    assert!(kept.is_empty());
    let (records, outcome) = read(&disk);
    assert_eq!((records, outcome.unwrap()), (all, None));
}

#[test]
fn a_repair_that_is_interrupted_can_be_done_again() {
    let (disk, all) = small_log(true);
    let mut content = disk.content(&path("segment-1.log")).unwrap();
    content[64 + 64 + 40] ^= 1;
    disk.set_content(&path("segment-1.log"), Some(&content));
    for fault in [Fault::Stop, Fault::Device] {
        let mut interrupted = 0;
        for after in 0..80 {
            let disk = disk.copy();
            disk.fail(Some(Failure { fault, after, once: false, short: false }));
            interrupted += u32::from(repair::fix(&shared(&disk), Path::new(FOLDER)).is_err());
            disk.fail(None);
            for loss in 0..4 {
                repaired(&disk.after_power_loss(loss), &all[..26]);
            }
        }
        assert!(interrupted > 25, "{interrupted}");
    }
}

#[test]
fn what_was_cut_does_not_come_back_when_the_next_segment_goes() {
    let disk = SimulatedFiles::new(3);
    let mut writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, 4096).unwrap();
    writer.append(&[1; 40]).unwrap();
    writer.append(&[2; 40]).unwrap();
    let whole = disk.content(&path("segment-1.log")).unwrap();
    let mut torn = whole.clone();
    torn[64 + 72 + 40] ^= 1;
    disk.set_content(&path("segment-1.log"), Some(&torn));
    let end = LogReader::open(shared(&disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
    assert_eq!(end.position, 40);
    LogWriter::open(shared(&disk), Path::new(FOLDER), end, 4096).unwrap();
    disk.set_content(&path("segment-1.log"), Some(&whole));
    assert_eq!(read(&disk).0, [1; 40], "the next segment begins there");
    disk.set_content(&path("segment-2.log"), None);
    let (_, kept) = repair::fix(&shared(&disk), Path::new(FOLDER)).unwrap().unwrap();
    assert_eq!(kept, ["segment-1.log.136.damaged"]);
    assert_eq!(read(&disk).0, [1; 40]);
}

#[test]
fn damage_that_the_base_covers_does_not_matter() {
    let disk = SimulatedFiles::new(3);
    let mut writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, 4096).unwrap();
    for n in 1..=5_u8 {
        writer.append(&[n; 40]).unwrap();
        writer.sync().unwrap();
    }
    disk.set_content(&path("base-1.rdb"), Some(b""));
    writer.retire(Base { file: "base-1.rdb".into(), cut: 90 }).unwrap();
    writer.close().unwrap();
    let content = disk.content(&path("segment-1.log")).unwrap();
    for (batch, lost) in [(0, false), (1, false), (2, true)] {
        let mut flipped = content.clone();
        flipped[64 + batch * 72 + 50] ^= 1;
        disk.set_content(&path("segment-1.log"), Some(&flipped));
        let (records, outcome) = read(&disk);
        if lost {
            let damage = refused(outcome);
            assert_eq!((damage.position, damage.offset), (90, 64 + 144));
        } else {
            assert_eq!((records, outcome.unwrap()), ([&[3; 30][..], &[4; 40], &[5; 40]].concat(), None));
        }
    }
}

#[test]
fn a_damaged_manifest_is_refused_with_the_line() {
    let (disk, _) = small_log(true);
    let manifest = path("seendb.manifest");
    let text = String::from_utf8(disk.content(&manifest).unwrap()).unwrap();
    disk.set_content(&manifest, Some(text.replace("segment 2", "segment 4").as_bytes()));
    let said = read(&disk).1.unwrap_err().to_string();
    assert!(said.starts_with("seendb.manifest, line 7: the lines before need 'crc32c "), "{said}");
}
