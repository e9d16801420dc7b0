//! A simulator: one number decides everything that happens to a store, from the options it is made with to the sector that
//! power loss tears.
//!
//! A history is drawn from a seed and run against a model. What a store says without an excuse, and what it holds after
//! every recovery, must be what the model allows. A history that fails is made shorter for as long as it still fails.

mod dice;
mod failure;
mod shrink;
mod system;
mod systems;
mod tally;

pub use failure::Failure;
pub use shrink::shrink;
pub use system::{Explanation, Harm, System, Trial};
pub use systems::{ALL, find};
pub use tally::Tally;
