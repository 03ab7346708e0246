//! Reads values of foreign arrays of several types. Each access is bounds-checked: an invalid array
//! gives an error and never exposes other memory.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, OffsetSizeTrait};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};
use arrow_schema::{DataType, TimeUnit};
use std::ops::Range;

/// An array whose offsets, views or dictionary keys point outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A value, or null.
pub(super) type Maybe<T> = Result<Option<T>, Broken>;

/// Text or bytes.
pub(super) struct Bytes<'a> {
    nulls: Option<&'a NullBuffer>,
    kind: BytesKind<'a>,
}

enum BytesKind<'a> {
    Narrow(&'a [i32], &'a [u8]),
    Wide(&'a [i64], &'a [u8]),
    /// The views, the same views as bytes, and the data buffers.
    Views(&'a [u128], &'a [u8], &'a [Buffer]),
    Fixed(usize, &'a [u8]),
    Dictionary(Integers<'a>, Box<Bytes<'a>>),
}

/// Whether [`Bytes`] reads this type.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(key, value) => key.is_dictionary_key_type() && is_bytes(value),
        DataType::FixedSizeBinary(width) => *width >= 0,
        other => matches!(
            other,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
        ),
    }
}

impl<'a> Bytes<'a> {
    /// `None` if the type is not one of [`is_bytes`].
    pub(super) fn new(array: &'a dyn Array) -> Option<Bytes<'a>> {
        let kind = match array.data_type() {
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                BytesKind::Narrow(array.value_offsets(), array.values())
            }
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                BytesKind::Narrow(array.value_offsets(), array.values())
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                BytesKind::Wide(array.value_offsets(), array.values())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                BytesKind::Wide(array.value_offsets(), array.values())
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                let views = array.views();
                BytesKind::Views(views, views.inner(), array.data_buffers())
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                let views = array.views();
                BytesKind::Views(views, views.inner(), array.data_buffers())
            }
            DataType::FixedSizeBinary(width) => {
                let array = array.as_fixed_size_binary_opt()?;
                BytesKind::Fixed(usize::try_from(*width).ok()?, array.values())
            }
            DataType::Dictionary(_, _) => {
                let array = array.as_any_dictionary_opt()?;
                let values = Bytes::new(array.values().as_ref())?;
                BytesKind::Dictionary(Integers::new(array.keys())?, Box::new(values))
            }
            _ => return None,
        };
        let nulls = array.nulls();
        Some(Bytes { nulls, kind })
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Maybe<&'a [u8]> {
        if self.nulls.is_some_and(|nulls| is_null(nulls, row)) {
            return Ok(None);
        }
        let value = match &self.kind {
            BytesKind::Narrow(offsets, bytes) => {
                span(offsets, row).and_then(|range| bytes.get(range))
            }
            BytesKind::Wide(offsets, bytes) => {
                span(offsets, row).and_then(|range| bytes.get(range))
            }
            BytesKind::Views(views, raw, buffers) => view(views, raw, buffers, row),
            BytesKind::Fixed(width, bytes) => {
                let start = row.checked_mul(*width).ok_or(Broken)?;
                bytes.get(start..start + width)
            }
            BytesKind::Dictionary(keys, values) => {
                return match keys.get(row)? {
                    Some(key) => values.get(usize::try_from(key).map_err(|_| Broken)?),
                    None => Ok(None),
                };
            }
        };
        value.map(Some).ok_or(Broken)
    }
}

/// Whether a row is null. Rows after the end count as null.
#[inline]
fn is_null(nulls: &NullBuffer, row: usize) -> bool {
    row >= nulls.len() || nulls.is_null(row)
}

#[inline]
fn span<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> Option<Range<usize>> {
    let start = offsets.get(row)?.to_usize()?;
    let end = offsets.get(row + 1)?.to_usize()?;
    Some(start..end)
}

#[inline]
fn view<'a>(
    views: &'a [u128],
    raw: &'a [u8],
    buffers: &'a [Buffer],
    row: usize,
) -> Option<&'a [u8]> {
    let view = views.get(row)?;
    let len = ByteView::from(*view).length;
    if len <= MAX_INLINE_VIEW_LEN {
        let start = row * size_of::<u128>() + size_of::<u32>();
        return raw.get(start..start + len as usize);
    }
    let long = ByteView::from(*view);
    let start = long.offset as usize;
    let buffer = buffers.get(long.buffer_index as usize)?;
    buffer.as_slice().get(start..start + len as usize)
}

/// Whole numbers of any width.
pub(super) struct Integers<'a> {
    nulls: Option<&'a NullBuffer>,
    kind: IntegerKind<'a>,
}

