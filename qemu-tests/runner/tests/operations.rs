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
    let names = ["operation_static_add", "operation_static_inc", "operation_static_event"];
    for (name, mnemonic) in names.into_iter().zip([Mnemonic::Add, Mnemonic::Inc, Mnemonic::Inc]) {
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

#[test]
fn a_run_time_event_is_one_instruction_after_the_handle_is_loaded() {
    let instructions = operation("operation_event_add");
    let [load, add] = touching_memory(&instructions)[..] else { panic!("{}", listing(&instructions)) };
    assert_eq!((load.mnemonic(), add.mnemonic(), add.segment_prefix()), (Mnemonic::Mov, Mnemonic::Add, Register::GS));
}

/// The ways from the entry to a return that leave out calls and loops.
fn ways(instructions: &[Instruction], at: u64) -> Vec<Vec<Instruction>> {
    let Some(&instruction) = instructions.iter().find(|instruction| instruction.ip() == at) else { return Vec::new() };
    let next: Vec<u64> = match instruction.flow_control() {
        FlowControl::Next => vec![instruction.next_ip()],
        FlowControl::Return => return vec![vec![instruction]],
        FlowControl::UnconditionalBranch => vec![instruction.near_branch_target()],
        FlowControl::ConditionalBranch => vec![instruction.next_ip(), instruction.near_branch_target()],
        _ => Vec::new(),
    };
    let forward = next.into_iter().filter(|&next| next > at);
    forward.flat_map(|next| ways(instructions, next)).map(|rest| [&[instruction][..], &rest].concat()).collect()
}

#[test]
fn a_counters_add_has_one_unlocked_instruction_on_a_hit() {
    for (name, mnemonic) in [
        ("operation_counter_add", Mnemonic::Cmpxchg),
        ("operation_counter_add_pinned", Mnemonic::Xadd),
        ("operation_set_add", Mnemonic::Cmpxchg),
        ("operation_set_add_pinned", Mnemonic::Xadd),
    ] {
        let instructions = operation(name);
        let ways = ways(&instructions, instructions[0].ip());
        let is_on_slot = |instruction: &Instruction| instruction.mnemonic() == mnemonic && instruction.segment_prefix() == Register::GS;
        let hits: Vec<_> = ways.iter().filter(|way| !way.iter().any(Instruction::has_lock_prefix) && way.iter().any(is_on_slot)).collect();
        let hit = hits.first().unwrap_or_else(|| panic!("{name} has no hit without a lock prefix or a call"));
        println!("a hit: {} instructions\n{}", hit.len(), listing(hit));
        assert!(!hit.iter().any(|instruction| instruction.code() == Code::Cli));
        assert_eq!(hit.iter().filter(|instruction| is_on_slot(instruction)).count(), 1);
        assert!(hit.len() <= 24, "{} instructions", hit.len());
    }
}

#[test]
fn a_sole_users_add_is_one_instruction() {
    let instructions = operation("operation_lazy_add_sole_user");
    let [add] = touching_memory(&instructions)[..] else { panic!("{}", listing(&instructions)) };
    assert!(add.mnemonic() == Mnemonic::Add && !add.has_lock_prefix());
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
