//! pprof: a gzip-compressed `profile.proto` message, as `go tool pprof` and its relatives read it.

mod builder;
mod message;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use prost::Message;

use self::builder::Builder;
use self::message::{Label, Sample};
use super::frame_name::{Names, end_words};
use super::summary;
use crate::profile::{Profile, Site, ValueKind};
use crate::stack::{Frame, thread_of};
use crate::symbols::Symbols;

/// All four sample types of a profile; a reader shows `default_kind` first.
///
/// Addresses are as linked, so that names can still be added from files by build id. Labels: `pid`,
/// `process`, `stack_end` and, where stacks are told apart by it, `thread`. Coverage, losses and limits are comments (`pprof -comments`).
///
/// # Errors
/// When compressing fails, which it does not in memory.
pub fn encode(profile: &Profile, symbols: &Symbols, default_kind: ValueKind) -> io::Result<Vec<u8>> {
    let message = message(profile, symbols, default_kind).encode_to_vec();
    // No time stamp and no file name: the same profile is the same file.
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    gzip.write_all(&message)?;
    gzip.finish()
}

fn message(profile: &Profile, symbols: &Symbols, default_kind: ValueKind) -> message::Profile {
    let mut builder = Builder::new(profile, Names::new(profile, symbols));
    let mut comments = vec![format!("memprof {}, {}", profile.run.version, summary::sampling(profile))];
    comments.extend(summary::why_empty(profile, default_kind));
    comments.extend(summary::lines(profile));
    let mut message = message::Profile {
        sample_type: ValueKind::SAMPLE_TYPES.into_iter().map(|kind| builder.value_type(kind)).collect(),
        sample: profile.sites.iter().map(|site| sample(&mut builder, profile, site)).collect(),
        time_nanos: clamp(u128::from(profile.run.started_at_unix) * 1_000_000_000),
        duration_nanos: clamp(profile.duration().into()),
        period_type: Some(message::ValueType {
            r#type: builder.string("space"),
            unit: builder.string("bytes"),
        }),
        period: clamp(profile.run.sample_interval.into()),
        comment: comments.iter().map(|comment| builder.string(comment)).collect(),
        default_sample_type: builder.string(default_kind.name()),
        ..message::Profile::default()
    };
    builder.finish(&mut message);
    message
}

fn sample(builder: &mut Builder<'_>, profile: &Profile, site: &Site) -> Sample {
    let process = profile.process(site);
    // The thread's name is a label: readers can make it the root (`pprof -tagroot=thread`).
    let frames = site.stack.iter().filter(|frame| !matches!(frame, Frame::Thread(_)));
    let thread = thread_of(&site.stack).and_then(|name| profile.threads.get(name));
    let text = |builder: &mut Builder<'_>, key, value: &str| Label {
        key: builder.string(key),
        str: builder.string(value),
        num: 0,
    };
    Sample {
        location_id: frames.map(|&frame| builder.location(frame)).collect(),
        value: ValueKind::SAMPLE_TYPES.into_iter().map(|kind| kind.of(site).round() as i64).collect(),
        label: [
            Label { key: builder.string("pid"), str: 0, num: process.key.tgid.into() },
            text(builder, "process", &process.comm),
            text(builder, "stack_end", &end_words(&site.stack)),
        ]
        .into_iter()
        .chain(thread.map(|name| text(builder, "thread", name)))
        .collect(),
    }
}

fn clamp(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
