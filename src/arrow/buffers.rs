//! Arrow buffers over mapped memory, and arrays of views into them.

#![allow(unsafe_code)]

use crate::region::Region;
use arrow_array::BinaryViewArray;
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// An Arrow buffer over a part of a region, which keeps the region mapped. `None` if the part is
/// not entirely readable.
pub(super) fn region_buffer(region: &Arc<Region>, part: Range<u64>) -> Option<Buffer> {
    let start = usize::try_from(part.start).ok()?;
    let len = usize::try_from(part.end).ok()?.checked_sub(start)?;
    let bytes = region.slice_again(start, len)?;
    let address = NonNull::from(bytes).cast::<u8>();
    let owner = Arc::clone(region);
    // SAFETY: `address..+len` are readable bytes of the region, which no one stores to again; the
    // buffer's owner is the region itself, whose map lives as long as it does and does not move.
    Some(unsafe { Buffer::from_custom_allocation(address, len, owner) })
}

/// An array of views into `buffers`; `None` if a view points out of its buffer. The caller must
/// ensure that the prefix in each long view matches its value, and that short values are padded
/// with zeros: checking that would load from every value.
pub(super) fn view_array(views: Vec<u128>, buffers: Vec<Buffer>) -> Option<BinaryViewArray> {
    let lens: Vec<u64> = buffers.iter().map(|buffer| buffer.len() as u64).collect();
    let is_sound = |view: &u128| {
        let view = ByteView::from(*view);
        let end = u64::from(view.offset) + u64::from(view.length);
        let buffer = || lens.get(view.buffer_index as usize);
        view.length <= MAX_INLINE_VIEW_LEN || buffer().is_some_and(|len| end <= *len)
    };
    views.iter().all(is_sound).then(|| {
        // SAFETY: every view was just found to lie within its buffer, or to be its own value.
        unsafe { BinaryViewArray::new_unchecked(ScalarBuffer::from(views), buffers.into(), None) }
    })
}
