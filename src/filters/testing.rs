//! What tests of several modules need: a chain that grows as its owner would grow it, and a model of it to compare with.

use super::bloom::{GrowthError, HashPair, Shape, options};
use super::packed_bloom::{self, PackedBloom, PackedBloomMut};
use super::scalable_bloom::ScalableBloom;
use super::{BloomMut, BloomRef, Insert};

/// A chain in one of its forms.
pub(crate) enum Chain {
    Packed(Vec<u8>),
    Large(ScalableBloom),
    /// As `Large`, but adds run through the shared path.
    Shared(ScalableBloom),
}

impl Chain {
    pub fn packed(options: u32, growth: u32, shape: &Shape) -> Chain {
        // Not 0, as memory that a keyspace uses again would be.
        let mut payload = vec![0xa5; packed_bloom::payload_len([shape])];
        packed_bloom::create(&mut payload, options, growth, shape);
        Chain::Packed(payload)
    }

    pub fn large(options: u32, growth: u32, shape: Shape) -> Chain {
        Chain::Large(ScalableBloom::new(options, growth, shape).unwrap())
    }

    pub fn shared(options: u32, growth: u32, shape: Shape) -> Chain {
        Chain::Shared(ScalableBloom::new(options, growth, shape).unwrap())
    }

    pub fn get(&self) -> BloomRef<'_> {
        match self {
            Chain::Packed(payload) => BloomRef::Packed(PackedBloom::new(payload)),
            Chain::Large(chain) | Chain::Shared(chain) => BloomRef::Large(chain),
        }
    }

    pub fn get_mut(&mut self) -> BloomMut<'_> {
        match self {
            Chain::Packed(payload) => BloomMut::Packed(PackedBloomMut::new(payload)),
            Chain::Large(chain) | Chain::Shared(chain) => BloomMut::Large(chain),
        }
    }

    fn try_insert(&mut self, pair: HashPair) -> Insert {
        match self {
            Chain::Shared(chain) => chain.insert_shared(pair),
            _ => self.get_mut().insert(pair),
        }
    }

    /// Adds an item; grows the chain, out of the packed form if need be.
    pub fn insert(&mut self, pair: HashPair) -> Result<Insert, GrowthError> {
        let outcome = self.try_insert(pair);
        if outcome != Insert::NeedsGrowth {
            return Ok(outcome);
        }
        let shape = self.get().next_shape()?;
        match self {
            Chain::Large(chain) | Chain::Shared(chain) => chain.push_link(shape).unwrap(),
            Chain::Packed(payload) => {
                let chain = PackedBloom::new(payload);
                if let Some(len) = chain.appended_len(&shape) {
                    let mut longer = vec![0xa5; len];
                    packed_bloom::append(payload, &shape, &mut longer);
                    *payload = longer;
                } else {
                    let mut chain = chain.to_scalable().unwrap();
                    chain.push_link(shape).unwrap();
                    *self = Chain::Large(chain);
                }
            }
        }
        Ok(self.try_insert(pair))
    }

    pub fn insert_item(&mut self, item: &[u8]) -> Result<Insert, GrowthError> {
        let pair = self.get().hash(item);
        self.insert(pair)
    }

    /// All bits, oldest link first.
    pub fn bytes(&self) -> Vec<u8> {
        let bloom = self.get();
        let mut all = Vec::new();
        for (i, link) in bloom.links().enumerate() {
            let mut bytes = vec![0xa5; link.shape.bytes as usize];
            bloom.copy_bytes(i, 0, &mut bytes);
            all.extend(bytes);
        }
        all
    }
}

/// RedisBloom's constants, as its source has them in decimal: about ln 2 and its square.
const A: f64 = f64::from_bits(0x3fe6_2e42_fefa_39ec);
const B: f64 = 0.480453013918201;

/// A chain written down from the definition: a vector of booleans a link, the plain formula for positions, no shortcuts.
/// Takes its sizes from nobody.
pub(crate) struct Model {
    pub options: u32,
    pub growth: u64,
    pub links: Vec<ModelLink>,
}

pub(crate) struct ModelLink {
    pub entries: u64,
    pub error: f64,
    pub hashes: u64,
    pub items: u64,
    pub bits: Vec<bool>,
}

impl ModelLink {
    fn new(entries: u64, error: f64) -> ModelLink {
        let bits_per_entry = -(error.ln() / B);
        let bits = ((entries as f64 * bits_per_entry) as usize).max(1).next_multiple_of(64);
        let hashes = (A * bits_per_entry).ceil() as u64;
        ModelLink { entries, error, hashes, items: 0, bits: vec![false; bits] }
    }

    fn positions(&self, pair: HashPair) -> impl Iterator<Item = usize> + use<> {
        let (hashes, bits) = (self.hashes, self.bits.len() as u128);
        (0..hashes).map(move |i| {
            let sum = (u128::from(pair.a) + u128::from(i) * u128::from(pair.b)) % (1 << 64);
            (sum % bits) as usize
        })
    }

    fn holds(&self, pair: HashPair) -> bool {
        self.positions(pair).all(|x| self.bits[x])
    }
}

impl Model {
    /// The first link's rate is taken as it is.
    pub fn new(options: u32, growth: u64, entries: u64, error: f64) -> Model {
        Model { options, growth, links: vec![ModelLink::new(entries, error)] }
    }

    pub fn contains(&self, pair: HashPair) -> bool {
        self.links.iter().rev().any(|link| link.holds(pair))
    }

    pub fn insert(&mut self, pair: HashPair) -> Insert {
        if self.contains(pair) {
            return Insert::Present;
        }
        let newest = self.links.last().unwrap();
        if newest.items >= newest.entries {
            if self.options & options::NON_SCALING != 0 {
                return Insert::Full;
            }
            let next = ModelLink::new(newest.entries * self.growth, newest.error / 2.0);
            self.links.push(next);
        }
        let newest = self.links.last_mut().unwrap();
        for x in newest.positions(pair) {
            newest.bits[x] = true;
        }
        newest.items += 1;
        Insert::Added
    }

    pub fn bytes(&self) -> Vec<u8> {
        let bits = self.links.iter().flat_map(|link| link.bits.chunks(8));
        bits.map(|byte| byte.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect()
    }
}
