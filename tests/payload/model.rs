//! Payloads as the description of the format has them, written without the code under test, and chains to compare.

use seendb::codec::bloom::{self, Decoded};
use seendb::codec::payload;
use seendb::filters::bloom::{GrowthError, HashPair, Shape};
use seendb::filters::packed_bloom::{self, PackedBloom, PackedBloomMut};
use seendb::filters::{BloomMut, BloomRef, Insert};

/// The checksum, bit by bit.
pub fn crc64(bytes: &[u8]) -> u64 {
    // The polynomial ad93d23594c935a9, its bits in reverse.
    let polynomial = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 })
    })
}

/// A body in a frame of this version, with the right checksum.
pub fn framed(body: &[u8], version: u16) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    payload.extend(crc64(&payload).to_le_bytes());
    payload
}

/// A payload whose checksum is put right after its bytes were changed.
pub fn reframed(mut payload: Vec<u8>) -> Vec<u8> {
    if let Some((body, _)) = payload.clone().split_last_chunk::<8>() {
        let at = body.len();
        payload[at..].copy_from_slice(&crc64(body).to_le_bytes());
    }
    payload
}

/// A number as a length, in its shortest form.
pub fn length(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    if number < 1 << 6 {
        vec![bytes[7]]
    } else if number < 1 << 14 {
        vec![0x40 | bytes[6], bytes[7]]
    } else if number < 1 << 32 {
        [&[0x80], &bytes[4..]].concat()
    } else {
        [&[0x81][..], &bytes].concat()
    }
}

/// One field of a value.
#[derive(Clone, Debug)]
pub enum Field {
    Unsigned(u64),
    Double(f64),
    /// A string with its length or form in front.
    String(Vec<u8>),
}

pub fn raw(bytes: &[u8]) -> Field {
    Field::String([&length(bytes.len() as u64), bytes].concat())
}

/// `data` as a compressed string that claims to become `len` bytes.
pub fn lzf(data: &[u8], len: u64) -> Field {
    Field::String([&[0xc3][..], &length(data.len() as u64), &length(len), data].concat())
}

/// A value of the Bloom type, from object type to end mark.
pub fn value(encver: u8, fields: &[Field]) -> Vec<u8> {
    // The id of RedisBloom's dumps, its last byte for the version.
    let mut out = vec![7, 0x81, 0x30, 0x16, 0xe5, 0xa2, 0x89, 0xbe, 0xf8, encver];
    for field in fields {
        match field {
            Field::Unsigned(number) => out.extend([&[2][..], &length(*number)].concat()),
            Field::Double(number) => out.extend([&[4][..], &number.to_le_bytes()].concat()),
            Field::String(string) => out.extend([&[5][..], string].concat()),
        }
    }
    out.push(0);
    out
}

/// The number of hashes that goes with so many bits an entry.
pub fn hashes_for(bits_per_entry: f64) -> u64 {
    // Not the nearest double to ln 2: 0.693147180559945, as RedisBloom writes it.
    let a = f64::from_bits(0x3fe6_2e42_fefa_39ec);
    (a * bits_per_entry).ceil() as u64
}

/// What is in a link of a value.
#[derive(Clone, Debug)]
pub struct Link {
    pub entries: u64,
    pub error: f64,
    pub hashes: u64,
    pub bits_per_entry: f64,
    pub bits: u64,
    pub log2_bits: u64,
    pub array: Field,
    pub items: u64,
}

impl Link {
    /// A link for `entries` at a rate of 0.01: 7 hashes, 9.585058377367446 bits an entry.
    pub fn at_1_percent(entries: u64, bits: u64, log2_bits: u64, array: &[u8], items: u64) -> Link {
        let bits_per_entry = f64::from_bits(0x4023_2b8c_c58a_1688);
        Link { entries, error: 0.01, hashes: 7, bits_per_entry, bits, log2_bits, array: raw(array), items }
    }
}

/// What is in a value.
#[derive(Clone, Debug)]
pub struct Chain {
    pub items: u64,
    pub options: u64,
    pub growth: u64,
    pub links: Vec<Link>,
}

impl Chain {
    /// A chain whose items are those of its links.
    pub fn of(options: u64, growth: u64, links: Vec<Link>) -> Chain {
        Chain { items: links.iter().map(|link| link.items).sum(), options, growth, links }
    }

