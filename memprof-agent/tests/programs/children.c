// A parent, a child that is not another program, and a child of that. The child frees what it has inherited.
#include "target.h"

#include <sys/wait.h>

enum { BLOCKS = 1000, SIZE = 300 };

static void *blocks[BLOCKS];
static void *volatile last;

SITE void *parent_block(void)
{
    void *block = malloc(SIZE);
    AFTER_CALL();
    return block;
}

SITE void *child_block(void)
{
    void *block = malloc(70);
    AFTER_CALL();
    return block;
}

SITE void *grandchild_block(void)
{
    void *block = malloc(90);
    AFTER_CALL();
    return block;
}

// Time for the probes to be put in.
static void wait_for_probes(void)
{
    usleep(1500000);
}

SITE void grandchild(void)
{
    wait_for_probes();
    for (int i = 0; i < 40; i++)
        last = grandchild_block();
    _exit(0);
}

SITE void child(void)
{
    wait_for_probes();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < 500; i++)
        last = child_block();
    free(last);
    pid_t pid = fork();
    if (pid == 0)
        grandchild();
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        _exit(6);
    say("value grandchild %d", pid);
    _exit(0);
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = parent_block();
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    memset(blocks, 0, 100 * sizeof *blocks);
    pid_t pid = fork();
    if (pid == 0)
        child();
    for (int i = 100; i < BLOCKS; i += 2)
        free(blocks[i]);
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return 2;
    say("value child %d", pid);
    say("done");
    wait_for_line();
    return 0;
}
