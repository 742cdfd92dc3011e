//! Entry point of a fuzz target: builds a Lua value from bytes, and converts it to JSON and back.

use super::{prepare, read_into, write};
use mlua::{Lua, Table, Value};

/// The most steps, so that an input takes little time.
const MAX_STEPS: usize = 2000;

/// Input that is read byte by byte; zero after its end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Builds values on a stack as the bytes say, and converts the last one. Text that was written is JSON, reads back, and
/// is then written the same; JSON that is input is never a reason to panic.
pub fn fuzz_json(data: &[u8]) {
    let lua = Lua::new();
    prepare(&lua).expect("a new state has memory");
    let slot = lua.create_table().expect("a new state has memory");
    if let Ok(text) = std::str::from_utf8(data)
        && read_into(&lua, text, &slot, 1).is_ok()
    {
        serde_json::from_str::<serde_json::Value>(text).expect("text that was read is JSON");
        let value: Value = slot.raw_get(1).expect("the value was put there");
        // An integer past 2^53 is exact only inside the state, so that only the form is compared.
        let written = write(&lua, &value).expect("a value that was read is JSON");
        serde_json::from_slice::<serde_json::Value>(&written).expect("written text is JSON");
    }
    let Ok(built) = build(&lua, &mut Bytes(data)) else { return };
    // The writer is given values that come from the state, which may be of another type than those that were put there.
    slot.raw_set(3, built).expect("a new state has memory");
    let value: Value = slot.raw_get(3).expect("the value was put there");
    let Ok(written) = write(&lua, &value) else { return };
    let text = std::str::from_utf8(&written).expect("JSON is text");
    serde_json::from_str::<serde_json::Value>(text).expect("written text is JSON");
    read_into(&lua, text, &slot, 2).expect("written text reads back");
    let again: Value = slot.raw_get(2).expect("the value was put there");
    assert_eq!(write(&lua, &again).expect("a value that was read is JSON"), written, "{text}");
}

fn build(lua: &Lua, bytes: &mut Bytes<'_>) -> mlua::Result<Value> {
    let mut stack: Vec<Value> = Vec::new();
    for _ in 0..MAX_STEPS {
        if bytes.0.is_empty() {
            break;
        }
        match bytes.next() % 12 {
            0 => stack.push(Value::Nil),
            1 => stack.push(super::NULL),
            2 => stack.push(Value::Boolean(bytes.next().is_multiple_of(2))),
            3 => {
                let mut bits = [0; 8];
                let taken = bytes.take(8);
                bits[..taken.len()].copy_from_slice(taken);
                stack.push(Value::Number(f64::from_le_bytes(bits)));
            }
            4 => stack.push(Value::Number(f64::from(i8::from_le_bytes([bytes.next()])))),
            5 => {
                let length = usize::from(bytes.next());
                stack.push(Value::String(lua.create_string(bytes.take(length))?));
            }
            6 => stack.push(Value::Table(lua.create_table()?)),
            7 => {
                let array = lua.create_table()?;
                array.set_metatable(Some(super::array_metatable(lua)?))?;
                stack.push(Value::Table(array));
            }
            8 => {
                if let (Some(value), Some(table)) = (stack.pop(), top(&stack)) {
                    table.raw_push(value)?;
                }
            }
            9 => {
                let (value, key) = (stack.pop(), stack.pop());
                if let (Some(value), Some(key), Some(table)) = (value, key, top(&stack)) {
                    // Nil and NaN are no keys.
                    let _ = table.raw_set(key, value);
                }
            }
            10 => {
                if let Some(copy) = stack.last().cloned() {
                    stack.push(copy);
                }
            }
            _ => stack.push(Value::Function(lua.create_function(|_, ()| Ok(()))?)),
        }
    }
    Ok(stack.into_iter().next().unwrap_or(Value::Nil))
}

fn top(stack: &[Value]) -> Option<Table> {
    stack.last().and_then(Value::as_table).cloned()
}
