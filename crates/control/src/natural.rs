//! The order in which people list names: `v2` before `v10`.

use std::cmp::Ordering;

/// Sorts by a text that each value has.
pub(crate) fn sort_by_text<T>(values: &mut [T], text: impl Fn(&T) -> &str) {
    values.sort_by(|a, b| compare(text(a), text(b)));
}

/// Compares digits by their number and everything else by its bytes. Texts that differ only in
/// leading zeros are compared by their bytes at last, so only equal texts are equal.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (x, y);
            (x, left) = split_number(left);
            (y, right) = split_number(right);
            x.len().cmp(&y.len()).then(x.cmp(y))
        } else {
            let order = x.cmp(y);
            (left, right) = (&left[1..], &right[1..]);
            order
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then(a.cmp(b))
}

/// The digits that a text begins with, without leading zeros, and the rest.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let order = [
            "",
            "1",
            "02",
            "2",
            "10",
            "99999999999999999999999",
            "nvme+tcp://127.0.0.1:4420",
            "nvme+tcp://127.0.0.1:10000",
            "nvme+tcp://127.0.0.11:4420",
            "v",
            "v2",
            "v2.1",
            "v10",
            "va",
        ];
        let mut sorted = order;
        sorted.reverse();
        sort_by_text(&mut sorted, |text| text);
        assert_eq!(sorted, order);
    }

    proptest! {
        #[test]
        fn it_is_an_order(a in "[a0-2]{0,6}", b in "[a0-2]{0,6}", c in "[a0-2]{0,6}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &b) == Ordering::Equal, a == b);
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }
    }
}
