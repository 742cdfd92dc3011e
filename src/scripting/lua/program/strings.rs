//! The ends of strings and long comments in a Lua source.

/// The length of the quoted string that `lua` begins with. An unclosed string ends with its line.
pub fn string_length(lua: &[u8], quote: u8) -> usize {
    let mut at = 1;
    loop {
        at += match &lua[at..] {
            [] => return lua.len(),
            [b'\\', _, ..] => 2,
            [byte, ..] if *byte == quote || *byte == b'\n' => return at + 1,
            _ => 1,
        };
    }
}

/// The length of the `[[…]]` or `[==[…]==]` that `lua` begins with, or of a single bracket. An unclosed one extends to
/// the end.
pub fn long_bracket_length(lua: &[u8]) -> usize {
    let level = lua[1..].iter().take_while(|byte| **byte == b'=').count();
    let opened = level + 2;
    if lua.get(opened - 1) != Some(&b'[') {
        return 1;
    }
    let closer = [b"]", &*vec![b'='; level], b"]"].concat();
    let inside = lua[opened..].windows(closer.len()).position(|bytes| bytes == closer);
    inside.map_or(lua.len(), |inside| opened + inside + closer.len())
}
