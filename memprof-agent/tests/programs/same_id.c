// Two children, one after the other, with one process id.
#include "target.h"

#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *volatile last;

SITE void *first_block(void)
{
    void *block = malloc(100);
    AFTER_CALL();
    return block;
}

SITE void *second_block(void)
{
    void *block = malloc(200);
    AFTER_CALL();
    return block;
}

// Starts a child with this process id, or any if it is 0.
static pid_t start(pid_t id)
{
    struct clone_args arguments = {
        .exit_signal = SIGCHLD,
        .set_tid = id ? (uintptr_t)&id : 0,
        .set_tid_size = id ? 1 : 0,
    };
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

static void run(pid_t id, void *(*allocate)(void), pid_t *used)
{
    pid_t child = start(id);
    if (child == 0) {
        usleep(1000000);
        for (int i = 0; i < 30; i++)
            last = allocate();
        _exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        _exit(7);
    *used = child;
}

int main(void)
{
    pid_t first = 0, second = 0;
    say("ready");
    wait_for_line();
    run(0, first_block, &first);
    run(first, second_block, &second);
    if (first != second)
        return 8;
    say("value id %d", first);
    say("done");
    wait_for_line();
    return 0;
}
