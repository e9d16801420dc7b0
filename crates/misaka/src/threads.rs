//! Work that is the same for every part of something, done by several threads.

/// Cuts a list into parts, one for each thread, and gives what became of each, in order. Short lists are not worth a thread.
pub(crate) fn over<'a, T: Sync, R: Send>(
    items: &'a [T],
    threads: usize,
    least: usize,
    work: impl Fn(&'a [T]) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len() / least.max(1)).max(1);
    if threads == 1 {
        return vec![work(items)];
    }
    let each = items.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> =
            items.chunks(each).skip(1).map(|part| scope.spawn(move || work(part))).collect();
        let mut done = vec![work(items.chunks(each).next().unwrap_or(&[]))];
        for other in others {
            match other.join() {
                Ok(result) => done.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}
