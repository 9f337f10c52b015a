//! Random commands: mostly sensible, often at an edge, sometimes wrong.

use super::rules;
use crate::support::Random;
use std::collections::VecDeque;

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// The keys: few, so that commands meet; two of them awkward.
pub const KEYS: [&[u8]; 8] = [b"k1", b"k2", b"k3", b"k4", b"k5", b"k6", b"", b"bin\x00\r\n\xff"];

/// Headers damaged on purpose are loaded into this key, and nothing else is.
pub const MUTATED: &[u8] = b"mutated";

const GOOD_RATES: [&str; 16] = [
    "0.01", "0.01", "0.001", "0.1", "0.25", "0.2", "0.125", "0.03", "1e-5", "1e-2", "+.01", ".05", "00.01", "0.0625",
    "1E-9", "1e-300",
];
const ODD_RATES: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "1.0000001",
    "0.26",
    "0.5",
    "0.9",
    "0.9999999",
    "nan",
    "inf",
    "-inf",
    "infinity",
    "abc",
    "",
    " 0.01",
    "0.01 ",
    "0.01f",
    "0.01\0",
    "0x0.1p0",
    "1e-400",
    "1e400",
    "5e-324",
    "0,1",
];
const GOOD_CAPACITIES: [&str; 12] = ["1", "2", "3", "4", "5", "7", "10", "20", "50", "64", "100", "1000"];
const ODD_CAPACITIES: [&str; 15] = [
    "0",
    "-1",
    "-5",
    "",
    "abc",
    "1.5",
    "1e3",
    "0100",
    "+100",
    " 100",
    "100 ",
    "-0",
    "9223372036854775808",
    "1099511627777",
    "9223372036854775807",
];
const GOOD_EXPANSIONS: [&str; 8] = ["1", "2", "2", "3", "4", "5", "10", "100"];
const ODD_EXPANSIONS: [&str; 14] =
    ["0", "0", "0", "-1", "-1", "32768", "32769", "32769", "4294967297", "abc", "", "1.5", "01", "+1"];
const ODD_CURSORS: [&str; 10] =
    ["x", "", "-1", "+1", "01", "1.0", "9223372036854775807", "9223372036854775808", "1000000", "0"];

/// Makes commands. What it has seen of dumps it offers again to `BF.LOADCHUNK`.
pub struct Generator {
    random: Random,
    items: Vec<Vec<u8>>,
    chunks: Vec<(i64, Vec<u8>)>,
    /// Commands that are to come next: what makes sense only in a row.
    coming: VecDeque<Words>,
}

