//! The bytes of `CBF.SCANDUMP` and `CBF.LOADCHUNK`.

use super::chunks::LoadError;
use super::rdb::ModuleId;
use super::value::Load;
use crate::filters::counting::CountingBloom;

/// A filter that is being loaded.
#[derive(Debug)]
pub struct CountingLoad {
    filter: Option<CountingBloom>,
}

impl CountingLoad {
    /// The filter, if it is whole.
    #[must_use]
    pub fn filter(&self) -> Option<&CountingBloom> {
        self.filter.as_ref()
    }

    /// The same, and the end of the load.
    pub fn take_filter(&mut self) -> Option<CountingBloom> {
        self.filter.take()
    }
}

impl Load for CountingLoad {
    const HALF_ID: ModuleId = match ModuleId::new(b"seenCBF--", 1) {
        Some(id) => id,
        None => panic!("no name of a module"),
    };
    const COMMAND: &'static str = "CBF.LOADCHUNK";

    fn begin(_cursor: u64, _header: &[u8], _limit_bytes: u64) -> Result<Self, LoadError> {
        Err(LoadError::Bad)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn taken(&self) -> u64 {
        0
    }

    fn is_whole(&self) -> bool {
        self.filter.is_some()
    }

    fn footprint(&self, _size_class: fn(usize) -> usize) -> (usize, usize) {
        (0, 0)
    }
}
