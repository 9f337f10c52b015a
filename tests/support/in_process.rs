//! Commands on a keyspace in the test's own process, without a server.

use std::time::Duration;

use seendb::commands::context::{Host, Room};
use seendb::config::{Id, Prepared, SetError};
use seendb::resp::{Batch, Limits, Scanner};

/// A host without limits.
pub struct Plain;

impl Host for Plain {
    fn info(&self, _: &[String]) -> String {
        String::new()
    }
    fn approve_settings(&self, _: &Prepared) -> Result<(), SetError> {
        Ok(())
    }
    fn settings_changed(&self, _: &[Id]) {}
    fn make_room(&self, _: u64, _: Duration) -> Room {
        Room::Made
    }
    fn room_for(&self, _: u64, _: u64) -> Room {
        Room::Made
    }
}

/// A request as the scanner sees it: its bytes, and a batch of this one request.
pub fn request(words: &[&[u8]]) -> (Vec<u8>, Batch) {
    let mut input = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        input.extend(format!("${}\r\n", word.len()).into_bytes());
        input.extend_from_slice(word);
        input.extend(b"\r\n");
    }
    let mut batch = Batch::default();
    Scanner::new().scan(&mut input, &Limits::default(), 1, &mut batch).expect("a request");
    (input, batch)
}
