//! Reading and writing the bytes of ledger values.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use ledger::{Reader, Writer};

#[test]
fn compact_sizes_have_one_form() {
    let cases: [(u64, &[u8]); 9] = [
        (0, &[0]),
        (252, &[252]),
        (253, &[0xfd, 253, 0]),
        (65_535, &[0xfd, 255, 255]),
        (65_536, &[0xfe, 0, 0, 1, 0]),
        (u64::from(u32::MAX), &[0xfe, 255, 255, 255, 255]),
        (1 << 32, &[0xff, 0, 0, 0, 0, 1, 0, 0, 0]),
        (1 << 40, &[0xff, 0, 0, 0, 0, 0, 1, 0, 0]),
        (u64::MAX, &[0xff, 255, 255, 255, 255, 255, 255, 255, 255]),
    ];
    for (value, bytes) in cases {
        let mut writer = Writer::new();
        writer.compact_size(value);
        assert_eq!(writer.finish(), bytes);
        let mut reader = Reader::new(bytes);
        assert_eq!(reader.compact_size(), Ok(value));
        reader.finish().unwrap();
        for cut in 0..bytes.len() {
            assert!(Reader::new(&bytes[..cut]).compact_size().is_err());
        }
    }
    let longer: [&[u8]; 6] = [
        &[0xfd, 0, 0],
        &[0xfd, 252, 0],
        &[0xfe, 0, 0, 0, 0],
        &[0xfe, 255, 255, 0, 0],
        &[0xff, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xff, 255, 255, 255, 255, 0, 0, 0, 0],
    ];
    for bytes in longer {
        let error = Reader::new(bytes).compact_size().unwrap_err();
        assert_eq!(error.at, 0, "{error}");
    }
}

#[test]
fn counts_are_never_believed_beyond_what_is_there() {
    let mut writer = Writer::new();
    writer.compact_size(u64::MAX);
    assert!(Reader::new(writer.as_bytes()).compact_count(1).is_err());
    assert!(Reader::new(writer.as_bytes()).compact_bytes().is_err());
    let mut writer = Writer::new();
    writer.compact_size(3).bytes(&[0; 12]);
    assert_eq!(Reader::new(writer.as_bytes()).compact_count(4), Ok(3));
    assert!(Reader::new(writer.as_bytes()).compact_count(5).is_err());
    assert!(Reader::new(&[]).check_count(u64::MAX, usize::MAX).is_err());
}

#[test]
fn nothing_may_be_left_over() {
    let mut writer = Writer::with_capacity(32);
    writer.u8(1).u16_le(2).u32_le(3).u64_le(4).compact_bytes(b"five").bytes(&[6]);
    assert_eq!((writer.len(), writer.is_empty()), (21, false));
    let bytes = writer.finish();
    let mut reader = Reader::new(&bytes);
    assert_eq!(reader.u8(), Ok(1));
    assert_eq!(reader.u16_le(), Ok(2));
    assert_eq!(reader.u32_le(), Ok(3));
    assert_eq!(reader.u64_le(), Ok(4));
    assert_eq!(reader.compact_bytes(), Ok(&b"five"[..]));
    let unfinished = reader.clone().finish().unwrap_err();
    assert_eq!((unfinished.at, reader.position(), reader.remaining()), (20, 20, 1));
    assert_eq!(reader.rest(), [6]);
    assert_eq!(reader.clone().finish(), Ok(()));
    assert!(reader.array::<1>().is_err());
}
