//! What never changes after creation: the sizes of the files and the store host.

use super::page::StatePage;
use super::page_layout::{
    AT_CRC, AT_HOST, AT_HOST_LEN, AT_INDEX_ENTRIES, AT_INDEX_SLOTS, AT_LOG_FILE_LEN,
    AT_QUEUE_FILE_ENTRIES,
};
use crate::engine::directory::geometry::Geometry;
use crate::num::short;
use crate::record::HostBytes;

impl StatePage {
    /// Checksum of the fields that never change after creation: host and sizes.
    fn fixed_crc(&self) -> u32 {
        crc32fast::hash(&self.fields.words::<{ AT_CRC - AT_HOST_LEN }>(AT_HOST_LEN))
    }

    fn fixed_holds(&self) -> bool {
        self.fields.word(AT_CRC) == self.fixed_crc()
    }

    /// Sizes of the files; `None` if they were never set, are damaged or are out of bounds.
    pub fn geometry(&self) -> Option<Geometry> {
        if !self.fixed_holds() {
            return None;
        }
        let geometry = Geometry {
            log_file_len: self.fields.load(AT_LOG_FILE_LEN),
            queue_file_entries: self.fields.load(AT_QUEUE_FILE_ENTRIES),
            index_slots: self.fields.word(AT_INDEX_SLOTS),
            index_entries: self.fields.word(AT_INDEX_ENTRIES),
        };
        geometry.is_within_bounds().then_some(geometry)
    }

    /// Saves the sizes of the files and the store host.
    pub fn set_fixed(&self, geometry: &Geometry, host: &HostBytes) {
        self.set_geometry(geometry);
        self.set_host(host);
        self.fields.set_word(AT_CRC, self.fixed_crc());
    }

    fn set_geometry(&self, geometry: &Geometry) {
        self.fields.store(AT_LOG_FILE_LEN, geometry.log_file_len);
        self.fields
            .store(AT_QUEUE_FILE_ENTRIES, geometry.queue_file_entries);
        self.fields.set_word(AT_INDEX_SLOTS, geometry.index_slots);
        self.fields
            .set_word(AT_INDEX_ENTRIES, geometry.index_entries);
    }

    /// The store host that was set at creation.
    pub fn host(&self) -> Option<HostBytes> {
        if !self.fixed_holds() {
            return None;
        }
        let bytes = self.fields.words::<20>(AT_HOST);
        HostBytes::from_bytes(bytes.get(..self.fields.word(AT_HOST_LEN) as usize)?)
    }

    fn set_host(&self, host: &HostBytes) {
        let bytes = host.as_bytes();
        self.fields.set_words(AT_HOST, bytes);
        self.fields.set_word(AT_HOST_LEN, short(bytes.len()));
    }
}
