//! Cut, flipped, missing and foreign bytes.