    /// The fields that this version of the encoding has.
    pub fn fields(&self, encver: u8) -> Vec<Field> {
        use Field::{Double, Unsigned};
        let mut fields = vec![Unsigned(self.items), Unsigned(self.links.len() as u64)];
        if encver >= 2 {
            fields.push(Unsigned(self.options));
        }
        if encver >= 4 {
            fields.push(Unsigned(self.growth));
        }
        for link in &self.links {
            fields.extend([Unsigned(link.entries), Double(link.error)]);
            fields.extend([Unsigned(link.hashes), Double(link.bits_per_entry)]);
            if encver >= 1 {
                fields.extend([Unsigned(link.bits), Unsigned(link.log2_bits)]);
            }
            fields.extend([link.array.clone(), Unsigned(link.items)]);
        }
        fields
    }

    pub fn payload(&self, encver: u8) -> Vec<u8> {
        framed(&value(encver, &self.fields(encver)), 10)
    }
}

/// A chain under test, in either form, which grows as its owner would make it grow.
pub struct Filter(pub Decoded);

impl Filter {
    /// A new chain with one link.
    pub fn new(options: u32, growth: u32, shape: &Shape) -> Filter {
        let len = packed_bloom::payload_len([shape]);
        if packed_bloom::fits(shape, growth) && len <= seendb::filters::PACKED_MAX_BYTES {
            let mut payload = vec![0; len];
            packed_bloom::create(&mut payload, options, growth, shape);
            return Filter(Decoded::Packed(payload));
        }
        let chain = seendb::filters::scalable_bloom::ScalableBloom::new(options, growth, *shape);
        Filter(Decoded::Large(chain.unwrap()))
    }

    /// The chain in a payload.
    pub fn restored(payload: &[u8]) -> Filter {
        Filter(payload::restore(payload, 1 << 30).unwrap().bloom().unwrap())
    }

    pub fn get(&self) -> BloomRef<'_> {
        match &self.0 {
            Decoded::Packed(payload) => BloomRef::Packed(PackedBloom::new(payload)),
            Decoded::Large(chain) => BloomRef::Large(chain),
        }
    }

    pub fn get_mut(&mut self) -> BloomMut<'_> {
        match &mut self.0 {
            Decoded::Packed(payload) => BloomMut::Packed(PackedBloomMut::new(payload)),
            Decoded::Large(chain) => BloomMut::Large(chain),
        }
    }

    pub fn insert(&mut self, item: &[u8]) -> Result<Insert, GrowthError> {
        let pair = self.get().hash(item);
        self.insert_pair(pair)
    }

    fn insert_pair(&mut self, pair: HashPair) -> Result<Insert, GrowthError> {
        let outcome = self.get_mut().insert(pair);
        if outcome != Insert::NeedsGrowth {
            return Ok(outcome);
        }
        let shape = self.get().next_shape()?;
        match &mut self.0 {
            Decoded::Large(chain) => chain.push_link(shape).unwrap(),
            Decoded::Packed(payload) => match PackedBloom::new(payload).appended_len(&shape) {
                Some(len) if len <= seendb::filters::PACKED_MAX_BYTES => {
                    let mut longer = vec![0; len];
                    packed_bloom::append(payload, &shape, &mut longer);
                    *payload = longer;
                }
                _ => {
                    let mut chain = PackedBloom::new(payload).to_scalable().unwrap();
                    chain.push_link(shape).unwrap();
                    self.0 = Decoded::Large(chain);
                }
            },
        }
        Ok(self.get_mut().insert(pair))
    }

    pub fn contains(&self, item: &[u8]) -> bool {
        self.get().contains(self.get().hash(item))
    }

    pub fn dump(&self) -> Vec<u8> {
        payload::dump(self.get()).unwrap()
    }

    pub fn header(&self) -> Vec<u8> {
        bloom::encode_header(self.get())
    }

    /// The bits of all links, oldest first.
    pub fn bits(&self) -> Vec<Vec<u8>> {
        let bits = |(i, link): (usize, seendb::filters::LinkInfo)| {
            let mut bits = vec![0xa5; link.shape.bytes as usize];
            self.get().copy_bytes(i, 0, &mut bits);
            bits
        };
        self.get().links().enumerate().map(bits).collect()
    }

    /// Fails the test unless both are equal in everything that a dump keeps.
    #[track_caller]
    pub fn check_equal(&self, other: &Filter) {
        assert_eq!(self.header(), other.header());
        assert_eq!(self.get().items(), other.get().items());
        // Not by `assert_eq`: nobody wants to read a megabyte.
        assert!(self.bits() == other.bits(), "the bits differ");
        assert_eq!(matches!(self.0, Decoded::Packed(_)), matches!(other.0, Decoded::Packed(_)));
    }
}

pub fn unhex(digits: &str) -> Vec<u8> {
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
