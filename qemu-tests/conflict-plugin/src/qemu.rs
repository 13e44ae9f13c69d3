//! The plugin as QEMU sees it: what it exports, and what it calls.
//!
//! QEMU's functions are looked up when it loads the plugin, so that nothing is undefined where the crate is used as a library.
//!
//! QEMU refuses a plugin whose version is not between the two that it supports: up to 1 before QEMU 9.0, and from 2 on since. The calls
//! used here are the same in both but for one, so the plugin declares what QEMU wants, before QEMU looks.

use crate::caches::Access;
use crate::counts::Counts;
use crate::marker::{self, Marker};
use crate::profile::{Block, Profiler};
use libc::{c_char, c_int, c_uint, c_void};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fs, slice};

/// The version of QEMU's API that the plugin asks for; QEMU reads it after [`choose_version`].
#[unsafe(no_mangle)]
pub static mut qemu_plugin_version: c_int = 1;

/// From this version on `qemu_plugin_insn_data` copies, before it returned a pointer.
const COPYING_VERSION: c_int = 3;

/// The longest instruction.
const MAX_INSTRUCTION_BYTES: usize = 15;

/// Callbacks neither read nor write registers.
const NO_REGISTERS: c_int = 0;
/// Both loads and stores are of interest.
const READS_AND_WRITES: c_int = 3;

type PluginId = u64;

/// What QEMU says about itself.
#[repr(C)]
pub struct Info {
    target_name: *const c_char,
    version_min: c_int,
    version_cur: c_int,
    system_emulation: bool,
}

/// Names QEMU's functions with their types, and looks them up.
macro_rules! qemu_functions {
    ($(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(clippy::struct_field_names)]
        struct Qemu {
            version: c_int,
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Qemu {
            /// The functions of the process that this is loaded in; `Err` names one that is not there.
            fn find(version: c_int) -> Result<Self, &'static str> {
                Ok(Self {
                    version,
                    $($name: {
                        let name = concat!("qemu_plugin_", stringify!($name), "\0");
                        let address = symbol(name).ok_or(name.trim_end_matches('\0'))?;
                        // SAFETY: QEMU's function of that name has this type in all versions that are accepted.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address) }
                    },)*
                })
            }
        }
    };
}

qemu_functions! {
    fn register_vcpu_tb_trans_cb(PluginId, extern "C" fn(PluginId, *mut c_void));
    fn register_atexit_cb(PluginId, extern "C" fn(PluginId, *mut c_void), *mut c_void);
    fn tb_n_insns(*mut c_void) -> usize;
    fn tb_get_insn(*mut c_void, usize) -> *mut c_void;
    fn insn_size(*mut c_void) -> usize;
    fn insn_vaddr(*mut c_void) -> u64;
    // Before `COPYING_VERSION` it takes the first argument alone and returns a pointer to the bytes.
    fn insn_data(*mut c_void, *mut c_void, usize) -> *const u8;
    fn register_vcpu_tb_exec_cb(*mut c_void, extern "C" fn(c_uint, *mut c_void), c_int, *mut c_void);
    fn register_vcpu_insn_exec_cb(*mut c_void, extern "C" fn(c_uint, *mut c_void), c_int, *mut c_void);
    fn register_vcpu_mem_cb(*mut c_void, extern "C" fn(c_uint, u32, u64, *mut c_void), c_int, c_int, *mut c_void);
    fn mem_size_shift(u32) -> c_uint;
    fn mem_is_store(u32) -> bool;
    fn get_hwaddr(u32, u64) -> *mut c_void;
    fn hwaddr_is_io(*const c_void) -> bool;
    fn hwaddr_phys_addr(*const c_void) -> u64;
}

fn symbol(name_with_nul: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name_with_nul.as_bytes()).ok()?;
    // SAFETY: a string that ends with a nul; looking a symbol up has no other effect.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Runs when the plugin is loaded, before QEMU reads the version.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // Removed with version 2.
    if symbol("qemu_plugin_n_vcpus\0").is_none() {
        // SAFETY: while the plugin is loaded nobody else can use it.
        unsafe { qemu_plugin_version = 2 };
    }
}

struct Plugin {
    qemu: Qemu,
    /// The file to write.
    out: PathBuf,
    /// Lines are told apart by their physical addresses, which costs most of the time: for guests that map memory twice.
    is_physical: bool,
    counted: Counted,
}

