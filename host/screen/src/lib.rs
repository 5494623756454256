//! The full screen of `berth chat`.
