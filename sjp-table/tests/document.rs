//! docs/table.md says what the code does: its offsets, sizes and limits are
//! read out of the page and compared with the constants.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use sjp_table::layout::{self, Capacity, Columns, Layout, header, ring, rooms, roster};
use std::path::Path;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/table.md");
    std::fs::read_to_string(&path).unwrap()
}

/// The cells of each row of the table that begins with these head cells.
fn rows(page: &str, section: &str, head: &str) -> Vec<Vec<String>> {
    let from = page.find(&format!("## {section}\n")).unwrap();
    let from = from + page[from..].find(head).unwrap();
    let rows: Vec<Vec<String>> = page[from..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "{section} has no table");
    rows
}

fn assert_fields(section: &str, head: &str, fields: &[(&str, usize)]) {
    let documented: Vec<(String, usize)> = rows(&page(), section, head)
        .into_iter()
        .map(|row| (row[1].clone(), row[0].parse().unwrap()))
        .collect();
    let coded: Vec<(String, usize)> =
        fields.iter().map(|&(name, word)| (name.to_owned(), word * layout::WORD)).collect();
    assert_eq!(documented, coded, "{section}");
}

#[test]
fn fields_stand_where_the_document_says() {
    assert_fields("Header", "| byte | field |", header::FIELDS);
    assert_fields("Rooms buffer", "| byte | field |", rooms::FIELDS);
    assert_fields("Roster slot", "| byte | field |", roster::FIELDS);
    assert_fields("Claims ring", "| byte | field |", ring::FIELDS);
    assert_fields("Claims ring", "| byte | slot field |", ring::SLOT_FIELDS);
}

#[test]
fn columns_stand_where_the_document_says() {
    let sample =
        Capacity { nodes: 1000, groups: 1000, qos_rooms: 100, roster_bytes: 50_000, claims: 1024 };
    let layout = Layout::new(sample).unwrap();
    let Columns { free, phi, class, taken, then, span, members, group_of, qos_key, qos_cpus } =
        layout.columns;
    let columns = [free, phi, class, taken, then, span, members, group_of, qos_key, qos_cpus];
    let coded: Vec<(String, String, usize)> = Columns::NAMES
        .into_iter()
        .zip(columns)
        .map(|(name, column)| {
            let words = match column.words {
                500 => "cap_nodes / 2",
                100 => "cap_qos_rooms",
                1000 => "cap_groups",
                other => panic!("{name} has {other} words"),
            };
            (name.to_owned(), words.to_owned(), column.at * layout::WORD)
        })
        .collect();
    let documented: Vec<(String, String, usize)> =
        rows(&page(), "Rooms buffer", "| column | words |")
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone(), row[3].parse().unwrap()))
            .collect();
    assert_eq!(documented, coded);

    let bytes = |words: usize| words * layout::WORD;
    let sentence = format!(
        "In that example a rooms buffer is {} bytes, the sections begin at {}, {}, {}, {} and {}, \
         and the table is {} bytes.",
        bytes(layout.rooms_words),
        bytes(layout.rooms[0]),
        bytes(layout.rooms[1]),
        bytes(layout.roster[0]),
        bytes(layout.roster[1]),
        bytes(layout.ring),
        layout.total_bytes(),
    );
    assert!(page().contains(&sentence), "{sentence}");
}

/// 131072 as 131,072.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[test]
fn limits_and_sizes_are_those_of_the_document() {
    let page = page();
    for sentence in [
        format!("Layout version: {}\n", layout::LAYOUT_VERSION),
        format!("| 0 | magic | the bytes `{}` |", str::from_utf8(&layout::MAGIC).unwrap()),
        format!("| byte_order | {:#018x} |", layout::BYTE_ORDER_MARK),
        format!("| header_bytes | {} |", header::WORDS * layout::WORD),
        format!("nodes, 1 to {} |", grouped(layout::MAX_NODES.into())),
        format!("groups, 1 to {} |", grouped(layout::MAX_GROUPS.into())),
        format!("QOS caps, 1 to {} |", grouped(layout::MAX_QOS_ROOMS.into())),
        format!("roster, 1 to {} |", grouped(layout::MAX_ROSTER_BYTES.into())),
        format!("power of two, 1 to {} |", grouped(layout::MAX_CLAIMS.into())),
        format!("at a multiple of {} ", grouped(layout::RING_ALIGN as u64)),
        format!("multiples of {} bytes", layout::LINE_WORDS * layout::WORD),
        format!("The head is {} bytes; bytes 88 to 127", rooms::WORDS * layout::WORD),
        format!("The head is {} bytes; bytes 32 to 63", roster::WORDS * layout::WORD),
        format!("the slots follow, {} bytes each", ring::SLOT_WORDS * layout::WORD),
        "Otherwise again, five times at most".to_owned(),
    ] {
        assert!(page.contains(&sentence), "the page does not say: {sentence}");
    }
    assert_eq!(sjp_table::MAX_TRIES, 5, "five in the page");
}
