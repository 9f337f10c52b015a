//! (stand-in)
