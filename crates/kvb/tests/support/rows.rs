//! Rows of a bucket, as somebody else than the engine found them.

use std::collections::BTreeMap;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Says how two sets of rows differ, without printing large values.
pub(crate) fn difference(found: &Rows, wanted: &Rows) -> Option<String> {
    if found == wanted {
        return None;
    }
    let show = |key: &[u8], rows: &Rows| match rows.get(key) {
        Some(value) => format!("{} bytes {:02x?}", value.len(), &value[..value.len().min(8)]),
        None => "nothing".to_owned(),
    };
    let mut keys: Vec<_> = found.keys().chain(wanted.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let wrong = keys.into_iter().filter(|key| found.get(*key) != wanted.get(*key));
    let lines: Vec<String> = wrong
        .take(8)
        .map(|key| format!("{key:02x?}: read {}, wanted {}", show(key, found), show(key, wanted)))
        .collect();
    Some(format!("{} rows read, {} wanted\n{}", found.len(), wanted.len(), lines.join("\n")))
}
