//! `CBF.EXPORT`: the plain Bloom filter "counter above 0", as bytes that a client answers from by itself.

use std::time::Instant;

use super::Counting;
use crate::codec::counting_export::{CountingExportWriter, empty_export, export as export_of};
use crate::commands::context::Context;
use crate::commands::deletable::{Family, filter_of};
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::options::newer;
use crate::commands::words::Words;
use crate::keyspace::Aside;
use crate::keyspace::bloom::COPIED_AT_ONCE;
use crate::keyspace::entry::ValueRef;
use crate::keyspace::latched::Latched;
use crate::resp::{Args, Reply};

/// `CBF.EXPORT key [NEWER version]`
pub(super) fn export(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (newer, may_latch) = (newer(Words::from(args, 2))?, context.may_latch());
    let found = context.read(&args[1], |entry| -> Result<Option<Export>, CommandError> {
        let Some(filter) = filter_of::<Counting>(entry)? else { return Ok(None) };
        if newer.is_some_and(|newer| filter.figures().version <= newer) {
            return Ok(Some(Export::Old));
        }
        if may_latch && filter.shape().bytes() > COPIED_AT_ONCE as u64 {
            return Ok(Some(Export::Long));
        }
        Ok(Some(Export::Bytes(export_of(filter)?)))
    })??;
    match found {
        Some(Export::Old) => Ok(Reply::Null),
        Some(Export::Bytes(bytes)) => Ok(Reply::Bulk(bytes.into())),
        Some(Export::Long) => match context.latch(&args[1])? {
            Some(latched) => Err(Stop::Long(Box::new(LongExport { latched, writing: None }))),
            None => export(context, args),
        },
        None if newer.is_some() => Ok(Reply::Null),
        None => Ok(Reply::Bulk(empty(context)?.into())),
    }
}

/// That of what an add would make.
fn empty(context: &Context<'_>) -> Result<Vec<u8>, CommandError> {
    let settings = Counting::by_settings(context.settings);
    let (shape, limit) = (settings.shape()?, context.settings.max_filter_memory());
    if shape.bytes() > limit {
        return Err(CommandError::FilterTooLarge { bytes: shape.bytes(), limit });
    }
    Ok(empty_export(&settings, shape)?)
}

/// What comes of a filter that is there.
enum Export {
    /// It is not newer than what the client has.
    Old,
    /// It is written in steps.
    Long,
    Bytes(Vec<u8>),
}

/// The export of a large filter: nobody but who asks for its key waits.
struct LongExport {
    latched: Latched,
    writing: Option<Aside<(CountingExportWriter, Vec<u8>)>>,
}

impl LongCommand for LongExport {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        let ValueRef::Counting(filter) = self.latched.entry().value() else {
            return refused(&CommandError::WrongType);
        };
        let writing = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let writer = CountingExportWriter::new(filter);
                match writer.room() {
                    Ok(room) => self.writing.insert(context.keyspace.aside((writer, room))),
                    Err(error) => return refused(&error.into()),
                }
            }
        };
        let (writer, bytes) = &mut **writing;
        while !writer.step(filter, bytes, COPIED_AT_ONCE) {
            if Instant::now() >= until {
                return Ok(None);
            }
        }
        Ok(Some(Reply::Bulk(std::mem::take(bytes).into())))
    }
}
