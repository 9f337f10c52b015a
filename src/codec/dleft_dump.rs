//! The bytes of `DLCBF.SCANDUMP` and `DLCBF.LOADCHUNK`.

use super::chunks::LoadError;
use super::rdb::ModuleId;
use super::value::Load;
use crate::filters::dleft::Dleft;

/// A filter that is being loaded.
#[derive(Debug)]
pub struct DleftLoad {
    filter: Option<Dleft>,
}

impl DleftLoad {
    /// The filter, if it is whole.
    #[must_use]
    pub fn filter(&self) -> Option<&Dleft> {
        self.filter.as_ref()
    }

    /// The same, and the end of the load.
    pub fn take_filter(&mut self) -> Option<Dleft> {
        self.filter.take()
    }
}

impl Load for DleftLoad {
    const HALF_ID: ModuleId = match ModuleId::new(b"seenDLCBF", 1) {
        Some(id) => id,
        None => panic!("no name of a module"),
    };
    const COMMAND: &'static str = "DLCBF.LOADCHUNK";

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
