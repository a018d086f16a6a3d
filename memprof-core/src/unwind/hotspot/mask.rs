//! Names of generated classes, without what tells one copy from another.
//!
//! A JVM and its libraries make classes at run time and number them, or name them by an address or a hash: the
//! same code has another name in every run, and in a long run there are many. What tells the copies apart is left
//! out, so that they make one site. What a compiler has numbered (`Outer$1`, `lambda$run$0`) is the same in every
//! run and stays.

/// What stands before a number, at the end of a class's simple name.
const NUMBERED: [&str; 9] = [
    "$$Lambda$",
    "GeneratedMethodAccessor",
    "GeneratedConstructorAccessor",
    "GeneratedSerializationConstructorAccessor",
    "$Proxy",
    "LambdaForm$MH$",
    "LambdaForm$DMH$",
    "LambdaForm$BMH$",
    "LambdaForm$VH$",
];

/// What stands before random letters and digits, there.
const RANDOM: [&str; 4] = ["$HibernateProxy$", "$HibernateInstantiator$", "$MockitoMock$", "$ByteBuddy$"];

/// How the part of a name ends that stands before a hash, between `$$` and `$$`.
const HASHED: [&str; 2] = ["CGLIB", "Guice"];

/// A class's name as in class files (`java/util/Map$Entry`), without what names a copy of it.
pub(super) fn mask(name: &str) -> &str {
    let name = without_address(name);
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (package, simple) = name.split_at(start);
    let masked = without_number(simple).or_else(|| without_random(simple)).or_else(|| without_hash(simple));
    let kept = masked.unwrap_or(simple);
    // Proxies of interfaces that are not exported lie in packages numbered by class loader.
    match package.trim_end_matches('/').rsplit_once("jdk/proxy") {
        Some(("", loader)) if kept == "$Proxy" && is_decimal(loader) => "jdk/proxy/$Proxy",
        _ => &name[..start + kept.len()],
    }
}

/// Hidden classes: `T$$Lambda$1+0x00007f0012345678`, or with a slash.
fn without_address(name: &str) -> &str {
    match name.rsplit_once(['+', '/']) {
        Some((class, end)) if end.strip_prefix("0x").is_some_and(is_hex) => class,
        _ => name,
    }
}

fn without_number(simple: &str) -> Option<&str> {
    let unnumbered = simple.trim_end_matches(|c: char| c.is_ascii_digit());
    if unnumbered.len() == simple.len() {
        return None;
    }
    let marker = NUMBERED.iter().find(|marker| unnumbered.ends_with(**marker))?;
    // `$Proxy` and accessors are whole names: `HttpProxy12` and `My$Proxy12` are somebody's own.
    let is_whole = unnumbered.len() == marker.len();
    let may_follow = marker.starts_with("$$") || marker.starts_with("LambdaForm");
    (is_whole || may_follow).then(|| unnumbered.trim_end_matches('$'))
}

fn without_random(simple: &str) -> Option<&str> {
    let (class, end) = RANDOM.iter().find_map(|marker| {
        let at = simple.rfind(marker)?;
        Some(simple.split_at(at + marker.len()))
    })?;
    let is_random = !end.is_empty() && end.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_random && class.len() > 1).then(|| class.trim_end_matches('$'))
}

/// `Service$$EnhancerBySpringCGLIB$$1a2b3c4d`.
fn without_hash(simple: &str) -> Option<&str> {
    let (class, hash) = simple.rsplit_once("$$")?;
    let (_, tool) = class.rsplit_once("$$")?;
    (is_hex(hash) && HASHED.iter().any(|end| tool.ends_with(end))).then_some(class)
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_generated_classes_have_one_name() {
        for (name, masked) in [
            ("Work$$Lambda$14+0x00007f8c2c00a418", "Work$$Lambda"),
            ("Work$$Lambda$14/0x00007f8c2c00a418", "Work$$Lambda"),
            ("a/Work$$Lambda+0x00007f8c2c00a418", "a/Work$$Lambda"),
            ("a/Work$$Lambda$3", "a/Work$$Lambda"),
            ("java/lang/invoke/LambdaForm$MH+0x0000000800c03000", "java/lang/invoke/LambdaForm$MH"),
            ("java/lang/invoke/LambdaForm$DMH/0x0000000800c03000", "java/lang/invoke/LambdaForm$DMH"),
            ("java/lang/invoke/LambdaForm$MH$17", "java/lang/invoke/LambdaForm$MH"),
            ("java/lang/String$$StringConcat+0x0000000800c03000", "java/lang/String$$StringConcat"),
            ("a/Hidden+0x0000000800c03000", "a/Hidden"),
            (
                "jdk/internal/reflect/GeneratedMethodAccessor123",
                "jdk/internal/reflect/GeneratedMethodAccessor",
            ),
            ("sun/reflect/GeneratedConstructorAccessor1", "sun/reflect/GeneratedConstructorAccessor"),
            (
                "jdk/internal/reflect/GeneratedSerializationConstructorAccessor7",
                "jdk/internal/reflect/GeneratedSerializationConstructorAccessor",
            ),
            ("com/sun/proxy/$Proxy12", "com/sun/proxy/$Proxy"),
            ("jdk/proxy2/$Proxy34", "jdk/proxy/$Proxy"),
            ("$Proxy0", "$Proxy"),
            ("a/Foo$$EnhancerBySpringCGLIB$$1a2b3c", "a/Foo$$EnhancerBySpringCGLIB"),
            ("a/Foo$$FastClassBySpringCGLIB$$9f", "a/Foo$$FastClassBySpringCGLIB"),
            ("a/Foo$$SpringCGLIB$$0", "a/Foo$$SpringCGLIB"),
            ("a/Foo$$EnhancerByGuice$$33f1c3ba", "a/Foo$$EnhancerByGuice"),
            ("a/User$HibernateProxy$xY12ab", "a/User$HibernateProxy"),
            ("a/User$MockitoMock$1234567", "a/User$MockitoMock"),
        ] {
            assert_eq!(mask(name), masked, "{name}");
            assert_eq!(mask(masked), masked, "{masked}");
        }
    }

    #[test]
    fn ordinary_names_stay() {
        for name in [
            "",
            "/",
            "Foo$1",
            "a/Foo$1",
            "a/Foo$1Local",
            "fA12",
            "a/b1/C2",
            "java/lang/invoke/LambdaForm$1",
            "java/lang/invoke/LambdaForm$MH",
            "java/lang/invoke/BoundMethodHandle$Species_LLL",
            "a/HttpProxy12",
            "a/My$Proxy12",
            "a/MyGeneratedMethodAccessor12",
            "jdk/proxy2/Other",
            "a/Foo$$Lambda",
            "a/Foo$$Generated$$12",
            "a/$$12",
            "a/12",
            "a/Big0x12",
            "a+b/C",
            "a/0xg",
            "a/Groovy$_run_closure1",
            "a/Ünïcode$$Lambdaé",
        ] {
            assert_eq!(mask(name), name);
        }
    }
}
