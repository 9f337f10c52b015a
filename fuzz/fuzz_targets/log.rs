//! Any bytes as a log: reading and repairing never panic, what is read is continuous, and a repaired log is read without
//! complaint, gives what could be read before, and can be continued.
//!
//! The first byte tells what the input is: a manifest and the content of one segment, as they are; or pieces of up to
//! three segments, which become batches with checksums that fit, or stay what they are.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use seendb::persist::files::Files;
use seendb::persist::log::manifest::Segment;
use seendb::persist::log::{Base, Damage, LogError, LogId, LogReader, LogWriter, Manifest, batch, repair, segment};
use seendb::persist::simulated::SimulatedFiles;

const FOLDER: &str = "/log";
const ID: LogId = LogId([7; 16]);

fuzz_target!(|data: &[u8]| {
    // Damage is looked at from every offset on: longer inputs only take longer.
    let Some((&kind, data)) = data.split_first().filter(|_| data.len() <= 4096) else { return };
    let disk = SimulatedFiles::new(u64::from(kind));
    if kind == 0 {
        let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
        put(&disk, "seendb.manifest", &data[..at]);
        put(&disk, "segment-1.log", data.get(at + 1..).unwrap_or_default());
    } else {
        build(&disk, kind, data);
    }
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let Ok(Some((before, _))) = read(&files) else { return };
    let fixed = repair::fix(&files, Path::new(FOLDER)).expect("it can be read").expect("there is a log");
    let (after, outcome) = read(&files).expect("it can be read").expect("there is a log");
    assert!(outcome.is_none() && after.starts_with(&before), "{fixed:?} left {outcome:?}");
    go_on(&files, &after);
});

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn put(disk: &SimulatedFiles, name: &str, content: &[u8]) {
    disk.set_content(&path(name), Some(content));
}

/// Records before the end or the damage, and this.
type Found = (Vec<u8>, Option<Damage>);

fn read(files: &Arc<dyn Files>) -> Result<Option<Found>, LogError> {
    let Some(mut reader) = LogReader::open(files.clone(), Path::new(FOLDER))? else { return Ok(None) };
    let (mut records, cut) = (Vec::new(), reader.manifest().cut());
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => {
                assert_eq!(batch.position, cut + records.len() as u64);
                assert!(!batch.records.is_empty());
                records.extend(batch.records);
            }
            Ok(None) => return Ok(Some((records, reader.torn_tail().cloned()))),
            Err(LogError::Damaged(damage)) => {
                assert!(damage.position >= cut && !damage.to_string().is_empty());
                return Ok(Some((records, Some(*damage))));
            }
            Err(error) => return Err(error),
        }
    }
}

fn go_on(files: &Arc<dyn Files>, whole: &[u8]) {
    let end = LogReader::open(files.clone(), Path::new(FOLDER)).unwrap().unwrap().finish().expect("it is in order");
    if end.position > u64::MAX / 2 || end.manifest.segments.iter().any(|segment| segment.number >= segment::MAX_NUMBER)
    {
        return;
    }
    let mut writer = LogWriter::open(files.clone(), Path::new(FOLDER), end, 300).expect("the disk works");
    writer.append(b"more").unwrap();
    writer.close().unwrap();
    let (records, outcome) = read(files).unwrap().unwrap();
    assert!(outcome.is_none());
    assert_eq!(records, [whole, b"more"].concat());
}

/// Segments of pieces: *(kind, length, numbers for the header, bytes)*.
fn build(disk: &SimulatedFiles, kind: u8, mut data: &[u8]) {
    let mut position = u64::from(kind & 3) * 8;
    let base = (kind & 4 != 0).then(|| Base { file: "base-1.rdb".into(), cut: position + u64::from(kind >> 3) });
    let cut = base.as_ref().map_or(0, |base| base.cut);
    let mut segments = Vec::new();
    for number in 1..=3 {
        let first = if number == 1 { position.min(cut) } else { position };
        position = first;
        let file = segment::file_name(number);
        let mut content = segment::Header { id: ID, number, first }.encode().to_vec();
        let mut more = true;
        while let Some(([tag, length, ahead, synced], rest)) = data.split_first_chunk::<4>().filter(|_| more) {
            let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            data = rest;
            more = *tag != 255;
            let at = position + if tag & 1 == 0 { 0 } else { u64::from(*ahead) };
            match tag % 5 {
                0 => content.extend(bytes),
                1 if !bytes.is_empty() => content.truncate(content.len().saturating_sub(bytes.len())),
                _ => {
                    let header = batch::Header::new(&ID, at, at.saturating_sub(u64::from(*synced)), bytes);
                    content.resize(content.len().next_multiple_of(8), 0);
                    content.extend(header.expect("small numbers").encode(&ID, number));
                    content.extend(bytes);
                    position = at + bytes.len() as u64;
                }
            }
        }
        put(disk, &file, &content);
        segments.push(Segment { number, first, file });
        if data.is_empty() {
            break;
        }
    }
    let manifest = Manifest { id: ID, base, segments, closed: None };
    put(disk, "seendb.manifest", manifest.encode().as_bytes());
}
