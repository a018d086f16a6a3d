//! Folded stacks: one line per stack, `process;outermost;…;innermost VALUE`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::frame_name::{NamedFrame, Names};
use super::summary;
use crate::profile::{Profile, Site, ValueKind};
use crate::symbols::Symbols;

/// The stacks of a profile with their values, rounded. Lines are sorted, equal stacks are one line,
/// stacks whose value is zero are left out.
#[must_use]
pub fn encode(profile: &Profile, symbols: &Symbols, kind: ValueKind) -> String {
    let names = Names::new(profile, symbols);
    let mut values: BTreeMap<String, f64> = BTreeMap::new();
    for site in profile.sites.iter().filter(|site| kind.of(site) > 0.0) {
        *values.entry(line(profile, names, site)).or_default() += kind.of(site);
    }
    let mut folded = String::new();
    for (stack, value) in values {
        let value = value.round();
        if value > 0.0 {
            folded.push_str(&format!("{stack} {value:.0}\n"));
        }
    }
    folded
}

/// What a frame is called in a folded line.
pub(super) fn name_of(frame: &NamedFrame<'_>) -> String {
    sanitize(&frame.to_string())
}

fn line(profile: &Profile, names: Names<'_>, site: &Site) -> String {
    let root = summary::process(profile.process(site));
    let mut frames: Vec<String> = names.site(site).map(|frame| name_of(&frame)).collect();
    frames.push(sanitize(root.trim_start_matches([' ', '#'])));
    frames.reverse();
    frames.join(";")
}

/// A name that can stand in a folded line. `;` separates frames, a line break ends the stack, and a
/// last word of digits would read as a second value.
fn sanitize(name: &str) -> String {
    let name: Cow<'_, str> = match name.trim() {
        "" => "?".into(),
        name => name.into(),
    };
    let mut clean: String = name
        .chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect();
    if let Some(space) = clean.rfind(' ')
        && clean[space + 1..].bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        clean.replace_range(space..=space, "_");
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::sample;

    #[test]
    fn stacks_are_sorted_merged_and_rounded() {
        let (profile, symbols) = sample::profile();
        assert_eq!(
            encode(&profile, &symbols, ValueKind::InuseSpace),
            "leak (pid 12);main;grow:[u8: 4];push;malloc 4196\n\
             other (pid 13);[truncated: snapshot limit];lib one.so+0x2ff;malloc 1000\n"
        );
        assert_eq!(
            encode(&profile, &symbols, ValueKind::AllocObjects),
            "leak (pid 12);[java];deflateInit_;malloc 1\n\
             leak (pid 12);main;grow:[u8: 4];push;malloc 5\n\
             other (pid 13);[truncated: snapshot limit];lib one.so+0x2ff;malloc 1\n"
        );
    }

    #[test]
    fn java_methods_are_named_with_their_classes() {
        let (profile, symbols) = sample::java();
        assert_eq!(
            encode(&profile, &symbols, ValueKind::InuseSpace),
            "leak (pid 12);main;call_stub;a.Leak.grow;a.Leak.<init>;deflateInit_;malloc 4096\n\
             leak (pid 12);main;call_stub;a.Leak.grow;deflateInit_;malloc 64\n"
        );
    }

    #[test]
    fn names_cannot_break_the_format() {
        assert_eq!(sanitize("a;b\nc\td"), "a:b c d");
        assert_eq!(sanitize("operator 12"), "operator_12");
        assert_eq!(sanitize("operator new"), "operator new");
        assert_eq!(sanitize(" \n"), "?");
        assert_eq!(sanitize("x 1.5"), "x_1.5");
    }
}
