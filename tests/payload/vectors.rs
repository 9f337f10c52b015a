//! Recorded payloads of both oracles, and the recorded chunk dumps of the same filters.

use super::model::{Filter, framed, length, unhex};
use seendb::codec::bloom::{self, Decoded};
use seendb::codec::value::Built;
use seendb::codec::{crc64::Crc64, payload};
use serde_json::Value;
use std::collections::HashMap;

fn recorded(text: &str) -> Vec<Value> {
    let recorded: Value = serde_json::from_str(text).unwrap();
    recorded.as_array().unwrap().clone()
}

fn dumps() -> Vec<Value> {
    recorded(include_str!("../vectors/bf_dump.json"))
}

fn hex(value: &Value) -> Vec<u8> {
    unhex(value.as_str().unwrap())
}

/// What a field's text says it is.
fn unsigned(field: &Value) -> u64 {
    assert_eq!(field["what"], "unsigned");
    field["value"].as_u64().unwrap()
}

fn double(field: &Value) -> f64 {
    assert_eq!(field["what"], "double");
    field["value"].as_str().unwrap().parse().unwrap()
}

/// Compares a chain with the texts of the fields between module id and end mark.
fn check_fields(filter: &Filter, fields: &[Value]) {
    let [items, count, options, growth, links @ ..] = fields else { panic!("four fields of the chain") };
    let bloom = filter.get();
    assert_eq!((bloom.items(), bloom.len() as u64), (unsigned(items), unsigned(count)));
    assert_eq!((u64::from(bloom.options()), u64::from(bloom.growth())), (unsigned(options), unsigned(growth)));
    assert_eq!(links.len(), bloom.len() * 8);
    for ((fields, info), bits) in links.chunks(8).zip(bloom.links()).zip(filter.bits()) {
        let shape = info.shape;
        assert_eq!((shape.entries, shape.error), (unsigned(&fields[0]), double(&fields[1])));
        assert_eq!((u64::from(shape.hashes), shape.bits_per_entry), (unsigned(&fields[2]), double(&fields[3])));
        assert_eq!((shape.bits, u64::from(shape.log2_bits)), (unsigned(&fields[4]), unsigned(&fields[5])));
        assert_eq!((bits, info.items), (hex(&fields[6]["value"]), unsigned(&fields[7])));
    }
}

/// The payload of these fields if every string is raw, as version 10.
fn as_written_here(fields: &[Value]) -> Vec<u8> {
    let bytes = |field: &Value| match field["what"].as_str().unwrap() {
        "rdb version" | "crc64" => Vec::new(),
        what if what.starts_with("string/") => {
            let bits = hex(&field["value"]);
            [&[5][..], &length(bits.len() as u64), &bits].concat()
        }
        _ => hex(&field["hex"]),
    };
    framed(&fields.iter().flat_map(bytes).collect::<Vec<_>>(), 10)
}

#[test]
fn recorded_payloads_are_read_and_written() {
    let (mut equal, mut forms) = (0, HashMap::<String, usize>::new());
    for recorded in dumps() {
        for release in ["new", "old"] {
            let name = format!("{} ({release})", recorded["name"]);
            let (dump, fields) = (hex(&recorded["dump_hex"][release]), &recorded["fields"][release]);
            let fields = fields.as_array().unwrap();
            assert_eq!(fields.iter().flat_map(|field| hex(&field["hex"])).collect::<Vec<_>>(), dump);
            let [_, _, value @ .., _, version, crc] = &fields[..] else { panic!("{name}: the frame") };
            let (crc, version) = (crc["value"].as_str().unwrap(), version["value"].as_u64());
            assert_eq!(format!("{:016x}", Crc64::of(&dump[..dump.len() - 8])), crc, "{name}");
            assert_eq!(version, Some(if release == "new" { 12 } else { 10 }));

            let filter = Filter::restored(&dump);
            check_fields(&filter, value);
            assert_eq!(filter.dump(), as_written_here(fields), "{name}");
            filter.check_equal(&Filter::restored(&filter.dump()));
            for field in fields {
                *forms.entry(field["what"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            let all_raw =
                value.iter().all(|field| !matches!(field["what"].as_str(), Some("string/lzf" | "string/int32")));
            if release == "old" && all_raw {
                assert_eq!(filter.dump(), dump, "{name}");
                equal += 1;
            }
        }
    }
    assert!(equal >= 14, "only {equal} payloads to be equal byte for byte");
    assert!(forms["string/lzf"] >= 8 && forms["string/raw"] >= 30 && forms["string/int32"] == 2);
}

#[test]
fn recorded_chunk_dumps_give_the_recorded_payloads() {
    let mut dumps: HashMap<_, _> = dumps().into_iter().map(|dump| (dump["name"].to_string(), dump)).collect();
    let chunks = recorded(include_str!("../vectors/bf_scandump.json"));
    assert_eq!((chunks.len(), dumps.len()), (19, 20));
    for filter in chunks {
        let dump = dumps.remove(&filter["name"].to_string()).unwrap();
        for release in ["new", "old"] {
            let chunks = &filter["chunks"];
            let chunks = chunks.get("both").unwrap_or_else(|| &chunks[release]).as_array().unwrap();
            let [header, chunks @ .., _end] = &chunks[..] else { panic!("header and end") };
            let mut loaded = Filter(bloom::decode_header(&hex(&header["data_hex"]), 1 << 20).unwrap());
            for chunk in chunks {
                let data = hex(&chunk["data_hex"]);
                let place = bloom::place_chunk(loaded.get(), chunk["iter_out"].as_i64().unwrap(), data.len()).unwrap();
                loaded.get_mut().or_bytes(place.link, place.offset, &data);
            }
            let restored = Filter::restored(&hex(&dump["dump_hex"][release]));
            restored.check_equal(&loaded);
            assert_eq!(loaded.dump(), as_written_here(dump["fields"][release].as_array().unwrap()));
        }
    }
}

#[test]
fn recorded_items_are_found() {
    for dump in dumps() {
        let filter = Filter::restored(&hex(&dump["dump_hex"]["old"]));
        let mut asked = 0;
        for command in dump["commands"].as_array().unwrap() {
            let words = command.as_array().unwrap();
            if !["BF.ADD", "BF.MADD"].contains(&words[0].as_str().unwrap()) {
                continue;
            }
            // A filter that does not scale refuses what comes when it is full; it is found if counted.
            let items = words[2..].iter().take(filter.get().items() as usize);
            for item in items {
                // One byte a character.
                let item: Vec<u8> =
                    item.as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
                assert!(filter.contains(&item), "{} in {}", item.escape_ascii(), dump["name"]);
                asked += 1;
            }
        }
        assert!(asked > 0 || !dump["commands"].to_string().contains("BF.MADD"), "{}", dump["name"]);
    }
}

#[test]
fn usual_filters_are_restored_packed_and_unusual_ones_large() {
    for dump in dumps() {
        let name = dump["name"].as_str().unwrap();
        let decoded = payload::restore(&hex(&dump["dump_hex"]["new"]), 1 << 20).unwrap();
        // The array that looks like a number is a loaded header of the usual kind.
        let unusual = name.starts_with("loaded_options") && !name.starts_with("loaded_options_5");
        assert_eq!(matches!(decoded, Built::Bloom(Decoded::Large(_))), unusual, "{name}");
    }
}