enum IntegerKind<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl<'a> Integers<'a> {
    /// `None` if the type is not an integer.
    pub(super) fn new(array: &'a dyn Array) -> Option<Integers<'a>> {
        let kind = match array.data_type() {
            DataType::Int8 => IntegerKind::I8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => IntegerKind::I16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => IntegerKind::I32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => IntegerKind::I64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt8 => IntegerKind::U8(array.as_primitive::<UInt8Type>().values()),
            DataType::UInt16 => IntegerKind::U16(array.as_primitive::<UInt16Type>().values()),
            DataType::UInt32 => IntegerKind::U32(array.as_primitive::<UInt32Type>().values()),
            DataType::UInt64 => IntegerKind::U64(array.as_primitive::<UInt64Type>().values()),
            _ => return None,
        };
        let nulls = array.nulls();
        Some(Integers { nulls, kind })
    }

    /// The number. One above `i64::MAX` becomes `i64::MAX`, which is too large for every use.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Maybe<i64> {
        if self.nulls.is_some_and(|nulls| is_null(nulls, row)) {
            return Ok(None);
        }
        let value = match &self.kind {
            IntegerKind::I8(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::I16(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::I32(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::I64(values) => values.get(row).copied(),
            IntegerKind::U8(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::U16(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::U32(values) => values.get(row).map(|v| i64::from(*v)),
            IntegerKind::U64(values) => values
                .get(row)
                .map(|v| i64::try_from(*v).unwrap_or(i64::MAX)),
        };
        value.map(Some).ok_or(Broken)
    }
}

/// Times in milliseconds since the epoch, from any unit. Integers are already milliseconds.
pub(super) struct Times<'a> {
    nulls: Option<&'a NullBuffer>,
    values: &'a [i64],
    unit: TimeUnit,
}

impl<'a> Times<'a> {
    /// `None` if the type is neither a timestamp nor int64.
    pub(super) fn new(array: &'a dyn Array) -> Option<Times<'a>> {
        let (values, unit) = match array.data_type() {
            DataType::Int64 => (
                array.as_primitive::<Int64Type>().values(),
                TimeUnit::Millisecond,
            ),
            DataType::Timestamp(unit, _) => {
                let values = match unit {
                    TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
                    TimeUnit::Millisecond => {
                        array.as_primitive::<TimestampMillisecondType>().values()
                    }
                    TimeUnit::Microsecond => {
                        array.as_primitive::<TimestampMicrosecondType>().values()
                    }
                    TimeUnit::Nanosecond => {
                        array.as_primitive::<TimestampNanosecondType>().values()
                    }
                };
                (values, *unit)
            }
            _ => return None,
        };
        Some(Times {
            nulls: array.nulls(),
            values,
            unit,
        })
    }

    /// The time, rounded down. A number of seconds that does not fit becomes the latest time.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Maybe<i64> {
        if self.nulls.is_some_and(|nulls| is_null(nulls, row)) {
            return Ok(None);
        }
        let value = *self.values.get(row).ok_or(Broken)?;
        Ok(Some(match self.unit {
            TimeUnit::Second => value.saturating_mul(1000),
            TimeUnit::Millisecond => value,
            TimeUnit::Microsecond => value.div_euclid(1000),
            TimeUnit::Nanosecond => value.div_euclid(1_000_000),
        }))
    }
}

/// Lists: each row is a range of a child array.
pub(super) struct Lists<'a> {
    nulls: Option<&'a NullBuffer>,
    ends: Ends<'a>,
}

enum Ends<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl<'a> Lists<'a> {
    /// The lists and their child; `None` if the type is neither a list nor a map.
    pub(super) fn new(array: &'a dyn Array) -> Option<(Lists<'a>, &'a dyn Array)> {
        let (ends, child): (_, &dyn Array) = match array.data_type() {
            DataType::List(_) => {
                let array = array.as_list::<i32>();
                (Ends::Narrow(array.value_offsets()), array.values())
            }
            DataType::LargeList(_) => {
                let array = array.as_list::<i64>();
                (Ends::Wide(array.value_offsets()), array.values())
            }
            DataType::Map(_, _) => {
                let array = array.as_map();
                (Ends::Narrow(array.value_offsets()), array.entries())
            }
            _ => return None,
        };
        let nulls = array.nulls();
        Some((Lists { nulls, ends }, child))
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Maybe<Range<usize>> {
        if self.nulls.is_some_and(|nulls| is_null(nulls, row)) {
            return Ok(None);
        }
        let range = match &self.ends {
            Ends::Narrow(ends) => span(ends, row),
            Ends::Wide(ends) => span(ends, row),
        };
        range.map(Some).ok_or(Broken)
    }
}
