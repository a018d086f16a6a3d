//! What user space tells the probes, in a one-element array map so that it can change at run time.

/// Settings of the probes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Mean requested bytes between two samples; 1 = every block, 0 = none.
    pub sample_interval: u64,
    /// [`crate::sampling::slope`] of the interval.
    pub sample_slope: u64,
    /// Blocks in the kernel's live table from which on fewer are sampled, see
    /// [`crate::sampling::pressure_level`].
    pub pressure_from: u64,
    /// Blocks beyond that by which the probability is halved once more.
    pub pressure_step: u64,
    /// Most bytes that a function which may throw can be asked for and have its return awaited; see
    /// [`crate::function::FunctionKind::may_throw`].
    pub throw_limit: u64,
    /// Most bytes of user stack in one snapshot.
    pub stack_limit: u32,
    /// Whether children of watched processes are watched too: 0 or 1.
    pub follow_children: u32,
    /// Where the probes find things in the running kernel.
    pub kernel: KernelOffsets,
}

/// Byte offsets of kernel structure members, read from the running kernel's BTF (aya-ebpf programs
/// carry no CO-RE relocations). [`KernelOffsets::UNKNOWN`] switches off what needs the member.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOffsets {
    /// `task_struct.thread.fsbase`: the thread control block, which sits above a pthread's stack.
    pub task_fsbase: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `mm_struct.start_stack`: top of the primordial thread's stack.
    pub mm_start_stack: u32,
    /// `task_struct.utask`: uprobe state of the task.
    pub task_utask: u32,
    /// `uprobe_task.return_instances`: return addresses that uretprobes replaced.
    pub utask_return_instances: u32,
    /// `return_instance.stack`: where on the stack the address was.
    pub return_instance_stack: u32,
    /// `return_instance.orig_ret_vaddr`: the address that was there.
    pub return_instance_original: u32,
    /// `return_instance.next`.
    pub return_instance_next: u32,
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.start_boottime`.
    pub task_start_boottime: u32,
    /// `mm_struct.brk`: the program break.
    pub mm_brk: u32,
    /// Always zero.
    pub reserved: u32,
}

impl KernelOffsets {
    /// Marks a member that the running kernel does not have.
    pub const UNKNOWN: u32 = u32::MAX;
    /// No member known.
    pub const NONE: Self = Self {
        task_fsbase: Self::UNKNOWN,
        task_mm: Self::UNKNOWN,
        mm_start_stack: Self::UNKNOWN,
        task_utask: Self::UNKNOWN,
        utask_return_instances: Self::UNKNOWN,
        return_instance_stack: Self::UNKNOWN,
        return_instance_original: Self::UNKNOWN,
        return_instance_next: Self::UNKNOWN,
        task_tgid: Self::UNKNOWN,
        task_start_boottime: Self::UNKNOWN,
        mm_brk: Self::UNKNOWN,
        reserved: 0,
    };
}

const _: () = assert!(size_of::<Settings>() == 48 + 48 && align_of::<Settings>() == 8);
