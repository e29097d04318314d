//! Placeholder until the load generator lands.
fn main() {}
