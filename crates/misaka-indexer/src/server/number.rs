//! A u64 as the server's NUMERIC: digits to the base of 10,000, the highest first.

use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// What one digit counts.
const BASE: u64 = 10_000;

type Wrong = Box<dyn std::error::Error + Sync + Send>;

/// A number as large as a u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl ToSql for Number {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Wrong> {
        let mut digits: Vec<i16> = Vec::with_capacity(5);
        let mut rest = self.0;
        while rest > 0 {
            digits.push(i16::try_from(rest % BASE)?);
            rest /= BASE;
        }
        let count = i16::try_from(digits.len())?;
        // How many digits, the weight of the first one, no sign, nothing behind the point.
        for half in [count, count.saturating_sub(1), 0, 0].iter().chain(digits.iter().rev()) {
            out.extend_from_slice(&half.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    accepts!(NUMERIC);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Number {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Number, Wrong> {
        let mut halves = raw.chunks(2).map(|half| half.try_into().map(i16::from_be_bytes));
        let mut next = || halves.next().ok_or("the number is cut off")?.map_err(Wrong::from);
        let (count, weight, sign, _) = (next()?, next()?, next()?, next()?);
        if sign != 0 || (count > 0 && (weight < 0 || count > weight + 1)) {
            return Err("this is no whole number from 0 on".into());
        }
        let mut number: u64 = 0;
        // Zeros at the end are left out.
        for place in 0..=if count == 0 { -1 } else { weight } {
            let digit = if place < count { u64::try_from(next()?)? } else { 0 };
            number = number
                .checked_mul(BASE)
                .and_then(|number| number.checked_add(digit))
                .ok_or("the number is too large")?;
        }
        Ok(Number(number))
    }

    accepts!(NUMERIC);
}
