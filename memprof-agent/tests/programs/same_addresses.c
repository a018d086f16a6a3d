// Leaks COUNT blocks of SIZE bytes and tells where they are; frees them when FREE is 1.
// Usage: same_addresses COUNT SIZE FREE
#include "target.h"

SITE void *shared_site(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

static void *blocks[10000];

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t count = number(argv[1]), size = number(argv[2]), frees = number(argv[3]);
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < count; i++)
        blocks[i] = shared_site(size);
    say("value first %zu", (size_t)blocks[0]);
    say("value last %zu", (size_t)blocks[count - 1]);
    say("done");
    wait_for_line();
    for (size_t i = 0; frees && i < count; i++)
        free(blocks[i]);
    say_site("shared_site", frees ? 0 : count * size, frees ? 0 : count);
    say("done");
    wait_for_line();
    return 0;
}