/// What is counted between marks.
enum Counted {
    /// Lines that change hands.
    Transfers(Mutex<Counts>),
    /// Instructions alone.
    Instructions(Box<Profiler>),
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

impl Plugin {
    /// The plugin, which was installed: callbacks are registered after that.
    fn get() -> &'static Self {
        PLUGIN.get().expect("QEMU calls back after the plugin is installed")
    }

    /// Does what is to be done where transfers are counted; their callbacks are registered there only.
    fn with_counts(&self, f: impl FnOnce(&mut Counts)) {
        if let Counted::Transfers(counts) = &self.counted {
            f(&mut counts.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// QEMU's call to set the plugin up; not zero: it refuses to work, and has said why.
///
/// # Safety
///
/// QEMU calls it, with what its documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    nr_arguments: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU's promises: a valid `info`, and so many strings.
    let (info, arguments) = unsafe {
        let nr_arguments = usize::try_from(nr_arguments).unwrap_or(0);
        let arguments = if nr_arguments == 0 { &[][..] } else { slice::from_raw_parts(arguments, nr_arguments) };
        (&*info, arguments.iter().map(|&argument| CStr::from_ptr(argument).to_string_lossy().into_owned()))
    };
    match install(id, info, arguments) {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("conflict-plugin: {reason}");
            -1
        }
    }
}

fn install(id: PluginId, info: &Info, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    // SAFETY: QEMU's promise, a string that lives on.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    if target != c"x86_64" || !info.system_emulation {
        return Err(format!("it is for qemu-system-x86_64, not for an emulation of {}", target.to_string_lossy()));
    }
    if info.version_cur < 1 {
        return Err(format!("it wants version 1 of QEMU's plugin API, of QEMU 6.0; this QEMU has version {}", info.version_cur));
    }
    let mut out = None;
    let mut is_physical = true;
    let mut counted = Counted::Transfers(Mutex::default());
    for argument in arguments {
        match argument.split_once('=') {
            Some(("out", path)) => out = Some(PathBuf::from(path)),
            Some(("address", "physical")) => is_physical = true,
            Some(("address", "virtual")) => is_physical = false,
            Some(("count", "transfers")) => counted = Counted::Transfers(Mutex::default()),
            Some(("count", "instructions")) => counted = Counted::Instructions(Box::default()),
            _ => {
                return Err(format!(
                    "`{argument}` is not an argument: out=FILE, count=transfers or count=instructions, and address=physical or address=virtual are"
                ));
            }
        }
    }
    let out = out.ok_or("the argument out=FILE is missing: where to write the report")?;
    let qemu = Qemu::find(info.version_cur).map_err(|name| format!("this QEMU has no `{name}`"))?;
    let plugin = PLUGIN.get_or_init(|| Plugin { qemu, out, is_physical, counted });
    // SAFETY: QEMU's functions, called as its documentation says.
    unsafe {
        (plugin.qemu.register_vcpu_tb_trans_cb)(id, translated);
        (plugin.qemu.register_atexit_cb)(id, ended, std::ptr::null_mut());
    }
    Ok(())
}

/// QEMU has translated a block: asks to be called for what is counted.
extern "C" fn translated(_: PluginId, block: *mut c_void) {
    let Plugin { qemu, counted, .. } = Plugin::get();
    // SAFETY: QEMU's functions on what it handed over, which is valid during this call; the address of an instruction goes with its
    // callbacks as a number, and a block of the profiler's lives for ever.
    unsafe {
        let instructions = || (0..(qemu.tb_n_insns)(block)).map(|index| (qemu.tb_get_insn)(block, index));
        if let Counted::Instructions(profiler) = counted {
            let own = profiler.block(instructions().map(|instruction| (qemu.insn_vaddr)(instruction)));
            (qemu.register_vcpu_tb_exec_cb)(block, entered, NO_REGISTERS, (&raw const *own).cast_mut().cast());
        }
        for instruction in instructions() {
            let address = (qemu.insn_vaddr)(instruction) as usize as *mut c_void;
            let mut buffer = [0; MAX_INSTRUCTION_BYTES];
            let bytes = bytes(qemu, instruction, &mut buffer);
            if let Some(number) = marker_number(bytes) {
                (qemu.register_vcpu_insn_exec_cb)(instruction, marked, NO_REGISTERS, number as usize as *mut c_void);
                continue;
            }
            if matches!(counted, Counted::Instructions(_)) {
                continue;
            }
            if marker::is_locked(bytes) {
                (qemu.register_vcpu_insn_exec_cb)(instruction, executed_locked, NO_REGISTERS, address);
                (qemu.register_vcpu_mem_cb)(instruction, accessed_locked, NO_REGISTERS, READS_AND_WRITES, address);
            } else {
                (qemu.register_vcpu_insn_exec_cb)(instruction, executed, NO_REGISTERS, address);
                (qemu.register_vcpu_mem_cb)(instruction, accessed, NO_REGISTERS, READS_AND_WRITES, address);
            }
        }
    }
}

/// The bytes of an instruction.
///
/// # Safety
///
/// The instruction is of a block that is being translated.
unsafe fn bytes<'b>(qemu: &Qemu, instruction: *mut c_void, buffer: &'b mut [u8; MAX_INSTRUCTION_BYTES]) -> &'b [u8] {
    // SAFETY: the caller's promise; the buffer has that length.
    unsafe {
        let nr_bytes = (qemu.insn_size)(instruction).min(MAX_INSTRUCTION_BYTES);
        let returned = (qemu.insn_data)(instruction, buffer.as_mut_ptr().cast(), nr_bytes);
        if qemu.version < COPYING_VERSION {
            buffer[..nr_bytes].copy_from_slice(slice::from_raw_parts(returned, nr_bytes));
        }
        &buffer[..nr_bytes]
    }
}

