//! Bodies that brokers compressed. Forebay compresses none.

use super::layout::{Record, sys_flag};
use crate::record::common::check::BODY_LEN_MAX;
use std::borrow::Cow;
use std::io::Read;

impl<'a> Record<'a> {
    /// The body, decompressed if necessary.
    ///
    /// # Errors
    ///
    /// The reason as text, if the compressed bytes are damaged or decompress to more than
    /// [`BODY_LEN_MAX`].
    pub fn body(&self) -> Result<Cow<'a, [u8]>, String> {
        match self.sys_flag() & sys_flag::COMPRESSED {
            0 => Ok(Cow::Borrowed(self.stored_body())),
            _ => decompress(self.stored_body(), self.sys_flag()).map(Cow::Owned),
        }
    }
}

/// Decompresses a body. `flag` tells how: zlib, LZ4 (frame) or zstd.
///
/// # Errors
///
/// The reason as text: an invalid kind, damaged bytes, or more than [`BODY_LEN_MAX`] bytes.
pub fn decompress(stored: &[u8], flag: u32) -> Result<Vec<u8>, String> {
    match (flag & sys_flag::COMPRESSION) >> 8 {
        0 | 3 => read_bounded(flate2::read::ZlibDecoder::new(stored)),
        1 => read_bounded(lz4_flex::frame::FrameDecoder::new(stored)),
        2 => {
            let mut decoder = zstd::Decoder::new(stored).map_err(|e| e.to_string())?;
            decoder.window_log_max(27).map_err(|e| e.to_string())?;
            read_bounded(decoder)
        }
        kind => Err(format!("compression kind {kind} does not exist")),
    }
}

fn read_bounded(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let limit = BODY_LEN_MAX as u64 + 1;
    reader
        .take(limit)
        .read_to_end(&mut body)
        .map_err(|e| e.to_string())?;
    if body.len() > BODY_LEN_MAX {
        return Err(format!("it decompresses to more than {BODY_LEN_MAX} bytes"));
    }
    Ok(body)
}
