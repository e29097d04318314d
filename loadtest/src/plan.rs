//! Plan
