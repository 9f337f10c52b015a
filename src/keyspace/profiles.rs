//! What keys get that a command makes by itself, by the beginning of their names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::effect::Profile;

/// Profiles, by prefix. They concern all databases, and keys that are yet to be made.
#[derive(Default)]
pub struct Profiles {
    by_prefix: RwLock<BTreeMap<Box<[u8]>, Profile>>,
    /// There is one: mostly there is none, and no lock is needed to know it.
    any: AtomicBool,
}

impl Profiles {
    /// The one for a key of this name: that of the longest prefix.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Option<Profile> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let by_prefix = self.by_prefix.read();
        let longest = by_prefix.keys().map(|prefix| prefix.len()).max()?;
        (0..=longest.min(name.len())).rev().find_map(|length| by_prefix.get(&name[..length]).copied())
    }

    /// The one of this prefix itself.
    #[must_use]
    pub fn get(&self, prefix: &[u8]) -> Option<Profile> {
        self.by_prefix.read().get(prefix).copied()
    }

    /// Set one, or take it away. Tells whether there was one.
    pub fn put(&self, prefix: &[u8], profile: Option<Profile>) -> bool {
        self.put_with(prefix, profile, |_| ())
    }

    /// The same; `record` runs before anybody else can set one, and is told whether there was one.
    pub fn put_with(&self, prefix: &[u8], profile: Option<Profile>, record: impl FnOnce(bool)) -> bool {
        let mut by_prefix = self.by_prefix.write();
        let before = match profile {
            Some(profile) => by_prefix.insert(prefix.into(), profile),
            None => by_prefix.remove(prefix),
        };
        self.any.store(!by_prefix.is_empty(), Ordering::Release);
        record(before.is_some());
        before.is_some()
    }

    /// All of them, in the order of their prefixes.
    #[must_use]
    pub fn all(&self) -> Vec<(Box<[u8]>, Profile)> {
        self.by_prefix.read().iter().map(|(prefix, profile)| (prefix.clone(), *profile)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::ring::{Mode, Settings};

    fn profile(capacity: u64) -> Profile {
        let settings =
            Settings { capacity, error: 0.01, link_error: false, links: 5, mode: Mode::Count, idle: None, key: None };
        Profile { settings, keyed: false }
    }

    #[test]
    fn the_longest_prefix_counts() {
        let profiles = Profiles::default();
        assert_eq!(profiles.of(b"seen:1"), None);
        for (prefix, capacity) in [(&b""[..], 1), (b"seen:", 2), (b"seen:vip:", 3)] {
            assert!(!profiles.put(prefix, Some(profile(capacity))));
        }
        for (name, capacity) in
            [(&b"other"[..], 1), (b"seen", 1), (b"seen:", 2), (b"seen:9", 2), (b"seen:vip", 2), (b"seen:vip:9", 3)]
        {
            assert_eq!(profiles.of(name).map(|profile| profile.settings.capacity), Some(capacity));
        }
        assert!(profiles.put(b"seen:", None) && !profiles.put(b"seen:", None));
        assert_eq!(profiles.of(b"seen:9"), Some(profile(1)));
        assert_eq!(profiles.all().len(), 2);
    }
}
