//! What a snapshot says of where it comes from, so that it is known whether a log has more than it, or less.

use std::io;
use std::path::Path;

use super::files::File;
use super::log::LogId;
use crate::codec::rdb::{Input, Reader};
use crate::codec::rdb_string::RdbString;

/// Field of a snapshot: a log that it has, up to the position in the field that follows. There may be several.
pub const LOG_ID_FIELD: &str = "seendb-log-id";
/// Field of a snapshot: it has all of the log before this position.
pub const LOG_POSITION_FIELD: &str = "seendb-log-position";
/// Field of a snapshot: it may have changes that were never logged in these logs.
pub const BEYOND_FIELD: &str = "seendb-beyond-log";
/// Field of a snapshot: when it was begun, in milliseconds since 1970.
pub const MOMENT_FIELD: &str = "seendb-moment";

/// So many logs are remembered: those that this process, and the ones before it, had last.
const MOST_LOGS: usize = 8;

/// What data have of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Logs, each with the position below which the data have everything.
    pub logs: Vec<(String, u64)>,
    /// The data may have changes that are in none of them.
    pub beyond: bool,
}

impl Origin {
    /// The position below which the data have everything of this log.
    #[must_use]
    pub fn position_in(&self, id: &LogId) -> Option<u64> {
        let id = id.to_string();
        self.logs.iter().filter(|(log, _)| *log == id).map(|(_, position)| *position).max()
    }

    /// The data have this log up to there.
    pub fn include(&mut self, id: String, position: u64) {
        self.logs.retain(|(log, _)| *log != id);
        self.logs.push((id, position));
        let excess = self.logs.len().saturating_sub(MOST_LOGS);
        self.logs.drain(..excess);
    }

    /// As fields of a snapshot.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        for (id, position) in &self.logs {
            fields.push((LOG_ID_FIELD, id.clone()));
            fields.push((LOG_POSITION_FIELD, position.to_string()));
        }
        if self.beyond && !self.logs.is_empty() {
            fields.push((BEYOND_FIELD, "1".to_owned()));
        }
        fields
    }
}

/// What the beginning of a snapshot says of it.
#[derive(Clone, Debug, Default)]
pub struct SnapshotHead {
    /// What it has of logs.
    pub origin: Origin,
    /// When it was begun, in milliseconds since 1970; 0 if it does not say so.
    pub moment: u64,
}

impl SnapshotHead {
    /// Read it from the file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(file: &dyn File) -> io::Result<Self> {
        const MOST_BYTES: usize = 4096;
        const MAGIC_BYTES: usize = 9;
        const AUX: u8 = 0xfa;
        let mut bytes = vec![0; MOST_BYTES];
        let count = file.read_full_at(&mut bytes, 0)?;
        let (mut head, mut id) = (Self::default(), None);
        let mut reader = Reader::new(bytes[..count].get(MAGIC_BYTES..).unwrap_or_default());
        while reader.byte().is_ok_and(|opcode| opcode == AUX) {
            // Whatever is wrong here is found when the file is loaded.
            let (Ok(name), Ok(value)) = (RdbString::read(&mut reader), RdbString::read(&mut reader)) else { break };
            let (name, value) = (text(&name), text(&value));
            match &*name {
                LOG_ID_FIELD => id = Some(value),
                LOG_POSITION_FIELD => {
                    // An early version wrote the highest number for 'some position in this log': it says nothing.
                    let position = value.parse().ok().filter(|position| *position < u64::MAX);
                    if let Some((id, position)) = id.take().zip(position) {
                        head.origin.include(id, position);
                    }
                }
                BEYOND_FIELD => head.origin.beyond = true,
                MOMENT_FIELD => head.moment = value.parse().unwrap_or(0),
                // Redis gives seconds.
                "ctime" if head.moment == 0 => head.moment = value.parse::<u64>().unwrap_or(0).saturating_mul(1000),
                _ => {}
            }
        }
        Ok(head)
    }
}

/// A short string as text; nothing if it is compressed.
fn text(string: &RdbString<'_>) -> String {
    match string {
        RdbString::Raw(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        RdbString::Integer(number) => number.to_string(),
        RdbString::Lzf { .. } => String::new(),
    }
}

/// A moment for people.
#[must_use]
pub fn utc(milliseconds: u64) -> String {
    let (days, seconds) = (milliseconds / 86_400_000, milliseconds / 1000 % 86_400);
    // Years that begin in March, in eras of 400, so that the day that comes and goes is the last of each.
    let (era, day_of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A path as a word for the shell.
#[must_use]
pub fn shell_word(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_as_dates() {
        for (milliseconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199_000, "2024-02-29 23:59:59 UTC"),
            (1_735_689_599_000, "2024-12-31 23:59:59 UTC"),
            (4_102_444_800_000, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(milliseconds), text);
        }
    }

    #[test]
    fn words_for_the_shell_are_one_word() {
        assert_eq!(shell_word(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn the_last_logs_are_remembered() {
        let mut origin = Origin::default();
        for n in 0..20 {
            origin.include(format!("{n:032x}"), n);
            origin.include(format!("{n:032x}"), n + 1);
        }
        assert_eq!(origin.logs.len(), MOST_LOGS);
        assert_eq!(origin.position_in(&LogId(19_u128.to_be_bytes())), Some(20));
        assert_eq!(origin.position_in(&LogId([0; 16])), None);
    }
}
