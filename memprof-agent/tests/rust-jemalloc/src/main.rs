//! A Rust program with jemalloc (under names with a prefix) and a C library linked into it, that knows
//! what it holds.

use std::hint::black_box;
use std::io::{self, BufRead, Write};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 2000;

/// A vector of exactly this many bytes.
#[inline(never)]
#[unsafe(no_mangle)]
fn leak_vector(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

/// Boxes with an alignment of their own.
#[inline(never)]
#[unsafe(no_mangle)]
fn leak_box(value: u8) -> Box<Aligned> {
    black_box(Box::new(Aligned([value; 192])))
}

#[repr(align(64))]
struct Aligned([u8; 192]);

/// Grows by realloc; the last of its blocks stays.
#[inline(never)]
#[unsafe(no_mangle)]
fn leak_grown(size: usize) -> Vec<u8> {
    let mut bytes = black_box(Vec::with_capacity(16));
    for length in [100, 1000, size] {
        bytes.resize(length.min(size), 1_u8);
        bytes.shrink_to_fit();
        black_box(&mut bytes);
    }
    bytes
}

/// Strings that come and go.
#[inline(never)]
#[unsafe(no_mangle)]
fn churn_strings(round: usize) {
    let texts: Vec<String> = (0..10).map(|i| "x".repeat(1 + (round + i) % 500)).collect();
    black_box(texts);
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").expect("nobody listens");
    out.flush().expect("nobody listens");
}

fn wait_for_line() {
    io::stdin().lock().read_line(&mut String::new()).expect("nobody talks");
}

fn main() {
    say("ready");
    wait_for_line();
    let threads = [0, 1].map(|_| {
        std::thread::spawn(|| {
            let (mut vectors, mut boxes, mut grown) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                vectors.push(leak_vector(1 + round % 700));
                boxes.push(leak_box(round as u8));
                grown.push(leak_grown(50 + round % 3000));
                churn_strings(round);
                if round % 16 == 15 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
            (vectors, boxes, grown)
        })
    });
    let kept = threads.map(|thread| thread.join().expect("a thread panicked"));
    let (mut vectors, mut boxes, mut grown) = ((0, 0), (0, 0), (0, 0));
    for (v, b, g) in &kept {
        v.iter().for_each(|vector| add(&mut vectors, vector.capacity()));
        b.iter().for_each(|aligned| add(&mut boxes, aligned.0.len()));
        g.iter().for_each(|vector| add(&mut grown, vector.capacity()));
    }
    for (name, (bytes, objects)) in
        [("leak_vector", vectors), ("leak_box", boxes), ("leak_grown", grown), ("churn_strings", (0, 0))]
    {
        say(&format!("site {name} {bytes} {objects}"));
    }
    say("done");
    wait_for_line();
    drop(kept);
}

fn add(sum: &mut (usize, usize), bytes: usize) {
    sum.0 += bytes;
    sum.1 += 1;
}
