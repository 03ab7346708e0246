//! Columns of bodies, copied or as views.

use super::buffers;
use super::offsets::offset;
use super::source::records;
use crate::engine::{RowRef, Rows};
use crate::region::Region;
use arrow_array::builder::NullBufferBuilder;
use arrow_array::{ArrayRef, BinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};
use arrow_schema::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;

/// Bodies, copied one after another.
///
/// The stream limits a batch so that the offsets fit: at most [`crate::scan::BATCH_BYTES_MAX`]
/// bytes, or one body, which is shorter than a record.
pub(super) struct BodyColumn {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    /// Set if a body may stand for null.
    nulls: Option<NullBufferBuilder>,
}

impl BodyColumn {
    /// Reserves room for `rows_hint` rows and a little more than `len_hint` bytes, because the
    /// batches of a scan are similar.
    pub(super) fn new(rows_hint: usize, len_hint: usize) -> BodyColumn {
        let mut offsets = Vec::with_capacity(rows_hint + 1);
        offsets.push(0);
        BodyColumn {
            offsets,
            bytes: Vec::with_capacity(len_hint + len_hint / 64),
            nulls: None,
        }
    }

    /// Makes each body null for which [`Row::is_null`](crate::record::Row::is_null) holds.
    pub(super) fn with_nulls(mut self) -> BodyColumn {
        self.nulls = Some(NullBufferBuilder::new(0));
        self
    }

    pub(super) fn append(&mut self, rows: &Rows, some: &[RowRef], unpacked: Option<&[u8]>) {
        if let Some(body) = unpacked {
            self.bytes.extend_from_slice(body);
            self.offsets.push(offset(self.bytes.len()));
            if let Some(nulls) = &mut self.nulls {
                nulls.append_non_null();
            }
            return;
        }
        let len: usize = some.iter().map(|row| row.layout.body_len() as usize).sum();
        self.bytes.reserve(len);
        self.offsets.reserve(some.len());
        for record in records(rows, some) {
            self.bytes.extend_from_slice(record.stored_body());
            self.offsets.push(offset(self.bytes.len()));
            if let Some(nulls) = &mut self.nulls {
                nulls.append(!record.is_null());
            }
        }
    }

    pub(super) fn finish(self) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let nulls = self.nulls.and_then(|mut nulls| nulls.finish());
        let array = BinaryArray::try_new(offsets, Buffer::from_vec(self.bytes), nulls)?;
        Ok(Arc::new(array))
    }
}

/// A region is divided into windows of this size, so that offsets into a window fit 31 bits: a body
/// that begins below 1 GiB ends below 2 GiB.
const WINDOW_SPAN: u64 = 1 << 30;
/// Buffer number of decompressed bodies until the real one is known.
const UNPACKED: u32 = u32::MAX;

/// Views of bodies in place. A data buffer is a window of a mapped file, from the first to the last
/// body of the batch in it, and shares the file's region.
#[derive(Default)]
pub(super) struct ViewColumn {
    /// Until [`ViewColumn::finish`], offsets count from the start of the window's span.
    views: Vec<u128>,
    windows: Vec<Window>,
    by_span: HashMap<(usize, u64), u32, foldhash::fast::RandomState>,
    unpacked: Vec<u8>,
}

struct Window {
    region: Arc<Region>,
    span: u64,
    start: u64,
    end: u64,
}

impl ViewColumn {
    /// Reserves room for `rows_hint` rows.
    pub(super) fn new(rows_hint: usize) -> ViewColumn {
        ViewColumn {
            views: Vec::with_capacity(rows_hint),
            ..ViewColumn::default()
        }
    }

    pub(super) fn append(&mut self, rows: &Rows, some: &[RowRef], unpacked: Option<&[u8]>) {
        if let Some(body) = unpacked {
            let view = view(body, UNPACKED, low(self.unpacked.len() as u64));
            if is_long(view) {
                self.unpacked.extend_from_slice(body);
            }
            self.views.push(view);
            return;
        }
        self.views.reserve(some.len());
        let mut last = None;
        for (row, record) in some.iter().zip(records(rows, some)) {
            let body = record.stored_body();
            let start = u64::from(row.start) + u64::from(row.layout.body_at());
            let span = start / WINDOW_SPAN;
            if body.len() <= MAX_INLINE_VIEW_LEN as usize {
                self.views.push(view(body, 0, 0));
                continue;
            }
            let place = (row.region, span);
            let index = match last {
                Some((known, index)) if known == place => index,
                _ => self.window(rows, row, span, start),
            };
            last = Some((place, index));
            if let Some(window) = self.windows.get_mut(index as usize) {
                window.start = window.start.min(start);
                window.end = window.end.max(start + body.len() as u64);
            }
            self.views.push(view(body, index, low(start % WINDOW_SPAN)));
        }
    }

    /// Number of the window for a row's region and span; a new one is added if needed.
    fn window(&mut self, rows: &Rows, row: &RowRef, span: u64, start: u64) -> u32 {
        let Some(region) = rows.regions.get(row.region as usize) else {
            unreachable!("a row names a region of its rows")
        };
        let windows = &mut self.windows;
        *self
            .by_span
            .entry((region.address(), span))
            .or_insert_with(|| {
                windows.push(Window {
                    region: Arc::clone(region),
                    span,
                    start,
                    end: start,
                });
                low(windows.len() as u64 - 1)
            })
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let unpacked_index = low(self.windows.len() as u64);
        let base = |window: &Window| low(window.start - window.span * WINDOW_SPAN);
        let bases: Vec<u32> = self.windows.iter().map(base).collect();
        for view in self.views.iter_mut().filter(|view| is_long(**view)) {
            let mut long = ByteView::from(*view);
            match bases.get(long.buffer_index as usize) {
                Some(base) => long.offset -= base,
                None => long.buffer_index = unpacked_index,
            }
            *view = long.as_u128();
        }
        let mut buffers = Vec::with_capacity(self.windows.len() + 1);
        for window in self.windows {
            let buffer = buffers::region_buffer(&window.region, window.start..window.end);
            buffers.push(buffer.ok_or_else(|| {
                let text = format!("bytes of {} not readable", window.region.path().display());
                ArrowError::MemoryError(text)
            })?);
        }
        if !self.unpacked.is_empty() {
            buffers.push(Buffer::from_vec(self.unpacked));
        }
        let array = buffers::view_array(self.views, buffers).ok_or_else(|| {
            ArrowError::InvalidArgumentError("a view points outside its buffer".to_owned())
        })?;
        Ok(Arc::new(array))
    }
}

/// A number that fits 32 bits because batches and windows are limited.
#[inline]
fn low(number: u64) -> u32 {
    match u32::try_from(number) {
        Ok(number) => number,
        Err(_) => unreachable!("batches and windows are smaller than 2 GiB"),
    }
}

#[inline]
fn is_long(view: u128) -> bool {
    ByteView::from(view).length > MAX_INLINE_VIEW_LEN
}

/// The view of a body: it contains a short body, and the place of a longer one.
#[inline]
fn view(body: &[u8], buffer: u32, offset: u32) -> u128 {
    let len = low(body.len() as u64);
    match body.first_chunk::<4>() {
        Some(prefix) if len > MAX_INLINE_VIEW_LEN => ByteView::new(len, prefix)
            .with_buffer_index(buffer)
            .with_offset(offset)
            .as_u128(),
        _ => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            if let Some(to) = bytes.get_mut(4..4 + body.len()) {
                to.copy_from_slice(body);
            }
            u128::from_le_bytes(bytes)
        }
    }
}
