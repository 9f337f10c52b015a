//! What a d-left filter says of itself: `DLCBF.INFO`, `DLCBF.STATS`.

use super::Dleft;
use crate::commands::context::Context;
use crate::commands::deletable::read_existing;
use crate::commands::dispatch::Outcome;
use crate::commands::figures::{integer, pairs};
use crate::filters::dleft::SetInfo;
use crate::resp::{Args, Reply};

/// `DLCBF.INFO key`
pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    read_existing::<Dleft>(context, args, |filter, bytes| {
        let settings = filter.settings();
        let expansion = settings.growth.map_or(Reply::Null, |growth| integer(growth.factor.into()));
        pairs([
            ("Capacity", integer(filter.sets().map(|set| set.capacity).fold(0, u64::saturating_add))),
            ("Size", integer(bytes as u64)),
            ("Number of items inserted", integer(filter.items())),
            ("Error rate", Reply::Double(settings.error)),
            ("Error rate now", Reply::Double(filter.error_now())),
            ("Expansion rate", expansion),
            ("Counter ceiling", integer(1 << settings.counter_bits)),
            ("Fullest bucket", integer(filter.fullest_bucket().into())),
            ("Spilled items", integer(filter.spilled().len() as u64)),
        ])
    })
}

/// `DLCBF.STATS key`
pub(super) fn stats(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    read_existing::<Dleft>(context, args, |filter, bytes| {
        let settings = filter.settings();
        let all_buckets = |set: &SetInfo| u64::from(set.geometry.subtables) * set.geometry.buckets;
        let first = filter.sets().next().map_or(0, |set| set.geometry.fingerprint_bits);
        let set = |set: SetInfo| {
            pairs([
                ("buckets", integer(all_buckets(&set))),
                ("items", integer(set.used)),
                ("fingerprint-bits", integer(set.geometry.fingerprint_bits.into())),
            ])
        };
        let loads = &filter.loads()[..=settings.cells as usize];
        pairs([
            ("sub-tables", integer(settings.subtables.into())),
            ("cells", integer(settings.cells.into())),
            ("fingerprint-bits", integer(first.into())),
            ("buckets", integer(filter.sets().map(|set| all_buckets(&set)).sum())),
            ("cells-used", integer(filter.cells_used())),
            ("fullest-bucket", integer(filter.fullest_bucket().into())),
            ("spilled", integer(filter.spilled().len() as u64)),
            ("error-now", Reply::Double(filter.error_now())),
            ("loads", Reply::Array(loads.iter().map(|buckets| integer(*buckets)).collect())),
            ("sets", Reply::Array(filter.sets().map(set).collect())),
            ("keyed", Reply::Bool(settings.key.is_some())),
            ("bytes", integer(bytes as u64)),
        ])
    })
}
