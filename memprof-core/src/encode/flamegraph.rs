//! Flame graphs: one SVG file that needs nothing else, to be opened in a browser.

use std::fmt::Write;
use std::io;

use inferno::flamegraph::color::{BasicPalette, Color, Palette, PaletteMap};
use inferno::flamegraph::{Options, from_lines};

use super::frame_name::Names;
use super::{coverage, folded, summary, units};
use crate::profile::{Profile, ValueKind};
use crate::symbols::Symbols;

/// Longest subtitle, in characters, that fits the picture's width.
const SUBTITLE_LIMIT: usize = 165;

/// A flame graph whose widths are the values of `kind`. A profile without values becomes a picture
/// that says why there are none.
///
/// # Errors
/// When the flame graph cannot be drawn, which no profile is known to cause.
pub fn encode(profile: &Profile, symbols: &Symbols, kind: ValueKind) -> io::Result<Vec<u8>> {
    if let Some(reason) = summary::why_empty(profile, kind) {
        return Ok(empty(profile, kind, &reason).into_bytes());
    }
    let mut options = Options::default();
    options.title = title(profile, kind);
    options.subtitle = Some(subtitle(profile, kind));
    // The notes become an XML comment, in which two hyphens must not stand together.
    options.notes = summary::lines(profile).join("\n").replace("--", "");
    options.count_name = if kind.is_bytes() { "bytes".into() } else { "objects".into() };
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    let mut colors = java_colors(profile, symbols);
    options.palette_map = Some(&mut colors);
    let folded = folded::encode(profile, symbols, kind);
    let mut svg = Vec::new();
    from_lines(&mut options, folded.lines(), &mut svg)?;
    Ok(svg)
}

/// Java frames in shades of orange, by name; native ones have the palette's green.
fn java_colors(profile: &Profile, symbols: &Symbols) -> PaletteMap {
    let names = Names::new(profile, symbols);
    let frames = profile.sites.iter().flat_map(|site| names.site(site));
    let mut colors = PaletteMap::default();
    for frame in frames.filter(|frame| !frame.kinds.is_empty()) {
        let name = folded::name_of(&frame);
        let shade = name.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 64;
        colors.insert(name, Color { r: 255 - shade / 4, g: 130 + shade, b: 40 + shade / 2 });
    }
    colors
}

fn title(profile: &Profile, kind: ValueKind) -> String {
    format!(
        "memprof: {kind} of {}, {}, {}",
        summary::processes(profile),
        units::duration(profile.duration()),
        summary::sampling(profile)
    )
}

fn subtitle(profile: &Profile, kind: ValueKind) -> String {
    let totals = profile.totals();
    let total = match kind {
        ValueKind::InuseGrowth => {
            let grown: f64 = profile.sites.iter().map(|site| kind.of(site)).sum();
            format!("grown: {}", units::bytes(grown))
        }
        _ if kind.is_in_use() => format!("in use: {}", summary::estimate(&totals.in_use)),
        _ => format!("allocated: {}", summary::estimate(&totals.allocated)),
    };
    let text = format!(
        "{total}; {}; {}",
        coverage::words(&profile.coverage),
        summary::losses_in_short(&profile.losses)
    );
    if text.chars().count() <= SUBTITLE_LIMIT {
        return text;
    }
    text.chars().take(SUBTITLE_LIMIT - 1).chain(['…']).collect()
}

/// A picture of text alone.
fn empty(profile: &Profile, kind: ValueKind, reason: &str) -> String {
    let mut lines = vec![format!("Nothing to show: {reason}.")];
    lines.extend(summary::lines(profile));
    let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, SUBTITLE_LIMIT)).collect();
    let height = 60 + 20 * lines.len();
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"1200\" height=\"{height}\" viewBox=\"0 0 1200 {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#eeffee\"/>\n\
         <text x=\"600\" y=\"28\" font-size=\"17\" text-anchor=\"middle\">{}</text>\n",
        escape(&title(profile, kind))
    );
    for (i, line) in lines.iter().enumerate() {
        let y = 60 + 20 * i;
        writeln!(svg, "<text x=\"10\" y=\"{y}\">{}</text>", escape(line)).expect("a string takes all text");
    }
    svg + "</svg>\n"
}

/// Breaks a line between words where it would exceed `limit` characters.
fn wrap(line: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= limit {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // XML has no way to write most control characters.
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use memprof_common::counter::Counter;

    use super::*;
    use crate::encode::sample;
    use crate::estimate::Estimate;

    fn svg(profile: &Profile, symbols: &Symbols, kind: ValueKind) -> String {
        String::from_utf8(encode(profile, symbols, kind).unwrap()).unwrap()
    }

    #[test]
    fn shows_totals_and_frames() {
        let (mut profile, symbols) = sample::profile();
        profile.losses.kernel[Counter::RingFullAllocs as usize] = 3;
        let text = svg(&profile, &symbols, ValueKind::InuseSpace);
        for part in [
            "memprof: inuse_space of 2 processes, 5.0 s, sampled every 4.0 KiB",
            "in use: 5.1 KiB ± 6.8 KiB in 6 ± 7 blocks",
            "losses: ring_full_allocs 3",
            "grow:[u8: 4]",
            "4,196 bytes",
            "[truncated: snapshot limit]",
            "is not included",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        for comment in text.split("<!--").skip(1) {
            let comment = comment.split("-->").next().unwrap();
            assert!(!comment.contains("--"), "ill-formed comment {comment}");
        }
        assert!(svg(&profile, &symbols, ValueKind::AllocObjects).contains("5 objects"));
    }

    #[test]
    fn java_frames_have_a_color_of_their_own() {
        let (profile, symbols) = sample::java();
        let text = svg(&profile, &symbols, ValueKind::InuseSpace);
        let color = |function: &str| {
            let (_, rest) = text.split_once(&format!("<title>{function} (")).unwrap();
            let (_, rest) = rest.split_once("fill=\"rgb(").unwrap();
            let (color, _) = rest.split_once(')').unwrap();
            color.split(',').map(|part| part.parse().unwrap()).collect::<Vec<u8>>()
        };
        for java in ["a.Leak.grow", "a.Leak.&lt;init&gt;", "call_stub"] {
            assert!(color(java)[0] >= 239, "{java} {:?}", color(java));
        }
        for native in ["malloc", "main"] {
            assert_eq!(color(native)[0], 0, "{native}");
        }
    }

    #[test]
    fn an_empty_profile_is_a_picture_that_says_why() {
        let (mut profile, symbols) = sample::profile();
        profile.processes.pop();
        profile.processes[0].comm = "a<b&c\u{1}".into();
        profile.sites.retain(|site| site.process == 0);
        for site in &mut profile.sites {
            site.in_use = Estimate::default();
        }
        let text = svg(&profile, &symbols, ValueKind::InuseSpace);
        assert!(text.contains("a&lt;b&amp;c? (pid 12)"));
        assert!(text.contains("Nothing to show: none of the 4 sampled allocations is in use"));
        assert!(text.starts_with("<?xml") && text.ends_with("</svg>\n"));
    }
}
