//! SPDX licence expressions: `MIT OR (Apache-2.0 WITH LLVM-exception AND Zlib)`.
//!
//! ```text
//! any  = all { "OR" all }          (the old form with "/" means OR)
//! all  = term { "AND" term }
//! term = "(" any ")" | identifier [ "WITH" identifier ]
//! ```

use anyhow::{Result, bail};

/// Whether an expression can be satisfied with licences for which `allowed` is true. A licence with an
/// exception is asked for as `identifier WITH exception`.
///
/// # Errors
/// When it is no licence expression.
pub(super) fn is_satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().collect(), position: 0, allowed };
    let satisfied = parser.any();
    match satisfied {
        Some(satisfied) if parser.peek().is_none() => Ok(satisfied),
        _ => bail!("{expression:?} is no licence expression"),
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    position: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.position).copied()
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.position += usize::from(found);
        found
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let word = self.peek().filter(|word| !["(", ")", "AND", "OR", "WITH"].contains(word))?;
        self.position += 1;
        Some(word)
    }

    fn any(&mut self) -> Option<bool> {
        let mut satisfied = self.all()?;
        while self.eat("OR") {
            satisfied |= self.all()?;
        }
        Some(satisfied)
    }

    fn all(&mut self) -> Option<bool> {
        let mut satisfied = self.term()?;
        while self.eat("AND") {
            satisfied &= self.term()?;
        }
        Some(satisfied)
    }

    fn term(&mut self) -> Option<bool> {
        if self.eat("(") {
            let satisfied = self.any()?;
            return self.eat(")").then_some(satisfied);
        }
        let licence = self.identifier()?;
        if self.eat("WITH") {
            let exception = self.identifier()?;
            return Some((self.allowed)(&format!("{licence} WITH {exception}")));
        }
        Some((self.allowed)(licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfied(expression: &str) -> bool {
        let allowed = |id: &str| ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].contains(&id);
        is_satisfied(expression, &allowed).unwrap()
    }

    #[test]
    fn follows_the_grammar() {
        assert!(satisfied("MIT"));
        assert!(!satisfied("GPL-3.0-only"));
        assert!(satisfied("MIT/Apache-2.0"));
        assert!(satisfied("GPL-3.0-only OR Zlib"));
        assert!(!satisfied("GPL-3.0-only AND Zlib"));
        assert!(satisfied("GPL-3.0-only AND Zlib OR MIT"), "AND binds tighter");
        assert!(!satisfied("GPL-3.0-only AND (Zlib OR MIT)"));
        assert!(satisfied("Apache-2.0 WITH LLVM-exception"));
        assert!(!satisfied("Apache-2.0"));
    }

    #[test]
    fn refuses_nonsense() {
        for expression in ["", "MIT OR", "(MIT", "MIT Zlib", "OR MIT", "MIT WITH"] {
            assert!(is_satisfied(expression, &|_| true).is_err(), "{expression:?}");
        }
    }
}
