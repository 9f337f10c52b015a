//! What a counting filter says of itself: `CBF.INFO`, `CBF.STATS`. All of it is kept with every write.

use super::Counting;
use crate::commands::context::Context;
use crate::commands::deletable::read_existing;
use crate::commands::dispatch::Outcome;
use crate::commands::figures::{integer, pairs};
use crate::resp::{Args, Reply};

/// `CBF.INFO key`
pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    read_existing::<Counting>(context, args, |filter, bytes| {
        let (settings, figures) = (filter.settings(), filter.figures());
        pairs([
            ("Capacity", integer(settings.capacity)),
            ("Size", integer(bytes as u64)),
            ("Number of items inserted", integer(figures.items)),
            ("Error rate", Reply::Double(settings.error)),
            ("Error rate now", Reply::Double(filter.error_now())),
            ("Fill", Reply::Double(filter.fill())),
            ("Counter ceiling", integer(settings.counter_bits.ceiling())),
            ("Saturated counters", integer(figures.saturated)),
        ])
    })
}

/// `CBF.STATS key`
pub(super) fn stats(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    read_existing::<Counting>(context, args, |filter, bytes| {
        let (settings, shape, figures) = (filter.settings(), filter.shape(), filter.figures());
        pairs([
            ("cells", integer(shape.cells)),
            ("hashes", integer(shape.hashes.into())),
            ("counter-bits", integer(shape.counter_bits.bits().into())),
            ("cells-nonzero", integer(figures.nonzero)),
            ("cells-saturated", integer(figures.saturated)),
            ("items", integer(figures.items)),
            ("items-estimated", integer(filter.items_estimated())),
            ("error-now", Reply::Double(filter.error_now())),
            ("strict", Reply::Bool(settings.strict)),
            ("keyed", Reply::Bool(settings.key.is_some())),
            ("bytes", integer(bytes as u64)),
            ("version", integer(figures.version)),
        ])
    })
}
