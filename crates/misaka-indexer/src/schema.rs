//! The tables on a PostgreSQL server, and how they came to be.
//!
//! Steps are applied in their order, each in a transaction of its own that also counts it. What is applied is never changed: what
//! becomes different is a step of its own at the end.
//!
//! - Only plain SQL, so that servers that speak the same language take it too: no extension, no function of our own, no sequence.
//! - Numbers that can be as large as a u64 are `NUMERIC(20)`: they have their order, all of them fit, and whoever looks with `psql` reads
//!   them as they are. A `BIGINT` ends halfway, and shifted by that half nobody would know what stands there.
//! - The name of a type is `BYTEA`, because a string of the chain may have a zero byte, which `TEXT` has not; and it is found by its
//!   digest, because a key of an index must be short, and a name need not be.

use postgres::Client;

use crate::error::Error;
use crate::server::cannot;

/// The steps.
pub const STEPS: &[&str] = &[
    "
    CREATE TABLE misaka_state (
        one SMALLINT PRIMARY KEY CHECK (one = 1),
        generation BIGINT NOT NULL,
        is_whole BOOLEAN NOT NULL,
        tip_seq NUMERIC(20),
        tip_digest BYTEA,
        base_seq NUMERIC(20)
    );
    INSERT INTO misaka_state (one, generation, is_whole) VALUES (1, 0, TRUE);
    CREATE TABLE misaka_checkpoints (
        seq NUMERIC(20) PRIMARY KEY,
        digest BYTEA NOT NULL,
        epoch NUMERIC(20) NOT NULL,
        timestamp_ms NUMERIC(20) NOT NULL,
        transactions BIGINT NOT NULL,
        writes BIGINT NOT NULL,
        created BIGINT NOT NULL,
        deleted BIGINT NOT NULL,
        events BIGINT NOT NULL,
        event_bytes BIGINT NOT NULL
    );
    CREATE TABLE misaka_objects (
        id BYTEA PRIMARY KEY,
        version NUMERIC(20) NOT NULL,
        seq NUMERIC(20) NOT NULL,
        owner_kind SMALLINT NOT NULL,
        owner BYTEA,
        type_digest BYTEA NOT NULL
    );
    CREATE TABLE misaka_types (
        digest BYTEA PRIMARY KEY,
        tag BYTEA NOT NULL
    );
    CREATE TABLE misaka_history (
        id BYTEA NOT NULL,
        version NUMERIC(20) NOT NULL,
        seq NUMERIC(20) NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (id, version)
    );
    CREATE TABLE misaka_transactions (
        digest BYTEA NOT NULL,
        seq NUMERIC(20) NOT NULL,
        place BIGINT NOT NULL,
        PRIMARY KEY (digest, seq, place)
    );
    CREATE TABLE misaka_events (
        seq NUMERIC(20) NOT NULL,
        tx BIGINT NOT NULL,
        number BIGINT NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (seq, tx, number)
    );
    ",
    "
    CREATE INDEX misaka_objects_by_owner ON misaka_objects (owner_kind, owner, id);
    CREATE INDEX misaka_objects_by_type ON misaka_objects (type_digest, id);
    CREATE INDEX misaka_history_by_seq ON misaka_history (id, seq, version);
    ",
];

/// Counts the steps.
const COUNTER: &str = "
    CREATE TABLE IF NOT EXISTS misaka_schema (
        one SMALLINT PRIMARY KEY CHECK (one = 1),
        version BIGINT NOT NULL
    );
    INSERT INTO misaka_schema (one, version) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;
";

/// How many steps there are.
pub(crate) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// How many steps were applied; none if there never was an index.
pub(crate) fn version(client: &mut Client) -> Result<Option<i64>, Error> {
    let exists = "SELECT to_regclass('misaka_schema') IS NOT NULL";
    let exists: bool = client.query_one(exists, &[]).map_err(cannot("look for tables"))?.get(0);
    if !exists {
        return Ok(None);
    }
    let rows = client.query("SELECT version FROM misaka_schema WHERE one = 1", &[]);
    Ok(rows.map_err(cannot("read the version"))?.first().map(|row| row.get(0)))
}

/// Refuses tables that this software does not know.
pub(crate) fn check(found: i64) -> Result<(), Error> {
    match found > known() {
        true => Err(Error::Schema { found, known: known() }),
        false => Ok(()),
    }
}

/// Applies the steps that are missing.
pub(crate) fn migrate(client: &mut Client) -> Result<(), Error> {
    if version(client)?.is_none()
        && let Err(error) = client.batch_execute(COUNTER)
        // Of two that begin at once, one is told that the table is there.
        && version(client)?.is_none()
    {
        return Err(cannot("make tables")(error));
    }
    loop {
        let doing = cannot("change tables");
        let mut transaction = client.transaction().map_err(&doing)?;
        // Two that begin at once take turns here.
        let row = transaction
            .query_one("SELECT version FROM misaka_schema WHERE one = 1 FOR UPDATE", &[])
            .map_err(&doing)?;
        let found: i64 = row.get(0);
        check(found)?;
        let step = usize::try_from(found).ok().and_then(|found| STEPS.get(found));
        let Some(step) = step else { return Ok(()) };
        transaction.batch_execute(step).map_err(&doing)?;
        transaction
            .execute("UPDATE misaka_schema SET version = $1 WHERE one = 1", &[&(found + 1)])
            .map_err(&doing)?;
        transaction.commit().map_err(&doing)?;
    }
}
