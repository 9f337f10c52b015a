//! The items of a request that has several.

use crate::resp::Args;

/// What would hold a shard longer than this works with the key's latch, in steps.
const LONG_NS: usize = 500_000;
/// Bytes that are hashed in a nanosecond.
const BYTES_PER_NS: usize = 3;

/// The items of a request, from its word `first` on.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    args: Args<'a>,
    /// Where they begin in the request.
    pub(super) first: usize,
}

impl<'a> Items<'a> {
    /// All words from `first` on.
    pub(super) fn of(args: Args<'a>, first: usize) -> Self {
        Self { args: args.slice_from(first), first }
    }

    /// The word at `first` alone, whatever follows it.
    pub(super) fn one(args: Args<'a>, first: usize) -> Self {
        Self { args: args.range(first, first + 1), first }
    }

    pub(super) fn len(self) -> usize {
        self.args.len()
    }

    /// The items from number `index` on.
    pub(super) fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        self.args.slice_from(index).iter()
    }

    /// Whether the work would hold a shard too long, where an item costs so many nanoseconds besides its bytes.
    pub(super) fn take_long(self, item_ns: usize) -> bool {
        let bytes: usize = self.args.iter().map(<[u8]>::len).sum();
        self.len() * item_ns + bytes / BYTES_PER_NS > LONG_NS
    }
}
