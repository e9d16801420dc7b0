//! Which chain of which datadir a command is about.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use rubin::rules::{NoSignatures, Rules, TrustSignatures};
use rubin::{Datadir, Error, Genesis, Open, Validator};

use crate::exit::{Done, Fail, of_engine};

/// The chain.
#[derive(Args, Clone)]
pub(super) struct Where {
    /// The directory of all chains
    #[arg(long, value_name = "DIRECTORY")]
    datadir: PathBuf,
    /// Which chain: devnet, mainnet, or a file that gives its genesis. Default: the only one that is there
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

/// Who says whether signatures hold.
#[derive(Args, Clone, Copy, Default)]
pub(super) struct Trust {
    /// Take every signature for valid. Without this, outputs that need one cannot be spent: this program does not check them
    #[arg(long)]
    trust_signatures: bool,
}

impl Trust {
    pub(super) fn validator(self) -> Box<dyn Validator> {
        if self.trust_signatures {
            Box::new(Rules::new(TrustSignatures))
        } else {
            Box::new(Rules::new(NoSignatures))
        }
    }
}

/// Longest text that is read: a block in hex, and more.
const TEXT_MAX: u64 = 64 << 20;

/// The text in a file, unless it never ends.
pub(super) fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(TEXT_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read <= TEXT_MAX) {
        return Ok(text);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"))
}

/// The first block of a profile.
pub(super) fn genesis(profile: &str) -> Done<Genesis> {
    match profile {
        "devnet" | "testnet" => Ok(Genesis::devnet()),
        "mainnet" => Ok(Genesis::mainnet()),
        file => {
            let text = text_of(Path::new(file)).map_err(|error| {
                Fail::usage(format!("cannot read the profile {file}: {error}"))
                    .hint("a profile is devnet, mainnet, or a file with genesis_header_bytes and genesis_tx_bytes")
            })?;
            Genesis::from_profile(&text).map_err(|error| Fail::usage(format!("{file}: {error}")))
        }
    }
}

impl Where {
    /// The chain's directory, and its first block if the user says which.
    pub(super) fn find(&self) -> Done<(Datadir, Option<Genesis>)> {
        if let Some(profile) = &self.profile {
            let genesis = genesis(profile)?;
            return Ok((Datadir::new(&self.datadir, genesis.chain_id()), Some(genesis)));
        }
        let chains = Datadir::chains(&self.datadir).map_err(because)?;
        match chains.as_slice() {
            [only] => Ok((Datadir::new(&self.datadir, *only), None)),
            [] => Err(because(Error::NotInitialised(self.datadir.display().to_string()))),
            _ => Err(Fail::usage("there are several chains in the datadir")
                .hint("say which with --profile")),
        }
    }

    fn genesis(datadir: &Datadir, given: Option<Genesis>) -> Done<Genesis> {
        given.map_or_else(|| datadir.genesis().map_err(because), Ok)
    }

    /// Opens the chain to import blocks.
    pub(super) fn open(&self, trust: Trust) -> Done<Open> {
        let (datadir, given) = self.find()?;
        datadir.open(given, trust.validator()).map_err(because)
    }

    /// Opens the chain to look at it.
    pub(super) fn look(&self) -> Done<Open> {
        let (datadir, given) = self.find()?;
        let genesis = Where::genesis(&datadir, given)?;
        datadir.open_to_read(genesis, Trust::default().validator()).map_err(because)
    }
}

/// What an error of the store means to whoever called.
pub(super) fn because(error: Error) -> Fail {
    let fail = Fail::failed(error.to_string());
    match &error {
        Error::Engine(error) => of_engine(error),
        Error::Locked(_) => {
            fail.hint("wait for it or stop it; commands that only read work beside it")
        }
        Error::NotInitialised(_) => fail.hint("look at --datadir and --profile"),
        _ => fail,
    }
}
