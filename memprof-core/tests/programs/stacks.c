/*
 * Leaves snapshots of its own stacks, as the probes would take them, for the unwinder's tests.
 *
 *     stacks DIRECTORY
 *
 * writes for each scenario DIRECTORY/NAME.snap:
 *     8 registers: ip sp bp bx r12 r13 r14 r15 as the caller of capture() has them after its return
 *     the address of capture()
 *     n, and n return addresses as libgcc's unwinder sees them, from the caller of capture() on
 *     the bytes of the stack from sp to the end of its mapping
 * and DIRECTORY/NAME.maps, a copy of /proc/self/maps. All numbers are 8 bytes, native endianness.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
/* The work after a call keeps it from becoming a jump. */
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

static const char *directory;

struct state {
    uint64_t ip, sp, bp, bx, r12, r13, r14, r15;
};

void capture(const char *name);
void calls_without_cfi(void (*function)(void));

/* Stands for an allocator function: what it records is what its caller sees after the return. */
__asm__(
    ".text\n.globl capture\n.type capture, @function\n"
    "capture:\n"
    "    .cfi_startproc\n"
    "    mov (%rsp), %rax\n"
    "    lea 8(%rsp), %rdx\n"
    "    sub $72, %rsp\n"
    "    .cfi_adjust_cfa_offset 72\n"
    "    mov %rax, 0(%rsp)\n"
    "    mov %rdx, 8(%rsp)\n"
    "    mov %rbp, 16(%rsp)\n"
    "    mov %rbx, 24(%rsp)\n"
    "    mov %r12, 32(%rsp)\n"
    "    mov %r13, 40(%rsp)\n"
    "    mov %r14, 48(%rsp)\n"
    "    mov %r15, 56(%rsp)\n"
    "    mov %rsp, %rsi\n"
    "    call write_snapshot\n"
    "    add $72, %rsp\n"
    "    .cfi_adjust_cfa_offset -72\n"
    "    ret\n"
    "    .cfi_endproc\n"
    ".size capture, .-capture\n");

/* Calls a function, and nothing says how to unwind it. */
__asm__(
    ".text\n.globl calls_without_cfi\n.type calls_without_cfi, @function\n"
    "calls_without_cfi:\n"
    "    push %rbx\n"
    "    call *%rdi\n"
    "    pop %rbx\n"
    "    ret\n"
    ".size calls_without_cfi, .-calls_without_cfi\n");

/* Counts its frame from rbx, as the dynamic linker's trampolines do. */
void calls_with_rbx_frame(void (*function)(void));
__asm__(
    ".text\n.globl calls_with_rbx_frame\n.type calls_with_rbx_frame, @function\n"
    "calls_with_rbx_frame:\n"
    "    .cfi_startproc\n"
    "    push %rbx\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    .cfi_rel_offset %rbx, 0\n"
    "    mov %rsp, %rbx\n"
    "    .cfi_def_cfa_register %rbx\n"
    "    and $-64, %rsp\n"
    "    sub $320, %rsp\n"
    "    call *%rdi\n"
    "    mov %rbx, %rsp\n"
    "    .cfi_def_cfa_register %rsp\n"
    "    pop %rbx\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    .cfi_restore %rbx\n"
    "    ret\n"
    "    .cfi_endproc\n"
    ".size calls_with_rbx_frame, .-calls_with_rbx_frame\n");

static FILE *create(const char *name, const char *extension)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", directory, name, extension);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

/* Copies /proc/self/maps and returns the end of the mapping that holds `address`. */
static uint64_t copy_maps(const char *name, uint64_t address)
{
    uint64_t end = 0, from, to;
    char line[8192];
    FILE *maps = fopen("/proc/self/maps", "r"), *copy = create(name, "maps");
    while (maps && fgets(line, sizeof line, maps)) {
        fputs(line, copy);
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= address && address < to)
            end = to;
    }
    fclose(maps);
    fclose(copy);
    return end;
}

