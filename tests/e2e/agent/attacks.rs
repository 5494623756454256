//! Attacks by texts, by models and by providers.
