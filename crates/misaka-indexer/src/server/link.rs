//! The connection to a server, and the statements that were prepared on it. When it is lost, the next one who needs it makes another.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Statement};

use crate::error::Error;

/// How long a server has to answer a call.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection.
pub(super) struct Link {
    pub(super) client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn open(config: &Config) -> Result<Link, Error> {
        let mut config = config.clone();
        if config.get_application_name().is_none() {
            config.application_name("misaka-indexer");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        let client = config.connect(NoTls).map_err(|source| Error::Server {
            doing: "be reached",
            is_lost: is_lost(&source),
            source: Box::new(Told(source)),
        })?;
        Ok(Link { client, statements: HashMap::new() })
    }

    /// Statements that are ready, each prepared once.
    pub(super) fn prepare<const N: usize>(
        &mut self,
        texts: [&'static str; N],
    ) -> Result<[Statement; N], Error> {
        for text in texts {
            if !self.statements.contains_key(text) {
                let statement = self.client.prepare(text).map_err(cannot("prepare a statement"))?;
                self.statements.insert(text, statement);
            }
        }
        let found: Vec<Statement> =
            texts.iter().filter_map(|text| self.statements.get(text).cloned()).collect();
        found.try_into().map_err(|_| Error::Input("a statement is missing".to_owned()))
    }
}

/// What an error of the client means.
pub(crate) fn cannot(doing: &'static str) -> impl Fn(postgres::Error) -> Error {
    move |source| Error::Server { doing, is_lost: is_lost(&source), source: Box::new(Told(source)) }
}

/// True if another connection may do better.
fn is_lost(error: &postgres::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|source| source.is::<io::Error>());
    is_io || error.is_closed() || error.code().is_some_and(is_passing)
}

/// A server that goes down, comes up, or cannot do two things at once.
fn is_passing(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("08" | "57" | "53")) || is_conflict(code)
}

/// Two transactions that were in each other's way: whoever tries again comes through.
pub(super) fn is_conflict(code: &SqlState) -> bool {
    *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
}

/// An error with what the server said in it, which its own words leave out.
#[derive(Debug)]
pub(super) struct Told(pub(super) postgres::Error);

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.as_db_error(), std::error::Error::source(&self.0)) {
            (Some(told), _) => write!(f, "{}", told.message()),
            (None, Some(source)) => write!(f, "{}: {source}", self.0),
            (None, None) => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for Told {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
