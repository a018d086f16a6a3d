// Leaks under a seccomp filter that kills the process at any system call it does not need.
#include "target.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(read), ALLOW(write), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(mremap),
    ALLOW(madvise), ALLOW(futex), ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(getrandom),
    ALLOW(exit), ALLOW(exit_group),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static void *volatile last;

SITE void *sealed_block(void)
{
    void *block = malloc(512);
    AFTER_CALL();
    return block;
}

int main(int argc, char **argv)
{
    (void)argv;
    struct sock_fprog filter = { .len = sizeof rules / sizeof *rules, .filter = rules };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 2;
    if (argc > 1)
        syscall(SYS_getppid); // shows that the filter bites
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < 3000; i++) {
        last = sealed_block();
        pace(i);
    }
    say_site("sealed_block", 3000 * 512, 3000);
    say("done");
    wait_for_line();
    return 0;
}
