//! Rows of `csmt`: a tuft of nodes, those at a position and close below it.
//!
//! A block changes a node at every depth of the paths that it touches. Rows of one node each would be fourteen for a change. So the nodes of
//! four depths share a row, up to fifteen: that makes four or five rows for a change, and half as many bytes more.
//!
//! RocksDB has the service's tables, whose tufts have one depth: a node to a row. What is shown of other engines are such rows too.
//!
//! Bytes of a packed tuft: which nodes there are, u16be, a bit for each in the order of their paths, the lowest first; then each in that
//! order: its jump as it is hashed, and its digest.

use alloc::vec::Vec;

use super::node;
use crate::cbor::Malformed;
use crate::hash::{Hash, Node, unpacked};
use crate::path::{Bits, Path};

/// How rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the service has them.
    Service,
    /// Four depths together, and packed.
    Packed,
}

/// A place in a tuft: up to three bits behind its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    len: usize,
    /// The bits, the last one lowest.
    bits: usize,
    /// Which one it is in the order of paths.
    number: usize,
    /// How many depths the tuft has.
    depths: usize,
}

/// Nodes that are stored together, in the order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuft {
    nodes: [Option<Node>; SLOTS],
}

/// Depths of a packed tuft.
const DEPTHS: usize = 4;
/// Most nodes of a tuft.
const SLOTS: usize = (1 << DEPTHS) - 1;

impl Slot {
    fn top(depths: usize) -> Slot {
        Slot { len: 0, bits: 0, number: 0, depths }
    }

    /// The place behind one more bit. To the left is what comes next; on the way to the right are the node itself and all that is left of it.
    #[must_use]
    pub fn then(self, bit: bool) -> Slot {
        let passed = if bit { 1 << (DEPTHS - 1).saturating_sub(self.len) } else { 1 };
        Slot {
            len: self.len + 1,
            bits: self.bits << 1 | usize::from(bit),
            number: self.number + passed,
            depths: self.depths,
        }
    }

    /// The branch at the end of a jump from here, if its sides are in this tuft.
    pub fn branch(self, jump: &Path) -> Option<Slot> {
        let is_inside = self.len + jump.len() + 1 < self.depths;
        is_inside.then(|| jump.bits().fold(self, Slot::then))
    }

    /// Its bits.
    pub fn bits(self) -> impl Iterator<Item = bool> {
        (0..self.len).rev().map(move |at| self.bits >> at & 1 == 1)
    }

    /// How many bits it is below the tuft's position.
    pub fn depth(self) -> usize {
        self.len
    }

    /// The slot with a number.
    fn numbered(number: usize) -> Slot {
        let mut slot = Slot::top(DEPTHS);
        while slot.number < number {
            let right = slot.then(true);
            slot = if right.number <= number { right } else { slot.then(false) };
        }
        slot
    }
}

impl Form {
    /// Depths of a tuft but the top one.
    pub fn depths(self) -> usize {
        match self {
            Form::Service => 1,
            Form::Packed => DEPTHS,
        }
    }

    /// How long the position of the tuft is that has the nodes of a depth. The top of the tree has a tuft for itself: so a tuft begins behind
    /// the 256 bits of an address, where its outputs part.
    pub fn start(self, depth: usize) -> usize {
        match depth.checked_sub(1) {
            Some(above) => depth - above % self.depths(),
            None => 0,
        }
    }

    /// The place of a node in its tuft.
    pub fn slot(self, position: &Bits) -> Slot {
        let start = self.start(position.len());
        let top = Slot::top(if start == 0 { 1 } else { self.depths() });
        position.iter_from(start).fold(top, Slot::then)
    }

    /// The key of a tuft's position.
    pub fn key(self, position: &Bits) -> Vec<u8> {
        match self {
            Form::Service => node::key(position),
            Form::Packed => [&position.head(), position.bytes()].concat(),
        }
    }

