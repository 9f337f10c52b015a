//! The filters without the server. This is the example of the README.

use seendb::filters::Insert;
use seendb::filters::bloom::{HashPair, Shape, options};
use seendb::filters::scalable_bloom::ScalableBloom;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Room for 10,000 items at 0.1 %, growing by factors of 2.
    let shape = Shape::first(10_000, 0.001, options::SCALING)?;
    let mut visitors = ScalableBloom::new(options::SCALING, 2, shape)?;

    let alice = HashPair::of(b"alice");
    assert_eq!(visitors.insert(alice), Insert::Added);
    assert_eq!(visitors.insert(alice), Insert::Present);
    assert!(visitors.contains(alice));
    assert!(!visitors.contains(HashPair::of(b"mallory")));

    // A full filter says so; its owner decides whether it may grow.
    for i in 0..20_000 {
        let item = HashPair::of(format!("visitor:{i}").as_bytes());
        if visitors.insert(item) == Insert::NeedsGrowth {
            let next = visitors.next_shape()?;
            visitors.push_link(next)?;
            visitors.insert(item);
        }
    }
    println!("{} items in {} sub-filters", visitors.items(), visitors.links().len());
    Ok(())
}
