//! Decoding of the integers, byte strings and nodes that sled writes.
//!
//! Every function checks its bounds: bytes that mean nothing give [`Undecodable`], never a panic, and nothing is allotted
//! on the word of a length that the bytes do not bear out.

/// The bytes end too early or hold a value that sled does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Undecodable;

/// A position in a byte string that is read from front to back.
pub(super) struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Undecodable> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Undecodable)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Undecodable> {
        self.take(N)?.try_into().map_err(|_| Undecodable)
    }

    pub fn byte(&mut self) -> Result<u8, Undecodable> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, Undecodable> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Undecodable> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A log sequence number, which is never negative on disk.
    pub fn lsn(&mut self) -> Result<u64, Undecodable> {
        u64::try_from(self.i64()?).map_err(|_| Undecodable)
    }

    /// An integer of one to nine bytes; the first byte tells the length.
    pub fn varint(&mut self) -> Result<u64, Undecodable> {
        Ok(match self.byte()? {
            first @ 0..=240 => u64::from(first),
            first @ 241..=248 => 240 + 256 * (u64::from(first) - 241) + u64::from(self.byte()?),
            249 => {
                let [high, low] = self.array()?;
                2288 + 256 * u64::from(high) + u64::from(low)
            }
            first => {
                let bytes = self.take(usize::from(first) - 247)?;
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(whole)
            }
        })
    }

    /// A byte string behind its length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Undecodable> {
        let length = usize::try_from(self.varint()?).map_err(|_| Undecodable)?;
        self.take(length)
    }
}

/// A node of the tree, with its keys still without the prefix that all of them share.
pub(super) struct Node<'a> {
    /// The sibling to the right, or 0.
    pub next: u64,
    /// The child that is being merged into its left sibling, or 0.
    pub merging_child: u64,
    /// True if this node is being merged into its left sibling.
    pub merging: bool,
    pub prefix: &'a [u8],
    pub lo: &'a [u8],
    /// The first key beyond the node; empty means that there is no end.
    pub hi: &'a [u8],
    pub keys: Vec<&'a [u8]>,
    pub data: NodeData<'a>,
}

pub(super) enum NodeData<'a> {
    Leaf(Vec<&'a [u8]>),
    Index(Vec<u64>),
}

impl<'a> Node<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Undecodable> {
        let mut from = Decoder(bytes);
        let (next, merging_child, merging) = (from.varint()?, from.varint()?, from.byte()? != 0);
        let prefix = usize::from(from.byte()?);
        let (lo, hi) = (from.bytes()?, from.bytes()?);
        let kind = from.byte()?;
        let count = usize::try_from(from.varint()?).map_err(|_| Undecodable)?;
        // Each key takes a byte at least.
        if count > from.0.len() {
            return Err(Undecodable);
        }
        let keys = (0..count).map(|_| from.bytes()).collect::<Result<Vec<_>, _>>()?;
        let data = match kind {
            0 => NodeData::Leaf((0..count).map(|_| from.bytes()).collect::<Result<_, _>>()?),
            1 => NodeData::Index((0..count).map(|_| from.varint()).collect::<Result<_, _>>()?),
            _ => return Err(Undecodable),
        };
        let in_order = keys.is_sorted_by(|one, other| one < other);
        let bounded = lo.len() >= prefix && (hi.is_empty() || (lo < hi && hi.len() >= prefix));
        if !from.is_empty() || !in_order || !bounded {
            return Err(Undecodable);
        }
        Ok(Self { next, merging_child, merging, prefix: &lo[..prefix], lo, hi, keys, data })
    }
}

/// A change of a node that is kept beside it until the node is written anew.
pub(super) enum Link<'a> {
    Set(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    MergeChild(u64),
    ChildMerged,
    Merging,
}

impl<'a> Link<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Undecodable> {
        let mut from = Decoder(bytes);
        let link = match from.byte()? {
            0 => Self::Set(from.bytes()?, from.bytes()?),
            1 => Self::Delete(from.bytes()?),
            2 => Self::MergeChild(from.varint()?),
            3 => Self::ChildMerged,
            4 => Self::Merging,
            _ => return Err(Undecodable),
        };
        if from.is_empty() { Ok(link) } else { Err(Undecodable) }
    }
}

/// The root page of the tree that sled calls its default, out of the page that lists all trees.
pub(super) fn default_root(meta: &[u8]) -> Result<Option<u64>, Undecodable> {
    let mut from = Decoder(meta);
    let mut root = None;
    while !from.is_empty() {
        let (name, pid) = (from.bytes()?, from.varint()?);
        if name == b"__sled__default" {
            root = Some(pid);
        }
    }
    Ok(root)
}