/// The number of the marker that an instruction is.
fn marker_number(instruction: &[u8]) -> Option<u32> {
    Marker::decode(instruction)?;
    Some(u32::from_le_bytes(*instruction.last_chunk()?))
}

extern "C" fn marked(cpu: c_uint, number: *mut c_void) {
    let Some(marker) = Marker::from_number(number as usize as u32) else { return };
    match &Plugin::get().counted {
        Counted::Transfers(counts) => counts.lock().unwrap_or_else(PoisonError::into_inner).mark(cpu as usize, marker),
        Counted::Instructions(profiler) => profiler.mark(cpu as usize, marker),
    }
}

extern "C" fn entered(cpu: c_uint, block: *mut c_void) {
    if let Counted::Instructions(profiler) = &Plugin::get().counted {
        // SAFETY: the profiler's, which `translated` handed over.
        profiler.execute(cpu as usize, unsafe { &*block.cast::<Block>() });
    }
}

extern "C" fn executed(cpu: c_uint, _: *mut c_void) {
    Plugin::get().with_counts(|counts| counts.execute(cpu as usize, false));
}

extern "C" fn executed_locked(cpu: c_uint, _: *mut c_void) {
    Plugin::get().with_counts(|counts| counts.execute(cpu as usize, true));
}

extern "C" fn accessed(cpu: c_uint, info: u32, address: u64, instruction: *mut c_void) {
    let plugin = Plugin::get();
    // SAFETY: QEMU's function on what it handed over.
    let is_store = unsafe { (plugin.qemu.mem_is_store)(info) };
    access(plugin, cpu, info, address, if is_store { Access::Write } else { Access::Read }, instruction);
}

extern "C" fn accessed_locked(cpu: c_uint, info: u32, address: u64, instruction: *mut c_void) {
    access(Plugin::get(), cpu, info, address, Access::Write, instruction);
}

fn access(plugin: &Plugin, cpu: c_uint, info: u32, mut address: u64, access: Access, instruction: *mut c_void) {
    if plugin.is_physical {
        // SAFETY: QEMU's functions on what it handed over; what they return is valid during this call.
        let physical = unsafe {
            let place = (plugin.qemu.get_hwaddr)(info, address);
            (!place.is_null()).then(|| (!(plugin.qemu.hwaddr_is_io)(place)).then(|| (plugin.qemu.hwaddr_phys_addr)(place)))
        };
        match physical {
            // A device's register is no line.
            Some(None) => return,
            Some(Some(physical)) => address = physical,
            None => {}
        }
    }
    // SAFETY: QEMU's function on what it handed over.
    let bytes = 1 << unsafe { (plugin.qemu.mem_size_shift)(info) };
    plugin.with_counts(|counts| counts.access(cpu as usize, address, bytes, access, instruction as usize as u64));
}

extern "C" fn ended(_: PluginId, _: *mut c_void) {
    let plugin = Plugin::get();
    let report = match &plugin.counted {
        Counted::Transfers(counts) => serde_json::to_vec(&counts.lock().unwrap_or_else(PoisonError::into_inner).report()),
        Counted::Instructions(profiler) => serde_json::to_vec(&profiler.profile()),
    };
    if let Err(error) = report.map_err(Into::into).and_then(|report| fs::write(&plugin.out, report)) {
        eprintln!("conflict-plugin: cannot write {}: {error}", plugin.out.display());
    }
}
