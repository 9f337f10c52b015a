//! Patterns and texts, separated by the first NUL: the matcher against a model that takes the pattern apart first and
//! then tries every way to spend the text (a table of pattern elements by text positions).

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::keyspace::glob;

/// One element of a pattern.
enum Element {
    Star,
    One(Vec<(u8, u8)>, Escaped, bool),
}

/// Bytes of brackets that are compared as they are, even when case is ignored.
type Escaped = Vec<u8>;

fuzz_target!(|data: &[u8]| {
    // The table grows with the product of the two lengths.
    if data.len() > 512 {
        return;
    }
    let at = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (pattern, text) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let elements = parse(pattern);
    assert_eq!(glob::matches(pattern, text), model(&elements, text, false));
    assert_eq!(glob::matches_ignoring_case(pattern, text), model(&elements, text, true));
});

fn parse(pattern: &[u8]) -> Vec<Element> {
    let byte = |byte: u8| Element::One(vec![(byte, byte)], vec![], false);
    let mut elements = Vec::new();
    let mut rest = pattern.iter().copied().peekable();
    while let Some(first) = rest.next() {
        elements.push(match first {
            b'*' => Element::Star,
            b'?' => Element::One(vec![], vec![], true),
            b'\\' => byte(rest.next().unwrap_or(b'\\')),
            b'[' => {
                let negated = rest.next_if_eq(&b'^').is_some();
                let (mut ranges, mut escaped) = (vec![], vec![]);
                while let Some(byte) = rest.next() {
                    let mut ahead = rest.clone();
                    let range = (ahead.next(), ahead.next());
                    match (byte, range) {
                        (b'\\', (Some(next), _)) => {
                            escaped.push(next);
                            rest.next();
                        }
                        (b']', _) => break,
                        (_, (Some(b'-'), Some(last))) => {
                            ranges.push((byte.min(last), byte.max(last)));
                            rest = ahead;
                        }
                        _ => ranges.push((byte, byte)),
                    }
                }
                Element::One(ranges, escaped, negated)
            }
            literal => byte(literal),
        });
    }
    elements
}

fn model(elements: &[Element], text: &[u8], fold: bool) -> bool {
    let lower = |byte: u8| if fold { byte.to_ascii_lowercase() } else { byte };
    // reached[i]: the elements so far can take exactly the first i bytes of the text.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for element in elements {
        let mut next = vec![false; text.len() + 1];
        match element {
            Element::Star => {
                let first = reached.iter().position(|&here| here).unwrap_or(next.len());
                next[first..].fill(true);
            }
            Element::One(ranges, escaped, negated) => {
                for (at, &byte) in text.iter().enumerate().filter(|&(at, _)| reached[at]) {
                    let inside = |&(low, high): &(u8, u8)| (lower(low)..=lower(high)).contains(&lower(byte));
                    let found = ranges.iter().any(inside) || escaped.contains(&byte);
                    next[at + 1] = found != *negated;
                }
            }
        }
        reached = next;
    }
    reached[text.len()]
}
