//! The engine that tables are in, as an argument.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ledger::EngineKind;

/// An engine by its name. One that this program was built without is told from those it was built with.
pub(crate) fn named(name: &str) -> Result<EngineKind, String> {
    let found = EngineKind::ALL.iter().find(|kind| kind.name() == name).copied();
    found.ok_or_else(|| {
        let known: Vec<&str> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("this program was built with {}", known.join(", "))
    })
}

/// The same, where help lists them.
pub(crate) fn listed() -> impl TypedValueParser<Value = EngineKind> {
    let names = EngineKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names).try_map(|name| named(&name))
}
