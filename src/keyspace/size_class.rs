//! What the allocator gives out for a request: jemalloc's size classes.
//!
//! Memory is accounted per key without asking the allocator about each pointer. jemalloc's classes follow one rule:
//! multiples of 16 up to 128 (8 below 16), then four classes to each doubling, and whole pages above 32 KiB. The server's
//! allocator is jemalloc; a test there compares this function with it.

/// Bytes that an allocation of `bytes` really takes.
#[must_use]
pub const fn size_class(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        32_769.. => bytes.next_multiple_of(4096),
        _ => {
            let spacing = 1 << ((bytes - 1).ilog2() - 2);
            bytes.next_multiple_of(spacing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_jemalloc() {
        // From the table in jemalloc's manual page (64-bit, 4 KiB pages), and its release 5.3.1 for large ones.
        for (bytes, class) in [
            (1, 8),
            (8, 8),
            (9, 16),
            (17, 32),
            (113, 128),
            (128, 128),
            (129, 160),
            (161, 192),
            (225, 256),
            (257, 320),
            (512, 512),
            (513, 640),
            (1793, 2048),
            (2049, 2560),
            (14_337, 16_384),
            (16_385, 20_480),
            (32_769, 36_864),
            (65_537, 69_632),
        ] {
            assert_eq!(size_class(bytes), class, "{bytes}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn same_as_the_allocator() {
        // SAFETY: nallocx only computes.
        let real = |bytes| unsafe { tikv_jemalloc_sys::nallocx(bytes, 0) };
        for bytes in (1..100_000).chain((1..200).map(|n| n * 1_000_003)) {
            assert_eq!(size_class(bytes), real(bytes), "{bytes}");
        }
    }
}
