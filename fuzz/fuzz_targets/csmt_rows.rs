//! Any bytes to the decoders of a UTxO set's rows.

#![no_main]

use csmt::format::config::Config;
use csmt::format::point::Point;
use csmt::format::rollback::{self, RollbackPoint};
use csmt::format::{node, tuft};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(config) = Config::from_bytes(bytes) {
        assert_eq!(config.to_bytes(), bytes);
    }
    if let Ok(point) = Point::from_bytes(bytes) {
        assert_eq!(point.to_bytes(), bytes);
    }
    if let Ok(point) = RollbackPoint::from_bytes(bytes) {
        assert_eq!(point.to_bytes(), bytes);
    }
    if let Ok(point) = rollback::point(bytes) {
        assert_eq!(rollback::key(&point), bytes);
    }
    if let Ok(found) = node::node(bytes) {
        assert_eq!(node::value(&found), bytes);
    }
    let _ = node::position(bytes);
    for form in [tuft::Form::Service, tuft::Form::Packed] {
        let _ = form.position(bytes);
        if let Ok(found) = form.tuft(bytes) {
            assert_eq!(found.to_bytes(form), bytes);
        }
    }
    let _ = csmt::address(bytes);
    let _ = csmt::unpacked(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = csmt::Path::parse(text);
    }
});
