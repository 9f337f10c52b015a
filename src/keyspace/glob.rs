//! Glob patterns over byte strings, as `KEYS`, `SCAN MATCH`, `PSUBSCRIBE` and `CONFIG GET` take them.
//!
//! | pattern | matches |
//! | --- | --- |
//! | `*` | any bytes, also none |
//! | `?` | any one byte |
//! | `[ab]`, `[a-c]`, `[c-a]` | one of these bytes; a range may be given in either order |
//! | `[^ab]` | one byte other than these |
//! | `\x` | the byte `x`, whatever it means elsewhere; also inside brackets |
//!
//! The corners are Redis's. Inside brackets: a `]` ends them even in first place (`[]` matches nothing, `[^]` any byte);
//! a range takes whatever byte follows its `-`, a `]` too; brackets that never end reach to the end of the pattern. A
//! backslash at the end of the pattern is an ordinary byte. When case is ignored, a byte escaped inside brackets is
//! still compared as it is, and a range is put in order before its ends are lowered (so `[Z-a]` matches nothing).
//! Unlike Redis on some processors, bytes above 127 are greater than the others in ranges; and `**` matches the empty
//! string as `*` does.
//!
//! # Cost
//!
//! Every element other than `*` takes exactly one byte, so when the part behind a star fails, it is enough to try the
//! *last* star one byte further: an earlier star could only leave less text to the later ones. The work is at most
//! (length of the text) × (length of the longest part between stars), however many stars there are; it allocates
//! nothing and does not recurse. (Trying every star again, the obvious way, takes exponential time on `a*a*a*a*b`.)

/// Whether all of `text` matches `pattern`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run::<false>(pattern, text)
}

/// Whether all of `text` matches `pattern` when ASCII letters count as equal in either case.
#[must_use]
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    run::<true>(pattern, text)
}

fn run<const FOLD: bool>(pattern: &[u8], text: &[u8]) -> bool {
    let mut at_pattern = 0;
    let mut at_text = 0;
    // The part behind the last star, and the first byte of the text that the star has not taken yet.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at_pattern) == Some(&b'*') {
            at_pattern += 1;
            if at_pattern == pattern.len() {
                return true;
            }
            retry = Some((at_pattern, at_text));
            continue;
        }
        match text.get(at_text) {
            None => return at_pattern == pattern.len(),
            Some(&byte) => {
                if let Some(next) = element::<FOLD>(pattern, at_pattern, byte) {
                    at_pattern = next;
                    at_text += 1;
                    continue;
                }
            }
        }
        let Some((behind_star, taken)) = retry else {
            return false;
        };
        retry = Some((behind_star, taken + 1));
        (at_pattern, at_text) = (behind_star, taken + 1);
    }
}

/// Compares the element at `at` (no star) with `byte`; the place behind the element if they match.
fn element<const FOLD: bool>(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => brackets::<FOLD>(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => same::<FOLD>(pattern[at + 1], byte).then_some(at + 2),
        literal => same::<FOLD>(literal, byte).then_some(at + 1),
    }
}

/// Compares the brackets whose inside begins at `at` with `byte`; the place behind them if they match.
fn brackets<const FOLD: bool>(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    let behind = loop {
        match pattern[at.min(pattern.len())..] {
            [] => break pattern.len(),
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => break at + 1,
            [first, b'-', last, ..] => {
                found |= in_range::<FOLD>(first, last, byte);
                at += 3;
            }
            [literal, ..] => {
                found |= same::<FOLD>(literal, byte);
                at += 1;
            }
        }
    };
    (found != negated).then_some(behind)
}

fn same<const FOLD: bool>(a: u8, b: u8) -> bool {
    if FOLD { a.eq_ignore_ascii_case(&b) } else { a == b }
}

