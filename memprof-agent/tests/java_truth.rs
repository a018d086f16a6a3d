//! Java stacks are true: a program whose stacks are known runs on several versions of Java in many ways, and
//! every stack must be right in all frames and lines, or say that it is cut off.

mod support;
mod truth;

use std::env;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::exclusive;
use truth::cells::{Cell, cells};
use truth::judge::Score;
use truth::run::{Build, Outcome};

/// Runs at a time. Two keep a machine with two processors busy and do not starve each other.
const AT_A_TIME: usize = 2;

/// Blocks of a run, unless `MEMPROF_TRUTH_BLOCKS` says how many; with it, all combinations are run.
const BLOCKS: u32 = 2000;

/// Faults that are shown of a run.
const SHOWN_FAULTS: usize = 3;

/// Most stacks of a thousand that may be cut off: on a busy machine some are looked at late.
const MOST_MARKED: u64 = 20;

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_java_stack_is_true_or_says_that_it_is_cut_off() {
    let _alone = exclusive();
    let blocks = env::var("MEMPROF_TRUTH_BLOCKS").ok();
    let filter = env::var("MEMPROF_TRUTH_FILTER").unwrap_or_default();
    let cells = cells(blocks.is_some(), &filter);
    let blocks = blocks.map_or(BLOCKS, |text| text.parse().expect("MEMPROF_TRUTH_BLOCKS is no number"));
    let build = Build::new(env::var_os("MEMPROF_TRUTH_KEEP").map(PathBuf::from));
    let outcomes = run_all(&build, &cells, blocks);
    println!("{}", table(&cells, &outcomes));
    let mut failures = Vec::new();
    for (cell, outcome) in cells.iter().zip(&outcomes) {
        let Score { right, frozen, marked, wrong, missing } = outcome.score;
        let all = right + frozen + marked + wrong;
        assert!(all > 0, "{cell}: no stacks of the program at all");
        if wrong > 0 || missing > 0 || marked * 1000 > all * MOST_MARKED {
            failures.push(cell.to_string());
        }
        if frozen > 0 && cell.mode.program != "virtual" {
            failures.push(format!("{cell}: frozen frames without virtual threads"));
        }
    }
    assert!(failures.is_empty(), "not true: {failures:#?}");
}

fn run_all(build: &Build, cells: &[Cell], blocks: u32) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(cells.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((index, cell)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, cells.get(i)?)))
                {
                    let outcome = build.run(cell, blocks);
                    outcomes.lock().expect("a run has failed")[index] = Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("a run has failed");
    outcomes.into_iter().map(|outcome| outcome.expect("every cell was run")).collect()
}

/// A line for each run, and below what was lost and what was wrong.
fn table(cells: &[Cell], outcomes: &[Outcome]) -> String {
    let mut total = Score::default();
    let mut text = String::from("| Java | mode | right | frozen | marked | wrong | missing | seconds |\n");
    text += "|---|---|---|---|---|---|---|---|\n";
    let row = |java: &str, mode: &str, score: Score, seconds: f64| {
        let Score { right, frozen, marked, wrong, missing } = score;
        format!("| {java} | {mode} | {right} | {frozen} | {marked} | {wrong} | {missing} | {seconds:.1} |\n")
    };
    let mut seconds = 0.0;
    for (cell, outcome) in cells.iter().zip(outcomes) {
        text += &row(cell.java, cell.mode.name, outcome.score, outcome.time.as_secs_f64());
        total += outcome.score;
        seconds += outcome.time.as_secs_f64();
    }
    text += &row("all", "", total, seconds);
    for (cell, outcome) in cells.iter().zip(outcomes) {
        if !outcome.losses.is_empty() {
            text += &format!("{cell} lost {:?}\n", outcome.losses);
        }
        for fault in outcome.faults.iter().take(SHOWN_FAULTS) {
            text += &format!("{cell}: {fault}\n");
        }
        if outcome.faults.len() > SHOWN_FAULTS {
            text += &format!("{cell}: and {} more\n", outcome.faults.len() - SHOWN_FAULTS);
        }
    }
    text
}
