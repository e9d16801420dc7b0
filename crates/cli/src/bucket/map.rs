//! The map of a bucket's file, drawn in characters.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::IsTerminal;

use kvb::{Area, AreaKind, Survey};

use super::info::area_name;
use crate::show;

/// Characters in a row, and most rows.
const COLUMNS: u64 = 64;
const ROWS: u64 = 16;

/// The map, with what its characters mean.
pub(super) fn draw(survey: &Survey) -> String {
    let page_size = survey.settings.page_size.max(1);
    let pages = survey.file_bytes / page_size;
    let cells = pages.clamp(1, COLUMNS * ROWS);
    let has_color = show::has_colors(std::io::stdout().is_terminal());
    let live: HashMap<u64, f64> =
        survey.segments.iter().map(|facts| (facts.at, facts.live_ratio())).collect();
    let mut seen: Vec<(char, &'static str)> = Vec::new();
    let mut text = String::new();
    for cell in 0..cells {
        if cell % COLUMNS == 0 {
            if cell > 0 {
                text.push_str("|\n");
            }
            let _ = write!(text, "{:>12} |", page_of(cell, cells, pages) * page_size);
        }
        let from = page_of(cell, cells, pages) * page_size;
        let to = page_of(cell + 1, cells, pages) * page_size;
        let (letter, name, color) = match largest(survey, from, to) {
            Some(area) => look(area, live.get(&area.at).copied()),
            None => (' ', "unused", None),
        };
        if !seen.iter().any(|(known, _)| *known == letter) {
            seen.push((letter, name));
        }
        match color.filter(|_| has_color) {
            Some(color) => drop(write!(text, "\x1b[{color}m{letter}\x1b[0m")),
            None => text.push(letter),
        }
    }
    text.push_str("|\n");
    let each = show::size(survey.file_bytes / cells);
    let _ = write!(text, "{:>12}  each character is {each}:", "");
    for (index, (letter, name)) in seen.iter().filter(|(letter, _)| *letter != ' ').enumerate() {
        let gap = if index % 5 == 0 { format!("\n{:>12}  ", "") } else { "  ".to_owned() };
        let _ = write!(text, "{gap}{letter} {name}");
    }
    text.push('\n');
    text
}

/// The first page of a cell.
fn page_of(cell: u64, cells: u64, pages: u64) -> u64 {
    let page = u128::from(cell) * u128::from(pages) / u128::from(cells);
    u64::try_from(page).unwrap_or(u64::MAX)
}

/// The area that most of a stretch belongs to.
fn largest(survey: &Survey, from: u64, to: u64) -> Option<&Area> {
    let first = survey.areas.partition_point(|area| area.at + area.len <= from);
    let inside = survey.areas.get(first..)?.iter().take_while(|area| area.at < to);
    inside.max_by_key(|area| {
        let overlap = (area.at + area.len).min(to) - area.at.max(from);
        // Of equal parts the rarer use says more.
        (overlap, matches!(area.kind, AreaKind::Free | AreaKind::Unused).cmp(&false).reverse())
    })
}

/// The character of an area, what it means, and its color.
fn look(area: &Area, live: Option<f64>) -> (char, &'static str, Option<u8>) {
    match area.kind {
        AreaKind::Segment(_) => match live.unwrap_or(1.0) {
            ratio if ratio >= 0.9 => ('@', "records, nearly all live", Some(32)),
            ratio if ratio >= 0.6 => ('%', "records, most live", Some(32)),
            ratio if ratio >= 0.3 => ('+', "records, many dead", Some(33)),
            _ => ('-', "records, hardly any live", Some(31)),
        },
        kind => {
            let (letter, color) = match kind {
                AreaKind::Superblock => ('S', 35),
                AreaKind::FreeMap => ('m', 35),
                AreaKind::Bulletin => ('b', 35),
                AreaKind::Journal => ('j', 35),
                AreaKind::Side => ('s', 36),
                AreaKind::Index => ('i', 34),
                AreaKind::Table => ('t', 35),
                AreaKind::Book => ('d', 35),
                AreaKind::Reserved => ('r', 90),
                AreaKind::Retired => ('x', 90),
                AreaKind::Free => ('.', 90),
                _ => (' ', 90),
            };
            (letter, area_name(kind), Some(color))
        }
    }
}
