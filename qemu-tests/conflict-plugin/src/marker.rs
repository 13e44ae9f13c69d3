//! The instructions by which a guest says where its operations begin and end.
//!
//! `0f 1f 80` and a number of 32 bits is a `nop` with a memory operand, which it does not access. The number's upper half says that it is
//! a marker; then come four bits for what it means and twelve for the operation. The library's module `marker` makes them.

const OPCODE: [u8; 3] = [0x0f, 0x1f, 0x80];
const MAGIC: u32 = 0x5043;
const NUMBER_BITS: u32 = 12;

/// What a marker means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The operation of that number begins on this CPU.
    Begin(u16),
    /// A further part of an operation of that number begins: counted as the same operation.
    Part(u16),
    /// What began last on this CPU ends.
    End,
    /// What was counted for that operation so far was for warming up.
    Forget(u16),
    /// What follows on this CPU is not the operation's, up to `Resume`.
    Suspend,
    /// The operation goes on.
    Resume,
}

impl Marker {
    /// The marker that these bytes of an instruction are, if they are one.
    pub fn decode(instruction: &[u8]) -> Option<Self> {
        Self::from_number(u32::from_le_bytes(instruction.strip_prefix(&OPCODE)?.try_into().ok()?))
    }

    /// The marker of an instruction's number.
    pub fn from_number(number: u32) -> Option<Self> {
        let operation = (number & ((1 << NUMBER_BITS) - 1)) as u16;
        match (number >> 16, number >> NUMBER_BITS & 0xf) {
            (MAGIC, 1) => Some(Self::Begin(operation)),
            (MAGIC, 2) => Some(Self::Part(operation)),
            (MAGIC, 3) => Some(Self::End),
            (MAGIC, 4) => Some(Self::Forget(operation)),
            (MAGIC, 5) => Some(Self::Suspend),
            (MAGIC, 6) => Some(Self::Resume),
            _ => None,
        }
    }
}

/// Whether an instruction locks the bus: it has a lock prefix, or exchanges with memory.
pub fn is_locked(instruction: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    let mut bytes = instruction.iter().copied();
    let opcode = loop {
        match bytes.next() {
            Some(LOCK) => return true,
            // Segments, operand and address size, repetitions, and REX.
            Some(0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f) => {}
            other => break other,
        }
    };
    let is_exchange = matches!(opcode, Some(0x86 | 0x87));
    is_exchange && bytes.next().is_some_and(|modrm| modrm >> 6 != 0b11)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_nops_with_a_magic_number() {
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0x07, 0x10, 0x43, 0x50]), Some(Marker::Begin(7)));
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0xff, 0x2f, 0x43, 0x50]), Some(Marker::Part(0xfff)));
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0x00, 0x30, 0x43, 0x50]), Some(Marker::End));
    }

    #[test]
    fn the_nops_of_compilers_are_no_markers() {
        for nop in [
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0][..],
            &[0x0f, 0x1f, 0x80, 0x07, 0x00, 0x43, 0x50],
            &[0x0f, 0x1f, 0x40, 0],
            &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x90],
            &[],
        ] {
            assert_eq!(Marker::decode(nop), None, "{nop:x?}");
        }
    }

    #[test]
    fn locked_instructions_are_known_by_prefix_or_exchange() {
        for locked in [
            &[0xf0, 0x48, 0x0f, 0xc1, 0x07][..], // lock xadd [rdi], rax
            &[0x65, 0xf0, 0xff, 0x04, 0x25],     // lock inc gs:[..]
            &[0x87, 0x07],                       // xchg [rdi], eax
            &[0x65, 0x48, 0x87, 0x04, 0x25],     // xchg gs:[..], rax
        ] {
            assert!(is_locked(locked), "{locked:x?}");
        }
        for unlocked in [
            &[0x65, 0x48, 0x0f, 0xb1, 0x0f][..], // cmpxchg gs:[rdi], rcx
            &[0x48, 0x87, 0xc3],                 // xchg rbx, rax
            &[0x90],                             // nop
            &[0xf3, 0x48, 0xab],                 // rep stosq
            &[0xb8, 0xf0, 0, 0, 0],              // mov eax, 0xf0
            &[],
        ] {
            assert!(!is_locked(unlocked), "{unlocked:x?}");
        }
    }
}
