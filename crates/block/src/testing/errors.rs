//! Lists of errors for snapshots of their messages: with every variant of an enum, or the test does
//! not compile.

use std::fmt::{Debug, Display};

/// A vector with at least one value for each variant of an enum. The patterns are those of a
/// `match` without a wildcard, so a variant without a row is a compile error; each value must match
/// the pattern of its row.
///
/// ```
/// use block::BlockSize;
/// let sizes = block::every_variant!(BlockSize {
///     BlockSize::B512 => [BlockSize::B512],
///     BlockSize::B4096 => [BlockSize::B4096],
/// });
/// assert_eq!(sizes.len(), 2);
/// ```
#[macro_export]
macro_rules! every_variant {
    ($enum:ty { $($pattern:pat => [$($value:expr),+ $(,)?]),+ $(,)? }) => {{
        fn row(value: &$enum) -> &'static str {
            match value {
                $($pattern => stringify!($pattern),)+
            }
        }
        let mut values: Vec<$enum> = Vec::new();
        $($(
            let value: $enum = $value;
            assert_eq!(row(&value), stringify!($pattern), "the value is of another row");
            values.push(value);
        )+)+
        values
    }};
}

/// A line for each error: its variant and its message.
pub fn messages<E: Debug + Display>(errors: &[E]) -> String {
    let line = |error: &E| {
        let debug = format!("{error:?}");
        let variant = debug.split(|c: char| !c.is_alphanumeric()).next();
        format!("{}: {error}\n", variant.unwrap_or_default())
    };
    errors.iter().map(line).collect()
}
