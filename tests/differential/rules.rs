//! The intended differences between SeenDB (which follows RedisBloom 8) and the peer (RedisBloom 2.8.2), as rules.
//!
//! Each rule has a name, and `tests/differences.md` says under that name what differs and why. A rule does one of
//! three things, so that both servers hold the same state after every command:
//!
//! * it sends the peer another spelling of the same wish (`EXPANSION 0` becomes `NONSCALING`), or
//! * it knows the reply by itself and does not ask the peer, which would do something else, or
//! * it puts our text in the place of the peer's.
//!
//! Whatever no rule speaks of must be equal byte for byte. What RedisBloom 8 says to a command line is worked out here
//! from its documented rules, independently of the server's own parser.

use super::generate::Words;

/// Every rule's name.
pub const RULES: [&str; 16] = [
    "rate-range-text",
    "capacity-range-text",
    "expansion-range-text",
    "insert-range-text",
    "rate-cap",
    "rate-number",
    "capacity-limit",
    "expansion-zero",
    "expansion-limit",
    "bad-expansion-first",
    "short-options",
    "surplus-words",
    "loadchunk-or",
    "header-checks",
    "dump-end",
    "growth-failure",
];

/// What becomes of a command on its way to the peer.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// The peer gets the same command.
    Same,
    /// The peer gets this one, by that rule.
    Instead(Words, &'static str),
    /// The peer is not asked; this is the reply, by that rule.
    Reply(String, &'static str),
}

/// Decides for one command by its words alone. (`loadchunk-or`, `dump-end` and `growth-failure` depend on the state and
/// stand in `differential.rs`.)
pub fn plan(command: &Words) -> Plan {
    match command[0].to_ascii_uppercase().as_slice() {
        b"BF.RESERVE" => reserve(command),
        b"BF.INSERT" => insert(command),
        b"BF.LOADCHUNK" => loadchunk(command),
        _ => Plan::Same,
    }
}

/// Our text for the peer's, where only the text differs.
pub fn our_text(command: &Words, theirs: &[u8]) -> Option<(&'static str, &'static str)> {
    if !command[0].eq_ignore_ascii_case(b"BF.RESERVE") {
        return None;
    }
    match theirs {
        b"-ERR (0 < error rate range < 1) \r\n" => Some((RATE_RANGE, "rate-range-text")),
        b"-ERR (capacity should be larger than 0)\r\n" => Some((CAPACITY_RANGE, "capacity-range-text")),
        b"-ERR expansion should be greater or equal to 1\r\n" => Some((EXPANSION_RANGE, "expansion-range-text")),
        _ => None,
    }
}

const RATE_RANGE: &str = "ERR error rate must be in the range (0.000000, 1.000000)";
const CAPACITY_RANGE: &str = "ERR capacity must be in the range [1, 1099511627776]";
const EXPANSION_RANGE: &str = "ERR expansion must be in the range [0, 32768]";
const MOST_CAPACITY: i64 = 1 << 40;
const MOST_EXPANSION: i64 = 32_768;

/// A refusal's text, and the rule by which the peer does not say the same to the same words.
type Refusal = (String, Option<&'static str>);

fn reserve(command: &Words) -> Plan {
    if command.len() < 4 {
        return Plan::Same;
    }
    match (reserve_shape(command), command.len() > 7) {
        (Err((text, _)), true) => Plan::Reply(text, "surplus-words"),
        (Err((text, Some(rule))), false) => Plan::Reply(text, rule),
        (Err((_, None)), false) => Plan::Same,
        (Ok(None), _) => Plan::Same,
        (Ok(Some((other, rule))), _) => Plan::Instead(other, rule),
    }
}

/// What the peer must be given instead, if the command is sound and anything must.
fn reserve_shape(command: &Words) -> Result<Option<(Words, &'static str)>, Refusal> {
    let same = |text: &str| Err((text.to_string(), None));
    let other = |text: &str, rule| Err((text.to_string(), Some(rule)));
    let mut changed = command.clone();
    let mut rule = None;
    match number(&command[2]) {
        None if hexadecimal(&command[2]) => return other("ERR bad error rate", "rate-number"),
        None => return same("ERR bad error rate"),
        Some(rate) if !(rate > 0.0 && rate < 1.0) => {
            return match outside_f64(&command[2], rate) {
                true => other(RATE_RANGE, "rate-number"),
                false => same(RATE_RANGE),
            };
        }
        Some(rate) if rate > 0.25 => (changed[2], rule) = (b"0.25".to_vec(), Some("rate-cap")),
        Some(_) => {}
    }
    match integer(&command[3]) {
        None => return same("ERR bad capacity"),
        Some(capacity) if capacity < 1 => return same(CAPACITY_RANGE),
        Some(capacity) if capacity > MOST_CAPACITY => return other(CAPACITY_RANGE, "capacity-limit"),
        Some(_) => {}
    }
    let words = reserve_words(&command[4..])?;
    if words.expansion == Some(0) {
        changed.truncate(4);
        changed.push(b"NONSCALING".to_vec());
        rule = Some("expansion-zero");
    } else if words.nonscaling && words.expansion.is_some() {
        return same("Nonscaling filters cannot expand");
    } else if words.expansion.is_some_and(|expansion| expansion > MOST_EXPANSION) {
        return other(EXPANSION_RANGE, "expansion-limit");
    } else if words.expansion.is_some_and(|expansion| expansion < 0) {
        return same(EXPANSION_RANGE);
    }
    Ok(rule.map(|rule| (changed, rule)))
}

struct ReserveWords {
    expansion: Option<i64>,
    nonscaling: bool,
}

/// The words after the capacity: only `EXPANSION n` and `NONSCALING`, each once.
fn reserve_words(words: &[Vec<u8>]) -> Result<ReserveWords, Refusal> {
    let mut found = ReserveWords { expansion: None, nonscaling: false };
    let surplus = |text: String| Err((text, Some("surplus-words")));
    let has_nonscaling = words.iter().any(|word| word.eq_ignore_ascii_case(b"NONSCALING"));
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        // The peer ignores everything about a second EXPANSION.
        let second = found.expansion.is_some();
        match word.to_ascii_uppercase().as_slice() {
            b"EXPANSION" => match rest.next().map(|value| integer(value)) {
                None => return Err(("ERR no expansion".into(), second.then_some("surplus-words"))),
                Some(None) if second => return surplus("ERR bad expansion".into()),
                Some(None) => {
                    return Err(("ERR bad expansion".into(), has_nonscaling.then_some("bad-expansion-first")));
                }
                Some(Some(_)) if second => return surplus("ERR syntax error, 'EXPANSION' given twice".into()),
                Some(Some(expansion)) => found.expansion = Some(expansion),
            },
            b"NONSCALING" if found.nonscaling => return surplus("ERR syntax error, 'NONSCALING' given twice".into()),
            b"NONSCALING" => found.nonscaling = true,
            _ => {
                let word = String::from_utf8_lossy(word);
                return surplus(format!("ERR syntax error, unexpected '{word}'"));
            }
        }
    }
    Ok(found)
}

/// Left to right, the first problem counts; the peer looks at ranges only after it has read everything.
fn insert(command: &Words) -> Plan {
    if command.len() < 4 {
        return Plan::Same;
    }
    let out_of_range = |what: &str| Plan::Reply(format!("Bad {what}"), "insert-range-text");
    let mut changed: Words = command[..2].to_vec();
    let mut rule = None;
    let mut at = 2;
    while at < command.len() {
        let word = command[at].to_ascii_uppercase();
        let value = command.get(at + 1);
        match (word.as_slice(), value) {
            (b"ITEMS", _) => break,
            (b"NOCREATE" | b"NONSCALING", _) => {
                changed.push(command[at].clone());
                at += 1;
                continue;
            }
            (b"CAPACITY" | b"ERROR" | b"EXPANSION", None) => return Plan::Same,
            (b"CAPACITY", Some(value)) => match integer(value) {
                None => return Plan::Same,
                Some(capacity) if capacity < 1 => return out_of_range("capacity"),
                Some(capacity) if capacity > MOST_CAPACITY => {
                    return Plan::Reply("Bad capacity".into(), "capacity-limit");
                }
                Some(_) => changed.extend([command[at].clone(), value.clone()]),
            },
            (b"ERROR", Some(value)) => match number(value) {
                None if hexadecimal(value) => return Plan::Reply("Bad error rate".into(), "rate-number"),
                None => return Plan::Same,
                Some(rate) if !(rate > 0.0 && rate < 1.0) => return out_of_range("error rate"),
                Some(rate) if rate > 0.25 => {
                    changed.extend([command[at].clone(), b"0.25".to_vec()]);
                    rule = Some("rate-cap");
                }
                Some(_) => changed.extend([command[at].clone(), value.clone()]),
            },
            (b"EXPANSION", Some(value)) => match integer(value) {
                None => return Plan::Same,
                Some(0) => {
                    changed.push(b"NONSCALING".to_vec());
                    rule = Some("expansion-zero");
                }
                Some(expansion) if expansion < 0 => return out_of_range("expansion"),
                Some(expansion) if expansion > MOST_EXPANSION => {
                    return Plan::Reply("Bad expansion".into(), "expansion-limit");
                }
                Some(_) => changed.extend([command[at].clone(), value.clone()]),
            },
            _ if word.first().is_some_and(|first| b"CEIN".contains(first)) => {
                return Plan::Reply("Unknown argument received".into(), "short-options");
            }
            _ => return Plan::Same,
        }
        at += 2;
    }
    changed.extend(command[at..].iter().cloned());
    rule.map_or(Plan::Same, |rule| Plan::Instead(changed, rule))
}

/// A header that only 2.8.2 would take. Where the key exists the header is "bad data" for both, so the reply is the same.
fn loadchunk(command: &Words) -> Plan {
    match command.as_slice() {
        [_, _, cursor, data] if cursor == b"1" && only_2_8_2_loads(data) => {
            Plan::Reply("ERR received bad data".into(), "header-checks")
        }
        _ => Plan::Same,
    }
}

fn only_2_8_2_loads(header: &[u8]) -> bool {
    let links = header.get(20..).unwrap_or_default();
    if header.len() < 20 || links.len() % 53 != 0 {
        return false;
    }
    let count = u32_at(header, 8) as usize;
    count * 53 == links.len() && (count == 0 || links.chunks(53).any(|link| link[52] > 63 || f64_at(link, 24).is_nan()))
}

/// True if a filter with this header may be unable to grow, which breaks the peer (see `growth-failure`).
pub fn may_fail_to_grow(header: &[u8]) -> bool {
    let options = u32_at(header, 12);
    u32_at(header, 16) == 0
        || options & 2 != 0
        || header[20..].chunks_exact(53).any(|link| u64_at(link, 44) == 0 || f64_at(link, 24) < 1e-200)
}

/// A header's bytes of bits in all its sub-filters.
pub fn total_bytes(header: &[u8]) -> u64 {
    header[20..].chunks_exact(53).map(|link| u64_at(link, 0)).sum()
}

/// The peer's header with the one difference that `expansion-zero` leaves: we store growth 0 where the peer, which was
/// told `NONSCALING`, stores 2.
pub fn with_our_growth(theirs: &[u8], ours: &[u8]) -> Option<Vec<u8>> {
    let differs = theirs.len() == ours.len()
        && theirs.len() >= 20
        && u32_at(theirs, 12) & 8 != 0
        && u32_at(theirs, 16) == 2
        && u32_at(ours, 16) == 0;
    differs.then(|| [&theirs[..16], &[0; 4], &theirs[20..]].concat())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn f64_at(bytes: &[u8], at: usize) -> f64 {
    f64::from_bits(u64_at(bytes, at))
}

/// An integer as Redis reads it: no sign `+`, no leading zero, nothing around it.
pub fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let plain = word == b"0" || (matches!(digits, [b'1'..=b'9', ..]) && digits.iter().all(u8::is_ascii_digit));
    plain.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

/// A double as Redis 8 reads it. Rust's reader takes the same spellings, `nan` aside.
fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// True for a number too large or too small for a double: 2.8.2 calls it "bad", because the C library reports that.
fn outside_f64(word: &[u8], number: f64) -> bool {
    let mantissa = word.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let digits = || mantissa.iter().filter(|byte| byte.is_ascii_digit());
    (number.is_infinite() && digits().count() > 0) || (number == 0.0 && digits().any(|digit| *digit != b'0'))
}

fn hexadecimal(word: &[u8]) -> bool {
    word.len() > 2 && word[..2].eq_ignore_ascii_case(b"0x")
}
