//! A log on a real disk, without any fault.

use std::path::Path;
use std::sync::Arc;

use seendb::persist::files::{Files, RealFiles};
use seendb::persist::log::{Base, LogReader, LogWriter, next_base_name};

fn read(folder: &Path) -> (Vec<u8>, u64) {
    let mut reader = LogReader::open(Arc::new(RealFiles), folder).unwrap().unwrap();
    let mut records = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        records.extend(batch.records);
    }
    assert_eq!(reader.torn_tail(), None);
    (records, reader.finish().unwrap().position)
}

#[test]
fn a_log_of_several_segments_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("appendonlydir");
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    assert!(LogReader::open(files.clone(), &folder).unwrap().is_none());

    let mut writer = LogWriter::create(files.clone(), &folder, None, 256).unwrap();
    let mut all = Vec::new();
    for n in 0..40_u8 {
        let records = vec![n; usize::from(n) * 13 % 300];
        writer.append(&records).unwrap();
        all.extend(records);
        assert_eq!(writer.position(), all.len() as u64);
    }
    assert!(writer.manifest().segments.len() > 10);
    writer.sync().unwrap();
    assert_eq!(writer.synced(), writer.position());
    drop(writer);
    assert_eq!(read(&folder), (all.clone(), all.len() as u64));

    let end = LogReader::open(files.clone(), &folder).unwrap().unwrap().finish().unwrap();
    let mut writer = LogWriter::open(files.clone(), &folder, end, 1 << 20).unwrap();
    let large = vec![7; 3 << 20];
    writer.append(&large).unwrap();
    all.extend(&large);
    writer.close().unwrap();
    assert_eq!(read(&folder), (all.clone(), all.len() as u64));

    let end = LogReader::open(files.clone(), &folder).unwrap().unwrap().finish().unwrap();
    let mut writer = LogWriter::open(files.clone(), &folder, end, 1 << 20).unwrap();
    let base = next_base_name(&*files, &folder).unwrap();
    files.create(&folder.join(&base)).unwrap();
    let cut = all.len() as u64 - 5;
    writer.retire(Base { file: base, cut }).unwrap();
    writer.append(b"after").unwrap();
    writer.switch_off(99).unwrap();
    assert_eq!(read(&folder), ([&[7; 5][..], b"after"].concat(), cut + 10));
    let reader = LogReader::open(files.clone(), &folder).unwrap().unwrap();
    assert_eq!(reader.manifest().closed, Some(99));
    assert_eq!(files.list(&folder).unwrap().len(), 4, "manifest, base, two segments");
}