impl Generator {
    /// The same seed gives the same commands, as long as the same dumps are learned.
    pub fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let mut items: Vec<Vec<u8>> = [
            "",
            "\0",
            "a",
            "b",
            "c",
            "foo",
            "bar",
            "ITEMS",
            "EXPANSION",
            "NOCREATE",
            "a\0b",
            "12345678",
            "abcdefghijklmnop",
            "abcdefghijklmnopq",
            "\r\n",
            "ключ",
            "0",
            "-1",
        ]
        .map(|item| item.as_bytes().to_vec())
        .into();
        items.extend([b"\x80".to_vec(), b"\xff\xfe\xfd".to_vec(), b"\xff".repeat(8), vec![b'x'; 3000]]);
        for n in 0..70 {
            let length = random.below(24);
            items.push(match n % 2 {
                0 => format!("item:{n}").into_bytes(),
                _ => (0..length).map(|_| random.bits() as u8).collect(),
            });
        }
        Generator { random, items, chunks: Vec::new(), coming: VecDeque::new() }
    }

    /// Every item that can occur.
    pub fn items(&self) -> &[Vec<u8>] {
        &self.items
    }

    /// The generator's randomness, for decisions around the commands.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// True if the next command belongs to the last one, and so on the same connection.
    pub fn goes_on(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Remembers a chunk of a key's dump: the cursor that came with it, and its bytes. Now and then the filter is made to
    /// grow after the header, and the dump goes on at its old end.
    pub fn learn(&mut self, key: &[u8], cursor: i64, data: &[u8]) {
        if cursor == 1 && self.random.percent(15) {
            let end = 1 + rules::total_bytes(data);
            let mut grow = words(&["BF.MADD"], &[key.to_vec()]);
            grow.extend((0..120).map(|_| format!("new:{}", self.random.bits()).into_bytes()));
            let go_on = words(&["BF.SCANDUMP"], &[key.to_vec(), end.to_string().into_bytes()]);
            self.coming.extend([grow, go_on]);
        }
        if data.is_empty() || data.len() > 1 << 16 {
            return;
        }
        if self.chunks.len() == 40 {
            let at = self.random.below(40);
            self.chunks.swap_remove(at);
        }
        self.chunks.push((cursor, data.to_vec()));
    }

    /// The next command.
    pub fn command(&mut self) -> Words {
        if let Some(command) = self.coming.pop_front() {
            return command;
        }
        type Maker = fn(&mut Generator) -> Words;
        const MAKERS: [(usize, Maker); 15] = [
            (9, Generator::reserve),
            (16, |g| g.with_items("BF.ADD", 1)),
            (14, |g| g.with_items("BF.MADD", 20)),
            (16, Generator::insert),
            (10, |g| g.with_items("BF.EXISTS", 1)),
            (8, |g| g.with_items("BF.MEXISTS", 20)),
            (3, |g| words(&["BF.CARD"], &[g.key()])),
            (6, Generator::info),
            (8, Generator::scandump),
            (8, Generator::loadchunk),
            (4, |g| words(&["BF.DEBUG"], &[g.key()])),
            (6, |g| g.with_keys("DEL")),
            (2, |g| words(&["TYPE"], &[g.key()])),
            (2, |g| g.with_keys("EXISTS")),
            (3, Generator::wrong_count),
        ];
        let make = *self.random.weighted(&MAKERS);
        let mut command = make(self);
        if self.random.percent(10) {
            self.change_case(&mut command[0]);
        }
        command
    }

    /// Commands to be sent in one go: mostly one command on one key, which the server may answer in groups.
    pub fn pipeline(&mut self) -> Vec<Words> {
        let mut key = self.random.pick(&KEYS).to_vec();
        let mut name = "BF.ADD";
        let count = 2 + self.random.below(90);
        let mut commands = Vec::new();
        for _ in 0..count {
            if self.random.percent(6) {
                name = *self.random.pick(&["BF.ADD", "BF.EXISTS", "BF.CARD", "BF.MADD", "DEL"]);
            }
            if self.random.percent(4) {
                key = self.random.pick(&KEYS).to_vec();
            }
            let mut command = words(&[name], &[key.clone()]);
            match name {
                "BF.ADD" | "BF.EXISTS" => command.push(self.item()),
                "BF.MADD" => self.push_items(&mut command, 9),
                "DEL" => name = "BF.ADD",
                _ => {}
            }
            if self.random.percent(2) {
                command.truncate(2);
            }
            commands.push(command);
        }
        commands
    }

    fn key(&mut self) -> Vec<u8> {
        if self.random.percent(3) {
            return MUTATED.to_vec();
        }
        self.random.pick(&KEYS).to_vec()
    }

    fn item(&mut self) -> Vec<u8> {
        if self.random.percent(5) {
            return format!("new:{}", self.random.bits()).into_bytes();
        }
        self.random.pick(&self.items).clone()
    }

    fn push_items(&mut self, command: &mut Words, most: usize) {
        for _ in 0..=self.random.below(most) {
            let item = self.item();
            command.push(item);
        }
    }

    fn with_items(&mut self, name: &str, most: usize) -> Words {
        let mut command = words(&[name], &[self.key()]);
        self.push_items(&mut command, most);
        command
    }

    fn with_keys(&mut self, name: &str) -> Words {
        let mut command = words(&[name], &[self.key()]);
        while self.random.percent(20) {
            let key = self.key();
            command.push(key);
        }
        command
    }

    fn rate(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0..=1 => self.random.pick(&ODD_RATES).as_bytes().to_vec(),
            2..=4 => format!("{}", 0.25 * (1 + self.random.below(9999)) as f64 / 10_000.0).into_bytes(),
            _ => self.random.pick(&GOOD_RATES).as_bytes().to_vec(),
        }
    }

    fn capacity(&mut self) -> Vec<u8> {
        let from: &[&str] = if self.random.percent(8) { &ODD_CAPACITIES } else { &GOOD_CAPACITIES };
        self.random.pick(from).as_bytes().to_vec()
    }

    /// A growth of 32768 is only offered where two steps of it stay small: the tests are not about memory.
    fn expansion(&mut self) -> Vec<u8> {
        let from: &[&str] = if self.random.percent(25) { &ODD_EXPANSIONS } else { &GOOD_EXPANSIONS };
        self.random.pick(from).as_bytes().to_vec()
    }

    fn word(&mut self, word: &str) -> Vec<u8> {
        let mut word = word.as_bytes().to_vec();
        if self.random.percent(20) {
            self.change_case(&mut word);
        }
        word
    }

    fn change_case(&mut self, word: &mut [u8]) {
        for byte in word {
            if self.random.percent(50) {
                *byte = byte.to_ascii_lowercase();
            }
        }
    }

    fn reserve(&mut self) -> Words {
        let (key, rate, mut capacity) = (self.key(), self.rate(), self.capacity());
        let mut options: Vec<Words> = Vec::new();
        if self.random.percent(35) {
            options.push(vec![self.word("EXPANSION"), self.expansion()]);
        }
        if self.random.percent(25) {
            options.push(vec![self.word("NONSCALING")]);
        }
        match self.random.below(40) {
            0 => options.push(vec![b"FOO".to_vec()]),
            1 => options.push(vec![self.word("EXPANSION")]),
            2 => options.push(vec![self.word("EXPANSION"), b"2".to_vec()]),
            _ => {}
        }
        if self.random.percent(50) {
            options.reverse();
        }
        if options.iter().any(|option| option.get(1).is_some_and(|value| value == b"32768")) {
            capacity = b"3".to_vec();
        }
        let mut command = words(&["BF.RESERVE"], &[key, rate, capacity]);
        command.extend(options.into_iter().flatten());
        command
    }

    fn insert(&mut self) -> Words {
        let mut command = words(&["BF.INSERT"], &[self.key()]);
        let count = *self.random.weighted(&[(40, 0), (30, 1), (20, 2), (10, 4)]);
        for _ in 0..count {
            let mut option = match self.random.below(12) {
                0..=3 => vec![self.word("CAPACITY"), self.capacity()],
                4..=6 => vec![self.word("ERROR"), self.rate()],
                7..=8 => vec![self.word("EXPANSION"), self.expansion()],
                9 => vec![self.word("NOCREATE")],
                10 => vec![self.word("NONSCALING")],
                _ => match self.random.below(10) {
                    0 => vec![b"FOO".to_vec()],
                    1 => vec![b"".to_vec()],
                    2 => vec![b"c".to_vec(), b"10".to_vec()],
                    3 => vec![b"er".to_vec(), b"0.1".to_vec()],
                    4 => vec![b"NOC".to_vec()],
                    5 => vec![b"iq".to_vec()],
                    6 => vec![b"CREATE".to_vec(), b"5".to_vec()],
                    7 => vec![self.word("EXPANSION")],
                    8 => vec![self.word("CAPACITY")],
                    _ => vec![b"e".to_vec(), b"3".to_vec()],
                },
            };
            // What a second EXPANSION does after one of 0 is written nowhere, and 32768 needs a small capacity.
            if option[0].eq_ignore_ascii_case(b"EXPANSION") && option.len() == 2 {
                if option[1] == b"32768" {
                    option[1] = b"7".to_vec();
                }
                if command.iter().any(|word| word.eq_ignore_ascii_case(b"EXPANSION")) {
                    continue;
                }
            }
            command.extend(option);
        }
        if !self.random.percent(2) {
            command.push(self.word("ITEMS"));
        }
        if !self.random.percent(2) {
            self.push_items(&mut command, 12);
        }
        command
    }

    fn info(&mut self) -> Words {
        let mut command = words(&["BF.INFO"], &[self.key()]);
        if self.random.percent(60) {
            let fields = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION", "foo", "", "ITEM", "Size"];
            let field = *self.random.pick(&fields);
            command.push(self.word(field));
        }
        command
    }

    fn cursor(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0..=7 => b"0".to_vec(),
            8..=9 => b"1".to_vec(),
            10..=13 if !self.chunks.is_empty() => self.random.pick(&self.chunks).0.to_string().into_bytes(),
            10..=17 => self.random.below(400).to_string().into_bytes(),
            _ => self.random.pick(&ODD_CURSORS).as_bytes().to_vec(),
        }
    }

    fn scandump(&mut self) -> Words {
        let (key, cursor) = (self.key(), self.cursor());
        words(&["BF.SCANDUMP"], &[key, cursor])
    }

    fn loadchunk(&mut self) -> Words {
        let known = (!self.chunks.is_empty()).then(|| self.random.pick(&self.chunks).clone());
        let (key, cursor, data) = match (self.random.below(20), known) {
            (0..=9, Some((cursor, data))) => (self.key(), cursor.to_string().into_bytes(), data),
            (10..=15, Some((1, header))) => {
                let mut add = words(&["BF.MADD"], &[MUTATED.to_vec()]);
                self.push_items(&mut add, 10);
                let load = words(&["BF.LOADCHUNK"], &[MUTATED.to_vec(), b"1".to_vec(), self.mutate(header)]);
                self.coming.extend([load, add]);
                return words(&["DEL"], &[MUTATED.to_vec()]);
            }
            (16..=17, _) => (self.key(), self.cursor(), b"some bytes".to_vec()),
            _ => {
                let length = self.random.below(40);
                let cursor = length + self.random.below(150);
                let data = (0..length).map(|_| self.random.bits() as u8).collect();
                (self.key(), cursor.to_string().into_bytes(), data)
            }
        };
        words(&["BF.LOADCHUNK"], &[key, cursor, data])
    }

    /// A header with one field changed, as far as the change cannot ask the peer for so much memory that it aborts.
    fn mutate(&mut self, mut header: Vec<u8>) -> Vec<u8> {
        if header.len() < 73 {
            return header;
        }
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        match self.random.below(18) {
            0 => put(0, &self.random.pick(&[0u64, 1, u64::MAX]).to_le_bytes()),
            1 => put(8, &self.random.pick(&[0u32, 2, u32::MAX]).to_le_bytes()),
            2..=3 => put(12, &self.random.pick(&[0u32, 1, 4, 8, 12, 13, 16, 21, u32::MAX]).to_le_bytes()),
            4 | 15 => put(16, &self.random.pick(&[0u32, 1, 3, 40_000]).to_le_bytes()),
            5 => put(28, &self.random.pick(&[0u64, 63, 65, 128, u64::MAX]).to_le_bytes()),
            6 => put(36, &self.random.pick(&[0u64, 1, u64::MAX]).to_le_bytes()),
            7..=8 => {
                put(44, &self.random.pick(&[0.0, 1.0, -0.5, f64::NAN, f64::INFINITY, 1e-300, 0.999]).to_le_bytes())
            }
            9 => put(60, &self.random.pick(&[0u32, 1, 7, 9, u32::MAX]).to_le_bytes()),
            10 | 16 => put(64, &self.random.pick(&[0u64, 1, 2, u64::MAX]).to_le_bytes()),
            11..=12 => put(72, &[*self.random.pick(&[1u8, 5, 6, 9, 63, 64, 70, 255])]),
            13 => header.truncate(self.random.below(header.len())),
            14 => header.push(0),
            _ => {
                header.truncate(20);
                header[8..12].fill(0);
            }
        }
        header
    }

    fn wrong_count(&mut self) -> Words {
        let names = [
            "BF.RESERVE",
            "BF.ADD",
            "BF.MADD",
            "BF.INSERT",
            "BF.EXISTS",
            "BF.MEXISTS",
            "BF.CARD",
            "BF.INFO",
            "BF.SCANDUMP",
            "BF.LOADCHUNK",
            "BF.DEBUG",
            "DEL",
            "TYPE",
            "EXISTS",
        ];
        let name = *self.random.pick(&names);
        let mut command = words(&[name], &[]);
        if !self.random.percent(30) {
            let key = self.key();
            command.push(key);
            // MADD, INSERT and their like take any number of words: for them only too few is wrong.
            if matches!(name, "BF.ADD" | "BF.EXISTS" | "BF.CARD" | "BF.INFO" | "BF.SCANDUMP" | "BF.DEBUG") {
                command.extend(["0", "1", "2"].map(|word| word.as_bytes().to_vec()));
            } else if matches!(name, "BF.RESERVE" | "BF.LOADCHUNK") {
                command.push(b"0.01".to_vec());
            } else if matches!(name, "DEL" | "TYPE" | "EXISTS") {
                command.truncate(1);
            }
        }
        command
    }
}

/// A command out of its name and its arguments.
fn words(name: &[&str], rest: &[Vec<u8>]) -> Words {
    name.iter().map(|word| word.as_bytes().to_vec()).chain(rest.iter().cloned()).collect()
}
