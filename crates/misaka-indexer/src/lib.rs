//! What a MISAKA validator does not keep, beside it: objects by owner and by type, all versions of them with their bodies, where a
//! transaction is, events of any age, what each checkpoint came to.
//!
//! An index is fed by the change feed of a validator, one item a checkpoint ([`follow`]), or made of the objects that a validator or
//! a snapshot has, from where the feed goes on ([`rebuild`]). There are two: [`Embedded`] on an engine of its own, and, with the feature
//! `postgres`, [`Server`] on a PostgreSQL server, which is spoken to with tokio-postgres behind its blocking face.
//!
//! The validator knows nothing of this.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod embedded;
mod error;
mod follow;
mod index;
mod plan;
pub mod rebuild;
mod rows;
#[cfg(feature = "postgres")]
pub mod schema;
#[cfg(feature = "postgres")]
mod server;

pub use embedded::{Embedded, TABLES};
pub use error::Error;
pub use follow::{Followed, Watch, follow};
pub use index::{EventsOf, Index, Page, Step};
pub use rows::{Counts, EventKey, EventRow, Holder, Live, Place, Record, Summary, Tip};
#[cfg(feature = "postgres")]
pub use server::Server;
