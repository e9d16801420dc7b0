//! Smoke.
use kvb::*;
#[test]
fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.kvb");
    for background in [false, true] {
        let _ = std::fs::remove_file(&path);
        let b = Bucket::create(&path, Options::default().background(background).durability(Durability::SyncOnce).overlay_min(5000)).unwrap();
        println!("empty {}", std::fs::metadata(&path).unwrap().len());
        for i in 0..200u32 {
            let mut batch = Batch::new();
            for j in 0..500u32 { batch.put((i*500+j).to_be_bytes(), vec![7u8; 100]); }
            b.commit(batch).unwrap();
        }
        for i in 0..100_000u32 { assert_eq!(b.get(i.to_be_bytes()).unwrap().unwrap().len(), 100, "{i}"); }
        assert!(b.get(b"nope").unwrap().is_none());
        println!("{:?}", b.stats().unwrap());
        b.close().unwrap();
        let b = Bucket::open(&path, Options::default()).unwrap();
        println!("{:?}", b.mount_report());
        for i in 0..100_000u32 { assert_eq!(b.get(i.to_be_bytes()).unwrap().unwrap().len(), 100); }
        assert!(b.delete(5u32.to_be_bytes()).unwrap());
        assert!(!b.exists(5u32.to_be_bytes()).unwrap());
    }
}
