//! The code under test would be here.