    /// The position of a key.
    pub fn position(self, key: &[u8]) -> Result<Path, Malformed> {
        match self {
            Form::Service => node::position(key),
            Form::Packed => unpacked(key)
                .filter(|path| self.start(path.len()) == path.len())
                .ok_or(Malformed { at: 0, wrong: "this should be the packed path of a tuft" }),
        }
    }

    /// Adds a node to the bytes of a tuft, which are empty at first. They come in the order of their paths.
    pub fn add(self, bytes: &mut Vec<u8>, slot: Slot, node: &Node) {
        match self {
            Form::Service => bytes.extend_from_slice(&node::value(node)),
            Form::Packed => {
                if bytes.is_empty() {
                    bytes.extend_from_slice(&[0; 2]);
                }
                if let Some(there) = bytes.first_chunk_mut() {
                    *there = (u16::from_be_bytes(*there) | 1 << slot.number).to_be_bytes();
                }
                bytes.reserve(34 + node.jump.bytes().len());
                bytes.extend_from_slice(&node.jump.head());
                bytes.extend_from_slice(node.jump.bytes());
                bytes.extend_from_slice(&node.value.0);
            }
        }
    }

    /// The nodes of a tuft's bytes.
    pub fn tuft(self, bytes: &[u8]) -> Result<Tuft, Malformed> {
        let mut tuft = Tuft::default();
        match self {
            Form::Service => tuft.add(self.slot(&Bits::default()), node::node(bytes)?),
            Form::Packed => {
                let wrong = |rest: &[u8], wrong| Malformed { at: bytes.len() - rest.len(), wrong };
                let (there, mut rest) = bytes
                    .split_first_chunk()
                    .map(|(there, rest)| (u16::from_be_bytes(*there), rest))
                    .filter(|(there, _)| (1..1 << SLOTS).contains(there))
                    .ok_or_else(|| wrong(bytes, "this should tell which nodes there are"))?;
                for number in (0..SLOTS).filter(|number| there >> number & 1 == 1) {
                    let (node, behind) =
                        take(rest).ok_or_else(|| wrong(rest, "this should be a packed node"))?;
                    tuft.add(Slot::numbered(number), node);
                    rest = behind;
                }
                if !rest.is_empty() {
                    return Err(wrong(rest, "nothing should be behind the last node"));
                }
            }
        }
        Ok(tuft)
    }
}

/// A packed node, and what is behind it.
fn take(bytes: &[u8]) -> Option<(Node, &[u8])> {
    let (head, _) = bytes.split_first_chunk::<2>()?;
    let bits = usize::from(u16::from_be_bytes(*head));
    let (jump, rest) = bytes.split_at_checked(2 + bits.div_ceil(8))?;
    let (value, rest) = rest.split_first_chunk()?;
    Some((Node { jump: unpacked(jump)?, value: Hash(*value) }, rest))
}

impl Tuft {
    /// Adds a node.
    pub fn add(&mut self, slot: Slot, node: Node) {
        if let Some(place) = self.nodes.get_mut(slot.number) {
            *place = Some(node);
        }
    }

    /// Takes a node out.
    pub fn take(&mut self, slot: Slot) -> Option<Node> {
        self.nodes.get_mut(slot.number)?.take()
    }

    /// The nodes, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(number, node)| Some((Slot::numbered(number), node.as_ref()?)))
    }

    /// The highest branch of a tuft without a node at its own position.
    pub fn branch(&self) -> Option<Slot> {
        let (first, _) = self.iter().min_by_key(|(slot, _)| slot.len)?;
        let above = first.len.checked_sub(1)?;
        Some(first.bits().take(above).fold(Slot::top(DEPTHS), Slot::then))
    }

    /// Its bytes.
    pub fn to_bytes(&self, form: Form) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.iter().for_each(|(slot, node)| form.add(&mut bytes, slot, node));
        bytes
    }
}
