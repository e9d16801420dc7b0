//! The engine that tables are in, as an argument.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ledger::EngineKind;

/// An engine by its name, of those that this program was built with.
pub(crate) fn listed() -> impl TypedValueParser<Value = EngineKind> {
    let names = EngineKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names).try_map(|name| {
        let found = EngineKind::ALL.iter().find(|kind| kind.name() == name).copied();
        found.ok_or_else(|| "there is no such engine".to_owned())
    })
}