fn in_range<const FOLD: bool>(first: u8, last: u8, byte: u8) -> bool {
    let (low, high) = (first.min(last), first.max(last));
    if FOLD {
        (low.to_ascii_lowercase()..=high.to_ascii_lowercase()).contains(&byte.to_ascii_lowercase())
    } else {
        (low..=high).contains(&byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pattern, texts that match, texts that do not: each as `KEYS` of redis-server 7.0.15 answers.
    type Case = (&'static [u8], &'static [&'static [u8]], &'static [&'static [u8]]);

    const CASES: &[Case] = &[
        (b"", &[b""], &[b"a"]),
        (b"*", &[b"", b"a", b"a\0\xff"], &[]),
        (b"a", &[b"a"], &[b"", b"A", b"aa", b"b"]),
        (b"?", &[b"a", b"*", b"\xff"], &[b"", b"ab"]),
        (b"??", &[b"ab"], &[b"a", b"abc"]),
        (b"a*", &[b"a", b"ab", b"a*"], &[b"", b"ba"]),
        (b"*a", &[b"a", b"ba", b"aba"], &[b"", b"ab"]),
        (b"a**b***", &[b"ab", b"acbc"], &[b"a", b"ba"]),
        (b"*a*b*", &[b"ab", b"xaxbx", b"aab"], &[b"ba", b"a", b"b"]),
        (b"*ab*abc", &[b"ababc", b"abxabababc"], &[b"abc", b"ababcx"]),
        (b"h?llo*", &[b"hello", b"hallo world"], &[b"hllo"]),
        // Brackets.
        (b"[ab]", &[b"a", b"b"], &[b"c", b"", b"ab", b"["]),
        (b"[^ab]", &[b"c", b"^"], &[b"a", b"b", b""]),
        (b"[a^]", &[b"a", b"^"], &[b"b"]),
        (b"[a-c]", &[b"a", b"b", b"c"], &[b"d", b"-"]),
        (b"[c-a]", &[b"a", b"b", b"c"], &[b"d"]),
        (b"[^a-c]x", &[b"dx"], &[b"bx", b"d"]),
        (b"[a-]", &[b"]", b"^", b"a"], &[b"-", b"b"]),
        (b"[-a]", &[b"-", b"a"], &[b"b"]),
        (b"[a-c-e]", &[b"b", b"-", b"e"], &[b"d"]),
        (b"[]", &[], &[b"", b"]", b"a"]),
        (b"[]a]", &[], &[b"]", b"a", b"]a]"]),
        (b"[^]", &[b"a", b"]"], &[b"", b"aa"]),
        (b"[?*]", &[b"?", b"*"], &[b"a"]),
        (b"[\\]]", &[b"]"], &[b"\\", b"\\]"]),
        (b"[\\a-c]", &[b"a", b"-", b"c"], &[b"b", b"\\"]),
        (b"[\\^a]", &[b"^", b"a"], &[b"b"]),
        // Brackets without an end.
        (b"[", &[], &[b"", b"[", b"a"]),
        (b"[^", &[b"a", b"^"], &[b""]),
        (b"[ab", &[b"a", b"b"], &[b"c", b"[ab"]),
        (b"[^a", &[b"b"], &[b"a"]),
        (b"[a-", &[b"a", b"-"], &[b"b"]),
        (b"[a\\", &[b"a", b"\\"], &[b"b"]),
        (b"*[a-b", &[b"a", b"xb"], &[b"ax"]),
        // Backslashes.
        (b"\\*", &[b"*"], &[b"a", b"\\*"]),
        (b"\\a\\?", &[b"a?"], &[b"ab"]),
        (b"\\", &[b"\\"], &[b""]),
        (b"a\\", &[b"a\\"], &[b"a"]),
        (b"\\[a]", &[b"[a]"], &[b"a"]),
        (b"\\\\", &[b"\\"], &[b"\\\\"]),
    ];

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, yes, no) in CASES {
            for text in *yes {
                assert!(matches(pattern, text), "{} {}", pattern.escape_ascii(), text.escape_ascii());
            }
            for text in *no {
                assert!(!matches(pattern, text), "{} {}", pattern.escape_ascii(), text.escape_ascii());
            }
        }
    }

    /// As `COMMAND LIST FILTERBY PATTERN` of redis-server 7.0.15, the other way round where letters are alike.
    #[test]
    fn case_can_be_ignored() {
        for (pattern, text) in
            [(&b"G?T"[..], &b"get"[..]), (b"get", b"GET"), (b"[A-C]", b"b"), (b"[a-z]*", b"MAXmemory")]
        {
            assert!(matches_ignoring_case(pattern, text), "{}", pattern.escape_ascii());
            assert!(!matches(pattern, text), "{}", pattern.escape_ascii());
        }
        // A range is ordered before its ends are lowered, and an escape inside brackets is taken as it is.
        for (pattern, text) in [(&b"[Z-a]"[..], &b"z"[..]), (b"[Z-a]", b"a"), (b"[\\G]", b"g")] {
            assert!(!matches_ignoring_case(pattern, text), "{}", pattern.escape_ascii());
        }
        assert!(matches_ignoring_case(b"[A-z]", b"Q"));
    }

    #[test]
    fn bytes_above_127_are_the_greatest_in_ranges() {
        assert!(matches(b"[\x01-\xff]", b"a"));
        assert!(matches(b"[a-\xff]", b"\x80"));
        assert!(!matches(b"[a-\x80]", b"\x01"));
    }

    /// If each star were tried again on its own, this would not end within a lifetime.
    #[test]
    fn many_stars_cost_no_more_than_one() {
        let text = [b'a'; 4096];
        let pattern = [b"a*".repeat(2000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &text));
        let pattern = [b"a*".repeat(2000), b"a".to_vec()].concat();
        assert!(matches(&pattern, &text));
    }
}
