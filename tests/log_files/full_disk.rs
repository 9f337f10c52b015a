//! Disks whose room ends: what a killed log has reserved is enough to go on, and a log that fills its disk can be rewritten.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seendb::persist::files::Files;
use seendb::persist::log::writer::LEAST_SPARE_BYTES;
use seendb::persist::log::{Base, LogReader, LogWriter, SEGMENT_BYTES, WriteError, next_base_name, repair};
use seendb::persist::simulated::SimulatedFiles;

use super::model::Model;

const FOLDER: &str = "/log";
const BLOCK: usize = 4096;

fn shared(disk: &SimulatedFiles) -> Arc<dyn Files> {
    Arc::new(disk.clone())
}

fn path(file: &str) -> PathBuf {
    Path::new(FOLDER).join(file)
}

/// A log on a disk of so many bytes that reserves as much as a server's does.
fn begin(bytes: usize) -> (SimulatedFiles, LogWriter) {
    let disk = SimulatedFiles::new(5);
    disk.limit(Some(bytes));
    let writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, SEGMENT_BYTES).unwrap();
    (disk, writer)
}

/// Start on what is there.
fn open(disk: &SimulatedFiles) -> std::io::Result<LogWriter> {
    let end = LogReader::open(shared(disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
    LogWriter::open(shared(disk), Path::new(FOLDER), end, SEGMENT_BYTES)
}

/// All records that are not in the base.
fn read(disk: &SimulatedFiles) -> Vec<u8> {
    let mut reader = LogReader::open(shared(disk), Path::new(FOLDER)).unwrap().unwrap();
    let mut records = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        records.extend(batch.records);
    }
    records
}

/// Others take all the room but this.
fn leave(disk: &SimulatedFiles, bytes: usize) {
    disk.limit(Some(disk.used() + bytes));
}

/// Append until there is no room, with what is said then.
fn fill(writer: &mut LogWriter, batch: usize) -> String {
    loop {
        match writer.append(&vec![7; batch]) {
            Ok(()) => writer.sync().unwrap(),
            Err(WriteError::Again(error)) => return error.to_string(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// What a rewrite does, with a base of so many bytes.
fn rewrite(disk: &SimulatedFiles, writer: &mut LogWriter, bytes: usize, cut: u64) {
    let file = next_base_name(disk, Path::new(FOLDER)).unwrap();
    let base = disk.create(&path(&file)).unwrap();
    base.write_all_at(&vec![9; bytes], 0).expect("the base fits");
    base.sync().unwrap();
    disk.sync_folder(Path::new(FOLDER)).unwrap();
    writer.retire(Base { file, cut }).expect("the manifest fits");
}

/// A start made its new segment before it gave back what the last one had reserved, and was refused on a full disk.
#[test]
fn a_killed_log_goes_on_in_the_room_that_it_had_reserved() {
    for records in [&b""[..], b"some", &[1; 10_000]] {
        for rewritten in [false, true] {
            let (disk, mut writer) = begin(8 << 20);
            writer.append(records).unwrap();
            writer.sync().unwrap();
            if rewritten {
                rewrite(&disk, &mut writer, 100, records.len() as u64);
            }
            drop(writer);
            leave(&disk, 0);
            for start in 0..3 {
                let mut writer = open(&disk).unwrap_or_else(|error| panic!("start {start}: {error}"));
                writer.append(&[start; 100]).unwrap();
                writer.sync().unwrap();
                assert!(read(&disk).ends_with(&[start; 100]));
                leave(&disk, 0);
            }
            let wanted = if rewritten { 300 } else { records.len() + 300 };
            assert_eq!(read(&disk).len(), wanted);
        }
    }
}

/// Only zeros go before the new segment is there: a torn tail is as it was if the start fails, or has no other place.
#[test]
fn a_torn_tail_is_not_given_back_with_the_room_behind_it() {
    let (disk, mut writer) = begin(8 << 20);
    writer.append(&[1; 40]).unwrap();
    writer.sync().unwrap();
    writer.append(&[2; 40]).unwrap();
    drop(writer);
    let mut torn = disk.content(&path("segment-1.log")).unwrap();
    torn[64 + 72 + 40] ^= 1;
    disk.set_content(&path("segment-1.log"), Some(&torn));
    let end = || LogReader::open(shared(&disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
    let found = end().torn;
    assert!(found.as_ref().is_some_and(|torn| torn.bytes == 72));
    // The start fails: there is room for nothing.
    let manifest = disk.content(&path("seendb.manifest")).unwrap();
    disk.limit(Some(0));
    assert!(open(&disk).is_err());
    disk.limit(None);
    assert_eq!((end().torn, disk.content(&path("seendb.manifest")).unwrap()), (found, manifest));
    assert!(disk.content(&path("segment-1.log")).unwrap() == torn[..64 + 72 + 72], "only zeros are gone");
    for keeps in [true, false] {
        let disk = disk.copy();
        let mut end = LogReader::open(shared(&disk), Path::new(FOLDER)).unwrap().unwrap().finish().unwrap();
        end.keeps_tail = keeps;
        let mut writer = LogWriter::open(shared(&disk), Path::new(FOLDER), end, SEGMENT_BYTES).unwrap();
        writer.append(b"more").unwrap();
        writer.sync().unwrap();
        let left = disk.content(&path("segment-1.log")).unwrap();
        assert!(left == torn[..if keeps { 64 + 72 + 72 } else { 64 + 72 }], "{} bytes are left", left.len());
        assert_eq!(read(&disk), [&[1; 40][..], b"more"].concat());
    }
}

/// A start that was refused left the segment behind that it had begun, and each further one another: what somebody had freed was
/// gone.
#[test]
fn a_start_that_is_refused_takes_no_room() {
    let mut refused = 0;
    for free in 0..40 {
        let (disk, mut writer) = begin(8 << 20);
        fill(&mut writer, 100_000);
        let records = read(&disk);
        drop(writer);
        leave(&disk, free * BLOCK);
        let before = (disk.used(), disk.paths());
        for _ in 0..3 {
            match open(&disk.copy()) {
                Ok(_) => break,
                Err(_) => assert_eq!(open(&disk).err().unwrap().kind(), std::io::ErrorKind::StorageFull),
            }
            refused += 1;
            assert_eq!((disk.used(), disk.paths()), before, "{free} blocks");
        }
        assert_eq!(read(&disk), records);
        // From four blocks on: one is the segment's, the others are for a manifest.
        assert_eq!(free < 4, open(&disk).is_err(), "{free} blocks");
    }
    assert!(refused > 0);
}

/// What a process was killed over that had begun a segment, or what starts before this one have left, is in nobody's way.
#[test]
fn segments_that_no_manifest_names_go_before_room_is_needed() {
    let (disk, mut writer) = begin(8 << 20);
    let batch = vec![3; 4096 - 64 - 32];
    writer.append(&batch).unwrap();
    writer.close().unwrap();
    for stray in ["segment-2.log", "segment-9.log"] {
        disk.set_content(&path(stray), Some(&[0; 65536]));
    }
    leave(&disk, 0);
    open(&disk).unwrap();
    assert_eq!(read(&disk), batch);
    assert_eq!(disk.paths(), ["seendb.manifest", "segment-1.log", "segment-10.log"].map(path));
}

/// The segment took all that had been freed, to the last block, and its manifest did not fit beside it.
#[test]
fn a_log_goes_on_as_soon_as_there_is_a_little_room() {
    for freed in (64 << 10..300 << 10).step_by(BLOCK) {
        let (disk, mut writer) = begin(8 << 20);
        fill(&mut writer, 5000);
        leave(&disk, 0);
        let said = fill(&mut writer, 5000);
        assert!(said.contains("No space left"), "{said}");
        let paths = disk.paths();
        leave(&disk, freed);
        writer.append(&[4; 5000]).unwrap_or_else(|error| panic!("{freed} bytes: {error}"));
        writer.sync().unwrap();
        assert_eq!(disk.paths().len(), paths.len() + 1);
    }
}

/// A log took the last block of its disk, and then there was no room for the base that would have made room.
#[test]
fn a_log_that_fills_its_disk_leaves_the_room_to_rewrite_it() {
    let least = LEAST_SPARE_BYTES as usize - 3 * BLOCK;
    // The second disk has room for one segment only, so that it goes when the next one is there.
    for (bytes, batches) in
        [(8 << 20, &[500, 5000, 60_000][..]), ((4 << 20) + (64 << 10), &[500, 5000]), (1 << 20, &[500, 5000, 60_000])]
    {
        for &batch in batches {
            for bases in [[least; 4], [20_000, 45_000, 70_000, 100_000], [20_000, 100, 20_000, 100]] {
                let (disk, mut writer) = begin(bytes);
                for (round, base) in bases.into_iter().enumerate() {
                    let context = format!("{bytes} bytes, batches of {batch}, round {round}: a base of {base}");
                    let said = fill(&mut writer, batch);
                    assert!(said.contains("BGREWRITEAOF"), "{context}: {said}");
                    // Some that could not be written are in the base too.
                    let cut = writer.position() + batch as u64;
                    rewrite(&disk, &mut writer, base, cut);
                    let before = writer.position();
                    writer.append(&vec![7; batch]).unwrap_or_else(|error| panic!("{context}: {error}"));
                    writer.append(&vec![8; batch]).unwrap_or_else(|error| panic!("{context}: {error}"));
                    writer.sync().unwrap();
                    assert_eq!(
                        (before + 2 * batch as u64, read(&disk)),
                        (writer.position(), vec![8; batch]),
                        "{context}"
                    );
                    assert!(
                        disk.used() < bytes / 2 + base + 2 * batch + (4 << 20),
                        "{context}: the rest is given back"
                    );
                }
                drop(writer);
                let mut writer = open(&disk).unwrap();
                writer.append(b"more").unwrap();
            }
        }
    }
}

/// The same, if it was killed or ended meanwhile: it starts, and can be rewritten.
#[test]
fn a_log_that_has_filled_its_disk_is_started_and_rewritten() {
    for ended in [false, true] {
        let (disk, mut writer) = begin(8 << 20);
        fill(&mut writer, 5000);
        let records = read(&disk);
        if ended {
            let _ = writer.close();
        }
        for _ in 0..5 {
            let mut writer = open(&disk).unwrap();
            assert!(fill(&mut writer, 60_000).contains("BGREWRITEAOF"));
            assert_eq!(read(&disk), records);
        }
        let mut writer = open(&disk).unwrap();
        let cut = writer.position();
        rewrite(&disk, &mut writer, 30_000, cut);
        writer.append(b"more").unwrap();
        writer.sync().unwrap();
        assert_eq!(read(&disk), b"more");
        drop(writer);
        open(&disk).unwrap().append(b"more").unwrap();
    }
}

/// A rotation gives up segments by itself, while a base may be there that is to be put under the log next.
#[test]
fn a_base_that_waits_is_not_taken_for_a_rest() {
    let disk = SimulatedFiles::new(5);
    let mut writer = LogWriter::create(shared(&disk), Path::new(FOLDER), None, 600).unwrap();
    writer.append(&[1; 500]).unwrap();
    let cut = writer.position();
    rewrite(&disk, &mut writer, 100, cut);
    let waiting = next_base_name(&disk, Path::new(FOLDER)).unwrap();
    disk.set_content(&path(&waiting), Some(&[9; 50]));
    writer.append(&[2; 500]).unwrap();
    assert_eq!(disk.paths(), ["base-1.rdb", &waiting, "seendb.manifest", "segment-2.log"].map(path));
    let cut = writer.position();
    writer.retire(Base { file: waiting, cut }).unwrap();
    assert_eq!(disk.paths(), ["base-2.rdb", "seendb.manifest", "segment-2.log"].map(path));
}

/// `seendb check --fix` gives back what is reserved in a log that is sound, and needs no room for that.
#[test]
fn a_sound_log_gives_back_its_room_when_asked() {
    let (disk, mut writer) = begin(8 << 20);
    writer.append(&[0; 50]).unwrap();
    writer.sync().unwrap();
    drop(writer);
    leave(&disk, 0);
    let before = disk.content(&path("segment-1.log")).unwrap().len();
    assert_eq!(repair::give_back(&shared(&disk), Path::new(FOLDER)).unwrap(), (before - 64 - 32 - 56) as u64);
    assert_eq!(repair::give_back(&shared(&disk), Path::new(FOLDER)).unwrap(), 0);
    assert_eq!(read(&disk), [0; 50]);
    open(&disk).unwrap();
}

/// What is cut off is kept also on a full disk: the room that was reserved is enough.
#[test]
fn a_torn_log_is_repaired_on_a_full_disk() {
    let (disk, mut writer) = begin(8 << 20);
    writer.append(&[1; 40]).unwrap();
    writer.append(&[2; 9000]).unwrap();
    drop(writer);
    let mut torn = disk.content(&path("segment-1.log")).unwrap();
    torn[64 + 72 + 40] ^= 1;
    disk.set_content(&path("segment-1.log"), Some(&torn));
    leave(&disk, 0);
    let (_, kept) = repair::fix(&shared(&disk), Path::new(FOLDER)).unwrap().unwrap();
    assert_eq!(disk.content(&path(&kept[0])).unwrap(), torn[64 + 72..64 + 72 + 9032]);
    assert_eq!(read(&disk), [1; 40]);
}

/// Disks of any size: nothing that was promised is lost, whatever does not fit, and there is room again when others leave.
#[test]
fn whatever_does_not_fit_nothing_promised_is_lost() {
    for seed in 0..20 {
        for blocks in (1..60).step_by(2) {
            let context = format!("seed {seed}, {blocks} blocks");
            let mut model = Model::new(seed);
            model.disk.limit(Some(blocks * BLOCK));
            let mut failed = 0;
            for _ in 0..40 {
                let outcome = model.step();
                if let Err(super::model::Failed::Sync) = outcome {
                    panic!("{context}: a sync needs no room");
                }
                failed += u32::from(outcome.is_err());
                model.check(&model.disk.copy(), &context);
            }
            model.check(&model.disk.after_power_loss(seed), &context);
            assert!(failed > 0 || blocks > 12, "{context}");
            model.disk.limit(None);
            if model.writer.is_none() {
                model.open().expect("the disk has room");
            }
            model.append().expect("the disk has room");
            model.sync().expect("the disk has room");
            assert_eq!(model.promised, model.history.len(), "{context}");
            model.check(&model.disk.after_power_loss(seed), &context);
        }
    }
}
