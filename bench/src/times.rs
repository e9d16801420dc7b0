//! Latencies of one workload.

use anyhow::{Result, ensure};

/// Sorted samples.
pub struct Times(Vec<f64>);

impl Times {
    /// Fails if there are none.
    pub fn new(mut samples: Vec<f64>) -> Result<Self> {
        ensure!(!samples.is_empty(), "nothing was timed");
        samples.sort_by(f64::total_cmp);
        Ok(Self(samples))
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The sample below which `part` of all samples lie.
    pub fn at(&self, part: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * part).round() as usize]
    }
}
