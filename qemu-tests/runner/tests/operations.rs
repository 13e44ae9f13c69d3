//! The instructions that the release kernel has for the hot operations.

use std::path::Path;
use std::sync::OnceLock;
use std::{env, fs};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, NasmFormatter,
    OpKind, Register,
};
use object::{Object, ObjectSection, ObjectSymbol};

/// The code and the address of an operation's function.
fn operation(name: &str) -> Vec<Instruction> {
    static ELF: OnceLock<Vec<u8>> = OnceLock::new();
    let elf = ELF.get_or_init(|| {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let arguments = ["build", "--config", ".cargo/kernel-host.toml", "--package", "test-kernel", "--bin", "operations", "--release"];
        fs::read(kernel_runner::build_kernel(workspace, &arguments).expect("the kernel builds")).unwrap()
    });
    let file = object::File::parse(elf.as_slice()).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap_or_else(|| panic!("no function `{name}`"));
    let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
    let code = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
    let instructions: Vec<_> = Decoder::with_ip(64, code, symbol.address(), DecoderOptions::NONE).into_iter().collect();
    println!("{name}:\n{}", listing(&instructions));
    instructions
}

fn listing(instructions: &[Instruction]) -> String {
    let mut formatter = NasmFormatter::new();
    let line = |instruction: &Instruction| {
        let mut text = format!("  {:x}  ", instruction.ip());
        formatter.format(instruction, &mut text);
        text
    };
    instructions.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The instructions that touch memory, but for the return address.
fn touching_memory(instructions: &[Instruction]) -> Vec<&Instruction> {
    let mut factory = InstructionInfoFactory::new();
    let touches = |instruction: &&Instruction| {
        let touches = factory.info(instruction).used_memory().iter().any(|memory| memory.memory_size() != MemorySize::Unknown);
        touches && instruction.flow_control() != FlowControl::Return
    };
    instructions.iter().filter(touches).collect()
}

/// Asserts that one instruction touches memory, through GS, and returns it.
fn the_one_through_gs(name: &str, mnemonic: Mnemonic) -> Instruction {
    let instructions = operation(name);
    let touching = touching_memory(&instructions);
    let [one] = touching.as_slice() else { panic!("{name}: {} instructions touch memory\n{}", touching.len(), listing(&instructions)) };
    assert_eq!((one.mnemonic(), one.segment_prefix()), (mnemonic, Register::GS), "{}", listing(&instructions));
    assert!(!one.has_lock_prefix());
    **one
}

#[test]
fn a_static_add_is_one_instruction_relative_to_rip() {
    for (name, mnemonic) in [("operation_static_add", Mnemonic::Add), ("operation_static_inc", Mnemonic::Inc)] {
        assert!(the_one_through_gs(name, mnemonic).is_ip_rel_memory_operand());
        // Nothing else but the return: no address is computed.
        assert_eq!(operation(name).iter().filter(|instruction| instruction.mnemonic() != Mnemonic::Nop).count(), 2);
    }
}

#[test]
fn a_load_is_one_instruction() {
    assert!(the_one_through_gs("operation_static_load", Mnemonic::Mov).is_ip_rel_memory_operand());
    the_one_through_gs("operation_current_cpu", Mnemonic::Mov);
}

#[test]
fn a_fields_add_is_one_instruction_with_the_offset_in_it() {
    assert!(the_one_through_gs("operation_field_add", Mnemonic::Add).is_ip_rel_memory_operand());
}

#[test]
fn a_run_time_handles_add_is_one_instruction() {
    let add = the_one_through_gs("operation_handle_add", Mnemonic::Add);
    assert_ne!(add.memory_base(), Register::None, "the handle is in a register");
}

/// The longest way from the entry to a return that leaves out calls and jumps out of the function: what a hit executes.
fn hit_path(instructions: &[Instruction], at: u64) -> Option<Vec<Instruction>> {
    let mut path = Vec::new();
    let mut next = at;
    loop {
        let instruction = *instructions.iter().find(|instruction| instruction.ip() == next)?;
        path.push(instruction);
        match instruction.flow_control() {
            FlowControl::Next => next = instruction.next_ip(),
            FlowControl::Return => return Some(path),
            FlowControl::UnconditionalBranch => {
                assert!(instruction.near_branch_target() > instruction.ip(), "a hit has no loop");
                next = instruction.near_branch_target();
            }
            FlowControl::ConditionalBranch => {
                assert!(instruction.near_branch_target() > instruction.ip(), "a hit has no loop");
                let ways = [instruction.next_ip(), instruction.near_branch_target()].map(|way| hit_path(instructions, way));
                let rest = ways.into_iter().flatten().max_by_key(Vec::len)?;
                path.extend(rest);
                return Some(path);
            }
            _ => return None,
        }
    }
}

#[test]
fn allocate_and_free_have_no_lock_no_cli_no_exchange_and_no_call_on_a_hit() {
    for name in ["operation_allocate_hit", "operation_free_hit"] {
        let instructions = operation(name);
        let path = hit_path(&instructions, instructions[0].ip()).unwrap_or_else(|| panic!("{name} has no way without a call"));
        println!("a hit: {} instructions\n{}", path.len(), listing(&path));
        for instruction in &path {
            let exchanges_memory =
                instruction.mnemonic() == Mnemonic::Xchg && (0..2).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
            assert!(!instruction.has_lock_prefix() && instruction.code() != Code::Cli && !exchanges_memory, "{}", listing(&[*instruction]));
        }
        let exchanges = path.iter().filter(|instruction| instruction.mnemonic() == Mnemonic::Cmpxchg).count();
        assert_eq!(exchanges, 1, "one compare-exchange takes or puts");
        assert!(path.len() <= 32, "{} instructions", path.len());
    }
}
