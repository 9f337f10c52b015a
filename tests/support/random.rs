//! Random numbers from a fixed seed, so that a failing run can be had again.

/// A splitmix64 generator: the state counts up by an odd constant and each value is a mix of the state.
#[derive(Clone)]
pub struct Random(u64);

#[allow(dead_code, reason = "not every test program uses all of it")]
impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..end`; the bias of the multiplication is far below what a test could notice.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// One of the choices, each as likely as its weight says.
    pub fn weighted<'a, T>(&mut self, choices: &'a [(usize, T)]) -> &'a T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if at < *weight {
                return choice;
            }
            at -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}
