//! The memory of running processes. It is only read, and nothing is stopped for it.

use std::mem::take;

use memprof_core::memory::{MemoryRead, MemoryReads, MemorySource, Part, Piece};

use super::clock::monotonic_ns;

/// Most pieces of one read (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// Reads processes' memory, and keeps what was read for one event if that is to be recorded.
pub(crate) struct ProcessMemoryReader {
    kept: Option<MemoryReads>,
    now: Option<u64>,
}

impl ProcessMemoryReader {
    /// A reader that keeps what it has read, or does not.
    pub(crate) fn new(keeps: bool) -> Self {
        Self { kept: keeps.then(MemoryReads::default), now: None }
    }

    /// The event at hand has been dealt with: what was read for it, if anything was and it was kept.
    pub(crate) fn finish_event(&mut self) -> Option<MemoryReads> {
        let now = self.now.take();
        let kept = self.kept.as_mut()?;
        let has_read = now.is_some() || !kept.reads.is_empty();
        kept.now = now.unwrap_or_default();
        has_read.then(|| take(kept))
    }

    fn keep(&mut self, tgid: u32, address: u64, bytes: &[u8], is_read: bool) {
        if let (Some(kept), Ok(length)) = (&mut self.kept, u32::try_from(bytes.len())) {
            kept.tgid = tgid;
            let bytes = if is_read { bytes.to_vec() } else { Vec::new() };
            kept.reads.push(MemoryRead { address, length, bytes });
        }
    }
}

impl MemorySource for ProcessMemoryReader {
    fn read(&mut self, tgid: u32, address: u64, buffer: &mut [u8]) -> bool {
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let is_read = read_vectors(tgid, &[local], &[remote]) == Some(buffer.len());
        self.keep(tgid, address, buffer, is_read);
        is_read
    }

    fn read_pieces(&mut self, tgid: u32, pieces: &mut [Piece]) {
        let mut rest = &mut *pieces;
        while !rest.is_empty() {
            let done = read_some(tgid, rest);
            rest = &mut rest[done..];
        }
        for piece in &*pieces {
            self.keep(tgid, piece.address, &piece.bytes, piece.is_read);
        }
    }

    fn read_parts(&mut self, tgid: u32, parts: &[Part], buffer: &mut [u8]) -> usize {
        let mut done = 0;
        for parts in parts.chunks(MAX_PIECES) {
            let wanted: usize = parts.iter().map(|part| part.length).sum();
            let room = &mut buffer[done..done + wanted];
            let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let remote: Vec<libc::iovec> = parts
                .iter()
                .map(|part| libc::iovec { iov_base: part.address as *mut libc::c_void, iov_len: part.length })
                .collect();
            let read = read_vectors(tgid, &[local], &remote).unwrap_or(0);
            done += read;
            if read < wanted {
                break;
            }
        }
        done
    }

    fn now(&mut self) -> u64 {
        *self.now.get_or_insert_with(monotonic_ns)
    }
}

/// Reads pieces up to the first one that cannot be read, which is marked so. How many have been dealt with; at
/// least one.
fn read_some(tgid: u32, pieces: &mut [Piece]) -> usize {
    let count = pieces.len().min(MAX_PIECES);
    let pieces = &mut pieces[..count];
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| libc::iovec { iov_base: piece.address as *mut libc::c_void, iov_len: piece.bytes.len() })
        .collect();
    let local: Vec<libc::iovec> = pieces
        .iter_mut()
        .map(|piece| libc::iovec { iov_base: piece.bytes.as_mut_ptr().cast(), iov_len: piece.bytes.len() })
        .collect();
    let mut left = read_vectors(tgid, &local, &remote).unwrap_or(0);
    for (index, piece) in pieces.iter_mut().enumerate() {
        piece.is_read = left >= piece.bytes.len();
        if !piece.is_read {
            return index + 1;
        }
        left -= piece.bytes.len();
    }
    count
}

/// `process_vm_readv`: the bytes read, fewer where memory is missing.
fn read_vectors(tgid: u32, local: &[libc::iovec], remote: &[libc::iovec]) -> Option<usize> {
    // SAFETY: the local vectors are buffers of the caller's that nothing else refers to meanwhile; the remote ones
    // are another process's, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(
            tgid.cast_signed(),
            local.as_ptr(),
            local.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_whole_or_not_at_all() {
        let tgid = std::process::id();
        let words: [u64; 3] = [1, 2, 3];
        let at = words.as_ptr() as u64;
        let mut memory = ProcessMemoryReader::new(true);
        let mut buffer = [0; 8];
        assert!(memory.read(tgid, at + 8, &mut buffer) && buffer == 2u64.to_ne_bytes());
        assert!(!memory.read(tgid, 8, &mut buffer));
        let piece = |address| Piece { address, bytes: vec![0; 8], is_read: false };
        let mut pieces = [piece(at), piece(16), piece(at + 16), piece(24)];
        memory.read_pieces(tgid, &mut pieces);
        assert_eq!(pieces.each_ref().map(|piece| piece.is_read), [true, false, true, false]);
        assert_eq!(pieces[2].bytes, 3u64.to_ne_bytes());
        let now = memory.now();
        assert_eq!(memory.now(), now);
        let kept = memory.finish_event().unwrap();
        assert_eq!((kept.tgid, kept.now, kept.reads.len()), (tgid, now, 6));
        assert_eq!(kept.reads.iter().filter(|read| read.bytes.is_empty()).count(), 3);
        assert_eq!(memory.finish_event(), None);
    }
}
