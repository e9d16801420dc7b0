//! The address of an output, read without decoding the rest.

use crate::cbor::Malformed;
use crate::items::Items;

/// The raw address of a Cardano output in CBOR: element 0 of a list, or what a map has under 0.
pub fn address(output: &[u8]) -> Result<&[u8], Malformed> {
    let mut items = Items::new(output);
    if !items.is_map() {
        let mut fields = items.list()?;
        items.field(&mut fields)?;
        return items.byte_string();
    }
    let mut pairs = items.map()?;
    while items.more(&mut pairs)? {
        let is_address = items.clone().uint() == Ok(0);
        items.skip()?;
        if is_address {
            return items.byte_string();
        }
        items.skip()?;
    }
    Err(items.wrong("there is no field 0"))
}
