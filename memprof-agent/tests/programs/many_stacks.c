// Allocates one block under each of 2^DEPTH different stacks. Usage: many_stacks DEPTH
#include "target.h"

static void *volatile last;
static size_t blocks;

SITE void leaf(void)
{
    last = malloc(100);
    pace(blocks);
    blocks++;
}

SITE void branch(size_t depth)
{
    if (depth == 0) {
        leaf();
    } else {
        branch(depth - 1);
        AFTER_CALL();
        branch(depth - 1);
    }
    AFTER_CALL();
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    say("ready");
    wait_for_line();
    branch(number(argv[1]));
    say_site("leaf", blocks * 100, blocks);
    say("done");
    wait_for_line();
    return 0;
}
