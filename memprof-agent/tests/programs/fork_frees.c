// After a fork the child frees all the parent's blocks and leaks its own, the parent frees half.
#include "target.h"

#include <sys/wait.h>

enum { BLOCKS = 2000, SIZE = 150 };

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
    void *block = malloc(99);
    AFTER_CALL();
    return block;
}

SITE void child_work(void)
{
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < 500; i++)
        last = child_block();
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = parent_block();
    pid_t child = fork();
    if (child < 0)
        return 2;
    if (child == 0) {
        child_work();
        _exit(0);
    }
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 2;
    say("value child %d", child);
    say_site("parent_block", BLOCKS / 2 * SIZE, BLOCKS / 2);
    say("done");
    wait_for_line();
    return 0;
}
