//! The median of measurements, of which there is an odd number.

pub fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).expect("measurements can be compared"));
    values[values.len() / 2]
}
