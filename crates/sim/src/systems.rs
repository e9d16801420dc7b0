//! The systems there are.

mod bucket;
mod csmt;
mod excuse;
mod faults;
mod home;
mod indexer;
mod ledger;
mod misaka;
mod refusal;
mod rubin;

use crate::Trial;
use ledger::On;

/// All of them.
pub const ALL: &[&dyn Trial] = &[
    &bucket::BucketSystem,
    &On(rubin::Rubin),
    &On(csmt::Csmt),
    &On(misaka::Misaka),
    &On(indexer::Indexer),
];

/// The one of a name.
pub fn find(name: &str) -> Option<&'static dyn Trial> {
    ALL.iter().copied().find(|system| system.name() == name)
}