__attribute__((used)) void write_snapshot(const char *name, const struct state *state)
{
    void *frames[2048];
    int count = backtrace(frames, 2048), first = 0;
    while (first < count && (uint64_t)frames[first] != state->ip)
        first++;
    uint64_t function = (uint64_t)&capture, callers = count - first;
    FILE *file = create(name, "snap");
    fwrite(state, sizeof *state, 1, file);
    fwrite(&function, 8, 1, file);
    fwrite(&callers, 8, 1, file);
    fwrite(frames + first, 8, callers, file);
    fwrite((void *)state->sp, 1, copy_maps(name, state->sp) - state->sp, file);
    fclose(file);
}

/* Many values alive across the call: the compiler needs rbx, rbp and r12 to r15 for data. */
NOINLINE static long innermost(const char *name, long a, long b, long c, long d, long e, long f)
{
    a += b; b *= 3; c ^= a; d += c; e ^= d; f += e;
    capture(name);
    return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f;
}

NOINLINE static long middle(const char *name, long n)
{
    volatile long local[33];
    local[n & 31] = n;
    long sum = innermost(name, n, n + 1, n + 2, n + 3, n + 4, n + 5);
    return sum + local[n & 31];
}

NOINLINE static long outer(const char *name, long n)
{
    long sum = middle(name, n * 7);
    AFTER_CALL();
    return sum - n;
}

NOINLINE static long recurse(const char *name, long depth)
{
    long sum = depth ? recurse(name, depth - 1) : outer(name, 3);
    AFTER_CALL();
    return sum + depth;
}

/* A frame that realigns its stack and has a size known only at run time. */
NOINLINE static long realigned(const char *name, long n)
{
    __attribute__((aligned(128))) volatile char aligned[256];
    char *dynamic = alloca((size_t)n * 16);
    memset(dynamic, 1, (size_t)n * 16);
    aligned[n] = dynamic[n];
    long sum = outer(name, n);
    return sum + aligned[n] + dynamic[n + 1];
}

static const char *signal_name;

NOINLINE static void handler(int number)
{
    (void)number;
    outer(signal_name, 5);
    AFTER_CALL();
}

/* Is interrupted in the middle of its body, with data in every register. */
NOINLINE static long interrupted(long a, long b, long c, long d)
{
    long e = a * b, f = c * d, g = a ^ d;
    __asm__ volatile("int3" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g) : : "memory");
    return a + b + c + d + e + f + g;
}

NOINLINE static long signals(const char *name, int flags)
{
    signal_name = name;
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGTRAP, &action, NULL);
    long sum = interrupted(1, 2, 3, 4);
    AFTER_CALL();
    return sum;
}

NOINLINE static void *thread(void *name)
{
    outer(name, 9);
    AFTER_CALL();
    return NULL;
}

NOINLINE static void *signalled_thread(void *name)
{
    signals(name, 0);
    AFTER_CALL();
    return NULL;
}

static void run_thread(void *(*function)(void *), char *name)
{
    pthread_t id;
    pthread_create(&id, NULL, function, name);
    pthread_join(id, NULL);
}

static const char *callback_name;

NOINLINE static void callback(void)
{
    outer(callback_name, 2);
    AFTER_CALL();
}

/* Code that no file holds, as a just-in-time compiler makes it. */
static void run_generated(const char *name)
{
    /* push %rbx; call *%rdi; pop %rbx; ret */
    static const unsigned char code[] = {0x53, 0xff, 0xd7, 0x5b, 0xc3};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    callback_name = name;
    ((void (*)(void (*)(void)))page)(callback);
}

NOINLINE static void on_other_stack(const char *name)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    signals(name, SA_ONSTACK);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(stack.ss_sp);
}

static int compare(const void *a, const void *b)
{
    callback();
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    directory = argv[1];
    outer("plain", argc);
    recurse("deep", 100);
    recurse("too_deep", 600);
    realigned("realigned", 20);
    signals("signal", 0);
    on_other_stack("other_stack");
    run_thread(thread, "thread");
    run_thread(signalled_thread, "signalled_thread");
    callback_name = "no_cfi";
    calls_without_cfi(callback);
    callback_name = "rbx_frame";
    calls_with_rbx_frame(callback);
    callback_name = "qsort";
    int numbers[2] = {2, 1};
    qsort(numbers, 2, sizeof *numbers, compare);
    run_generated("generated");
    return 0;
}
