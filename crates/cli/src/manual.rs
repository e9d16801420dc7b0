//! `completions` and `man` of every program: made from the same definitions as its help.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use clap_complete::Shell;

use crate::exit::{Done, Fail};

// What every program can write about itself. Not a comment for clap, which would make it the program's description.
#[derive(Subcommand)]
pub(crate) enum Manual {
    Completions(Completions),
    Man(Man),
}

/// Write a completion script for a shell
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages
#[derive(Args)]
pub(crate) struct Man {
    /// A directory for all pages; without it the first page goes to standard output
    #[arg(long, short, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

/// A program's definition with these commands behind its own.
pub(crate) fn with_manual(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let completions = format!(
        "Examples:\n  {name} completions bash > /etc/bash_completion.d/{name}\n  {name} completions zsh > ~/.zfunc/_{name}\n  \
         {name} completions fish > ~/.config/fish/completions/{name}.fish"
    );
    let first = format!("{name} man | man -l -");
    let all = format!("{name} man --out /usr/local/share/man/man1");
    let man =
        format!("Examples:\n  {first:54}the page of {name}\n  {all:54}all pages, one a command",);
    Manual::augment_subcommands(command)
        .mut_subcommand("completions", |command| command.after_help(completions))
        .mut_subcommand("man", |command| command.after_help(man))
}

/// Does what was asked for, if it was one of these.
pub(crate) fn run(
    definition: &clap::Command,
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Option<Done> {
    let manual = Manual::from_arg_matches(matches).ok()?;
    Some(match manual {
        Manual::Completions(args) => args.run(definition.clone(), out),
        Manual::Man(args) => args.run(definition.clone(), out),
    })
}

impl Completions {
    fn run(self, mut definition: clap::Command, out: &mut dyn Write) -> Done {
        let name = definition.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition, name, &mut script);
        Ok(out.write_all(&script)?)
    }
}

impl Man {
    fn run(self, definition: clap::Command, out: &mut dyn Write) -> Done {
        // Without the pages of `help`, which say nothing new.
        let mut definition = definition.disable_help_subcommand(true);
        definition.build();
        match &self.out {
            None => Ok(clap_mangen::Man::new(definition).render(out)?),
            Some(directory) => clap_mangen::generate_to(definition, directory)
                .map_err(|error| cannot(directory, &error)),
        }
    }
}

fn cannot(directory: &Path, error: &std::io::Error) -> Fail {
    Fail::failed(format!("cannot write manual pages to {}: {error}", directory.display()))
}
