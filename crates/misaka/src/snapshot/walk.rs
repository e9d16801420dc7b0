//! The objects of a snapshot one after the other, for whoever makes something else of them than a store.

use host::Dir;

use super::join::{self, Sink};
use super::manifest;
use crate::error::{Error, Rule};
use crate::format::manifest::Manifest;
use crate::format::object::Object;
use crate::format::version::Version;
use crate::hash::Hash;
use crate::store::TakeObject;

/// Gives all objects of a snapshot in the order of their ids, tombstones too, each with the checkpoint that wrote it.
///
/// Every chunk is checked before anything of it is given, and every object against its newest version. The root is not made: whoever
/// wants that calls [`verify`](super::verify) first. Memory does not grow with the snapshot.
pub fn for_each_object(dir: &dyn Dir, take: TakeObject<'_>) -> Result<Manifest, Error> {
    let manifest = manifest(dir)?;
    join::join(dir, &manifest, None, &mut Walker { take }, &mut |_| Ok(()))?;
    Ok(manifest)
}

/// Passes objects on.
struct Walker<'a> {
    take: TakeObject<'a>,
}

impl Sink for Walker<'_> {
    fn version(&mut self, _: &Object<'_>, _: u64, _: &Version) -> Result<(), Error> {
        Ok(())
    }

    fn object(&mut self, object: &Object<'_>, bytes: &[u8], newest: &Version) -> Result<(), Error> {
        if Hash::of(&[bytes]) != newest.digest {
            return Err(Error::refused(Rule::VersionMismatch, format!("object {}", object.id)));
        }
        (self.take)(object, bytes, newest.seq)
    }

    fn param(&mut self, _: &str, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}
