//! One request as a list of byte strings that live in somebody's buffer.

use std::ops::Index;

/// Where one argument lies, counted from the first byte of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// `len` bytes from `start` on.
    pub(super) fn new(start: u32, len: u32) -> Self {
        Self { start, len }
    }

    fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize)
    }
}

/// The arguments of one request, the command's name first. A view: copying it copies two pointers.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The arguments at `spans` of a request whose first byte is the first of `bytes`.
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// Number of arguments, the command's name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no argument (never so for a request; possible after [`slice_from`](Self::slice_from)).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`, or `None` behind the last.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index)?.of(self.bytes)
    }

    /// The arguments from `index` on; none when there are not that many.
    #[must_use]
    pub fn slice_from(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }

    /// The arguments from `from` on to before `to`, or to the last.
    #[must_use]
    pub fn range(&self, from: usize, to: usize) -> Args<'a> {
        let to = to.min(self.spans.len());
        Args { bytes: self.bytes, spans: self.spans.get(from..to).unwrap_or_default() }
    }

    /// All arguments in order.
    #[must_use]
    pub fn iter(&self) -> ArgsIter<'a> {
        ArgsIter { bytes: self.bytes, spans: self.spans.iter() }
    }
}

/// # Panics
/// When there is no argument `index`, as with a slice: for code that has checked the number of arguments.
impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        let Span { start, len } = self.spans[index];
        &self.bytes[start as usize..][..len as usize]
    }
}

impl<'a> IntoIterator for Args<'a> {
    type Item = &'a [u8];
    type IntoIter = ArgsIter<'a>;

    fn into_iter(self) -> ArgsIter<'a> {
        self.iter()
    }
}

/// Iterator over the arguments of a request.
#[derive(Debug, Clone)]
pub struct ArgsIter<'a> {
    bytes: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
}

impl<'a> Iterator for ArgsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next()?.of(self.bytes)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl ExactSizeIterator for ArgsIter<'_> {}

/// A request that outlives the buffer it came in: one queued by `MULTI`, one that waits for a busy key, one that a host
/// other than the server hands in piece by piece.
#[derive(Debug, Clone)]
pub struct OwnedArgs {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    /// Copies `arguments` together; `None` when they exceed 4 GiB, which no request that was scanned does.
    pub fn collect<I>(arguments: I) -> Option<Self>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut bytes = Vec::new();
        let mut spans = Vec::new();
        for argument in arguments {
            let argument = argument.as_ref();
            let start = u32::try_from(bytes.len()).ok()?;
            spans.push(Span::new(start, u32::try_from(argument.len()).ok()?));
            bytes.extend_from_slice(argument);
        }
        Some(Self { bytes: bytes.into(), spans: spans.into() })
    }

    /// The arguments as handlers take them.
    #[must_use]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Bytes held on the heap, for the account of what a client has queued.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> OwnedArgs {
        OwnedArgs::collect([&b"BF.ADD"[..], b"k", b"", b"a\0b"]).unwrap()
    }

    #[test]
    fn arguments_are_a_list() {
        let owned = sample();
        let args = owned.as_args();
        assert_eq!(args.len(), 4);
        assert_eq!(args.get(0), Some(&b"BF.ADD"[..]));
        assert_eq!(args.get(2), Some(&b""[..]));
        assert_eq!(args.get(4), None);
        assert_eq!(&args[3], b"a\0b");
        assert_eq!(args.iter().len(), 4);
        assert_eq!(args.into_iter().collect::<Vec<_>>(), [&b"BF.ADD"[..], b"k", b"", b"a\0b"]);
    }

    #[test]
    fn slices_keep_the_places() {
        let owned = sample();
        let rest = owned.as_args().slice_from(1).slice_from(1);
        assert_eq!(rest.iter().collect::<Vec<_>>(), [&b""[..], b"a\0b"]);
        assert!(rest.slice_from(2).is_empty());
        assert!(rest.slice_from(3).is_empty());
        assert!(rest.slice_from(usize::MAX).is_empty());
    }

    #[test]
    fn a_copy_holds_the_same_and_nothing_else() {
        let owned = sample();
        let copy = OwnedArgs::collect(owned.as_args().slice_from(1)).unwrap();
        assert_eq!(copy.as_args().iter().collect::<Vec<_>>(), [&b"k"[..], b"", b"a\0b"]);
        assert_eq!(copy.heap_bytes(), 4 + 3 * size_of::<Span>());
    }
}
