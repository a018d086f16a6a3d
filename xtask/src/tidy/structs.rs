//! Structures have at most ten named fields: one with more has more than one concern.
//!
//! Exempt is what others lay out: `#[repr(C)]` (the kernel, ELF), protobuf messages (`prost::Message`) and
//! command lines (`clap`: one field per option). Any other exception says why, in a comment among the
//! structure's attributes: `// tidy: wide: <reason>`.
//!
//! This is a scan of text in rustfmt's form, not a parser: a structure begins with a line `struct …{` and
//! ends with a closing brace at the same indentation.

use super::Violation;
use super::source::SourceFile;

/// Most named fields of a structure.
const MAX_FIELDS: usize = 10;

/// What exempts a structure when it stands among its attributes.
const EXEMPT: [&str; 6] = ["repr(C", "Message", "Args", "Parser", "Subcommand", "// tidy: wide: "];

/// Checks the structures of one file.
pub(super) fn check(source: &SourceFile) -> Vec<Violation> {
    if !source.is_rust() {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text().lines().collect();
    let mut violations = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = struct_name(line) else { continue };
        let fields = count_fields(&lines[index..]);
        if fields > MAX_FIELDS && !is_exempt(&lines[..index]) {
            let rule = format!("{name} has {fields} fields, more than {MAX_FIELDS}");
            violations.push(Violation::new(source.line(index), rule));
        }
    }
    violations
}

/// The name in `pub struct Name<T> {`.
fn struct_name(line: &str) -> Option<&str> {
    let declaration = line.trim_start();
    let declaration = match declaration.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => declaration,
    };
    let name = declaration.strip_prefix("struct ")?;
    line.ends_with('{').then(|| name.split(|c: char| !c.is_alphanumeric() && c != '_').next()).flatten()
}

fn count_fields(lines: &[&str]) -> usize {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let outer = indentation(lines[0]);
    lines[1..]
        .iter()
        .take_while(|line| line.trim().is_empty() || indentation(line) > outer)
        .filter(|line| indentation(line) == outer + 4 && is_field(line.trim_start()))
        .count()
}

fn is_field(line: &str) -> bool {
    !line.starts_with(['#', '/']) && line.contains(": ")
}

/// Whether the attributes and comments right above a structure exempt it.
fn is_exempt(before: &[&str]) -> bool {
    before
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with(['#', '/', ')']) || line.ends_with(','))
        .any(|line| !line.starts_with("///") && EXEMPT.iter().any(|mark| line.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(attributes: &str, fields: usize) -> usize {
        let fields: String = (0..fields).map(|i| format!("    /// F: x\n    pub f{i}: u32,\n")).collect();
        let text = format!(
            "/// Repr(C): Args.\n{attributes}\npub(crate) struct Wide<T> {{\n{fields}}}\nlet a: u32;\n"
        );
        check(&SourceFile::for_test("a/src/wide.rs", &text)).len()
    }

    #[test]
    fn ten_fields_are_enough() {
        assert_eq!(broken("#[derive(Debug)]", 10), 0);
        assert_eq!(broken("#[derive(Debug)]", 11), 1);
    }

    #[test]
    fn foreign_layouts_are_exempt() {
        assert_eq!(broken("#[repr(C)]", 11), 0);
        assert_eq!(broken("#[derive(Clone, PartialEq, prost::Message)]", 11), 0);
        assert_eq!(broken("#[derive(Args)]", 11), 0);
        assert_eq!(broken("// tidy: wide: the columns of the table\n#[derive(Debug)]", 11), 0);
    }

    #[test]
    fn finds_the_name() {
        assert_eq!(struct_name("pub struct Profile {"), Some("Profile"));
        assert_eq!(struct_name("    struct Inner<'a> {"), Some("Inner"));
        assert_eq!(struct_name("pub(crate) struct Id(u32);"), None);
        assert_eq!(struct_name("// a struct in words {"), None);
    }
}
