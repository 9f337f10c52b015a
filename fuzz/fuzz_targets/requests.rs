//! Bytes of a connection: scanned whole, and in pieces that the input itself chooses. Both must come to the same.
//!
//! The first byte tells how many of the following ones are lengths of pieces, the limit on requests per call, and
//! whether the peer has logged in; the rest is what it sends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::resp::{Args, Batch, Limits, ProtocolError, Scanner};

type Request = Vec<Vec<u8>>;

fuzz_target!(|data: &[u8]| {
    let Some((&head, rest)) = data.split_first() else {
        return;
    };
    let (pieces, input) = rest.split_at(usize::from(head & 15).min(rest.len()));
    let most = usize::from(head >> 4 & 7) + 1;
    // Small limits, so that the borders are reached by small inputs.
    let limits = Limits { bulk_bytes: 1 << 20, arguments: 100, inline_bytes: 200, pre_auth: head & 128 != 0 };
    let whole = scan(input, &[], usize::MAX, &limits);
    assert_eq!(scan(input, pieces, most, &limits), whole);
    let bytes: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(bytes <= input.len(), "more came out than went in");
    assert!(whole.0.iter().all(|request| !request.is_empty()));
});

fn owned(args: Args<'_>) -> Request {
    args.iter().map(<[u8]>::to_vec).collect()
}

fn scan(input: &[u8], pieces: &[u8], most: usize, limits: &Limits) -> (Vec<Request>, Option<ProtocolError>) {
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let (mut buf, mut rest, mut requests) = (Vec::new(), input, Vec::new());
    for len in pieces.iter().map(|&len| usize::from(len)).chain([usize::MAX]) {
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        buf.extend_from_slice(piece);
        loop {
            let outcome = scanner.scan(&mut buf, limits, most, &mut batch);
            requests.extend((0..batch.len()).map(|index| owned(batch.request(&buf, index))));
            if let Err(error) = outcome {
                return (requests, Some(error));
            }
            let consumed = scanner.consumed();
            buf.drain(..consumed);
            scanner.discard(consumed);
            if batch.len() < most {
                assert_eq!(scanner.wanted() == 0, buf.is_empty());
                break;
            }
        }
    }
    (requests, None)
}
