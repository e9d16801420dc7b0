//! `kvb completions` and `man`: made from the same definitions as the help.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;

use super::Session;
use crate::exit::{Done, Fail};

/// Write a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb completions bash > /etc/bash_completion.d/kvb
  kvb completions zsh > ~/.zfunc/_kvb
  kvb completions fish > ~/.config/fish/completions/kvb.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "kvb", &mut script);
        Ok(session.out.write_all(&script)?)
    }
}

/// Write the manual pages
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb man | man -l -                            the page of kvb
  kvb man --out /usr/local/share/man/man1       all pages: kvb.1, kvb-scan.1, ...")]
pub(super) struct Man {
    /// A directory for all pages; without it the page of kvb goes to standard output
    #[arg(long, short, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        // Without the pages of `kvb help`, which say nothing new.
        let mut command = super::command().disable_help_subcommand(true);
        command.build();
        match &self.out {
            None => Ok(clap_mangen::Man::new(command).render(session.out)?),
            Some(directory) => clap_mangen::generate_to(command, directory)
                .map_err(|error| cannot(directory, &error)),
        }
    }
}

fn cannot(directory: &Path, error: &std::io::Error) -> Fail {
    Fail::failed(format!("cannot write manual pages to {}: {error}", directory.display()))
}
